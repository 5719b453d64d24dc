//! AMQP's types (part 1 of the specification), read in place.
//!
//! Nothing is copied, nothing is reserved by a length that is only announced, and nothing calls itself: what is inside a
//! list or a map is found when it is asked for, and a value that nobody asks for is stepped over by its length. So the
//! depth of what is nested costs nothing.

use crate::limits::DESCRIPTORS_MAX;

/// Bytes that are none of AMQP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    /// `ubyte` to `ulong`.
    Unsigned(u64),
    /// `byte` to `long`.
    Signed(i64),
    Float(f64),
    /// Milliseconds since 1970.
    Timestamp(i64),
    Char(char),
    Uuid(&'a [u8]),
    Binary(&'a [u8]),
    Text(&'a str),
    Symbol(&'a str),
    List(Items<'a>),
    Map(Items<'a>),
    /// An array or a decimal: nobody here asks what is in it.
    Other,
    /// A value with a descriptor.
    Described(Described<'a>),
}

/// A value of a type that somebody has described.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Described<'a> {
    /// The number of the type, if it is one of AMQP's own; by name or by number.
    pub(crate) code: Option<u64>,
    /// The value itself, still to be read.
    body: &'a [u8],
}

impl<'a> Described<'a> {
    /// The value that is described.
    pub(crate) fn value(&self) -> Result<Value<'a>, Malformed> {
        Reader::new(self.body).value()
    }

    /// The same as the fields of a composite type.
    pub(crate) fn fields(&self) -> Result<Items<'a>, Malformed> {
        match self.value()? {
            Value::List(items) => Ok(items),
            _ => Err(Malformed("a composite type is a list")),
        }
    }
}

/// What is in a list or a map, one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Items<'a> {
    bytes: &'a [u8],
    left: u32,
}

impl<'a> Items<'a> {
    /// The next one; `Null` when there are no more, as fields that are left out are.
    pub(crate) fn field(&mut self) -> Result<Value<'a>, Malformed> {
        if self.left == 0 {
            return Ok(Value::Null);
        }
        self.left -= 1;
        let mut reader = Reader::new(self.bytes);
        let value = reader.value()?;
        self.bytes = reader.rest();
        Ok(value)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The value of this key in a map.
    pub(crate) fn get(mut self, key: &str) -> Result<Option<Value<'a>>, Malformed> {
        while !self.is_empty() {
            let (name, value) = (self.field()?, self.field()?);
            if matches!(name, Value::Symbol(name) | Value::Text(name) if name == key) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

impl<'a> Value<'a> {
    pub(crate) fn is_null(&self) -> bool {
        *self == Value::Null
    }

    /// A text, or none.
    pub(crate) fn text(self) -> Result<Option<&'a str>, Malformed> {
        match self {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            _ => Err(Malformed("a string is expected")),
        }
    }

    pub(crate) fn symbol(self) -> Result<Option<&'a str>, Malformed> {
        match self {
            Value::Null => Ok(None),
            Value::Symbol(text) => Ok(Some(text)),
            _ => Err(Malformed("a symbol is expected")),
        }
    }

    pub(crate) fn binary(self) -> Result<Option<&'a [u8]>, Malformed> {
        match self {
            Value::Null => Ok(None),
            Value::Binary(bytes) => Ok(Some(bytes)),
            _ => Err(Malformed("binary is expected")),
        }
    }

    pub(crate) fn boolean(self) -> Result<Option<bool>, Malformed> {
        match self {
            Value::Null => Ok(None),
            Value::Bool(is) => Ok(Some(is)),
            _ => Err(Malformed("a boolean is expected")),
        }
    }

    /// A number without a sign that fits there.
    pub(crate) fn number<T: TryFrom<u64>>(self) -> Result<Option<T>, Malformed> {
        match self {
            Value::Null => Ok(None),
            Value::Unsigned(number) => T::try_from(number).map(Some).map_err(|_| Malformed("a number is too large")),
            _ => Err(Malformed("a number without a sign is expected")),
        }
    }

    pub(crate) fn map(self) -> Result<Option<Items<'a>>, Malformed> {
        match self {
            Value::Null => Ok(None),
            Value::Map(items) => Ok(Some(items)),
            _ => Err(Malformed("a map is expected")),
        }
    }

    pub(crate) fn described(self) -> Option<Described<'a>> {
        match self {
            Value::Described(described) => Some(described),
            _ => None,
        }
    }
}

/// Reads one value after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

