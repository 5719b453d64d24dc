#![doc = include_str!("../README.md")]

mod admission;
mod change;
mod counts;
mod crew;
mod desk;
mod evaluator;
mod http;
mod keep;
pub mod limits;
mod machine;
mod memory;
mod outlet;
mod panics;
mod parsers;
mod places;
mod porter;
mod progress;
mod reader;
mod render;
mod sepa;
mod server;
mod service;
mod ssap;
mod supervisor;
mod vault;
pub mod watch;
mod watcher;
mod writer_thread;

/// The pure queue in which requests wait, for those who want to run it in virtual time.
pub mod request_queue {
    pub use crate::machine::order::{Arrival, Job, Servers, Shape, Taken};
    pub use crate::machine::request_queue::{Caller, Entered, RequestQueue};
}

pub use admission::{Admission, Line, Policy};
pub use change::Change;
pub use counts::OUTCOMES;
pub use keep::{Keep, Kept};
pub use machine::condition::Condition;
pub use machine::notification::Told;
pub use machine::request::{Answer, Answered, Asker, Begun, Form, Refused, Seen, Source, Subscribed, Watched};
pub use machine::request_queue::Caller;
pub use memory::Budget;
pub use outlet::{Ask, Inlet, Outlet, outlet};
pub use panics::{Part, Probe};
pub use parsers::Reading;
pub use porter::{Checked, Everybody, Porter, Rule};
pub use server::{Binds, Bound, Doors, bind};
pub use service::{Handle, Options, Service, Waiting};
pub use tidegate_control::admission::Class;
pub use tidegate_store::{StoreConfig, StoreReport};
pub use vault::{Image, Opening, Restored, Vault};
