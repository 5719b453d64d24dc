//! Who has to go, and who is not let in again.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::access::Identity;
use tidegate_wire_mqtt::{ReasonCode, Version, version_of_connect};

use super::ShardThread;
use crate::bans::Banned;
use crate::first_packet::refusal_until;
use crate::handshake::refuse_request;
use crate::inbox::lock;
use crate::listener_counts::ListenerRefusal;
use crate::thread_message::Handover;

impl ShardThread {
    /// Ends the connections of all whom a ban concerns.
    pub(super) fn expel(&mut self, whom: &Banned) {
        self.shard.handle_expel(
            |client_id, identity| {
                let peer = identity.peer.parse::<SocketAddr>();
                peer.is_ok_and(|peer| whom.concerns(client_id, identity.user.as_deref(), peer.ip()))
            },
            ReasonCode::AdministrativeAction,
            self.now,
        );
    }

    /// Whether somebody who is on the way in was banned meanwhile: a ban ends the connections that there are, and this one was
    /// none yet. None: it was, and is sent away.
    pub(super) fn unless_banned(&mut self, handover: Handover) -> Option<Handover> {
        let Handover { client_id, identity, peer, .. } = &handover;
        if identity.is_own() {
            return Some(handover);
        }
        let left = lock(&self.shared.bans).find(client_id, identity.user.as_deref(), peer.ip(), self.now);
        let Some(left) = left else { return Some(handover) };
        handover.listener.counts.refuse(ListenerRefusal::Banned);
        let answer = if let Some(hello) = &handover.http {
            refuse_request(hello, ReasonCode::Banned, Some(("banned", left)))
        } else if handover.amqp.is_some() {
            tidegate_face_amqp::refusal(ReasonCode::Banned, "banned", Some(left))
        } else {
            let version = version_of_connect(&handover.connect).unwrap_or(Version::V311);
            refusal_until(version, ReasonCode::Banned, "banned", left)
        };
        self.send_away(handover, &answer);
        None
    }

    /// A publisher that does not listen to reason, and not those who share its user: its name, of its user or where it
    /// comes from.
    pub(super) fn ban(&self, client_id: &str, identity: &Identity, time: Duration) {
        let peer = identity.peer.parse::<SocketAddr>().map(|peer| peer.ip());
        let whom = match (&identity.user, peer) {
            (Some(user), _) => Banned::ClientOf(client_id.to_owned(), user.to_string()),
            (None, Ok(ip)) => Banned::client_near(client_id, ip),
            (None, Err(_)) => Banned::Client(client_id.to_owned()),
        };
        // Nobody is told of it, so nobody waits for the disk.
        let _ = self.shared.ban(whom, time, "published too fast for too long", self.now);
    }
}
