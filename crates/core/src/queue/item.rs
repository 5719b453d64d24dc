//! What is in a queue, and what is said of it when it leaves.

use super::page::Paged;
use crate::classes::{ClassId, OnFull};
use crate::session::Queued;
use alloc::boxed::Box;
use tidegate_wire_mqtt::QoS;

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) messages_max: usize,
    pub(crate) bytes_max: usize,
    /// Bytes of the class of the message that is offered.
    pub(crate) class_bytes: usize,
    /// It is a spool: when it is full the lowest class pays, whoever has the most.
    pub(crate) is_spool: bool,
}

/// Why a message does not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It came when there was no room.
    Newest,
    /// It made room for another one.
    Oldest,
    /// A newer one of its topic came, and only the newest is wanted.
    Conflated,
    /// Its class had as many bytes waiting as it may.
    ClassBytes,
}

/// Something that left the queue.
#[derive(Debug)]
pub(crate) enum Item {
    Message(Queued),
    Paged(Paged),
}

impl Item {
    pub(crate) fn class(&self) -> ClassId {
        match self {
            Self::Message(queued) => queued.message.class(),
            Self::Paged(paged) => paged.class,
        }
    }

    /// Whose it is; 0 if that is not known.
    pub(crate) fn origin(&self) -> u64 {
        match self {
            Self::Message(queued) => queued.message.origin(),
            Self::Paged(_) => 0,
        }
    }

    /// The same, and whether nothing was usual for its publisher when it came, as far as that is known.
    pub(crate) fn whose(&self) -> (u64, bool) {
        let is_newcomer = matches!(self, Self::Message(queued) if queued.message.standing().is_newcomer);
        (self.origin(), is_newcomer)
    }

    /// Whether it is of this publisher; of what is on disk that is not known.
    pub(crate) fn may_be_of(&self, origin: u64) -> bool {
        match self {
            Self::Message(queued) => queued.message.origin() == origin,
            Self::Paged(_) => true,
        }
    }
}

/// What [`Queue::pop`] would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextMessage {
    Nothing,
    Message(QoS),
    /// It has to be read first.
    OnDisk,
}

#[derive(Debug)]
pub(super) enum WaitingCopy {
    Message(Queued),
    /// The newest one of this topic, whichever that is when it leaves; and whether it is of QoS 0.
    Latest(Box<str>, bool),
    Paged(Paged),
}

impl WaitingCopy {
    /// Has the bytes of its message brought near, which nobody has touched since it came: it is next when everybody else has
    /// had a turn, and the processor fetches them meanwhile. Of a plain line that is guessed without being told.
    #[inline]
    pub(super) fn fetch_bytes(&self) {
        if let Self::Message(queued) = self {
            core::hint::black_box(queued.message.first_byte());
        }
    }

    /// The same with what says where its bytes are.
    #[inline]
    pub(super) fn fetch_head(&self) {
        if let Self::Message(queued) = self {
            core::hint::black_box((queued.message.size(), queued.message.number()));
        }
    }
}

const _: () = assert!(size_of::<WaitingCopy>() <= 48, "what a message on disk costs in memory");

/// Whether of its topic only the newest waits: its class says so, or who gets it.
pub(super) fn is_latest(queued: &Queued, on_full: OnFull) -> bool {
    queued.is_latest || on_full == OnFull::Latest
}

/// Nobody was promised that it arrives.
pub(super) fn is_passing(queued: &Queued) -> bool {
    queued.qos == QoS::AtMostOnce
}

/// What a message counts for.
pub(super) struct Weighed {
    pub(super) size: usize,
    pub(super) class: usize,
    pub(super) passing: usize,
}

impl Weighed {
    pub(super) fn of(queued: &Queued) -> Self {
        let message = &queued.message;
        Self { size: message.size(), class: message.class().index(), passing: usize::from(is_passing(queued)) }
    }
}
