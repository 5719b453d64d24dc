//! What follows from a configuration: how many clients, what is the least possible, how large a run is.

use tidegate_control::analysis::aimd::step_for_rate;

use super::config::{Count, Polling};

/// What a session watches: some rows in a tree, bytes.
const SESSION_ROWS: u64 = 1200;

impl Polling {
    /// m.
    pub fn clients_count(&self) -> u32 {
        match self.clients.count {
            Count::Clients(count) => count,
            Count::Load(load) => (load * self.host.capacity * self.clients.interval).round() as u32,
        }
    }

    /// The least share of stale copies that any check schedule within the capacity can reach (EVAL §2): see `bound`. Not
    /// for slides.
    pub fn stale_bound(&self) -> f64 {
        let interval = f64::from(self.clients_count()) / self.host.capacity;
        super::bound::least_stale(self.updates.rate, self.updates.spread, self.link.loss, interval)
    }

    /// A third of the measured time, for a quick look. The warm-up stays: a result may be noisy, but not of another state.
    /// A burst ends by itself, and after a trouble there must be time to see a recovery.
    pub(crate) fn shorten(&mut self) {
        if !self.clients.once && self.host.change_ends() == 0.0 {
            self.duration = self.warm_up + (self.duration - self.warm_up) / 3.0;
        }
    }

    /// δ of AST in seconds, so that the mean timeout is t0 with radio losses alone.
    pub fn step_matched(&self) -> f64 {
        let losses = self.updates.rate * self.link.loss;
        step_for_rate(losses, 1.0 / self.clients.interval, self.clients.alpha).clamp(1e-6, 3600.0)
    }

    /// Bytes that a run will need, about.
    pub fn memory_estimate(&self) -> u64 {
        let is_session = self.clients.algorithm.is_session() || self.clients.others_algorithm.is_session();
        let rows = if is_session { SESSION_ROWS } else { 0 };
        let each = if is_session { super::BYTES_PER_SESSION } else { super::BYTES_PER_CLIENT };
        u64::from(self.clients_count()) * (each + rows)
    }
}
