//! Doors of datagrams: one socket each, for CoAP and for MQTT-SN. The first thread reads it, and hands each datagram to the shard
//! that has the session of its sender; every thread writes to it. What they say is decided by `tidegate_face_coap`,
//! `tidegate_face_sn` and the core.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use mio::Interest;
use tidegate_control::Timestamp;
use tidegate_core::access::Identity;
use tidegate_core::datagrams::{Admission, DatagramEndpoint, DatagramOwner, NotAdmitted};
use tidegate_core::{ConnId, shard_of};
use tidegate_face_coap::{CoapEndpoint, CoapStats};
use tidegate_face_sn::{SnEndpoint, SnStats};
use tracing::error;

use super::{ShardThread, token};
use crate::authenticate::{Credentials, LoginGrant};
use crate::chance::Chance;
use crate::config::{ListenerKind, SnConfig};
use crate::inbox::lock;
use crate::limits::{DATAGRAM_BYTES_MAX, DATAGRAMS_PER_TURN_MAX, DATAGRAMS_UNDER_WAY_MAX};
use crate::listener::OpenListener;
use crate::listener_counts::ListenerRefusal;
use crate::permit::{Permit, SocketPlaces};
use crate::shared_state::SharedState;
use crate::thread_message::{Rules, ThreadMessage};

/// A door, as one thread has it.
#[derive(Debug)]
pub(super) struct DatagramDoor {
    listener: Arc<OpenListener>,
    socket: Arc<UdpSocket>,
    /// The same socket, where its being readable is told; on the first thread only.
    _told: Option<mio::net::UdpSocket>,
    speaker: Speaker,
    /// The places of addresses among all connections.
    places: BTreeMap<SocketAddr, SocketPlaces>,
    /// There may be something to read.
    is_ready: bool,
    /// When there was nothing to read.
    dry_at: Timestamp,
    /// What was last shown of its counters.
    shown: Option<DoorStats>,
}

/// What is spoken at a door.
#[derive(Debug)]
enum Speaker {
    Coap(Box<CoapEndpoint>),
    Sn(Box<SnEndpoint>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DoorStats {
    Coap(CoapStats),
    Sn(SnStats),
}

impl Speaker {
    fn endpoint(&mut self) -> &mut dyn DatagramEndpoint {
        match self {
            Self::Coap(endpoint) => &mut **endpoint,
            Self::Sn(endpoint) => &mut **endpoint,
        }
    }

    fn endpoint_ref(&self) -> &dyn DatagramEndpoint {
        match self {
            Self::Coap(endpoint) => &**endpoint,
            Self::Sn(endpoint) => &**endpoint,
        }
    }

    fn stats(&self) -> DoorStats {
        match self {
            Self::Coap(endpoint) => DoorStats::Coap(endpoint.stats()),
            Self::Sn(endpoint) => DoorStats::Sn(endpoint.stats()),
        }
    }
}

impl DatagramDoor {
    /// When to go on without being told.
    pub(super) fn due(&self) -> Option<Timestamp> {
        if self.is_ready { Some(Timestamp::ZERO) } else { self.speaker.endpoint_ref().poll_timeout() }
    }

    /// Nothing by who may be overtaken: whoever asked asks again.
    fn send_replies(&mut self, may_speak: bool) {
        while let Some((to, bytes)) = self.speaker.endpoint().poll_reply() {
            if may_speak {
                let _ = self.socket.send_to(&bytes, to);
            }
        }
    }
}

/// A datagram on its way to its shard.
#[derive(Debug)]
pub(crate) struct ForwardedDatagram {
    door: usize,
    from: SocketAddr,
    /// None: the address has gone over to a client of another shard.
    bytes: Option<Box<[u8]>>,
    dry_at: Timestamp,
    _permit: Permit,
}

/// Who is let in at this door: whoever would be without a name.
struct DoorAdmission<'a> {
    shared: &'a SharedState,
    rules: &'a Rules,
    listener: &'a OpenListener,
    now: Timestamp,
    admitted: Option<(SocketAddr, SocketPlaces)>,
}

impl Admission for DoorAdmission<'_> {
    fn admit(&mut self, from: SocketAddr, client_id: &str) -> Result<Identity, NotAdmitted> {
        let refuse = |why, answer| {
            self.listener.counts.refuse(why);
            Err(answer)
        };
        self.listener.counts.accept();
        if lock(&self.shared.bans).find(client_id, None, from.ip(), self.now).is_some() {
            return refuse(ListenerRefusal::Banned, NotAdmitted::Banned);
        }
        let listener = self.listener.name();
        let credentials = Credentials { client_id: client_id.to_owned(), listener, ..Credentials::default() };
        let authenticator = &self.rules.authenticator;
        let grant = if authenticator.is_slow(&credentials) { None } else { authenticator.login(&credentials).ok() };
        let Some(grant) = grant else { return refuse(ListenerRefusal::NotAuthorized, NotAdmitted::Unknown) };
        let of_all = self.shared.connections.take(self.rules.connections_max);
        let (Some(of_all), Some(of_listener)) = (of_all, self.listener.take_place()) else {
            return refuse(ListenerRefusal::Full, NotAdmitted::Full);
        };
        self.admitted = Some((from, SocketPlaces::new(of_all, of_listener)));
        let LoginGrant { user, roles, claims, .. } = grant;
        Ok(Identity { user, peer: from.to_string().into(), listener, roles, claims })
    }
}

