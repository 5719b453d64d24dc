//! Of a long queue only the beginning is in memory; the rest is on disk, where it has been written for safety anyway, and
//! costs 32 bytes each here: where it is, and what the queue has to know of it.
//!
//! A message comes in while less than the window is in memory, and is an ordinary one. Beyond that it is *held back*
//! behind everything else, until it is known where the store has it; then it takes its place as a [`Paged`] one. The way
//! out: when what comes next is on disk, the next window full is *chosen* by the rules of the queue, asked for as one
//! page, and leaves before everything else, in that order. So a newcomer of a better class waits for one window at most.
//!
//! ```text
//! out <── chosen (at most a window; some asked for) <── line or flows (here, or on disk) <── held back (not yet kept) <── in
//! ```
//! What only the newest is wanted of, QoS 0, and classes that bound bytes or time are never on disk.
//!
//! What is on disk keeps its claim. After a restart that is not known without reading it: what waited then counts as
//! entitled, each publisher for itself, and no more than what waited then.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_control::Timestamp;
use tidegate_control::schedule::Entitlement;
use tidegate_wire_mqtt::QoS;

use super::flows::{QueueFlow, QueuePlace};
use super::{Item, NextMessage, Queue, WaitingCopy, is_passing};
use crate::classes::{CLASSES_MAX, ClassId, OnFull, Priority};
use crate::message::{Colour, Message};
use crate::persist::Spot;
use crate::session::{Queued, SubscriptionIds};

/// A message that waits on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paged {
    pub(crate) spot: Spot,
    /// As in [`Queued`]; never 0.
    pub(crate) place: u64,
    /// What it counts for, as in memory.
    pub(crate) size: u32,
    pub(crate) class: ClassId,
    pub(crate) qos: QoS,
    flags: u8,
    /// Its subscription identifiers: which of the sets that this queue knows.
    ids: u8,
}

const _: () = assert!(size_of::<Paged>() == 32, "as small as it says");

impl Paged {
    /// Where it belongs, if that is its flow, and its publisher belongs to `parent`.
    pub(super) fn belongs(&self, flow: QueueFlow, parent: u64, priority: &Priority) -> QueuePlace {
        let weight = priority.classes.weight(self.class);
        QueuePlace { flow, size: self.size as usize, weight, rate: None, parent, claim: self.claim() }
    }

    pub(super) fn claim(&self) -> Entitlement {
        if self.flags & EXCESS == 0 { Entitlement::Entitled } else { Entitlement::Excess }
    }
}

/// Whether it was retained when it came to its subscription.
const RETAIN: u8 = 1;
/// Whether it is more than its publisher's claim.
const EXCESS: u8 = 2;

/// What decides whether a message stays in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paging {
    /// Bytes that stay, at most.
    pub(crate) window: usize,
    /// The turn that a message which comes now is written in.
    pub(crate) turn: u64,
}

/// Sets of subscription identifiers that a queue tells apart; messages with others stay in memory.
pub const ID_SETS_MAX: usize = 255;

/// What comes before and behind line and flows.
#[derive(Debug, Default)]
pub(super) struct QueuePages {
    /// Chosen to go out next, by the order of choice.
    chosen: BTreeMap<u64, Item>,
    chosen_bytes: usize,
    /// How many were ever chosen.
    choices: u64,
    /// Those of them that are on disk, by place: a page may be gigabytes, and each of its messages is looked for.
    asked: BTreeMap<u64, u64>,
    /// Held back until they are kept: in which turn they are written.
    held: VecDeque<(u64, Queued)>,
    held_bytes: usize,
    held_class_bytes: [usize; CLASSES_MAX],
    /// Sets of subscription identifiers.
    ids: Vec<SubscriptionIds>,
    /// The job that is to bring those chosen that are on disk; 0 if there is none.
    job: u64,
    /// Somebody has been told that this queue wants a page.
    is_listed: bool,
}

impl QueuePages {
    pub(super) fn len(&self) -> usize {
        self.chosen.len() + self.held.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.chosen_bytes + self.held_bytes
    }

