//! `/api/v1/limits` and `/api/v1/bans`: what an operator does about a client.
//!
//! A limit has a `rate`, which is hard, or makes a client `entitled` to one, which comes first where something is scarce;
//! or both. All of it outlives the process where there is a store; `kept` says whether it does.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tidegate_broker::{Ban, BanKept, Banned, OperatorSetting};
use tidegate_core::Whom;
use tidegate_core::settings::Rate;
use tidegate_space::KpIdentity;

use crate::audit::about;
use crate::body::{text, words_in};
use crate::problem::{Answered, Problem, json_of};
use crate::state::AdminState;
use crate::view;

/// How long a ban lasts when nothing is said, and at most.
const BAN_USUAL: Duration = Duration::from_secs(3600);
const BAN_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Bytes of a ban's reason.
const REASON_BYTES_MAX: usize = 256;

type Words = HashMap<String, String>;

pub(crate) async fn limits(State(state): State<Arc<AdminState>>) -> Answered {
    let (limits, grants) = (state.handle.rates(OperatorSetting::Limit), state.handle.rates(OperatorSetting::Grant));
    let mut by_whom: BTreeMap<Whom, [Option<Rate>; 2]> = BTreeMap::new();
    for (whom, rate) in limits {
        by_whom.entry(whom).or_default()[0] = Some(rate);
    }
    for (whom, rate) in grants {
        by_whom.entry(whom).or_default()[1] = Some(rate);
    }
    let limits: Vec<Value> = by_whom.iter().map(|(whom, rates)| limit_json(whom, *rates)).collect();
    Ok(json_of(&json!({ "limits": limits })))
}

fn limit_json(whom: &Whom, [rate, entitled]: [Option<Rate>; 2]) -> Value {
    let (kind, name) = match whom {
        Whom::Client(name) => ("client", name),
        Whom::User(name) => ("user", name),
    };
    let per_second = |rate: Rate| view::rounded(1.0 / rate.interval().as_secs_f64().max(1e-9));
    json!({
        "kind": kind,
        "name": &**name,
        "rate": rate.map(per_second),
        "burst": rate.map(|rate| rate.burst()),
        "entitled": entitled.map(per_second),
    })
}

pub(crate) async fn set_limit(State(state): State<Arc<AdminState>>, headers: HeaderMap, body: Bytes) -> Answered {
    let words = words_in(&headers, &body)?;
    let whom = whom(|name| text(&words, name))?;
    let wanted = |name: &str| match text(&words, name) {
        Some(rate) => match parse_rate(&rate) {
            Some(rate) => Ok(Some(rate)),
            None => Err(Problem::usage(format!("{rate:?} is no rate: expected \"500/s\", \"30/m\" or \"10/h\""))),
        },
        None => Ok(None),
    };
    let (rate, entitled) = (wanted("rate")?, wanted("entitled")?);
    if rate.is_none() && entitled.is_none() {
        return Err(Problem::usage("\"rate\" or \"entitled\" is missing: \"500/s\", for instance"));
    }
    let mut is_kept = true;
    for (setting, rate) in [(OperatorSetting::Limit, rate), (OperatorSetting::Grant, entitled)] {
        if rate.is_some() {
            let kept = set(&state, setting, &whom, rate).await.ok_or_else(|| {
                Problem::new(StatusCode::INSUFFICIENT_STORAGE, "too-many", "there are too many limits already")
            })?;
            is_kept &= kept == BanKept::Yes;
        }
    }
    let mut value = limit_json(&whom, [rate, entitled]);
    value["kept"] = json!(is_kept);
    Ok(about(name_of(&whom), json_of(&value)))
}

/// It waits for the disk, and others are not to wait for it.
async fn set(state: &AdminState, setting: OperatorSetting, whom: &Whom, rate: Option<Rate>) -> Option<BanKept> {
    let (handle, whom) = (state.handle.clone(), whom.clone());
    tokio::task::spawn_blocking(move || handle.set_rate(setting, &whom, rate)).await.ok().flatten()
}

