//! Who comes in: clients by CONNECT, and whoever publishes without that.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::address::place_of;
use tidegate_core::access::Identity;
use tidegate_core::datagrams::{Admission, Chance, NotAdmitted};
use tidegate_core::event::Why;
use tidegate_core::{ClientWill, ConnId, Hello, Shard};
use tidegate_wire_mqtt::topic::check_name;

use super::{Peer, SnEndpoint};
use crate::greet::{Greeting, Next, Will};
use crate::limits::{
    PEERS_MAX, PEERS_PER_NETWORK_MAX, SENDERS_MAX, SENDERS_PER_NETWORK_MAX, UNPROVED_MAX, WAITING_MAX,
};
use crate::link::{LinkKind, Presence, SnLink};
use crate::packet::{Packet, ReturnCode};
use crate::request;

impl SnEndpoint {
    /// Somebody wants to come in.
    pub(super) fn on_connect(
        &mut self,
        shard: &mut Shard,
        from: SocketAddr,
        (greeting, protocol, has_will): (Greeting, u8, bool),
        admission: &mut dyn Admission,
        now: Timestamp,
    ) {
        // There is one version (section 5.3.8), and nobody without a name.
        if protocol != 1 || greeting.client_id.is_empty() {
            self.stats.refused += 1;
            return self.reply(from, Packet::ConnAck(ReturnCode::NotSupported));
        }
        if has_will {
            let gone = self.greetings.ask(from, greeting, now);
            self.left.extend(gone);
            return self.reply(from, Packet::WillTopicReq);
        }
        if self.greetings.forget(from) {
            self.left.push(from);
        }
        self.let_in(shard, from, greeting, admission, now);
    }

    pub(super) fn follow(
        &mut self,
        shard: &mut Shard,
        from: SocketAddr,
        next: Next,
        admission: &mut dyn Admission,
        now: Timestamp,
    ) {
        match next {
            Next::Stray => self.stats.stray += 1,
            Next::Ask(packet) => self.reply(from, packet),
            Next::Come(greeting) => {
                self.left.push(from);
                self.let_in(shard, from, greeting, admission, now);
            }
        }
    }

    fn let_in(
        &mut self,
        shard: &mut Shard,
        from: SocketAddr,
        greeting: Greeting,
        admission: &mut dyn Admission,
        now: Timestamp,
    ) {
        let limits = shard.packet_limits();
        if greeting.will.as_ref().is_some_and(|will| check_name(will.topic(), limits).is_err()) {
            self.stats.refused += 1;
            return self.reply(from, Packet::ConnAck(ReturnCode::NotSupported));
        }
        if let Some(conn) = self.peers.get(&from).map(|peer| peer.conn) {
            let is_same = shard.client_id(conn) == Some(&greeting.client_id) && !shard.is_closing(conn);
            let is_fresh = shard.face_mut::<SnLink>(conn).is_some_and(|(link, _)| link.is_fresh);
            // Awake again, or it did not hear our answer: it goes on with what it has.
            if is_same && (!greeting.is_clean || is_fresh) {
                return self.go_on(shard, (conn, from), greeting, now);
            }
            self.leave(shard, conn, Why::TakenOver, now);
        }
        let is_here = from.ip().is_loopback();
        let crowd = self.by_network.get(&place_of(from.ip())).copied().unwrap_or_default().clients;
        let is_full = self.peers.len() - self.senders >= PEERS_MAX || crowd >= PEERS_PER_NETWORK_MAX;
        let full = if is_full { Err(NotAdmitted::Full) } else { Ok(()) };
        let identity = match full.and_then(|()| admission.admit(from, &greeting.client_id)) {
            Ok(identity) => identity,
            Err(why) => {
                self.stats.refused += 1;
                let is_full = why == NotAdmitted::Full;
                let code = if is_full { ReturnCode::Congestion } else { ReturnCode::NotSupported };
                return self.reply(from, Packet::ConnAck(code));
            }
        };
        let presence = Presence::Active(greeting.keep_alive);
        let mut link = self.link(shard, (LinkKind::Client, presence), is_here, now);
        link.set_will(greeting.will.clone());
        let will = greeting.will.as_ref().map(Will::as_core);
        let name = greeting.client_id.as_str();
        let expiry = if greeting.is_clean { Duration::ZERO } else { shard.settings().session_expiry_v3 };
        let hello = hello((name, identity), link, (greeting.is_clean, expiry), will);
        if self.unproved.len() >= UNPROVED_MAX
            && let Some(&(_, oldest)) = self.unproved.first().filter(|_| !is_here)
        {
            // Whoever made up more addresses than anybody could answer for must not keep others out.
            self.leave(shard, oldest, Why::KeepAlive, now);
        }
        match shard.connect(hello, now) {
            Some(conn) => self.note_peer(shard, (from, conn), LinkKind::Client, now),
            None => self.reply(from, Packet::ConnAck(ReturnCode::Congestion)),
        }
    }