    /// Bytes of a class that are held back.
    pub(super) fn class_bytes(&self, class: ClassId) -> usize {
        self.held_class_bytes[class.index()]
    }

    /// What comes before everything else.
    pub(super) fn first(&self) -> Option<NextMessage> {
        self.chosen.first_key_value().map(|(_, item)| match item {
            Item::Message(queued) => NextMessage::Message(queued.qos),
            Item::Paged(_) => NextMessage::OnDisk,
        })
    }

    /// Whose that is, if it is known, and its quality of service.
    pub(super) fn first_flow(&self) -> Option<(Option<QueueFlow>, QoS)> {
        self.chosen.first_key_value().map(|(_, item)| match item {
            Item::Message(queued) => (Some(QueueFlow::of(queued)), queued.qos),
            Item::Paged(paged) => (None, paged.qos),
        })
    }

    /// What comes when nothing else is left.
    pub(super) fn last(&self) -> Option<NextMessage> {
        self.held.front().map(|(_, queued)| NextMessage::Message(queued.qos))
    }

    pub(super) fn take_first(&mut self) -> Option<Item> {
        let (_, item) = self.chosen.pop_first()?;
        self.chosen_bytes -= size_of_item(&item);
        if let Item::Paged(paged) = &item {
            self.asked.remove(&paged.place);
        }
        Some(item)
    }

    /// The same, if it is known to be of this flow.
    pub(super) fn take_first_of(&mut self, flow: QueueFlow) -> Option<Item> {
        let is_of_flow =
            matches!(self.chosen.first_key_value()?.1, Item::Message(queued) if QueueFlow::of(queued) == flow);
        if is_of_flow { self.take_first() } else { None }
    }

    pub(super) fn take_last(&mut self) -> Option<Item> {
        let (_, queued) = self.held.pop_front()?;
        let size = queued.message.size();
        self.held_bytes -= size;
        self.held_class_bytes[queued.message.class().index()] -= size;
        Some(Item::Message(queued))
    }

    /// The classes of what is held back.
    pub(super) fn held_classes(&self) -> impl Iterator<Item = ClassId> {
        let classes = self.held_class_bytes.iter().zip(0..).filter(|(bytes, _)| **bytes > 0);
        classes.map(|(_, bits)| ClassId::from_bits(bits))
    }

    /// The oldest of a class that is held back.
    pub(super) fn take_held_of(&mut self, class: ClassId) -> Option<Item> {
        let index = self.held.iter().position(|(_, queued)| queued.message.class() == class)?;
        let (_, queued) = self.held.remove(index)?;
        let size = queued.message.size();
        self.held_bytes -= size;
        self.held_class_bytes[class.index()] -= size;
        Some(Item::Message(queued))
    }

    /// The class of what comes before everything else.
    pub(super) fn first_class(&self) -> Option<ClassId> {
        self.chosen.first_key_value().map(|(_, item)| item.class())
    }

    /// The oldest, when nothing is left but these.
    pub(super) fn take_any(&mut self) -> Option<Item> {
        self.take_first().or_else(|| self.take_last())
    }

    pub(super) fn for_each(&self, mut show: impl FnMut(&Queued)) {
        let chosen =
            self.chosen.values().filter_map(|item| if let Item::Message(queued) = item { Some(queued) } else { None });
        chosen.chain(self.held.iter().map(|(_, queued)| queued)).for_each(&mut show);
    }

    pub(super) fn drop_passing(&mut self, mut lose: impl FnMut(Queued)) {
        for (number, item) in core::mem::take(&mut self.chosen) {
            match item {
                Item::Message(queued) if is_passing(&queued) => {
                    self.chosen_bytes -= queued.message.size();
                    lose(queued);
                }
                item => drop(self.chosen.insert(number, item)),
            }
        }
    }

    /// The number of a set of identifiers; none if there are too many.
    fn ids_number(&mut self, ids: &SubscriptionIds) -> Option<u8> {
        if *ids == SubscriptionIds::None {
            return Some(0);
        }
        let known = self.ids.iter().position(|known| known == ids);
        let index = known.or_else(|| {
            (self.ids.len() < ID_SETS_MAX).then(|| {
                self.ids.push(ids.clone());
                self.ids.len() - 1
            })
        })?;
        u8::try_from(index + 1).ok()
    }

