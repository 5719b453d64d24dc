//! The one sentence: who floods, who loses, who is banned, and what to type. The page, `tidegate status`, `tidegate top` and
//! the log print these words and no others.

use std::sync::Arc;

use tidegate_core::report::ClientState;

use super::{TroubleReport, TroubledPublisher, TroubledReceiver};
use crate::bridges::TroubledBridge;
use crate::why::words::{number, per_second, quoted, whole_per_second};

/// Clients of a kind that are named in the sentence; the rest is counted.
const SPOKEN_MAX: usize = 2;
/// Cards of a kind: what one screen has room for. The page says how many there are besides.
const CARDS_MAX: usize = 4;
/// Whoever looks for the reason why a flood is not slowed has it.
const GATE_OFF: &str = "the gate is off (backoff.mode = \"off\"): nobody is slowed for what it sends";
/// From this part of the memory budget on it is worth a word.
pub(crate) const MEMORY_FULL: f64 = 0.9;

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mood {
    /// Nothing is wrong.
    #[default]
    Calm,
    /// Worth a look.
    Notice,
    /// Somebody loses, or floods.
    Trouble,
}

impl Mood {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Notice => "notice",
            Self::Trouble => "trouble",
        }
    }
}

/// What there is to say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sentence {
    pub(crate) mood: Mood,
    pub(crate) text: String,
    /// What to type next; empty if there is nothing to do.
    pub(crate) next: String,
    /// The client to look at first.
    pub(crate) client: Option<String>,
}

/// One of those that are in trouble, or make some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TroubleCard {
    /// In a word: `floods`, `loses`, `slow`, `name used twice`, `bridge down`, `waits`, `unusual`.
    pub(crate) kind: &'static str,
    pub(crate) subject: CardSubject,
    pub(crate) text: String,
}

/// Whom a card is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CardSubject {
    Client(Arc<str>),
    Bridge(String),
}

impl TroubleReport {
    /// In one sentence.
    pub(crate) fn sentence(&self) -> Sentence {
        // Without it nobody is served at all.
        let mut parts: Vec<String> = self.upstream.iter().map(|(_, text)| text.clone()).collect();
        // What is dealt with comes after what an operator is needed for.
        let (harmful, held): (Vec<&TroubledPublisher>, Vec<&TroubledPublisher>) =
            self.flooders().partition(|publisher| publisher.needs_operator());
        let more = "more publishers send too much";
        parts.extend(named(&harmful, harmful.len(), more, TroubledPublisher::in_words));
        let (losing, slow): (Vec<&TroubledReceiver>, Vec<&TroubledReceiver>) =
            self.receivers.iter().partition(|receiver| receiver.is_losing);
        parts.extend(named(&losing, self.losing, "more receivers lose messages", TroubledReceiver::in_words));
        let conflicts: Vec<&(_, u32)> = self.conflicts.iter().collect();
        parts.extend(named(&conflicts, self.conflicting, "more names are used twice", |it| name_conflict(&it.0, it.1)));
        let bridges: Vec<&TroubledBridge> = self.bridges.iter().collect();
        parts.extend(named(&bridges, self.bridges_down, "more bridges are down", |it| it.text.clone()));
        parts.extend(self.disk.clone());
        let has_trouble = !parts.is_empty() || !held.is_empty() || self.level.0 >= 2;
        // Who is slow beside one that loses is seen in the list.
        if losing.is_empty() {
            parts.extend(named(&slow, self.slow, "more receivers are slow", TroubledReceiver::in_words));
        }
        let unusual: Vec<&TroubledPublisher> = self.unusual.iter().collect();
        let words = |it: &TroubledPublisher| self.unusual_in_words(it);
        parts.extend(named(&unusual, self.sending_unusually, "more publishers send far more than usual", words));
        let held_count = self.flooding.saturating_sub(harmful.len());
        parts.extend(named(&held, held_count, more, TroubledPublisher::in_words));
        let waiting = self.publishers.iter().filter(|publisher| !publisher.is_flooding()).collect::<Vec<_>>();
        parts.extend(named(&waiting, self.waiting, "more publishers have to wait", TroubledPublisher::in_words));
        if self.level.0 > 0 {
            let cause = self.cause.map(|cause| format!(" because of {cause}")).unwrap_or_default();
            parts.push(format!("the broker is at level {} ({}){cause}", self.level.0, self.level.1));
        }
        if self.memory >= MEMORY_FULL {
            parts.push(format!("{:.0} % of the memory budget is used", self.memory * 100.0));
        }
        parts.extend(self.bans_in_words());
        let is_calm = parts.is_empty();
        if is_calm && !self.is_gate_off {
            let text = "calm: nobody floods, nobody loses messages, nobody is banned".to_owned();
            return Sentence { mood: Mood::Calm, text, next: String::new(), client: None };
        }
        if is_calm {
            // Without the gate nobody is called a flooder for what it sends.
            parts.push("calm: nobody loses messages, nobody is banned".to_owned());
        }
        let busiest = self.busiest_unnamed();
        parts.extend(busiest.map(TroubledPublisher::busiest_in_words));
        parts.extend(self.is_gate_off.then(|| GATE_OFF.to_owned()));
        let client = self.first_client().or(busiest.map(|it| &it.client_id));
        let next = match (client, self.bridges.first()) {
            (Some(client_id), _) => format!("tidegate why {}", quoted(client_id)),
            (None, Some(bridge)) => format!("tidegate why bridge {}", quoted(&bridge.name)),
            _ if is_calm => String::new(),
            _ if self.bans > 0 && self.level.0 == 0 && self.disk.is_none() => "tidegate ban list".to_owned(),
            _ => "tidegate alarms".to_owned(),
        };
        let mood = match (is_calm, has_trouble) {
            (true, _) => Mood::Calm,
            (false, true) => Mood::Trouble,
            (false, false) => Mood::Notice,
        };
        Sentence { mood, text: parts.join("; "), next, client: client.map(ToString::to_string) }
    }