const SHORT: Malformed = Malformed("a value is longer than what holds it");

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// What was not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next value.
    pub(crate) fn value(&mut self) -> Result<Value<'a>, Malformed> {
        if self.bytes.first() == Some(&0) {
            return self.described().map(Value::Described);
        }
        let code = self.byte()?;
        self.primitive(code)
    }

    fn described(&mut self) -> Result<Described<'a>, Malformed> {
        self.byte()?;
        let code = if self.bytes.first() == Some(&0) {
            // A descriptor with a descriptor: nothing that is known here.
            self.skip()?;
            None
        } else {
            let constructor = self.byte()?;
            match self.primitive(constructor)? {
                Value::Unsigned(number) => Some(number),
                Value::Symbol(name) => number_of(name),
                _ => None,
            }
        };
        let body = self.bytes;
        self.skip()?;
        Ok(Described { code, body: &body[..body.len() - self.bytes.len()] })
    }

    /// Steps over one value. A described one is two: its descriptor, and what is described.
    fn skip(&mut self) -> Result<(), Malformed> {
        let (mut values, mut descriptors) = (1, 0);
        while values > 0 {
            let constructor = self.byte()?;
            if constructor == 0 {
                (values, descriptors) = (values + 1, descriptors + 1);
                if descriptors > DESCRIPTORS_MAX {
                    return Err(Malformed("too many descriptors"));
                }
            } else {
                self.primitive(constructor)?;
                values -= 1;
            }
        }
        Ok(())
    }

    fn primitive(&mut self, code: u8) -> Result<Value<'a>, Malformed> {
        Ok(match code {
            0x40 => Value::Null,
            0x41 => Value::Bool(true),
            0x42 => Value::Bool(false),
            0x43 | 0x44 => Value::Unsigned(0),
            0x45 => Value::List(Items { bytes: &[], left: 0 }),
            0x50 | 0x52 | 0x53 => Value::Unsigned(self.byte()?.into()),
            0x51 | 0x54 | 0x55 => Value::Signed(self.byte()?.cast_signed().into()),
            0x56 => match self.byte()? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                _ => return Err(Malformed("a boolean is 0 or 1")),
            },
            0x60 => Value::Unsigned(u16::from_be_bytes(self.array()?).into()),
            0x61 => Value::Signed(i16::from_be_bytes(self.array()?).into()),
            0x70 => Value::Unsigned(u32::from_be_bytes(self.array()?).into()),
            0x71 => Value::Signed(i32::from_be_bytes(self.array()?).into()),
            0x72 => Value::Float(f32::from_be_bytes(self.array()?).into()),
            0x73 => {
                let number = u32::from_be_bytes(self.array()?);
                Value::Char(char::from_u32(number).ok_or(Malformed("this is no character"))?)
            }
            0x80 => Value::Unsigned(u64::from_be_bytes(self.array()?)),
            0x81 => Value::Signed(i64::from_be_bytes(self.array()?)),
            0x82 => Value::Float(f64::from_be_bytes(self.array()?)),
            0x83 => Value::Timestamp(i64::from_be_bytes(self.array()?)),
            0x98 => Value::Uuid(self.take(16)?),
            0x74 | 0x84 | 0x94 => {
                // Decimals, of 4, 8 and 16 bytes.
                self.take(1 << ((code >> 4) - 5))?;
                Value::Other
            }
            0xa0 => Value::Binary(self.short()?),
            0xa1 => Value::Text(text(self.short()?)?),
            0xa3 => Value::Symbol(symbol(self.short()?)?),
            0xb0 => Value::Binary(self.long()?),
            0xb1 => Value::Text(text(self.long()?)?),
            0xb3 => Value::Symbol(symbol(self.long()?)?),
            0xc0 => Value::List(items_of_short(self.short()?)?),
            0xc1 => Value::Map(even(items_of_short(self.short()?)?)?),
            0xd0 => Value::List(items_of_long(self.long()?)?),
            0xd1 => Value::Map(even(items_of_long(self.long()?)?)?),
            0xe0 => {
                self.short()?;
                Value::Other
            }
            0xf0 => {
                self.long()?;
                Value::Other
            }
            _ => return Err(Malformed("there is no such type")),
        })
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        if length > self.bytes.len() {
            return Err(SHORT);
        }
        let (taken, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| SHORT)
    }

    fn short(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.byte()?;
        self.take(length.into())
    }

    fn long(&mut self) -> Result<&'a [u8], Malformed> {
        let length = u32::from_be_bytes(self.array()?);
        self.take(usize::try_from(length).map_err(|_| SHORT)?)
    }
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    core::str::from_utf8(bytes).map_err(|_| Malformed("a string is not UTF-8"))
}

fn symbol(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.is_ascii() { text(bytes) } else { Err(Malformed("a symbol is not ASCII")) }
}

fn items_of_short(bytes: &[u8]) -> Result<Items<'_>, Malformed> {
    let (left, bytes) = bytes.split_first().ok_or(SHORT)?;
    counted((*left).into(), bytes)
}

fn items_of_long(bytes: &[u8]) -> Result<Items<'_>, Malformed> {
    let (left, bytes) = bytes.split_first_chunk::<4>().ok_or(SHORT)?;
    counted(u32::from_be_bytes(*left), bytes)
}

/// Each has a byte at least: a count that is larger than that is none.
fn counted(left: u32, bytes: &[u8]) -> Result<Items<'_>, Malformed> {
    if left as usize > bytes.len() { Err(SHORT) } else { Ok(Items { bytes, left }) }
}

