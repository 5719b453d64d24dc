//! Retained messages for an operator to look at: a page at a time, with the beginning of each payload.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::QoS;

use super::{Walk, WalkStep};
use crate::limits::{RETAINED_PREVIEW_BYTES, RETAINED_SHOWN_MAX, RETAINED_STEPS_PER_PAGE};
use crate::state::ShardState;

/// A retained message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedReport {
    pub topic: Box<str>,
    /// The quality of service that it was published with.
    pub qos: QoS,
    /// The beginning of its payload.
    pub payload: Vec<u8>,
    /// Bytes of the whole.
    pub payload_bytes: usize,
    /// What is left of its lifetime.
    pub expires_in: Option<Duration>,
}

impl ShardState {
    pub(crate) fn retained(
        &self,
        filter: &str,
        from: Option<Vec<u8>>,
        now: Timestamp,
    ) -> (Vec<RetainedReport>, Option<Vec<u8>>) {
        let mut walk = Walk::new(filter);
        if let Some(from) = from {
            walk.resume_from(from);
        }
        let mut found = Vec::new();
        for _ in 0..RETAINED_STEPS_PER_PAGE {
            if found.len() >= RETAINED_SHOWN_MAX {
                break;
            }
            match self.retained.step(&mut walk, now) {
                WalkStep::End => return (found, None),
                WalkStep::Nothing => {}
                WalkStep::Found(message) => {
                    let view = message.view();
                    found.push(RetainedReport {
                        topic: view.topic.into(),
                        qos: view.qos,
                        payload: view.payload.iter().take(RETAINED_PREVIEW_BYTES).copied().collect(),
                        payload_bytes: view.payload.len(),
                        expires_in: view.expires.map(|at| at.since(now)),
                    });
                    walk.advance();
                }
            }
        }
        (found, Some(walk.place().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Open;
    use crate::settings::Settings;
    use alloc::format;
    use alloc::sync::Arc;

    #[test]
    fn pages_lead_through_all_that_match_whatever_comes_and_goes() {
        let now = Timestamp::ZERO;
        let mut shard = ShardState::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 1);
        for number in 0..350 {
            shard.handle_system(&format!("house/room-{number:03}/t"), &[b'x'; 1000], now);
        }
        shard.handle_system("other", b"1", now);
        let (mut from, mut seen) = (None, Vec::new());
        loop {
            let (page, next) = shard.retained("house/#", from, now);
            assert!(page.len() <= RETAINED_SHOWN_MAX);
            assert!(page.iter().all(|it| it.payload.len() == RETAINED_PREVIEW_BYTES && it.payload_bytes == 1000));
            seen.extend(page.into_iter().map(|it| it.topic));
            // Behind where the walk stands.
            shard.handle_system("house/a", b"", now);
            from = next;
            if from.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), 350);
        assert_eq!(shard.retained("house/room-007/+", None, now).0.len(), 1);
        assert_eq!(shard.retained("nothing/here", None, now), (Vec::new(), None));
        assert_eq!(shard.retained("#", Some(alloc::vec![255; 70_000]), now), (Vec::new(), None));
    }
}