impl ShardThread {
    /// From now on this is spoken here.
    pub(super) fn open_datagrams(&mut self, listener: Arc<OpenListener>, socket: Arc<UdpSocket>, sn: &SnConfig) {
        let told = if self.index == 0 {
            self.watch_datagrams(&socket, token::datagrams(self.doors.len())).map(Some)
        } else {
            Ok(None)
        };
        let told = match told {
            Ok(told) => told,
            Err(error) => {
                let door = listener.name();
                return error!(event = "door_off", door, %error, "this listener cannot be waited for");
            }
        };
        let seed = || Chance::new().seed();
        let speaker = if listener.kind == ListenerKind::Sn {
            Speaker::Sn(Box::new(SnEndpoint::new([seed(), seed()], Arc::clone(&sn.topics), sn.gateway)))
        } else {
            Speaker::Coap(Box::new(CoapEndpoint::new([seed(), seed(), seed(), seed()])))
        };
        let (places, is_ready, dry_at, shown) = (BTreeMap::new(), false, self.now, None);
        self.doors.push(DatagramDoor { listener, socket, _told: told, speaker, places, is_ready, dry_at, shown });
    }

    pub(super) fn watch_datagrams(&self, socket: &UdpSocket, token: mio::Token) -> io::Result<mio::net::UdpSocket> {
        let mut told = mio::net::UdpSocket::from_std(socket.try_clone()?);
        self.poll.registry().register(&mut told, token, Interest::READABLE)?;
        Ok(told)
    }

    pub(super) fn on_datagrams(&mut self, door: usize) {
        if let Some(door) = self.doors.get_mut(door).filter(|door| !door.is_ready) {
            // Nothing was there a moment ago, however long it is since somebody looked.
            (door.is_ready, door.dry_at) = (true, door.dry_at.max(self.silent_at));
        }
    }

    /// As many datagrams as one turn allows, of each door.
    pub(super) fn read_datagrams(&mut self) {
        for door in 0..self.doors.len() {
            if self.doors.get(door).is_some_and(|door| door.is_ready) {
                self.read_door(door);
            }
        }
    }

