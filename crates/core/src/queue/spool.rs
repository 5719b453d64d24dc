//! Who leaves a full spool: the oldest of the lowest class. A spool is for one receiver that is away, and what waits in it is all
//! acknowledged; so it is the operator's classes that say what may be lost first, and not who has the most waiting.
//!
//! As with what a class may have waiting, only the first of each flow is looked at, and what has been chosen to go out next is
//! spared as long as there is anything else.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use tidegate_control::Timestamp;
use tidegate_control::schedule::FlowId;

use super::flows::SHARED;
use super::{Item, Queue, WaitingCopy, is_passing};
use crate::classes::{CLASSES_MAX, ClassId, OnFull, Priority};
use crate::session::Queued;

/// Flows that are looked at for the oldest, once one of the lowest class is found: all of a small site, and no more than a moment's
/// work of a large one.
const LOOK_MAX: usize = 1024;

/// Flows that are looked at for one of the lowest class. Beyond them the lowest that was seen goes: there is no site of so many
/// publishers whose lowest class has none among so many, and no message may cost a walk of all.
const LOOK_FAR_MAX: usize = 8 * LOOK_MAX;

/// Where a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SpoolPlace {
    Line,
    Flow(FlowId),
    Held(ClassId),
    Chosen,
}

/// The weight of a message's class; then what nobody was promised before what was acknowledged, and the oldest.
type SpoolRank = (u32, bool, u64, Timestamp);

/// The first of each flow that was looked at, the one that goes first on top. One look serves a newcomer, however many have to
/// go for it.
#[derive(Debug)]
pub(super) struct SpoolLook(BinaryHeap<Reverse<(SpoolRank, SpoolPlace)>>);

impl Queue {
    /// Whoever has to go for a newcomer; none if that is itself.
    pub(super) fn evict_from_spool(
        &mut self,
        newcomer: &Queued,
        priority: &Priority,
        look: &mut Option<SpoolLook>,
    ) -> Option<Item> {
        let ((weight, is_acknowledged, ..), place) = self.lowest(priority, look)?;
        let class = newcomer.message.class();
        let own = priority.classes.weight(class);
        let is_lower = own < weight || (own == weight && is_passing(newcomer) && is_acknowledged);
        let keeps_old = own == weight && matches!(priority.on_full(class), OnFull::DropNewest | OnFull::Refuse);
        if is_lower || keeps_old { None } else { self.evict_at_place(place, priority, look) }
    }

    /// Whoever has to go, whatever comes.
    pub(super) fn evict_lowest(&mut self, priority: &Priority, look: &mut Option<SpoolLook>) -> Option<Item> {
        let (_, place) = self.lowest(priority, look)?;
        self.evict_at_place(place, priority, look)
    }

    /// Whether something waits that would go before a message of this class.
    pub(crate) fn has_lower_than(&self, class: ClassId, priority: &Priority) -> bool {
        let own = priority.classes.weight(class);
        let held = self.pages.iter().flat_map(|pages| pages.held_classes());
        self.waiting_classes().chain(held).any(|other| priority.classes.weight(other) < own)
    }

    /// The classes of line and flows.
    fn waiting_classes(&self) -> impl Iterator<Item = ClassId> {
        let classes = self.class_len.iter().zip(0..CLASSES_MAX as u8).filter(|(len, _)| **len > 0);
        classes.map(|(_, bits)| ClassId::from_bits(bits))
    }

    fn lowest(&self, priority: &Priority, look: &mut Option<SpoolLook>) -> Option<(SpoolRank, SpoolPlace)> {
        let weight = |class: ClassId| priority.classes.weight(class);
        // When those that were looked at are gone there may be others behind them.
        if look.as_ref().is_none_or(|look| look.0.is_empty()) {
            *look = Some(self.look(priority));
        }
        let mut found = look.as_ref().and_then(|look| look.0.peek()).map(|Reverse(first)| *first);
        let held = self.pages.iter().flat_map(|pages| pages.held_classes());
        if let Some(class) = held.min_by_key(|class| weight(*class))
            && found.is_none_or(|((best, ..), _)| weight(class) < best)
        {
            found = Some(((weight(class), true, 0, Timestamp::ZERO), SpoolPlace::Held(class)));
        }
        let chosen = || self.pages.as_ref().and_then(|pages| pages.first_class());
        found.or_else(|| Some(((weight(chosen()?), true, 0, Timestamp::ZERO), SpoolPlace::Chosen)))
    }

    fn spool_rank(&self, waiting: &WaitingCopy, priority: &Priority) -> Option<SpoolRank> {
        if let WaitingCopy::Paged(paged) = waiting {
            return Some((priority.classes.weight(paged.class), true, paged.place, Timestamp::ZERO));
        }
        let queued = self.seen(waiting)?;
        let weight = priority.classes.weight(queued.message.class());
        Some((weight, !is_passing(queued), queued.place, queued.since))
    }

    /// Looks at the first of each flow: at all of the first [`LOOK_MAX`], and at more of them only for the lowest class.
    fn look(&self, priority: &Priority) -> SpoolLook {
        let lowest_class = self.waiting_classes().map(|class| priority.classes.weight(class)).min();
        let mut look = BinaryHeap::new();
        let mut is_lowest_found = false;
        let line = (!self.line.is_empty()).then_some(SpoolPlace::Line);
        let flows = self.flows.iter().flat_map(|flows| flows.places.values().copied().chain([SHARED]));
        for (looked, place) in line.into_iter().chain(flows.map(SpoolPlace::Flow)).enumerate() {
            if looked >= LOOK_FAR_MAX || (looked >= LOOK_MAX && is_lowest_found) {
                break;
            }
            let Some(rank) = self.rank_at(place, priority) else { continue };
            is_lowest_found |= Some(rank.0) == lowest_class;
            look.push(Reverse((rank, place)));
        }
        SpoolLook(look)
    }

    /// The rank of who is first there.
    fn rank_at(&self, place: SpoolPlace, priority: &Priority) -> Option<SpoolRank> {
        let first = match place {
            SpoolPlace::Line => self.line.front(),
            SpoolPlace::Flow(flow) => self.flows.as_ref()?.scheduler.first(flow),
            SpoolPlace::Held(_) | SpoolPlace::Chosen => None,
        };
        self.spool_rank(first?, priority)
    }

    fn evict_at_place(&mut self, place: SpoolPlace, priority: &Priority, look: &mut Option<SpoolLook>) -> Option<Item> {
        let waiting = match place {
            SpoolPlace::Line => self.line.pop_front()?,
            SpoolPlace::Flow(flow) => self.flows.as_mut()?.scheduler.evict(flow)?.item,
            SpoolPlace::Held(class) => return self.pages.as_mut()?.take_held_of(class),
            SpoolPlace::Chosen => return self.pages.as_mut()?.take_first(),
        };
        // The next of this flow takes the place of the one that goes.
        let next = self.rank_at(place, priority);
        if let Some(SpoolLook(look)) = look {
            look.pop();
            look.extend(next.map(|rank| Reverse((rank, place))));
        }
        self.leave(waiting)
    }
}
