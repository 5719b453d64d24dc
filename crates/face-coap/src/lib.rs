#![no_std]
#![doc = include_str!("../README.md")]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod block;
mod confirm;
mod content;
mod crowd;
mod echo;
mod endpoint;
mod frame;
mod limits;
mod link;
mod message;
mod observe;
mod peers;
mod request;
mod rto;
mod scarce;

pub use endpoint::{CoapEndpoint, CoapStats};
pub use rto::RtoRule;
