//! `/api/v1/clients/{id}/why`: what happened to a client, and what to do next, in words and in numbers.
//!
//! What is said first is what an operator would ask: is it slowed, since when, by how much, and what was lost. The words
//! are made here, once for the command line and the dashboard; `remedy` has what to do next.

mod others;
mod remedy;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Path, State};
use serde_json::json;
use tidegate_broker::ask::Closed;
use tidegate_broker::{Ban, Banned};
use tidegate_core::access::Identity;
use tidegate_core::event::LedgerSide;
use tidegate_core::ledger::{Ledger, Loss};
use tidegate_core::report::{ClientDetail, ClientReport, ClientState, Parting};
use tidegate_core::{RATE_WINDOW, Whom};

use crate::ask::walk;
use crate::bridges;
use crate::clients::{closed_among, find, last_closed};
use crate::kps;
use crate::problem::{Answered, json_of, no_client};
use crate::situation::{name_conflict, reads_in_words};
use crate::state::{AdminState, lock};
use crate::status::meaning;
use crate::view;
use others::{NEW, Neighbours};
use remedy::{Proposal, for_stranger, next};
use words::{counted, for_ban, messages, number, per_second, quoted, span, whole_per_second};

pub(crate) async fn show(State(state): State<Arc<AdminState>>, Path(client_id): Path<String>) -> Answered {
    let closed = last_closed(&state, &client_id).await?;
    let Some(detail) = find(&state, &client_id).await? else {
        let identity = closed.as_ref().map(|closed| &closed.parting.identity);
        let ban = ban_of(&state, &client_id, identity).map(|ban| banned(&ban));
        let state_name = if ban.is_some() { "banned" } else { "closed" };
        // A KP of the same name may be another one: both are told.
        return match (closed, kps::why(&state, &client_id)) {
            (None, Some((kps, mut text))) => {
                let name = if ban.is_some() { "banned" } else { "kp" };
                text.extend(ban.map(|ban| format!("\nwho has this name {ban}")));
                Ok(json_of(&json!({ "client": null, "kps": kps, "state": name, "text": text })))
            }
            (None, None) => {
                // Who was never let in has no other trace.
                let text = format!("client {client_id:?} {}", ban.ok_or_else(|| no_client(&client_id))?);
                Ok(json_of(&json!({ "client": null, "state": state_name, "text": text })))
            }
            (Some(closed), kps) => {
                let mut others = Neighbours::of_gone(&client_id);
                walk(&state, |other| others.note(&other)).await?;
                let mut lines = vec![gone(&state, &closed)];
                lines.extend(others.filled());
                lines.extend(lost(&closed.parting.ledger));
                let is_banned = ban.is_some();
                lines.extend(ban.map(|ban| format!("it {ban}")));
                let facts = lines.clone();
                let mean = mean_rate(&closed.parting);
                let proposals: Vec<Proposal> =
                    for_stranger(&client_id, mean, &others).filter(|_| !is_banned).into_iter().collect();
                lines.extend(proposals.iter().map(|proposal| format!("before it comes back: {}", proposal.text)));
                let mut text = lines.join("\n  ");
                text.extend(kps.iter().map(|(_, words)| format!("\nthere is a KP of this name, too:\n{words}")));
                Ok(json_of(&json!({
                    "client": view::closed(&state, &closed),
                    "kps": kps.map(|(kps, _)| kps),
                    "state": state_name,
                    "fills": others.fills_json(),
                    "facts": facts,
                    "proposals": proposals.iter().map(Proposal::json).collect::<Vec<_>>(),
                    "text": text,
                })))
            }
        };
    };
    let client = &detail.client;
    let mut others = Neighbours::of(client);
    walk(&state, |other| others.note(&other)).await?;
    if others.misses_names() {
        for closed in closed_among(&state, |closed| others.is_missed(&closed.client_id)).await? {
            others.note_gone(&closed.client_id);
        }
    }
    let rank = others.rank;
    let factor = factor(client);
    let limit = view::limit_of(&state, client);
    // Who has most of what waits in a losing queue is known from the last look, also if nothing of its own is lost there.
    let occupied = lock(&state.watch).situation.occupied_by(&client_id).filter(|_| others.fills.is_empty());
    let fills = occupied.is_some() || !others.fills.is_empty();
    let mode = if state.process.is_gate_off() { GateMode::Off } else { GateMode::On };
    let around = Surroundings { limit: limit.as_ref().map(|(_, rate)| *rate), fills, gate: mode };
    let mut lines = vec![headline(client, &around)];
    let ban = ban_of(&state, &client_id, Some(&client.identity));
    lines.extend(ban.map(|ban| format!("it {}", banned(&ban))));
    lines.extend(name_used_twice(client, closed.as_ref()));
    lines.extend(rhythm(client).filter(|_| limit.is_none()));
    lines.extend(gate(&state, client, rank));
    lines.extend(limit.as_ref().map(limited));
    lines.extend(others.filled());
    lines
        .extend(occupied.map(|id| format!("its messages fill the queue of {id:?}: they are much of what waits there")));
    if let Some(receiver) = others.longest_queue().filter(|_| !fills && client.rate.is_some())
        && let Ok(Some(receiver)) = find(&state, receiver).await
    {
        lines.extend(others.waiting(&receiver.client));
    }
    lines.extend(bridges::why_spool(&state, &client_id).into_iter().flatten());
    lines.extend(receiver(&detail));
    lines.extend(others.crowding(&client.receiver));
    lines.extend(lost(&client.ledger));
    lines.extend(closed.as_ref().map(|closed| earlier(&state, closed)));
    let facts = lines.clone();
    let proposals = next(client, &around, &others);
    lines.extend(proposals.iter().map(|proposal| proposal.text.clone()));
    Ok(json_of(&json!({
        "client": view::detail(&state, &detail),
        "state": client.state.name(),
        "factor": factor.map(view::rounded),
        "rank": rank.map(|(rank, _)| rank),
        "publishers": rank.map(|(_, publishers)| publishers),
        "crowding": others.crowding_json(&client.receiver),
        "fills": others.fills_json(),
        "code": code(client.state),
        "facts": facts,
        "proposals": proposals.iter().map(Proposal::json).collect::<Vec<_>>(),
        "text": lines.join("\n  "),
    })))
}

