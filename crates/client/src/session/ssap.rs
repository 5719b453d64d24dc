//! SSAP as a client speaks it: requests to bytes, bytes to answers and notifications.
//!
//! Tolerant: brokers differ in what they leave out. An indication without a number is taken without one; numbers begin at
//! 1 again after 9999, here they go on.

use core::time::Duration;

use tidegate_control::hints::{Asks, Delegate, Hints};
use tidegate_wire_ssap::{
    Kind, ReceivedReply, SEQUENCE_MAX, Scanned, Scanner, SsapFault, SsapMessage, SsapRequest, SsapResults, Status,
    Transaction, Triple, TripleNode, read_triples,
};

use super::BrokerRefusal;
use super::row::{Delta, Row, Term};
use crate::limits::ANSWER_BYTES_MAX;
use crate::prelude::*;

/// Who speaks, where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsapIdentity {
    /// `node_id`.
    pub node: String,
    /// `space_id`.
    pub space: String,
}

impl SsapIdentity {
    /// A request as bytes, with what is to be said about pace.
    pub fn say(&self, request: &SsapRequest<'_>, transaction: u64, asks: &Asks) -> String {
        self.say_again(request, transaction, asks, None)
    }

    /// The same, of a subscription that shall go on: its name, and the number of the last notification.
    pub fn say_again(
        &self,
        request: &SsapRequest<'_>,
        transaction: u64,
        asks: &Asks,
        resume: Option<(&str, u64)>,
    ) -> String {
        let mut pairs = Vec::new();
        asks.write(|name, text| pairs.push((name, text)));
        if let Some((name, last)) = resume {
            // As it is on the wire: after 9999 comes 1.
            let last = if last == 0 { 0 } else { (last - 1) % u64::from(SEQUENCE_MAX) + 1 };
            pairs.extend([("subscription_id", name.to_owned()), ("ind_sequence", last.to_string())]);
        }
        let extra: Vec<(&str, &str)> = pairs.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let mut out = String::new();
        request.write(transaction, &self.node, &self.space, &extra, &mut out);
        out
    }
}

/// A message of a broker.
#[derive(Clone, Debug, PartialEq)]
pub enum SsapInput {
    /// The answer to a request.
    Confirmed {
        /// The transaction that is answered.
        transaction: u64,
        /// The answer, or why there is none.
        answer: Result<Confirmed, BrokerRefusal>,
    },
    /// A notification.
    Changed {
        /// Its number, which goes on after 9999.
        sequence: Option<u64>,
        /// The rows that entered and left the result.
        delta: Delta,
        /// `pace-spread-ms`.
        spread: Option<Duration>,
    },
    /// Who brings changes from now on.
    Delegated {
        /// The number of the last notification, which goes on after 9999.
        sequence: u64,
        /// How often to ask; none if it is notified again.
        every: Option<Duration>,
    },
    /// The subscription of this connection is over.
    Ended(Hints),
}

/// A good answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Confirmed {
    /// Rows of a query, or of the baseline of a subscription.
    pub rows: Vec<Row>,
    /// The truth value of an ASK or an update in a query.
    pub truth: Option<bool>,
    /// The name of a new subscription.
    pub subscription: Option<String>,
    /// The name of a new standing update.
    pub update: Option<String>,
    /// New names of blank nodes.
    pub blanks: Vec<(String, String)>,
    /// The subscription goes on: the number that this counts as, and what was missed.
    pub resumed: Option<(u64, Delta)>,
    /// It was said whether the subscription goes on: a broker that knows what that is.
    pub knows_return: bool,
    /// What was said about pace.
    pub hints: Hints,
}

/// Reads the bytes of a connection.
#[derive(Debug, Default)]
pub struct SsapReader {
    bytes: Vec<u8>,
    scanner: Scanner,
    /// The number of the last indication on the wire, and how much to add to it.
    last: u64,
    rounds: u64,
}

impl SsapReader {
    /// Takes bytes in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next thing that was said; an error if the rest of the connection is not to be trusted.
    pub fn hear(&mut self) -> Option<Result<SsapInput, BrokerRefusal>> {
        loop {
            match self.scanner.scan(&self.bytes, ANSWER_BYTES_MAX) {
                Scanned::Incomplete => {
                    if self.bytes.iter().all(u8::is_ascii_whitespace) {
                        // Signs of life between messages.
                        self.bytes.clear();
                        self.scanner = Scanner::default();
                    }
                    return None;
                }
                Scanned::TooLarge => return Some(Err(BrokerRefusal::Nonsense("a message without end".to_owned()))),
                Scanned::Message(range) => {
                    let message: Vec<u8> = self.bytes.drain(..range.end).skip(range.start).collect();
                    match self.understand(&message) {
                        Ok(Some(heard)) => return Some(Ok(heard)),
                        Ok(None) => {}
                        Err(fault) => return Some(Err(BrokerRefusal::Nonsense(fault.to_string()))),
                    }
                }
            }
        }
    }

