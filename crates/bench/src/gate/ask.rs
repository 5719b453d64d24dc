//! What our broker says of itself: pressure, and why messages waited or were lost.

use serde_json::Value;

use crate::process::RunningBroker;
use tidegate_program::AdminClient;

/// What the ledger of a broker says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerReading {
    /// How hard it is pressed, 0 to 4.
    pub(crate) level: u64,
    pub(crate) received: u64,
    /// Messages that had to wait because of their publisher's rate.
    pub(crate) held: u64,
    /// Of those: wait even now.
    pub(crate) waiting: u64,
    /// Messages and deliveries that went nowhere, by reason.
    pub(crate) lost: Vec<(String, u64)>,
}

/// Reasons that are the gate's own: those that follow from a publisher's rate.
const SLOWED: [&str; 4] = ["publish_refused", "dropped_held_full", "dropped_rhythm", "dropped_held_expired"];

impl LedgerReading {
    /// Asks a broker; `None` if it is not ours, or does not answer.
    pub(crate) fn of(broker: &RunningBroker) -> Option<Self> {
        Self::read(&AdminClient::at(broker.admin?).get("/api/v1/status").ok()?)
    }

    fn read(status: &Value) -> Option<Self> {
        let (inward, outward) = (&status["ledger"]["in"], &status["ledger"]["out"]);
        let mut lost = Vec::new();
        for side in [inward, outward] {
            let reasons = side["lost"].as_object()?.iter();
            lost.extend(reasons.filter_map(|(reason, count)| Some((reason.clone(), count.as_u64()?))));
        }
        Some(Self {
            level: status["pressure"]["level"].as_u64()?,
            received: inward["received"].as_u64()?,
            held: inward["held_ever"].as_u64()?,
            waiting: inward["held"].as_u64()?,
            lost,
        })
    }

    /// Messages that were slowed, refused or dropped for their publisher's rate.
    pub(crate) fn slowed(&self) -> u64 {
        let is_own = |(reason, _): &&(String, u64)| SLOWED.contains(&reason.as_str());
        self.held + self.lost.iter().filter(is_own).map(|(_, count)| count).sum::<u64>()
    }

    /// The reasons in words, if there are any. What was sent so far and is not received yet is one, too: a broker that
    /// gets no time reads nothing.
    pub(crate) fn reasons(&self, sent: u64) -> Option<String> {
        let mut words: Vec<String> = self.lost.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let unread = sent.saturating_sub(self.received);
        words.extend((unread > 0).then(|| format!("{unread} not read yet")));
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Messages that wait for their receivers in a broker of ours.
pub(crate) fn queued(broker: &RunningBroker) -> Option<u64> {
    AdminClient::at(broker.admin?).get("/api/v1/status").ok()?["waiting"]["queue_messages"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_is_read_and_what_the_gate_did_is_told_apart() {
        let status = serde_json::json!({
            "pressure": { "level": 1 },
            "ledger": {
                "in": { "received": 100, "held": 2, "held_ever": 3, "lost": { "dropped_rhythm": 4, "publish_denied": 9 } },
                "out": { "lost": { "dropped_queue_full": 5 } },
            },
        });
        let account = LedgerReading::read(&status).unwrap();
        assert_eq!((account.level, account.received, account.waiting, account.slowed()), (1, 100, 2, 7));
        assert_eq!(
            account.reasons(103).unwrap(),
            "4 dropped_rhythm, 9 publish_denied, 5 dropped_queue_full, 3 not read yet"
        );
        assert_eq!(LedgerReading::read(&Value::Null), None);
    }
}
