//! Requests of a client, as verbs of its shard: topics are resources below `/ps`.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use tidegate_control::Timestamp;
use tidegate_core::ledger::Loss;
use tidegate_core::retained::RetainedState;
use tidegate_core::{ConnId, Ending, Flow, Incoming, Moment, Shard, SubscriptionRequest};
use tidegate_wire_mqtt::topic::check_name;
use tidegate_wire_mqtt::{
    Delivery, Properties, Property, QoS, RetainHandling, Subscription, SubscriptionOptions, TopicFilter,
};

use crate::block::{Assembled, assemble};
use crate::content;
use crate::limits::{BODY_BYTES_MAX, BUSY};
use crate::link::{CoapLink, code_of, whole_seconds};
use crate::message::{Answer, Exchange, Method, OptionProblem, Request, code};
use crate::observe::{Registration, etag_of};

/// What a request is about.
#[derive(Debug, PartialEq, Eq)]
enum Resource {
    /// What there is.
    Discovery,
    /// One topic.
    Topic(String),
    /// Topics by a filter.
    Filter(String),
    /// Nothing that there is, or nothing that could be.
    Not(u8),
}

/// Whether a message is to be kept for those who come later.
fn is_state(request: &Request) -> bool {
    !request.queries.iter().any(|query| query == "retain=0")
}

fn resource(request: &Request) -> Resource {
    let mut filter = None;
    for query in &request.queries {
        match query.split_once('=') {
            Some(("filter", text)) => filter = Some(text),
            Some(("retain", "0" | "1")) => {}
            _ => return Resource::Not(code::BAD_REQUEST),
        }
    }
    let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
    match (path.as_slice(), filter) {
        ([".well-known", "core"], None) => Resource::Discovery,
        (["ps"] | ["ps", ""], Some(filter)) => Resource::Filter(filter.into()),
        (["ps"] | ["ps", ""], None) => Resource::Not(code::METHOD_NOT_ALLOWED),
        // A level with a slash in it would be two.
        (["ps", levels @ ..], None) if !levels.iter().any(|level| level.contains('/')) => {
            Resource::Topic(levels.join("/"))
        }
        (["ps", ..], _) => Resource::Not(code::BAD_REQUEST),
        _ => Resource::Not(code::NOT_FOUND),
    }
}

/// Deals with a request. The answer: whether it was a publication, and what became of it.
pub(crate) fn handle(
    shard: &mut Shard,
    conn: ConnId,
    request: &Request,
    size: usize,
    moment: &Moment,
) -> (bool, Result<Flow, Ending>) {
    let now = moment.now();
    let refuse = |shard: &mut Shard, code| respond(shard, conn, &request.exchange, &Answer::new(code), now);
    match request.problem {
        Some(OptionProblem::Proxy) => refuse(shard, code::NO_PROXY),
        // Nobody hears why (RFC 7252, section 5.4.1).
        Some(OptionProblem::Unknown) if !request.exchange.is_confirmable => {}
        Some(OptionProblem::Unknown) => refuse(shard, code::BAD_OPTION),
        None => match (request.method, resource(request)) {
            (_, Resource::Not(code)) => refuse(shard, code),
            (Method::Get, Resource::Discovery) => discover(shard, conn, request, now),
            (Method::Get, Resource::Topic(topic)) => get(shard, conn, request, &topic, now),
            (Method::Get, Resource::Filter(filter)) => get_wide(shard, conn, request, &filter, now),
            (Method::Put | Method::Delete, Resource::Topic(topic)) => {
                return publish(shard, conn, request, &topic, size, moment);
            }
            _ => refuse(shard, code::METHOD_NOT_ALLOWED),
        },
    }
    (false, Ok(Flow::On))
}

fn respond(shard: &mut Shard, conn: ConnId, exchange: &Exchange, answer: &Answer<'_>, now: Timestamp) {
    if let Some((link, _)) = shard.face_mut::<CoapLink>(conn) {
        link.respond(exchange, answer, now);
    }
}

