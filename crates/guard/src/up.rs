//! From a client to the other broker. A PUBLISH is asked for as soon as its topic is there; the rest of it, and every other
//! packet, passes as it comes. Nothing is collected: a message of 100 MiB costs no more memory than one of 100 bytes.

use alloc::borrow::{Cow, ToOwned};

use tidegate_core::{ConnId, Flow, Moment, PassOutcome, Passing, ReadStep, Shard};
use tidegate_wire_mqtt::{QoS, Version};

use crate::frame::{DISCONNECT, Front, Head, PUBLISH, PublishHead, Seen, front};
use crate::link::{ALIAS_BYTES_MAX, ALIASES_MAX, GuardLink};
use crate::origins::Origins;

/// The front of a client's bytes, and what became of it.
#[inline]
pub(crate) fn step(
    shard: &mut Shard,
    conn: ConnId,
    version: Version,
    bytes: &[u8],
    moment: &Moment,
    origins: &Origins,
) -> ReadStep {
    let Some((link, _)) = shard.face_mut::<GuardLink>(conn) else { return ReadStep::Incomplete { at_least: 1 } };
    if link.rest > 0 {
        let size = link.rest.min(bytes.len());
        if size == 0 {
            return ReadStep::Incomplete { at_least: 1 };
        }
        link.rest -= size;
        return ReadStep::Packet { size, is_publication: false, handled: Ok(Flow::On) };
    }
    match front(bytes) {
        Front::Incomplete => ReadStep::Incomplete { at_least: bytes.len() + 1 },
        Front::Malformed => {
            // Where the next packet begins nobody knows: the other broker hears all of it, and ends this.
            link.rest = usize::MAX;
            ReadStep::Packet { size: 0, is_publication: false, handled: Ok(Flow::On) }
        }
        Front::Packet(head) if head.kind == PUBLISH => match head.publish(bytes, version) {
            Seen::Incomplete(at_least) => ReadStep::Incomplete { at_least },
            Seen::Known(publish) => pass(shard, conn, head, bytes, &publish, moment, origins),
        },
        Front::Packet(head) => {
            link.is_leaving |= head.kind == DISCONNECT;
            begin(link, head, bytes, false)
        }
    }
}

/// The beginning of a packet passes; its rest will.
fn begin(link: &mut GuardLink, head: Head, bytes: &[u8], is_publication: bool) -> ReadStep {
    let size = head.total.min(bytes.len());
    link.rest = head.total - size;
    ReadStep::Packet { size, is_publication, handled: Ok(Flow::On) }
}

fn pass(
    shard: &mut Shard,
    conn: ConnId,
    head: Head,
    bytes: &[u8],
    publish: &PublishHead<'_>,
    moment: &Moment,
    origins: &Origins,
) -> ReadStep {
    let topic = match publish.alias {
        None => Cow::Borrowed(core::str::from_utf8(publish.topic).unwrap_or_default()),
        Some(alias) => Cow::Owned(resolve(shard, conn, alias, publish.topic)),
    };
    let qos = publish.qos.unwrap_or(QoS::AtMostOnce);
    let passing =
        Passing { topic: &topic, qos, retain: publish.retain, came: moment.came(head.total.min(bytes.len())) };
    let flow = match shard.pass_behind(conn, &passing, moment.now()) {
        PassOutcome::On(provenance) => {
            origins.note(origins.number(topic.as_bytes()), provenance);
            if let Some((link, _)) = shard.face_mut::<GuardLink>(conn) {
                return begin(link, head, bytes, true);
            }
            Flow::On
        }
        PassOutcome::Wait => Flow::Wait,
    };
    ReadStep::Packet { size: head.total.min(bytes.len()), is_publication: true, handled: Ok(flow) }
}

/// The topic of a message with an alias, which may be what says what the alias stands for.
fn resolve(shard: &mut Shard, conn: ConnId, alias: u16, topic: &[u8]) -> alloc::string::String {
    let Some((link, _)) = shard.face_mut::<GuardLink>(conn) else { return alloc::string::String::new() };
    let Ok(topic) = core::str::from_utf8(topic) else { return alloc::string::String::new() };
    if topic.is_empty() {
        return link.aliases.get(&alias).cloned().unwrap_or_default();
    }
    let others: usize = link.aliases.iter().filter(|(known, _)| **known != alias).map(|(_, topic)| topic.len()).sum();
    let has_room = others + topic.len() <= ALIAS_BYTES_MAX;
    if has_room && (link.aliases.len() < ALIASES_MAX || link.aliases.contains_key(&alias)) {
        link.aliases.insert(alias, topic.to_owned());
    } else {
        // What it stood for before it does not any more.
        link.aliases.remove(&alias);
    }
    topic.to_owned()
}
