//! What to do about a client that is slowed: commands that can be typed as they are, and settings.
//!
//! A proposal has to help. What is taken of somebody who is slowed is no measure of what it wants: the rate that is proposed
//! is the one that it is used to when nobody is in its way, with room, or twice what was taken if that is more. The
//! tests apply the words of a proposal in virtual time and see the client recover.

#[cfg(test)]
mod tests;

use tidegate_core::ledger::Loss;
use tidegate_core::report::{ClientReport, ClientState};

use super::others::Neighbours;
use super::words::{for_ban, per_second, quoted};
use super::{FAR_ABOVE, code};
use crate::view;

/// What to do next.
pub(super) fn next(client: &ClientReport, is_limited: bool, others: &Neighbours) -> Vec<String> {
    let ledger = &client.ledger;
    let (id, ban) = (quoted(&client.client_id), for_ban(&client.client_id));
    let mut steps = Vec::new();
    if code(client.state).is_some() {
        steps.extend(remedies(client, &id, is_limited));
        steps.push(format!(
            "if not, keep it away for a while:  tidegate ban add {ban} --for 1h   or once:  tidegate kick {id}"
        ));
    }
    let is_above = |usual: f64| client.rate.is_some_and(|rate| rate > FAR_ABOVE * usual);
    let fills = !others.fills.is_empty();
    if !client.state.is_held_back() && !is_limited {
        match view::learned_rate(client) {
            Some(usual) if is_above(usual) => {
                let usual = usual.max(1.0).ceil();
                steps.push(format!(
                    "to slow it now:  tidegate limits set {id} rate={usual}/s   or keep it away:  tidegate ban add {ban} --for 1h"
                ));
            }
            None if fills => {
                let half = whole(client.rate.unwrap_or(1.0) / 2.0);
                steps.push(format!(
                    "nothing is usual for it yet; to slow it to half of what it sends:  tidegate limits set {id} rate={half}/s   \
                     or keep it away:  tidegate ban add {ban} --for 1h"
                ));
            }
            _ => {}
        }
    }
    if client.receiver.is_losing || ledger.lost(Loss::QueueFull) + ledger.lost(Loss::OutboxFull) > 0 {
        let guilty = others.guilty(&client.receiver).filter(|_| client.receiver.is_losing);
        steps
            .extend(guilty.map(|guilty| format!("if that publisher sends too much:  tidegate why {}", quoted(guilty))));
        steps.push(
            "if not, it reads more slowly than others write: let it subscribe to less, or raise limits.queue_messages_max"
                .to_owned(),
        );
    }
    if ledger.lost(Loss::Denied) + ledger.lost(Loss::NotAllowed) > 0 {
        steps.push("the rules of access forbid some of this: tidegate config show, security.acl_file".to_owned());
    }
    steps
}

/// What makes a client recover that is slowed, if it is right.
fn remedies(client: &ClientReport, id: &str, is_limited: bool) -> Vec<String> {
    let publisher = client.publisher.as_ref();
    if publisher.is_some_and(|publisher| publisher.unread_since.is_some()) && !is_limited {
        let entitled = entitled_rate(client);
        return vec![format!("if this is right, entitle it:  tidegate limits set {id} entitled={entitled}/s")];
    }
    if publisher.is_some_and(|publisher| publisher.are_receivers_full) && !is_limited {
        return vec![
            "its receivers are too slow for it: more of them (a shared subscription), or faster ones".to_owned(),
        ];
    }
    let Some(rate) = allowed_rate(client, is_limited) else {
        let taken = per_second(client.rate.unwrap_or(0.0));
        let mut steps = vec![format!(
            "it has no usual rate yet, and {taken} is what is taken of it, not what it sends: if this is right, allow what it \
             should send:  tidegate limits set {id} rate=N/s"
        )];
        steps.extend(is_limited.then(|| format!("or take the limit away:  tidegate limits unset {id}")));
        return steps;
    };
    let allowed = match rate {
        // As many may come at once as in the time that is named.
        rate if publisher.is_some_and(|publisher| publisher.batch > 1) => format!("{}/m", rate * 60),
        rate => format!("{rate}/s"),
    };
    let allow = format!("if this is right, allow it:  tidegate limits set {id} rate={allowed}");
    if is_limited {
        return vec![allow, format!("or take the limit away:  tidegate limits unset {id}")];
    }
    let all = "if rhythms are enforced (backoff.enforce = \"always\") and many are slowed that should not be: \
               \"pressure\" holds nobody, backoff.headroom and backoff.burst are more room";
    vec![allow, all.to_owned()]
}

/// A grant for somebody who waits to be read. Who is entitled gets tokens at twice the rate: a quarter more than usual is
/// room enough. If more was taken of it than is usual, it wants more than that, and nobody knows how much.
fn entitled_rate(client: &ClientReport) -> u64 {
    let usual = usual_rate(client, false).unwrap_or(1.0);
    let taken = client.publisher.map_or(0.0, |publisher| publisher.served).max(client.rate.unwrap_or(0.0));
    let rate = if taken > usual { 2.0 * taken } else { 1.25 * usual };
    whole(rate)
}

/// A limit for somebody who is held or refused: twice what it sends, so that it catches up with what waits. What it sends
/// is known only if it is read; else it is what is usual for it, and none if nothing is.
fn allowed_rate(client: &ClientReport, is_limited: bool) -> Option<u64> {
    let usual = usual_rate(client, is_limited);
    let is_unknown = usual.is_none() && client.state == ClientState::Paused;
    (!is_unknown).then(|| whole(2.0 * usual.into_iter().chain(client.rate).fold(1.0, f64::max)))
}

/// What it is used to: by its claim, which is learned while nobody is in its way, else by its rhythm. (A limit is no
/// rhythm of its own.)
fn usual_rate(client: &ClientReport, is_limited: bool) -> Option<f64> {
    let by_claim = client.publisher.and_then(|publisher| publisher.usual);
    let by_rhythm = view::learned_rate(client).filter(|_| !is_limited);
    by_claim.into_iter().chain(by_rhythm).reduce(f64::max)
}

fn whole(rate: f64) -> u64 {
    rate.max(1.0).ceil() as u64
}
