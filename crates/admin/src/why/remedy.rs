//! What to do about a client that is slowed: commands that can be typed as they are, and settings.
//!
//! A proposal has to help. What is taken of somebody who is slowed is no measure of what it wants: the rate that is proposed
//! is the one that it is used to when nobody is in its way, or the most that it has sent since it is slowed, with room; it does not
//! change while one thinks about it. The tests apply the words of a proposal in virtual time and see the client recover.

#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use tidegate_core::ledger::Loss;
use tidegate_core::report::{ClientReport, ClientState};

use super::others::Neighbours;
use super::words::{end_session, for_ban, per_second, quoted};
use super::{FAR_ABOVE, GateMode, Surroundings, code};
use crate::situation::NEWCOMER_RATE_MAX;
use crate::view;

/// Who sends so much of all that is sent sends most of it.
const MOST_PART: f64 = 0.5;
/// Who is entitled to so many times what is usual has room: tokens come at twice that.
const GRANT_ROOM: f64 = 1.25;

/// Something to do: in words with the command to type, and as what a page can do by a click.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) text: String,
    acts: Vec<ProposedAct>,
}

/// What can be done about the client that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProposedAct {
    /// A limit such as `500/s`.
    Limit(String),
    Entitle(String),
    Unlimit,
    Ban,
    Kick,
    /// End the session that is kept.
    EndSession,
    /// Look at this client instead.
    Why(String),
}

impl ProposedAct {
    fn json(&self) -> Value {
        match self {
            Self::Limit(rate) => json!({ "kind": "limit", "rate": rate }),
            Self::Entitle(rate) => json!({ "kind": "entitle", "rate": rate }),
            Self::Unlimit => json!({ "kind": "unlimit" }),
            Self::Ban => json!({ "kind": "ban" }),
            Self::Kick => json!({ "kind": "kick" }),
            Self::EndSession => json!({ "kind": "endSession" }),
            Self::Why(client_id) => json!({ "kind": "why", "client": client_id }),
        }
    }
}

impl Proposal {
    fn new(text: impl Into<String>, acts: impl Into<Vec<ProposedAct>>) -> Self {
        Self { text: text.into(), acts: acts.into() }
    }

    pub(super) fn json(&self) -> Value {
        json!({ "text": self.text, "acts": self.acts.iter().map(ProposedAct::json).collect::<Vec<Value>>() })
    }
}

/// What to do next.
pub(super) fn next(client: &ClientReport, around: &Surroundings, others: &Neighbours) -> Vec<Proposal> {
    let (ledger, is_limited) = (&client.ledger, around.limit.is_some());
    let (id, ban) = (quoted(&client.client_id), for_ban(&client.client_id));
    let mut steps = Vec::new();
    if code(client.state).is_some() {
        steps.extend(remedies(client, &id, is_limited));
        let text = format!(
            "if not, keep it away for a while:  tidegate ban add {ban} --for 1h   or once:  tidegate kick {id}"
        );
        steps.push(Proposal::new(text, [ProposedAct::Ban, ProposedAct::Kick]));
    }
    let is_above = |usual: f64| client.rate.is_some_and(|rate| rate > FAR_ABOVE * usual);
    if !client.state.is_held_back() && !is_limited {
        match view::learned_rate(client) {
            Some(usual) if is_above(usual) => {
                let rate = format!("{}/s", whole(usual));
                let text = format!(
                    "to slow it now:  tidegate limits set {id} rate={rate}   or keep it away:  tidegate ban add {ban} --for 1h"
                );
                steps.push(Proposal::new(text, [ProposedAct::Limit(rate), ProposedAct::Ban]));
            }
            None => steps.extend(client.rate.and_then(|rate| for_stranger(&client.client_id, rate, others))),
            Some(_) if others.is_newcomer() => {
                let lead = "what is usual for it was too much from its beginning";
                steps.extend(client.rate.and_then(|rate| for_filler(&client.client_id, rate, lead, others)));
            }
            Some(_) => {}
        }
        if steps.is_empty() {
            steps.extend(for_busiest(client, &id, &ban, others));
        }
        if around.gate == GateMode::Off && !steps.is_empty() {
            let text = "to have whoever sends more than usual slowed where something is scarce, set backoff.mode = \"practical\" in \
                        the configuration:  tidegate reload";
            steps.push(Proposal::new(text, []));
        }
    }
    steps.extend(for_receiver(client, others));
    if ledger.lost(Loss::Denied) + ledger.lost(Loss::NotAllowed) > 0 {
        steps.push(Proposal::new(
            "the rules of access forbid some of this: tidegate config show, security.acl_file",
            [],
        ));
    }
    steps
}