/// What two clients with one name do to each other, and what ends it.
fn name_used_twice(client: &ClientReport, closed: Option<&Closed>) -> Option<String> {
    let other = closed.map(|closed| format!(" and {}", closed.parting.identity.peer)).unwrap_or_default();
    (client.takeovers > 0).then(|| {
        let conflict = name_conflict(&client.client_id, client.takeovers);
        format!("{conflict}: from {}{other}; give each its own client id", client.identity.peer)
    })
}

/// How many times its usual rate it publishes.
fn factor(client: &ClientReport) -> Option<f64> {
    Some(client.rate? / view::learned_rate(client)?)
}

/// A stable name for what happened.
fn code(state: ClientState) -> Option<&'static str> {
    match state {
        ClientState::Ok | ClientState::Away | ClientState::Slow | ClientState::AwayLosing | ClientState::Losing => None,
        ClientState::Slowed => Some("E0412"),
        ClientState::BackedOff => Some("E0413"),
        ClientState::Paused => Some("E0414"),
    }
}

/// What there is to know beside a client's own report.
#[derive(Clone, Copy, Debug, Default)]
struct Surroundings {
    /// What an operator has set for it, in messages a second.
    limit: Option<f64>,
    /// Its messages fill the queue of a receiver that loses.
    fills: bool,
    gate: GateMode,
}

/// Whether anybody is slowed here for what it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GateMode {
    #[default]
    On,
    Off,
}

