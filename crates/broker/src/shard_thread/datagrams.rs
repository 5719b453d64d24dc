//! CoAP: one socket for datagrams. The first thread reads it, and hands each datagram to the shard that has the session of its
//! address; every thread writes to it. What they say is decided by `tidegate_face_coap` and the core.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use mio::Interest;
use tidegate_control::Timestamp;
use tidegate_core::access::Identity;
use tidegate_core::{ConnId, shard_of};
use tidegate_face_coap::{Admission, CoapEndpoint, CoapStats, NotAdmitted};

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
pub(super) struct CoapDoor {
    listener: Arc<OpenListener>,
    socket: Arc<UdpSocket>,
    /// The same socket, where its being readable is told; on the first thread only.
    _told: Option<mio::net::UdpSocket>,
    endpoint: CoapEndpoint,
    /// The places of addresses among all connections.
    places: BTreeMap<SocketAddr, SocketPlaces>,
    /// There may be something to read.
    is_ready: bool,
    /// When there was nothing to read.
    dry_at: Timestamp,
    /// What was last shown of its counters.
    shown: Option<CoapStats>,
}

impl CoapDoor {
    /// When to go on without being told.
    pub(super) fn due(&self) -> Option<Timestamp> {
        if self.is_ready { Some(Timestamp::ZERO) } else { self.endpoint.poll_timeout() }
    }
}

/// A datagram on its way to its shard.
#[derive(Debug)]
pub(crate) struct ForwardedDatagram {
    from: SocketAddr,
    bytes: Box<[u8]>,
    dry_at: Timestamp,
    _permit: Permit,
}

/// Who is let in at this door: whoever would be without a name.
struct DoorAdmission<'a> {
    shared: &'a SharedState,
    rules: &'a Rules,
    listener: &'a OpenListener,
    now: Timestamp,
    places: Option<SocketPlaces>,
}

impl Admission for DoorAdmission<'_> {
    fn admit(&mut self, from: SocketAddr) -> Result<Identity, NotAdmitted> {
        let refuse = |why, answer| {
            self.listener.counts.refuse(why);
            Err(answer)
        };
        self.listener.counts.accept();
        let client_id = CoapEndpoint::client_id(from);
        if lock(&self.shared.bans).find(&client_id, None, from.ip(), self.now).is_some() {
            return refuse(ListenerRefusal::Banned, NotAdmitted::Banned);
        }
        let listener = self.listener.name();
        let credentials = Credentials { client_id, listener, ..Credentials::default() };
        let authenticator = &self.rules.authenticator;
        let grant = if authenticator.is_slow(&credentials) { None } else { authenticator.login(&credentials).ok() };
        let Some(grant) = grant else { return refuse(ListenerRefusal::NotAuthorized, NotAdmitted::Unknown) };
        let of_all = self.shared.connections.take(self.rules.connections_max);
        let (Some(of_all), Some(of_listener)) = (of_all, self.listener.take_place()) else {
            return refuse(ListenerRefusal::Full, NotAdmitted::Full);
        };
        self.places = Some(SocketPlaces::new(of_all, of_listener));
        Ok(Identity { user: grant.user, peer: from.to_string().into(), listener, roles: grant.roles })
    }
}

impl ShardThread {
    /// From now on CoAP is spoken here.
    pub(crate) fn open_coap(&mut self, listener: Arc<OpenListener>, socket: Arc<UdpSocket>) -> io::Result<()> {
        let mut told = if self.index == 0 { Some(mio::net::UdpSocket::from_std(socket.try_clone()?)) } else { None };
        if let Some(told) = &mut told {
            self.poll.registry().register(told, token::DATAGRAMS, Interest::READABLE)?;
        }
        let seed = [(); 4].map(|()| Chance::new().seed());
        let (endpoint, places) = (CoapEndpoint::new(seed), BTreeMap::new());
        let (is_ready, dry_at, shown) = (false, self.now, None);
        self.coap =
            Some(Box::new(CoapDoor { listener, socket, _told: told, endpoint, places, is_ready, dry_at, shown }));
        Ok(())
    }

