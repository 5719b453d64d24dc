//! Who may come in and what they may do: the one place where the configuration meets the crate that knows users.

use std::net::IpAddr;
use std::sync::Arc;

use tidegate_broker::authenticate::{Anonymous, Authenticator};
use tidegate_broker::config::{Config, Listener};
use tidegate_core::access::{Open, Policy};

use crate::config::{Loaded, Problem, Problems};
use crate::plan::door_name;

/// What the broker asks.
#[derive(Clone)]
pub(crate) struct Security {
    /// Who are you?
    pub(crate) authenticator: Arc<dyn Authenticator>,
    /// May you do this?
    pub(crate) policy: Arc<dyn Policy>,
    /// Whether there are users; without them the broker stays on this machine.
    pub(crate) has_users: bool,
}

/// Reads users and rules.
pub(crate) fn load(_: &Loaded) -> Result<Security, Problems> {
    Ok(Security { authenticator: Arc::new(Anonymous), policy: Arc::new(Open), has_users: false })
}

/// Refuses to open the broker to other machines while everybody could come in.
pub(crate) fn check_exposure(config: &Config, security: &Security, loaded: &Loaded) -> Result<(), Problems> {
    if security.has_users || loaded.options.security.allow_anonymous {
        return Ok(());
    }
    let exposed =
        config.listeners.iter().filter(|listener| !is_loopback(listener.bind.ip()) && !asks_for_certificate(listener));
    let problem = |listener: &Listener| {
        let name = door_name(listener.kind);
        let message =
            format!("listeners.{name} = \"{}\" accepts other machines, but there are no users", listener.bind);
        Problem::general(message).with_hint(
            "add one with `tidegate user add NAME`, or insist on an open broker with --allow-anonymous".to_owned(),
        )
    };
    let problems: Vec<Problem> = exposed.map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn asks_for_certificate(listener: &Listener) -> bool {
    listener.tls.as_ref().is_some_and(|tls| tls.client_cert_required)
}

/// What an operator should know and may have overlooked.
pub(crate) fn warnings(loaded: &Loaded) -> Vec<String> {
    let mut warnings = Vec::new();
    let secrets = [loaded.options.tls.key.clone(), crate::plan::password_file(&loaded.options)];
    for path in secrets.into_iter().flatten().filter(|path| is_readable_by_all(path)) {
        warnings.push(format!("{0} can be read by everybody on this machine: chmod 600 {0}", path.display()));
    }
    warnings
}

/// Whether others than owner and group may read the file (mosquitto's CVE-2017-9868 was this, for its database).
fn is_readable_by_all(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}
