//! What happens at this door by itself: what is to be said again, who is forgotten, what was counted.

use tidegate_control::Timestamp;
use tidegate_core::event::Why;
use tidegate_core::{ConnId, Shard};

use super::CoapEndpoint;
use crate::block;
use crate::frame;
use crate::limits::PING_AFTER;
use crate::link::{CoapLink, LinkCounts};
use crate::message::{MessageKind, write_empty};

impl CoapEndpoint {
    /// The address is given up: whatever it observed ends, as if its connection were lost.
    pub(super) fn leave(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) {
        self.collect(shard, conn);
        self.forget(conn);
        shard.handle_closed(conn, Why::KeepAlive, now);
    }

    pub(super) fn forget(&mut self, conn: ConnId) {
        if let Some(peer) = self.peers.remove(conn) {
            self.timers.remove(&(peer.deadline, conn));
            self.crowd.leave(peer.address.ip());
            self.stats.observers -= u64::from(peer.observers);
            self.left.push(peer.address);
        }
    }

    /// Counts what a link has counted.
    pub(super) fn collect(&mut self, shard: &mut Shard, conn: ConnId) {
        let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
        let LinkCounts { repeated, retransmitted, given_up, conflated, dropped } = link.take_counts();
        let stats = &mut self.stats;
        stats.repeated += repeated;
        stats.retransmitted += retransmitted;
        stats.given_up += given_up;
        stats.conflated += conflated;
        stats.dropped += dropped;
    }

    /// Something of a link may have changed: its next deadline, its observers.
    pub(super) fn settle(&mut self, shard: &mut Shard, conn: ConnId) {
        self.collect(shard, conn);
        let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
        link.rest();
        let (deadline, observers) = (link.deadline(), link.observations.len() as u32);
        let Some(peer) = self.peers.get_mut(conn) else { return };
        self.stats.observers = self.stats.observers + u64::from(observers) - u64::from(peer.observers);
        peer.observers = observers;
        if peer.deadline != deadline {
            self.timers.remove(&(peer.deadline, conn));
        }
        peer.deadline = deadline;
        // A timer that was taken out is set again even if its time is the same.
        self.timers.insert((deadline, conn));
    }
}

/// False if the address is given up.
pub(super) fn tick(shard: &mut Shard, conn: ConnId, now: Timestamp) -> bool {
    let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return false };
    if link.confirmables.repeat(&mut link.pending.outgoing, link.rule, now) || link.is_idle(now) {
        return false;
    }
    link.forget_old(now);
    if link.pending.assembly.as_ref().is_some_and(|assembly| assembly.ends_at() <= now) {
        block::forget(&mut link.pending.assembly, &mut link.charge);
    }
    link.acknowledge_late(now);
    link.notify(now);
    let is_silent = now.since(link.heard_at) >= PING_AFTER && !link.observations.is_empty();
    if is_silent && link.confirmables.is_empty() {
        let number = link.message_number();
        let ping = write_empty(MessageKind::Confirmable, number);
        link.confirmables.push(number, None, &ping, (&mut link.chance, link.rule), now);
        frame::put_datagram(&ping, &mut link.pending.outgoing);
    }
    true
}
