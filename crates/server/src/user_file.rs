//! The file of the users: read, changed and replaced as a whole. Written beside the old one, readable by its owner only, and
//! renamed: a broker that reads it at the same moment sees the users from before or those from after. The command line and
//! the admin API both come here.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use tidegate_admin::{AccessOverview, UserChange};
use tidegate_auth::{Salt, Users};

use crate::config::rule::{RuleEffect, RuleSetting, RuleSubject, RuleTarget};
use crate::config::{Loaded, Problems};
use crate::{plan, rule_file, security};

/// Held while the admin API changes the file.
static CHANGES: Mutex<()> = Mutex::new(());

/// Rules of access that are shown; who has more reads the file.
const RULES_SHOWN_MAX: usize = 500;

/// What a missing file means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingFile {
    /// Nobody is there yet.
    IsEmpty,
    /// It should be there.
    IsError,
}

/// The users of a file.
pub fn read(path: &Path, missing: MissingFile) -> Result<Users> {
    if missing == MissingFile::IsEmpty && plan::is_missing(path) {
        return Ok(Users::default());
    }
    let mut problems = Vec::new();
    security::read(path, Users::parse, &mut problems).ok_or_else(|| Problems(problems).into())
}

/// Changes a file; one that has a bad line is left alone.
pub fn edit<T>(path: &Path, missing: MissingFile, change: impl FnOnce(&mut Users) -> Result<T>) -> Result<T> {
    let mut users = read(path, missing)?;
    let outcome = change(&mut users)?;
    replace(path, &users.to_text()).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(outcome)
}

pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let name = path.file_name().context("not the name of a file")?.to_string_lossy();
    // By chance and not by the number of the process: in a container that is always the same, and the draft of one that
    // was killed would be in the way for ever.
    let draft = folder.join(format!(".{name}.{:016x}", u64::from_le_bytes(random()?)));
    let written = write_draft(&draft, path, text).and_then(|()| Ok(std::fs::rename(&draft, path)?));
    match &written {
        // The new file is there; not every file system can say that it survives a power cut.
        Ok(()) => drop(File::open(folder).and_then(|folder| folder.sync_all())),
        Err(_) => drop(std::fs::remove_file(&draft)),
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

fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).ok().context("the operating system gives no random numbers")?;
    Ok(bytes)
}

fn salt() -> Result<Salt> {
    random()
}

/// Adds a user, or gives it another password and other roles if some are named. Whether the user is new.
pub fn add(users: &mut Users, name: &str, password: &str, roles: Option<&[String]>) -> Result<bool> {
    let is_new = !users.contains(name);
    users.add(name, password.as_bytes(), &salt()?).with_context(|| format!("{name:?}"))?;
    if let Some(roles) = roles {
        // `--roles ''` takes all away.
        let roles: Vec<&str> = roles.iter().map(String::as_str).filter(|role| !role.is_empty()).collect();
        users.set_roles(name, &roles)?;
    }
    Ok(is_new)
}

/// Users and rules as they hold now.
pub fn overview(loaded: &Loaded) -> AccessOverview {
    let file = plan::password_file(&loaded.options);
    let users = file.as_deref().and_then(|path| read(path, MissingFile::IsError).ok()).unwrap_or_default();
    let names = |roles: &[std::sync::Arc<str>]| roles.iter().map(ToString::to_string).collect();
    let acl_file = loaded.options.security.acl_file.clone();
    let rules_text = acl_file.as_deref().and_then(|path| std::fs::read_to_string(path).ok());
    let lines = rules_text
        .as_deref()
        .unwrap_or_default()
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rules = loaded.rules.iter().map(rule_in_words).chain(lines.map(str::to_owned)).take(RULES_SHOWN_MAX).collect();
    AccessOverview {
        users: users.iter().map(|(name, roles)| (name.to_string(), names(roles))).collect(),
        users_file: file,
        rules,
        rules_text: rules_text.filter(|text| text.len() <= rule_file::TEXT_MAX),
        rules_file: acl_file,
        allow_anonymous: loaded.options.security.allow_anonymous,
    }
}

fn rule_in_words(rule: &RuleSetting) -> String {
    let whom = match &rule.subject {
        RuleSubject::Everyone => "everybody".to_owned(),
        RuleSubject::Anonymous => "clients without a user".to_owned(),
        RuleSubject::User(name) => format!("user {name}"),
        RuleSubject::Role(name) => format!("role {name}"),
        RuleSubject::Client(name) => format!("client {name}"),
    };
    let does = if rule.effect == RuleEffect::Allow { "may" } else { "may not" };
    let kind = if matches!(rule.target, RuleTarget::Graph(_)) { "graph" } else { "topic" };
    format!("{whom} {does} {} {kind} {} ({})", rule.actions, rule.target.name(), rule.origin)
}

/// Does what an operator asks, in the file that is in force, and puts it in force; if that fails the file is as it was. There
/// is one: the first user is made at the command line.
pub fn change(loaded: &Loaded, change: &UserChange, put_in_force: impl FnOnce() -> Result<()>) -> Result<()> {
    // Two at once would be one.
    let _alone = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = plan::password_file(&loaded.options)
        .context("there are no users; the first one is made with:  tidegate user add NAME --roles admin")?;
    let before = std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    edit(&path, MissingFile::IsError, |users| match change {
        UserChange::Put { name, password: Some(password), roles } => {
            add(users, name, password, roles.as_deref()).map(drop)
        }
        UserChange::Put { name, password: None, .. } if !users.contains(name) => {
            bail!("there is no user {name:?}; a new one needs a password")
        }
        UserChange::Put { name, password: None, roles } => {
            let roles: Vec<&str> = roles.iter().flatten().map(String::as_str).filter(|role| !role.is_empty()).collect();
            users.set_roles(name, &roles).with_context(|| format!("{name:?}"))
        }
        UserChange::Remove { name } => users.remove(name).with_context(|| format!("{name:?}")),
    })?;
    put_in_force().map_err(|why| match replace(&path, &before) {
        Ok(()) => why,
        Err(error) => why.context(format!("written, and not in force; the file cannot be put back ({error:#})")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigEntry, Sources, load};

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

    #[test]
    fn a_change_that_cannot_be_put_in_force_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        edit(&path, MissingFile::IsEmpty, |users| add(users, "ann", "pw", None)).unwrap();
        let before = std::fs::read_to_string(&path).unwrap();
        let flags = vec![ConfigEntry::flag("--set", "security.password_file", &path.display().to_string())];
        let loaded = load(&Sources { file: Some("/dev/null".into()), flags, ..Sources::default() }).unwrap();
        let remove = UserChange::Remove { name: "ann".to_owned() };
        let refused = change(&loaded, &remove, || {
            assert!(read(&path, MissingFile::IsError)?.is_empty(), "what is put in force is the change");
            bail!("tidegate.toml:1:1: not sound")
        });
        assert_eq!(refused.unwrap_err().to_string(), "tidegate.toml:1:1: not sound");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
        change(&loaded, &remove, || Ok(())).unwrap();
        assert!(read(&path, MissingFile::IsError).unwrap().is_empty());
    }

    #[test]
    fn the_draft_of_a_process_that_was_killed_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        std::fs::write(folder.path().join(format!(".users.{}", std::process::id())), "ann").unwrap();
        edit(&path, MissingFile::IsEmpty, |users| add(users, "ann", "pw", None)).unwrap();
        assert!(read(&path, MissingFile::IsError).unwrap().contains("ann"));
    }
}