    fn read_door(&mut self, index: usize) {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            let Some(door) = self.doors.get_mut(index) else { return };
            if self.draining.is_some() {
                door.is_ready = false;
                return;
            }
            match door.socket.recv_from(&mut buffer) {
                // Nobody can be answered there, and doors know by it who has no port (RFC 768).
                Ok((_, from)) if from.port() == 0 => {}
                Ok((length, from)) => {
                    let dry_at = door.dry_at;
                    // One that may have been cut is none: half of a message must not be published.
                    let length = if length < DATAGRAM_BYTES_MAX { length } else { 0 };
                    self.route_datagram(index, from, &buffer[..length], dry_at);
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

    fn route_datagram(&mut self, door: usize, from: SocketAddr, bytes: &[u8], dry_at: Timestamp) {
        let shards = self.shared.inboxes.len();
        if shards == 1 {
            return self.handle_datagram(door, from, bytes, dry_at);
        }
        let Some(owner) = self.doors.get(door).map(|door| door.speaker.endpoint_ref().owner(from, bytes)) else {
            return;
        };
        let to = match owner {
            DatagramOwner::Client(client_id) => {
                let to = shard_of(&client_id, shards);
                let before = lock(&self.shared.datagram_routes).get(&from).copied().filter(|before| *before != to);
                if let Some(before) = before {
                    self.forward(before, (door, from, None), dry_at);
                }
                to
            }
            DatagramOwner::Address(client_id) => {
                let route = lock(&self.shared.datagram_routes).get(&from).copied();
                route.unwrap_or_else(|| shard_of(&client_id, shards))
            }
        };
        self.forward(to, (door, from, Some(bytes)), dry_at);
    }

    /// To the shard whose it is.
    fn forward(&mut self, to: usize, (door, from, bytes): (usize, SocketAddr, Option<&[u8]>), dry_at: Timestamp) {
        if to == self.index {
            return match bytes {
                Some(bytes) => self.handle_datagram(door, from, bytes, dry_at),
                None => self.move_address(door, from),
            };
        }
        // What finds no room is lost, as datagrams may be; its sender will say it again.
        let Some(permit) = self.shared.datagrams.take(DATAGRAMS_UNDER_WAY_MAX) else {
            if let Some(door) = self.doors.get(door) {
                door.listener.counts.refuse(ListenerRefusal::Busy);
            }
            return;
        };
        let datagram = ForwardedDatagram { door, from, bytes: bytes.map(Box::from), dry_at, _permit: permit };
        let _ = self.shared.inboxes[to].send(ThreadMessage::Datagram(Box::new(datagram)));
    }

    pub(super) fn take_datagram(&mut self, datagram: &ForwardedDatagram) {
        match &datagram.bytes {
            Some(bytes) => self.handle_datagram(datagram.door, datagram.from, bytes, datagram.dry_at),
            None => self.move_address(datagram.door, datagram.from),
        }
    }

    fn move_address(&mut self, door: usize, address: SocketAddr) {
        if let Some(door) = self.doors.get_mut(door) {
            door.speaker.endpoint().handle_moved(&mut self.shard, address, self.now);
        }
    }

    fn handle_datagram(&mut self, door: usize, from: SocketAddr, bytes: &[u8], dry_at: Timestamp) {
        // As before bytes of a stream: whoever sent this may have acted on an answer of another shard.
        self.take_batches();
        let Some(door) = self.doors.get_mut(door) else { return };
        let mut admission = DoorAdmission {
            shared: &self.shared,
            rules: &self.rules,
            listener: &door.listener,
            now: self.now,
            admitted: None,
        };
        let endpoint = door.speaker.endpoint();
        let was_known = endpoint.knows(from);
        endpoint.handle_datagram(&mut self.shard, (from, bytes), &mut admission, dry_at, self.now);
        if let Some((address, places)) = admission.admitted.filter(|(address, _)| endpoint.knows(*address)) {
            door.places.insert(address, places);
        }
        // The first thread has to know where the rest of what this address says belongs.
        let has_routes = self.shared.inboxes.len() > 1 && door.listener.kind == ListenerKind::Sn;
        if has_routes && !was_known && endpoint.knows(from) {
            lock(&self.shared.datagram_routes).insert(from, self.index);
        }
        door.send_replies(self.shared.may_speak());
    }

    /// Messages that are to be sent again, addresses that are silent for too long.
    pub(super) fn turn_datagrams(&mut self) {
        for door in &mut self.doors {
            let endpoint = door.speaker.endpoint();
            endpoint.turn(&mut self.shard, self.now);
            while let Some(address) = endpoint.poll_left() {
                door.places.remove(&address);
                let mut routes = lock(&self.shared.datagram_routes);
                if routes.get(&address) == Some(&self.index) {
                    routes.remove(&address);
                }
            }
            door.send_replies(self.shared.may_speak());
            let stats = door.speaker.stats();
            if door.shown != Some(stats) {
                door.shown = Some(stats);
                match stats {
                    DoorStats::Coap(stats) => {
                        self.shared.extra_metrics.show_coap((self.index, door.listener.name()), stats);
                    }
                    DoorStats::Sn(stats) => self.shared.extra_metrics.show_sn(self.index, stats),
                }
            }
        }
    }

    /// What a datagram's sender is to hear. A socket that takes no more loses it, as the network might.
    pub(super) fn write_datagrams(&mut self, id: ConnId) {
        for door in &mut self.doors {
            let socket = &door.socket;
            let is_written = door.speaker.endpoint().write(&mut self.shard, id, self.now, &mut |to, bytes| {
                let _ = socket.send_to(bytes, to);
            });
            if is_written {
                return;
            }
        }
    }

    /// The core wants it closed. False if it is no connection of these doors.
    pub(super) fn close_datagrams(&mut self, id: ConnId) -> bool {
        if self.shared.may_speak() {
            self.write_datagrams(id);
        }
        self.doors.iter_mut().any(|door| door.speaker.endpoint().close(&mut self.shard, id, self.now))
    }
}
