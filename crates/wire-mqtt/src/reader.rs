//! A cursor over the body of one packet.
//!
//! Every read either succeeds or says that the body ended too early, which is malformed: the frame was complete before
//! anyone looked inside.

use core::num::NonZeroU16;

use crate::error::{Parse, Violation, violation};
use crate::qos::PacketId;
use crate::text;
use crate::varint::{self, VarInt};

const TRUNCATED: &Violation = violation!(MalformedPacket, "packet ends inside a field", "4.13.1");

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketReader<'a> {
    rest: &'a [u8],
}

impl<'a> PacketReader<'a> {
    #[inline]
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Everything that is left, which also ends the reading.
    #[inline]
    pub(crate) fn remainder(self) -> &'a [u8] {
        self.rest
    }

    /// Nothing may be left.
    #[inline]
    pub(crate) fn finish(self) -> Parse<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(violation!(MalformedPacket, "bytes left over after the last field", "4.13.1"))
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Parse<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Parse<[u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk::<N>().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*chunk)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Parse<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Parse<u16> {
        self.chunk().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Parse<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Parse<u32> {
        match varint::read(self.rest)? {
            VarInt::Value { value, size } => self.take(size).map(|_| value),
            VarInt::Incomplete => Err(TRUNCATED),
        }
    }

    /// Binary data with its two-byte length.
    #[inline]
    pub(crate) fn field(&mut self) -> Parse<&'a [u8]> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    /// A UTF-8 string with its two-byte length.
    #[inline]
    pub(crate) fn text(&mut self) -> Parse<&'a str> {
        text::check(self.field()?)
    }

    #[inline]
    pub(crate) fn packet_id(&mut self) -> Parse<PacketId> {
        let id = self.u16()?;
        NonZeroU16::new(id).ok_or(violation!(ProtocolError, "packet identifier is zero", "MQTT-2.2.1-3"))
    }
}
