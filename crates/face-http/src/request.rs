//! Requests of a client, as verbs of its shard: GET reads a topic's state or opens a stream, POST says something, PUT sets
//! the state, DELETE forgets it.

use core::hash::BuildHasher;
use core::num::{NonZeroU16, NonZeroU32};

use tidegate_control::Timestamp;
use tidegate_core::ledger::Loss;
use tidegate_core::{ConnId, Flow, Incoming, Moment, ReadStep, Shard, SubscriptionRequest};
use tidegate_wire_mqtt::topic::check_name;
use tidegate_wire_mqtt::{
    Delivery, Properties, Property, QoS, RetainHandling, Subscription, SubscriptionOptions, TopicFilter,
};

use crate::answer::{Answer, Manner, Pace, preflight, put, put_problem, status_of};
use crate::body::{ChunkStep, Chunked};
use crate::first::{Proof, is_stream, judge};
use crate::head::{self, BodyLength, Fault, Head, Method, fault};
use crate::limits::{BUSY, HEAD_BYTES_MAX};
use crate::link::{HttpLink, Waits};
use crate::pages::Pages;
use crate::target::{self, Parameters, Resource};

/// What there is, for people.
const WELCOME: &str = "tidegate, topics over HTTP\n\n\
    POST /topics/a/b               publish; ?qos=0, ?retain=1, ?expiry=SECONDS\n\
    PUT /topics/a/b                publish, and keep it as the topic's state\n\
    GET /topics/a/b                the topic's state\n\
    DELETE /topics/a/b             forget it\n\
    GET /topics/a/%23              with Accept: text/event-stream: events of all topics of a filter\n\
    GET /topics?filter=a/%23       the same for several filters\n";

/// A page that shows all that is published, for a browser; the one of `docs/http.md`.
const PAGE: &str = include_str!("page.html");

/// A body is here, or is still to come.
enum Body {
    /// The body, and the bytes of the whole request.
    Whole(Vec<u8>, usize),
    /// So many bytes of the request have to be there.
    Need(usize),
}

/// What the bytes of a connection come to.
pub(crate) fn step(shard: &mut Shard, conn: ConnId, bytes: &[u8], moment: &Moment, pages: &dyn Pages) -> ReadStep {
    let swallow = ReadStep::Packet { size: bytes.len(), is_publication: false, handled: Ok(Flow::On) };
    let body_max = shard.packet_limits().packet_bytes_max as usize;
    let unread: usize = shard.outbox(conn).iter().map(|slice| slice.len()).sum();
    let is_behind = unread > shard.settings().outbox_bytes_max;
    let is_owed = shard.owes(conn);
    let Some((link, memory)) = shard.face_mut::<HttpLink>(conn) else { return swallow };
    if bytes.is_empty() {
        return ReadStep::Incomplete { at_least: 1 };
    }
    // Whoever has a stream has said everything; what follows the last request is not read.
    let has_begun = link.stream.is_some() && link.requests > 0;
    match link.waits {
        _ if has_begun => return swallow,
        Waits::Close => return swallow,
        // One whole request may wait for its turn, and no more than that.
        Waits::Switch if bytes.len() > body_max + HEAD_BYTES_MAX => {
            link.fail(fault(503, "too much follows a request that waits"), Manner::last());
            shard.say_in_turn(conn);
            return swallow;
        }
        Waits::Switch => return ReadStep::Incomplete { at_least: bytes.len() + 1 },
        // Who does not take its answers is not asked for more: the core pauses it.
        Waits::Nothing if is_behind => return ReadStep::Incomplete { at_least: 1 },
        Waits::Nothing => {}
    }
    let head = match head::read(bytes) {
        Ok(Some(head)) => head,
        Ok(None) => return ReadStep::Incomplete { at_least: bytes.len() + 1 },
        Err(fault) => {
            link.fail(fault, Manner::last());
            shard.say_in_turn(conn);
            return swallow;
        }
    };
    let manner = Manner::of(&head);
    let charge = memory.charge();
    let read = judge(&head, link.peer.ip(), pages).map_err(|why| fault(403, why));
    let read = read.and_then(|()| target::read(&head.target));
    let read = read.and_then(|(resource, parameters)| {
        if link.is_full() {
            return Err(fault(503, "too many requests wait for their answers on this connection"));
        }
        let is_other = Proof::of(&head, &parameters) != link.proof && !head.is_preflight;
        if is_other || (is_stream(&head, &resource) && link.stream.is_none()) {
            link.waits = Waits::Switch;
            return Ok(None);
        }
        let body = read_body(link, &head, bytes, body_max, || charge)?;
        Ok(Some((resource, parameters, body)))
    });
    let (resource, parameters, body, size) = match read {
        Err(fault) => {
            // A page that may not ask may not read that either.
            let manner = if fault.status == 403 { Manner::last() } else { manner };
            link.fail(fault, manner);
            shard.say_in_turn(conn);
            // For want of room, and not for what it says: a message came, and was refused.
            let is_publication = fault.status == 503 && is_message(&head);
            if is_publication {
                shard.note_lost_input(conn, Loss::Refused);
            }
            return ReadStep::Packet { size: bytes.len(), is_publication, handled: Ok(Flow::On) };
        }
        Ok(None) => return ReadStep::Incomplete { at_least: bytes.len() + 1 },
        Ok(Some((_, _, Body::Need(at_least)))) => {
            if head.expects_continue && !link.is_continued && !link.has_open() && !is_owed {
                link.is_continued = true;
                link.outgoing.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                shard.say_in_turn(conn);
            }
            return ReadStep::Incomplete { at_least };
        }
        Ok(Some((resource, parameters, Body::Whole(body, size)))) => (resource, parameters, body, size),
    };
    link.requests += 1;
    link.is_continued = false;
    let asked = Asked { head: &head, manner, resource, parameters, body, size };
    let step = handle(shard, conn, asked, moment);
    shard.say_in_turn(conn);
    step
}

