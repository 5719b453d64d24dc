//! Variable byte integers: seven bits a byte, the eighth says that more follow, four bytes at most (section 1.5.5).
//!
//! Longer encodings of the same number are refused [MQTT-1.5.5-1], in 3.1.1 too: one number, one spelling, so that
//! nothing behind the codec can be told two stories.

use crate::error::{Parse, violation};
use crate::sink::Sink;

/// The largest number that four bytes can say.
pub(crate) const MAX: usize = 268_435_455;

/// What the bytes say so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VarInt {
    /// A number, and how many bytes it took.
    Value { value: u32, size: usize },
    /// The bytes end inside the number.
    Incomplete,
}

/// Read a number from the start of `input`.
#[inline]
pub(crate) fn read(input: &[u8]) -> Parse<VarInt> {
    match input.first() {
        Some(&byte) if byte < 0x80 => Ok(VarInt::Value { value: u32::from(byte), size: 1 }),
        _ => read_long(input),
    }
}

fn read_long(input: &[u8]) -> Parse<VarInt> {
    let mut value = 0;
    for (at, &byte) in input.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 != 0 {
            continue;
        }
        if byte == 0 && at > 0 {
            return Err(violation!(MalformedPacket, "variable byte integer not in its shortest form", "MQTT-1.5.5-1"));
        }
        return Ok(VarInt::Value { value, size: at + 1 });
    }
    if input.len() >= 4 {
        return Err(violation!(MalformedPacket, "variable byte integer longer than four bytes", "1.5.5"));
    }
    Ok(VarInt::Incomplete)
}

/// Bytes that a number takes.
#[inline]
pub(crate) const fn size(value: usize) -> usize {
    match value {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        _ => 4,
    }
}

/// Write a number of at most [`MAX`].
#[inline]
pub(crate) fn write(value: usize, out: &mut impl Sink) {
    let mut rest = value;
    while rest >= 0x80 {
        out.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn borders_of_table_1_1_read_and_write_the_same() {
        let table: [(usize, &[u8]); 9] = [
            (0, &[0x00]),
            (127, &[0x7f]),
            (128, &[0x80, 0x01]),
            (16_383, &[0xff, 0x7f]),
            (16_384, &[0x80, 0x80, 0x01]),
            (2_097_151, &[0xff, 0xff, 0x7f]),
            (2_097_152, &[0x80, 0x80, 0x80, 0x01]),
            (MAX, &[0xff, 0xff, 0xff, 0x7f]),
            (300, &[0xac, 0x02]),
        ];
        for (value, bytes) in table {
            let mut out = Vec::new();
            write(value, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(size(value), bytes.len());
            assert_eq!(read(bytes), Ok(VarInt::Value { value: value as u32, size: bytes.len() }));
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut]), Ok(VarInt::Incomplete));
            }
        }
    }

    #[test]
    fn long_and_padded_forms_are_refused() {
        for bytes in [&[0x80, 0x00][..], &[0xff, 0x80, 0x00], &[0x80, 0x80, 0x80, 0x00], &[0xff, 0xff, 0xff, 0xff]] {
            assert!(read(bytes).is_err(), "{bytes:x?}");
        }
    }
}
