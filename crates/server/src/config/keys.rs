//! The table of keys: name, meaning, type with its range, default, and whether a reload can change it.
//!
//! The file, the environment, the flags, `config show` and the suggestions for misspelled names all read this one table.
//! Defaults are taken from the crates that use the values, so they are written down once.

use std::path::{Path, PathBuf};

use tidegate_broker::config::Config;
use tidegate_control::rhythm::RhythmConfig;
use tidegate_core::settings::Settings;
use tidegate_space::SpaceAdmission;
use tracing::level_filters::LevelFilter;

use super::ConfigValue;
use super::backoff::{BackOffMode, EnforceSetting, RateSetting};
use super::cluster::{ClusterLabel, EngineWord, NodeLabel, PeerList};
use super::map::{PrefixList, UserName};
use super::proofs::{AuthorityPlace, KeyPlace, OptionalText, PinList, PlainText, TextList};
use super::setting::{Auto, Off, Or, Setting, Size, Span, Unlimited, WholeNumber};
use super::words::{
    AlarmReceiver, BindAddress, BindIds, ByWord, Door, Durable, EverybodyAddress, LogFormat, LogLevel, Origins,
    PolicyWord, PoolRuleWord, PriorityWord, Receiver, SecureDoor, ServiceList, TopicIds, UpstreamAddress,
};

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesEffect {
    /// At the next reload.
    Reload,
    /// Only when the process starts again.
    Restart,
}

/// One key.
pub struct SettingKey {
    /// Section and name: `limits.receive_max`.
    pub path: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// When a change takes effect.
    pub change: TakesEffect,
    /// Reads a value into the options; `None` if it does not fit.
    pub set: fn(&mut Options, &ConfigValue, Option<&Path>) -> Option<()>,
    /// What is expected, to follow the word "expected".
    pub expected: fn() -> String,
    /// The value as the file would have it.
    pub show: fn(&Options) -> String,
}

impl SettingKey {
    /// The key with this path.
    pub fn find(path: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.path == path)
    }
}

