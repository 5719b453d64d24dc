//! Names and headers of the store's files.
//!
//! A header stands twice at the front of its file, each copy with its own checksum, so that one flipped bit does not cost
//! the salt, and with it the whole file. Copy: magic (8), format (2), kind (1), zero (1), salt (4), number (8), follows
//! (8), follows_end (8), zero (4), checksum (4); all numbers little-endian.

use std::fmt;

use crate::error::StoreError;

/// The format that this release writes, and the only one it reads.
pub const FORMAT: u16 = 1;
/// Bytes before the first record.
pub const HEADER_BYTES: u64 = 2 * COPY_BYTES as u64;
const COPY_BYTES: usize = 48;
const MAGIC: [u8; 8] = *b"TideLog\n";

/// A file of the store. Snapshot n holds what segments below n said, and replaces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u64);

impl FileId {
    /// The segment with this number.
    pub fn segment(number: u64) -> Self {
        Self(number << 1 | 1)
    }

    /// The snapshot before the segment with this number.
    pub fn snapshot(number: u64) -> Self {
        Self(number << 1)
    }

    /// Its number.
    pub fn number(self) -> u64 {
        self.0 >> 1
    }

    /// Whether it is a snapshot.
    pub fn is_snapshot(self) -> bool {
        self.0 & 1 == 0
    }

    /// As one number, for records that hold locations.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The reverse of [`FileId::to_bits`].
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The file's name in the directory.
    pub fn name(self) -> String {
        self.to_string()
    }

    /// The file with this name; None for names that are not ours.
    pub fn parse(name: &str) -> Option<Self> {
        let (kind, digits) = name.split_once('-')?;
        let digits = digits.strip_suffix(".tide")?;
        let number: u64 = digits.parse().ok()?;
        let id = match kind {
            "log" => Self::segment(number),
            "snapshot" => Self::snapshot(number),
            _ => return None,
        };
        // One spelling per file: "log-1.tide" is somebody else's.
        (id.name() == name && number < u64::MAX >> 1).then_some(id)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_snapshot() { "snapshot" } else { "log" };
        write!(f, "{kind}-{:012}.tide", self.number())
    }
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    pub file: FileId,
    /// Where the record's frame begins, in bytes.
    pub offset: u64,
    /// Bytes of its payload.
    pub len: u32,
}

/// What a file says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) id: FileId,
    /// Starts every checksum in this file. It is random and never leaves the disk, so that no payload can be made that
    /// looks like a record.
    pub(crate) salt: u32,
    /// The segment before this one...
    pub(crate) follows: u64,
    /// ...and where the part of it ends that counts: what is behind was written again into this one.
    pub(crate) follows_end: u64,
}

impl FileHeader {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(2 * COPY_BYTES);
        copy.extend(MAGIC);
        copy.extend(FORMAT.to_le_bytes());
        copy.extend([u8::from(self.id.is_snapshot()), 0]);
        copy.extend(self.salt.to_le_bytes());
        copy.extend(self.id.number().to_le_bytes());
        copy.extend(self.follows.to_le_bytes());
        copy.extend(self.follows_end.to_le_bytes());
        copy.extend([0; 4]);
        let sum = crc32c::crc32c(&copy);
        copy.extend(sum.to_le_bytes());
        copy.extend_from_within(..);
        copy
    }

    /// The header of a file; None if neither copy is sound.
    pub(crate) fn parse(bytes: &[u8], id: FileId) -> Result<Option<Self>, StoreError> {
        let copies = [bytes.get(..COPY_BYTES), bytes.get(COPY_BYTES..2 * COPY_BYTES)];
        if let Some(header) = copies.iter().flatten().find_map(|copy| Self::parse_copy(copy)) {
            return Ok((header.id == id).then_some(header));
        }
        // A newer release may have moved everything but these two fields. In both copies, so that it is no flipped bit.
        let formats = copies.map(|copy| copy.filter(|copy| copy.starts_with(&MAGIC)).map(|copy| u16_at(copy, 8)));
        match formats {
            [Some(first), Some(second)] if first == second && first != FORMAT => {
                Err(StoreError::Version { file: id.name(), found: first })
            }
            _ => Ok(None),
        }
    }

    fn parse_copy(copy: &[u8]) -> Option<Self> {
        let (body, sum) = copy.split_last_chunk::<4>()?;
        if u32::from_le_bytes(*sum) != crc32c::crc32c(body) || !body.starts_with(&MAGIC) || u16_at(body, 8) != FORMAT {
            return None;
        }
        let number = u64_at(body, 16);
        let id = if body.get(10) == Some(&1) { FileId::snapshot(number) } else { FileId::segment(number) };
        Some(Self { id, salt: u32_at(body, 12), follows: u64_at(body, 24), follows_end: u64_at(body, 32) })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u16::from_le_bytes(*b))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FileHeader {
        FileHeader { id: FileId::segment(7), salt: 0xdead_beef, follows: 6, follows_end: 4096 }
    }

    #[test]
    fn any_single_flipped_bit_leaves_a_sound_copy() {
        let bytes = header().to_bytes();
        assert_eq!(bytes.len() as u64, HEADER_BYTES);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FileHeader::parse(&damaged, FileId::segment(7)).unwrap(), Some(header()), "bit {bit}");
        }
    }

    #[test]
    fn another_format_is_refused_and_not_taken_for_damage() {
        let mut bytes = header().to_bytes();
        for copy in [0, 48] {
            bytes[copy + 8] = 2;
        }
        let error = FileHeader::parse(&bytes, FileId::segment(7)).unwrap_err();
        assert!(matches!(error, StoreError::Version { found: 2, .. }), "{error}");
        assert!(error.to_string().contains("log-000000000007.tide has format 2"));
    }

    #[test]
    fn a_file_under_another_name_is_not_believed() {
        assert_eq!(FileHeader::parse(&header().to_bytes(), FileId::segment(8)).unwrap(), None);
    }

    #[test]
    fn names_read_back() {
        for id in [FileId::segment(1), FileId::snapshot(1), FileId::segment(9_999_999_999_999)] {
            assert_eq!(FileId::parse(&id.name()), Some(id));
        }
        assert_eq!(FileId::parse("log-1.tide"), None);
        assert_eq!(FileId::parse("log-000000000001.tide.bad"), None);
        assert!(FileId::snapshot(3) < FileId::segment(3) && FileId::segment(2) < FileId::snapshot(3));
    }
}
