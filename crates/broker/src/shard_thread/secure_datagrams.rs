//! CoAP over DTLS: another socket for datagrams, with sessions before what is spoken. As at the plain one the first thread reads
//! it, and hands each datagram to the shard that has the session of its address; every thread writes to it. Handshakes and records
//! are decided by `tidegate_dtls`, what is said in them by `tidegate_face_coap` and the core.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, is_own_user};
use tidegate_core::datagrams::{Admission, DatagramEndpoint, NotAdmitted};
use tidegate_core::{ConnId, shard_of};
use tidegate_dtls::{DtlsEndpoint, DtlsEvent, DtlsPeer, DtlsStats, SESSION_BYTES};
use tidegate_face_coap::{CoapEndpoint, CoapStats};
use tracing::error;

use super::{ShardThread, token};
use crate::authenticate::Credentials;
use crate::chance::Chance;
use crate::inbox::lock;
use crate::limits::{DATAGRAM_BYTES_MAX, DATAGRAMS_PER_TURN_MAX, DATAGRAMS_UNDER_WAY_MAX};
use crate::listener::OpenListener;
use crate::listener_counts::ListenerRefusal;
use crate::permit::{Permit, SocketPlaces};
use crate::shared_state::SharedState;
use crate::thread_message::{Rules, ThreadMessage};

/// The door of one shard.
#[derive(Debug)]
pub(super) struct SecureDoor {
    listener: Arc<OpenListener>,
    socket: Arc<UdpSocket>,
    /// The same socket, where its being readable is told; on the first thread only.
    _told: Option<mio::net::UdpSocket>,
    dtls: DtlsEndpoint,
    coap: CoapEndpoint,
    /// The places of addresses among all connections.
    places: BTreeMap<SocketAddr, SocketPlaces>,
    /// There may be something to read.
    is_ready: bool,
    /// When there was nothing to read.
    dry_at: Timestamp,
    /// What was last shown of its counters.
    shown: Option<(DtlsStats, CoapStats)>,
}

impl SecureDoor {
    /// When to go on without being told.
    pub(super) fn due(&self) -> Option<Timestamp> {
        if self.is_ready {
            return Some(Timestamp::ZERO);
        }
        [self.dtls.poll_timeout(), self.coap.poll_timeout()].into_iter().flatten().min()
    }

    /// Memory that sessions take.
    pub(super) fn bytes(&self) -> usize {
        self.dtls.len() * SESSION_BYTES
    }
}

/// A datagram on its way to its shard.
#[derive(Debug)]
pub(crate) struct SecureDatagram {
    from: SocketAddr,
    bytes: Box<[u8]>,
    dry_at: Timestamp,
    _permit: Permit,
}

/// Who is let in at this door: the user of a certificate or a key, and whoever would be without a name.
struct SecureAdmission<'a> {
    shared: &'a SharedState,
    rules: &'a Rules,
    listener: &'a OpenListener,
    peer: &'a DtlsPeer,
    now: Timestamp,
    places: Option<SocketPlaces>,
}

impl Admission for SecureAdmission<'_> {
    fn admit(&mut self, from: SocketAddr, client_id: &str) -> Result<Identity, NotAdmitted> {
        let refuse = |why, answer| {
            self.listener.counts.refuse(why);
            Err(answer)
        };
        self.listener.counts.accept();
        let name = match self.peer {
            DtlsPeer::Anonymous => None,
            DtlsPeer::Certificate(name) | DtlsPeer::Key(name) => Some(&**name),
        };
        if lock(&self.shared.bans).find(client_id, name, from.ip(), self.now).is_some() {
            return refuse(ListenerRefusal::Banned, NotAdmitted::Banned);
        }
        let listener = self.listener.name();
        let certificate_name = name.map(str::to_owned);
        // Identifiers are given here, so none is anybody's by name.
        let credentials = Credentials { certificate_name, listener, ..Credentials::default() };
        let authenticator = &self.rules.authenticator;
        let grant = if authenticator.is_slow(&credentials) { None } else { authenticator.login(&credentials).ok() };
        let is_outside = |user: &Arc<str>| !is_own_user(user);
        let Some(grant) = grant.filter(|grant| grant.user.as_ref().is_none_or(is_outside)) else {
            return refuse(ListenerRefusal::NotAuthorized, NotAdmitted::Unknown);
        };
        let of_all = self.shared.connections.take(self.rules.connections_max);
        let (Some(of_all), Some(of_listener)) = (of_all, self.listener.take_place()) else {
            return refuse(ListenerRefusal::Full, NotAdmitted::Full);
        };
        self.places = Some(SocketPlaces::new(of_all, of_listener));
        Ok(Identity {
            user: grant.user,
            peer: from.to_string().into(),
            listener,
            roles: grant.roles,
            claims: grant.claims,
        })
    }
}

