//! `tidegate limits` and `tidegate ban`: what to do about a client.

use anyhow::Result;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value, json};

use super::table::{Align, Column, TextTable, number, shown, span};
use super::{out, print_json};
use crate::arguments::{BanArgs, BanCommand, BannedArgs, LimitsArgs, LimitsCommand, RateChange};
use tidegate_program::{AdminClient, AdminError, Usage, escaped};

/// `tidegate limits`.
pub(crate) fn limits(args: &LimitsArgs) -> Result<u8> {
    let door = args.admin.client()?;
    let kind = |user: bool| if user { "user" } else { "client" };
    let (answer, words) = match args.command.as_ref().unwrap_or(&LimitsCommand::List) {
        LimitsCommand::List => {
            let answer = door.get("/api/v1/limits")?;
            let text = limits_text(&answer);
            (answer, text)
        }
        LimitsCommand::Set { name, rate, user } => {
            let RateChange { setting, rate } = rate;
            let body = json!({ kind(*user): name, *setting: rate });
            let answer = door.request("PUT", "/api/v1/limits", Some(&body))?;
            let does = if *setting == "rate" { "may publish" } else { "is entitled to" };
            let until = if answer["kept"] == json!(true) { "until that is unset" } else { "until the broker ends" };
            // A limit may be set before its client comes; a name that is mistyped would look the same.
            let is_absent = !user
                && door.get(&format!("/api/v1/clients/{}", escaped(name))).is_err()
                && !door.get("/api/v1/kps").is_ok_and(|kps| is_kp(&kps, name));
            let absent = if is_absent { "; no client of this name is connected or has a session now" } else { "" };
            let asks = if *setting == "rate" { ", and ask the smart space as often," } else { "" };
            (answer, format!("{} {name:?} {does} {rate}{asks} {until}{absent}\n", kind(*user)))
        }
        LimitsCommand::Unset { name, user } => {
            let path = format!("/api/v1/limits?{}={}", kind(*user), escaped(name));
            (door.request("DELETE", &path, None)?, format!("{} {name:?} has no limit any more\n", kind(*user)))
        }
    };
    if args.json {
        return print_json(&answer);
    }
    out(&words);
    Ok(0)
}

/// Whether a KP of this name was heard of late.
fn is_kp(answer: &Value, name: &str) -> bool {
    answer["kps"].as_array().is_some_and(|kps| kps.iter().any(|kp| kp["name"] == name))
}

fn limits_text(answer: &Value) -> String {
    let limits = answer["limits"].as_array().map_or(&[][..], Vec::as_slice);
    if limits.is_empty() {
        return "no limits of single clients; set one:  tidegate limits set CLIENT rate=500/s (or entitled=500/s)\n"
            .to_owned();
    }
    let columns: &[Column] = &[
        ("KIND", Align::Left, "kind", shown),
        ("NAME", Align::Left, "name", shown),
        ("RATE/s", Align::Right, "rate", number),
        ("AT ONCE", Align::Right, "burst", shown),
        ("ENTITLED/s", Align::Right, "entitled", number),
    ];
    TextTable::of(columns, limits).text()
}

/// `tidegate ban`.
pub(crate) fn ban(args: &BanArgs) -> Result<u8> {
    let door = args.admin.client()?;
    let (answer, words) = match args.command.as_ref().unwrap_or(&BanCommand::List) {
        BanCommand::List => {
            let answer = door.get("/api/v1/bans")?;
            let text = bans_text(&answer);
            (answer, text)
        }
        BanCommand::Add { whom, time, reason } => {
            let whom = &understood(whom)?;
            let mut body = named(whom);
            body.insert("seconds".to_owned(), json!(time.as_secs()));
            if let Some(reason) = reason {
                body.insert("reason".to_owned(), json!(reason));
            }
            let answer = door.request("POST", "/api/v1/bans", Some(&Value::Object(body)))?;
            // The ban holds. A broker in trouble may not be able to say whom it meets.
            let here =
                who_is_there(&door, whom).unwrap_or_else(|error| format!("who is there cannot be asked: {error}"));
            let here = match kp_connections(&answer) {
                None => here,
                Some(ended) if here == NOBODY => ended,
                Some(ended) => format!("{here}; {ended}"),
            };
            let words = format!("kept out for {}: {}; {here}\n{HOLDS_WHERE}\n", span(time.as_secs()), in_words(whom));
            (answer, words)
        }
        BanCommand::Remove { whom } => {
            let whom = &understood(whom)?;
            let pairs: Vec<String> = named(whom)
                .iter()
                .map(|(name, value)| format!("{name}={}", escaped(value.as_str().unwrap_or_default())))
                .collect();
            let path = format!("/api/v1/bans?{}", pairs.join("&"));
            (door.request("DELETE", &path, None)?, format!("may come in again: {}\n", in_words(whom)))
        }
    };
    if args.json {
        return print_json(&answer);
    }
    out(&words);
    Ok(0)
}

