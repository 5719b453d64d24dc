//! A shard with this door, in virtual time, spoken to in frames.

mod credit;
mod greeting;
mod hostile;
mod receiving;
mod sending;
mod world;
