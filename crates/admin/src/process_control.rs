//! What the process does for an operator, as far as a broker cannot do it by itself.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tidegate_broker::ExtraMetric;
use tidegate_broker::authenticate::Authenticator;

use crate::cluster::ClusterReport;

/// Looks after the process. Its methods are called on a thread that may wait.
pub trait ProcessControl: fmt::Debug + Send + Sync {
    /// Reads configuration, users and certificates again. If anything is wrong everything stays as it was, and all that
    /// is wrong comes back.
    fn reload(&self) -> Result<Reloaded, Vec<String>>;

    /// Copies everything that is kept into a directory, which appears when the copy is whole. What was copied, or why
    /// nothing was, in words.
    fn backup(&self, to: &Path) -> Result<String, String>;

    /// Begins to drain: the process ends when everybody has been told, or in a bounded time.
    fn drain(&self);

    /// Who may come in here; none if there are no users.
    fn directory(&self) -> Option<UserDirectory>;

    /// Why the broker should get no new clients now; nothing if it may.
    fn unready(&self) -> Option<&'static str>;

    /// Every setting, in order; none where there is no configuration.
    fn settings(&self) -> Vec<SettingInForce> {
        Vec::new()
    }

    /// The certificates that clients are shown.
    fn certificates(&self) -> Vec<Certificate> {
        Vec::new()
    }

    /// Numbers about who may come in that only the process has.
    fn entry_metrics(&self) -> Vec<ExtraMetric> {
        Vec::new()
    }

    /// When the configuration that holds now was read; none where there is none.
    fn configured_at(&self) -> Option<SystemTime> {
        None
    }

    /// All doors of the process, in whatever state.
    fn doors(&self) -> Vec<ListenerStatus> {
        Vec::new()
    }

    /// Users and rules of access, as they hold now.
    fn access(&self) -> AccessOverview {
        AccessOverview::default()
    }

    /// Changes a user in the file of the users, and reads it again; or what is wrong, in words.
    fn change_user(&self, _change: &UserChange) -> Result<(), String> {
        Err("this process has no users".to_owned())
    }

    /// Replaces the text of the file of the rules, if it still is the one `before`, and reads it again; or what is wrong.
    fn change_rules(&self, _before: &str, _text: &str) -> Result<(), String> {
        Err("this process has no rules".to_owned())
    }

    /// Tokens.
    fn tokens(&self) -> TokenOverview {
        TokenOverview::default()
    }

    /// Makes one. Waits for a file.
    fn make_token(&self, _wish: &TokenWish) -> Result<String, String> {
        Err("there are no tokens here".to_owned())
    }

    /// Takes all of a user back that were made until now. Waits for a file.
    fn revoke_tokens(&self, _user: &str) -> Result<(), String> {
        Err("there are no tokens here".to_owned())
    }

    /// The smart space; none if it is off.
    fn space(&self) -> Option<tidegate_space::SpaceHandle> {
        None
    }

    /// This node of a cluster; none if the broker is alone.
    fn cluster(&self) -> Option<ClusterReport> {
        None
    }

    /// The bridges to other brokers, in the order of the configuration.
    fn bridges(&self) -> Vec<BridgeReport> {
        Vec::new()
    }

    /// The sinks, in the order of the configuration.
    fn sinks(&self) -> Vec<SinkReport> {
        Vec::new()
    }

    /// Whether publishers are left alone: `backoff.mode = "off"`.
    fn is_gate_off(&self) -> bool {
        false
    }

    /// The demonstration; none where there is no stage for it.
    fn demo(&self) -> Option<Arc<dyn Demo>> {
        None
    }
}