fn even(items: Items<'_>) -> Result<Items<'_>, Malformed> {
    if items.left.is_multiple_of(2) { Ok(items) } else { Err(Malformed("a map has keys and values")) }
}

/// Types that may be called by their names, too.
fn number_of(name: &str) -> Option<u64> {
    const NAMES: [(&str, u64); 29] = [
        ("amqp:open:list", 0x10),
        ("amqp:begin:list", 0x11),
        ("amqp:attach:list", 0x12),
        ("amqp:flow:list", 0x13),
        ("amqp:transfer:list", 0x14),
        ("amqp:disposition:list", 0x15),
        ("amqp:detach:list", 0x16),
        ("amqp:end:list", 0x17),
        ("amqp:close:list", 0x18),
        ("amqp:error:list", 0x1d),
        ("amqp:received:list", 0x23),
        ("amqp:accepted:list", 0x24),
        ("amqp:rejected:list", 0x25),
        ("amqp:released:list", 0x26),
        ("amqp:modified:list", 0x27),
        ("amqp:source:list", 0x28),
        ("amqp:target:list", 0x29),
        ("amqp:coordinator:list", 0x30),
        ("amqp:sasl-init:list", 0x41),
        ("amqp:sasl-response:list", 0x43),
        ("amqp:header:list", 0x70),
        ("amqp:delivery-annotations:map", 0x71),
        ("amqp:message-annotations:map", 0x72),
        ("amqp:properties:list", 0x73),
        ("amqp:application-properties:map", 0x74),
        ("amqp:data:binary", 0x75),
        ("amqp:amqp-sequence:list", 0x76),
        ("amqp:amqp-value:*", 0x77),
        ("amqp:footer:map", 0x78),
    ];
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
        let mut reader = Reader::new(bytes);
        let value = reader.value()?;
        assert!(reader.is_empty(), "{value:?} leaves something");
        Ok(value)
    }

    #[test]
    fn every_encoding_of_a_number_is_that_number() {
        for bytes in [&[0x43][..], &[0x44], &[0x50, 0], &[0x53, 0], &[0x60, 0, 0], &[0x70, 0, 0, 0, 0]] {
            assert_eq!(read(bytes), Ok(Value::Unsigned(0)), "{bytes:?}");
        }
        assert_eq!(read(&[0x80, 0, 0, 0, 0, 0, 0, 1, 0]), Ok(Value::Unsigned(256)));
        assert_eq!(read(&[0x54, 0xff]), Ok(Value::Signed(-1)));
        assert_eq!(read(&[0x56, 1]), Ok(Value::Bool(true)));
        assert_eq!(read(b"\xa1\x02hi"), Ok(Value::Text("hi")));
        assert_eq!(read(b"\xb3\0\0\0\x02hi"), Ok(Value::Symbol("hi")));
        assert_eq!(read(&[0x84, 1, 2, 3, 4, 5, 6, 7, 8]), Ok(Value::Other));
    }

    #[test]
    fn lengths_and_counts_that_are_only_announced_are_refused() {
        for bytes in [
            &b"\xb0\xff\xff\xff\xff"[..],
            b"\xd0\x7f\xff\xff\xff\0\0\0\x01",
            b"\xd1\0\0\0\x04\xff\xff\xff\xff",
            b"\xc1\x03\x02\x40",
            b"\xc1\x02\x01\x40",
            b"\xf0\x80\0\0\0",
            b"\xa1\x05hi",
            b"\x56\x02",
            b"\x3f",
            b"",
        ] {
            assert!(Reader::new(bytes).value().is_err(), "{bytes:?}");
        }
        assert_eq!(read(b"\xa1\x01\xff"), Err(Malformed("a string is not UTF-8")));
        assert_eq!(read(b"\xa3\x02\xc3\xa4"), Err(Malformed("a symbol is not ASCII")));
    }

    #[test]
    fn a_described_type_is_known_by_number_and_by_name() {
        let open = read(b"\0\x53\x10\xc0\x04\x01\xa1\x01a").unwrap().described().unwrap();
        assert_eq!(open.code, Some(0x10));
        assert_eq!(open.fields().unwrap().field(), Ok(Value::Text("a")));
        let close = read(b"\0\xa3\x0famqp:close:list\x45").unwrap().described().unwrap();
        assert_eq!((close.code, close.fields().unwrap().is_empty()), (Some(0x18), true));
    }

    #[test]
    fn what_is_nested_costs_nothing_and_has_an_end() {
        let mut nested = vec![0x45];
        for _ in 0..200 {
            let [a, b, c, d] = (nested.len() as u32 + 4).to_be_bytes();
            nested.splice(0..0, [0xd0, a, b, c, d, 0, 0, 0, 1]);
        }
        assert!(matches!(read(&nested), Ok(Value::List(_))));
        let described = [&[0; 60][..], &[0x53, 1, 0x40]].concat();
        assert_eq!(Reader::new(&described).value(), Err(Malformed("too many descriptors")));
    }
}
