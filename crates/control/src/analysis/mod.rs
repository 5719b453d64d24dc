//! What the control laws do in the long run, on paper.
//!
//! Two models. [`aimd`] follows one client whose check timeout grows by a step while nothing is lost and is divided when
//! something was: how long the timeout gets, how often a check finds a loss, how long a lost update stays hidden.
//! [`poisson`] follows the broker that all these clients ask: how likely a window of time holds more requests than it
//! can serve, and how far apart the clients must keep their checks to make that unlikely.
//!
//! Formulas only. The module knows no client, no queue, no clock and no chance; estimating the rates it is fed with is
//! the pacer's work, acting on the answers is admission's. Unlike the rest of the crate it speaks of time as seconds in
//! `f64` at its surface too, because its callers are in the middle of a formula. Every function is total: whatever the
//! arguments, the answer is finite, in range and found in a bounded number of steps.

pub mod aimd;
mod mean_field;
mod normal;
pub mod poisson;

#[cfg(test)]
mod exact;

pub use aimd::{Aimd, AimdEstimates};