fn headline(client: &ClientReport, around: &Surroundings) -> String {
    let Surroundings { limit, fills, gate } = *around;
    let is_off = gate == GateMode::Off;
    let user = client.identity.user.as_deref().map(|user| format!(", user {user:?}")).unwrap_or_default();
    let who = format!(
        "client {:?} ({}, listener {}{user})",
        client.client_id, client.identity.peer, client.identity.listener
    );
    let rate = client.rate.map_or_else(|| "?".to_owned(), per_second);
    let slowed = |what: &str| {
        let code = code(client.state).unwrap_or_default();
        format!("{who} {what}: {} [{code}]", cause(client, limit))
    };
    match client.state {
        ClientState::Slowed => slowed("is slowed"),
        ClientState::BackedOff => slowed("is backed off"),
        ClientState::Paused => slowed("is paused"),
        ClientState::Away => format!("{who} is not connected; its session is kept"),
        ClientState::AwayLosing => format!(
            "{who} is not connected and loses messages: its session is kept, {} of those for it find no room",
            per_second(client.receiver.loss_rate)
        ),
        ClientState::Losing => format!(
            "{who} loses messages: {} of those for it find no room, because it takes less than comes for it",
            per_second(client.receiver.loss_rate)
        ),
        ClientState::Slow => format!(
            "{who} is slow to read: {:.0} % of its queue is used, and nothing is lost yet",
            client.receiver.fill * 100.0
        ),
        ClientState::Ok => match (client.rate, view::learned_rate(client)) {
            (Some(_), usual) if fills => {
                let usual =
                    usual.map_or_else(|| NEW.to_owned(), |usual| format!("{} is usual for it", per_second(usual)));
                let off = if is_off { format!("; {GATE_OFF}") } else { String::new() };
                format!(
                    "{who} is not slowed, but its messages fill the queue of a receiver: it sends {rate}, {usual}{off}"
                )
            }
            (Some(_), usual) if is_off => {
                let usual = usual.map_or_else(|| NEW.to_owned(), |usual| format!("{} is usual", per_second(usual)));
                format!("{who} is not slowed: it sends {rate} ({usual}), and {GATE_OFF}")
            }
            (Some(now), Some(usual)) => {
                let words = if now > FAR_ABOVE * usual { WHY_LEFT_ALONE } else { "" };
                format!("{who} is not slowed: it sends {rate}, and {} is usual for it{words}", per_second(usual))
            }
            (Some(_), None) => format!(
                "{who} is not slowed: it sends {rate}; what is usual for it is being learned, which takes a minute"
            ),
            _ if is_off => format!("{who} is not slowed: {GATE_OFF}"),
            _ => format!("{who} is not slowed: it has not published"),
        },
    }
}

/// So many times what is usual wants an explanation if nobody is slowed for it.
const FAR_ABOVE: f64 = 2.0;
const WHY_LEFT_ALONE: &str = "; who sends more comes after the others where something is scarce, and nothing is now, \
                              unless backoff.enforce is \"always\"";
const GATE_OFF: &str = "the gate is off (backoff.mode = \"off\"): nobody is slowed for what it sends";

/// Why its messages wait. Only what is more than usual is called more than usual.
fn cause(client: &ClientReport, limit: Option<f64>) -> String {
    let rate = client.rate.unwrap_or_default();
    let sends = format!("it sends {}", per_second(rate));
    let latest = client.publisher.map_or(0.0, |publisher| publisher.current_rate);
    if let Some(limit) = limit {
        let limit_text = whole_per_second(limit);
        return if rate > limit {
            format!("{sends}, over the limit of {limit_text} that an operator has set")
        } else {
            format!("{sends} now, within its limit of {limit_text}; what it sent before still waits")
        };
    }
    let usual = view::learned_rate(client);
    if client.publisher.is_some_and(|publisher| publisher.are_receivers_full) {
        return format!("all its receivers are full: {sends}, and none of them takes more than it has waiting");
    }
    if let Some(publisher) = client.publisher.filter(|publisher| publisher.unread_since.is_some()) {
        let usual =
            usual.map_or_else(|| "nothing usual yet".to_owned(), |usual| format!("{} usual", per_second(usual)));
        let served = per_second(publisher.served);
        return format!("waits behind entitled traffic: it sends more than it is served, {usual}, served {served}");
    }
    let Some(usual) = usual else { return format!("{sends}, and what is usual for it is not known yet") };
    let usual_text = per_second(usual);
    if rate > usual {
        format!("{sends}, {} times its usual {usual_text}", number(rate / usual))
    } else if latest > usual {
        let batch = client.publisher.map_or(1, |publisher| publisher.batch);
        let known = if batch > 1 { format!("batches of {batch} are known") } else { "no batches are known".to_owned() };
        format!(
            "{sends}, not more than its usual {usual_text}, but its latest came at {} ({known})",
            per_second(latest)
        )
    } else {
        format!("{sends} now, as usual ({usual_text}); what it sent before still waits")
    }
}

