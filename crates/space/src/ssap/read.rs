//! Messages that are read elsewhere: what came of them, for the connection that sent them.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::admission::Class;
use tidegate_control::hints::Asks;
use tidegate_graph::QueryLimits;
use tidegate_wire_ssap::{SsapHeader, Status, Transaction};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::buffer::READ_BYTES;
use super::connection::ReadSide;
use super::plan::{Plan, PlanStep, ReplyForm, Rows, plan};
use super::{subscription_name, uuid};
use crate::handle::{PendingReply, SpaceHandle};
use crate::limits::SSAP_LINGER_BYTES;
use crate::machine::request::{DeclinedBy, Refused, SpaceResponse};
use crate::notifications::{NotificationOutlet, SpaceRequest};
use crate::parsers::TextReading;

/// What an answer is to become.
#[derive(Debug)]
pub(super) enum AnswerKind {
    Ask(ReplyForm),
    Subscribe(Rows, bool),
    /// Not known yet.
    Unread,
}

/// A message that was read.
#[derive(Debug)]
pub(super) struct Understood {
    pub(super) header: SsapHeader,
    /// Its client wants to know about pace.
    pub(super) is_told: bool,
    pub(super) what: ReadOutcome,
}

/// What came of reading a message.
#[derive(Debug)]
pub(super) enum ReadOutcome {
    /// It was asked, and this is to be made of the answer.
    Asked(AnswerKind),
    /// The client has the answer already.
    Unchanged(u64),
    /// There is nothing to ask.
    Done(PlanStep),
}

/// What a connection waits for.
#[derive(Debug)]
pub(super) enum WaitingFor {
    Asked(PendingReply),
    Read(TextReading<Understood>),
}

impl WaitingFor {
    pub(super) async fn wait(&mut self) -> (Result<SpaceResponse, Refused>, Option<Understood>) {
        match self {
            Self::Asked(waiting) => (waiting.wait().await, None),
            Self::Read(reading) => reading.wait().await,
        }
    }
}

/// What a message is taken for until it is read.
pub(super) fn class_of(header: &SsapHeader) -> Class {
    match header.transaction() {
        Some(Transaction::Query) => Class::Query,
        Some(Transaction::Subscribe) => Class::Subscribe,
        _ => Class::Update,
    }
}

/// Reads a message, on a thread for that.
pub(super) fn understand(
    bytes: &[u8],
    limits: &QueryLimits,
    handle: &SpaceHandle,
    outlet: Arc<NotificationOutlet>,
) -> (Understood, Result<SpaceRequest, Refused>) {
    let Plan { header, asks, step } = plan(bytes, limits, uuid);
    let is_told = *asks != Asks::default();
    // A number does not say with which rights it was seen.
    let seen = asks.version.filter(|_| !handle.is_restricted());
    let unchanged = if let PlanStep::Ask(ask, _) = &step { handle.unchanged_at(ask, seen) } else { None };
    let (what, ask) = match step {
        _ if limits.cancel.is_cancelled() => (ReadOutcome::Asked(AnswerKind::Unread), Err(Refused::Late)),
        PlanStep::Ask(ask, reply) => match unchanged {
            Some(version) => (ReadOutcome::Unchanged(version), Err(Refused::Declined(DeclinedBy::NoNeed))),
            None => (ReadOutcome::Asked(AnswerKind::Ask(reply)), Ok(ask)),
        },
        PlanStep::Subscribe(what, rows, seen) => {
            let (name, is_return) = (subscription_name(), seen.is_some());
            let ask = SpaceRequest::Subscribe { what, name, seen, outlet: Some(outlet) };
            (ReadOutcome::Asked(AnswerKind::Subscribe(rows, is_return)), Ok(ask))
        }
        // Nothing is read twice.
        PlanStep::Read(_) => {
            let done = PlanStep::Reply(Status::SibError, String::new());
            (ReadOutcome::Done(done), Err(Refused::Declined(DeclinedBy::Mistake)))
        }
        done => {
            let by = declined_by(&done);
            (ReadOutcome::Done(done), Err(Refused::Declined(by)))
        }
    };
    (Understood { header, is_told, what }, ask)
}

/// Why nothing of the space is needed for it.
pub(super) fn declined_by(step: &PlanStep) -> DeclinedBy {
    match step {
        PlanStep::Reply(status, _) | PlanStep::Close(status, _) if *status != Status::Success => DeclinedBy::Mistake,
        _ => DeclinedBy::NoNeed,
    }
}

/// Takes what the other side still sends and throws it away, for a moment: else its system would throw away what it was
/// told last.
pub(super) async fn discard(mut reader: ReadSide, time: Duration) {
    let mut piece = vec![0; READ_BYTES];
    let drain = async {
        for _ in 0..SSAP_LINGER_BYTES / READ_BYTES {
            if !matches!(reader.read(&mut piece).await, Ok(1..)) {
                return;
            }
        }
    };
    let _ = timeout(time, drain).await;
}
