//! `tidegate user`: add, remove and list the users of a password file.
//!
//! The file is replaced as a whole: written beside the old one, readable by its owner only, and renamed. A broker that
//! reads it at the same moment sees the users from before or those from after.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{BufRead, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tidegate_auth::{FileFault, Salt, Users};

use crate::arguments::{UserArgs, UserCommand};
use tidegate_server::config::{ConfigEntry, Problems, Sources, load};
use tidegate_server::{plan, security};

/// Does what was asked.
pub(crate) fn run(args: &UserArgs) -> Result<()> {
    let path = password_file(args)?;
    match &args.command {
        UserCommand::Add { name, roles, password_stdin } => {
            check_name(name)?;
            let password = if *password_stdin { first_line()? } else { ask_twice(name)? };
            let roles = roles.as_deref();
            let is_new = edit(&path, MissingFile::IsEmpty, |users| add(users, name, &password, roles))?;
            roles.into_iter().flatten().filter_map(|role| hint_for_role(role)).for_each(|hint| eprintln!("{hint}"));
            let what = if is_new { "added" } else { "changed" };
            println!(
                "{what} {name} in {}; a running broker reads it again with `tidegate reload` or on SIGHUP",
                path.display()
            );
        }
        UserCommand::Remove { name } => {
            if plan::is_missing(&path) {
                bail!("there are no users: {} does not exist", path.display());
            }
            edit(&path, MissingFile::IsError, |users| users.remove(name).with_context(|| format!("{name:?}")))?;
            println!(
                "removed {name} from {}; a running broker reads it again with `tidegate reload` or on SIGHUP",
                path.display()
            );
        }
        UserCommand::List => list(&path)?,
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

/// Whether the user is new.
fn add(users: &mut Users, name: &str, password: &str, roles: Option<&[String]>) -> Result<bool> {
    let is_new = !users.contains(name);
    users.add(name, password.as_bytes(), &salt()?).with_context(|| format!("{name:?}"))?;
    if let Some(roles) = roles {
        // `--roles ''` takes all away.
        let roles: Vec<&str> = roles.iter().map(String::as_str).filter(|role| !role.is_empty()).collect();
        users.set_roles(name, &roles)?;
    }
    Ok(is_new)
}

fn list(path: &Path) -> Result<()> {
    let users = read(path, MissingFile::IsEmpty)?;
    if users.is_empty() {
        // Not on stdout: a script that counts lines finds none.
        eprintln!("no users in {}; add one with `tidegate user add NAME`", path.display());
    }
    let mut out = std::io::stdout().lock();
    for (name, roles) in users.iter() {
        let roles: Vec<&str> = roles.iter().map(AsRef::as_ref).collect();
        writeln!(out, "{}", format!("{name}\t{}", roles.join(",")).trim_end())?;
    }
    Ok(())
}

/// What a missing file means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingFile {
    IsEmpty,
    IsError,
}

fn read(path: &Path, missing: MissingFile) -> Result<Users> {
    if missing == MissingFile::IsEmpty && plan::is_missing(path) {
        return Ok(Users::default());
    }
    let mut problems = Vec::new();
    security::read(path, Users::parse, &mut problems).ok_or_else(|| Problems(problems).into())
}

fn edit<T>(path: &Path, missing: MissingFile, change: impl FnOnce(&mut Users) -> Result<T>) -> Result<T> {
    let mut users = read(path, missing)?;
    let outcome = change(&mut users)?;
    replace(path, &users.to_text()).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(outcome)
}

fn replace(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let name = path.file_name().context("not the name of a file")?.to_string_lossy();
    let draft = folder.join(format!(".{name}.{}", std::process::id()));
    let written = write_draft(&draft, path, text).and_then(|()| Ok(std::fs::rename(&draft, path)?));
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written
}

fn write_draft(draft: &Path, path: &Path, text: &str) -> Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(text.as_bytes())?;
    // Owner and group stay: root may edit the file of the broker's own user. What others could read, they cannot now.
    if let Ok(before) = std::fs::metadata(path) {
        file.set_permissions(Permissions::from_mode(before.mode() & 0o660))?;
        let _ = chown(draft, Some(before.uid()), Some(before.gid()));
    }
    file.sync_all()?;
    Ok(())
}

fn salt() -> Result<Salt> {
    let mut salt = Salt::default();
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut salt).ok().context("the operating system gives no random numbers")?;
    Ok(salt)
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

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn the_file_is_made_for_its_owner_only_and_keeps_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/users");
        let roles = ["a".to_owned()];
        assert!(edit(&path, MissingFile::IsEmpty, |users| add(users, "ann", "pw", Some(&roles))).unwrap());
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert!(!edit(&path, MissingFile::IsEmpty, |users| add(users, "ann", "pw2", None)).unwrap());
        let users = read(&path, MissingFile::IsError).unwrap();
        assert_eq!(users.roles("ann").len(), 1, "a new password keeps the roles");
        assert_eq!(users.verify("ann", b"pw2"), tidegate_auth::PasswordVerdict::Right);
        edit(&path, MissingFile::IsError, |users| Ok(users.remove("ann")?)).unwrap();
        assert!(read(&path, MissingFile::IsError).unwrap().is_empty());
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left behind");
    }

    #[test]
    fn roles_that_only_rules_know_are_pointed_out() {
        for known in ["viewer", "operator", "admin", "monitor", ""] {
            assert_eq!(hint_for_role(known), None);
        }
        assert!(hint_for_role("oprator").unwrap().contains("viewer, operator, admin, monitor"));
    }

    #[test]
    fn nobody_else_can_read_a_file_that_others_could() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        edit(&path, MissingFile::IsError, |users| add(users, "ann", "pw", None)).unwrap();
        assert_eq!(mode(&path), 0o640);
    }

    #[test]
    fn a_broken_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        std::fs::write(&path, "ann\n").unwrap();
        let refused = edit(&path, MissingFile::IsEmpty, |users| add(users, "bob", "pw", None)).unwrap_err().to_string();
        assert!(refused.contains("users:1:1: password hash missing"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "ann\n");
    }
}