/// Whether a request is to say something, whatever it is about.
fn is_message(head: &Head) -> bool {
    matches!(head.method, Method::Post | Method::Put | Method::Delete)
}

fn read_body(
    link: &mut HttpLink,
    head: &Head,
    bytes: &[u8],
    body_max: usize,
    charge: impl FnOnce() -> tidegate_core::Charge,
) -> Result<Body, Fault> {
    let rest = &bytes[head.size..];
    match head.body {
        BodyLength::Known(length) if length > body_max => Err(fault(413, "the body is larger than what is taken here")),
        BodyLength::Known(length) if rest.len() < length => Ok(Body::Need(head.size + length)),
        BodyLength::Known(length) => Ok(Body::Whole(rest[..length].to_vec(), head.size + length)),
        BodyLength::Chunked => {
            let chunked = link.chunked.get_or_insert_with(|| Box::new(Chunked::new(charge())));
            match chunked.advance(rest, body_max)? {
                ChunkStep::Need(needed) => Ok(Body::Need(head.size + needed)),
                ChunkStep::Whole(length) => {
                    let body = link.chunked.take().map(|chunked| chunked.into_body()).unwrap_or_default();
                    Ok(Body::Whole(body, head.size + length))
                }
            }
        }
    }
}

/// A whole request.
struct Asked<'a> {
    head: &'a Head,
    manner: Manner,
    resource: Resource,
    parameters: Parameters,
    body: Vec<u8>,
    size: usize,
}

