//! A message that waits for a session, or is under way to it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::QoS;

use crate::message::{Colour, Message};

/// A message that waits.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) message: Arc<Message>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) ids: SubscriptionIds,
    /// Its place in the store; 0 if it has none.
    pub(crate) place: u64,
    /// Since when it waits.
    pub(crate) since: Timestamp,
    /// A newer one of its topic takes its place.
    pub(crate) is_latest: bool,
    /// Whether its publisher may count on it here.
    pub(crate) colour: Colour,
}

impl Queued {
    /// It ends with its session, in the store too.
    pub(crate) fn let_go(&self) {
        if self.place != 0 {
            self.message.let_go();
        }
    }
}

/// Identifiers of the matching subscriptions: none or one in nearly every case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SubscriptionIds {
    #[default]
    None,
    One(NonZeroU32),
    /// Behind one pointer: there are many of these, and few of those.
    Many(Arc<Vec<NonZeroU32>>),
}

impl SubscriptionIds {
    pub(crate) fn as_slice(&self) -> &[NonZeroU32] {
        match self {
            Self::None => &[],
            Self::One(id) => core::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }

    /// Bytes that are kept elsewhere.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::None | Self::One(_) => 0,
            Self::Many(ids) => size_of_val(ids.as_slice()),
        }
    }
}

impl FromIterator<NonZeroU32> for SubscriptionIds {
    fn from_iter<I: IntoIterator<Item = NonZeroU32>>(ids: I) -> Self {
        let mut ids = ids.into_iter();
        match (ids.next(), ids.next()) {
            (None, _) => Self::None,
            (Some(one), None) => Self::One(one),
            (Some(first), Some(second)) => Self::Many(Arc::new([first, second].into_iter().chain(ids).collect())),
        }
    }
}
