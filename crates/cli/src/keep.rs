//! `tidegate backup`, `restore` and `store check`: what an operator does with what the broker keeps.
//!
//! A broker that runs copies its store itself, at one moment and without stopping; the commands only ask it. The others
//! work on a folder that no broker uses: the store's lock sees to that. What is kept has two parts, with a moment each:
//! sessions and messages, and the smart space, which is the folder `space` of a copy. The users come with them, if they are
//! where the broker puts them; what the operator has written and placed (configuration, rules, certificates, keys) does not.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tidegate_broker::store_link::records::StoreImage;
use tidegate_store::RecoveryReport;

use crate::arguments::{BackupArgs, PlaceArgs, RestoreArgs, StoreCheckArgs};
use tidegate_program::say;
use tidegate_server::backup::{PartReports, copy, copy_space, copy_users, ensure_free};
use tidegate_server::config::load;
use tidegate_server::plan;
use tidegate_server::tokens::REVOKED;

/// What is for the operator to keep.
const NOT_COPIED: &str = "not in the copy: configuration, rules of access, certificates and keys";
/// The same where the users are not in the data folder.
const NO_USERS: &str = "; nor users: there is no file of them in the data folder";

/// `tidegate backup`.
pub(crate) fn backup(args: &BackupArgs) -> Result<u8> {
    let to = std::path::absolute(&args.to).with_context(|| format!("{} is no path", args.to.display()))?;
    if let Some(data) = &args.from {
        let store = |to: &Path| tidegate_store::backup::<StoreImage>(&data.join(plan::STORE), to);
        let parts = copy(&to, store, |to| copy_space(&data.join(plan::SPACE), to), &data.join(plan::USERS))?;
        let code = tell("copied to", &to, &parts, args.json);
        if !args.json {
            say!("{NOT_COPIED}{}", if parts.has_users { "" } else { NO_USERS });
        }
        return Ok(code);
    }
    let body = json!({ "to": to });
    let answer = args.admin.client()?.request("POST", "/api/v1/backup", Some(&body))?;
    if args.json {
        say!("{:#}", json!({ "folder": to, "report": answer["report"] }));
        return Ok(0);
    }
    say!("copied to {}: {}", to.display(), answer["report"].as_str().unwrap_or_default());
    say!("{NOT_COPIED}{}", if plan::is_missing(&to.join(plan::USERS)) { NO_USERS } else { "" });
    Ok(0)
}

/// `tidegate restore`.
pub(crate) fn restore(args: &RestoreArgs) -> Result<u8> {
    let (to, space_to) = dirs(&args.place)?;
    if let Some(data) = to.parent() {
        tidegate_store::disk::create_private_dir(data).with_context(|| format!("cannot create {}", data.display()))?;
    }
    let nothing = || format!("nothing was restored into {}", to.display());
    // Both or none, as far as can be seen before.
    ensure_free(&space_to).with_context(nothing)?;
    let store = tidegate_store::restore::<StoreImage>(&args.from, &to).with_context(nothing)?;
    let space_from = args.from.join(plan::SPACE);
    let is_space = !plan::is_missing(&space_from);
    let space = is_space.then(|| tidegate_space::restore_space(&space_from, &space_to)).transpose();
    let space = space.with_context(|| {
        format!("sessions and messages were restored, the smart space was not: {}", space_to.display())
    })?;
    let has_users = restore_users(&args.from, &to.with_file_name(plan::USERS))?;
    copy_users(&args.from.join(REVOKED), &to.with_file_name(REVOKED))?;
    Ok(tell("restored into", &to, &PartReports { store, space, has_users }, args.json))
}

fn restore_users(copy: &Path, to: &Path) -> Result<bool> {
    let from = copy.join(plan::USERS);
    let is_done = copy_users(&from, to)?;
    if !is_done && !plan::is_missing(&from) {
        eprintln!(
            "{} is there already and was left as it is; the users of the copy are in {}",
            to.display(),
            from.display()
        );
    }
    Ok(is_done)
}

