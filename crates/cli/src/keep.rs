//! `tidegate backup`, `restore` and `store check`: what an operator does with what the broker keeps.
//!
//! A broker that runs copies its store itself, at one moment and without stopping; the commands only ask it. The others
//! work on a folder that no broker uses: the store's lock sees to that. What is kept has two parts, with a moment each:
//! sessions and messages, and the smart space, which is the folder `space` of a copy.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tidegate_store::records::Image;
use tidegate_store::{RecoveryReport, StoreError};

use crate::arguments::{BackupArgs, RestoreArgs, ServeArgs};
use crate::config::load;
use crate::operate::http::Door;
use crate::plan;

/// What was found in each part.
#[derive(Debug)]
pub(crate) struct Parts {
    store: RecoveryReport,
    space: Option<RecoveryReport>,
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.store)?;
        match &self.space {
            Some(space) => write!(f, "; smart space: {space}"),
            None => Ok(()),
        }
    }
}

/// `tidegate backup`.
pub(crate) fn backup(args: &BackupArgs) -> Result<u8> {
    let to = std::path::absolute(&args.to).with_context(|| format!("{} is no path", args.to.display()))?;
    if let Some(data) = &args.from {
        let store = |to: &Path| tidegate_store::backup::<Image>(&data.join(plan::STORE), to);
        let parts = copy(&to, store, |to| copy_space(&data.join(plan::SPACE), to))?;
        return Ok(tell(&format!("copied to {}", to.display()), &parts));
    }
    let body = json!({ "to": to });
    let answer = Door::new(&args.admin)?.request("POST", "/api/v1/backup", Some(&body))?;
    println!("copied to {}: {}", to.display(), answer["report"].as_str().unwrap_or_default());
    Ok(0)
}

/// Makes a copy of both parts, which appears under its name when it is whole.
pub(crate) fn copy(
    to: &Path,
    store: impl FnOnce(&Path) -> Result<RecoveryReport, StoreError>,
    space: impl FnOnce(&Path) -> Result<Option<RecoveryReport>, StoreError>,
) -> Result<Parts> {
    ensure_free(to)?;
    let mut stage = to.as_os_str().to_owned();
    stage.push(".copy");
    let stage = PathBuf::from(stage);
    ensure_free(&stage)?;
    let copied = store(&stage).and_then(|store| Ok(Parts { store, space: space(&stage.join(plan::SPACE))? }));
    let placed = copied.map_err(anyhow::Error::from).and_then(|parts| {
        fs::rename(&stage, to).with_context(|| format!("cannot write {}", to.display()))?;
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|parent| parent.sync_all()).context("cannot sync the folder of the copy")?;
        Ok(parts)
    });
    if placed.is_err() {
        // Half of it is worth nothing; it was not there before.
        let _ = fs::remove_dir_all(&stage);
    }
    placed
}

/// Copies the smart space that nobody has open; nothing if there is none.
pub(crate) fn copy_space(dir: &Path, to: &Path) -> Result<Option<RecoveryReport>, StoreError> {
    if plan::is_missing(dir) {
        return Ok(None);
    }
    tidegate_store::backup::<tidegate_space::Image>(dir, to).map(Some)
}

/// A directory that is not there, or empty.
fn ensure_free(dir: &Path) -> Result<()> {
    match fs::read_dir(dir).map(Iterator::count) {
        Ok(1..) => bail!("{} is there already", dir.display()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", dir.display())),
    }
}

/// `tidegate restore`.
pub(crate) fn restore(args: &RestoreArgs) -> Result<u8> {
    let (to, space_to) = dirs(&args.serve)?;
    if let Some(data) = to.parent() {
        fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
    }
    let nothing = || format!("nothing was restored into {}", to.display());
    // Both or none, as far as can be seen before.
    ensure_free(&space_to).with_context(nothing)?;
    let store = tidegate_store::restore::<Image>(&args.from, &to).with_context(nothing)?;
    let space = copy_space(&args.from.join(plan::SPACE), &space_to).with_context(|| {
        format!("sessions and messages were restored, the smart space was not: {}", space_to.display())
    })?;
    Ok(tell(&format!("restored into {}", to.display()), &Parts { store, space }))
}

/// `tidegate store check`.
pub(crate) fn check(args: &ServeArgs) -> Result<u8> {
    let (dir, space_dir) = dirs(args)?;
    let store = tidegate_store::check::<Image>(&dir)?;
    let is_space = !plan::is_missing(&space_dir);
    let space = is_space.then(|| tidegate_store::check::<tidegate_space::Image>(&space_dir)).transpose()?;
    Ok(tell(&dir.display().to_string(), &Parts { store, space }))
}

/// Where both parts are.
fn dirs(args: &ServeArgs) -> Result<(PathBuf, PathBuf)> {
    let options = load(&args.sources())?.options;
    Ok((plan::store_dir(&options), plan::space_dir(&options)))
}

/// Prints what was found; 1 if something that was kept is damaged.
fn tell(what: &str, parts: &Parts) -> u8 {
    println!("{what}: {}", parts.store);
    if let Some(space) = &parts.space {
        println!("smart space: {space}");
    }
    u8::from(parts.store.is_damaged() || parts.space.as_ref().is_some_and(RecoveryReport::is_damaged))
}