/// What to do about one that loses, or has lost, for want of room.
fn for_receiver(client: &ClientReport, others: &Neighbours) -> Vec<Proposal> {
    let lost_for_room = [Loss::QueueFull, Loss::OutboxFull, Loss::AbsentBudget].map(|loss| client.ledger.lost(loss));
    if !client.receiver.is_losing && lost_for_room.iter().sum::<u64>() == 0 {
        return Vec::new();
    }
    let guilty = others.guilty(&client.receiver).filter(|_| client.receiver.is_losing).map(|guilty| {
        let text = format!("if that publisher sends too much:  tidegate why {}", quoted(guilty));
        Proposal::new(text, [ProposedAct::Why(guilty.to_owned())])
    });
    let otherwise = if guilty.is_some() { "if not, " } else { "" };
    let rest = if client.link.is_none() {
        let end = end_session(&client.client_id);
        let text = format!(
            "{otherwise}nobody reads for it: start it again, or end the session if it is not coming back, with what waits for it:  {end}"
        );
        Proposal::new(text, [ProposedAct::EndSession])
    } else {
        let text =
            "it reads more slowly than others write: let it subscribe to less, or raise limits.queue_messages_max";
        Proposal::new(format!("{otherwise}{text}"), [])
    };
    guilty.into_iter().chain([rest]).collect()
}

/// What to do about one of whom nothing is usual, and whose messages fill the queue of a receiver: a limit that the receiver
/// can bear. Also for one that has gone, before it comes back.
pub(super) fn for_stranger(client_id: &str, rate: f64, others: &Neighbours) -> Option<Proposal> {
    for_filler(client_id, rate, "nothing is usual for it yet", others)
}

/// The same of one of whom this is to be said first.
fn for_filler(client_id: &str, rate: f64, lead: &str, others: &Neighbours) -> Option<Proposal> {
    let (receiver, bearable) = others.bearable(rate)?;
    let (id, ban) = (quoted(client_id), for_ban(client_id));
    let Some(bearable) = bearable else {
        let text = format!(
            "{receiver:?} takes nothing at all, which is not this one's fault:  tidegate why {}",
            quoted(receiver)
        );
        return Some(Proposal::new(text, [ProposedAct::Why(receiver.to_owned())]));
    };
    let bearable = format!("{}/s", bearable.max(1.0).floor());
    let text = format!(
        "{lead}; to slow it to what {receiver:?} can take:  tidegate limits set {id} rate={bearable}   \
         or keep it away:  tidegate ban add {ban} --for 1h"
    );
    Some(Proposal::new(text, [ProposedAct::Limit(bearable), ProposedAct::Ban]))
}

/// What to do about one that sends most of all that is sent, though that is usual for it: a flood of hours is usual, too.
fn for_busiest(client: &ClientReport, id: &str, ban: &str, others: &Neighbours) -> Option<Proposal> {
    let rate = client.rate.filter(|rate| *rate >= NEWCOMER_RATE_MAX)?;
    let part = others.part_of_all(rate).filter(|part| *part >= MOST_PART)?;
    let text = format!(
        "{:.0} % of all messages are its own; if that is too much, say what it may send:  tidegate limits set {id} rate=N/s   \
         or keep it away:  tidegate ban add {ban} --for 1h",
        part * 100.0
    );
    Some(Proposal::new(text, [ProposedAct::Ban]))
}