fn discover(shard: &mut Shard, conn: ConnId, request: &Request, now: Timestamp) {
    const LINKS: &str = "</ps>;rt=\"core.ps.coll\";ct=40;obs";
    let answer = Answer { content_format: Some(40), payload: LINKS.as_bytes(), ..Answer::new(code::CONTENT) };
    let answer = answer.cut(request.block2).unwrap_or(Answer::new(code::BAD_OPTION));
    respond(shard, conn, &request.exchange, &answer, now);
}

/// The state of a topic, and what becomes of it if that is wanted.
fn get(shard: &mut Shard, conn: ConnId, request: &Request, topic: &str, now: Timestamp) {
    let exchange = &request.exchange;
    if check_name(topic, shard.packet_limits()).is_err() {
        return respond(shard, conn, exchange, &Answer::new(code::BAD_REQUEST), now);
    }
    let state = match shard.read_retained(conn, topic, now) {
        Ok(state) => state,
        Err(reason) => return respond(shard, conn, exchange, &Answer::new(code_of(reason)), now),
    };
    let observe = match request.observe {
        // The rest of a body is asked for without observing again (RFC 7959, section 2.6).
        Some(0) if request.block2.is_none_or(|block| block.number == 0) => {
            match observe(shard, conn, exchange, topic, now) {
                Ok(sequence) => sequence,
                Err(code) => return respond(shard, conn, exchange, &Answer::new(code), now),
            }
        }
        Some(1) => {
            end_observation(shard, conn, exchange);
            None
        }
        _ => None,
    };
    let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
    let later = request.block2.filter(|block| block.number > 0);
    let large = later.and_then(|_| link.observations.large_of(topic).map(|(body, format)| (Vec::from(body), format)));
    let (body, format, max_age): (Cow<'_, [u8]>, _, _) = match (&large, &state) {
        (Some((body, format)), _) => (Cow::Borrowed(body), *format, None),
        (None, Some(RetainedState { payload, content_type, seconds_left })) => {
            (Cow::Borrowed(payload), content_type.as_deref().and_then(content::format_of), *seconds_left)
        }
        // Whoever observes a topic that says nothing yet hears of the first thing that it says.
        (None, None) if observe.is_some() => (Cow::Borrowed(&[]), None, None),
        (None, None) => return link.respond(exchange, &Answer::new(code::NOT_FOUND), now),
    };
    let etag = etag_of(&body);
    let is_known = request.etags.iter().any(|known| **known == etag.to_be_bytes());
    let answer = Answer { observe, etag: Some(etag), max_age, ..Answer::new(code::VALID) };
    if is_known && later.is_none() {
        return link.respond(exchange, &answer, now);
    }
    if request.accept.is_some() && format.is_some() && request.accept != format {
        // Who is refused does not observe (RFC 7641, section 4.1).
        if observe.is_some() {
            end_observation(shard, conn, exchange);
        }
        return respond(shard, conn, exchange, &Answer::new(code::NOT_ACCEPTABLE), now);
    }
    let answer = Answer { code: code::CONTENT, content_format: format, payload: &body, ..answer };
    let answer = answer.cut(request.block2).unwrap_or(Answer::new(code::BAD_OPTION));
    let Some((link, memory)) = shard.face_mut::<CoapLink>(conn) else { return };
    if later.is_none() {
        let rest = (answer.payload.len() < body.len()).then_some((&*body, format));
        link.observations.keep_rest((exchange.token, topic), rest, memory, &mut link.charge);
    }
    link.respond(exchange, &answer, now);
}

/// Topics by a filter can be observed, and not be read at once.
fn get_wide(shard: &mut Shard, conn: ConnId, request: &Request, filter: &str, now: Timestamp) {
    let exchange = &request.exchange;
    let answer = match request.observe {
        Some(0) => match observe(shard, conn, exchange, filter, now) {
            Ok(Some(sequence)) => Answer { observe: Some(sequence), ..Answer::new(code::CONTENT) },
            Ok(None) => Answer { max_age: Some(whole_seconds(BUSY)), ..Answer::new(code::UNAVAILABLE) },
            Err(code) => Answer::new(code),
        },
        Some(1) => {
            end_observation(shard, conn, exchange);
            Answer::new(code::CONTENT)
        }
        _ => Answer::because(code::BAD_REQUEST, "a filter can be observed only"),
    };
    respond(shard, conn, exchange, &answer, now);
}

