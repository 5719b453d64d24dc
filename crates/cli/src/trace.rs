//! `tidegate trace record`: writes down when messages come to a running broker, without a name of anybody.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tidegate_sim::broker::trace::{Arrival, MESSAGES_MAX, NUMBERS_MAX, Trace};

use crate::arguments::TraceRecordArgs;
use crate::operate::AdminError;
use crate::operate::http::Door;
use crate::stop::Stop;

/// Time between two looks: a shard has room for 65 536 messages.
const LOOK: Duration = Duration::from_millis(200);
const ODD: &str = "the broker tells of arrivals in another way than this program knows";

pub(crate) fn record(args: &TraceRecordArgs) -> Result<u8> {
    let door = Door::new(&args.admin)?;
    // Before a minute is spent on it.
    fs::write(&args.out, "").with_context(|| format!("cannot write {}", args.out.display()))?;
    let begun = door.request("POST", "/api/v1/trace", Some(&json!({})))?;
    let recording = begun["recording"].as_str().unwrap_or_default().to_owned();
    let stop = Stop::on_signals()?;
    let (start, mut arrivals, mut missed) = (Instant::now(), Vec::new(), 0);
    eprintln!("recording for {} s; Ctrl-C ends it early", args.time.as_secs());
    while start.elapsed() < args.time && !stop.is_wanted() && arrivals.len() < MESSAGES_MAX {
        std::thread::sleep(LOOK.min(args.time.saturating_sub(start.elapsed())));
        let answer = door.get(&format!("/api/v1/trace?recording={recording}"))?;
        missed += answer["missed"].as_u64().unwrap_or(0);
        let rows = answer["arrivals"].as_array().map_or(&[][..], Vec::as_slice);
        for row in rows {
            arrivals.push(arrival(row).ok_or_else(|| AdminError::failure(ODD.to_owned()))?);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let trace = Trace::new(arrivals);
    let count = trace.arrivals().len();
    let note = format!("{seconds:.0} s, {count} messages, {} publishers, {missed} missed", trace.publishers());
    fs::write(&args.out, trace.write(&note)).with_context(|| format!("cannot write {}", args.out.display()))?;
    println!("{}: {note}", args.out.display());
    if count == 0 {
        println!("nobody published; there is nothing to replay");
    } else {
        println!(
            "what other settings would do: tidegate lab replay {} --set broker.enforce_always=true",
            args.out.display()
        );
    }
    Ok(0)
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
    })
}