    /// The client to look at first, in the order of the sentence.
    fn first_client(&self) -> Option<&Arc<str>> {
        let flooder = self.publishers.first().filter(|it| it.needs_operator());
        let receiver = self.receivers.first();
        (flooder.map(|it| &it.client_id))
            .or(receiver.filter(|it| it.is_losing).map(|it| &it.client_id))
            .or(self.conflicts.first().map(|(client_id, _)| client_id))
            .or(receiver.map(|it| &it.client_id))
            .or(self.unusual.first().map(|it| &it.client_id))
            .or(self.publishers.first().map(|it| &it.client_id))
    }

    /// Who sends the most, unless the sentence names it anyway.
    fn busiest_unnamed(&self) -> Option<&TroubledPublisher> {
        let sources = self.receivers.iter().filter_map(|it| it.source.as_ref());
        let mut named = self.publishers.iter().chain(&self.unusual).chain(sources);
        let busiest = self.busiest.as_ref().filter(|_| self.is_gate_off)?;
        named.all(|it| it.client_id != busiest.client_id).then_some(busiest)
    }

    /// The same one by one, the worst first, and what is dealt with last: those whom a click can do something about.
    pub(crate) fn cards(&self) -> Vec<TroubleCard> {
        let card = |kind, client_id: &Arc<str>, text| {
            let subject = CardSubject::Client(Arc::clone(client_id));
            TroubleCard { kind, subject, text }
        };
        let (flooders, waiting): (Vec<&TroubledPublisher>, Vec<&TroubledPublisher>) =
            self.publishers.iter().partition(|publisher| publisher.is_flooding());
        let (harmful, held) = flooders.into_iter().partition(|publisher| publisher.needs_operator());
        let publishers = |kind, list: Vec<&TroubledPublisher>| -> Vec<TroubleCard> {
            list.into_iter().take(CARDS_MAX).map(|it| card(kind, &it.client_id, it.in_words())).collect()
        };
        // Losing ones come before slow ones in the list, and what else needs somebody is between them.
        let receivers = |is_losing: bool| {
            let kind = if is_losing { "loses" } else { "slow" };
            let listed = self.receivers.iter().take(CARDS_MAX).filter(move |it| it.is_losing == is_losing);
            listed.map(move |it| card(kind, &it.client_id, it.in_words()))
        };
        let conflicts = self.conflicts.iter().take(CARDS_MAX);
        let conflicts = conflicts
            .map(|(client_id, takeovers)| card("name used twice", client_id, name_conflict(client_id, *takeovers)));
        let mut cards = publishers("floods", harmful);
        cards.extend(receivers(true).chain(conflicts));
        let bridges = self.bridges.iter().take(CARDS_MAX).map(|it| {
            let subject = CardSubject::Bridge(it.name.clone());
            TroubleCard { kind: "bridge down", subject, text: it.text.clone() }
        });
        cards.extend(bridges);
        cards.extend(receivers(false));
        let unusual = self.unusual.iter().take(CARDS_MAX);
        cards.extend(unusual.map(|it| card("unusual", &it.client_id, self.unusual_in_words(it))));
        cards.extend(publishers("floods", held));
        cards.extend(publishers("waits", waiting));
        cards
    }

    /// How many there are, with those who have no card.
    pub(crate) fn troubled(&self) -> usize {
        let publishers = self.flooding + self.waiting + self.sending_unusually;
        publishers + self.losing + self.slow + self.conflicting + self.bridges_down
    }

    fn unusual_in_words(&self, publisher: &TroubledPublisher) -> String {
        let harm = if self.does_nobody_suffer() { ", and nobody suffers by it" } else { "" };
        if publisher.usual.is_some() {
            return format!("{}{harm}", publisher.in_words());
        }
        // Rounded down: who is not alone is not all.
        let part = (100.0 * publisher.rate / self.all_send.max(publisher.rate)).floor();
        let rate = per_second(publisher.rate);
        format!("{:?} sends {rate} (new, {part} % of all messages){harm}", publisher.client_id)
    }