/// What somebody meant who names a client: an address or a network is one, and patterns are none; `--client` is literal.
fn understood(whom: &BannedArgs) -> Result<BannedArgs> {
    let mut whom = whom.clone();
    if let Some(literal) = whom.literal.take() {
        whom.client = Some(literal);
        return Ok(whom);
    }
    let Some(client) = whom.client.clone() else { return Ok(whom) };
    let address = client.split_once('/').map_or(client.as_str(), |(address, _)| address);
    if address.parse::<std::net::IpAddr>().is_ok() && whom.network.is_none() && whom.user.is_none() {
        (whom.client, whom.network) = (None, Some(client));
        return Ok(whom);
    }
    let is_pattern = matches!(client.as_str(), "" | "*" | "#" | "+" | "all" | "%");
    if is_pattern || client.chars().any(char::is_control) {
        let problem = "is no client: a ban is for one client identifier as a whole (tidegate ban add meter-17), an address or \
                       network (10.1.2.0/24), or a user (--user NAME)";
        return Err(anyhow::anyhow!("{client:?} {problem}").context(Usage));
    }
    Ok(whom)
}

/// Who of those that a ban is for is there now, in words. Asked after the ban: who was there may be gone already.
fn who_is_there(door: &AdminClient, whom: &BannedArgs) -> Result<String, AdminError> {
    if let Some(client_id) = &whom.client {
        // One client is found whatever its place in the list is.
        return match door.get(&format!("/api/v1/clients/{}", escaped(client_id))) {
            Ok(row) => Ok(where_it_is(whom, &row).to_owned()),
            Err(error) if error.exit_code() == NO_SUCH_CLIENT => Ok(NOBODY.to_owned()),
            Err(error) => Err(error),
        };
    }
    let answer = door.get(&format!("/api/v1/clients?sort=id&limit={LOOKED_AT_MAX}"))?;
    let rows = answer["clients"].as_array().map_or(&[][..], Vec::as_slice);
    let count = rows.iter().filter(|row| is_connected(row) && concerns(whom, row)).count();
    let of_some = if answer["total"].as_u64().unwrap_or(0) > LOOKED_AT_MAX { ", of the first thousand" } else { "" };
    Ok(match count {
        0 if of_some.is_empty() => NOBODY.to_owned(),
        0 => format!("nobody of that name is connected now{of_some}: it holds for who comes"),
        1 => format!("1 client is connected now and has to go{of_some}"),
        count => format!("{count} clients are connected now and have to go{of_some}"),
    })
}

/// Where one client is, as the broker shows it: its session or, without one, its last connection.
fn where_it_is(whom: &BannedArgs, row: &Value) -> &'static str {
    match row["state"].as_str() {
        _ if !concerns(whom, row) => NOBODY,
        Some("away" | "away-losing") => "it is not connected now, and its session is kept",
        Some("closed") if row["reason"] == SENT_AWAY => "its last connection was ended by an operator",
        Some("closed") => NOBODY,
        _ => "1 client is connected now and has to go",
    }
}

fn is_connected(row: &Value) -> bool {
    row["state"] != "away" && row["state"] != "away-losing" && row["state"] != "closed"
}

/// What was ended at the smart space, in words; none if nothing was.
pub(super) fn kp_connections(answer: &Value) -> Option<String> {
    match answer["kp_connections"].as_u64()? {
        0 => None,
        1 => Some("1 connection at the smart space was ended".to_owned()),
        count => Some(format!("{count} connections at the smart space were ended")),
    }
}

/// Where a ban holds.
const HOLDS_WHERE: &str = "bans hold for MQTT and at the doors of the smart space";
/// How connections end that a ban or `tidegate kick` has ended (0x98).
const SENT_AWAY: &str = "administrative action";
const NOBODY: &str = "nobody of that name is connected now: it holds for who comes";
/// What a question about a client ends with that the broker does not know.
const NO_SUCH_CLIENT: u8 = 1;
/// Clients that are looked at; more are not listed at once.
const LOOKED_AT_MAX: u64 = 1000;

fn concerns(whom: &BannedArgs, row: &Value) -> bool {
    let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| row[name] == wanted);
    let ip =
        row["address"].as_str().and_then(|peer| peer.parse::<SocketAddr>().ok()).map(|peer| peer.ip().to_canonical());
    let is_near = whom.network.as_deref().is_none_or(|network| ip.is_some_and(|ip| is_within(ip, network)));
    is(&whom.client, "client_id") && is(&whom.user, "user") && is_near
}