impl ShardThread {
    /// From now on CoAP is spoken over DTLS here.
    pub(super) fn open_coaps(&mut self, listener: Arc<OpenListener>, socket: Arc<UdpSocket>) {
        let Some(plan) = listener.dtls_plan() else { return };
        let told =
            if self.index == 0 { self.watch_datagrams(&socket, token::SECURE_DATAGRAMS).map(Some) } else { Ok(None) };
        let told = match told {
            Ok(told) => told,
            Err(error) => {
                let door = listener.name();
                return error!(event = "door_off", door, %error, "this listener cannot be waited for");
            }
        };
        let chance = Chance::new();
        // Sessions have a clock of instants, which shows the time of the shard's.
        let since = Duration::from_nanos(self.now.as_nanos());
        let origin = Instant::now().checked_sub(since).unwrap_or_else(Instant::now);
        let dtls = DtlsEndpoint::new(plan, &chance.secret(), chance.seed(), origin);
        let coap = CoapEndpoint::inside_sessions([(); 4].map(|()| chance.seed()));
        let (places, is_ready, dry_at, shown) = (BTreeMap::new(), false, self.now, None);
        let door = SecureDoor { listener, socket, _told: told, dtls, coap, places, is_ready, dry_at, shown };
        self.coaps = Some(Box::new(door));
    }

    pub(super) fn on_secure_datagrams(&mut self) {
        if let Some(door) = self.coaps.as_mut().filter(|door| !door.is_ready) {
            // Nothing was there a moment ago, however long it is since somebody looked.
            (door.is_ready, door.dry_at) = (true, door.dry_at.max(self.silent_at));
        }
    }

