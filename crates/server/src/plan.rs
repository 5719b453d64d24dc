//! From a configuration whose values fit to what the broker needs: the rules between keys are judged here.
//!
//! The most important of them: nothing listens beyond this machine while there are no users, unless the operator insists.

mod admission;
pub mod cluster;
mod gateway;
mod guard;
mod listeners;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_broker::Handle;
use tidegate_broker::config::{Config, TlsFiles};
use tidegate_broker::store_link::StoreConfig;
use tidegate_control::rhythm::RhythmConfig;
use tidegate_core::classes::{Class, Classes, Priority, PriorityMode};
use tidegate_core::settings::{ArrivalRules, BackOff, Settings, Spool};
use tidegate_space::SpaceAddresses;
use tidegate_wire_mqtt::QoS;

use admission::pointless_delays;
pub use admission::{admission, delegation, long_answers};
pub use listeners::{DOORS, is_block, listener_key};

use crate::config::bridge::BridgeSettings;
use crate::config::keys::{Limits, Options};
use crate::config::setting::{FOREVER, Or, Size, Span, WholeNumber};
use crate::config::sink::SinkSettings;
use crate::config::words::{BindAddress, BindIds, Door, Origins, SecureDoor, UpstreamAddress};
use crate::config::{ConfigProblem, Loaded, Origin, Problems};
use crate::{certificate, tokens};

/// The file with the users: the one that is configured, else the one in the data folder unless there surely is none.
pub fn password_file(options: &Options) -> Option<PathBuf> {
    let usual = || Some(usual_password_file(options)).filter(|path| !is_missing(path));
    options.security.password_file.clone().or_else(usual)
}

/// Whether there are users, here or elsewhere: whoever comes with a token, or is known to somebody who is asked, is one, too.
pub fn has_users(loaded: &Loaded) -> bool {
    let is_asked = loaded.options.http_auth.url.clone().value().is_some();
    password_file(&loaded.options).is_some() || tokens::rules(loaded).is_some() || is_asked
}

