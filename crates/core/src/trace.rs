//! The text form of a recording: when messages came, written by a broker or by anything else that can write a table.
//!
//! ```csv
//! # tidegate trace 1
//! us,publisher,topic,topic_bytes,payload_bytes,qos,retain
//! 0,0,0,12,24,1,0
//! ```
//!
//! Microseconds since the beginning, in any order; publishers and topics are numbers without a meaning. Groups of clients have
//! the names and patterns that whoever recorded gave them, in lines `# group 1 sensors sensor-*`, and an eighth column.
//! Pure text: files are opened by those who record (`tidegate trace record`) and ask (`tidegate what-if`).

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

/// Messages of a trace at most: 32 bytes each.
pub const MESSAGES_MAX: usize = 20_000_000;
/// Publishers, and topics, at most.
pub const NUMBERS_MAX: u32 = 1_000_001;
/// Groups of clients at most: the classes that there may be beside those that are always there.
pub const GROUPS_MAX: usize = crate::classes::CLASSES_MAX - 4;
/// A day.
const MICROS_MAX: u64 = 86_400_000_000;
const PAYLOAD_BYTES_MAX: u32 = 1024 * 1024 - 1024;
const TOPIC_BYTES_MAX: u16 = 512;

const FIRST: &str = "# tidegate trace 1";
const GROUP: &str = "# group ";
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
    /// Which of the groups, counted from 1; 0 for none.
    pub group: u8,
}

/// A group of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceGroup {
    /// What whoever recorded calls it.
    pub name: String,
    /// Of the identifiers of its clients.
    pub pattern: String,
}

impl TraceGroup {
    /// Reads `NAME=PATTERN`; the name can be that of a class.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_name = |name: &str| (1..=32).contains(&name.len()) && name != ALL && name.chars().all(is_plain);
        let is_pattern = |text: &str| (1..=256).contains(&text.len()) && !text.contains(char::is_control);
        match text.split_once('=') {
            Some((name, pattern)) if is_name(name) && is_pattern(pattern) => {
                Ok(Self { name: name.to_owned(), pattern: pattern.to_owned() })
            }
            _ => Err("expected NAME=PATTERN, such as sensors=sensor-*; a name has letters, digits, - and _".to_owned()),
        }
    }
}

/// What stands for everybody, and is no group.
pub const ALL: &str = "all";

/// All of them, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    arrivals: Vec<Arrival>,
    publishers: u32,
    groups: Vec<TraceGroup>,
}

impl Trace {
    /// Puts arrivals in order.
    pub fn new(mut arrivals: Vec<Arrival>) -> Self {
        arrivals.sort_by_key(|arrival| arrival.micros);
        let publishers = arrivals.iter().map(|arrival| arrival.publisher + 1).max().unwrap_or(0);
        Self { arrivals, publishers, groups: Vec::new() }
    }

    /// The same, with groups that the arrivals speak of.
    #[must_use]
    pub fn with_groups(self, groups: Vec<TraceGroup>) -> Self {
        Self { groups, ..self }
    }

    /// Reads a table; what is wrong is named with its line.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        match lines.next() {
            Some((_, first)) if first.split(';').next().unwrap_or_default().trim() == FIRST => {}
            _ => return Err(format!("line 1: this is no trace: expected `{FIRST}`")),
        }
        let (mut arrivals, mut groups) = (Vec::new(), Vec::new());
        for (number, line) in lines {
            if let Some(group) = line.strip_prefix(GROUP) {
                groups.push(group_line(group, groups.len()).map_err(|what| format!("line {}: {what}", number + 1))?);
                continue;
            }
            if line.is_empty() || line.starts_with('#') || line.starts_with(COLUMNS) {
                continue;
            }
            if arrivals.len() >= MESSAGES_MAX {
                return Err(format!("line {}: a trace has {MESSAGES_MAX} messages at most", number + 1));
            }
            arrivals.push(row(line, groups.len()).map_err(|what| format!("line {}: {what}", number + 1))?);
        }
        if arrivals.is_empty() {
            return Err("the trace has no message".to_owned());
        }
        Ok(Self::new(arrivals).with_groups(groups))
    }

    /// The table. The note is for people.
    pub fn write(&self, note: &str) -> String {
        let mut text = format!("{FIRST}; {note}\n");
        for (number, TraceGroup { name, pattern }) in self.groups.iter().enumerate() {
            let _ = writeln!(text, "{GROUP}{} {name} {pattern}", number + 1);
        }
        let has_groups = !self.groups.is_empty();
        text.push_str(COLUMNS);
        text.push_str(if has_groups { ",group\n" } else { "\n" });
        for arrival in &self.arrivals {
            let Arrival { micros, publisher, topic, topic_bytes, payload_bytes, qos, retain, group } = *arrival;
            let retain = u8::from(retain);
            let _ = write!(text, "{micros},{publisher},{topic},{topic_bytes},{payload_bytes},{qos},{retain}");
            let _ = if has_groups { writeln!(text, ",{group}") } else { writeln!(text) };
        }
        text
    }

    /// In order.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// Those that whoever recorded has named.
    pub fn groups(&self) -> &[TraceGroup] {
        &self.groups
    }

    /// The group of each publisher; 0 for none.
    pub fn group_of_publishers(&self) -> Vec<u8> {
        let mut groups = alloc::vec![0; self.publishers as usize];
        for arrival in &self.arrivals {
            groups[arrival.publisher as usize] = arrival.group;
        }
        groups
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

fn group_line(line: &str, before: usize) -> Result<TraceGroup, String> {
    let mut words = line.splitn(3, ' ');
    let number = words.next().and_then(|number| number.parse().ok());
    let (Some(name), Some(pattern)) = (words.next(), words.next()) else {
        return Err(format!("expected `{GROUP}{} NAME PATTERN`", before + 1));
    };
    if number != Some(before + 1) || before >= GROUPS_MAX {
        return Err(format!("groups are counted from 1, {GROUPS_MAX} at most"));
    }
    TraceGroup::parse(&format!("{name}={pattern}"))
}

fn row(line: &str, groups: usize) -> Result<Arrival, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let (fields, group) = match &fields[..] {
        [fields @ .., group] if fields.len() == 7 => (fields, *group),
        fields => (fields, "0"),
    };
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
        group: field("group", group, groups as u64)? as u8,
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
        fn what_is_written_is_read(rows in prop::collection::vec((0..MICROS_MAX, 0..9_u32, 0..9_u32, 1..40_u16, 0..99_u32, 0..3_u8, any::<bool>(), 0..3_u8), 1..50)) {
            let arrival = |(micros, publisher, topic, topic_bytes, payload_bytes, qos, retain, group)| Arrival {
                micros, publisher, topic, topic_bytes, payload_bytes, qos, retain, group,
            };
            let groups = ["sensors=sensor-*", "b=*-b c"].map(|text| TraceGroup::parse(text).unwrap());
            let trace = Trace::new(rows.into_iter().map(arrival).collect()).with_groups(groups.to_vec());
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
        assert_eq!(with("1,0,0,1,1,0,0,1"), "line 3: group: 1 is more than 0");
        let group = |line: &str| refused(&format!("{FIRST}\n{GROUP}{line}\n"));
        assert_eq!(group("2 a b"), "line 2: groups are counted from 1, 4 at most");
        assert_eq!(group("1 a"), "line 2: expected `# group 1 NAME PATTERN`");
        assert!(group("1 all *").starts_with("line 2: expected NAME=PATTERN"));
        assert_eq!(with("1,9999999,0,1,1,0,0"), "line 3: publisher: 9999999 is more than 1000000");
    }
}
