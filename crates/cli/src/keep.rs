//! `tidegate backup`, `restore` and `store check`: what an operator does with what the broker keeps.
//!
//! A broker that runs copies its store itself, at one moment and without stopping; the commands only ask it. The others
//! work on a folder that no broker uses: the store's lock sees to that.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;
use tidegate_store::RecoveryReport;
use tidegate_store::records::Image;

use crate::arguments::{BackupArgs, RestoreArgs, ServeArgs};
use crate::config::load;
use crate::operate::http::Door;
use crate::plan;

/// `tidegate backup`.
pub(crate) fn backup(args: &BackupArgs) -> Result<u8> {
    let to = std::path::absolute(&args.to).with_context(|| format!("{} is no path", args.to.display()))?;
    if let Some(data) = &args.from {
        let report = tidegate_store::backup::<Image>(&data.join(plan::STORE), &to)?;
        return Ok(tell(&format!("copied to {}", to.display()), &report));
    }
    let body = json!({ "to": to });
    let answer = Door::new(&args.admin)?.request("POST", "/api/v1/backup", Some(&body))?;
    println!("copied to {}: {}", to.display(), answer["report"].as_str().unwrap_or_default());
    Ok(0)
}

/// `tidegate restore`.
pub(crate) fn restore(args: &RestoreArgs) -> Result<u8> {
    let to = store_dir(&args.serve)?;
    if let Some(data) = to.parent() {
        std::fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
    }
    let report = tidegate_store::restore::<Image>(&args.from, &to)
        .with_context(|| format!("nothing was restored into {}", to.display()))?;
    Ok(tell(&format!("restored into {}", to.display()), &report))
}

/// `tidegate store check`.
pub(crate) fn check(args: &ServeArgs) -> Result<u8> {
    let dir = store_dir(args)?;
    let report = tidegate_store::check::<Image>(&dir)?;
    Ok(tell(&dir.display().to_string(), &report))
}

fn store_dir(args: &ServeArgs) -> Result<PathBuf> {
    Ok(plan::store_dir(&load(&args.sources())?.options))
}

/// Prints what was found; 1 if something that was kept is damaged.
fn tell(what: &str, report: &RecoveryReport) -> u8 {
    println!("{what}: {report}");
    for line in &report.lines {
        println!("  {line}");
    }
    u8::from(report.is_damaged())
}
