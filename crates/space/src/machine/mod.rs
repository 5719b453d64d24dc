//! The smart space as a state machine: what is decided, and nothing that is done. Whoever drives it says what happened and
//! what time it is, and asks what to do next; sockets, threads, locks and clocks are the driver's, in the files around
//! this folder. `xtask/tests/architecture.rs` keeps it that way, so that a simulation and the laboratory run what runs in
//! the field.
//!
//! There are two machines, because one thread may hold the first only for a moment and the other works for long on the
//! second: the requests that wait ([`front_desk`]), and the owner of the data ([`writer`]).

pub(crate) mod cache;
pub(crate) mod condition;
pub(crate) mod delegation;
pub(crate) mod front_desk;
pub(crate) mod notification;
#[cfg(test)]
mod oath;
pub(crate) mod order;
pub(crate) mod piece_turns;
pub(crate) mod query_name;
pub(crate) mod request;
pub(crate) mod request_limits;
pub(crate) mod request_queue;
mod rights;
pub(crate) mod running_queries;
#[cfg(test)]
pub(crate) mod simulation;
pub(crate) mod standing;
pub(crate) mod subscription_registry;
pub(crate) mod task;
pub(crate) mod writer;
pub(crate) mod yielding;
