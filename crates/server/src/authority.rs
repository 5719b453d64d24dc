//! What must never be widened by a file that is gone: the users, and what the configuration says about them (F072).
//!
//! A users file that the configuration names and that cannot be read is an error by itself (`security`). The one in the
//! data folder is looked for: that there is none usually means a broker without users. So a broker that has found it
//! there once leaves a mark beside it, and with the mark and without the users nobody starts. A reload never leads from
//! users to none, nor past a configuration file that was read before; a restart does, if it is meant.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use tidegate_broker::config::Listener;
use tracing::warn;

use crate::config::keys::Options;
use crate::config::{ConfigProblem, Loaded, Problems};
use crate::plan::{is_block, is_missing, password_file, usual_password_file};

/// In the data folder: this broker has had users there.
const MARK: &str = "users.expected";

const MARK_TEXT: &str = "The broker of this folder has had users, in the file \"users\" beside this one. While this file is here, the\n\
                         broker does not start without them. Remove both to run it without users.\n";

fn mark(options: &Options) -> PathBuf {
    options.server.data.join(MARK)
}

/// Refuses to take users that were there for users that never were.
pub fn check(loaded: &Loaded) -> Result<(), Problems> {
    let (options, mark) = (&loaded.options, mark(&loaded.options));
    // A mark that may not be looked at may be there.
    if password_file(options).is_some() || is_missing(&mark) {
        return Ok(());
    }
    let users = usual_password_file(options);
    let problem =
        ConfigProblem::of_file(&users, "the users of this broker are gone, and without them everybody could come in");
    let hint = format!("put the file back, or remove {} to run without users", mark.display());
    Err(Problems(vec![problem.with_hint(hint)]))
}

/// Remembers that there are users in the data folder.
pub fn note(options: &Options) {
    if options.security.password_file.is_some() || is_missing(&usual_password_file(options)) {
        return;
    }
    let mark = mark(options);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&mark);
    match made.and_then(|mut file| file.write_all(MARK_TEXT.as_bytes())) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            let path = mark.display();
            warn!(event = "security", %error, "{path} cannot be written: if the users are lost, a start will not notice");
        }
    }
}

/// Refuses a reload that would widen what somebody may do because something is gone.
pub fn check_reload(before: &Loaded, new: &Loaded, had_users: bool, has_users: bool) -> Result<(), Problems> {
    let gone = before.files.iter().filter(|path| !new.files.contains(path));
    let mut problems: Vec<ConfigProblem> = gone
        .map(|path| {
            ConfigProblem::of_file(
                path,
                "was read before and is not any more; what it says about users and rules would be lost",
            )
            .with_hint("put it back, or restart the broker if it was meant".to_owned())
        })
        .collect();
    if had_users && !has_users {
        let users = usual_password_file(&new.options);
        let message = format!(
            "there are no users any more: security.password_file is not set, and there is no {}",
            users.display()
        );
        let hint = "put them back, or restart the broker if everybody is meant to come in".to_owned();
        problems.push(ConfigProblem::general(message).with_hint(hint));
    }
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

/// Refuses a configuration that no longer has the block of a listener that is open: users and rules of its own would be
/// lost, and who comes in there judged by the broker's.
pub fn check_listeners(open: &[Listener], new: &Loaded) -> Result<(), Problems> {
    let is_gone =
        |listener: &&Listener| is_block(listener) && !new.listeners.iter().any(|block| block.name == listener.name);
    let problem = |listener: &Listener| {
        let message = format!("the listener {} is open, and its [[listener]] is gone with its rules", listener.name);
        ConfigProblem::general(message).with_hint("put it back, or restart the broker if it was meant".to_owned())
    };
    let problems: Vec<ConfigProblem> = open.iter().filter(is_gone).map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigEntry, Sources, load};

    fn loaded(folder: &std::path::Path, file: &str) -> Loaded {
        let data = folder.display().to_string();
        let flags = vec![ConfigEntry::flag("--data", "server.data", &data)];
        load(&Sources { file: Some(file.into()), flags, ..Sources::default() }).unwrap()
    }

    #[test]
    fn f072_users_that_were_there_once_are_missed_and_users_that_never_were_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (loaded, users) = (loaded(folder.path(), "/dev/null"), folder.path().join("users"));
        assert!(check(&loaded).is_ok(), "a new broker");
        note(&loaded.options);
        assert!(is_missing(&mark(&loaded.options)), "there is nothing to remember");
        std::fs::write(&users, "").unwrap();
        note(&loaded.options);
        note(&loaded.options);
        assert!(check(&loaded).is_ok());
        std::fs::remove_file(&users).unwrap();
        let refused = check(&loaded).unwrap_err().to_string();
        assert!(refused.contains("users: the users of this broker are gone") && refused.contains(MARK), "{refused}");
        std::fs::remove_file(mark(&loaded.options)).unwrap();
        assert!(check(&loaded).is_ok(), "said on purpose");
    }

    #[test]
    fn f072_a_reload_leads_neither_to_no_users_nor_past_a_file_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "").unwrap();
        let before = loaded(folder.path(), &file.display().to_string());
        let same = |had, has| check_reload(&before, &before, had, has).map_err(|problems| problems.to_string());
        assert_eq!((same(true, true), same(false, true), same(false, false)), (Ok(()), Ok(()), Ok(())));
        assert!(same(true, false).unwrap_err().contains("there are no users any more"));
        let other = loaded(folder.path(), "/dev/null");
        let refused = check_reload(&before, &other, true, true).unwrap_err().to_string();
        assert!(refused.contains("a.toml: was read before and is not any more"), "{refused}");
    }
}