fn handle(shard: &mut Shard, conn: ConnId, asked: Asked<'_>, moment: &Moment) -> ReadStep {
    let size = asked.size;
    let now = moment.now();
    let method = asked.head.method;
    let done = ReadStep::Packet { size, is_publication: false, handled: Ok(Flow::On) };
    match (method, &asked.resource) {
        (Method::Options, _) => respond(shard, conn, asked.manner, preflight),
        (Method::Other, _) => refuse(shard, conn, asked.manner, 501, "no such method is known here"),
        (_, Resource::Nothing) => refuse(shard, conn, asked.manner, 404, "there is nothing; GET / lists what there is"),
        (Method::Get | Method::Head, Resource::Welcome) => respond(shard, conn, asked.manner, |manner, out| {
            let (content_type, body) = if asked.head.accepts_page {
                ("text/html; charset=utf-8", PAGE.as_bytes())
            } else {
                ("text/plain; charset=utf-8", WELCOME.as_bytes())
            };
            put(&Answer { content_type, body, ..Answer::empty(200) }, manner, out);
        }),
        (Method::Get, Resource::Topics | Resource::Topic(_)) if asked.head.accepts_events => {
            open_stream(shard, conn, &asked, now);
        }
        (Method::Get | Method::Head, Resource::Topic(topic)) => get(shard, conn, &asked, topic, now),
        (Method::Get | Method::Head, Resource::Topics) => {
            refuse(shard, conn, asked.manner, 400, "several topics are a stream: Accept: text/event-stream");
        }
        (_, Resource::Welcome | Resource::Topics) => {
            refuse(shard, conn, asked.manner, 405, "messages go to a topic: /topics/a/b");
        }
        (_, Resource::Topic(topic)) => return publish(shard, conn, &asked, topic, moment),
    }
    done
}

fn respond(shard: &mut Shard, conn: ConnId, manner: Manner, write: impl FnOnce(&Manner, &mut Vec<u8>)) {
    if let Some((link, _)) = shard.face_mut::<HttpLink>(conn) {
        link.respond(manner, write);
    }
}

fn refuse(shard: &mut Shard, conn: ConnId, manner: Manner, status: u16, why: &str) {
    let pace = Pace { retry_after: (status == 503).then_some(BUSY), interval: None };
    respond(shard, conn, manner, |manner, out| put_problem(status, why, pace, manner, out));
}

/// The state of a topic.
fn get(shard: &mut Shard, conn: ConnId, asked: &Asked<'_>, topic: &str, now: Timestamp) {
    let manner = asked.manner.clone();
    if check_name(topic, shard.packet_limits()).is_err() {
        let why = "this is no topic; a filter is a stream: Accept: text/event-stream";
        return refuse(shard, conn, manner, 400, why);
    }
    let state = match shard.read_retained(conn, topic, now) {
        Ok(Some(state)) => state,
        Ok(None) => return refuse(shard, conn, manner, 404, "this topic has no state"),
        Err(reason) => return refuse(shard, conn, manner, status_of(reason), reason.name()),
    };
    let tag = format!("\"{:016x}\"", shard.hasher().hash_one(&state.payload));
    let is_known = |text: &str| {
        text.split(',').any(|known| matches!(known.trim(), "*") || known.trim().trim_start_matches("W/") == tag)
    };
    let is_known = asked.head.if_none_match.as_deref().is_some_and(is_known);
    // What a publisher says of its type goes into a header only if it is one.
    let is_type = |text: &&str| !text.is_empty() && text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    let content_type = state.content_type.as_deref().filter(is_type).unwrap_or("application/octet-stream");
    respond(shard, conn, manner, |manner, out| {
        // Whoever may publish must not be able to run anything in the name of this door.
        let policy = "default-src 'none'; sandbox".to_owned();
        let headers =
            vec![("etag", tag), ("x-content-type-options", "nosniff".to_owned()), ("content-security-policy", policy)];
        let answer = if is_known {
            Answer { headers, ..Answer::empty(304) }
        } else {
            Answer { status: 200, headers, content_type, body: &state.payload }
        };
        put(&answer, manner, out);
    });
}