    fn understand(&mut self, bytes: &[u8]) -> Result<Option<SsapInput>, SsapFault> {
        let message = SsapMessage::parse(bytes)?;
        let hints = hints_of(&message)?;
        let reply = ReceivedReply::read(message)?;
        let header = reply.header();
        let transaction = header.transaction_id.trim().parse().unwrap_or(0);
        Ok(match (header.kind(), header.transaction()) {
            (Some(Kind::Indication), Some(Transaction::Subscribe)) => {
                let sequence = reply.sequence()?.map(|number| self.number(number.into()));
                if let Some(delegate) = hints.delegate {
                    let every = hints.interval.filter(|_| delegate == Delegate::Check);
                    return Ok(Some(SsapInput::Delegated { sequence: sequence.unwrap_or(0), every }));
                }
                let rows = |name: &str| match reply.inside(name) {
                    Some(inside) => read(inside).map(|(rows, _)| rows),
                    None => Ok(Vec::new()),
                };
                let delta = Delta { added: rows("new_results")?, removed: rows("obsolete_results")? };
                Some(SsapInput::Changed { sequence, delta, spread: hints.spread })
            }
            (Some(Kind::Indication | Kind::Confirm), Some(Transaction::Unsubscribe)) => Some(SsapInput::Ended(hints)),
            (Some(Kind::Confirm), _) => {
                let mut answer = confirmed(&reply, hints)?;
                if let Ok(Confirmed { resumed: Some((sequence, _)), .. }) = &mut answer {
                    *sequence = self.number(*sequence);
                }
                Some(SsapInput::Confirmed { transaction, answer })
            }
            _ => None,
        })
    }

    /// Numbers that go on: 9999 is followed by 1.
    fn number(&mut self, number: u64) -> u64 {
        let max = u64::from(SEQUENCE_MAX);
        if self.rounds > 0 && number > self.last && number - self.last > max / 2 {
            // Of the round before: the answer to a check had overtaken it.
            return (self.rounds - 1) * max + number;
        }
        if number < self.last && self.last - number > max / 2 {
            self.rounds += 1;
        }
        self.last = number;
        self.rounds * max + number
    }
}

fn hints_of(message: &SsapMessage<'_>) -> Result<Hints, SsapFault> {
    let mut hints = Hints::default();
    for name in [
        "pace-queued-ms",
        "pace-dbr-ms",
        "pace-stretch",
        "pace-interval-ms",
        "pace-retry-after-ms",
        "pace-ticket",
        "pace-spread-ms",
        "pace-delegate",
    ] {
        if let Some(text) = message.text(name)? {
            hints.read(name, text.trim());
        }
    }
    Ok(hints)
}

/// Whether it says more than that there is too much to do.
fn is_a_reason(words: &str) -> bool {
    !words.is_empty() && words != "too much to do"
}

fn confirmed(reply: &ReceivedReply<'_>, hints: Hints) -> Result<Result<Confirmed, BrokerRefusal>, SsapFault> {
    let status = reply.status()?.unwrap_or_default();
    let words = || {
        let reason = reply.text("reason").ok().flatten().unwrap_or_default();
        if reason.is_empty() { status.trim().to_owned() } else { format!("{} ({reason})", status.trim()) }
    };
    match Status::of(&status) {
        Some(Status::Success) => {}
        Some(Status::OutOfResources | Status::Closing | Status::Reset) => {
            let said = reply.text("reason").ok().flatten();
            let why = said.as_deref().map(str::trim).filter(|words| is_a_reason(words)).map(Box::from);
            return Ok(Err(BrokerRefusal::Busy(Box::new(hints), why)));
        }
        Some(Status::AccessDenied) => return Ok(Err(BrokerRefusal::Denied(words()))),
        Some(Status::NotImplemented) => return Ok(Err(BrokerRefusal::Unsupported(words()))),
        Some(Status::KpError | Status::KpRequest | Status::Incomplete | Status::Syntax) => {
            return Ok(Err(BrokerRefusal::Rejected(words())));
        }
        // The word that a plain SIB has for everything.
        Some(Status::SibError) | None => return Ok(Err(BrokerRefusal::Failed(words()))),
    }
    let (rows, truth) = reply.inside("results").map_or(Ok((Vec::new(), None)), read)?;
    let word = reply.text("resumed")?;
    let knows_return = word.is_some();
    let resumed = match word {
        Some(word) if word.trim() == "TRUE" => {
            let side = |name: &str| match reply.inside(name) {
                Some(inside) => read(inside).map(|(rows, _)| rows),
                None => Ok(Vec::new()),
            };
            let delta = Delta { added: side("new_results")?, removed: side("obsolete_results")? };
            Some((reply.sequence()?.unwrap_or(0).into(), delta))
        }
        _ => None,
    };
    let text = |name: &str| Ok::<_, SsapFault>(reply.text(name)?.map(|text| text.trim().to_owned()));
    Ok(Ok(Confirmed {
        rows,
        truth,
        subscription: text("subscription_id")?,
        update: text("update_id")?,
        blanks: Vec::new(),
        resumed,
        knows_return,
        hints,
    }))
}