pub(crate) async fn unset_limit(State(state): State<Arc<AdminState>>, Query(words): Query<Words>) -> Answered {
    let whom = whom(|name| words.get(name).cloned())?;
    let mut is_removed = false;
    for setting in [OperatorSetting::Limit, OperatorSetting::Grant] {
        if state.handle.rates(setting).iter().any(|(other, _)| *other == whom) {
            is_removed = true;
            set(&state, setting, &whom, None).await;
        }
    }
    if !is_removed {
        return Err(Problem::new(StatusCode::NOT_FOUND, "no-such-limit", "there is no such limit"));
    }
    Ok(about(name_of(&whom), json_of(&json!({ "removed": true }))))
}

fn name_of(whom: &Whom) -> String {
    match whom {
        Whom::Client(name) => format!("client {name}"),
        Whom::User(name) => format!("user {name}"),
    }
}

fn whom(find: impl Fn(&str) -> Option<String>) -> Result<Whom, Problem> {
    match (find("client"), find("user")) {
        (Some(client), None) => Ok(Whom::Client(client.into())),
        (None, Some(user)) => Ok(Whom::User(user.into())),
        _ => Err(Problem::usage("name either a \"client\" or a \"user\"")),
    }
}

/// `500/s`: so many in that time, as many at once.
pub(crate) fn parse_rate(text: &str) -> Option<Rate> {
    let (count, unit) = text.trim().split_once('/')?;
    let count: u32 = count.trim().parse().ok().filter(|count| *count > 0)?;
    let per = match unit.trim() {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        _ => return None,
    };
    Some(Rate::new(count, Duration::from_secs(per), count))
}

pub(crate) async fn bans(State(state): State<Arc<AdminState>>) -> Answered {
    let bans: Vec<Value> = state.handle.bans().iter().map(ban_json).collect();
    Ok(json_of(&json!({ "bans": bans })))
}

fn ban_json(ban: &Ban) -> Value {
    let mut value = match &ban.whom {
        Banned::Client(name) => json!({ "client": name }),
        Banned::User(name) => json!({ "user": name }),
        Banned::Network(ip, bits) => json!({ "network": format!("{ip}/{bits}") }),
        Banned::ClientOf(name, user) => json!({ "client": name, "user": user }),
        Banned::ClientAt(name, ip, bits) => json!({ "client": name, "network": format!("{ip}/{bits}") }),
    };
    if let Value::Object(value) = &mut value {
        value.insert("left_s".to_owned(), json!(ban.left.as_secs()));
        value.insert("reason".to_owned(), json!(ban.reason));
        value.insert("tries".to_owned(), json!(ban.tries));
        value.insert("last_try_s".to_owned(), json!(ban.last_try.map(|ago| ago.as_secs())));
    }
    value
}

pub(crate) async fn add_ban(State(state): State<Arc<AdminState>>, headers: HeaderMap, body: Bytes) -> Answered {
    let words = words_in(&headers, &body)?;
    let whom = banned(|name| text(&words, name))?;
    let time = match words.get("seconds") {
        None => BAN_USUAL,
        Some(seconds) => {
            let seconds = seconds
                .as_u64()
                .map(Duration::from_secs)
                .filter(|time| (1..=BAN_MAX.as_secs()).contains(&time.as_secs()));
            seconds.ok_or_else(|| Problem::usage(format!("\"seconds\" must be from 1 to {}", BAN_MAX.as_secs())))?
        }
    };
    let reason = text(&words, "reason").unwrap_or_else(|| "by the operator".to_owned());
    if reason.len() > REASON_BYTES_MAX {
        return Err(Problem::usage(format!("\"reason\" may have {REASON_BYTES_MAX} bytes")));
    }
    let (handle, banned, why) = (state.handle.clone(), whom.clone(), reason.clone());
    // It waits for the disk, and others are not to wait for it.
    let kept = tokio::task::spawn_blocking(move || handle.ban(&banned, time, &why)).await.ok().flatten();
    let Some(kept) = kept else {
        return Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, "too-many", "there are too many bans already"));
    };
    // Who subscribes at the smart space would go on hearing.
    let is_meant = |kp: &KpIdentity<'_>| whom.concerns(kp.name.unwrap_or_default(), kp.user, kp.address);
    let ended = crate::kps::end_connections(&state, is_meant);
    let name = banned_name(&whom);
    let mut value = ban_json(&Ban { whom, left: time, reason, tries: 0, last_try: None });
    value["kept"] = json!(kept == BanKept::Yes);
    value["kp_connections"] = json!(ended);
    Ok(about(name, json_of(&value)))
}

