#![doc = include_str!("../README.md")]

mod access_policy;
mod admission;
mod answer_stream;
mod attendance;
mod change;
mod combining;
mod counts;
mod crew;
mod drafter;
mod evaluator;
mod handle;
mod http;
mod kps;
pub mod limits;
mod machine;
mod memory;
mod notifications;
mod panics;
mod parsers;
mod persistence;
mod places;
mod pressure;
mod progress;
mod pulse;
mod reader;
mod render;
mod sepa;
mod server;
mod service;
mod service_endpoints;
mod shared_state;
mod space_store;
mod ssap;
mod streamer;
mod supervisor;
pub mod watch;
mod watcher;
mod worker;
mod writer_thread;

/// The pure queue in which requests wait, for those who want to run it in virtual time.
pub mod request_queue {
    pub use crate::machine::order::{Arrival, Job, KpPlace, Servers, Shape, Taken, WaitTerms};
    pub use crate::machine::request_queue::{Caller, EndedWait, Entered, KeptPlace, RequestQueue};
}

pub use access_policy::{AccessMode, AccessPolicy, Checked, Everybody, KpClass, KpIdentity, TokenHolder, TokenVerdict};
pub use admission::{ClassAdmission, Policy, PoolRule, SpaceAdmission};
pub use answer_stream::AnswerStream;
pub use change::WrittenChange;
pub use counts::OUTCOMES;
pub use handle::{PendingReply, SpaceHandle};
pub use kps::{KpCounts, KpReport};
pub use machine::condition::Condition;
pub use machine::delegation::{ClientDelegation, DelegationConfig, DelegationCounts};
pub use machine::notification::SpaceNotification;
pub use machine::request::{
    AnswerDelivery, AnswerSource, Begun, DeclinedBy, Form, Refused, RequestOrigin, ResponseBody, ResumePoint,
    SpaceResponse, Subscribed, Watched,
};
pub use machine::request_limits::{LimitOwner, RequestLimit};
pub use machine::request_queue::Caller;
pub use machine::standing::{KpRole, KpStanding};
pub use machine::yielding::SpacePressure;
pub use memory::MemoryBudget;
pub use notifications::{NotificationInlet, NotificationOutlet, SpaceRequest, outlet};
pub use panics::{Part, Probe};
pub use parsers::TextReading;
pub use persistence::{DurableChange, Persistence};
pub use pressure::PressureSource;
pub use server::{BoundSockets, SpaceAddresses, SpaceListeners, bind};
pub use service::{Service, ServiceOptions};
pub use service_endpoints::ServiceEndpoint;
pub use space_store::{RestoredSpace, SpaceImage, SpaceOpening, SpaceStore, restore_space};
pub use streamer::LongAnswerConfig;
pub use tidegate_control::admission::Class;
pub use tidegate_http::TlsSource;
pub use tidegate_store::{StoreConfig, StoreReport};
