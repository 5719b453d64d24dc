//! A batch in the words of its receiver. Pure: told messages, says bytes.

pub mod influx;
pub mod webhook;