/// `tidegate store check`.
pub(crate) fn check(args: &StoreCheckArgs) -> Result<u8> {
    let (dir, space_dir) = match &args.dir {
        Some(dir) => (store_in(dir)?, dir.join(plan::SPACE)),
        None => dirs(&args.place)?,
    };
    let store = tidegate_store::check::<StoreImage>(&dir)?;
    let is_space = !plan::is_missing(&space_dir);
    let space = is_space.then(|| tidegate_store::check::<tidegate_space::SpaceImage>(&space_dir)).transpose()?;
    Ok(tell("", &dir, &PartReports { store, space, has_users: false }, args.json))
}

/// A data folder has the store in a folder, a copy is one.
fn store_in(dir: &Path) -> Result<PathBuf> {
    if !plan::is_missing(&dir.join(plan::STORE)) {
        return Ok(dir.join(plan::STORE));
    }
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let is_store = entries.flatten().any(|entry| entry.path().extension().is_some_and(|end| end == "tide"));
    if !is_store {
        bail!("{} is neither a data folder nor a copy of one: it has no store", dir.display());
    }
    Ok(dir.to_path_buf())
}

/// Where both parts are.
fn dirs(args: &PlaceArgs) -> Result<(PathBuf, PathBuf)> {
    let options = load(&args.sources())?.options;
    Ok((plan::store_dir(&options), plan::space_dir(&options)))
}

/// Prints what was found; 1 if something that was kept is damaged.
fn tell(done: &str, folder: &Path, parts: &PartReports, is_json: bool) -> u8 {
    let is_damaged = parts.store.is_damaged() || parts.space.as_ref().is_some_and(RecoveryReport::is_damaged);
    if is_json {
        let (store, space) = (parts.store.to_string(), parts.space.as_ref().map(ToString::to_string));
        let users = parts.has_users;
        say!(
            "{:#}",
            json!({ "folder": folder, "store": store, "space": space, "users": users, "damaged": is_damaged })
        );
        return u8::from(is_damaged);
    }
    say!("{}: {}", format!("{done} {}", folder.display()).trim_start(), parts.store);
    if let Some(space) = &parts.space {
        say!("smart space: {space}");
    }
    if parts.has_users {
        say!("users");
    }
    u8::from(is_damaged)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_copy_has_the_users_and_gives_them_back_where_there_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("data/store")).unwrap();
        fs::write(at("data/users"), "alice:1").unwrap();
        fs::write(at("data/revoked-tokens"), "7 lamp\n").unwrap();
        let store = |to: &Path| tidegate_store::backup::<StoreImage>(&at("data/store"), to);
        let parts = copy(&at("copy"), store, |_| Ok(None), &at("data/users")).unwrap();
        assert!(parts.has_users && parts.to_string().ends_with("; users"), "{parts}");
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("copy/users"), mode("copy")), (0o600, 0o700), "for their owner alone");
        assert!(restore_users(&at("copy"), &at("new")).unwrap());
        fs::write(at("old"), "bob:2").unwrap();
        assert!(!restore_users(&at("copy"), &at("old")).unwrap(), "never over others");
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!((read("new"), read("old")), ("alice:1".to_owned(), "bob:2".to_owned()));
        assert_eq!(read("copy/revoked-tokens"), "7 lamp\n");
    }

    #[test]
    fn a_store_is_found_in_a_data_folder_and_in_a_copy_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for dir in ["data/store", "copy", "other"] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        fs::write(at("copy/log-000000000001.tide"), "").unwrap();
        assert_eq!(store_in(&at("data")).unwrap(), at("data/store"));
        assert_eq!(store_in(&at("copy")).unwrap(), at("copy"));
        assert!(store_in(&at("other")).is_err() && store_in(&at("missing")).is_err());
        let report = tidegate_store::check::<StoreImage>(&at("data/store")).unwrap();
        assert!(!report.is_damaged());
        assert_eq!(fs::read_dir(at("data/store")).unwrap().count(), 0, "a check leaves nothing behind");
    }
}
