//! Whom a configuration lets in from where: what is refused at the start, and what an operator is warned of.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tidegate_broker::config::{Config, Listener, ListenerKind};

use super::Security;
use crate::config::words::BindIds;
use crate::config::{ConfigProblem, Loaded, Origin, Problems};
use crate::plan::{
    admin, admin_https, certificates, has_space, is_block, listener_key, password_file, space as space_doors,
};
use crate::{certificate, descriptors, disk_free};

/// Refuses to open the broker to other machines while everybody could come in.
pub fn check_exposure(config: &Config, security: &Security, loaded: &Loaded) -> Result<(), Problems> {
    let doors = space_doors(&loaded.options, security.has_users);
    let is_exposed = |at: &SocketAddr| !is_loopback(at.ip());
    let asks_all = certificates(&loaded.options).is_some_and(|files| files.client_cert_required);
    let unnamed = [("ssap", doors.ssap), ("ssaps", doors.ssaps.filter(|_| !asks_all))];
    let unnamed = unnamed.into_iter().find_map(|(name, at)| Some((name, at.filter(is_exposed)?)));
    if let Some((name, at)) = unnamed.filter(|_| !security.allow_anonymous) {
        let message = format!("listeners.{name} = \"{at}\" accepts other machines, but Smart-M3 knows no users");
        let hint = "listen on this machine only, or insist on an open listener with --allow-anonymous".to_owned();
        return Err(Problems(vec![ConfigProblem::general(message).with_hint(hint)]));
    }
    let is_open = |listener: &&Listener| listener.kind.is_datagrams() && is_exposed(&listener.bind);
    if let Some(listener) = config.listeners.iter().find(is_open).filter(|_| !security.allow_anonymous) {
        let (name, at) = (listener.kind.name(), listener.bind);
        let what = if listener.kind == ListenerKind::Coap { "CoAP" } else { "MQTT-SN" };
        let message = format!("listeners.{name} = \"{at}\" accepts other machines, but {what} knows no users");
        let hint = "listen on this machine only, or insist on an open door with --allow-anonymous".to_owned();
        return Err(Problems(vec![ConfigProblem::general(message).with_hint(hint)]));
    }
    if security.has_users {
        return Ok(());
    }
    let https = ("https", doors.https.filter(|_| !asks_all));
    let plain = [("http", doors.http), ("sepa_http", doors.sepa_http), ("sepa_ws", doors.sepa_ws), https];
    if let Some((name, at)) = plain.into_iter().find_map(|(name, at)| Some((name, at.filter(is_exposed)?))) {
        let message = format!("listeners.{name} = \"{at}\" accepts other machines, but there are no users");
        let hint = "add one with `tidegate user add NAME`, or listen on this machine only".to_owned();
        return Err(Problems(vec![ConfigProblem::general(message).with_hint(hint)]));
    }
    // Who may not be kept from publishing may still be kept from ending connections.
    let admins = [("admin", admin(&loaded.options)), ("admin_https", admin_https(&loaded.options))];
    if let Some((name, at)) = admins.into_iter().find_map(|(name, at)| Some((name, at.filter(is_exposed)?))) {
        let message = format!("listeners.{name} = \"{at}\" accepts other machines, but there are no users");
        let hint = "add one with `tidegate user add NAME --roles admin`, or listen on this machine only".to_owned();
        return Err(Problems(vec![ConfigProblem::general(message).with_hint(hint)]));
    }
    let problem = |listener: &Listener| {
        let (key, at) = (listener_key(listener), listener.bind);
        if is_block(listener) {
            let message = format!("{key} at {at} accepts other machines, but there are no users");
            let hint = "give it a password_file, add a user with `tidegate user add NAME`, or insist on an open listener with \
                        anonymous = true";
            return ConfigProblem::general(message).with_hint(hint.to_owned());
        }
        let message = format!("{key} = \"{at}\" accepts other machines, but there are no users");
        ConfigProblem::general(message).with_hint(
            "add one with `tidegate user add NAME`, or insist on an open broker with --allow-anonymous".to_owned(),
        )
    };
    // Who may come in is for the broker behind to say.
    if config.guard.is_some() {
        return Ok(());
    }
    let exposed = |listener: &&Listener| {
        !is_loopback(listener.bind.ip()) && security.is_open(listener) && !security.is_open_on_purpose(listener)
    };
    let problems: Vec<ConfigProblem> = config.listeners.iter().filter(exposed).map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

/// Who can come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Whoever has a password or a certificate, from everywhere.
    Known,
    /// Whoever has a password or a certificate, and only on this machine.
    KnownHere,
    /// Everybody on this machine: there are no users.
    ThisMachine,
    /// Everybody on this machine, whether there are users or not: `allow_anonymous` says so.
    AnybodyHere,
    /// Everybody, from everywhere.
    Everybody,
    /// Nobody by MQTT, which is off: the smart space alone is served.
    SpaceOnly,
}