    /// A client that is connected connects: its session and its messages stay as they are.
    fn go_on(&mut self, shard: &mut Shard, (conn, from): (ConnId, SocketAddr), greeting: Greeting, now: Timestamp) {
        let mut code = ReturnCode::Accepted;
        if greeting.will.is_some() {
            code = request::change_will(shard, conn, greeting.will);
        }
        if let Some((link, _)) = shard.face_mut::<SnLink>(conn) {
            link.presence = Presence::Active(greeting.keep_alive);
            // It may have been switched off and on.
            link.topics.doubt_all();
            link.outbound.hurry(now);
            link.wants_write = true;
        }
        self.reply(from, Packet::ConnAck(code));
        self.settle(shard, conn);
    }

    /// Who publishes without being connected, as a client of the core: one for each address, whatever its ports.
    pub(super) fn sender(
        &mut self,
        shard: &mut Shard,
        from: SocketAddr,
        admission: &mut dyn Admission,
        now: Timestamp,
    ) -> Option<ConnId> {
        let place = SocketAddr::new(from.ip(), 0);
        if let Some(peer) = self.peers.get(&place) {
            return Some(peer.conn);
        }
        let crowd = self.by_network.get(&place_of(from.ip())).copied().unwrap_or_default().senders;
        let is_full = self.senders >= SENDERS_MAX || crowd >= SENDERS_PER_NETWORK_MAX;
        let full = if is_full { Err(NotAdmitted::Full) } else { Ok(()) };
        let name = Self::sender_id(from.ip());
        let Ok(identity) = full.and_then(|()| admission.admit(place, &name)) else {
            self.stats.refused += 1;
            return None;
        };
        let link = self.link(shard, (LinkKind::Sender, Presence::Active(Duration::ZERO)), false, now);
        let conn = shard.connect(hello((&name, identity), link, (true, Duration::ZERO), None), now)?;
        self.note_peer(shard, (place, conn), LinkKind::Sender, now);
        Some(conn)
    }

    fn link(
        &mut self,
        shard: &Shard,
        (kind, presence): (LinkKind, Presence),
        is_proved: bool,
        now: Timestamp,
    ) -> SnLink {
        let chance = Chance::new(self.chance.draw());
        SnLink::new(kind, presence, Arc::clone(&self.predefined), shard.memory(), (chance, is_proved), now)
    }

    fn note_peer(&mut self, shard: &mut Shard, (address, conn): (SocketAddr, ConnId), kind: LinkKind, now: Timestamp) {
        let is_sender = kind == LinkKind::Sender;
        self.senders += usize::from(is_sender);
        if !address.ip().is_loopback() {
            let count = self.by_network.entry(place_of(address.ip())).or_default();
            *(if is_sender { &mut count.senders } else { &mut count.clients }) += 1;
            if !is_sender {
                self.unproved.insert((now, conn));
            }
        }
        let peer = Peer { conn, met_at: now, deadline: Timestamp::MAX, is_sender, is_asleep: false };
        self.peers.insert(address, peer);
        self.addresses.insert(conn, address);
        self.settle(shard, conn);
    }
}

fn hello<'a>(
    (client_id, identity): (&'a str, Identity),
    link: SnLink,
    (is_clean, expiry): (bool, Duration),
    will: Option<ClientWill<'a>>,
) -> Hello<'a> {
    Hello {
        client_id,
        identity,
        face: Box::new(link),
        objection: None,
        is_clean,
        expiry,
        // A datagram's sender may sleep: the face knows how long it may be silent.
        keep_alive: 0,
        // One message at a time (section 6.6).
        window: 1,
        // More than wait for the core: the face says no before the core has to.
        inbound_max: WAITING_MAX as u16 * 4,
        will,
        bytes: 0,
    }
}
