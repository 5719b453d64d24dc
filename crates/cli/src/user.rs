//! `tidegate user`: add, remove and list the users of a password file.
//!
//! The file itself is the server's (`user_file`); here are the words and the questions.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tidegate_auth::{FileFault, Salt, Users};

use crate::arguments::{UserArgs, UserCommand};
use tidegate_program::say;
use tidegate_server::config::{ConfigEntry, Sources, load};
use tidegate_server::plan;
use tidegate_server::user_file::{MissingFile, add, edit, read};

/// Does what was asked.
pub(crate) fn run(args: &UserArgs) -> Result<()> {
    let path = password_file(args)?;
    match &args.command {
        UserCommand::Add { name, roles, password_stdin } => {
            check_name(name)?;
            if args.password_file.is_some() {
                // Of `init`, the flag of the old name is for a password.
                let hint = "--users-file is the file of all users; a password comes by --password-stdin";
                read(&path, MissingFile::IsEmpty).context(hint)?;
            }
            let password = if *password_stdin { first_line()? } else { ask_twice(name)? };
            let roles = roles.as_deref();
            let is_new = edit(&path, MissingFile::IsEmpty, |users| add(users, name, &password, roles))?;
            roles.into_iter().flatten().filter_map(|role| hint_for_role(role)).for_each(|hint| eprintln!("{hint}"));
            let what = if is_new { "added" } else { "changed" };
            say!(
                "{what} {name} in {}; a running broker reads it again with `tidegate reload` or on SIGHUP",
                path.display()
            );
        }
        UserCommand::Remove { name } => {
            if plan::is_missing(&path) {
                bail!("there are no users: {} does not exist", path.display());
            }
            edit(&path, MissingFile::IsError, |users| users.remove(name).with_context(|| format!("{name:?}")))?;
            say!(
                "removed {name} from {}; a running broker reads it again with `tidegate reload` or on SIGHUP",
                path.display()
            );
        }
        UserCommand::List { json } => list(&path, *json)?,
    }
    Ok(())
}

/// About a role that means nothing to the broker itself, and may be mistyped.
fn hint_for_role(role: &str) -> Option<String> {
    let is_known = role.is_empty() || role == tidegate_auth::MONITOR || tidegate_admin::Role::named(role).is_some();
    (!is_known).then(|| {
        format!(
            "note: {role:?} is none of the broker's own roles (viewer, operator, admin, monitor); it only counts where \
             a rule of access names it"
        )
    })
}

/// The file that the broker would read with the same configuration.
fn password_file(args: &UserArgs) -> Result<PathBuf> {
    if let Some(path) = &args.password_file {
        return Ok(tidegate_server::config::absolute(Path::new(path)));
    }
    let flags = args.data.iter().map(|data| ConfigEntry::flag("--data", "server.data", data)).collect();
    let options = load(&Sources::of_process(args.file.config.clone(), flags))?.options;
    Ok(plan::password_file(&options).unwrap_or_else(|| plan::usual_password_file(&options)))
}

/// Adds a first user; one that is there stays as it is.
pub(crate) fn add_new(path: &Path, name: &str, password: &str, roles: &[&str]) -> Result<()> {
    check_name(name)?;
    let roles: Vec<String> = roles.iter().map(|&role| role.to_owned()).collect();
    edit(path, MissingFile::IsEmpty, |users| {
        if users.contains(name) {
            bail!("{} has a user {name:?} already, and nothing was changed", path.display());
        }
        add(users, name, password, Some(&roles)).map(drop)
    })
}

/// Before anybody is asked for a password.
fn check_name(name: &str) -> Result<()> {
    // The name is judged first, and an empty password before anything is computed from it.
    match Users::default().add(name, b"", &Salt::default()) {
        Err(fault @ FileFault::NameInvalid) => Err(fault).with_context(|| format!("{name:?}")),
        _ => Ok(()),
    }
}

fn list(path: &Path, is_json: bool) -> Result<()> {
    let users = read(path, MissingFile::IsEmpty)?;
    let mut out = std::io::stdout().lock();
    if is_json {
        let users: Vec<_> = users
            .iter()
            .map(|(name, roles)| json!({ "name": **name, "roles": roles.iter().map(|role| &**role).collect::<Vec<&str>>() }))
            .collect();
        writeln!(out, "{:#}", json!({ "file": path, "users": users }))?;
        return Ok(());
    }
    if users.is_empty() {
        // Not on stdout: a script that counts lines finds none.
        eprintln!("no users in {}; add one with `tidegate user add NAME`", path.display());
    }
    for (name, roles) in users.iter() {
        let roles: Vec<&str> = roles.iter().map(AsRef::as_ref).collect();
        writeln!(out, "{}", format!("{name}\t{}", roles.join(",")).trim_end())?;
    }
    Ok(())
}

fn ask_twice(name: &str) -> Result<String> {
    let hint = "no terminal to ask for the password; use --password-stdin";
    let password = rpassword::prompt_password(format!("Password for {name}: ")).context(hint)?;
    if rpassword::prompt_password("Again: ").context(hint)? != password {
        bail!("the two passwords differ");
    }
    Ok(password)
}

/// The first line of standard input.
pub(crate) fn first_line() -> Result<String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("standard input")?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_that_only_rules_know_are_pointed_out() {
        for known in ["viewer", "operator", "admin", "monitor", ""] {
            assert_eq!(hint_for_role(known), None);
        }
        assert!(hint_for_role("oprator").unwrap().contains("viewer, operator, admin, monitor"));
    }
}
