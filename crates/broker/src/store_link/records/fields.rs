//! Fields of records: numbers in as few bytes as they need, bytes and text with their length before them.

use std::num::NonZeroU32;

use tidegate_core::persist::SubscriberOptions;
use tidegate_store::{FileId, Location, StoreError};
use tidegate_wire_mqtt::{PacketId, QoS};

use super::{IDS_MAX, RHYTHM_BYTES_MAX};

/// Text of a record: MQTT's strings have two bytes of length.
pub const TEXT_BYTES_MAX: usize = 65_535;

pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// None is 0, and everything else one more.
pub(super) fn put_option(out: &mut Vec<u8>, number: Option<u64>) {
    put_number(out, number.map_or(0, |number| number.saturating_add(1)));
}

/// Reads the fields of one record, in order.
#[derive(Debug)]
pub(super) struct RecordFields<'a> {
    rest: &'a [u8],
    tag: u8,
}

impl<'a> RecordFields<'a> {
    pub(super) fn new(tag: u8, payload: &'a [u8]) -> Self {
        Self { rest: payload, tag }
    }

    pub(super) fn wrong(&self, what: &'static str) -> StoreError {
        StoreError::Record { tag: self.tag, what }
    }

    pub(super) fn number(&mut self) -> Result<u64, StoreError> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(self.wrong("ends in a number"))?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || byte == 0 && shift > 0 {
                return Err(self.wrong("has a number that is too long"));
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.wrong("has a number that is too long"))
    }

    pub(super) fn small<N: TryFrom<u64>>(&mut self) -> Result<N, StoreError> {
        let number = self.number()?;
        N::try_from(number).map_err(|_| self.wrong("has a number out of range"))
    }

    pub(super) fn option(&mut self) -> Result<Option<u64>, StoreError> {
        Ok(self.number()?.checked_sub(1))
    }

    pub(super) fn small_option<N: TryFrom<u64>>(&mut self) -> Result<Option<N>, StoreError> {
        let number = self.option()?;
        number.map(N::try_from).transpose().map_err(|_| self.wrong("has a number out of range"))
    }

    pub(super) fn bytes(&mut self, bytes_max: usize) -> Result<&'a [u8], StoreError> {
        let len: usize = self.small()?;
        if len > bytes_max {
            return Err(self.wrong("has a field over its limit"));
        }
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(self.wrong("ends in a field"))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, StoreError> {
        let bytes = self.bytes(TEXT_BYTES_MAX)?;
        std::str::from_utf8(bytes).map_err(|_| self.wrong("has text that is not UTF-8"))
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(super) fn qos(&self, bits: u8) -> Result<QoS, StoreError> {
        QoS::from_bits(bits).ok_or(self.wrong("has a quality of service above 2"))
    }

    /// Nothing may be left: a longer layout has another version.
    pub(super) fn end(self) -> Result<(), StoreError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong("is longer than its fields")) }
    }
}

/// A field by its type.
pub(super) trait Field<'a>: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(fields: &mut RecordFields<'a>) -> Result<Self, StoreError>;
}

macro_rules! field {
    ($($type:ty: |$this:ident, $out:ident| $put:expr, |$fields:ident| $take:expr;)+) => {$(
        impl<'a> Field<'a> for $type {
            fn put(&self, $out: &mut Vec<u8>) {
                let $this = self;
                $put;
            }

            fn take($fields: &mut RecordFields<'a>) -> Result<Self, StoreError> {
                $take
            }
        }
    )+};
}

field! {
    u64: |it, out| put_number(out, *it), |fields| fields.number();
    u32: |it, out| put_number(out, (*it).into()), |fields| fields.small();
    u16: |it, out| put_number(out, (*it).into()), |fields| fields.small();
    QoS: |it, out| out.push(it.bits()), |fields| { let bits = fields.small()?; fields.qos(bits) };
    PacketId: |it, out| it.get().put(out),
        |fields| Self::new(fields.small()?).ok_or(fields.wrong("has no number of a packet"));
    NonZeroU32: |it, out| it.get().put(out), |fields| Self::new(fields.small()?).ok_or(fields.wrong("has an identifier 0"));
    bool: |it, out| out.push(u8::from(*it)), |fields| match fields.number()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(fields.wrong("has a flag that is neither 0 nor 1")),
    };
    Option<u64>: |it, out| put_option(out, *it), |fields| fields.option();
    Option<u32>: |it, out| put_option(out, it.map(u64::from)), |fields| fields.small_option();
    Option<NonZeroU32>: |it, out| it.map(NonZeroU32::get).put(out), |fields| {
        let id: Option<u32> = Field::take(fields)?;
        id.map(|id| NonZeroU32::new(id).ok_or(fields.wrong("has an identifier 0"))).transpose()
    };
    &'a str: |it, out| put_bytes(out, it.as_bytes()), |fields| fields.text();
    Option<&'a str>: |it, out| match it {
        Some(text) => { out.push(1); put_bytes(out, text.as_bytes()) }
        None => out.push(0),
    }, |fields| if bool::take(fields)? { fields.text().map(Some) } else { Ok(None) };
    &'a [u8]: |it, out| put_bytes(out, it), |fields| fields.bytes(RHYTHM_BYTES_MAX);
    Vec<NonZeroU32>: |it, out| {
        put_number(out, it.len() as u64);
        for id in it {
            id.put(out);
        }
    },
        |fields| {
            let len: usize = fields.small()?;
            if len > IDS_MAX {
                return Err(fields.wrong("has too many identifiers"));
            }
            (0..len).map(|_| Field::take(fields)).collect()
        };
    Location: |it, out| { put_number(out, it.file.to_bits()); put_number(out, it.offset); put_number(out, it.len.into()) },
        |fields| Ok(Self { file: FileId::from_bits(fields.number()?), offset: fields.number()?, len: fields.small()? });
    SubscriberOptions: |it, out| {
        it.qos.put(out);
        out.push(u8::from(it.no_local) | u8::from(it.retain_as_published) << 1 | u8::from(it.is_latest) << 2);
        it.id.put(out);
    }, |fields| {
        let qos = QoS::take(fields)?;
        let flags: u8 = fields.small()?;
        if flags > 7 {
            return Err(fields.wrong("has flags that are not known"));
        }
        let (no_local, retain_as_published, is_latest) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        Ok(Self { qos, no_local, retain_as_published, is_latest, id: Field::take(fields)? })
    };
}