/// What was learned of a publisher, and over which time its rate is meant.
fn rhythm(client: &ClientReport) -> Option<String> {
    let publisher = client.publisher.as_ref()?;
    let window = RATE_WINDOW.as_secs();
    if let Some(granted) = publisher.granted {
        let usual = view::learned_rate(client).map(|usual| format!("; {} is usual for it", per_second(usual)));
        let granted = whole_per_second(granted);
        return Some(format!("an operator has entitled it to {granted}{}", usual.unwrap_or_default()));
    }
    let Some(interval) = publisher.learned_interval else {
        return Some(format!(
            "rates are those of the last {window} s; nothing is learned of it yet, which takes a minute"
        ));
    };
    let batches =
        if publisher.batch > 1 { format!(", up to {} at once", publisher.batch) } else { ", one at a time".to_owned() };
    Some(format!("learned: a message every {}{batches}; rates are those of the last {window} s", span(interval)))
}

/// The classes that there are without any in the configuration; others are named by whoever made them.
fn class_meaning(class: &str) -> &'static str {
    match class {
        "high" => " (rare: served first where something is scarce)",
        "normal" => " (between rare and chatty)",
        "low" => " (chatty: served last where something is scarce)",
        _ => "",
    }
}

fn gate(state: &AdminState, client: &ClientReport, rank: Option<(usize, usize)>) -> Option<String> {
    let publisher = client.publisher.as_ref()?;
    let mut facts = Vec::new();
    if !client.delay.is_zero() {
        facts.push(format!("its latest message waits {} more", span(client.delay)));
    }
    if publisher.held > 0 {
        facts.push(format!("{} held", messages(publisher.held as u64)));
    }
    if code(client.state).is_some()
        && let Some(since) = publisher.slowed_since
    {
        facts.push(format!("slowed since {}", view::rfc3339(state.wall(since))));
    }
    if let Some(class) = &client.class {
        facts.push(format!("class {class}{}", class_meaning(class)));
    }
    if let Some((rank, publishers)) = rank.filter(|(_, publishers)| *publishers > 1) {
        facts.push(format!("rank {rank} of {publishers} publishers (1 is the rarest)"));
    }
    if code(client.state).is_some() {
        let pressure = state.handle.pressure();
        let cause = pressure.cause.map(|cause| format!(" ({})", cause.name())).unwrap_or_default();
        let level = pressure.level;
        let age = pressure.age.as_secs();
        facts.push(format!("the broker is at level {}, {}{cause}, for {age} s", level.number(), level.name()));
    }
    (!facts.is_empty()).then(|| facts.join(", "))
}

fn limited((whom, rate): &(Whom, f64)) -> String {
    let whom = match whom {
        Whom::Client(_) => "this client",
        Whom::User(_) => "its user",
    };
    let rate = whole_per_second(*rate);
    format!("an operator has set a limit for {whom}: {rate}; what was learned does not count")
}

/// The ban that keeps a client out the longest. Of one that never came in only the identifier is known.
fn ban_of(state: &AdminState, client_id: &str, identity: Option<&Identity>) -> Option<Ban> {
    let user = identity.and_then(|identity| identity.user.as_deref());
    let ip = identity.and_then(|identity| identity.peer.parse::<SocketAddr>().ok()).map(|peer| peer.ip());
    let is_it = |ban: &Ban| match (&ban.whom, ip) {
        (Banned::Client(name) | Banned::ClientAt(name, ..) | Banned::ClientOf(name, _), None) => name == client_id,
        (Banned::User(name), None) => Some(name.as_str()) == user,
        (Banned::Network(..), None) => false,
        (whom, Some(ip)) => whom.concerns(client_id, user, ip),
    };
    state.handle.bans().into_iter().filter(is_it).max_by_key(|ban| ban.left)
}