/// What makes a client recover that is slowed, if it is right.
fn remedies(client: &ClientReport, id: &str, is_limited: bool) -> Vec<Proposal> {
    let publisher = client.publisher.as_ref();
    if publisher.is_some_and(|publisher| publisher.unread_since.is_some()) && !is_limited {
        let rate = format!("{}/s", entitled_rate(client));
        let text = format!("if this is right, entitle it:  tidegate limits set {id} entitled={rate}");
        return vec![Proposal::new(text, [ProposedAct::Entitle(rate)])];
    }
    if publisher.is_some_and(|publisher| publisher.are_receivers_full) && !is_limited {
        let text = "its receivers are too slow for it: more of them (a shared subscription), or faster ones";
        return vec![Proposal::new(text, [])];
    }
    let unlimit = is_limited
        .then(|| Proposal::new(format!("or take the limit away:  tidegate limits unset {id}"), [ProposedAct::Unlimit]));
    let Some(rate) = allowed_rate(client, is_limited) else {
        let taken = per_second(client.rate.unwrap_or(0.0));
        let text = format!(
            "it has no usual rate yet, and {taken} is what is taken of it, not what it sends: if this is right, allow what it \
             should send:  tidegate limits set {id} rate=N/s"
        );
        return [Proposal::new(text, [])].into_iter().chain(unlimit).collect();
    };
    let allowed = match rate {
        // As many may come at once as in the time that is named.
        rate if publisher.is_some_and(|publisher| publisher.batch > 1) => format!("{}/m", rate * 60),
        rate => format!("{rate}/s"),
    };
    let text = format!("if this is right, allow it:  tidegate limits set {id} rate={allowed}");
    let allow = Proposal::new(text, [ProposedAct::Limit(allowed)]);
    if let Some(unlimit) = unlimit {
        return vec![allow, unlimit];
    }
    let all = "if rhythms are enforced (backoff.enforce = \"always\") and many are slowed that should not be: \
               \"pressure\" holds nobody, backoff.headroom and backoff.burst are more room";
    vec![allow, Proposal::new(all, [])]
}

/// A grant for somebody who waits to be read. Who is entitled gets tokens at twice the rate: a quarter more than usual is
/// room enough. If more was taken of it than is usual, it wants more than that, and nobody knows how much.
fn entitled_rate(client: &ClientReport) -> u64 {
    let usual = usual_rate(client, false).unwrap_or(1.0);
    let taken = client.publisher.map_or(0.0, |publisher| publisher.served.max(publisher.asked));
    let taken = taken.max(client.rate.unwrap_or(0.0));
    whole(if taken > GRANT_ROOM * usual { 2.0 * taken } else { GRANT_ROOM * usual })
}

/// A limit for somebody who is held or refused: twice what it sent at most since then, or is used to, so that it catches up with
/// what waits. What it sends now is less, because it is slowed. Of one that is not read nobody knows what it would send: it is
/// what is usual for it, and none if nothing is.
fn allowed_rate(client: &ClientReport, is_limited: bool) -> Option<u64> {
    let usual = usual_rate(client, is_limited);
    let asked = client.publisher.map(|publisher| publisher.asked);
    let is_unknown = usual.is_none() && client.state == ClientState::Paused;
    let most = usual.into_iter().chain(asked).chain(client.rate).fold(1.0, f64::max);
    (!is_unknown).then(|| whole(round_up(2.0 * most)))
}

/// What it is used to: by its claim, which is learned while nobody is in its way, else by its rhythm. (A limit is no
/// rhythm of its own.)
fn usual_rate(client: &ClientReport, is_limited: bool) -> Option<f64> {
    let by_claim = client.publisher.and_then(|publisher| publisher.usual);
    let by_rhythm = view::learned_rate(client).filter(|_| !is_limited);
    by_claim.into_iter().chain(by_rhythm).reduce(f64::max)
}

/// To two digits: who asks again a moment later is proposed the same.
fn round_up(rate: f64) -> f64 {
    let unit = 10_f64.powf((rate.max(1.0).log10().floor() - 1.0).max(0.0));
    (rate / unit).ceil() * unit
}

fn whole(rate: f64) -> u64 {
    rate.max(1.0).ceil() as u64
}