    fn ids_of(&self, number: u8) -> SubscriptionIds {
        usize::from(number).checked_sub(1).and_then(|index| self.ids.get(index)).cloned().unwrap_or_default()
    }
}

fn size_of_item(item: &Item) -> usize {
    match item {
        Item::Message(queued) => queued.message.size(),
        Item::Paged(paged) => paged.size as usize,
    }
}

impl Queue {
    /// Messages that are not in memory.
    pub(crate) fn on_disk(&self) -> usize {
        self.paged + self.pages.as_ref().map_or(0, |pages| pages.asked.len())
    }

    /// Bytes that are in memory.
    #[cfg(test)]
    pub(crate) fn here(&self) -> usize {
        let size = |item: &Item| if let Item::Message(queued) = item { queued.message.size() } else { 0 };
        self.here
            + self.pages.as_ref().map_or(0, |pages| pages.held_bytes + pages.chosen.values().map(size).sum::<usize>())
    }

    /// The turn of the last message that is held back, if there is one.
    pub(crate) fn held_turn(&self) -> Option<u64> {
        self.pages.as_ref()?.held.back().map(|(turn, _)| *turn)
    }

    /// Holds a newcomer back if there is no room in memory for it, or it would overtake; else gives it back.
    pub(super) fn hold_back(&mut self, queued: Queued, priority: &Priority, paging: Paging) -> Option<Queued> {
        let (size, class) = (queued.message.size(), queued.message.class());
        // Classes that are told by the rate share a flow: what has to be in memory waits behind what need not.
        let is_full = self.here + size > paging.window && !priority.is_capped(class);
        if self.held_turn().is_none() && !is_full {
            return Some(queued);
        }
        let pages = self.pages.get_or_insert_default();
        pages.held.push_back((paging.turn, queued));
        pages.held_bytes += size;
        pages.held_class_bytes[class.index()] += size;
        None
    }

    /// Whatever was written in these turns takes its place: on disk, if there is still no room for it.
    pub(crate) fn settle(&mut self, is_kept: impl Fn(u64) -> bool, priority: &Priority, window: usize) {
        while let Some(pages) = &mut self.pages
            && pages.held.front().is_some_and(|(turn, _)| is_kept(*turn))
        {
            let Some(Item::Message(queued)) = pages.take_last() else { return };
            let place = QueuePlace::of(&queued, priority);
            let size = queued.message.size();
            let is_pageable = self.here + size > window && !priority.is_capped(queued.message.class());
            let paged = if is_pageable { pages.page(&queued) } else { None };
            match paged {
                Some(paged) => {
                    // Whoever else has it still needs it; the store counts for itself.
                    queued.let_go();
                    self.put_paged(paged, place, priority);
                }
                None => self.push(queued, priority, OnFull::DropLongest),
            }
        }
    }

    /// A message that was on disk before the queue was there.
    /// `origin`: who published it, and whether its topic tells its class.
    pub(crate) fn restore(&mut self, paged: Paged, ids: &SubscriptionIds, origin: (u64, bool), priority: &Priority) {
        let (origin, is_by_topic) = origin;
        // Whoever restores keeps to the maximum.
        let number = self.pages.get_or_insert_default().ids_number(ids).unwrap_or(0);
        let paged = Paged { ids: number, ..paged };
        // The flow of those to the same topic that come now.
        let flow = QueueFlow::Publisher(origin, is_by_topic.then(|| paged.class.bits()));
        self.put_paged(paged, paged.belongs(flow, 0, priority), priority);
    }

    fn put_paged(&mut self, paged: Paged, place: QueuePlace, priority: &Priority) {
        self.len += 1;
        self.bytes += paged.size as usize;
        self.paged += 1;
        self.class_len[paged.class.index()] += 1;
        self.put(place, WaitingCopy::Paged(paged), priority);
    }

