//! Who had a lineage before, and why it went to another: for people who ask later. The node that takes it over notes it beside the
//! leases; nothing is decided by it, and one that is missing or damaged is only not told.

use std::fmt;
use std::time::Duration;

use crate::limits::HANDOVERS_MAX;
use crate::names::NodeName;

/// Why a node has taken a lineage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody had it before.
    First,
    /// The same node had it, in a process that has ended.
    Again,
    /// Its owner ended in good order, and said so.
    Left,
    /// Its owner has said nothing for so long.
    Silent(Duration),
    /// Its owner's process is another now, and did not take it while others waited for it.
    Declined,
}

/// A lineage that went to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// The epoch that began.
    pub epoch: u64,
    /// Whose it is.
    pub node: NodeName,
    /// Whose it was, and in which of its processes.
    pub from: Option<(NodeName, u64)>,
    /// Why.
    pub reason: Reason,
    /// When, by the clock of the node that took it: milliseconds since 1970.
    pub at_ms: u64,
}

impl fmt::Display for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, node, from, reason, at_ms } = self;
        let (word, silence) = match reason {
            Reason::First => ("first", 0),
            Reason::Again => ("again", 0),
            Reason::Left => ("left", 0),
            Reason::Silent(silence) => ("silent", silence.as_millis()),
            Reason::Declined => ("declined", 0),
        };
        let (from, incarnation) = from.as_ref().map_or((".", 0), |(from, incarnation)| (from.as_str(), *incarnation));
        write!(f, "1 {epoch} {at_ms} {node} {from} {incarnation:016x} {word} {silence}")
    }
}

impl HandOver {
    /// Reads one; None if it is not understood.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        if words.next() != Some("1") {
            return None;
        }
        let (epoch, at_ms) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let node = words.next()?.parse().ok()?;
        let (from, incarnation) = (words.next()?, u64::from_str_radix(words.next()?, 16).ok()?);
        let from = if from == "." { None } else { Some((from.parse().ok()?, incarnation)) };
        let (word, silence) = (words.next()?, words.next()?.parse().ok()?);
        let reason = match word {
            "first" => Reason::First,
            "again" => Reason::Again,
            "left" => Reason::Left,
            "silent" => Reason::Silent(Duration::from_millis(silence)),
            "declined" => Reason::Declined,
            _ => return None,
        };
        words.next().is_none().then_some(Self { epoch, node, from, reason, at_ms })
    }

    /// The last ones of a lineage, newest first.
    pub fn parse_list(text: &str) -> Vec<Self> {
        text.lines().take(HANDOVERS_MAX).filter_map(Self::parse).collect()
    }

    /// The same list with one more, as text.
    pub fn in_front_of(&self, before: &[Self]) -> String {
        let others = before.iter().filter(|other| other.epoch < self.epoch);
        let lines: Vec<String> = std::iter::once(self).chain(others).take(HANDOVERS_MAX).map(Self::to_string).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handover(epoch: u64, reason: Reason) -> HandOver {
        let from = (reason != Reason::First).then(|| ("a".parse().unwrap(), u64::MAX));
        HandOver { epoch, node: "b-1".parse().unwrap(), from, reason, at_ms: 1_700_000_000_000 }
    }

    #[test]
    fn a_list_is_read_as_it_was_written_and_is_bounded() {
        let all =
            [Reason::First, Reason::Again, Reason::Left, Reason::Silent(Duration::from_millis(6300)), Reason::Declined];
        let mut list = Vec::new();
        for epoch in 1..=3 * HANDOVERS_MAX as u64 {
            let next = handover(epoch, all[epoch as usize % all.len()]);
            list = HandOver::parse_list(&next.in_front_of(&list));
            assert_eq!(list[0], next);
        }
        assert_eq!(list.len(), HANDOVERS_MAX);
        assert!(list.is_sorted_by(|newer, older| newer.epoch == older.epoch + 1), "{list:?}");
        // Written twice after an answer that was a maybe, it is there once.
        assert_eq!(HandOver::parse_list(&list[0].in_front_of(&list)), list);
    }

    #[test]
    fn what_somebody_else_has_written_there_is_not_told() {
        let fine = handover(2, Reason::Left).to_string();
        for bad in [
            "",
            "2 1",
            &fine[..fine.len() - 2],
            &format!("{fine} x"),
            &fine.replace("left", "why"),
            &fine.replace("b-1", "B"),
        ] {
            assert_eq!(HandOver::parse(bad), None, "{bad:?}");
        }
        assert_eq!(HandOver::parse_list(&format!("nonsense\n{fine}\n")), [handover(2, Reason::Left)]);
    }
}
