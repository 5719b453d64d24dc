//! What the tests of all crates share. Only tests depend on this crate, and it depends on no other of the workspace: it
//! knows the program from outside, as a user does.

pub mod skip;
