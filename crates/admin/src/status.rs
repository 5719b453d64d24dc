//! How the broker is: counters, rates, and where messages were lost.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};
use tidegate_broker::GuardReport;
use tidegate_broker::ask::Closed;
use tidegate_control::pressure::Cause;
use tidegate_core::event::{ClassStats, LedgerSide, Stats};
use tidegate_core::ledger::Loss;

use crate::clients::{worst, worst_closed};
use crate::openapi::{DOCS, EndpointDoc};
use crate::problem::{Answered, json_of};
use crate::process_control::ListenerStatus;
use crate::situation::{CardSubject, TroubleCard};
use crate::state::{AdminState, lock};
use crate::view;

/// Clients named in an account of losses.
const WORST: usize = 10;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What there is, for whoever has no browser.
pub(crate) fn welcome() -> Response {
    let place = |doc: &EndpointDoc| format!("{} {}", doc.method.to_uppercase(), doc.path);
    let (see, act): (Vec<&EndpointDoc>, Vec<&EndpointDoc>) = DOCS.iter().partition(|doc| doc.method == "get");
    let see: Vec<String> = see.iter().map(|doc| doc.path.to_owned()).collect();
    let act: Vec<String> = act.into_iter().map(place).collect();
    json_of(&json!({ "tidegate": VERSION, "see": see, "do": act, "api": "/api/v1/openapi.json" }))
}

pub(crate) async fn version() -> Answered {
    Ok(json_of(&json!({ "name": "tidegate", "version": VERSION })))
}

pub(crate) async fn show(State(state): State<Arc<AdminState>>) -> Answered {
    crate::watch::look_if_old(&state).await;
    Ok(json_of(&summary(&state)))
}

pub(crate) fn summary(state: &AdminState) -> Value {
    let (stats, before, seconds) = state.stats();
    let rate = |of: fn(&Stats) -> u64| view::rounded(of(&stats).saturating_sub(of(&before)) as f64 / seconds);
    let (sockets, handshakes) = state.handle.sockets();
    let watch = state.handle.watch();
    let looked_at = lock(&state.watch).looked_at;
    json!({
        "version": VERSION,
        "uptime_s": state.handle.now().as_nanos() / 1_000_000_000,
        "listeners": listeners(state),
        "shards": state.handle.shards(),
        "pressure": pressure(state),
        "clients": {
            "connected": stats.connections,
            "sessions": stats.sessions,
            "sockets": sockets,
            "handshakes": handshakes,
            "subscriptions": stats.subscriptions,
        },
        "rates": {
            "window_s": view::rounded(seconds),
            "received": rate(|stats| stats.publish_received),
            "passed": rate(|stats| stats.publish_passed),
            "delivered": rate(|stats| stats.delivered),
            "refused": rate(refused),
            "lost": rate(|stats| lost(stats, LedgerSide::In) + lost(stats, LedgerSide::Out)),
            "bytes_received": rate(|stats| stats.bytes_received),
            "bytes_sent": rate(|stats| stats.bytes_sent),
        },
        "waiting": {
            "held_messages": stats.held_messages,
            "held_bytes": stats.held_bytes,
            "queue_messages": stats.queued_messages,
            "queue_bytes": stats.queued_bytes,
            "inflight": stats.inflight_messages,
            "retained_messages": stats.retained_messages,
            "retained_bytes": stats.retained_bytes,
        },
        "classes": classes(&state.handle.classes(), &stats),
        "publishers_throttled": watch.publishers_throttled.max(stats.clients_held),
        "clients_slow": watch.clients_slow,
        "clients_losing": watch.clients_losing,
        "bans": state.handle.bans().len(),
        "guard": state.handle.guard().map(|guard| guard_json(&guard)),
        "bridges_down": crate::bridges::down(&state.process.bridges()),
        "sinks_down": crate::sinks::down(&state.process.sinks()),
        "now": now(state),
        "looked_s_ago": looked_at.map(|at| state.handle.now().since(at).as_secs()),
        "ledger": ledger(&stats),
    })
}