/// The number of the first notification; none if there are too many observations already.
fn observe(
    shard: &mut Shard,
    conn: ConnId,
    exchange: &Exchange,
    filter: &str,
    now: Timestamp,
) -> Result<Option<u32>, u8> {
    let limits = shard.packet_limits().clone();
    let parsed = TopicFilter::parse(filter, &limits).ok().filter(|filter| filter.group().is_none());
    let parsed = parsed.ok_or(code::BAD_REQUEST)?;
    let is_wide = parsed.has_wildcard();
    let before = shard
        .face_mut::<CoapLink>(conn)
        .and_then(|(link, _)| link.observations.filter_of(exchange.token).map(|known| known != filter));
    if before == Some(true) {
        // The token has got another meaning.
        end_observation(shard, conn, exchange);
    }
    let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return Err(code::UNAVAILABLE) };
    match link.observations.register(exchange.token, filter, is_wide) {
        Registration::Full => return Ok(None),
        Registration::Joined => {}
        Registration::First(id) => {
            link.pending.grant = None;
            link.observations.hold();
            let retain_handling = if is_wide { RetainHandling::Send } else { RetainHandling::DoNotSend };
            let options = SubscriptionOptions { retain_handling, ..SubscriptionOptions::with_qos(QoS::AtMostOnce) };
            let request = SubscriptionRequest { number: NonZeroU16::MIN, id: Some(id), wants_latest: true };
            shard.subscribe(conn, request, core::iter::once(Subscription { filter: parsed, options }), now);
            let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return Err(code::UNAVAILABLE) };
            if let Some(Err(reason)) = link.pending.grant.take() {
                link.observations.remove(exchange.token, &mut link.charge);
                return Err(code_of(reason));
            }
        }
    }
    let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return Err(code::UNAVAILABLE) };
    Ok(Some(link.observations.next_sequence()))
}

fn end_observation(shard: &mut Shard, conn: ConnId, exchange: &Exchange) {
    let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
    link.confirmables.forget(exchange.token);
    if let Some(filter) = link.observations.remove(exchange.token, &mut link.charge) {
        unsubscribe(shard, conn, &filter);
    }
}

/// Nobody at this address wants this any more.
pub(crate) fn unsubscribe(shard: &mut Shard, conn: ConnId, filter: &str) {
    let limits = shard.packet_limits().clone();
    if let Ok(filter) = TopicFilter::parse(filter, &limits) {
        shard.unsubscribe(conn, NonZeroU16::MIN, core::iter::once(filter));
    }
}