/// What somebody who is kept out does about it.
fn tries_in_words(ban: &Ban) -> String {
    let Some(ago) = ban.last_try else { return String::new() };
    format!(", and has tried to come in {} since, the last time {} ago", counted(ban.tries, "time"), span(ago))
}

/// Continues "it" or a name.
fn banned(ban: &Ban) -> String {
    let (whom, remove) = match &ban.whom {
        Banned::Client(name) => (String::new(), for_ban(name)),
        Banned::User(name) => (format!(", as user {name:?}"), format!("--user {}", quoted(name))),
        Banned::ClientOf(name, user) => {
            (format!(", as user {user:?}"), format!("{} --user {}", for_ban(name), quoted(user)))
        }
        Banned::Network(ip, bits) => (format!(", with all of {ip}/{bits}"), format!("--network {ip}/{bits}")),
        Banned::ClientAt(name, ip, bits) => {
            (format!(", from {ip}/{bits}"), format!("{} --network {ip}/{bits}", for_ban(name)))
        }
    };
    format!(
        "is banned{whom} for {} more ({:?}){}; to let it in again:  tidegate ban remove {remove}",
        span(ban.left),
        ban.reason,
        tries_in_words(ban)
    )
}

fn receiver(detail: &ClientDetail) -> Option<String> {
    let client = &detail.client;
    let is_troubled = client.receiver.is_slow || client.receiver.is_losing;
    let (waiting, bytes) = client.queued;
    if waiting == 0 && !is_troubled {
        return None;
    }
    // Who is away reads nothing, and its first line says so.
    let reads = client.link.filter(|_| is_troubled).map_or_else(String::new, |_| {
        format!("it {}: ", reads_in_words(client.receiver.takes, client.receiver.loss_rate))
    });
    let (bytes, wait) = (counted(bytes as u64, "byte"), if waiting == 1 { "waits" } else { "wait" });
    Some(format!("{reads}{} ({bytes}) {wait} for it, {} under way", messages(waiting as u64), client.inflight))
}

fn lost(ledger: &Ledger) -> Vec<String> {
    let total = ledger.lost_on(LedgerSide::In) + ledger.lost_on(LedgerSide::Out);
    if total == 0 {
        return vec![format!(
            "0 messages lost or refused: {} received, {} passed; {} delivered to it",
            ledger.received, ledger.passed, ledger.delivered
        )];
    }
    let refused = ledger.refused();
    let mut lines = vec![format!(
        "of {} that it sent {refused} were refused and {} lost; of {} for it {} were lost",
        ledger.received,
        ledger.lost_on(LedgerSide::In) - refused,
        ledger.deliveries,
        ledger.lost_on(LedgerSide::Out),
    )];
    let counted = Loss::ALL.into_iter().filter(|loss| *loss != Loss::Repeated && ledger.lost(*loss) > 0);
    lines.extend(counted.map(|loss| format!("  {:>9} {}: {}", ledger.lost(loss), loss.name(), meaning(loss))));
    lines
}

fn earlier(state: &AdminState, closed: &Closed) -> String {
    format!("its connection before this one ended {}: {}", view::rfc3339(state.wall(closed.parting.at)), closed.why)
}

fn gone(state: &AdminState, closed: &Closed) -> String {
    let parting = &closed.parting;
    let text = format!(
        "client {:?} ({}, listener {}) is gone: its connection ended {}: {}",
        closed.client_id,
        parting.identity.peer,
        parting.identity.listener,
        view::rfc3339(state.wall(parting.at)),
        closed.why
    );
    if parting.ledger.received == 0 {
        return text;
    }
    let (sent, rate) = (messages(parting.ledger.received), per_second(mean_rate(parting)));
    format!("{text}; it had sent {sent} in {}, {rate}", span(parting.at.since(parting.since)))
}

/// Messages a second that it sent while it was there: nobody's rate is told from less than a second.
fn mean_rate(parting: &Parting) -> f64 {
    parting.ledger.received as f64 / parting.at.since(parting.since).as_secs_f64().max(1.0)
}
