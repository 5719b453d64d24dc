#![doc = include_str!("../README.md")]

mod ask;
mod cache;
mod counts;
mod desk;
mod http;
mod keep;
pub mod limits;
mod outlet;
mod owner;
mod porter;
mod reader;
mod render;
mod sepa;
mod server;
mod service;
mod ssap;
pub mod watch;

pub use ask::{Answer, Answered, Ask, Asker, Form, Refused, Source, Watched};
pub use counts::OUTCOMES;
pub use keep::{Keep, Kept};
pub use outlet::{Inlet, Outlet, Told, outlet};
pub use porter::{Everybody, Porter, Rule};
pub use server::{Binds, Bound, Doors, bind};
pub use service::{Handle, Service, Waiting};
