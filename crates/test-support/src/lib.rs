//! What the tests of all crates share. Only tests depend on this crate, and it depends on no other of the workspace: it
//! knows the program from outside, as a user does. A step that cannot be done has failed the test, so everything here
//! panics with the reason.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "a step that cannot be done has failed the test")]

mod broker;
mod dice;
mod http;
mod launch;
mod other_broker;
mod program;
pub mod skip;

pub use broker::{Broker, Client, PATIENCE};
pub use dice::Dice;
pub use http::{body, code, exchange};
pub use launch::{Launch, add_user};
pub use other_broker::{Mosquitto, connect_packet, free_port, raw_connection, stranger};
pub use program::{ensure, path, text, tidegate};
