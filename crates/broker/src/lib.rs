//! The process around the core.

pub mod authenticate;
pub mod config;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_core::access::Policy;
use tidegate_core::event::Stats;

use authenticate::Authenticator;
use config::{Config, ListenerKind};

/// A running broker.
#[derive(Debug)]
pub struct Broker;

impl Broker {
    /// Binds every listener (an error names address and listener) and starts the threads.
    pub fn start(config: Config, authenticator: Arc<dyn Authenticator>, policy: Arc<dyn Policy>) -> io::Result<Self> {
        let _ = (config, authenticator, policy);
        todo!()
    }

    /// Where it listens, with real ports.
    pub fn addresses(&self) -> Vec<(ListenerKind, SocketAddr)> {
        todo!()
    }

    /// New users, rules, settings and certificates; no valid client is dropped. Listeners stay as they are.
    pub fn reload(&self, config: &Config, authenticator: Arc<dyn Authenticator>, policy: Arc<dyn Policy>) -> io::Result<()> {
        let _ = (config, authenticator, policy);
        todo!()
    }

    /// Counters, summed over shards.
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// Drains: no new connections, DISCONNECT 0x8B to all, outboxes flushed (bounded by the configured time), threads ended.
    pub fn shutdown(self) {
        todo!()
    }
}