/// How a bridge to another broker is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BridgeReport {
    /// The operator's name for it.
    pub name: String,
    /// The address that it is connected to, or tries.
    pub address: String,
    /// `up`, `connecting` or `down`.
    pub state: &'static str,
    /// Whether both brokers are there.
    pub is_up: bool,
    /// For how long it stands, or does not.
    pub age: Duration,
    /// When it tries again, while it waits.
    pub next_try: Option<Duration>,
    /// Messages in the spool, those under way included.
    pub queued_messages: u64,
    /// Bytes of them that are not under way.
    pub queued_bytes: u64,
    /// What may wait.
    pub spool_bytes_max: u64,
    /// Messages that the other broker has taken.
    pub sent: u64,
    /// Messages of the other broker that this one has taken.
    pub received: u64,
    /// Refusals that pass: these messages are sent again.
    pub deferred: u64,
    /// Messages of the other broker that found no room: these are sent again.
    pub overrun: u64,
    /// Messages that the other broker does not want, for good.
    pub refused: u64,
    /// Messages of the other broker that this one does not want, for good.
    pub refused_here: u64,
    /// Messages that came through too many bridges.
    pub looped: u64,
    /// Messages of topics that are no topics of the bridge any more.
    pub unmapped: u64,
    /// Messages that are larger than the other side takes.
    pub too_large: u64,
    /// Messages of QoS 0 that went with a connection.
    pub lost: u64,
    /// Connections that stood.
    pub connects: u64,
    /// Connections that broke, or could not be made.
    pub failures: u64,
    /// Messages that may be under way.
    pub window: u16,
    /// Messages that are.
    pub under_way: u64,
    /// How long an answer of the other broker takes.
    pub latency: Option<Duration>,
    /// The same when it has nothing else to do.
    pub base_latency: Option<Duration>,
    /// How long nothing goes because the other broker said so.
    pub pause: Option<Duration>,
    /// Why it does not stand, or what is wrong though it does.
    pub trouble: Option<String>,
}

/// How a sink is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SinkReport {
    /// The operator's name for it.
    pub name: String,
    /// `webhook`, `influxdb`, `postgres` or `kafka`.
    pub kind: &'static str,
    /// Where its receiver is.
    pub address: String,
    /// `up`, `down`, or `starting` while nothing was sent.
    pub state: &'static str,
    /// Whether what was sent last was not taken.
    pub is_down: bool,
    /// For how long it is so.
    pub age: Duration,
    /// When it tries again, while it waits.
    pub next_try: Option<Duration>,
    /// Messages in the spool, those under way included.
    pub queued_messages: u64,
    /// Bytes of them that are not under way.
    pub queued_bytes: u64,
    /// What may wait.
    pub spool_bytes_max: u64,
    /// Messages that were taken.
    pub sent: u64,
    /// Batches that were taken.
    pub batches: u64,
    /// Batches that were not taken now, and go again.
    pub failures: u64,
    /// Messages that the receiver does not want, for good.
    pub refused: u64,
    /// Messages of which nothing can be made for this receiver.
    pub unmapped: u64,
    /// Messages of QoS 0 for which there was no room.
    pub lost: u64,
    /// Messages that the next batch may have.
    pub batch_size: u64,
    /// Messages under way.
    pub under_way: u64,
    /// How long the last answer took.
    pub latency: Option<Duration>,
    /// What is wrong.
    pub trouble: Option<String>,
    /// What was said of the last message that was refused for good.
    pub refusal: Option<String>,
}

/// What a reload came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Keys whose new values hold from now on.
    pub changed: Vec<String>,
    /// Keys whose new values hold after a restart.
    pub restart: Vec<String>,
}

/// Who may come in and do what, for operators. No passwords.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessOverview {
    /// Names, each with its roles.
    pub users: Vec<(String, Vec<String>)>,
    /// Where they stand; none if there are none.
    pub users_file: Option<PathBuf>,
    /// Rules of access, each in a line; not more than a page can show.
    pub rules: Vec<String>,
    /// Where those stand that are not in the configuration.
    pub rules_file: Option<PathBuf>,
    /// The text of that file, if a page may change it: there is one, and it is not too long.
    pub rules_text: Option<String>,
    /// Whether clients without a user come in although there are users.
    pub allow_anonymous: bool,
}

