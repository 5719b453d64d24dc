#![doc = include_str!("../README.md")]

mod admission;
mod ask;
mod cache;
mod change;
mod counts;
mod desk;
mod group;
mod http;
mod keep;
pub mod limits;
mod outlet;
mod owner;
mod pool;
mod porter;
mod reader;
mod render;
mod seats;
mod sepa;
mod server;
mod service;
mod ssap;
mod vault;
pub mod watch;
mod watcher;

pub use admission::{Admission, Line, Policy};
pub use ask::{Answer, Answered, Ask, Asker, Begun, Form, Refused, Seen, Source, Subscribed, Watched};
pub use change::Change;
pub use counts::OUTCOMES;
pub use keep::{Keep, Kept};
pub use outlet::{Inlet, Outlet, Told, outlet};
pub use pool::Caller;
pub use porter::{Checked, Everybody, Porter, Rule};
pub use server::{Binds, Bound, Doors, bind};
pub use service::{Handle, Service, Waiting};
pub use tidegate_store::{StoreConfig, StoreReport};
pub use vault::{Image, Opening, Restored, Vault};
