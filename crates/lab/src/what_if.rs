//! `tidegate what-if`: what more devices, limits and settings would have done with the messages of a trace.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use tidegate_core::trace::{MESSAGES_MAX, Trace};
use tidegate_program::{Usage, out, say};
use tidegate_sim::what_if::{self, Question};

use super::write;
use crate::arguments::WhatIfArgs;

/// Bytes of a trace: as many messages as there may be, at the length of a long line.
const TRACE_BYTES_MAX: u64 = MESSAGES_MAX as u64 * 64;

pub(super) fn run(args: &WhatIfArgs) -> Result<u8> {
    let trace = load(&args.trace)?;
    let problem = |said: String| anyhow::anyhow!(said);
    let question = Question::read(&trace, &args.devices, &args.limit, &args.set, args.reader);
    let answer = question.and_then(|question| what_if::answer(&trace, &question)).map_err(problem).context(Usage)?;
    let title = format!("What if: {}", args.trace.file_name().unwrap_or_default().to_string_lossy());
    write(&args.out.join("report.html"), &what_if::html(&title, &answer))?;
    write(&args.out.join("timeline.csv"), &what_if::timeline_csv(&answer))?;
    write(&args.out.join("settings.toml"), &answer.settings)?;
    if args.json {
        say!("{}", what_if::json(&answer));
        return Ok(0);
    }
    say!(
        "{}: {} messages of {} publishers in {:.0} s\n",
        args.trace.display(),
        trace.arrivals().len(),
        trace.publishers(),
        trace.seconds().max(1.0)
    );
    out(&what_if::text(&answer));
    if args.reader.is_none() {
        say!("\nThe reader takes whatever comes; --reader 500/s shows what a slower one would see.");
    }
    say!("\nsee {}", args.out.join("report.html").display());
    Ok(0)
}

fn load(path: &Path) -> Result<Trace> {
    let shown = path.display();
    let size = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    if size > TRACE_BYTES_MAX {
        return Err(anyhow::anyhow!("{shown} has more than {TRACE_BYTES_MAX} bytes")).context(Usage);
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    Trace::read(&text).map_err(|problem| anyhow::anyhow!("{shown}: {problem}")).context(Usage)
}
