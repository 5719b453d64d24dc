//! How `tidegate sub` shows what arrives: line by line, as a table of topics that is kept up to date, or as a rate.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::client::ReceivedMessage;
use crate::format::Format;

/// Topics of a table: more than any terminal has lines. Later topics are not shown.
const TOPICS_MAX: usize = 1000;
const SECOND: Duration = Duration::from_secs(1);

/// Where a message goes.
#[derive(Debug)]
pub(crate) enum Show {
    /// One after the other.
    Lines(Format),
    /// Each topic has a line of its own, in the order in which they came first.
    Table {
        /// How a line looks; without a line break.
        format: Format,
        /// The topic of each line.
        topics: Vec<String>,
    },
    /// How many there were in each second.
    Rate {
        /// In this second.
        count: u64,
        /// When the second is over.
        end: Instant,
    },
}

impl Show {
    /// A table with lines of this format.
    pub(crate) fn table(format: Format) -> Self {
        Self::Table { format, topics: Vec::new() }
    }

    /// A rate from now on.
    pub(crate) fn rate(now: Instant) -> Self {
        Self::Rate { count: 0, end: now + SECOND }
    }

    /// Shows a message. An error if nobody reads.
    pub(crate) fn message(&mut self, message: &ReceivedMessage, out: &mut impl Write) -> io::Result<()> {
        let mut line = Vec::new();
        match self {
            Self::Lines(format) => format.write(message, &mut line),
            Self::Rate { count, .. } => *count += 1,
            Self::Table { format, topics } => {
                let row = topics.iter().position(|topic| *topic == message.topic).unwrap_or(topics.len());
                if row == TOPICS_MAX {
                    return Ok(());
                }
                if row == topics.len() {
                    if row == 0 {
                        line.extend_from_slice(b"\x1b[2J");
                    }
                    topics.push(message.topic.clone());
                }
                write!(line, "\x1b[{};1H", row + 1)?;
                format.write(message, &mut line);
                line.extend_from_slice(b"\x1b[K");
            }
        }
        out.write_all(&line).and_then(|()| out.flush())
    }

    /// When to look at the clock next.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self {
            Self::Rate { end, .. } => Some(*end),
            Self::Lines(_) | Self::Table { .. } => None,
        }
    }

    /// The clock says this. An error if nobody reads.
    pub(crate) fn tick(&mut self, now: Instant, out: &mut impl Write) -> io::Result<()> {
        let Self::Rate { count, end } = self else { return Ok(()) };
        if now < *end {
            return Ok(());
        }
        writeln!(out, "{count}")?;
        (*count, *end) = (0, now.max(*end + SECOND));
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(topic: &str, payload: &str) -> ReceivedMessage {
        ReceivedMessage { topic: topic.to_owned(), payload: payload.as_bytes().to_vec(), ..ReceivedMessage::default() }
    }

    #[test]
    fn a_table_keeps_one_line_for_each_topic() {
        let mut show = Show::table(Format::parse("%t %p", "").unwrap());
        let mut out = Vec::new();
        for (topic, payload) in [("a", "1"), ("b", "2"), ("a", "3")] {
            show.message(&message(topic, payload), &mut out).unwrap();
        }
        let expected = "\x1b[2J\x1b[1;1Ha 1\x1b[K\x1b[2;1Hb 2\x1b[K\x1b[1;1Ha 3\x1b[K";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_table_is_bounded() {
        let mut show = Show::table(Format::parse("%p", "").unwrap());
        for number in 0..2 * TOPICS_MAX {
            show.message(&message(&number.to_string(), ""), &mut Vec::new()).unwrap();
        }
        assert!(matches!(show, Show::Table { topics, .. } if topics.len() == TOPICS_MAX));
    }

    #[test]
    fn a_rate_is_said_once_a_second() {
        let start = Instant::now();
        let (mut show, mut out) = (Show::rate(start), Vec::new());
        for second in 1..=2 {
            for _ in 0..second {
                show.message(&message("a", "x"), &mut out).unwrap();
            }
            show.tick(start + second * SECOND.mul_f32(0.9), &mut out).unwrap();
            show.tick(start + second * SECOND, &mut out).unwrap();
        }
        assert_eq!(out, b"1\n2\n");
    }
}
