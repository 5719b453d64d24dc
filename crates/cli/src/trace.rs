//! `tidegate trace record`: writes down when messages come to a running broker, without a name of anybody.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tidegate_core::trace::{Arrival, GROUPS_MAX, MESSAGES_MAX, NUMBERS_MAX, Trace};

use crate::arguments::TraceRecordArgs;
use tidegate_program::{AdminError, Stop, say};

/// Time between two looks: a shard has room for 65 536 messages.
const LOOK: Duration = Duration::from_millis(200);
const ODD: &str = "the broker tells of arrivals in another way than this program knows";

pub(crate) fn record(args: &TraceRecordArgs) -> Result<u8> {
    let door = args.admin.client()?;
    let patterns: Vec<&str> = args.group.iter().map(|group| group.pattern.as_str()).collect();
    // Before a minute is spent on it; what is there already stays until there is something new.
    let mut part = args.out.clone().into_os_string();
    part.push(".part");
    let cannot = || format!("cannot write {}", args.out.display());
    fs::write(&part, "").with_context(cannot)?;
    let begun = door
        .request("POST", "/api/v1/trace", Some(&json!({ "groups": patterns })))
        .inspect_err(|_| drop(fs::remove_file(&part)))?;
    let recording = begun["recording"].as_str().unwrap_or_default().to_owned();
    let stop = Stop::on_signals()?;
    let (start, mut arrivals, mut missed, mut unheard) = (Instant::now(), Vec::new(), 0, 0);
    let mut failed = None;
    eprintln!("recording for {} s; Ctrl-C ends it early", args.time.as_secs());
    while start.elapsed() < args.time && !stop.is_wanted() && arrivals.len() < MESSAGES_MAX {
        std::thread::sleep(LOOK.min(args.time.saturating_sub(start.elapsed())));
        let look = door.get(&format!("/api/v1/trace?recording={recording}"));
        let look = look.and_then(|answer| Ok((rows(&answer)?, answer)));
        let (more, answer) = match look {
            Ok(look) => look,
            // What was written down until now is worth something.
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        missed += answer["missed"].as_u64().unwrap_or(0);
        unheard += answer["unheard"].as_u64().unwrap_or(0);
        arrivals.extend(more);
    }
    arrivals.truncate(MESSAGES_MAX);
    let seconds = start.elapsed().as_secs_f64();
    let trace = Trace::new(arrivals).with_groups(args.group.clone());
    let count = trace.arrivals().len();
    let note = format!("{seconds:.0} s, {count} messages, {} publishers, {missed} missed", trace.publishers());
    fs::write(&part, trace.write(&note)).with_context(cannot)?;
    fs::rename(&part, &args.out).with_context(cannot)?;
    say!("{}: {note}", args.out.display());
    if count == 0 {
        say!("nobody published; there is nothing to replay");
    } else {
        say!("what three times the devices would do: tidegate what-if {} --devices x3", args.out.display());
    }
    if unheard > 0 {
        let times = if unheard == 1 { "once".to_owned() } else { format!("{unheard} times") };
        say!("{times} a shard did not answer: what came to it then may be missing");
    }
    failed.map_or(Ok(0), |error| Err(error.into()))
}

fn rows(answer: &Value) -> Result<Vec<Arrival>, AdminError> {
    let rows = answer["arrivals"].as_array().map_or(&[][..], Vec::as_slice);
    let rows: Option<Vec<Arrival>> = rows.iter().map(arrival).collect();
    rows.ok_or_else(|| AdminError::failure(ODD.to_owned()))
}

fn arrival(row: &Value) -> Option<Arrival> {
    let number = |at: usize| row.get(at)?.as_u64();
    let small = |at: usize| u32::try_from(number(at)?).ok();
    Some(Arrival {
        micros: number(0)?,
        publisher: small(1).filter(|publisher| *publisher < NUMBERS_MAX)?,
        topic: small(2)?,
        topic_bytes: number(3)?.min(512) as u16,
        payload_bytes: small(4)?.min(1024 * 1024 - 1024),
        qos: number(5).filter(|qos| *qos <= 2)? as u8,
        retain: number(6)? == 1,
        group: number(7).unwrap_or(0).min(GROUPS_MAX as u64) as u8,
    })
}