pub(crate) async fn remove_ban(State(state): State<Arc<AdminState>>, Query(words): Query<Words>) -> Answered {
    let (handle, whom) = (state.handle.clone(), banned(|name| words.get(name).cloned())?);
    let name = banned_name(&whom);
    if let Ok(Some(kept)) = tokio::task::spawn_blocking(move || handle.unban(&whom)).await {
        return Ok(about(name, json_of(&json!({ "removed": true, "kept": kept == BanKept::Yes }))));
    }
    Err(Problem::new(StatusCode::NOT_FOUND, "no-such-ban", "there is no such ban"))
}

fn banned_name(whom: &Banned) -> String {
    match whom {
        Banned::Client(name) => format!("client {name}"),
        Banned::User(name) => format!("user {name}"),
        Banned::Network(ip, bits) => format!("network {ip}/{bits}"),
        Banned::ClientOf(name, user) => format!("client {name} of user {user}"),
        Banned::ClientAt(name, ip, bits) => format!("client {name} at {ip}/{bits}"),
    }
}

fn banned(find: impl Fn(&str) -> Option<String>) -> Result<Banned, Problem> {
    let network = match find("network") {
        Some(text) => Some(parse_network(&text).ok_or_else(|| {
            Problem::usage(format!("{text:?} is no network: expected an address, or one like 10.1.2.0/24"))
        })?),
        None => None,
    };
    match (find("client"), find("user"), network) {
        (Some(client), None, None) => Ok(Banned::Client(client)),
        (None, Some(user), None) => Ok(Banned::User(user)),
        (None, None, Some((ip, bits))) => Ok(Banned::Network(ip, bits)),
        (Some(client), Some(user), None) => Ok(Banned::ClientOf(client, user)),
        (Some(client), None, Some((ip, bits))) => Ok(Banned::ClientAt(client, ip, bits)),
        _ => Err(Problem::usage("name a \"client\", a \"user\" or a \"network\"")),
    }
}

fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, bits) = text.split_once('/').map_or((text, None), |(ip, bits)| (ip, Some(bits)));
    let ip: IpAddr = ip.parse().ok()?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok())?;
    (bits <= most).then_some((ip, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_networks_are_read_or_refused() {
        let rate = parse_rate("500/s").unwrap();
        assert_eq!((rate.interval(), rate.burst()), (Duration::from_millis(2), 500));
        assert_eq!(parse_rate("30/m").unwrap().interval(), Duration::from_secs(2));
        for bad in ["", "500", "0/s", "-1/s", "1/d", "x/s"] {
            assert_eq!(parse_rate(bad), None, "{bad}");
        }
        assert_eq!(parse_network("10.1.2.3"), Some(("10.1.2.3".parse().unwrap(), 32)));
        assert_eq!(parse_network("2001:db8::/64"), Some(("2001:db8::".parse().unwrap(), 64)));
        for bad in ["10.1.2.3/33", "host", "/8", "::/129"] {
            assert_eq!(parse_network(bad), None, "{bad}");
        }
    }
}