/// The broker behind, of a guard.
fn guard_json(guard: &GuardReport) -> Value {
    let GuardReport { upstream, is_reached, connections, trouble, lost_for } = guard;
    let lost_for_s = lost_for.map(|time| time.as_secs());
    json!({ "upstream": upstream, "is_reached": is_reached, "connections": connections, "trouble": trouble, "lost_for_s": lost_for_s })
}

/// The one sentence, and the alarms that are raised.
fn now(state: &AdminState) -> Value {
    let situation = crate::watch::situation(state);
    let (sentence, cards) = (situation.sentence(), situation.cards());
    let card = |card: &TroubleCard| match &card.subject {
        CardSubject::Client(id) => json!({ "kind": card.kind, "client": &**id, "text": card.text }),
        CardSubject::Bridge(name) => json!({ "kind": card.kind, "bridge": name, "text": card.text }),
    };
    json!({
        "mood": sentence.mood.name(),
        "text": sentence.text,
        "next": sentence.next,
        "client": sentence.client,
        "troubles": cards.iter().map(card).collect::<Vec<Value>>(),
        "troubled": situation.troubled(),
        "alarms": crate::watch::alarms(state)["alarms"],
    })
}

/// Every door of the process, also those that are closed.
pub(crate) fn listeners(state: &AdminState) -> Vec<Value> {
    let door = |door: &ListenerStatus| {
        let address = door.address.map(|at| at.to_string());
        let (kind, connections) = (door.kind, door.connections);
        json!({ "name": door.name, "kind": kind, "address": address, "state": door.state.name(), "connections": connections })
    };
    state.process.doors().iter().map(door).collect()
}

/// What became of the messages of each class, and its name.
pub(crate) async fn show_classes(State(state): State<Arc<AdminState>>) -> Answered {
    Ok(json_of(&json!({ "classes": classes(&state.handle.classes(), &state.handle.stats()) })))
}

/// What became of the messages of each class.
fn classes(names: &[String], stats: &Stats) -> Vec<Value> {
    let class = |(name, class): (&String, &ClassStats)| {
        json!({
            "class": name,
            "passed": class.received,
            "deliveries": class.deliveries,
            "delivered": class.delivered,
            "dropped": class.dropped,
            "waiting": class.waiting(),
        })
    };
    names.iter().zip(&stats.by_class).map(class).collect()
}

/// How hard the broker is pressed, and why.
fn pressure(state: &AdminState) -> Value {
    let pressure = state.handle.pressure();
    json!({
        "level": pressure.level.number(),
        "name": pressure.level.name(),
        "cause": pressure.cause.map(Cause::name),
        "age_s": pressure.age.as_secs(),
        "memory_used_bytes": pressure.memory_used,
        "memory_max_bytes": pressure.memory_max,
    })
}

/// The two sums, and whether they are right.
fn ledger(stats: &Stats) -> Value {
    let losses = |side: LedgerSide| -> Map<String, Value> {
        let counted = Loss::ALL.into_iter().filter(|loss| loss.side() == side && loss.count(stats) > 0);
        counted.map(|loss| (loss.name().to_owned(), json!(loss.count(stats)))).collect()
    };
    json!({
        "balances": stats.check().is_ok(),
        "in": {
            "received": stats.publish_received,
            "passed": stats.publish_passed,
            "held": stats.held_messages,
            "held_ever": stats.publish_held,
            "lost": losses(LedgerSide::In),
        },
        "out": {
            "deliveries": stats.deliveries,
            "delivered": stats.delivered,
            "queued": stats.queued_messages,
            "inflight": stats.inflight_messages,
            "lost": losses(LedgerSide::Out),
        },
        "between_shards": stats.dropped_shard_full,
        "wills_denied": stats.wills_denied,
    })
}

/// What was refused: its sender was told.
pub(crate) fn refused(stats: &Stats) -> u64 {
    Loss::ALL.iter().filter(|loss| loss.is_refusal()).map(|loss| loss.count(stats)).sum()
}