/// The first request of a connection that is to be a stream.
fn open_stream(shard: &mut Shard, conn: ConnId, asked: &Asked<'_>, now: Timestamp) {
    let manner = Manner { is_keep_alive: false, ..asked.manner.clone() };
    let mut filters: Vec<&str> = asked.parameters.filters.iter().map(String::as_str).collect();
    if let Resource::Topic(filter) = &asked.resource {
        filters.push(filter);
    }
    let limits = shard.packet_limits().clone();
    let parsed: Option<Vec<TopicFilter<'_>>> = filters
        .iter()
        .map(|filter| TopicFilter::parse(filter, &limits).ok().filter(|filter| filter.group().is_none()))
        .collect();
    let Some(parsed) = parsed.filter(|parsed| !parsed.is_empty()) else {
        return refuse(shard, conn, manner, 400, "a stream is asked for by filters: /topics/a/%23 or ?filter=a/%23");
    };
    let options =
        SubscriptionOptions { retain_handling: RetainHandling::Send, ..SubscriptionOptions::with_qos(QoS::AtMostOnce) };
    let wants_latest = asked.parameters.wants_latest;
    let request = SubscriptionRequest { number: NonZeroU16::MIN, id: None::<NonZeroU32>, wants_latest };
    shard.subscribe(conn, request, parsed.into_iter().map(|filter| Subscription { filter, options }), now);
}

/// POST, PUT and DELETE.
fn publish(shard: &mut Shard, conn: ConnId, asked: &Asked<'_>, topic: &str, moment: &Moment) -> ReadStep {
    let (now, method, size) = (moment.now(), asked.head.method, asked.size);
    let parameters = &asked.parameters;
    let stop = |shard: &mut Shard, status, why| {
        refuse(shard, conn, asked.manner.clone(), status, why);
        shard.note_lost_input(conn, Loss::Rejected);
        ReadStep::Packet { size, is_publication: true, handled: Ok(Flow::On) }
    };
    if check_name(topic, shard.packet_limits()).is_err() {
        return stop(shard, 400, "this is no name of a topic");
    }
    let qos_max = shard.settings().qos_max;
    let qos = parameters.qos.unwrap_or(u8::from(qos_max > QoS::AtMostOnce));
    if qos > 0 && qos_max == QoS::AtMostOnce {
        return stop(shard, 400, "this broker takes qos=0 only");
    }
    let retain = parameters.retain.unwrap_or(method != Method::Post) || method == Method::Delete;
    if retain && !shard.settings().retain_available {
        return stop(shard, 501, "this broker keeps no state of topics");
    }
    // Whoever may write and not read learns nothing of what was there.
    let is_state = method == Method::Put && retain && !asked.body.is_empty();
    let is_new = is_state && qos > 0 && shard.has_retained(conn, topic, now) == Ok(false);
    let success = match qos {
        0 => 202,
        _ if is_new => 201,
        _ => 204,
    };
    let Some((link, _)) = shard.face_mut::<HttpLink>(conn) else { return stop(shard, 503, "gone") };
    let waited = link.waits;
    let number = link.open(asked.manner.clone(), success);
    let delivery = if let Some(packet_id) = NonZeroU16::new(number).filter(|_| qos > 0) {
        Delivery::AtLeastOnce { packet_id, dup: false }
    } else {
        link.set_current(number);
        Delivery::AtMostOnce
    };
    // What a form would be is what curl says of everything.
    let is_meant = |text: &&str| !text.starts_with("application/x-www-form-urlencoded");
    let content_type = asked.head.content_type.as_deref().filter(is_meant).map(Property::ContentType);
    let properties: Vec<Property<'_>> =
        content_type.into_iter().chain(parameters.expiry.map(Property::MessageExpiry)).collect();
    let properties = if properties.is_empty() { Properties::EMPTY } else { Properties::new(&properties) };
    let payload = if method == Method::Delete { &[][..] } else { asked.body.as_slice() };
    let incoming = Incoming { topic, payload, properties, delivery, retain };
    let handled = shard.publish(conn, &incoming, moment.came(size), now);
    if let Some((link, _)) = shard.face_mut::<HttpLink>(conn) {
        match &handled {
            Ok(Flow::Wait) => link.reopen_later(waited),
            Ok(Flow::On) => {
                if let Some(number) = link.take_current() {
                    link.succeed(number, None);
                }
            }
            Err(_) => {}
        }
    }
    ReadStep::Packet { size, is_publication: true, handled }
}
