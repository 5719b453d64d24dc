//! What shards tell each other, as bytes: one buffer per shard and turn instead of one allocation per message.
//!
//! Written and read by this file only, within one process; the format needs no version. What does not make sense is
//! skipped to the end of the batch, which only a bug can cause.

use alloc::vec::Vec;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Properties, QoS};

use crate::classes::ClassId;
use crate::message::{Publication, RATE_UNKNOWN, Standing, belongs_to_message};
use crate::subscriptions::Members;

/// One thing that a shard tells another.
#[derive(Debug)]
pub(crate) enum Envelope<'a> {
    /// A message: for the subscribers there, and kept there if it is retained, with its place in the order of all retained
    /// messages (see `Stamp`).
    Publish { publication: Publication<'a>, count: u64, routing: u64 },
    /// A message for one member of a group there; if the last one has left, it is passed on. `tried` are the shards, a bit
    /// each, where there was none.
    Shared { tried: u64, filter: &'a str, group: &'a str, publication: Publication<'a>, routing: u64 },
    /// The sender wants to be told when what it has sent until now is kept; its turn.
    Ask { turn: u64 },
    /// What came from the receiver in that turn is kept.
    Kept { turn: u64 },
    /// Nobody there has room for more of this client to this topic (a hash), for so long; see `saturated`.
    Saturated { origin: u64, topic: u64, millis: u32 },
    /// Many messages in a row of this client found nobody there who has room; see `saturated`.
    TurnedAway { origin: u64 },
    /// The sender has subscribers on this filter, or has none any more.
    Interest { filter: &'a str, interested: bool },
    /// The sender's members of a group.
    Group { filter: &'a str, group: &'a str, members: Members },
}

impl<'a> Envelope<'a> {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Publish { publication, count, routing } => {
                out.push(0);
                write_publication(publication, out);
                write_routing(publication, *routing, out);
                if publication.retain {
                    out.extend_from_slice(&count.to_le_bytes());
                }
            }
            Self::Shared { tried, filter, group, publication, routing } => {
                out.push(1);
                out.extend_from_slice(&tried.to_le_bytes());
                write_text(filter, out);
                write_text(group, out);
                write_publication(publication, out);
                write_routing(publication, *routing, out);
            }
            Self::Ask { turn } => {
                out.push(4);
                out.extend_from_slice(&turn.to_le_bytes());
            }
            Self::Kept { turn } => {
                out.push(5);
                out.extend_from_slice(&turn.to_le_bytes());
            }
            Self::Saturated { origin, topic, millis } => {
                out.push(7);
                out.extend_from_slice(&origin.to_le_bytes());
                out.extend_from_slice(&topic.to_le_bytes());
                out.extend_from_slice(&millis.to_le_bytes());
            }
            Self::TurnedAway { origin } => {
                out.push(8);
                out.extend_from_slice(&origin.to_le_bytes());
            }
            Self::Interest { filter, interested } => {
                out.push(2);
                write_text(filter, out);
                out.push(u8::from(*interested));
            }
            Self::Group { filter, group, members } => {
                out.push(3);
                write_text(filter, out);
                write_text(group, out);
                out.extend_from_slice(&members.online.to_le_bytes());
                out.extend_from_slice(&members.offline.to_le_bytes());
            }
        }
    }

    /// The next envelope of a batch; `bytes` moves behind it.
    pub(crate) fn read(bytes: &mut &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let envelope = match reader.array::<1>()?[0] {
            0 => {
                let publication = reader.publication()?;
                let routing = reader.routing(&publication)?;
                let count = if publication.retain { u64::from_le_bytes(reader.array()?) } else { 0 };
                Self::Publish { publication, count, routing }
            }
            1 => {
                let tried = u64::from_le_bytes(reader.array()?);
                let (filter, group) = (reader.text()?, reader.text()?);
                let publication = reader.publication()?;
                let routing = reader.routing(&publication)?;
                Self::Shared { tried, filter, group, publication, routing }
            }
            2 => Self::Interest { filter: reader.text()?, interested: reader.array::<1>()? == [1] },
            3 => Self::Group {
                filter: reader.text()?,
                group: reader.text()?,
                members: Members {
                    online: u32::from_le_bytes(reader.array()?),
                    offline: u32::from_le_bytes(reader.array()?),
                },
            },
            4 => Self::Ask { turn: u64::from_le_bytes(reader.array()?) },
            5 => Self::Kept { turn: u64::from_le_bytes(reader.array()?) },
            7 => Self::Saturated {
                origin: u64::from_le_bytes(reader.array()?),
                topic: u64::from_le_bytes(reader.array()?),
                millis: u32::from_le_bytes(reader.array()?),
            },
            8 => Self::TurnedAway { origin: u64::from_le_bytes(reader.array()?) },
            _ => return None,
        };
        *bytes = reader.0;
        Some(envelope)
    }
}

/// Only QoS 2 has one.
fn write_routing(publication: &Publication<'_>, routing: u64, out: &mut Vec<u8>) {
    if publication.qos == QoS::ExactlyOnce {
        out.extend_from_slice(&routing.to_le_bytes());
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    write_block(text.as_bytes(), out);
}

fn write_block(block: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(block.len() as u32).to_le_bytes());
    out.extend_from_slice(block);
}

fn write_publication(publication: &Publication<'_>, out: &mut Vec<u8>) {
    let Standing { class, is_by_topic, rate, .. } = publication.standing;
    let has_rate = rate != RATE_UNKNOWN;
    let flags = u8::from(publication.retain) << 2 | u8::from(is_by_topic) << 3 | u8::from(has_rate) << 4;
    out.push(publication.qos.bits() | flags | class.bits() << 5);
    if has_rate {
        out.extend_from_slice(&rate.to_le_bytes());
    }
    out.extend_from_slice(&publication.standing.claim().to_le_bytes());
    out.extend_from_slice(&publication.origin.to_le_bytes());
    out.extend_from_slice(&publication.expires.map_or(0, Timestamp::as_nanos).to_le_bytes());
    write_text(publication.topic, out);
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    if !publication.properties.is_empty() {
        publication.properties.encode(out, belongs_to_message);
        let length = (out.len() - length_at - 4) as u32;
        out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }
    write_block(publication.payload, out);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn block(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        let (block, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(block)
    }

    fn text(&mut self) -> Option<&'a str> {
        core::str::from_utf8(self.block()?).ok()
    }

    fn routing(&mut self, publication: &Publication<'_>) -> Option<u64> {
        if publication.qos == QoS::ExactlyOnce { self.array().map(u64::from_le_bytes) } else { Some(0) }
    }

    fn publication(&mut self) -> Option<Publication<'a>> {
        let [flags] = self.array()?;
        let rate = if flags & 16 != 0 { u32::from_le_bytes(self.array()?) } else { RATE_UNKNOWN };
        let class = ClassId::from_bits(flags >> 5);
        let mut standing = Standing { is_by_topic: flags & 8 != 0, rate, ..Standing::of(class) };
        standing.set_claim(u64::from_le_bytes(self.array()?));
        let origin = u64::from_le_bytes(self.array()?);
        let expires = u64::from_le_bytes(self.array()?);
        let topic = self.text()?;
        let properties = self.block()?;
        Some(Publication {
            topic,
            properties: if properties.is_empty() { Properties::EMPTY } else { Properties::from_encoded(properties) },
            payload: self.block()?,
            qos: QoS::from_bits(flags & 3)?,
            retain: flags & 4 != 0,
            expires: (expires != 0).then(|| Timestamp::from_nanos(expires)),
            origin,
            standing,
        })
    }
}