    pub(super) fn on_datagrams(&mut self) {
        if let Some(coap) = &mut self.coap {
            coap.is_ready = true;
        }
    }

    /// As many datagrams as one turn allows.
    pub(super) fn read_datagrams(&mut self) {
        if self.coap.as_ref().is_none_or(|coap| !coap.is_ready) {
            return;
        }
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            let Some(coap) = &mut self.coap else { return };
            if self.draining.is_some() {
                coap.is_ready = false;
                return;
            }
            match coap.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let dry_at = coap.dry_at;
                    // One that may have been cut is none: half of a message must not be published.
                    let length = if length < DATAGRAM_BYTES_MAX { length } else { 0 };
                    self.route_datagram(from, &buffer[..length], dry_at);
                }
                // Somebody told us that nobody is at an address that was written to: nothing about what there is to read.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => {
                    (coap.is_ready, coap.dry_at) = (false, self.now);
                    return;
                }
            }
        }
    }

    fn route_datagram(&mut self, from: SocketAddr, bytes: &[u8], dry_at: Timestamp) {
        let shards = self.shared.inboxes.len();
        let to = if shards == 1 { 0 } else { shard_of(&CoapEndpoint::client_id(from), shards) };
        if to == self.index {
            return self.handle_datagram(from, bytes, dry_at);
        }
        // What finds no room is lost, as datagrams may be; its sender will say it again.
        let Some(permit) = self.shared.datagrams.take(DATAGRAMS_UNDER_WAY_MAX) else {
            if let Some(coap) = &self.coap {
                coap.listener.counts.refuse(ListenerRefusal::Busy);
            }
            return;
        };
        let datagram = ForwardedDatagram { from, bytes: bytes.into(), dry_at, _permit: permit };
        let _ = self.shared.inboxes[to].send(ThreadMessage::Datagram(Box::new(datagram)));
    }

    pub(super) fn take_datagram(&mut self, datagram: &ForwardedDatagram) {
        self.handle_datagram(datagram.from, &datagram.bytes, datagram.dry_at);
    }

    fn handle_datagram(&mut self, from: SocketAddr, bytes: &[u8], dry_at: Timestamp) {
        // As before bytes of a stream: whoever sent this may have acted on an answer of another shard.
        self.take_batches();
        let Some(coap) = &mut self.coap else { return };
        let mut admission = DoorAdmission {
            shared: &self.shared,
            rules: &self.rules,
            listener: &coap.listener,
            now: self.now,
            places: None,
        };
        coap.endpoint.handle_datagram(&mut self.shard, (from, bytes), &mut admission, dry_at, self.now);
        if let Some(places) = admission.places.filter(|_| coap.endpoint.knows(from)) {
            coap.places.insert(from, places);
        }
        while let Some((to, bytes)) = coap.endpoint.poll_reply() {
            let _ = coap.socket.send_to(&bytes, to);
        }
    }

    /// Messages that are to be sent again, addresses that are silent for too long.
    pub(super) fn turn_datagrams(&mut self) {
        let Some(coap) = &mut self.coap else { return };
        coap.endpoint.turn(&mut self.shard, self.now);
        while let Some(address) = coap.endpoint.poll_left() {
            coap.places.remove(&address);
        }
        let stats = coap.endpoint.stats();
        if coap.shown != Some(stats) {
            coap.shown = Some(stats);
            self.shared.extra_metrics.show_coap((self.index, coap.listener.name()), stats);
        }
    }

    /// What a datagram's sender is to hear. A socket that takes no more loses it, as the network might.
    pub(super) fn write_datagrams(&mut self, id: ConnId) {
        let Some(coap) = &mut self.coap else { return };
        let socket = &coap.socket;
        coap.endpoint.write(&mut self.shard, id, self.now, |to, bytes| {
            let _ = socket.send_to(bytes, to);
        });
    }

    /// The core wants it closed. False if it is no connection of this door.
    pub(super) fn close_datagrams(&mut self, id: ConnId) -> bool {
        self.write_datagrams(id);
        let Some(coap) = &mut self.coap else { return false };
        coap.endpoint.close(&mut self.shard, id, self.now)
    }
}
