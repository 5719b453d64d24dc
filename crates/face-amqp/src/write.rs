//! AMQP's types, written: numbers as short as they go, composite types as lists whose empty ends are left out.

/// Appends a frame of this channel, with what `write` appends as its body.
pub(crate) fn frame(channel: u16, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    framed(AMQP_FRAME, channel, out, write);
}

/// The same of SASL.
pub(crate) fn sasl_frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    framed(SASL_FRAME, 0, out, write);
}

pub(crate) const AMQP_FRAME: u8 = 0;
pub(crate) const SASL_FRAME: u8 = 1;

fn framed(kind: u8, channel: u16, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    let [high, low] = channel.to_be_bytes();
    out.extend_from_slice(&[0, 0, 0, 0, 2, kind, high, low]);
    write(out);
    let size = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

/// Appends a composite type; what `fields` leaves out at the end is not there.
pub(crate) fn composite(code: u8, out: &mut Vec<u8>, fields: impl FnOnce(&mut Fields<'_>)) {
    out.extend_from_slice(&[0, 0x53, code]);
    let start = out.len();
    out.extend_from_slice(&[0xd0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut list = Fields { out, count: 0, nulls: 0 };
    fields(&mut list);
    let count = list.count;
    if count == 0 {
        out.truncate(start);
        out.push(0x45);
        return;
    }
    let body = out.len() - start - 9;
    if body < 255 {
        // The short form, in place of the long one: what was written moves six bytes to the left.
        out[start] = 0xc0;
        out[start + 1] = (body + 1) as u8;
        out[start + 2] = count as u8;
        out.copy_within(start + 9.., start + 3);
        out.truncate(start + 3 + body);
        return;
    }
    out[start + 1..start + 5].copy_from_slice(&((body + 4) as u32).to_be_bytes());
    out[start + 5..start + 9].copy_from_slice(&count.to_be_bytes());
}

/// The fields of a composite type, in order.
pub(crate) struct Fields<'a> {
    out: &'a mut Vec<u8>,
    count: u32,
    /// Fields that are not there, and are written only if one comes after them.
    nulls: u32,
}

impl Fields<'_> {
    pub(crate) fn null(&mut self) -> &mut Self {
        self.nulls += 1;
        self
    }

    /// A field that `write` writes.
    pub(crate) fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        for _ in 0..self.nulls {
            self.out.push(0x40);
        }
        self.count += self.nulls + 1;
        self.nulls = 0;
        write(self.out);
        self
    }

    /// The same, if there is something to write.
    pub(crate) fn some<T>(&mut self, value: Option<T>, write: impl FnOnce(T, &mut Vec<u8>)) -> &mut Self {
        match value {
            Some(value) => self.put(|out| write(value, out)),
            None => self.null(),
        }
    }

    pub(crate) fn uint(&mut self, number: u32) -> &mut Self {
        self.put(|out| uint(number, out))
    }

    pub(crate) fn boolean(&mut self, is: bool) -> &mut Self {
        self.put(|out| boolean(is, out))
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.put(|out| text(value, out))
    }
}

pub(crate) fn boolean(is: bool, out: &mut Vec<u8>) {
    out.push(if is { 0x41 } else { 0x42 });
}

pub(crate) fn ubyte(number: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x50, number]);
}

pub(crate) fn ushort(number: u16, out: &mut Vec<u8>) {
    out.push(0x60);
    out.extend_from_slice(&number.to_be_bytes());
}

pub(crate) fn uint(number: u32, out: &mut Vec<u8>) {
    match u8::try_from(number) {
        Ok(0) => out.push(0x43),
        Ok(small) => out.extend_from_slice(&[0x52, small]),
        Err(_) => {
            out.push(0x70);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

pub(crate) fn ulong(number: u64, out: &mut Vec<u8>) {
    match u8::try_from(number) {
        Ok(0) => out.push(0x44),
        Ok(small) => out.extend_from_slice(&[0x53, small]),
        Err(_) => {
            out.push(0x80);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

pub(crate) fn binary(bytes: &[u8], out: &mut Vec<u8>) {
    sized(0xa0, 0xb0, bytes, out);
}

pub(crate) fn text(text: &str, out: &mut Vec<u8>) {
    sized(0xa1, 0xb1, text.as_bytes(), out);
}

pub(crate) fn symbol(text: &str, out: &mut Vec<u8>) {
    sized(0xa3, 0xb3, text.as_bytes(), out);
}

fn sized(short: u8, long: u8, bytes: &[u8], out: &mut Vec<u8>) {
    if let Ok(length) = u8::try_from(bytes.len()) {
        out.extend_from_slice(&[short, length]);
    } else {
        out.push(long);
        out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    }
    out.extend_from_slice(bytes);
}

/// Appends a map of what `write` appends, so many keys and values.
pub(crate) fn map(pairs: usize, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0xd1, 0, 0, 0, 0]);
    out.extend_from_slice(&(pairs as u32 * 2).to_be_bytes());
    write(out);
    let length = (out.len() - start - 5) as u32;
    out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
}

/// Appends an array of symbols.
pub(crate) fn symbols(texts: &[&str], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0xf0, 0, 0, 0, 0]);
    out.extend_from_slice(&(texts.len() as u32).to_be_bytes());
    out.push(0xa3);
    for text in texts {
        out.push(text.len().min(255) as u8);
        out.extend_from_slice(&text.as_bytes()[..text.len().min(255)]);
    }
    let length = (out.len() - start - 5) as u32;
    out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Reader, Value};

    #[test]
    fn a_composite_type_ends_with_its_last_field_and_is_short_if_it_can_be() {
        let mut out = Vec::new();
        composite(0x18, &mut out, |fields| {
            fields.null();
        });
        assert_eq!(out, b"\0\x53\x18\x45");
        out.clear();
        composite(0x10, &mut out, |fields| {
            fields.text("a").null().uint(512).null();
        });
        assert_eq!(out, b"\0\x53\x10\xc0\x0a\x03\xa1\x01a\x40\x70\0\0\x02\0");
        out.clear();
        composite(0x10, &mut out, |fields| {
            fields.text(&"a".repeat(300)).uint(7);
        });
        let mut fields = Reader::new(&out).value().unwrap().described().unwrap().fields().unwrap();
        assert_eq!(fields.field(), Ok(Value::Text(&"a".repeat(300))));
        assert_eq!(fields.field(), Ok(Value::Unsigned(7)));
        assert!(fields.is_empty());
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut out = Vec::new();
        map(1, &mut out, |out| {
            symbol("key", out);
            ulong(70000, out);
        });
        let items = Reader::new(&out).value().unwrap().map().unwrap().unwrap();
        assert_eq!(items.get("key"), Ok(Some(Value::Unsigned(70000))));
        out.clear();
        frame(3, &mut out, |out| ubyte(9, out));
        assert_eq!(out, [0, 0, 0, 10, 2, 0, 0, 3, 0x50, 9]);
        out.clear();
        symbols(&["PLAIN", "ANONYMOUS"], &mut out);
        assert_eq!(Reader::new(&out).value(), Ok(Value::Other));
    }
}