/// What was lost: nobody was told. Repetitions are not losses.
pub(crate) fn lost(stats: &Stats, side: LedgerSide) -> u64 {
    let counts = |loss: &&Loss| loss.side() == side && **loss != Loss::Repeated && !loss.is_refusal();
    Loss::ALL.iter().filter(counts).map(|loss| loss.count(stats)).sum()
}

pub(crate) async fn drops(State(state): State<Arc<AdminState>>) -> Answered {
    let (stats, before, seconds) = state.stats();
    let losses = Loss::ALL.into_iter().filter(|loss| *loss != Loss::Repeated);
    let mut reasons: Vec<Value> = losses
        .map(|loss| {
            let new = loss.count(&stats).saturating_sub(loss.count(&before));
            json!({
                "reason": loss.name(),
                "word": if loss.is_refusal() { "refused" } else { "lost" },
                "side": if loss.side() == LedgerSide::In { "in" } else { "out" },
                "messages": loss.count(&stats),
                "rate": view::rounded(new as f64 / seconds),
                "meaning": meaning(loss),
            })
        })
        .collect();
    reasons.push(json!({
        "reason": "dropped_shard_full",
        "word": "lost",
        "side": "between",
        "messages": stats.dropped_shard_full,
        "rate": view::rounded(stats.dropped_shard_full.saturating_sub(before.dropped_shard_full) as f64 / seconds),
        "meaning": "the way to another shard was full",
    }));
    let worst = worst(&state, WORST).await?;
    // A session that is kept goes on with its ledger: it is named once.
    let is_there = |closed: &&Closed| worst.iter().any(|client| client.client_id == closed.client_id);
    let closed = worst_closed(&state, WORST).await?;
    let closed: Vec<Value> =
        closed.iter().filter(|closed| !is_there(closed)).map(|closed| view::closed(&state, closed)).collect();
    let clients: Vec<Value> = worst.iter().map(|client| view::client(&state, client)).collect();
    Ok(json_of(&json!({ "ledger": ledger(&stats), "reasons": reasons, "clients": clients, "closed": closed })))
}

/// What a loss means, to somebody who was not there.
pub(crate) fn meaning(loss: Loss) -> &'static str {
    match loss {
        Loss::Repeated => "sent again by the client, and taken once",
        Loss::Denied => "the rules of access forbid the publisher this topic",
        Loss::Rejected => "the packet broke a rule of the protocol, or its payload is not what it says",
        Loss::Refused => "the publisher was too fast; it was told to come back later and still has the message",
        Loss::MemoryIn => "the memory budget is used up; a publisher of QoS 1 or 2 was told so",
        Loss::StoreError => "the disk fails; the publisher was told so and still has the message",
        Loss::MemoryOut => "the memory budget is used up",
        Loss::RetainedFull => "no room to retain it",
        Loss::HeldFull => "QoS 0 of a publisher that was too fast, with no room left to wait in",
        Loss::Rhythm => "QoS 0 of a publisher that was too fast for too long",
        Loss::HeldEnded => "never acknowledged: its session ended while it had to wait",
        Loss::HeldExpired => "its lifetime was over while it had to wait",
        Loss::OutboxFull => "QoS 0 for a receiver that does not read what is there already",
        Loss::QueueFull => "the receiver's queue was full",
        Loss::ClassRefused => "a receiver's queue has no more room for its class; the publisher was told so",
        Loss::ClassBytes => "its class had max_bytes waiting in the receiver's queue",
        Loss::ClassDelay => "it waited for the receiver longer than max_delay of its class",
        Loss::Conflated => "a newer message of its topic took its place in the receiver's queue",
        Loss::Expired => "its lifetime was over before the receiver took it",
        Loss::TooLarge => "larger than the receiver accepts",
        Loss::NotAllowed => "the rules of access forbid the receiver this topic",
        Loss::SessionEnded => "the receiver's session ended before it took them",
        Loss::NoMember => "the last member of a shared subscription left",
        Loss::AbsentBudget => "what waits for those who are away was more than half of the memory budget",
        Loss::Away => "QoS 0 for a receiver that was away",
        Loss::Unreadable => "it waited on disk, and damage has taken it: the log names the file",
    }
}