/// PUT and DELETE.
fn publish(
    shard: &mut Shard,
    conn: ConnId,
    request: &Request,
    topic: &str,
    size: usize,
    moment: &Moment,
) -> (bool, Result<Flow, Ending>) {
    let (exchange, now) = (&request.exchange, moment.now());
    let stop = |shard: &mut Shard, answer: &Answer<'_>| {
        respond(shard, conn, exchange, answer, now);
        (false, Ok(Flow::On))
    };
    if check_name(topic, shard.packet_limits()).is_err() {
        shard.note_lost_input(conn, Loss::Rejected);
        respond(shard, conn, exchange, &Answer::new(code::BAD_REQUEST), now);
        return (true, Ok(Flow::On));
    }
    let body = match body(shard, conn, request, now) {
        Ok(body) => body,
        Err(answer) => {
            // A block that comes again, because this answer was lost, is not the next one.
            if let Some((link, _)) = shard.face_mut::<CoapLink>(conn) {
                link.remember(exchange.message, now);
            }
            return stop(shard, &answer);
        }
    };
    if let Err(code) = check_preconditions(shard, conn, request, topic, now) {
        return stop(shard, &Answer::new(code));
    }
    // Whoever may write and not read learns nothing of what was there.
    let is_new = !shard.has_retained(conn, topic, now).unwrap_or(false);
    let success = match request.method {
        Method::Delete => code::DELETED,
        _ if is_new && is_state(request) => code::CREATED,
        _ => code::CHANGED,
    };
    let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return (false, Ok(Flow::On)) };
    // What is published must not be published twice.
    link.remember(exchange.message, now);
    let Some(number) = link.open(*exchange, success, now) else {
        // So many wait already: whoever sends more is too fast for them.
        let answer = Answer { max_age: Some(whole_seconds(BUSY)), ..Answer::new(code::TOO_MANY_REQUESTS) };
        link.respond(exchange, &answer, now);
        shard.note_lost_input(conn, Loss::Refused);
        return (true, Ok(Flow::On));
    };
    let delivery = match NonZeroU16::new(number).filter(|_| exchange.is_confirmable) {
        Some(packet_id) => Delivery::AtLeastOnce { packet_id, dup: false },
        None => Delivery::AtMostOnce,
    };
    let typed = request.content_format.and_then(content::type_of).map(Property::ContentType);
    let properties: Vec<Property<'_>> = typed.into_iter().collect();
    let properties = if properties.is_empty() { Properties::EMPTY } else { Properties::new(&properties) };
    let retain = shard.settings().retain_available && (request.method == Method::Delete || is_state(request));
    let payload = if request.method == Method::Delete { &[][..] } else { body.as_slice() };
    let incoming = Incoming { topic, payload, properties, delivery, retain };
    let flow = shard.publish(conn, &incoming, moment.came(size), now);
    let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return (true, flow) };
    match flow {
        Err(ending) => return (true, Err(ending)),
        // A stream would not be read for a while; a datagram is here, and its sender can be told.
        Ok(Flow::Wait) => {
            link.take_current();
            let answer = Answer { max_age: Some(whole_seconds(BUSY)), ..Answer::new(code::UNAVAILABLE) };
            if let Some(bytes) = link.finish(number, &answer, now) {
                crate::frame::put_datagram(&bytes, &mut link.pending.outgoing);
            }
            shard.note_lost_input(conn, Loss::Refused);
        }
        Ok(Flow::On) => {
            if let Some(number) = link.take_current()
                && let Some(bytes) = link.finish(number, &Answer::new(success), now)
            {
                crate::frame::put_datagram(&bytes, &mut link.pending.outgoing);
            }
        }
    }
    (true, Ok(Flow::On))
}

/// The whole body of a request, or what is to be said about its blocks.
fn body(shard: &mut Shard, conn: ConnId, request: &Request, now: Timestamp) -> Result<Vec<u8>, Answer<'static>> {
    let body_max = BODY_BYTES_MAX.min(shard.packet_limits().packet_bytes_max as usize);
    let Some(block) = request.block1 else { return Ok(request.payload.clone()) };
    let resource = format!("{}?{}", request.path.join("/"), request.queries.join("&"));
    let Some((link, memory)) = shard.face_mut::<CoapLink>(conn) else { return Err(Answer::new(code::UNAVAILABLE)) };
    let part = (resource.as_str(), block, request.payload.as_slice());
    let what = assemble(&mut link.pending.assembly, part, body_max, (memory, &mut link.charge), now);
    let answer = Answer { block1: Some(block), ..Answer::default() };
    match what {
        Assembled::Whole(body) => Ok(body),
        Assembled::Continue => Err(Answer { code: code::CONTINUE, ..answer }),
        Assembled::Not(code::TOO_LARGE) => {
            Err(Answer { code: code::TOO_LARGE, size1: u32::try_from(body_max).ok(), ..answer })
        }
        Assembled::Not(code) => Err(Answer { code, ..answer }),
    }
}

/// RFC 7252, section 5.10.8. Who asks about a state reads it, and has to be allowed to.
fn check_preconditions(
    shard: &mut Shard,
    conn: ConnId,
    request: &Request,
    topic: &str,
    now: Timestamp,
) -> Result<(), u8> {
    if request.if_none_match && shard.has_retained(conn, topic, now).map_err(code_of)? {
        return Err(code::PRECONDITION_FAILED);
    }
    if request.if_match.is_empty() {
        return Ok(());
    }
    let before = shard.read_retained(conn, topic, now).map_err(code_of)?.ok_or(code::PRECONDITION_FAILED)?;
    let is_it = |etag: &Vec<u8>| etag.is_empty() || **etag == etag_of(&before.payload).to_be_bytes();
    if request.if_match.iter().any(is_it) { Ok(()) } else { Err(code::PRECONDITION_FAILED) }
}
