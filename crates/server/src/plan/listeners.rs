//! Which listeners are opened: those of the section `[listeners]`, one of each kind, and the blocks `[[listener]]`, as many
//! as there are, each with what it has of its own.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_broker::config::{DtlsRules, Listener, ListenerKind, TlsFiles};

use super::{address, has_users, secure_address};
use crate::certificate;
use crate::config::keys::Options;
use crate::config::listener::ListenerSetting;
use crate::config::setting::Or;
use crate::config::{ConfigProblem, Loaded};

/// Names and keys of the listeners, for messages.
pub const DOORS: &[(ListenerKind, &str)] = &[
    (ListenerKind::Mqtt, "mqtt"),
    (ListenerKind::Mqtts, "mqtts"),
    (ListenerKind::Ws, "ws"),
    (ListenerKind::Wss, "wss"),
    (ListenerKind::Coap, "coap"),
    (ListenerKind::Coaps, "coaps"),
    (ListenerKind::Sn, "sn"),
    (ListenerKind::HttpTopics, "http_topics"),
    (ListenerKind::HttpsTopics, "https_topics"),
    (ListenerKind::Amqp, "amqp"),
    (ListenerKind::Amqps, "amqps"),
];

/// What a listener is called in the configuration: its key, or its block.
pub fn listener_key(listener: &Listener) -> String {
    if is_block(listener) { format!("listener {}", listener.name) } else { format!("listeners.{}", listener.name) }
}

/// Whether it is one of the blocks.
pub fn is_block(listener: &Listener) -> bool {
    listener.name != listener.kind.name()
}

pub(super) fn listeners(loaded: &Loaded, tls: Option<&TlsFiles>, problems: &mut Vec<ConfigProblem>) -> Vec<Listener> {
    let mut open = usual(loaded, tls, problems);
    open.extend(loaded.listeners.iter().map(|block| of_block(block, tls, problems)));
    check_apart(&open, problems);
    open
}

fn usual(loaded: &Loaded, tls: Option<&TlsFiles>, problems: &mut Vec<ConfigProblem>) -> Vec<Listener> {
    let options = &loaded.options;
    let doors = &options.listeners;
    let plain = [(ListenerKind::Mqtt, doors.mqtt), (ListenerKind::Ws, doors.ws)];
    let secure = [(ListenerKind::Mqtts, doors.mqtts, 8883), (ListenerKind::Wss, doors.wss, 8084)];
    let mut open: Vec<(ListenerKind, SocketAddr)> =
        plain.into_iter().filter_map(|(kind, door)| Some((kind, address(door)?))).collect();
    for (kind, door, port) in secure {
        let Some(at) = secure_address(door, port, tls.is_some()) else { continue };
        problems.extend(without_certificate(kind.name(), options));
        open.push((kind, at));
    }
    // A datagram names no user, so with users these are spoken on demand only; and a guard passes on MQTT alone.
    for (kind, door, port) in [(ListenerKind::Coap, doors.coap, 5683), (ListenerKind::Sn, doors.sn, 1885)] {
        let at = match door {
            Or::Is(door) => address(door),
            Or::Word(_) if super::guard(options).is_some() => None,
            Or::Word(_) if address(doors.mqtt).is_none() || has_users(loaded) => None,
            Or::Word(_) => Some(([127, 0, 0, 1], port).into()),
        };
        open.extend(at.map(|at| (kind, at)));
    }
    // Over DTLS there are no passwords: who has neither a key nor a certificate would be nobody.
    let psk_file = &options.tls.psk_file;
    let are_known = psk_file.is_some() || tls.is_some_and(|files| files.client_ca.is_some());
    if let Some(at) = secure_address(doors.coaps, 5684, are_known && super::guard(options).is_none()) {
        problems.extend(without_certificate("coaps", options).filter(|_| psk_file.is_none()));
        open.push((ListenerKind::Coaps, at));
    }
    let topics = match doors.http_topics {
        Or::Is(door) => address(door),
        Or::Word(_) if super::guard(options).is_some() => None,
        Or::Word(_) => address(doors.mqtt).map(|_| ([127, 0, 0, 1], 8082).into()),
    };
    open.extend(topics.map(|at| (ListenerKind::HttpTopics, at)));
    open.extend(address(doors.https_topics).map(|at| (ListenerKind::HttpsTopics, at)));
    let amqp = match doors.amqp {
        Or::Is(door) => address(door),
        Or::Word(_) if super::guard(options).is_some() => None,
        Or::Word(_) => address(doors.mqtt).map(|_| ([127, 0, 0, 1], 5672).into()),
    };
    open.extend(amqp.map(|at| (ListenerKind::Amqp, at)));
    open.extend(address(doors.amqps).map(|at| (ListenerKind::Amqps, at)));
    let secure = [
        ("https", doors.https),
        ("ssaps", doors.ssaps),
        ("https_topics", doors.https_topics),
        ("amqps", doors.amqps),
        ("admin_https", doors.admin_https),
    ];
    for (name, door) in secure {
        problems.extend(address(door).and_then(|_| without_certificate(name, options)));
    }
    open.sort_by_key(|(kind, _)| DOORS.iter().position(|(other, _)| other == kind));
    let tls_of = |kind: ListenerKind| tls.filter(|_| kind.is_encrypted()).cloned();
    // The others are asked for by whoever starts a broker.
    let is_optional = |kind| match kind {
        ListenerKind::Coap => matches!(doors.coap, Or::Word(_)),
        ListenerKind::Coaps => matches!(doors.coaps, Or::Word(_)) && psk_file.is_none(),
        ListenerKind::Sn => matches!(doors.sn, Or::Word(_)),
        ListenerKind::HttpTopics => matches!(doors.http_topics, Or::Word(_)),
        ListenerKind::Amqp => matches!(doors.amqp, Or::Word(_)),
        _ => false,
    };
    let handshake_timeout = options.limits.handshake_timeout.0;
    let listener = |(kind, bind)| Listener {
        tls: tls_of(kind),
        dtls: DtlsRules { psk_file: psk_file.clone(), handshake_timeout },
        is_optional: is_optional(kind),
        ..Listener::new(kind, bind)
    };
    open.into_iter().map(listener).collect()
}