    fn bans_in_words(&self) -> Option<String> {
        let tries = match self.ban_tries {
            0 => String::new(),
            tries => format!(" ({} to come in since)", counted_tries(tries)),
        };
        match (self.bans, self.banned.first()) {
            (0, _) => None,
            (1, Some((_, who))) => Some(format!("{who} is banned{tries}")),
            (bans, _) => Some(format!("{bans} are banned{tries}")),
        }
    }
}

fn counted_tries(tries: u64) -> String {
    if tries == 1 { "1 try".to_owned() } else { format!("{tries} tries") }
}

/// Two clients with one name, in words.
pub(crate) fn name_conflict(client_id: &str, takeovers: u32) -> String {
    format!(
        "two clients call themselves {client_id:?} and throw each other out ({takeovers} times in the last minute or two)"
    )
}

/// The worst by name, and the number of the rest: the list may be shorter than the total.
fn named<T>(worst: &[&T], total: usize, more: &str, words: impl Fn(&T) -> String) -> Vec<String> {
    let mut parts: Vec<String> = worst.iter().take(SPOKEN_MAX).map(|it| words(it)).collect();
    let rest = total.max(worst.len()).saturating_sub(parts.len());
    if rest > 0 {
        parts.push(format!("{rest} {more}"));
    }
    parts
}

impl TroubledPublisher {
    /// Of the one that sends the most.
    fn busiest_in_words(&self) -> String {
        let usual = self.usual.map(|usual| format!(" ({} is usual for it)", per_second(usual)));
        format!("{:?} sends the most, {}{}", self.client_id, per_second(self.rate), usual.unwrap_or_default())
    }

    /// As the one whose messages a receiver loses.
    fn source_in_words(&self) -> String {
        let usual = if self.usual.is_some() { ", about as usual" } else { " (new, has no usual rate yet)" };
        format!(", mostly by {:?}, which sends {}{usual}", self.client_id, per_second(self.rate))
    }

    /// What it does, and what is done about it.
    pub(crate) fn in_words(&self) -> String {
        let TroubledPublisher { client_id, state, rate, usual, limit, fills, part, is_newcomer, .. } = self;
        let rate = per_second(*rate);
        let limited = limit.map(|limit| {
            let limit = whole_per_second(limit);
            format!("{client_id:?} sends more than its limit of {limit}, which an operator has set")
        });
        let sends = limited.unwrap_or_else(|| match (usual, self.factor()) {
            _ if *state == ClientState::Paused => {
                let usual =
                    usual.map_or_else(|| "no usual rate yet".to_owned(), |it| format!("{} is usual", per_second(it)));
                format!("{client_id:?} sends more than is taken of it ({rate}; {usual})")
            }
            (Some(usual), Some(factor)) if *is_newcomer && factor <= super::FLOOD_FACTOR => {
                format!(
                    "{client_id:?} sends {rate} (new, and too much from its beginning; {} is usual for it by now)",
                    per_second(*usual)
                )
            }
            (Some(usual), Some(factor)) if factor > super::FLOOD_FACTOR => {
                format!("{client_id:?} sends {rate}, {} × its usual {}", number(factor), per_second(*usual))
            }
            (Some(usual), _) => format!("{client_id:?} sends {rate}, about its usual {}", per_second(*usual)),
            (None, _) => format!("{client_id:?} sends {rate} (new, has no usual rate yet)"),
        });
        let done = match state {
            ClientState::Paused => Some("is not read for a while"),
            ClientState::BackedOff => Some("is refused"),
            ClientState::Slowed => Some("has to wait"),
            _ => None,
        };
        let fills = fills.as_ref().map(|receiver| {
            let part = part.map(|part| format!(" ({part} % of what is lost there is its own)"));
            format!("fills the queue of {receiver:?}{}", part.unwrap_or_default())
        });
        let facts: Vec<String> = done.map(str::to_owned).into_iter().chain(fills).collect();
        if facts.is_empty() { sends } else { format!("{sends}, and {}", facts.join(" and ")) }
    }
}

impl TroubledReceiver {
    fn in_words(&self) -> String {
        let TroubledReceiver { client_id, loss_rate, fill, takes, is_losing, is_away, source, .. } = self;
        let reads = reads_in_words(*takes, *loss_rate);
        if *is_losing {
            let full = if *fill >= 0.5 { ", and its queue is full" } else { "" };
            let of = source.as_ref().map(TroubledPublisher::source_in_words).unwrap_or_default();
            let loss_rate = per_second(*loss_rate);
            return if *is_away {
                format!("{client_id:?} is away and loses {loss_rate}: what may be kept for it is full{of}")
            } else {
                format!("{client_id:?} loses {loss_rate}: it {reads}{full}{of}")
            };
        }
        format!("{client_id:?} is slow: it {reads}, and {} % of its queue is used", (fill * 100.0).ceil())
    }
}

/// How fast a receiver takes what comes for it; continues "it". What it loses comes for it, too.
pub(crate) fn reads_in_words(takes: f64, loss_rate: f64) -> String {
    if takes < super::TAKES_MIN {
        "takes nothing".to_owned()
    } else if loss_rate > 0.0 {
        format!("reads {} of some {}", per_second(takes), per_second(takes + loss_rate))
    } else {
        format!("reads {}", per_second(takes))
    }
}
