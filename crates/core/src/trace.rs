//! The text form of a recording: when messages came, written by a broker or by anything else that can write a table.
//!
//! ```csv
//! # tidegate trace 1
//! us,publisher,topic,topic_bytes,payload_bytes,qos,retain
//! 0,0,0,12,24,1,0
//! ```
//!
//! Microseconds since the beginning, in any order; publishers and topics are numbers without a meaning. Pure text: files are
//! opened by those who record (`tidegate trace record`) and replay (`tidegate lab replay`).

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

/// Messages of a trace at most: 32 bytes each.
pub const MESSAGES_MAX: usize = 20_000_000;
/// Publishers, and topics, at most.
pub const NUMBERS_MAX: u32 = 1_000_001;
/// A day.
const MICROS_MAX: u64 = 86_400_000_000;
const PAYLOAD_BYTES_MAX: u32 = 1024 * 1024 - 1024;
const TOPIC_BYTES_MAX: u16 = 512;

const FIRST: &str = "# tidegate trace 1";
const COLUMNS: &str = "us,publisher,topic,topic_bytes,payload_bytes,qos,retain";

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Microseconds since the beginning.
    pub micros: u64,
    pub publisher: u32,
    /// Where to.
    pub topic: u32,
    pub topic_bytes: u16,
    pub payload_bytes: u32,
    /// Quality of service, 0 to 2.
    pub qos: u8,
    /// Whether it is retained.
    pub retain: bool,
}

/// All of them, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    arrivals: Vec<Arrival>,
    publishers: u32,
}

impl Trace {
    /// Puts arrivals in order.
    pub fn new(mut arrivals: Vec<Arrival>) -> Self {
        arrivals.sort_by_key(|arrival| arrival.micros);
        let publishers = arrivals.iter().map(|arrival| arrival.publisher + 1).max().unwrap_or(0);
        Self { arrivals, publishers }
    }

    /// Reads a table; what is wrong is named with its line.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        match lines.next() {
            Some((_, first)) if first.split(';').next().unwrap_or_default().trim() == FIRST => {}
            _ => return Err(format!("line 1: this is no trace: expected `{FIRST}`")),
        }
        let mut arrivals = Vec::new();
        for (number, line) in lines {
            if line.is_empty() || line.starts_with('#') || line == COLUMNS {
                continue;
            }
            if arrivals.len() >= MESSAGES_MAX {
                return Err(format!("line {}: a trace has {MESSAGES_MAX} messages at most", number + 1));
            }
            arrivals.push(row(line).map_err(|what| format!("line {}: {what}", number + 1))?);
        }
        if arrivals.is_empty() {
            return Err("the trace has no message".to_owned());
        }
        Ok(Self::new(arrivals))
    }

    /// The table. The note is for people.
    pub fn write(&self, note: &str) -> String {
        let mut text = format!("{FIRST}; {note}\n{COLUMNS}\n");
        for arrival in &self.arrivals {
            let Arrival { micros, publisher, topic, topic_bytes, payload_bytes, qos, retain } = *arrival;
            let retain = u8::from(retain);
            let _ = writeln!(text, "{micros},{publisher},{topic},{topic_bytes},{payload_bytes},{qos},{retain}");
        }
        text
    }

    /// In order.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// How many publishers there are at most.
    pub fn publishers(&self) -> u32 {
        self.publishers
    }

    /// Seconds until the last one.
    pub fn seconds(&self) -> f64 {
        self.arrivals.last().map_or(0.0, |last| last.micros as f64 * 1e-6)
    }
}

fn row(line: &str) -> Result<Arrival, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [micros, publisher, topic, topic_bytes, payload_bytes, qos, retain] = fields[..] else {
        return Err(format!("{} fields instead of 7: {COLUMNS}", fields.len()));
    };
    Ok(Arrival {
        micros: field("us", micros, MICROS_MAX)?,
        publisher: field("publisher", publisher, u64::from(NUMBERS_MAX) - 1)? as u32,
        topic: field("topic", topic, u64::from(NUMBERS_MAX) - 1)? as u32,
        topic_bytes: field("topic_bytes", topic_bytes, u64::from(TOPIC_BYTES_MAX))? as u16,
        payload_bytes: field("payload_bytes", payload_bytes, u64::from(PAYLOAD_BYTES_MAX))? as u32,
        qos: field("qos", qos, 2)? as u8,
        retain: field("retain", retain, 1)? == 1,
    })
}

fn field(name: &str, text: &str, max: u64) -> Result<u64, String> {
    match text.parse() {
        Ok(value) if value <= max => Ok(value),
        Ok(value) => Err(format!("{name}: {value} is more than {max}")),
        Err(_) => Err(format!("{name}: {text:?} is no number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(rows in prop::collection::vec((0..MICROS_MAX, 0..9_u32, 0..9_u32, 1..40_u16, 0..99_u32, 0..3_u8, any::<bool>()), 1..50)) {
            let arrival = |(micros, publisher, topic, topic_bytes, payload_bytes, qos, retain)| Arrival {
                micros, publisher, topic, topic_bytes, payload_bytes, qos, retain,
            };
            let trace = Trace::new(rows.into_iter().map(arrival).collect());
            prop_assert_eq!(Trace::read(&trace.write("a note")), Ok(trace));
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let refused = |text: &str| Trace::read(text).unwrap_err();
        assert!(refused("").starts_with("line 1: this is no trace"));
        assert_eq!(refused(FIRST), "the trace has no message");
        let with = |row: &str| refused(&format!("{FIRST}\n{COLUMNS}\n{row}\n"));
        assert_eq!(with("1,2"), format!("line 3: 2 fields instead of 7: {COLUMNS}"));
        assert_eq!(with("x,0,0,1,1,0,0"), "line 3: us: \"x\" is no number");
        assert_eq!(with("1,0,0,1,1,3,0"), "line 3: qos: 3 is more than 2");
        assert_eq!(with("1,9999999,0,1,1,0,0"), "line 3: publisher: 9999999 is more than 1000000");
    }
}
