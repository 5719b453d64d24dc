//! `tidegate token`: tokens that clients give as passwords, made and taken back by a running broker.

use anyhow::Result;
use serde_json::{Value, json};
use tidegate_program::{AdminClient, escaped};

use super::table::{Align, Column, TextTable, counted, shown, whole};
use super::{out, print_json};
use crate::arguments::{TokenArgs, TokenCommand};

pub(crate) fn token(args: &TokenArgs) -> Result<u8> {
    let door = args.admin.client()?;
    let answer = match &args.command {
        None | Some(TokenCommand::List) => return list(&door, args.json),
        Some(TokenCommand::Make { user, roles, time }) => {
            let wish = json!({ "user": user, "roles": roles, "seconds": time.as_secs() });
            door.request("POST", "/api/v1/tokens", Some(&wish))?
        }
        Some(TokenCommand::Revoke { user }) => {
            door.request("DELETE", &format!("/api/v1/tokens?user={}", escaped(user)), None)?
        }
    };
    if args.json {
        return print_json(&answer);
    }
    match answer["token"].as_str() {
        // The token alone: it goes into a file or a device.
        Some(token) => out(&format!("{}\n", tidegate_program::harmless(token))),
        None => out("taken back: every token of that user that was made until now, and its connections have ended;\n\
             a WebSocket of the smart space that is open already lasts until its token ends\n"),
    }
    Ok(0)
}

fn list(door: &AdminClient, is_json: bool) -> Result<u8> {
    let answer = door.get("/api/v1/tokens")?;
    if is_json {
        return print_json(&answer);
    }
    if answer["are_taken"] != true {
        out(
            "no tokens are taken: jwt.keys or jwt.secret_file in the configuration lets clients give them as passwords\n",
        );
        return Ok(0);
    }
    let can_make = if answer["can_make"] == true { "tidegate token make USER" } else { "no secret of our own" };
    let keys = counted(answer["keys"].as_u64().unwrap_or(0), "key");
    out(&format!("tokens are taken, by {keys}; to make one: {can_make}\n"));
    for (head, columns, member) in [("refused", REFUSED, "refused"), ("taken back", REVOKED, "revoked")] {
        let rows = answer[member].as_array().map_or(&[][..], Vec::as_slice);
        if !rows.is_empty() {
            out(&format!("\n{head}:\n{}", TextTable::of(columns, rows).text()));
        }
    }
    Ok(0)
}

const REFUSED: &[Column] = &[("REASON", Align::Left, "reason", shown), ("TOKENS", Align::Right, "count", shown)];
const REVOKED: &[Column] = &[("USER", Align::Left, "user", whole), ("MADE UNTIL", Align::Right, "until_s", seconds)];

fn seconds(value: &Value) -> String {
    format!("{} (seconds since 1970)", shown(value))
}
