//! What was said about a disk: each trouble once, however often it is tried again, and once that it is over.

use std::collections::BTreeSet;

use crate::writer::Health;

/// What there is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleNews {
    /// There is trouble of a kind that was not named since all was well.
    Trouble,
    /// All is well again.
    Over,
}

/// Remembers what was said.
#[derive(Clone, Debug, Default)]
pub struct TroubleMemory(BTreeSet<&'static str>);

impl TroubleMemory {
    /// Hears how the disk is; what to say, if anything. The words of an error change with each attempt, its kind does not.
    pub fn hear(&mut self, health: &Health) -> Option<TroubleNews> {
        if *health != Health::Fine {
            return self.0.insert(health.word()).then_some(TroubleNews::Trouble);
        }
        let was_trouble = !self.0.is_empty();
        self.0.clear();
        was_trouble.then_some(TroubleNews::Over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskTrouble;

    #[test]
    fn f114_a_trouble_is_said_once_and_once_that_it_is_over() {
        let failed = |trouble, file: u32| Health::Failed { trouble, why: format!("cannot create log-{file}.tide") };
        let mut said = TroubleMemory::default();
        assert_eq!(said.hear(&Health::Fine), None);
        assert_eq!(said.hear(&failed(DiskTrouble::DiskFull, 1)), Some(TroubleNews::Trouble));
        for retry in 2..50 {
            assert_eq!(said.hear(&failed(DiskTrouble::DiskFull, retry)), None, "another name is no other trouble");
            assert_eq!(said.hear(&Health::Full { why: String::new() }), None, "nor is what is left of it");
        }
        assert_eq!(said.hear(&failed(DiskTrouble::Device, 50)), Some(TroubleNews::Trouble), "this is");
        assert_eq!(said.hear(&failed(DiskTrouble::DiskFull, 51)), None);
        assert_eq!(said.hear(&Health::Fine), Some(TroubleNews::Over));
        assert_eq!(said.hear(&Health::Fine), None);
        assert_eq!(said.hear(&failed(DiskTrouble::DiskFull, 52)), Some(TroubleNews::Trouble));
    }
}