    /// As many datagrams as one turn allows.
    pub(super) fn read_secure_datagrams(&mut self) {
        if self.coaps.as_ref().is_none_or(|door| !door.is_ready) {
            return;
        }
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            let Some(door) = &mut self.coaps else { return };
            if self.draining.is_some() {
                door.is_ready = false;
                return;
            }
            match door.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let dry_at = door.dry_at;
                    // One that may have been cut is none.
                    let length = if length < DATAGRAM_BYTES_MAX { length } else { 0 };
                    self.route_secure_datagram(from, &buffer[..length], dry_at);
                }
                // Somebody told us that nobody is at an address that was written to: nothing about what there is to read.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => {
                    (door.is_ready, door.dry_at) = (false, self.now);
                    return;
                }
            }
        }
    }

    fn route_secure_datagram(&mut self, from: SocketAddr, bytes: &[u8], dry_at: Timestamp) {
        let shards = self.shared.inboxes.len();
        let to = match &self.coaps {
            Some(door) if shards > 1 => shard_of(&door.coap.id_of(from), shards),
            _ => 0,
        };
        if to == self.index {
            return self.handle_secure_datagram(from, bytes, dry_at);
        }
        // What finds no room is lost, as datagrams may be; its sender will say it again.
        let Some(permit) = self.shared.datagrams.take(DATAGRAMS_UNDER_WAY_MAX) else {
            if let Some(door) = &self.coaps {
                door.listener.counts.refuse(ListenerRefusal::Busy);
            }
            return;
        };
        let datagram = SecureDatagram { from, bytes: bytes.into(), dry_at, _permit: permit };
        let _ = self.shared.inboxes[to].send(ThreadMessage::SecureDatagram(Box::new(datagram)));
    }

    pub(super) fn take_secure_datagram(&mut self, datagram: &SecureDatagram) {
        self.handle_secure_datagram(datagram.from, &datagram.bytes, datagram.dry_at);
    }

    fn handle_secure_datagram(&mut self, from: SocketAddr, bytes: &[u8], dry_at: Timestamp) {
        // As before bytes of a stream: whoever sent this may have acted on an answer of another shard.
        self.take_batches();
        let Some(door) = &mut self.coaps else { return };
        door.dtls.handle_datagram(from, bytes, self.now);
        self.follow_sessions(dry_at);
    }

    /// What the sessions want done.
    fn follow_sessions(&mut self, dry_at: Timestamp) {
        while let Some(door) = &mut self.coaps
            && let Some(event) = door.dtls.poll_event()
        {
            match event {
                DtlsEvent::Send(to, bytes) => {
                    let _ = door.socket.send_to(&bytes, to);
                }
                DtlsEvent::Data(from, bytes) => self.hear_secure(from, &bytes, dry_at),
                DtlsEvent::Refused(_) => door.listener.counts.refuse(ListenerRefusal::Tls),
                DtlsEvent::Ended(address) => door.coap.lose(&mut self.shard, address, self.now),
            }
        }
    }

    fn hear_secure(&mut self, from: SocketAddr, bytes: &[u8], dry_at: Timestamp) {
        let Some(door) = &mut self.coaps else { return };
        let Some(peer) = door.dtls.peer(from) else { return };
        let mut admission = SecureAdmission {
            shared: &self.shared,
            rules: &self.rules,
            listener: &door.listener,
            peer,
            now: self.now,
            places: None,
        };
        door.coap.handle_datagram(&mut self.shard, (from, bytes), &mut admission, dry_at, self.now);
        if let Some(places) = admission.places.filter(|_| door.coap.knows(from)) {
            door.places.insert(from, places);
        }
        let may_speak = self.shared.may_speak();
        while let Some((to, bytes)) = door.coap.poll_reply() {
            if may_speak {
                door.dtls.send(to, &bytes, self.now);
            }
        }
    }

    /// Messages that are to be sent again, sessions and addresses that are silent for too long.
    pub(super) fn turn_secure_datagrams(&mut self) {
        let Some(door) = &mut self.coaps else { return };
        door.coap.turn(&mut self.shard, self.now);
        door.dtls.turn(self.now);
        self.follow_sessions(self.now);
        let Some(door) = &mut self.coaps else { return };
        while let Some(address) = door.coap.poll_left() {
            door.places.remove(&address);
        }
        let stats = (door.dtls.stats(), door.coap.stats());
        if door.shown != Some(stats) {
            door.shown = Some(stats);
            self.shared.extra_metrics.show_dtls(self.index, stats.0);
            self.shared.extra_metrics.show_coap((self.index, door.listener.name()), stats.1);
        }
    }

    /// What a session's peer is to hear. A socket that takes no more loses it, as the network might.
    pub(super) fn write_secure_datagrams(&mut self, id: ConnId) {
        let Some(door) = &mut self.coaps else { return };
        let (dtls, now) = (&mut door.dtls, self.now);
        if door.coap.write(&mut self.shard, id, now, &mut |to, bytes| dtls.send(to, bytes, now)) {
            self.follow_sessions(now);
        }
    }

    /// The core wants it closed, and its session with it. False if it is no connection of this door.
    pub(super) fn close_secure_datagrams(&mut self, id: ConnId) -> bool {
        if self.shared.may_speak() {
            self.write_secure_datagrams(id);
        }
        let Some(door) = &mut self.coaps else { return false };
        let Some(address) = door.coap.address_of(id) else { return false };
        door.coap.close(&mut self.shard, id, self.now);
        door.dtls.close(address);
        self.follow_sessions(self.now);
        true
    }

    /// Certificates, authorities and keys are others from now on.
    pub(super) fn renew_sessions(&mut self) {
        let Some(door) = &mut self.coaps else { return };
        if let Some(plan) = door.listener.dtls_plan() {
            door.dtls.set_plan(&plan);
            self.follow_sessions(self.now);
        }
    }
}
