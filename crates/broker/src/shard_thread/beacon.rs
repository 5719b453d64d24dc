//! How the gateway of MQTT-SN lets itself be found: a socket at the address of everybody, on the first thread. What is said there is
//! decided by `tidegate_face_sn`; it is said from the socket of the door, so that whoever hears it knows where to connect.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use mio::Interest;
use socket2::{Domain, SockRef, Socket, Type};
use tidegate_control::Timestamp;
use tidegate_face_sn::{SnBeacon, SnStats};
use tracing::{error, warn};

use super::{ShardThread, token};
use crate::config::{SnAdvertising, SnConfig};
use crate::limits::DATAGRAMS_PER_TURN_MAX;

/// A question is three bytes; whatever is longer than this is none.
const QUESTION_BYTES_MAX: usize = 64;

/// The gateway of MQTT-SN, as everybody hears it.
#[derive(Debug)]
pub(crate) struct BeaconDoor {
    /// The door's.
    socket: Arc<UdpSocket>,
    /// Where everybody is asked. None if the socket of the door hears that as well.
    ear: Option<mio::net::UdpSocket>,
    everybody: SocketAddr,
    beacon: SnBeacon,
    /// There may be something to read.
    is_ready: bool,
    /// Words that could not be sent were complained about.
    has_complained: bool,
}

impl BeaconDoor {
    /// For the door of MQTT-SN with this socket; none if nobody is to be told.
    pub(crate) fn open(socket: &Arc<UdpSocket>, sn: &SnConfig) -> io::Result<Option<Box<Self>>> {
        let Some(SnAdvertising { address, interval }) = sn.advertising else { return Ok(None) };
        let at = socket.local_addr()?;
        let interface = match at.ip() {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(_) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "MQTT-SN is spoken over IPv6")),
        };
        socket.set_broadcast(true)?;
        let ear = if interface.is_unspecified() && at.port() == address.port() {
            join(&SockRef::from(&**socket), *address.ip(), interface)?;
            None
        } else {
            let ear = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
            ear.set_nonblocking(true)?;
            // Several gateways of one machine may be asked at one address.
            ear.set_reuse_address(true)?;
            ear.bind(&SocketAddr::from(address).into())?;
            join(&SockRef::from(&ear), *address.ip(), interface)?;
            Some(mio::net::UdpSocket::from_std(ear.into()))
        };
        let beacon = SnBeacon::new(sn.gateway, interval, Timestamp::ZERO);
        let (socket, everybody) = (Arc::clone(socket), address.into());
        Ok(Some(Box::new(Self { socket, ear, everybody, beacon, is_ready: false, has_complained: false })))
    }

    /// When to go on without being told.
    pub(super) fn due(&self) -> Timestamp {
        if self.is_ready { Timestamp::ZERO } else { self.beacon.poll_timeout() }
    }

    fn say_to_all(&mut self, bytes: &[u8]) {
        let sent = self.socket.send_to(bytes, self.everybody);
        if let Err(error) = sent
            && error.kind() != io::ErrorKind::WouldBlock
            && !std::mem::replace(&mut self.has_complained, true)
        {
            let to = self.everybody;
            warn!(event = "sn_unheard", %to, %error, "nobody can be told where the gateway of MQTT-SN is");
        }
    }

    /// As many questions as one turn allows.
    fn read(&mut self, now: Timestamp) {
        let mut buffer = [0; QUESTION_BYTES_MAX];
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            let Some(Ok((length, from))) = self.ear.as_ref().map(|ear| ear.recv_from(&mut buffer)) else {
                self.is_ready = false;
                return;
            };
            let Some(answer) = self.beacon.handle_datagram(&buffer[..length], now) else { continue };
            if from.port() != 0 {
                let _ = self.socket.send_to(&answer.bytes, from);
            }
            if answer.is_for_all {
                self.say_to_all(&answer.bytes);
            }
        }
    }
}

/// What is said to a group comes to this socket; a broadcast comes without.
fn join(socket: &SockRef<'_>, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
    if group.is_multicast() { socket.join_multicast_v4(&group, &interface) } else { Ok(()) }
}

impl ShardThread {
    /// From now on everybody is told.
    pub(super) fn open_beacon(&mut self, mut beacon: Box<BeaconDoor>) {
        if let Some(ear) = &mut beacon.ear
            && let Err(error) = self.poll.registry().register(ear, token::BEACON, Interest::READABLE)
        {
            return error!(event = "door_off", door = "sn", %error, "this listener cannot be waited for");
        }
        beacon.is_ready = beacon.ear.is_some();
        self.beacon = Some(beacon);
    }

    pub(super) fn on_beacon(&mut self) {
        if let Some(beacon) = &mut self.beacon {
            beacon.is_ready = true;
        }
    }

    /// Answers who asks everybody, and says when it is time that the gateway is there. One that goes is not looked for any more.
    pub(super) fn turn_beacon(&mut self) {
        if self.draining.is_some() {
            self.beacon = None;
        }
        let Some(beacon) = &mut self.beacon else { return };
        let before = beacon.beacon.counts();
        if beacon.is_ready {
            beacon.read(self.now);
        }
        if let Some(words) = beacon.beacon.turn(self.now) {
            beacon.say_to_all(&words);
        }
        let counts = beacon.beacon.counts();
        if counts != before {
            let (advertised, searched) = counts;
            // Beside the shards' own.
            let place = self.shared.inboxes.len();
            self.shared.extra_metrics.show_sn(place, SnStats { advertised, searched, ..SnStats::default() });
        }
    }
}
