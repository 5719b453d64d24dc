//! A set of packet numbers: one bit each, 8 KiB.

use tidegate_wire_mqtt::PacketId;

const WORDS: usize = 65_536 / 64;

#[derive(Clone, Debug)]
pub(crate) struct PacketIds(Box<[u64; WORDS]>);

impl Default for PacketIds {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

impl PacketIds {
    /// Puts a number in; false if it was there.
    pub(crate) fn insert(&mut self, id: PacketId) -> bool {
        let (word, bit) = (usize::from(id.get()) / 64, 1 << (id.get() % 64));
        let was_there = self.0[word] & bit != 0;
        self.0[word] |= bit;
        !was_there
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_new_once() {
        let mut ids = PacketIds::default();
        for number in [1, 63, 64, 65_535] {
            let id = PacketId::new(number).unwrap();
            assert!(ids.insert(id) && !ids.insert(id), "{number}");
        }
        ids.clear();
        assert!(ids.insert(PacketId::MIN));
    }
}
