//! A shard with this door, in virtual time, spoken to in frames.

mod bounds;
mod credit;
mod greeting;
mod hostile;
mod lasting;
mod receiving;
mod sending;
mod world;
