//! The admin API: HTTP on a thread of its own, beside the broker and never in its way.
//!
//! It asks the shards by letter (`tidegate_broker::ask`) and waits for answers; a shard never waits for it. Everything is
//! bounded (`limits`): connections, time, bodies, rows, walks over all clients, password checks. Without users it answers
//! to this machine only; `guard` has the rules. Answers are JSON, problems are RFC 9457, `/metrics` is OpenMetrics.
//!
//! It decides nothing: reload and drain are the process's own, behind [`ProcessControl`].

mod activity;
mod alarms;
mod ask;
mod audit;
mod body;
mod bridges;
mod client_history;
mod clients;
mod cluster;
mod connection_table;
mod control;
mod demo;
mod entrance;
mod events;
mod exposition;
mod guard;
mod history;
mod kps;
mod limits;
mod live;
mod metrics;
#[cfg(test)]
mod metrics_check;
mod metrics_parts;
mod mqtt;
mod openapi;
mod otlp;
mod page;
mod password;
mod post;
mod problem;
mod process;
mod process_control;
mod routes;
mod server;
mod session;
mod sinks;
mod situation;
mod space;
mod state;
mod status;
mod system;
mod tokens;
mod topics;
mod trace;
mod users;
mod view;
mod watch;
mod webhook;
mod why;

pub use cluster::{ClusterReport, ClusterRole};
pub use otlp::{Otlp, collector};
pub use post::HttpTarget;
pub use process_control::{
    AccessOverview, BridgeReport, Certificate, Demo, ListenerState, ListenerStatus, ProcessControl, Reloaded, Role,
    Roles, SettingInForce, SinkReport, TokenOverview, TokenWish, UserChange, UserDirectory,
};
pub use server::{Admin, AdminListeners};
pub use tidegate_http::TlsSource;
pub use webhook::receiver as alarm_receiver;
