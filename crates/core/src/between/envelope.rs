//! The kinds of envelopes, as bytes, and what is lost with each.
//!
//! Written and read by this file only; who changes a byte of it changes [`VERSION`](super::VERSION). What is said of a loss
//! is true where a way loses a batch: today only the end of the process does.

use alloc::vec::Vec;

use tidegate_wire_mqtt::{Properties, QoS};

use super::{Address, Wall};
use crate::classes::ClassId;
use crate::message::{Precedence, Publication, RATE_UNKNOWN, belongs_to_message};
use crate::subscriptions::Members;

/// One thing that a shard tells another.
#[derive(Debug)]
pub(crate) enum Envelope<'a> {
    /// A message: for the subscribers there, and kept there if it is retained, with its place in the order of all retained
    /// messages (see `Stamp`).
    ///
    /// *Lost*: the subscribers there miss it. At QoS 0 that is allowed, and `dropped_shard_full` counts it where the sender
    /// gave it up. At QoS 1 and 2 with a store nobody was thanked for it, because no `Kept` comes; a QoS 2 message or a
    /// will of a lasting session is sent again after a restart (`StoreChange::Routing`). Without a store its publisher was
    /// thanked. A retained one is missing there, and that shard answers with an older one, until the next of its topic.
    Publish { publication: Publication<'a>, count: u64, routing: u64 },
    /// A message for one member of a group there; if the last one has left, it is passed on. `tried` are the shards where
    /// there was none.
    ///
    /// *Lost*: no member of the group gets it; otherwise as `Publish`.
    Shared { tried: Tried<'a>, filter: &'a str, group: &'a str, publication: Publication<'a>, routing: u64 },
    /// The sender wants to be told when what it has sent until now is kept; its turn.
    ///
    /// *Lost*: the messages of that turn are never acknowledged, and their publishers send them again on their next
    /// connection. A way that loses needs a time-out here, and to know who is a member.
    Ask { turn: u64 },
    /// What came from the receiver in that turn is kept.
    ///
    /// *Lost*: as `Ask`.
    Kept { turn: u64 },
    /// Nobody there has room for more of this client to this topic (a hash), for so long; see `gate/share`.
    ///
    /// *Lost*: nothing but a second: that client is told later that its messages find no room.
    Saturated { origin: u64, topic: u64, millis: u32 },
    /// Many messages in a row of this client found nobody there who has room; see `gate/share`.
    ///
    /// *Lost*: as `Saturated`.
    TurnedAway { origin: u64 },
    /// The sender has subscribers on this filter, or has none any more.
    ///
    /// *Lost*: the subscribers there get nothing that is published here until the last of them has left and another has
    /// come; or, the other way round, messages go there for nobody. Never given up: no answer is written before it is
    /// taken (`Shard::may_write`). A way that loses has to say all of them again when it is back.
    Interest { filter: &'a str, interested: bool },
    /// The sender's members of a group.
    ///
    /// *Lost*: messages go to members that have left, and are passed on by their shard; or members there wait for their
    /// turn until somebody comes or goes. Never given up, as `Interest`.
    Group { filter: &'a str, group: &'a str, members: Members },
}

/// Shards where a message for a group found no member, as they travel: an address after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried<'a>(&'a [u8]);

/// Bytes of an address.
const ADDRESS: usize = 6;

impl<'a> Tried<'a> {
    /// Those, in bytes that [`Self::with`] has made.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn contains(self, address: Address) -> bool {
        self.0.chunks_exact(ADDRESS).any(|bytes| bytes == address_bytes(address))
    }

    /// These and one more.
    pub(crate) fn with(self, address: Address) -> Vec<u8> {
        [self.0, &address_bytes(address)].concat()
    }
}

fn address_bytes(Address { node, shard }: Address) -> [u8; ADDRESS] {
    let ([a, b, c, d], [e, f]) = (node.to_le_bytes(), shard.to_le_bytes());
    [a, b, c, d, e, f]
}

impl<'a> Envelope<'a> {
    pub(crate) fn write(&self, wall: Wall, out: &mut Vec<u8>) {
        match self {
            Self::Publish { publication, count, routing } => {
                out.push(0);
                write_publication(publication, wall, out);
                write_routing(publication, *routing, out);
                if publication.retain {
                    out.extend_from_slice(&count.to_le_bytes());
                }
            }
            Self::Shared { tried, filter, group, publication, routing } => {
                out.push(1);
                write_block(tried.0, out);
                write_text(filter, out);
                write_text(group, out);
                write_publication(publication, wall, out);
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
                out.push(6);
                out.extend_from_slice(&origin.to_le_bytes());
                out.extend_from_slice(&topic.to_le_bytes());
                out.extend_from_slice(&millis.to_le_bytes());
            }
            Self::TurnedAway { origin } => {
                out.push(7);
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

    /// The next envelope of a batch, if it makes sense; `bytes` moves behind it.
    pub(crate) fn read(wall: Wall, bytes: &mut &'a [u8]) -> Option<Self> {
        let mut reader = EnvelopeReader(bytes);
        let envelope = match reader.array::<1>()?[0] {
            0 => {
                let publication = reader.publication(wall)?;
                let routing = reader.routing(&publication)?;
                let count = if publication.retain { u64::from_le_bytes(reader.array()?) } else { 0 };
                Self::Publish { publication, count, routing }
            }
            1 => {
                let tried = Tried(reader.block()?);
                let (filter, group) = (reader.text()?, reader.text()?);
                let publication = reader.publication(wall)?;
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
            6 => Self::Saturated {
                origin: u64::from_le_bytes(reader.array()?),
                topic: u64::from_le_bytes(reader.array()?),
                millis: u32::from_le_bytes(reader.array()?),
            },
            7 => Self::TurnedAway { origin: u64::from_le_bytes(reader.array()?) },
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

fn write_publication(publication: &Publication<'_>, wall: Wall, out: &mut Vec<u8>) {
    let Precedence { class, is_by_topic, rate, .. } = publication.standing;
    let has_rate = rate != RATE_UNKNOWN;
    let flags = u8::from(publication.retain) << 2 | u8::from(is_by_topic) << 3 | u8::from(has_rate) << 4;
    out.push(publication.qos.bits() | flags | class.bits() << 5);
    if has_rate {
        out.extend_from_slice(&rate.to_le_bytes());
    }
    out.extend_from_slice(&publication.standing.claim().to_le_bytes());
    out.extend_from_slice(&publication.origin.to_le_bytes());
    out.extend_from_slice(&wall.nanos(publication.expires).to_le_bytes());
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

struct EnvelopeReader<'a>(&'a [u8]);

impl<'a> EnvelopeReader<'a> {
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

    fn publication(&mut self, wall: Wall) -> Option<Publication<'a>> {
        let [flags] = self.array()?;
        let rate = if flags & 16 != 0 { u32::from_le_bytes(self.array()?) } else { RATE_UNKNOWN };
        let class = ClassId::from_bits(flags >> 5);
        let mut standing = Precedence { is_by_topic: flags & 8 != 0, rate, ..Precedence::of(class) };
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
            expires: wall.timestamp(expires),
            origin,
            standing,
        })
    }
}
