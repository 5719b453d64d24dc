//! The broker's behaviour in virtual time, without sockets: what a client sends, what it gets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod absent;
mod activity;
mod answers;
mod backoff;
mod backoff_abuse;
mod bounds;
mod bursts;
mod claims;
mod class_caps;
mod conflation;
mod conformance_311;
mod conformance_connect;
mod conformance_publish;
mod conformance_subscribe;
mod durable;
mod faults_control;
mod faults_overload;
mod faults_patience;
mod faults_qos;
mod faults_session;
mod faults_time;
mod faults_wire;
mod got;
mod hints;
mod ledger;
mod levels;
mod model;
mod net;
mod paging;
mod pressing;
mod priority;
mod priority_policies;
mod promises;
mod qos;
mod raw;
mod receivers;
mod reports;
mod retained;
mod session;
mod shards;
mod shelf;
mod subscribing;
mod taps;
mod turned_away;
