//! What lies between the KPs and the broker: a link for each KP, which loses and delays messages. `line` decides, `link` acts.

mod frame;
mod line;
mod link;
#[cfg(test)]
mod tests;

pub(super) use line::Door;
pub(super) use link::{Air, Link, Traffic};
