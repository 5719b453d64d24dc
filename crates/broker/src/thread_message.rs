//! What the threads of the rim tell each other.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tidegate_core::Whom;
use tidegate_core::access::{Identity, Policy};
use tidegate_core::settings::{Rate, Settings};
use tidegate_face_amqp::AmqpHello;
use tidegate_face_http::HttpHello;

use crate::ask::AskedQuestion;
use crate::authenticate::{Authenticator, LoginGrant, LoginRefusal};
use crate::bans::Banned;
use crate::config::{Config, SnConfig};
use crate::limits::MEMORY_MIN;
use crate::link::SocketLink;
use crate::listener::OpenListener;
use crate::machine::memory_auto;
use crate::operator::OperatorSetting;
use crate::password::PasswordCheck;
use crate::permit::Permit;
use crate::shard_thread::{AcceptingListener, BeaconDoor, ForwardedDatagram, SecureDatagram};
use crate::tap::{OutgoingMapped, Tap};
use crate::websocket::AllowedPages;

/// Something for another thread.
#[derive(Debug)]
pub(crate) enum ThreadMessage {
    /// A socket whose handshake is to be done by the receiver: TLS costs CPU, which is to be spread.
    Arrival(Box<AcceptedSocket>),
    /// A client that has said who it is, for the shard that has its session.
    Handover(Box<Handover>),
    /// Listeners that are open from now on, for the first thread.
    Doors(Vec<AcceptingListener>),
    /// Where datagrams come from now on.
    Datagrams(Arc<OpenListener>, Arc<UdpSocket>, SnConfig),
    /// Where everybody is told that the gateway of MQTT-SN is there, for the first thread.
    Beacon(Box<BeaconDoor>),
    /// A datagram, for the shard that has the session of its address.
    Datagram(Box<ForwardedDatagram>),
    /// The same inside of DTLS.
    SecureDatagram(Box<SecureDatagram>),
    /// The answer of a password thread.
    Checked {
        /// What was asked, to be asked again if the rules have changed meanwhile.
        question: Box<PasswordCheck>,
        /// Who it is, or why not.
        verdict: Result<LoginGrant, LoginRefusal>,
    },
    /// A limit or a grant for the messages of somebody, or its end.
    Limit(OperatorSetting, Whom, Option<Rate>),
    /// Whoever this concerns has to go.
    Expel(Box<Banned>),
    /// Time has passed (a clock that is set by hand). Let go of when a turn at the new time is over.
    Tick(SyncSender<()>),
    /// Something of this shard's was kept.
    Kept,
    /// New rules.
    Reload(Box<Rules>),
    /// An operator wants to know something.
    Ask(Box<AskedQuestion>),
    /// Which messages the maps want to see.
    Tap(Arc<Tap>),
    /// A map publishes.
    Mapped(Box<OutgoingMapped>),
    /// What runs beside the broker says how it is: a topic below `$SYS`, and its value.
    System(Box<(String, String)>),
    /// Drain, and end the thread.
    Shutdown,
    /// The same, whatever the rules say of how long it may take.
    ShutdownWithin(Duration),
}

impl ThreadMessage {
    /// Those are bounded by the queue; the others are bounded by who sends them.
    pub(crate) fn carries_a_socket(&self) -> bool {
        matches!(self, Self::Arrival(_) | Self::Handover(_))
    }
}

/// A socket that was just accepted.
#[derive(Debug)]
pub(crate) struct AcceptedSocket {
    pub(crate) link: SocketLink,
    pub(crate) peer: SocketAddr,
    pub(crate) listener: Arc<OpenListener>,
    /// Its place among the handshakes.
    pub(crate) permit: Permit,
}

/// A client at the end of its handshake.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) link: SocketLink,
    /// The CONNECT as it came; decoded again by the receiver, because what it decodes to borrows from it.
    pub(crate) connect: Vec<u8>,
    /// What was said in place of a CONNECT by who speaks HTTP; the request is in `rest`.
    pub(crate) http: Option<Box<HttpHello>>,
    /// The same of AMQP; its `open` is in `connect`.
    pub(crate) amqp: Option<Box<AmqpHello>>,
    /// Bytes that came after the CONNECT.
    pub(crate) rest: Vec<u8>,
    /// The client identifier, the client's own or a made-up one.
    pub(crate) client_id: String,
    pub(crate) identity: Identity,
    pub(crate) peer: SocketAddr,
    pub(crate) listener: Arc<OpenListener>,
    /// Its place among the handshakes, if it still has one.
    pub(crate) permit: Option<Permit>,
    /// The rules that let it in.
    pub(crate) generation: u64,
    /// How long it is let in.
    pub(crate) valid_for: Option<Duration>,
}

/// What can change while the broker runs.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Counts reloads: who was let in by older rules is asked again.
    pub(crate) generation: u64,
    pub(crate) settings: Arc<Settings>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) connections_max: usize,
    pub(crate) handshakes_max: usize,
    pub(crate) handshake_timeout: Duration,
    pub(crate) memory_max: u64,
    /// Zero: never.
    pub(crate) sys_interval: Duration,
    pub(crate) drain_timeout: Duration,
    /// Pages that may use the WebSocket listeners; see `config::Config::origins`.
    pub(crate) origins: Option<Arc<[String]>>,
}

impl Rules {
    pub(crate) fn new(
        config: &Config,
        authenticator: Arc<dyn Authenticator>,
        policy: Arc<dyn Policy>,
        generation: u64,
    ) -> Self {
        Self {
            generation,
            origins: config.origins.clone(),
            settings: Arc::new(config.settings.clone()),
            policy,
            authenticator,
            connections_max: config.connections_max,
            handshakes_max: config.handshakes_max.max(1),
            handshake_timeout: config.handshake_timeout,
            memory_max: config.memory_max.unwrap_or_else(memory_auto).max(MEMORY_MIN),
            sys_interval: config.sys_interval,
            drain_timeout: config.drain_timeout,
        }
    }

    /// Whether somebody without a name may come in at this listener.
    pub(crate) fn admits_nobody(&self, listener: &'static str) -> bool {
        let nobody = Identity { listener, ..Identity::default() };
        self.authenticator.admits_identity(&nobody, "")
    }

    /// The pages that may use this listener.
    pub(crate) fn pages(&self, listener: &'static str) -> AllowedPages<'_> {
        match &self.origins {
            Some(listed) => AllowedPages::Listed(listed),
            None if self.admits_nobody(listener) => AllowedPages::OfThisMachine,
            None => AllowedPages::OfOurName,
        }
    }
}