/// Rows of either form: a list of triples, or results of SPARQL.
fn read(inside: &str) -> Result<(Vec<Row>, Option<bool>), SsapFault> {
    if inside.contains("triple_list") && !inside.contains("sparql-results#") {
        return Ok((read_triples(inside)?.iter().map(row_of).collect(), None));
    }
    match SsapResults::read(inside)? {
        SsapResults::Boolean(truth) => Ok((Vec::new(), Some(truth))),
        SsapResults::Rows { variables, rows } => {
            let names: Vec<Arc<str>> = variables.into_iter().map(Into::into).collect();
            let of = |row: Vec<Option<Term>>| {
                Row::new(names.iter().zip(row).filter_map(|(name, term)| Some((Arc::clone(name), term?))))
            };
            Ok((rows.into_iter().map(of).collect(), None))
        }
    }
}

/// A triple as a row of three names.
pub(crate) fn row_of(triple: &Triple<'_>) -> Row {
    let term = |node: &TripleNode<'_>| match node {
        TripleNode::Uri(text) => Some(Term::Uri(text.to_string())),
        TripleNode::Literal(text) => Some(Term::Literal { text: text.to_string(), datatype: None, language: None }),
        TripleNode::Blank(text) => Some(Term::Blank(text.to_string())),
        TripleNode::Any => None,
    };
    let places = [("subject", &triple.subject), ("predicate", &triple.predicate), ("object", &triple.object)];
    Row::new(places.into_iter().filter_map(|(name, node)| Some((name.into(), term(node)?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indication(number: u32) -> String {
        format!(
            "<SSAP_message><message_type>INDICATION</message_type><transaction_type>SUBSCRIBE</transaction_type>\
             <space_id>X</space_id><node_id>kp1</node_id><transaction_id>7</transaction_id>\
             <parameter name=\"ind_sequence\">{number}</parameter><parameter name=\"subscription_id\">s</parameter>\
             <parameter name=\"new_results\"></parameter><parameter name=\"obsolete_results\"></parameter>\
             </SSAP_message>"
        )
    }

    #[test]
    fn numbers_go_on_after_9999_and_an_older_one_stays_older() {
        let mut listener = SsapReader::default();
        let mut number = |wire: u32| {
            listener.push(b" \n");
            listener.push(indication(wire).as_bytes());
            match listener.hear() {
                Some(Ok(SsapInput::Changed { sequence: Some(number), .. })) => number,
                other => panic!("{other:?}"),
            }
        };
        let numbers: Vec<u64> = [1, 2, 2, 1, 9998, 9999, 1, 3, 2].map(&mut number).into();
        assert_eq!(numbers, [1, 2, 2, 1, 9998, 9999, 10000, 10002, 10001]);
    }

    #[test]
    fn a_number_that_was_overtaken_at_9999_stays_in_its_round() {
        let mut listener = SsapReader::default();
        let numbers: Vec<u64> = [9998, 9999, 1, 9999, 2, 9998, 3].map(|wire| listener.number(wire)).into();
        assert_eq!(numbers, [9998, 9999, 10000, 9999, 10001, 9998, 10002]);
    }

    #[test]
    fn busy_is_told_with_its_hints_and_nonsense_ends_trust() {
        let mut listener = SsapReader::default();
        listener.push(
            b"<SSAP_message><message_type>CONFIRM</message_type><transaction_type>QUERY</transaction_type>\
              <transaction_id>3</transaction_id><space_id>X</space_id><node_id>k</node_id><parameter \
              name=\"status\">m3:SIB.Failure.OutOfResources</parameter><parameter \
              name=\"pace-retry-after-ms\">250</parameter></SSAP_message><SSAP_message>x</SSAP_message>",
        );
        let hints = Hints { retry_after: Some(Duration::from_millis(250)), ..Hints::default() };
        let answer = Err(BrokerRefusal::Busy(Box::new(hints), None));
        assert_eq!(listener.hear(), Some(Ok(SsapInput::Confirmed { transaction: 3, answer })));
        assert!(matches!(listener.hear(), Some(Err(BrokerRefusal::Nonsense(_)))));
    }
}