/// Whether there surely is no such file. One that we may not look at may be there: to take it for missing would open the
/// broker to everybody.
pub fn is_missing(path: &Path) -> bool {
    // Not through a link: one that leads nowhere was put there by somebody.
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Where the users are kept when nothing else is said.
pub fn usual_password_file(options: &Options) -> PathBuf {
    options.server.data.join(USERS)
}

/// The file of the users in the data folder, and in a copy of it.
pub const USERS: &str = "users";

/// The folder of the store in the data folder.
pub const STORE: &str = "store";

/// Where sessions and messages are kept.
pub fn store_dir(options: &Options) -> PathBuf {
    // A guard keeps what is usual for whom, and nothing that a broker has kept is its own.
    options.server.data.join(if guard(options).is_some() { GUARD_STORE } else { STORE })
}

/// The folder of a guard's store in the data folder.
pub const GUARD_STORE: &str = "guard";

/// Where the broker behind is; none if this one is no guard.
pub fn guard(options: &Options) -> Option<UpstreamAddress> {
    options.guard.upstream.clone().value()
}

/// The folder of the smart space in the data folder, and in a copy of it.
pub const SPACE: &str = "space";

/// Where the smart space is kept.
pub fn space_dir(options: &Options) -> PathBuf {
    options.server.data.join(SPACE)
}

/// Where the admin API is; none if it is off.
pub fn admin(options: &Options) -> Option<SocketAddr> {
    address(options.listeners.admin)
}

/// Where the admin API is with TLS; none if it is off.
pub fn admin_https(options: &Options) -> Option<SocketAddr> {
    address(options.listeners.admin_https)
}

/// What is shown there. Certificates of clients are for devices: who has a browser has a password.
pub fn admin_certificates(options: &Options) -> Option<TlsFiles> {
    let files = certificates(options)?;
    let (client_ca, client_cert_required, crl, client_pins) = (None, false, None, Vec::new());
    Some(TlsFiles { client_ca, client_cert_required, crl, client_pins, ..files })
}

/// Where the doors of the smart space are. Smart-M3 knows no users, so with users it is opened on demand only.
pub fn space(options: &Options, has_users: bool) -> SpaceAddresses {
    if guard(options).is_some() {
        return SpaceAddresses::default();
    }
    let ssap = match options.listeners.ssap {
        Or::Is(door) => address(door),
        Or::Word(_) => (!has_users).then(|| ([127, 0, 0, 1], 10010).into()),
    };
    let doors = &options.listeners;
    let (sepa_http, sepa_ws) = (address(doors.sepa_http), address(doors.sepa_ws));
    let (https, ssaps) = (address(doors.https), address(doors.ssaps));
    SpaceAddresses { http: address(doors.http), ssap, sepa_http, sepa_ws, https, ssaps }
}

/// Whether any door of the smart space is open.
pub fn has_space(options: &Options, has_users: bool) -> bool {
    space(options, has_users).named().iter().any(|(_, at)| at.is_some())
}

/// What the broker is to do. The security rule is checked separately, once the users are known.
pub fn broker(loaded: &Loaded) -> Result<Config, Problems> {
    let options = &loaded.options;
    let mut problems = Vec::new();
    let tls = tls_files(loaded, &mut problems);
    let listeners = listeners::listeners(loaded, tls.as_ref(), &mut problems);
    let priority = priority(loaded, &mut problems);
    problems.extend(pointless_delays(loaded));
    // A smart space without MQTT is a broker, too.
    let has_doors = !listeners.is_empty() || has_space(options, password_file(options).is_some());
    if !has_doors && problems.is_empty() {
        problems.push(
            ConfigProblem::general("every listener is off, nobody could connect")
                .with_hint("switch one on, for instance with --mqtt 127.0.0.1:1883".to_owned()),
        );
    }
    let sn = gateway::sn_config(loaded, &listeners, &mut problems);
    let guard = guard::guard_config(loaded, &listeners, &mut problems);
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let limits = &options.limits;
    Ok(Config {
        listeners,
        shards: options.server.shards.value().map_or(0, |WholeNumber(shards)| shards as usize),
        settings: Settings { priority, spools: spools(loaded), ..settings(options) },
        memory_max: limits.memory.value().map(|Size(bytes)| bytes),
        connections_max: count(limits.connections_max),
        handshake_timeout: limits.handshake_timeout.0,
        handshakes_max: limits.handshakes_max.0 as usize,
        password_threads: limits.password_threads.0 as usize,
        // What is below $SYS is the other broker's, if there is one.
        sys_interval: match (&guard, options.sys.interval.value()) {
            (None, Some(Span(interval))) => interval,
            _ => Duration::ZERO,
        },
        guard,
        sn,
        drain_timeout: options.server.drain_timeout.0,
        origins: options.security.origins.clone().value().map(|Origins(list)| list.into()),
        mirror: None,
        store: options.store.keep.then(|| StoreConfig {
            dir: store_dir(options),
            durability: options.store.durability.0,
            strict: options.store.strict,
            size_max: options.store.max_size.value().map(|Size(bytes)| bytes),
        }),
    })
}

/// What may wait for each bridge and sink.
fn spools(loaded: &Loaded) -> Vec<Spool> {
    let spool = |bridge: &BridgeSettings| Spool {
        client_id: Handle::bridge_id(&bridge.name).into(),
        bytes_max: usize::try_from(bridge.spool_bytes).unwrap_or(usize::MAX),
    };
    let of_sink = |sink: &SinkSettings| Spool {
        client_id: Handle::sink_id(&sink.name).into(),
        bytes_max: usize::try_from(sink.spool_bytes).unwrap_or(usize::MAX),
    };
    loaded.bridges.iter().map(spool).chain(loaded.sinks.iter().map(of_sink)).collect()
}

fn settings(options: &Options) -> Settings {
    let limits = &options.limits;
    Settings {
        packet_bytes_max: limits.packet_bytes_max.0 as u32,
        receive_max: limits.receive_max.0 as u16,
        inflight_max: limits.inflight_max.0 as u16,
        queue_messages_max: limits.queue_messages_max.0 as usize,
        queue_bytes_max: limits.queue_bytes_max.0 as usize,
        queue_memory_max: limits.queue_memory_max.0 as usize,
        outbox_bytes_max: limits.outbox_bytes_max.0 as usize,
        queue_qos0: limits.queue_qos0,
        topic_alias_max: limits.topic_alias_max.0 as u16,
        topic_alias_out_max: limits.topic_alias_out_max.0 as u16,
        // Seconds are what the protocol has; a fraction is rounded up, never down to nothing.
        keep_alive_max: limits.keep_alive_max.value().map(|Span(max)| max.as_millis().div_ceil(1000) as u16),
        session_expiry_max: limits.session_expiry_max.value().map_or(FOREVER, |Span(max)| max),
        session_expiry_v3: limits.session_expiry_v3.value().map_or(FOREVER, |Span(max)| max),
        qos_max: QoS::from_bits(limits.qos_max.0 as u8).unwrap_or_default(),
        retain_available: limits.retain_available,
        retained_messages_max: count(limits.retained_messages_max),
        retained_bytes_max: limits.retained_bytes_max.value().map_or(usize::MAX, |Size(bytes)| bytes as usize),
        subscriptions_max: count(limits.subscriptions_max),
        sessions_max: count(limits.sessions_max),
        client_id_bytes_max: limits.client_id_bytes_max.0 as usize,
        bind_sessions: options.security.bind_client_ids != BindIds::Off,
        topic_levels_max: limits.topic_levels_max.0 as usize,
        back_off: back_off(options),
        arrivals: arrivals(limits),
        write_timeout: limits.write_timeout.0,
        priority: Priority::default(),
        spools: Vec::new(),
    }
}

fn back_off(options: &Options) -> BackOff {
    let backoff = &options.backoff;
    let usual = BackOff::default();
    let learn = backoff.learn.value().map(|WholeNumber(learn)| learn as u32);
    let rhythm = |config: RhythmConfig| RhythmConfig {
        enforcement: backoff.enforce.0,
        learn_messages: learn.unwrap_or(config.learn_messages),
        learn_intervals: learn.unwrap_or(config.learn_intervals),
        headroom: backoff.headroom.0 as f64,
        burst: backoff.burst.0 as u32,
        delay_max: backoff.max_delay.0,
        paper_bounded: backoff.paper_bounded,
        ..config
    };
    let usual_rhythm = usual.rhythm.unwrap_or_default();
    BackOff {
        rhythm: backoff.mode.rule().map(|rule| rhythm(RhythmConfig { rule, ..usual_rhythm })),
        hold_messages_max: backoff.hold_messages.0 as usize,
        hold_bytes_max: backoff.hold_bytes.0 as usize,
        client_retry: backoff.client_retry.0,
        memory: backoff.memory.0,
        rate: options.limits.rate.value().map(|pace| pace.rate(None)),
    }
}

fn arrivals(limits: &Limits) -> ArrivalRules {
    ArrivalRules {
        new_clients: limits.new_clients.rate(Some(limits.new_clients_burst.0 as u32)),
        // As many at once as in the time that is named: the first second of a rush is no free one.
        paced: limits.paced_clients.rate(None),
    }
}

fn priority(loaded: &Loaded, problems: &mut Vec<ConfigProblem>) -> Priority {
    let section = &loaded.options.priority;
    problems.extend(loaded.classes.iter().filter_map(|(class, origin)| pointless(class, origin, loaded)));
    let own = loaded.classes.iter().map(|(class, _)| class.clone()).collect();
    let classes = Classes::new(own).unwrap_or_else(|message| {
        problems.push(ConfigProblem::general(message));
        Classes::default()
    });
    Priority { mode: section.mode.0, by: section.by.0, classes }
}

/// What a class asks for and will never get.
fn pointless(class: &Class, origin: &Origin, loaded: &Loaded) -> Option<ConfigProblem> {
    let queue = loaded.options.limits.queue_bytes_max.0;
    let problem = |field: &str, message: String| {
        Some(ConfigProblem::of_key(origin, &format!("classes.{}.{field}", class.name), message))
    };
    if class.max_bytes.is_some_and(|bytes| bytes as u64 > queue) {
        return problem("max_bytes", format!("more than limits.queue_bytes_max ({queue} bytes), which comes first"));
    }
    let capped = [("max_bytes", class.max_bytes.is_some()), ("max_delay", class.max_delay.is_some())];
    let (field, _) = capped.into_iter().find(|(_, is_set)| *is_set)?;
    match loaded.options.priority.mode.0 {
        PriorityMode::Off => problem(field, "there are no classes while priority.mode is \"off\"".to_owned()),
        _ => None,
    }
}

fn count<W: Copy, const MIN: u64, const MAX: u64>(limit: Or<W, WholeNumber<MIN, MAX>>) -> usize {
    limit.value().map_or(usize::MAX, |WholeNumber(number)| number as usize)
}

fn tls_files(loaded: &Loaded, problems: &mut Vec<ConfigProblem>) -> Option<TlsFiles> {
    let tls = &loaded.options.tls;
    let named =
        [("tls.cert", &tls.cert), ("tls.key", &tls.key), ("tls.client_ca", &tls.client_ca), ("tls.crl", &tls.crl)];
    problems.extend(unreadable(loaded, &named));
    problems.extend(unreadable(loaded, &[("tls.psk_file", &tls.psk_file)]));
    for (key, is_set) in [("tls.crl", tls.crl.is_some()), ("tls.client_pins", !tls.client_pins.0.is_empty())] {
        if is_set && tls.client_ca.is_none() {
            problems.push(ConfigProblem::of_key(
                loaded.origin(key),
                key,
                "is about certificates of clients, and needs a client_ca",
            ));
        }
    }
    let are_readable = problems.is_empty();
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            if are_readable {
                problems.extend(certificate::check(cert, key, tls.client_ca.as_deref()));
            }
            certificates(&loaded.options)
        }
        (None, None) => None,
        (Some(_), None) => {
            let problem =
                ConfigProblem::of_key(loaded.origin("tls.cert"), "tls.cert", "a certificate needs its private key");
            problems.push(problem.with_hint("set tls.key (--key FILE)".to_owned()));
            None
        }
        (None, Some(_)) => {
            let problem =
                ConfigProblem::of_key(loaded.origin("tls.key"), "tls.key", "a private key needs its certificate");
            problems.push(problem.with_hint("set tls.cert (--cert FILE)".to_owned()));
            None
        }
    }
}

