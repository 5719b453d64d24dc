//! Who may come in, as the process knows it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_graph::GraphRights;

use crate::machine::request_limits::RequestLimit;
use crate::machine::standing::KpStanding;

/// Knows the users. Asked for every request, so that a reload holds from the next one on.
pub trait AccessPolicy: fmt::Debug + Send + Sync {
    /// What the doors are to ask for.
    fn rule(&self) -> AccessMode;

    /// Changes with the users: what was known of passwords before is forgotten.
    fn generation(&self) -> u64;

    /// Whether pages of this origin, in small letters, may use the doors although they are from elsewhere.
    fn is_welcome(&self, _origin: &str) -> bool {
        false
    }

    /// The class of a KP, which may ask for another one (`pace-class`). Without classes all are alike.
    fn class_of(&self, _kp: &KpIdentity<'_>, claim: Option<&str>) -> KpClass {
        KpClass { is_claim_ignored: claim.is_some(), ..KpClass::default() }
    }

    /// The graphs that this user may read and write, or somebody who has not shown who it is. None: all of them.
    fn rights(&self, _user: Option<&str>) -> Option<Arc<GraphRights>> {
        None
    }

    /// How long a KP has to stay away, if it is banned.
    fn banned_for(&self, _kp: &KpIdentity<'_>) -> Option<Duration> {
        None
    }

    /// How many requests an operator allows a KP or its user, if any limit was set.
    fn limit_of(&self, _kp: &KpIdentity<'_>) -> Option<RequestLimit> {
        None
    }

    /// Checks a password that comes from there, elsewhere, and calls back if it was asked.
    fn check(&self, user: String, password: Vec<u8>, from: IpAddr, verdict: Box<dyn FnOnce(bool) + Send>) -> Checked;

    /// The same for a token, which says itself whose it is. Nobody, if there are no tokens here.
    fn check_token(&self, _token: Vec<u8>, _from: IpAddr, verdict: TokenVerdict) -> Checked {
        verdict(None);
        Checked::Asked
    }

    /// Whether the tokens of a user that were shown at this time, in seconds since 1970, were taken back since.
    fn is_taken_back(&self, _user: &str, _shown_s: u64) -> bool {
        false
    }

    /// Checks the name in a certificate that was verified, in the same way. Nobody, if certificates are not for users here.
    fn check_certificate(&self, _user: String, _from: IpAddr, verdict: Box<dyn FnOnce(bool) + Send>) -> Checked {
        verdict(false);
        Checked::Asked
    }
}

/// What becomes of a token: whose it is, if it is valid.
pub type TokenVerdict = Box<dyn FnOnce(Option<TokenHolder>) + Send>;

/// Whose a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenHolder {
    /// The user whom it names.
    pub user: Arc<str>,
    /// How long it is valid from now on; none: until somebody says otherwise.
    pub valid_for: Option<Duration>,
}

/// A knowledge processor, as its door knows it.
#[derive(Clone, Copy, Debug)]
pub struct KpIdentity<'a> {
    /// The user whose password was right.
    pub user: Option<&'a str>,
    /// Where it connects from.
    pub address: IpAddr,
    /// What it calls itself: the node of SSAP, or `pace-client`. Nobody has looked whether it is.
    pub name: Option<&'a str>,
}

/// The class of a KP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KpClass {
    /// What it is called.
    pub name: Arc<str>,
    /// What it means in the queues.
    pub standing: KpStanding,
    /// The KP asked for another class, without the right to it.
    pub is_claim_ignored: bool,
}

impl Default for KpClass {
    fn default() -> Self {
        Self { name: Arc::from("normal"), standing: KpStanding::default(), is_claim_ignored: false }
    }
}

/// The rights of whoever a connection belongs to, for as long as they are in force.
#[derive(Debug)]
pub(crate) struct ConnectionRights {
    policy: Arc<dyn AccessPolicy>,
    user: Option<Arc<str>>,
    generation: u64,
    /// None: everything.
    pub(crate) rights: Option<Arc<GraphRights>>,
}

impl ConnectionRights {
    pub(crate) fn new(policy: Arc<dyn AccessPolicy>, user: Option<Arc<str>>) -> Self {
        let (generation, rights) = (policy.generation(), policy.rights(user.as_deref()));
        Self { policy, user, generation, rights }
    }

    /// Looks whether they are others now; then what stands was asked with rights that are gone.
    pub(crate) fn renew(&mut self) -> bool {
        let generation = self.policy.generation();
        if std::mem::replace(&mut self.generation, generation) == generation {
            return false;
        }
        let rights = self.policy.rights(self.user.as_deref());
        std::mem::replace(&mut self.rights, rights) != self.rights
    }
}

/// What whoever subscribed is told when its rights have changed.
pub(crate) const RIGHTS_CHANGED: &str = "the rights to read graphs have changed; subscribe again";

/// What a KP is told that is banned.
pub(crate) fn banned(left: Duration) -> String {
    format!("banned by an operator or for a flood; it ends in {} s", left.as_secs().max(1))
}

/// Whether a password is being checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The password is being checked.
    Asked,
    /// Too many are being checked.
    Busy,
    /// This user from there has given wrong ones, and has to wait.
    Wait(Duration),
}

/// Who needs a user name for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// There are no users: everybody on this machine may read and write.
    Open,
    /// Everybody may read; writing needs a user.
    ReadersOpen,
    /// Everything needs a user.
    Users,
}

/// Lets everybody in: for tests, and for a machine of one's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Everybody;

impl AccessPolicy for Everybody {
    fn rule(&self) -> AccessMode {
        AccessMode::Open
    }

    fn generation(&self) -> u64 {
        0
    }

    fn check(&self, _: String, _: Vec<u8>, _: IpAddr, verdict: Box<dyn FnOnce(bool) + Send>) -> Checked {
        verdict(false);
        Checked::Asked
    }
}