/// What is missing at a door with TLS; one that is there and wrong was spoken of before.
fn without_certificate(name: &str, options: &Options) -> Option<ConfigProblem> {
    if options.tls.cert.is_some() || options.tls.key.is_some() {
        return None;
    }
    let message = format!("listeners.{name} needs a certificate and its private key");
    Some(ConfigProblem::general(message).with_hint("set tls.cert and tls.key (--cert, --key)".to_owned()))
}

fn of_block(block: &ListenerSetting, tls: Option<&TlsFiles>, problems: &mut Vec<ConfigProblem>) -> Listener {
    let named = [("cert", &block.cert), ("key", &block.key), ("client_ca", &block.client_ca), ("crl", &block.crl)];
    problems.extend(unreadable_of(block, &named));
    let tls = match (&block.cert, &block.key) {
        _ if !block.kind.is_encrypted() => None,
        (Some(cert), Some(key)) => {
            if named.iter().all(|(_, path)| path.as_ref().is_none_or(|path| path.exists())) {
                problems.extend(certificate::check(cert, key, block.client_ca.as_deref()));
            }
            let client_cert_required = block.client_ca.is_some() && block.client_cert_required;
            let (cert, key, client_ca) = (cert.clone(), key.clone(), block.client_ca.clone());
            let (crl, client_pins) = (block.crl.clone(), block.client_pins.clone());
            Some(TlsFiles { cert, key, client_ca, client_cert_required, crl, client_pins })
        }
        _ => {
            if tls.is_none() {
                let problem = block.problem("cert", "this kind of listener needs a certificate and its private key");
                problems.push(problem.with_hint("set cert and key here, or tls.cert and tls.key for all".to_owned()));
            }
            tls.cloned()
        }
    };
    Listener {
        name: block.name,
        tls,
        connections_max: block.connections_max,
        proxies: block.proxies.clone().into(),
        ..Listener::new(block.kind, block.address)
    }
}

/// Files of a block that are named and cannot be read.
pub(super) fn unreadable_of(block: &ListenerSetting, named: &[(&str, &Option<PathBuf>)]) -> Vec<ConfigProblem> {
    let problem = |(field, path): &(&str, &Option<PathBuf>)| {
        let path = path.as_deref()?;
        let error = std::fs::File::open(path).err()?;
        Some(block.problem(field, format!("{} cannot be read: {error}", path.display())))
    };
    named.iter().filter_map(problem).collect()
}

/// Two listeners on one address: said here, where both names are known, instead of "address in use" later.
fn check_apart(open: &[Listener], problems: &mut Vec<ConfigProblem>) {
    for (index, listener) in open.iter().enumerate() {
        let at = listener.bind;
        // A port of datagrams is another one than that of streams.
        let meets = |other: &&Listener| other.kind.is_datagrams() == listener.kind.is_datagrams();
        let before = open[..index].iter().filter(meets);
        for other in before.filter(|before| before.bind == at && at.port() != 0) {
            let (a, b) = (listener_key(other), listener_key(listener));
            problems.push(ConfigProblem::general(format!("{a} and {b} are both at {at}")));
        }
    }
}