macro_rules! keys {
    (
        ($core:ident, $broker:ident)
        $($section:ident: $Section:ident {
            $(#[doc = $about:literal] $change:ident $name:ident: $type:ty = $default:expr;)+
        })+
    ) => {
        $(
            #[doc = concat!("The section `[", stringify!($section), "]`.")]
            #[derive(Clone, Debug, PartialEq)]
            #[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own in the file")]
            pub struct $Section {
                $(#[doc = $about] pub $name: $type,)+
            }
        )+

        /// Every setting, as it was written.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Options {
            $(pub $section: $Section,)+
        }

        impl Default for Options {
            fn default() -> Self {
                let $core = Settings::default();
                let $broker = Config::default();
                Self { $($section: $Section { $($name: $default,)+ },)+ }
            }
        }

        /// All keys, in the order in which they are shown.
        pub const KEYS: &[SettingKey] = &[$($(SettingKey {
            path: concat!(stringify!($section), ".", stringify!($name)),
            about: $about,
            change: TakesEffect::$change,
            set: |options, value, folder| {
                options.$section.$name = <$type as Setting>::read(value, folder)?;
                Some(())
            },
            expected: <$type as Setting>::expected,
            show: |options| options.$section.$name.show(),
        },)+)+];

        /// All sections.
        pub const SECTIONS: &[&str] = &[$(stringify!($section)),+];
    };
}

/// Counts beyond this are not limits any more; it also fits a 32-bit machine.
const MANY: u64 = u32::MAX as u64;
/// One tebibyte: beyond any machine this runs on.
const HUGE: u64 = 1 << 40;
/// The largest packet of MQTT: five bytes of header and 268 435 455 of body (section 2.1.4).
const PACKET: u64 = 268_435_460;
/// Below a mebibyte a store is full before it has begun.
const STORE_MIN: u64 = 1 << 20;
const U16: u64 = u16::MAX as u64;
/// Long answers at once: each has a thread and a snapshot of the data.
const STREAMS: u64 = tidegate_space::limits::STREAMERS_MAX as u64;
/// The longest keep-alive in milliseconds: two bytes of seconds (section 3.1.2.10).
const KEEP_ALIVE: u64 = U16 * 1000;

fn admission() -> SpaceAdmission {
    SpaceAdmission::default()
}

type CountLimit<const MIN: u64> = Or<Unlimited, WholeNumber<MIN, MANY>>;

keys! {
    (core, broker)
    server: Server {
        /// Folder for what the broker keeps; the users are in its file "users" unless security.password_file is set.
        Restart data: PathBuf = PathBuf::from("tidegate-data");
        /// Shard threads; auto is one for every two cores.
        Restart shards: Or<Auto, WholeNumber<1, 1024>> = Or::WORD;
        /// Longest time that a drain takes before connections are cut.
        Reload drain_timeout: Span<0> = Span(broker.drain_timeout);
    }
    store: Store {
        /// Keep sessions, their messages and retained messages on disk, in the folder "store" of server.data, and the smart space in its folder "space".
        Restart keep: bool = true;
        /// When something counts as kept: "always" survives a power cut, "interval:100ms" may lose the last 100 ms of it, "off" what the system has not written yet; all survive the end of the process.
        Restart durability: Durable = Durable(tidegate_store::Durability::Always);
        /// Refuse to start when something that was kept is damaged, instead of setting it aside and saying so.
        Restart strict: bool = false;
        /// Bytes that the files of the store may take, and as many those of the smart space; auto is as many as the disk has. Whatever this is, a part stays free for what empties them: whoever publishes is refused before.
        Restart max_size: Or<Auto, Size<STORE_MIN, HUGE>> = Or::WORD;
    }
    listeners: Listeners {
        /// MQTT over TCP.
        Restart mqtt: Door = Or::Is(BindAddress(([127, 0, 0, 1], 1883).into()));
        /// MQTT over TLS; auto is 127.0.0.1:8883 when there is a certificate.
        Restart mqtts: SecureDoor = Or::WORD;
        /// MQTT over WebSocket, at the path /mqtt.
        Restart ws: Door = Or::Is(BindAddress(([127, 0, 0, 1], 8083).into()));
        /// MQTT over secure WebSocket, at the path /mqtt; auto is 127.0.0.1:8084 when there is a certificate.
        Restart wss: SecureDoor = Or::WORD;
        /// CoAP over UDP, which knows no users; auto is 127.0.0.1:5683 while there are none, beside listeners.mqtt.
        Restart coap: SecureDoor = Or::WORD;
        /// CoAP over DTLS; auto is 127.0.0.1:5684 where clients can show who they are: with tls.psk_file, or with a certificate and tls.client_ca.
        Restart coaps: SecureDoor = Or::WORD;
        /// MQTT-SN over UDP, which knows no users; auto is 127.0.0.1:1885 while there are none, beside listeners.mqtt.
        Restart sn: SecureDoor = Or::WORD;
        /// Topics over HTTP, with server-sent events; auto is 127.0.0.1:8082, beside listeners.mqtt.
        Restart http_topics: SecureDoor = Or::WORD;
        /// The same over TLS, with tls.cert and tls.key.
        Restart https_topics: Door = Or::WORD;
        /// AMQP 1.0; auto is 127.0.0.1:5672, beside listeners.mqtt.
        Restart amqp: SecureDoor = Or::WORD;
        /// AMQP 1.0 over TLS, with tls.cert and tls.key; the usual port is 5671.
        Restart amqps: Door = Or::WORD;
        /// Smart-M3 (SSAP), which knows no users; auto is 127.0.0.1:10010 while there are none.
        Restart ssap: SecureDoor = Or::WORD;
        /// SPARQL and subscriptions over HTTP; beyond this machine it needs users.
        Restart http: Door = Or::Is(BindAddress(([127, 0, 0, 1], 7878).into()));
        /// SPARQL and subscriptions over TLS, with tls.cert and tls.key; beyond this machine it needs users, or certificates of clients.
        Restart https: Door = Or::WORD;
        /// Smart-M3 (SSAP) over TLS, with tls.cert and tls.key; the name in a client's certificate is its user.
        Restart ssaps: Door = Or::WORD;
        /// The listener of SPARQL once more, where clients of SEPA look for queries and updates: port 8000.
        Restart sepa_http: Door = Or::WORD;
        /// The same, where they look for subscriptions: port 9000.
        Restart sepa_ws: Door = Or::WORD;
        /// Status, clients, metrics and health over HTTP, for operators; beyond this machine it needs users.
        Restart admin: Door = Or::Is(BindAddress(([127, 0, 0, 1], 18830).into()));
        /// The same over TLS, with tls.cert and tls.key, for operators at other machines; users log in with their passwords.
        Restart admin_https: Door = Or::WORD;
    }
    sn: SnSection {
        /// Topics of MQTT-SN whose identifiers clients know beforehand, as "ID=TOPIC" with identifiers from 1 to 65534.
        Restart topics: TopicIds = TopicIds::default();
        /// The number by which the broker answers who looks for a gateway.
        Restart gateway: WholeNumber<0, 255> = WholeNumber(1);
        /// Where nodes of MQTT-SN hear that the gateway is there (ADVERTISE) and look for it (SEARCHGW): a broadcast address or a group of IPv4, with the port of the nodes.
        Restart advertise: Or<Off, EverybodyAddress> = Or::WORD;
        /// How often they hear it; whole seconds.
        Restart advertise_interval: Span<1_000, 65_535_000> = Span(std::time::Duration::from_secs(900));
    }
    guard: GuardSection {
        /// The broker behind, for which Tidegate is only a gate ("tidegate guard --upstream HOST:PORT", or "mqtts://HOST:PORT" if it wants TLS): sessions, users and messages are there, and nothing is kept here but what is usual for whom.
        Restart upstream: Or<Off, UpstreamAddress> = Or::WORD;
        /// With TLS to the broker behind: certificates to trust, PEM; unset: those of the operating system.
        Restart ca: Option<PathBuf> = None;
        /// With TLS to the broker behind: the certificate chain that a guard shows it, PEM, for all clients.
        Restart cert: Option<PathBuf> = None;
        /// The private key of that, PEM, not encrypted.
        Restart key: Option<PathBuf> = None;
        /// How long the broker behind may take to accept a connection and answer a CONNECT.
        Restart timeout: Span<100, 60_000> = Span(std::time::Duration::from_secs(5));
    }
    cluster: ClusterSection {
        /// The cluster that this broker is a node of; "off": it is alone. One node serves at a time, and the others stand by with a copy of its log and of the smart space's.
        Restart name: Or<Off, ClusterLabel> = Or::WORD;
        /// This node's name, which no other of its cluster has.
        Restart node: Or<Off, NodeLabel> = Or::WORD;
        /// The engine that keeps the copies (NATS with JetStream): "managed" starts one beside this process, and ends it with this process; addresses are of one that runs.
        Restart engine: EngineWord = EngineWord::Managed;
        /// The program of a managed engine: a path, or a name that is looked for in PATH.
        Restart engine_program: PlainText = PlainText("nats-server".to_owned());
        /// Where a managed engine listens for this node.
        Restart engine_listen: BindAddress = BindAddress(([127, 0, 0, 1], 4222).into());
        /// Where a managed engine listens for those of the other nodes; beyond this machine it needs a password.
        Restart engine_routes: BindAddress = BindAddress(([127, 0, 0, 1], 6222).into());
        /// Where the managed engines of all nodes are for each other, this one's among them: three or more, or none for an engine that is alone.
        Restart peers: PeerList = PeerList::default();
        /// Copies that the engine keeps; auto is 3 with three servers or more, else 1.
        Restart replicas: Or<Auto, WholeNumber<1, 5>> = Or::WORD;
        /// Whom the engine knows this node as; unset: "tidegate", if there is a password.
        Restart user: OptionalText = OptionalText::default();
        /// A file with the password for the engine in its first line, the same for all nodes.
        Restart password_file: Option<PathBuf> = None;
        /// Who has signed the certificates of the engine's servers, PEM; with it the engine is asked over TLS.
        Restart ca: Option<PathBuf> = None;
        /// The certificate that a managed engine shows to those of the other nodes, PEM.
        Restart cert: Option<PathBuf> = None;
        /// The private key of the engine's certificate, PEM, not encrypted.
        Restart key: Option<PathBuf> = None;
        /// Where clients find this node, for those who ask another; unset: as listeners.mqtt has it.
        Restart address: OptionalText = OptionalText::default();
    }
    space: SpaceSection {
        /// Longest time of a request to the smart space, which is that of one that says nothing about it.
        Restart time_max: Span<10, 10_000> = Span(admission().time_max);
        /// Changes that would wait too long: told when to come back (deny), parked while their time allows (postpone), told nothing but no (drop-newest), or let in before the oldest, which get no answer in time (drop-oldest).
        Restart update_policy: PolicyWord = PolicyWord(admission().update.policy);
        /// Work that may wait before a change, as time.
        Restart update_delay_max: Span<1, 60_000> = Span(admission().update.delay_max);
        /// The same for triple patterns and cheap queries.
        Restart query_policy: PolicyWord = PolicyWord(admission().query.policy);
        /// Work that may wait before a cheap query, as time.
        Restart query_delay_max: Span<1, 60_000> = Span(admission().query.delay_max);
        /// The same for queries that may take long.
        Restart advanced_query_policy: PolicyWord = PolicyWord(admission().advanced_query.policy);
        /// Work that may wait before such a query, as time.
        Restart advanced_query_delay_max: Span<1, 60_000> = Span(admission().advanced_query.delay_max);
        /// The same for new subscriptions.
        Restart subscribe_policy: PolicyWord = PolicyWord(admission().subscribe.policy);
        /// Work that may wait before a new subscription, as time.
        Restart subscribe_delay_max: Span<1, 60_000> = Span(admission().subscribe.delay_max);
        /// The same for those who ask what they have missed.
        Restart check_policy: PolicyWord = PolicyWord(admission().check.policy);
        /// Work that may wait before such a question, as time.
        Restart check_delay_max: Span<1, 60_000> = Span(admission().check.delay_max);
        /// Share of the subscriptions of clients that accept it which may be handed over to checks of their own while the smart space has too much to do, in percent; 0 switches that off.
        Restart delegation_max: WholeNumber<0, 100> = WholeNumber(100);
        /// How long requests have to wait before subscriptions are handed over; at a fifth of it they are taken back. With 0ms every subscription is handed over that costs less to be asked for than to be told.
        Restart delegation_wait: Span<0, 60_000> = Span(tidegate_space::DelegationConfig::default().wait);
        /// Answers longer than 32 MiB that are sent at once, while they are made, over HTTP; 0: none, they are refused.
        Restart long_answers: WholeNumber<0, STREAMS> = WholeNumber(tidegate_space::LongAnswerConfig::default().places as u64);
        /// How long the reader of such an answer may take nothing before the answer is broken off.
        Restart long_answer_stall: Span<100, 240_000> = Span(tidegate_space::LongAnswerConfig::default().stall);
        /// Bytes of such an answer to a query, beyond which it is broken off; graphs from /store are sent whole.
        Restart long_answer_bytes_max: Size<{ 32 << 20 }, HUGE> = Size(tidegate_space::LongAnswerConfig::default().bytes_max);
        /// Endpoints that queries with SERVICE may ask, over HTTP, by the names that queries have for them; none: SERVICE is refused.
        Restart services: ServiceList = ServiceList::default();
        /// Pages of other sites that may use the listeners of the smart space through a browser, by origin.
        Reload origins: Origins = Origins::default();
    }
    pool: PoolSection {
        /// The request pool of the smart space: "practical" bounds how long requests wait and is fair to whoever asks, "paper" is that of the papers, in which each type of request has a queue of a fixed length, in the order of arrival, and the policies of the section space say what happens to one that finds it full.
        Restart rule: PoolRuleWord = PoolRuleWord(admission().rule);
        /// Length of each queue of the papers' pool, in requests.
        Restart length: WholeNumber<1, 16_000_000> = WholeNumber(admission().length.into());
    }
    map: Map {
        /// Prefixes for the triples of maps, beside rdf, rdfs, xsd, owl, sosa, ssn, qudt, unit, saref, schema and geo.
        Restart prefixes: PrefixList = PrefixList::default();
        /// The user as whom maps receive and publish, whom the rules of access concern; unset: maps may do everything.
        Restart user: UserName = UserName::default();
    }
    tls: Tls {
        /// Certificate chain of the TLS listeners, PEM.
        Reload cert: Option<PathBuf> = None;
        /// Private key of the TLS listeners, PEM, not encrypted.
        Reload key: Option<PathBuf> = None;
        /// CA that signs client certificates, PEM.
        Reload client_ca: Option<PathBuf> = None;
        /// Whether, with a client_ca, a client must show a certificate; its name is then its user.
        Reload client_cert_required: bool = true;
        /// Certificates of clients that were taken back (a CRL), PEM, with a client_ca. Without a list of its CA a certificate is refused.
        Reload crl: Option<PathBuf> = None;
        /// With a client_ca: the only client certificates that are let in, by SHA-256 of each ("openssl x509 -fingerprint -sha256"); empty: all.
        Reload client_pins: PinList = PinList::default();
        /// Keys of clients that speak CoAP over DTLS: a user's name and a key of 16 bytes or more in hexadecimal on each line, with a colon between them, as mosquitto has it.
        Reload psk_file: Option<PathBuf> = None;
    }
    security: Security {
        /// Users and password hashes, made by "tidegate user add"; mosquitto's files are read too.
        Reload password_file: Option<PathBuf> = None;
        /// Rules of access in mosquitto's format.
        Reload acl_file: Option<PathBuf> = None;
        /// Let clients in that give no user name, even beyond this machine.
        Reload allow_anonymous: bool = false;
        /// Whose a client identifier is: its user's for as long as the session lives ("session"); also by name, so that alice may use alice, alice-1, alice/lamp and no other (true); whoever comes while its user is away ends that session (false).
        Reload bind_client_ids: BindIds = BindIds::Sessions;
        /// With a password_file: let certificates in whose name is not in it.
        Reload any_certificate_user: bool = false;
        /// Pages that may use ws, wss and topics over HTTP, by origin; auto refuses pages from elsewhere to a browser on this machine, and to every browser, with names other than localhost, while clients without a password are let in; to topics over HTTP, where a browser shows passwords by itself, always.
        Reload origins: Or<Auto, Origins> = Or::WORD;
    }
    http_auth: HttpAuthSection {
        /// Who is asked about users that are in no file, by POST with JSON: "https://HOST/PATH" ("http://" on this machine only).
        Reload url: Or<Off, AuthorityPlace> = Or::WORD;
        /// CA of that server, PEM; unset: those of the system.
        Reload ca: Option<PathBuf> = None;
        /// Longest time for an answer.
        Reload timeout: Span<100, 30_000> = Span(std::time::Duration::from_secs(2));
        /// How long a yes holds before it is asked for again.
        Reload cache: Span<0, 86_400_000> = Span(std::time::Duration::from_secs(60));
        /// How long a yes holds while nobody answers; nobody else comes in then.
        Reload hold: Span<0, 86_400_000> = Span(std::time::Duration::from_secs(600));
    }
    jwt: JwtSection {
        /// Keys that verify tokens which clients give as passwords: a JSON Web Key Set (RS256, ES256 and EdDSA), in a file or fetched.
        Reload keys: Or<Off, KeyPlace> = Or::WORD;
        /// A file with a secret of 32 bytes or more, for tokens signed by HS256; unset: those are refused.
        Reload secret_file: Option<PathBuf> = None;
        /// CA of the server that has the keys, PEM; unset: those of the system.
        Reload ca: Option<PathBuf> = None;
        /// How often keys are fetched anew; at a token with an unknown key also in between, every 30 s at most.
        Reload refresh: Span<30_000, 86_400_000> = Span(std::time::Duration::from_secs(600));
        /// Who must have made a token (iss); unset: whoever has a key.
        Reload issuer: OptionalText = OptionalText::default();
        /// Whom a token must be for (aud), one of these; needed with keys that are fetched. Empty: for whomever.
        Reload audience: TextList = TextList::default();
        /// The claim that names the user.
        Reload user_claim: PlainText = PlainText("sub".to_owned());
        /// The claim that lists roles, with a dot for each object it is inside of ("realm_access.roles"); unset: tokens give no roles.
        Reload roles_claim: OptionalText = OptionalText::default();
        /// By how much the clocks of whoever makes tokens and of the broker may differ.
        Reload leeway: Span<0, 600_000> = Span(std::time::Duration::from_secs(30));
        /// Size of a token; a larger one is not looked at.
        Reload token_bytes_max: Size<256, U16> = Size(8192);
    }
    limits: Limits {
        /// Connections at the same time, over all listeners.
        Reload connections_max: CountLimit<1> = Or::Is(WholeNumber(broker.connections_max as u64));
        /// Time for a client to finish TLS, WebSocket and MQTT handshakes.
        Reload handshake_timeout: Span<1> = Span(broker.handshake_timeout);
        /// Handshakes under way at the same time.
        Reload handshakes_max: WholeNumber<1, MANY> = WholeNumber(broker.handshakes_max as u64);
        /// Password checks running at the same time.
        Restart password_threads: WholeNumber<1, 64> = WholeNumber(broker.password_threads as u64);
        /// Size of one packet from a client.
        Reload packet_bytes_max: Size<128, PACKET> = Size(core.packet_bytes_max.into());
        /// Unacknowledged messages that a client may have under way to the broker.
        Reload receive_max: WholeNumber<1, U16> = WholeNumber(core.receive_max.into());
        /// Unacknowledged messages that the broker has under way to a client.
        Reload inflight_max: WholeNumber<1, U16> = WholeNumber(core.inflight_max.into());
        /// Messages that wait for one client beyond those under way.
        Reload queue_messages_max: WholeNumber<0, MANY> = WholeNumber(core.queue_messages_max as u64);
        /// Size of those messages.
        Reload queue_bytes_max: Size<0, HUGE> = Size(core.queue_bytes_max as u64);
        /// Of those, what stays in memory of a session that is kept; the rest waits on disk, at 40 bytes each.
        Reload queue_memory_max: Size<0, HUGE> = Size(core.queue_memory_max as u64);
        /// Bytes on their way to one connection; beyond, messages wait in its queue (without priorities QoS 0 is dropped). One that takes them within 20 ms may have four times as much.
        Reload outbox_bytes_max: Size<1024, HUGE> = Size(core.outbox_bytes_max as u64);
        /// How long a client may take nothing of what waits for it before it is disconnected.
        Reload write_timeout: Span<1000> = Span(core.write_timeout);
        /// Keep QoS 0 messages for clients that are away.
        Reload queue_qos0: bool = core.queue_qos0;
        /// Topic aliases that a client may use.
        Reload topic_alias_max: WholeNumber<0, U16> = WholeNumber(core.topic_alias_max.into());
        /// Topic aliases that the broker uses towards a client that offers them.
        Reload topic_alias_out_max: WholeNumber<0, U16> = WholeNumber(core.topic_alias_out_max.into());
        /// Longest keep-alive that a client may ask for.
        Reload keep_alive_max: Or<Unlimited, Span<1000, KEEP_ALIVE>> = keep_alive(&core);
        /// Longest time that a session is kept without a connection.
        Reload session_expiry_max: Or<Unlimited, Span<0>> = Or::Is(Span(core.session_expiry_max));
        /// Expiry of sessions of clients before MQTT 5 that did not ask for a clean session.
        Reload session_expiry_v3: Or<Unlimited, Span<0>> = Or::Is(Span(core.session_expiry_v3));
        /// Best quality of service that is granted.
        Reload qos_max: WholeNumber<0, 2> = WholeNumber(core.qos_max.bits().into());
        /// Whether messages are retained.
        Reload retain_available: bool = core.retain_available;
        /// Retained messages.
        Reload retained_messages_max: CountLimit<0> = Or::Is(WholeNumber(core.retained_messages_max as u64));
        /// Size of all retained messages.
        Reload retained_bytes_max: Or<Unlimited, Size<0, HUGE>> = Or::Is(Size(core.retained_bytes_max as u64));
        /// Subscriptions of one session.
        Reload subscriptions_max: CountLimit<1> = Or::Is(WholeNumber(core.subscriptions_max as u64));
        /// Sessions of one shard, connected or not.
        Reload sessions_max: CountLimit<1> = Or::Is(WholeNumber(core.sessions_max as u64));
        /// Messages that each publisher may send, such as "500/s"; so many at once, and then evenly.
        Reload rate: Or<Unlimited, RateSetting> = Or::WORD;
        /// New client identifiers from one user, or one network without users.
        Reload new_clients: RateSetting = RateSetting::of(&core.arrivals.new_clients);
        /// How many of them may come at once.
        Reload new_clients_burst: WholeNumber<1, MANY> = WholeNumber(core.arrivals.new_clients.burst().into());
        /// New clients that are let in while the broker is strained.
        Reload paced_clients: RateSetting = RateSetting::of(&core.arrivals.paced);
        /// Bytes kept for clients, messages and the smart space, all together; auto is half of what the machine or control group has.
        Reload memory: Or<Auto, Size<MEMORY_MIN, HUGE>> = Or::WORD;
        /// Size of a client identifier.
        Reload client_id_bytes_max: Size<23, U16> = Size(core.client_id_bytes_max as u64);
        /// Levels of a topic.
        Reload topic_levels_max: WholeNumber<1, U16> = WholeNumber(core.topic_levels_max as u64);
    }
    priority: PrioritySection {
        /// Who is served first: by weight, the longest queue pays (practical); the rarest publisher (paper); nobody (off).
        Reload mode: PriorityWord = PriorityWord(core.priority.mode);
        /// What decides about the class of a message: rules of [classes.NAME], the publisher's rate (rank), or both.
        Reload by: ByWord = ByWord(core.priority.by);
    }
    backoff: Backoff {
        /// How it is learned what is usual for a publisher; "off": nobody comes first, and nobody is slowed.
        Reload mode: BackOffMode = BackOffMode::Practical;
        /// What becomes of those who send more than is usual for them.
        Reload enforce: EnforceSetting = EnforceSetting(rhythm(&core).enforcement);
        /// Intervals between messages after which a rhythm is known (practical), or messages (paper).
        Reload learn: Or<Auto, WholeNumber<2, 254>> = Or::WORD;
        /// How many times its usual rate a publisher may have.
        Reload headroom: WholeNumber<1, 100> = WholeNumber(rhythm(&core).headroom as u64);
        /// Messages that may come at once, on top of the rate.
        Reload burst: WholeNumber<0, 10_000> = WholeNumber(rhythm(&core).burst.into());
        /// With enforce = "always": longest delay of a message, and what a refused one is told to wait at most.
        Reload max_delay: Span<1, 86_400_000> = Span(rhythm(&core).delay_max);
        /// The paper's mode mentions a maximum and gives none: whether max_delay bounds it, too.
        Reload paper_bounded: bool = rhythm(&core).paper_bounded;
        /// Messages of one client that may wait.
        Reload hold_messages: WholeNumber<0, 1_000_000> = WholeNumber(core.back_off.hold_messages_max as u64);
        /// Size of them.
        Reload hold_bytes: Size<0, HUGE> = Size(core.back_off.hold_bytes_max as u64);
        /// After how long a client repeats what was not acknowledged; it is held for ¾ of that (paper: as long as it says).
        Reload client_retry: Span<100, 3_600_000> = Span(core.back_off.client_retry);
        /// How long a publisher is remembered after its last connection.
        Reload memory: Span<0> = Span(core.back_off.memory);
    }
    log: Log {
        /// How much is logged.
        Reload level: LogLevel = LogLevel(LevelFilter::INFO);
        /// How a log line looks.
        Restart format: LogFormat = LogFormat::Text;
    }
    telemetry: Telemetry {
        /// A collector that metrics are sent to, by OTLP over HTTP ("http://127.0.0.1:4318"); they are at /metrics anyway.
        Restart otlp: Or<Off, Receiver> = Or::WORD;
        /// How often they are sent.
        Restart otlp_interval: Span<1000, 3_600_000> = Span(std::time::Duration::from_secs(10));
        /// Where a POST with each alarm goes that is raised or over ("http://127.0.0.1:9000/alarms").
        Restart alarms: Or<Off, AlarmReceiver> = Or::WORD;
    }
    sys: Sys {
        /// How often the topics below $SYS/broker are published.
        Reload interval: Or<Off, Span<1000>> = sys_interval(&broker);
    }
}

/// One turn of every kind of input has to fit into what is kept free.
const MEMORY_MIN: u64 = 16 << 20;

fn rhythm(core: &Settings) -> RhythmConfig {
    core.back_off.rhythm.unwrap_or_default()
}

fn keep_alive(core: &Settings) -> Or<Unlimited, Span<1000, KEEP_ALIVE>> {
    let seconds = |seconds: u16| std::time::Duration::from_secs(seconds.into());
    core.keep_alive_max.map_or(Or::WORD, |max| Or::Is(Span(seconds(max))))
}

fn sys_interval(broker: &Config) -> Or<Off, Span<1000>> {
    if broker.sys_interval.is_zero() { Or::WORD } else { Or::Is(Span(broker.sys_interval)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_reads_back_from_what_is_shown() {
        for key in KEYS {
            let shown = (key.show)(&Options::default());
            if shown == "unset" {
                continue;
            }
            let written = toml::de::DeValue::parse(&shown).unwrap();
            let value = ConfigValue::of_toml(written.get_ref());
            let mut options = Options::default();
            assert!((key.set)(&mut options, &value, None).is_some(), "{} = {shown}", key.path);
            assert_eq!(options, Options::default(), "{}", key.path);
        }
    }

    #[test]
    fn every_key_has_a_meaning_and_a_section() {
        for key in KEYS {
            assert!(key.about.trim().len() > 8, "{}", key.path);
            assert!(SECTIONS.contains(&key.path.split('.').next().unwrap()), "{}", key.path);
        }
    }
}
