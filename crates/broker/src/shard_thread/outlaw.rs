//! Who has to go, and who is not let in again.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::access::Identity;
use tidegate_wire_mqtt::ReasonCode;

use super::ShardThread;
use crate::bans::Banned;

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