/// Who can come in, to be said at the start.
pub fn audience(config: &Config, security: &Security) -> Audience {
    let is_here = |listener: &Listener| is_loopback(listener.bind.ip());
    let open: Vec<&Listener> = config.listeners.iter().filter(|listener| security.is_open(listener)).collect();
    match () {
        () if config.listeners.is_empty() => Audience::SpaceOnly,
        () if open.is_empty() && config.listeners.iter().all(is_here) => Audience::KnownHere,
        () if open.is_empty() => Audience::Known,
        () if !open.iter().all(|listener| is_here(listener)) => Audience::Everybody,
        () if open.iter().any(|listener| security.is_open_on_purpose(listener)) => Audience::AnybodyHere,
        () => Audience::ThisMachine,
    }
}

/// What opens a broker to everybody, and what closes it again: that depends on who said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opener {
    /// The setting, with the listener if it is that of one.
    pub setting: String,
    pub how_to_close: String,
}

/// The setting that lets everybody in.
pub fn opener(loaded: &Loaded) -> Opener {
    let block = loaded.listeners.iter().find(|block| block.anonymous == Some(true));
    if let Some(block) = block.filter(|_| !loaded.options.security.allow_anonymous) {
        let setting = format!("anonymous of the listener {}", block.name);
        return Opener { setting, how_to_close: format!("remove anonymous = true ({})", block.origin) };
    }
    let how_to_close = match loaded.origin("security.allow_anonymous") {
        Origin::Flag(flag) if flag == "--allow-anonymous" => "start without --allow-anonymous".to_owned(),
        Origin::Environment(name) => format!("unset {name}"),
        origin @ Origin::File { .. } => format!("remove allow_anonymous ({origin})"),
        _ => "remove security.allow_anonymous".to_owned(),
    };
    Opener { setting: "allow_anonymous".to_owned(), how_to_close }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

pub(super) fn asks_for_certificate(listener: &Listener) -> bool {
    match (&listener.tls, listener.kind) {
        // Where there is neither an authority nor a key to show, there would be no listener.
        (tls, ListenerKind::Coaps) => tls.as_ref().is_none_or(|tls| tls.client_ca.is_some()),
        (tls, _) => tls.as_ref().is_some_and(|tls| tls.client_cert_required),
    }
}

/// What an operator should know and may have overlooked.
pub fn warnings(loaded: &Loaded, config: &Config, security: &Security) -> Vec<String> {
    let mut warnings = Vec::new();
    let place = match audience(config, security) {
        Audience::Everybody => Some("who reaches this broker"),
        Audience::AnybodyHere => Some("on this machine"),
        _ => None,
    };
    if let Some(place) = place {
        let Opener { setting, how_to_close } = opener(loaded);
        warnings.push(format!("anybody {place} may come in without a name ({setting}); to close it, {how_to_close}"));
    }
    if security.has_users && loaded.options.security.bind_client_ids == BindIds::Off {
        let message = "any user can end the session of another who is away, and lose its messages, by using its client \
                       identifier (security.bind_client_ids = false); \"session\" keeps it";
        warnings.push(message.to_owned());
    }
    let jwt = &loaded.options.jwt;
    if jwt.keys.clone().value().is_some() && jwt.audience.0.is_empty() {
        let message = "a token for anybody else that one of these keys has signed lets its owner in here, too \
                       (jwt.audience is empty); name the audience of the tokens that are for this broker";
        warnings.push(message.to_owned());
    }
    warnings.extend(crate::bridges::warnings(&loaded.bridges, &config.listeners));
    let stranger = |name: &String| format!("rules name the user {name:?}, who is not in the password file");
    warnings.extend(security.strangers.iter().map(stranger));
    warnings.extend(server_certificates(loaded).iter().filter_map(|cert| certificate::expiry_warning(cert)));
    warnings.extend(descriptors::warning(loaded, has_space(&loaded.options, security.has_users)));
    warnings.extend(disk_free::warning(&loaded.options.server.data));
    let secrets = [loaded.options.tls.key.clone(), password_file(&loaded.options)];
    let of_blocks = loaded.listeners.iter().flat_map(|block| [block.key.clone(), block.password_file.clone()]);
    for path in secrets.into_iter().chain(of_blocks).flatten().filter(|path| is_readable_by_all(path)) {
        warnings.push(format!("{0} can be read by everybody on this machine: chmod 600 {0}", path.display()));
    }
    warnings
}

/// The certificates that clients are shown, each once.
pub fn server_certificates(loaded: &Loaded) -> BTreeSet<PathBuf> {
    let of_blocks = loaded.listeners.iter().filter_map(|block| block.cert.clone());
    loaded.options.tls.cert.clone().into_iter().chain(of_blocks).collect()
}

/// Whether this process may do everything. Said once, when it serves.
pub fn is_root() -> bool {
    // The owner of our own entry in /proc is who we are; no system call of our own is needed.
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Whether others than owner and group may read the file (mosquitto's CVE-2017-9868 was this, for its database).
fn is_readable_by_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}
