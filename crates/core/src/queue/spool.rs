//! Who leaves a full spool: the oldest of the lowest class. A spool is for one receiver that is away, and what waits in it is all
//! acknowledged; so it is the operator's classes that say what may be lost first, and not who has the most waiting.
//!
//! As with what a class may have waiting, only the first of each flow is looked at, and what has been chosen to go out next is
//! spared as long as there is anything else.

use tidegate_control::Timestamp;
use tidegate_control::schedule::FlowId;

use super::flows::SHARED;
use super::{Item, Queue, WaitingCopy, is_passing};
use crate::classes::{CLASSES_MAX, ClassId, OnFull, Priority};
use crate::session::Queued;

/// Flows that are looked at for the oldest, once one of the lowest class is found: all of a small site, and no more than a moment's
/// work of a large one.
const LOOK_MAX: usize = 1024;

/// Where a message waits.
#[derive(Clone, Copy, Debug)]
enum SpoolPlace {
    Line,
    Flow(FlowId),
    Held(ClassId),
    Chosen,
}

/// The weight of a message's class; then what nobody was promised before what was acknowledged, and the oldest.
type SpoolRank = (u32, bool, u64, Timestamp);

impl Queue {
    /// Whoever has to go for a newcomer; none if that is itself.
    pub(super) fn evict_from_spool(&mut self, newcomer: &Queued, priority: &Priority) -> Option<Item> {
        let ((weight, is_acknowledged, ..), place) = self.lowest(priority)?;
        let class = newcomer.message.class();
        let own = priority.classes.weight(class);
        let is_lower = own < weight || (own == weight && is_passing(newcomer) && is_acknowledged);
        let keeps_old = own == weight && matches!(priority.on_full(class), OnFull::DropNewest | OnFull::Refuse);
        if is_lower || keeps_old { None } else { self.evict_at_place(place) }
    }

    /// Whoever has to go, whatever comes.
    pub(super) fn evict_lowest(&mut self, priority: &Priority) -> Option<Item> {
        let (_, place) = self.lowest(priority)?;
        self.evict_at_place(place)
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

    fn lowest(&self, priority: &Priority) -> Option<(SpoolRank, SpoolPlace)> {
        let weight = |class: ClassId| priority.classes.weight(class);
        let lowest_class = self.waiting_classes().map(weight).min();
        let mut found: Option<(SpoolRank, SpoolPlace)> = None;
        let line = self.line.front().map(|first| (SpoolPlace::Line, first));
        let flows = self.flows.iter().flat_map(|flows| {
            let places = flows.places.values().copied().chain([SHARED]);
            places.filter_map(|place| Some((SpoolPlace::Flow(place), flows.scheduler.first(place)?)))
        });
        for (looked, (place, first)) in line.into_iter().chain(flows).enumerate() {
            if looked >= LOOK_MAX && found.map(|((weight, ..), _)| weight) == lowest_class {
                break;
            }
            let Some(rank) = self.spool_rank(first, priority) else { continue };
            if found.is_none_or(|(best, _)| rank < best) {
                found = Some((rank, place));
            }
        }
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

    fn evict_at_place(&mut self, place: SpoolPlace) -> Option<Item> {
        let waiting = match place {
            SpoolPlace::Line => self.line.pop_front()?,
            SpoolPlace::Flow(flow) => self.flows.as_mut()?.scheduler.evict(flow)?.item,
            SpoolPlace::Held(class) => return self.pages.as_mut()?.take_held_of(class),
            SpoolPlace::Chosen => return self.pages.as_mut()?.take_first(),
        };
        self.leave(waiting)
    }
}