/// Whether an address is in a network such as 10.1.2.0/24, or is that address.
fn is_within(ip: IpAddr, network: &str) -> bool {
    let (address, bits) = network.split_once('/').unwrap_or((network, "128"));
    let (Ok(address), Ok(bits)) = (address.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    let (own, other, size) = match (ip, address.to_canonical()) {
        (IpAddr::V4(own), IpAddr::V4(other)) => (u128::from(own.to_bits()), u128::from(other.to_bits()), 32),
        (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
        _ => return false,
    };
    let free = size - bits.min(size);
    own.checked_shr(free) == other.checked_shr(free)
}

fn named(whom: &BannedArgs) -> Map<String, Value> {
    let parts = [("client", &whom.client), ("user", &whom.user), ("network", &whom.network)];
    parts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?)))).collect()
}

fn in_words(whom: &BannedArgs) -> String {
    let parts: Vec<String> = named(whom).iter().map(|(name, value)| format!("{name} {value}")).collect();
    parts.join(" from ")
}

fn bans_text(answer: &Value) -> String {
    let bans = answer["bans"].as_array().map_or(&[][..], Vec::as_slice);
    if bans.is_empty() {
        return "nobody is kept out; to do so:  tidegate ban add CLIENT --for 1h\n".to_owned();
    }
    let columns: &[Column] = &[
        ("CLIENT", Align::Left, "client", shown),
        ("USER", Align::Left, "user", shown),
        ("NETWORK", Align::Left, "network", shown),
        ("LEFT/s", Align::Right, "left_s", shown),
        ("TRIES", Align::Right, "tries", shown),
        ("LAST TRY/s AGO", Align::Right, "last_try_s", shown),
        ("REASON", Align::Left, "reason", shown),
    ];
    TextTable::of(columns, bans).text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str) -> BannedArgs {
        BannedArgs { client: Some(name.to_owned()), literal: None, user: None, network: None }
    }

    #[test]
    fn an_address_is_taken_for_one_and_nonsense_is_refused() {
        let whom = understood(&client("10.1.2.0/24")).unwrap();
        assert_eq!((whom.client.as_deref(), in_words(&whom).as_str()), (None, "network \"10.1.2.0/24\""));
        assert_eq!(in_words(&understood(&client("meter-17")).unwrap()), "client \"meter-17\"");
        for nonsense in ["", "*", "#", "a\nb"] {
            let problem = understood(&client(nonsense)).unwrap_err();
            assert!(problem.is::<Usage>() && format!("{problem:#}").contains("as a whole"), "{problem:#}");
        }
    }

    #[test]
    fn who_is_meant_is_found_among_those_who_are_there() {
        let row = json!({"client_id": "a", "user": "ann", "address": "10.1.2.9:4000"});
        let nobody = BannedArgs { client: None, literal: None, user: None, network: None };
        let network = |text: &str| BannedArgs { network: Some(text.to_owned()), ..nobody.clone() };
        assert!(concerns(&client("a"), &row) && !concerns(&client("b"), &row));
        assert!(concerns(&network("10.1.2.0/24"), &row) && concerns(&network("10.1.2.9"), &row));
        assert!(!concerns(&network("10.1.3.0/24"), &row) && !concerns(&network("::1"), &row));
        assert!(concerns(&network("0.0.0.0/0"), &row));
        let user = BannedArgs { user: Some("ann".to_owned()), ..nobody.clone() };
        assert!(concerns(&user, &row));
    }

    #[test]
    fn a_name_that_looks_like_an_address_may_be_said_to_be_one() {
        let literal = BannedArgs { client: None, literal: Some("10.1.2.3".to_owned()), user: None, network: None };
        assert_eq!(in_words(&understood(&literal).unwrap()), "client \"10.1.2.3\"");
    }

    #[test]
    fn one_client_is_there_or_away_or_gone() {
        let at = |state: &str, reason: Option<&str>| {
            let row = json!({"client_id": "a", "address": "10.1.2.9:4000", "state": state, "reason": reason});
            where_it_is(&client("a"), &row)
        };
        assert_eq!(at("losing", None), "1 client is connected now and has to go");
        assert_eq!(at("away", None), "it is not connected now, and its session is kept");
        assert_eq!(at("away-losing", None), at("away", None));
        assert_eq!(at("closed", Some("said goodbye")), NOBODY);
        assert_eq!(at("closed", Some(SENT_AWAY)), "its last connection was ended by an operator");
    }
}
