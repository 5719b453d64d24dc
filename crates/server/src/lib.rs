//! The process: what a broker with all its doors is made of, from a configuration to its end.
//!
//! Settings become plans ([`plan`]), plans become threads ([`serve`]), and what changes while they run is a reload
//! ([`running`]). Nothing here decides how a broker behaves: that is in the crates below. What a person types is the
//! command line's, which drives this library; whoever wants a broker inside another program can do the same.
#![allow(
    missing_docs,
    reason = "only the command line uses it, and most of it names settings that have their own text"
)]

pub mod authority;
pub mod backup;
pub mod bind;
pub mod bridges;
pub mod certificate;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod config;
pub mod descriptors;
pub mod disk_free;
pub mod door_certificates;
pub mod fetch;
pub mod http_authority;
pub mod log;
pub mod mapping;
pub mod own_clients;
pub mod panics;
pub mod plan;
pub mod rule_file;
pub mod running;
pub mod security;
pub mod serve;
pub mod sinks;
pub mod space_service;
pub mod supervisor;
pub mod tokens;
pub mod user_file;
