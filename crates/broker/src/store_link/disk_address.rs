//! A place in the store as the core remembers it: two words.

use tidegate_core::persist::Spot;
use tidegate_store::limits::RECORD_BYTES_MAX;
use tidegate_store::{FileId, Location};

/// Bits of a record's length; the others of the second word are its offset.
const LEN_BITS: u32 = 29;
const _: () = assert!(RECORD_BYTES_MAX < 1 << LEN_BITS, "the largest record has such a length");

/// None if the file is too long for that: more than 34 GB. Then the message stays in memory.
pub(super) fn spot_of(at: Location) -> Option<Spot> {
    let is_small = at.offset >> (u64::BITS - LEN_BITS) == 0 && at.len >> LEN_BITS == 0;
    is_small.then(|| Spot([at.file.to_bits(), at.offset << LEN_BITS | u64::from(at.len)]))
}

/// The reverse.
pub fn location_of(Spot([file, rest]): Spot) -> Location {
    let len = rest & ((1 << LEN_BITS) - 1);
    Location { file: FileId::from_bits(file), offset: rest >> LEN_BITS, len: len as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_there_and_back() {
        for (offset, len) in [(0, 0), (96, 1), ((1 << 35) - 1, RECORD_BYTES_MAX as u32)] {
            let at = Location { file: FileId::segment(7), offset, len };
            assert_eq!(spot_of(at).map(location_of), Some(at));
        }
        assert_eq!(spot_of(Location { file: FileId::segment(7), offset: 1 << 35, len: 1 }), None);
    }
}
