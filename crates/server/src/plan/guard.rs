//! A guard of another broker: where that is, whom to trust there, and what is pointless in front of it.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use tidegate_broker::config::{Listener, ListenerKind};
use tidegate_broker::{GuardConfig, UpstreamTls};

use crate::bridges::client_config;
use crate::config::bridge::BridgeTls;
use crate::config::words::UpstreamAddress;
use crate::config::{ConfigProblem, Loaded};

/// The broker behind; none if this one is no guard, or if something is wrong.
pub(super) fn guard_config(
    loaded: &Loaded,
    listeners: &[Listener],
    problems: &mut Vec<ConfigProblem>,
) -> Option<GuardConfig> {
    let upstream = super::guard(&loaded.options);
    let files = tls_files(loaded, upstream.as_ref(), problems);
    let upstream = upstream?;
    problems.extend(pointless_beside_guard(loaded, &upstream, listeners));
    let tls = match tls(&upstream, files.as_ref()) {
        Ok(tls) => tls,
        Err(message) => {
            let key = if files.is_some_and(|files| files.ca.is_some()) { "guard.ca" } else { "guard.upstream" };
            problems.push(ConfigProblem::of_key(loaded.origin(key), key, message));
            None
        }
    };
    Some(GuardConfig { upstream: upstream.place(), tls, timeout: loaded.options.guard.timeout.0 })
}

/// The files of TLS, where there is something to use them for.
fn tls_files(
    loaded: &Loaded,
    upstream: Option<&UpstreamAddress>,
    problems: &mut Vec<ConfigProblem>,
) -> Option<BridgeTls> {
    let options = &loaded.options.guard;
    let named = [("guard.ca", &options.ca), ("guard.cert", &options.cert), ("guard.key", &options.key)];
    if !upstream.is_some_and(|upstream| upstream.is_tls) {
        for (key, _) in named.into_iter().filter(|(_, file)| file.is_some()) {
            let problem = ConfigProblem::of_key(loaded.origin(key), key, "there is no TLS to the broker behind");
            let hint = "name that broker with mqtts://: --upstream mqtts://HOST:8883".to_owned();
            problems.push(problem.with_hint(hint));
        }
        return None;
    }
    if options.cert.is_some() != options.key.is_some() {
        let message = "guard.cert and guard.key belong together";
        problems.push(ConfigProblem::of_key(loaded.origin("guard.cert"), "guard.cert", message));
    }
    Some(BridgeTls { ca: options.ca.clone(), cert: options.cert.clone(), key: options.key.clone() })
}

fn tls(upstream: &UpstreamAddress, files: Option<&BridgeTls>) -> Result<Option<UpstreamTls>, String> {
    let Some(files) = files else { return Ok(None) };
    let config = client_config(files).map_err(|error| format!("{error:#}"))?;
    let name = ServerName::try_from(upstream.host.clone());
    let name = name.map_err(|_| format!("{:?} is no name that a certificate can have", upstream.host))?;
    Ok(Some(UpstreamTls { config: Arc::new(config), name }))
}

/// What needs a broker, and would do nothing at a guard; and an upstream that is the guard itself.
fn pointless_beside_guard(loaded: &Loaded, upstream: &UpstreamAddress, listeners: &[Listener]) -> Vec<ConfigProblem> {
    let origin = loaded.origin("guard.upstream");
    let problem = |message: String| ConfigProblem::of_key(origin, "guard.upstream", message);
    let mut problems = Vec::new();
    let has = |kind: ListenerKind| listeners.iter().any(|listener| listener.kind == kind);
    for (what, is_there) in [
        ("bridges", !loaded.bridges.is_empty()),
        ("sinks", !loaded.sinks.is_empty()),
        ("maps", !loaded.maps.is_empty()),
        ("listener for CoAP", has(ListenerKind::Coap) || has(ListenerKind::Coaps)),
        ("listener for MQTT-SN", has(ListenerKind::Sn)),
        ("listener for AMQP", has(ListenerKind::Amqp) || has(ListenerKind::Amqps)),
        ("topics over HTTP", has(ListenerKind::HttpTopics) || has(ListenerKind::HttpsTopics)),
    ] {
        if is_there {
            problems.push(problem(format!("a guard keeps no messages, so it has no {what}: that needs a broker")));
        }
    }
    let is_itself = |listener: &&Listener| upstream.place().parse() == Ok(listener.bind);
    if let Some(listener) = listeners.iter().find(is_itself) {
        let (kind, at) = (listener.kind.name(), listener.bind);
        problems.push(problem(format!("{at} is where the guard itself listens ({kind}): it would be behind itself")));
    }
    problems
}
