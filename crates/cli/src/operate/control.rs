//! `tidegate limits` and `tidegate ban`: what to do about a client.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::table::{Align, TextTable, number, shown};
use super::{out, print_json};
use crate::arguments::{BanArgs, BanCommand, BannedArgs, LimitsArgs, LimitsCommand, RateChange};
use tidegate_program::escaped;

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
            let is_absent = !user && door.get(&format!("/api/v1/clients/{}", escaped(name))).is_err();
            let absent = if is_absent { "; no client of this name is connected or has a session now" } else { "" };
            (answer, format!("{} {name:?} {does} {rate} {until}{absent}\n", kind(*user)))
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

fn limits_text(answer: &Value) -> String {
    let limits = answer["limits"].as_array().map_or(&[][..], Vec::as_slice);
    if limits.is_empty() {
        return "no limits of single clients; set one:  tidegate limits set CLIENT rate=500/s (or entitled=500/s)\n"
            .to_owned();
    }
    let mut table = TextTable::new(&[
        ("KIND", Align::Left),
        ("NAME", Align::Left),
        ("RATE/s", Align::Right),
        ("AT ONCE", Align::Right),
        ("ENTITLED/s", Align::Right),
    ]);
    for limit in limits {
        let (kind, name) = (shown(&limit["kind"]), shown(&limit["name"]));
        table.row([kind, name, number(&limit["rate"]), shown(&limit["burst"]), number(&limit["entitled"])]);
    }
    table.text()
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
            let mut body = named(whom);
            body.insert("seconds".to_owned(), json!(time.as_secs()));
            if let Some(reason) = reason {
                body.insert("reason".to_owned(), json!(reason));
            }
            let words = format!("kept out for {} s: {}\n", time.as_secs(), in_words(whom));
            (door.request("POST", "/api/v1/bans", Some(&Value::Object(body)))?, words)
        }
        BanCommand::Remove { whom } => {
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
    let mut table = TextTable::new(&[
        ("CLIENT", Align::Left),
        ("USER", Align::Left),
        ("NETWORK", Align::Left),
        ("LEFT/s", Align::Right),
        ("REASON", Align::Left),
    ]);
    for ban in bans {
        table.row(["client", "user", "network", "left_s", "reason"].map(|name| shown(&ban[name])));
    }
    table.text()
}
