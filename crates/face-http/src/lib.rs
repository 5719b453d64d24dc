#![doc = include_str!("../README.md")]
#![allow(missing_docs, reason = "a field whose name says it has no other text")]

mod answer;
mod body;
mod door;
mod event;
mod first;
mod head;
mod json;
mod limits;
mod link;
mod pages;
mod request;
mod stream;
mod target;

pub use answer::refusal;
pub use door::{Arrival, Entered, HttpDoor, HttpStats, Waits};
pub use first::{First, HttpHello, Shown, first};
pub use link::HttpLink;
pub use pages::Pages;
