//! To which class a message belongs: by a rule of the operator, else by how often its publisher publishes.
//!
//! A client may ask for another class with the user property `pace-class`: for a lesser one always, for a better one only
//! if the rules of access say so (`priority`). Otherwise the claim is ignored and counted. Where a topic tells the class
//! a claim changes nothing: messages to one topic must not overtake each other.

use alloc::boxed::Box;

use tidegate_control::Timestamp;

use crate::access::Action;
use crate::classes::{ClassBy, ClassId, PriorityMode};
use crate::connection::Connection;
use crate::message::{Precedence, Publication};
use crate::state::ShardState;

/// What a client's messages count for, for whoever asks why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassReport {
    /// The class of its latest message.
    pub class: ClassId,
    pub name: Box<str>,
    pub weight: u32,
    /// How many publishers of its shard come before it by their rate, and how many there are; none while its rate is
    /// being learned.
    pub rank: Option<(u32, u32)>,
}

impl ShardState {
    pub(crate) fn class_of(&self, client_id: &str) -> Option<ClassReport> {
        let session = self.session_named(client_id)?;
        let id = session.class().unwrap_or(ClassId::NORMAL);
        let class = self.settings.priority.classes.get(id)?;
        let rank = session.publisher().and_then(|slot| self.gate.publishers.rank_of(slot));
        Some(ClassReport { class: id, name: class.name.clone(), weight: class.weight, rank })
    }

    /// How a message stands among others. Said once, when it comes in.
    #[inline]
    pub(crate) fn classify(&mut self, index: u32, publication: &Publication<'_>, now: Timestamp) -> Precedence {
        let priority = &self.settings.priority;
        if priority.mode == PriorityMode::Off {
            return Precedence::UNKNOWN;
        }
        let Some(session) = self.sessions.get_mut(index) else { return Precedence::UNKNOWN };
        let wants_rate = priority.mode == PriorityMode::Paper;
        let rank = if let Some(slot) = session.publisher() {
            self.gate.publishers.standing(slot, wants_rate, now)
        } else {
            let since = session.conn().and_then(|conn| self.connections.get(conn)).map(Connection::since);
            self.gate.standing_of_first(since, wants_rate, now)
        };
        let standing = Precedence { parent: session.parent(), ..rank };
        // The usual case is over here: no rules, no claim, and the paper's order is not asked for.
        if publication.properties.is_empty() && !priority.has_more_to_ask() {
            session.note_class(standing.class);
            return standing;
        }
        let standing = self.ask_further(index, publication, standing);
        if let Some(session) = self.sessions.get_mut(index) {
            session.note_class(standing.class);
        }
        standing
    }

    fn ask_further(&mut self, index: u32, publication: &Publication<'_>, mut standing: Precedence) -> Precedence {
        let priority = &self.settings.priority;
        let Some(session) = self.sessions.get(index) else { return standing };
        if priority.by == ClassBy::Rules {
            standing.class = ClassId::NORMAL;
        }
        if priority.by != ClassBy::Rank
            && let Some((class, is_by_topic)) =
                priority.classes.by_rules(session.identity(), session.client_id(), publication.topic)
        {
            standing = Precedence { class, is_by_topic, ..standing };
        }
        if publication.properties.is_empty() { standing } else { self.hear_claim(index, publication, standing) }
    }

    /// What the client itself says about the class.
    fn hear_claim(&mut self, index: u32, publication: &Publication<'_>, standing: Precedence) -> Precedence {
        let claim = publication.properties.user_properties().find(|(name, _)| *name == CLAIM);
        let (Some((_, name)), Some(session)) = (claim, self.sessions.get(index)) else { return standing };
        let classes = &self.settings.priority.classes;
        let may_raise = || self.may(session.identity(), session.client_id(), Action::Prioritize, publication.topic);
        match classes.find(name).filter(|_| !standing.is_by_topic) {
            Some(class) if classes.weight(class) <= classes.weight(standing.class) || may_raise() => {
                Precedence { class, ..standing }
            }
            _ => {
                self.stats.class_claims_ignored += 1;
                standing
            }
        }
    }
}

/// The user property by which a client asks for a class.
const CLAIM: &str = "pace-class";