/// What is known of tokens that clients give as passwords.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenOverview {
    /// Whether a token is a password here.
    pub are_taken: bool,
    /// Keys that one may be signed with.
    pub keys: usize,
    /// Whether there is a secret to sign tokens with.
    pub can_make: bool,
    /// Who must have made one.
    pub issuer: Option<String>,
    /// Whom one must be for.
    pub audience: Vec<String>,
    /// Where it lists roles.
    pub roles_claim: Option<String>,
    /// Those that were refused, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Users whose tokens were taken back, and until which second since 1970 they were made.
    pub revoked: Vec<(String, u64)>,
}

/// A token that an operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWish {
    /// Whose it is.
    pub user: String,
    /// What it may do.
    pub roles: Vec<String>,
    /// For how long.
    pub life: Duration,
}

/// What an operator does about a user.
#[derive(Clone, PartialEq, Eq)]
pub enum UserChange {
    /// A new one, or another password, or other roles.
    Put {
        /// Who.
        name: String,
        /// None: the one from before.
        password: Option<String>,
        /// None: those from before.
        roles: Option<Vec<String>>,
    },
    /// Away with it.
    Remove {
        /// Who.
        name: String,
    },
}

impl fmt::Debug for UserChange {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { name, roles, .. } => {
                f.debug_struct("Put").field("name", name).field("roles", roles).finish_non_exhaustive()
            }
            Self::Remove { name } => f.debug_struct("Remove").field("name", name).finish(),
        }
    }
}

/// One setting as it holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingInForce {
    /// Section and name: `limits.receive_max`.
    pub path: String,
    /// As the file would have it.
    pub value: String,
    /// Where the value comes from: a file and line, the command line, or the default.
    pub origin: String,
    /// What it is, in one line.
    pub about: String,
    /// Whether a change takes effect after a restart only.
    pub needs_restart: bool,
}

/// A place where this process may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerStatus {
    /// As the configuration calls it: `http`, or the name of a listener with rules of its own.
    pub name: &'static str,
    /// What is spoken there.
    pub kind: &'static str,
    /// Where it is, or would be.
    pub address: Option<SocketAddr>,
    /// Whether it is open.
    pub state: ListenerState,
    /// Sockets that came in there and are open, where they are counted apart.
    pub connections: Option<usize>,
}

/// Whether a listener is open, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerState {
    /// Open.
    Open,
    /// Closed, as the configuration has it.
    Off,
    /// It should be open, and could not be.
    Failed,
    /// No longer open: the process ends.
    Draining,
}

impl ListenerState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Off => "off",
            Self::Failed => "failed",
            Self::Draining => "draining",
        }
    }
}

/// A certificate that clients are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The listener that shows the certificate.
    pub listener: String,
    /// Whose it is; or what is wrong with the file.
    pub subject: String,
    /// When it ends; none if that cannot be read.
    pub expires: Option<SystemTime>,
}

/// A demonstration of the gate, in a broker of its own. Its methods are called on a thread that may wait.
pub trait Demo: fmt::Debug + Send + Sync {
    /// Begins, with or without the gate. False: it runs already.
    fn start(&self, gate: bool) -> Result<bool, String>;

    /// Ends it early.
    fn stop(&self);

    /// How it goes, as JSON.
    fn show(&self) -> serde_json::Value;
}

/// Knows the users and their roles.
#[derive(Clone, Debug)]
pub struct UserDirectory {
    /// Who are you?
    pub authenticator: Arc<dyn Authenticator>,
    /// What are you here?
    pub roles: Arc<dyn Roles>,
}

/// Knows the roles of users.
pub trait Roles: fmt::Debug + Send + Sync {
    /// The best role of a user here; none if it has no business here.
    fn role(&self, user: &str) -> Option<Role>;
}

/// What somebody may do here. Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May look.
    Viewer,
    /// May act on clients: end connections, set limits.
    Operator,
    /// May act on the process: reload, drain.
    Admin,
}

impl Role {
    /// By its name in the file of users.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "viewer" => Some(Self::Viewer),
            "operator" => Some(Self::Operator),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}
