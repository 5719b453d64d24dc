//! Everything that decides: no socket, no clock, no chance of its own. The driver, the simulation and the tests are three
//! rims around it.

pub mod event;
pub mod hub;
pub mod mqtt;
pub mod reconnect;
pub mod row;
pub mod sepa;
pub mod sparql;
pub mod ssap;
pub mod watch;

use tidegate_control::hints::Hints;

use crate::prelude::*;

/// Why a broker did not do what it was asked.
#[derive(Clone, Debug, PartialEq)]
pub enum BrokerRefusal {
    /// Come back later: it is too busy, or says another reason.
    Busy(Box<Hints>, Option<Box<str>>),
    /// Not allowed.
    Denied(String),
    /// The request makes no sense to it.
    Rejected(String),
    /// A change that was begun: whether it was done is not known.
    Unconfirmed(String),
    /// It does not know this kind of request.
    Unsupported(String),
    /// Something went wrong there.
    Failed(String),
    /// What it says makes no sense.
    Nonsense(String),
}