    /// Whether it is time to ask for a page: little of the last one is left, and what follows is on disk. Told once,
    /// until the page is chosen.
    pub(crate) fn wants_page(&mut self, window: usize) -> bool {
        if self.paged == 0 {
            return false;
        }
        let low = window / 2;
        let pages = self.pages.get_or_insert_default();
        if pages.job != 0 || pages.is_listed || pages.chosen_bytes > low {
            return false;
        }
        let next = match self.line.front() {
            Some(next) => Some(next),
            None => self.flows.as_mut().and_then(|flows| flows.scheduler.peek()),
        };
        pages.is_listed = matches!(next, Some(WaitingCopy::Paged(_)));
        pages.is_listed
    }

    /// Chooses the next page; what of it has to be read, by place.
    pub(crate) fn choose(&mut self, window: usize, job: u64) -> Vec<(u64, Spot)> {
        let mut wanted = Vec::new();
        let mut pages = self.pages.take().unwrap_or_default();
        pages.is_listed = false;
        while pages.chosen_bytes <= window
            && let Some(item) = self.take_inner()
        {
            pages.choices += 1;
            if let Item::Paged(paged) = &item {
                wanted.push((paged.place, paged.spot));
                pages.asked.insert(paged.place, pages.choices);
            }
            pages.chosen_bytes += size_of_item(&item);
            pages.chosen.insert(pages.choices, item);
        }
        pages.job = if wanted.is_empty() { pages.job } else { job };
        self.pages = Some(pages);
        wanted
    }

    /// A job is done.
    pub(crate) fn end_job(&mut self, job: u64) {
        if let Some(pages) = self.pages.as_mut().filter(|pages| pages.job == job) {
            pages.job = 0;
        }
    }

    /// A message has been read, or is lost: then it is the answer. Nothing if it does not wait any more.
    pub(crate) fn fill(&mut self, place: u64, read: impl FnOnce(ClassId) -> Option<Arc<Message>>) -> Option<Paged> {
        let pages = self.pages.as_mut()?;
        let number = pages.asked.remove(&place)?;
        let Item::Paged(paged) = *pages.chosen.get(&number)? else { return None };
        pages.chosen_bytes -= paged.size as usize;
        let Some(message) = read(paged.class) else {
            pages.chosen.remove(&number);
            return Some(paged);
        };
        pages.chosen_bytes += message.size();
        message.keep();
        let (Paged { qos, flags, .. }, ids) = (paged, pages.ids_of(paged.ids));
        let retain = flags & RETAIN != 0;
        // No class that bounds the time of waiting is on disk, and no topic of which only the newest is wanted.
        let colour = if flags & EXCESS == 0 { Colour::Entitled } else { Colour::Excess };
        let (since, is_latest) = (Timestamp::MAX, false);
        let queued = Queued { message, qos, retain, ids, place, since, is_latest, colour };
        pages.chosen.insert(number, Item::Message(queued));
        None
    }
}

impl QueuePages {
    /// A message as one on disk; none if it is not known where, or does not fit into few bytes.
    fn page(&mut self, queued: &Queued) -> Option<Paged> {
        let Queued { message, qos, retain, ids, place, colour, .. } = queued;
        let spot = message.spot()?;
        let size = u32::try_from(message.size()).ok()?;
        let ids = self.ids_number(ids)?;
        let flags = flags_of(*retain, *colour);
        Some(Paged { spot, place: *place, size, class: message.class(), qos: *qos, flags, ids })
    }
}

impl Paged {
    /// One that an earlier life has left.
    pub(crate) fn restored(spot: Spot, place: u64, size: usize, class: ClassId, flags: (QoS, bool)) -> Self {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let (qos, retain) = flags;
        Self { spot, place, size, class, qos, flags: flags_of(retain, Colour::Entitled), ids: 0 }
    }
}

fn flags_of(retain: bool, colour: Colour) -> u8 {
    let excess = if colour == Colour::Excess { EXCESS } else { 0 };
    if retain { excess | RETAIN } else { excess }
}