/// Files that are named and cannot be read, for a configuration that is wrong in other ways, too.
pub fn unreadable_files(loaded: &Loaded) -> Vec<ConfigProblem> {
    let (tls, security) = (&loaded.options.tls, &loaded.options.security);
    let named = [
        ("tls.cert", &tls.cert),
        ("tls.key", &tls.key),
        ("tls.client_ca", &tls.client_ca),
        ("tls.crl", &tls.crl),
        ("tls.psk_file", &tls.psk_file),
        ("security.password_file", &security.password_file),
        ("security.acl_file", &security.acl_file),
    ];
    let of_blocks = loaded.listeners.iter().flat_map(|block| {
        let named = [("password_file", &block.password_file), ("acl_file", &block.acl_file)];
        listeners::unreadable_of(block, &named)
    });
    unreadable(loaded, &named).into_iter().chain(of_blocks).collect()
}

fn unreadable(loaded: &Loaded, named: &[(&'static str, &Option<PathBuf>)]) -> Vec<ConfigProblem> {
    let problem = |(key, path): &(&'static str, &Option<PathBuf>)| {
        let path = path.as_deref()?;
        // Opened, not only looked at: a file that exists and may not be read is the more usual mistake.
        let error = std::fs::File::open(path).err()?;
        let message = format!("{} cannot be read: {error}", path.display());
        Some(ConfigProblem::of_key(loaded.origin(key), key, message))
    };
    named.iter().filter_map(problem).collect()
}

/// Refuses a data path that is no folder: whatever is looked for in it would fail, and say less.
pub fn check_data_kind(loaded: &Loaded) -> Result<(), Problems> {
    match std::fs::metadata(&loaded.options.server.data) {
        Ok(found) if !found.is_dir() => Err(no_data(loaded, "is a file, and a folder is needed")),
        _ => Ok(()),
    }
}

/// Refuses a data folder that cannot be written, by a broker that is to serve. One that is not there yet is made by
/// whoever writes first.
pub fn check_data(loaded: &Loaded) -> Result<(), Problems> {
    let folder = &loaded.options.server.data;
    let why = match std::fs::metadata(folder) {
        Ok(_) => match rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
            Ok(()) => return Ok(()),
            Err(error) => format!("cannot be written: {}", std::io::Error::from(error)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => format!("cannot be looked at: {error}"),
    };
    Err(no_data(loaded, &why))
}

fn no_data(loaded: &Loaded, why: &str) -> Problems {
    let message = format!("{} {why}", loaded.options.server.data.display());
    let problem = ConfigProblem::of_key(loaded.origin("server.data"), "server.data", message);
    Problems(vec![problem.with_hint("name another folder with --data DIR".to_owned())])
}

/// The files of a configuration that was found sound; none if it has no certificate.
pub fn certificates(options: &Options) -> Option<TlsFiles> {
    let tls = &options.tls;
    let (cert, key) = (tls.cert.clone()?, tls.key.clone()?);
    let client_cert_required = tls.client_ca.is_some() && tls.client_cert_required;
    let (crl, client_pins) = (tls.crl.clone(), tls.client_pins.0.clone());
    Some(TlsFiles { cert, key, client_ca: tls.client_ca.clone(), client_cert_required, crl, client_pins })
}

fn address(door: Door) -> Option<SocketAddr> {
    door.value().map(|BindAddress(at)| at)
}

fn secure_address(door: SecureDoor, port: u16, has_certificate: bool) -> Option<SocketAddr> {
    match door {
        Or::Is(door) => address(door),
        Or::Word(_) => has_certificate.then(|| ([127, 0, 0, 1], port).into()),
    }
}

#[cfg(test)]
mod tests;
