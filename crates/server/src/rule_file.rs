//! The file of the rules of access (mosquitto's format), changed by the admin API. The file is the truth: whoever changed it
//! meanwhile is not overwritten, and a text that does not hold leaves it as it was.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::config::Loaded;
use crate::user_file::replace;

/// Bytes of a file that a page may change: text and the one before fit into a request.
pub const TEXT_MAX: usize = 6 * 1024;

/// Held while the file is changed.
static CHANGES: Mutex<()> = Mutex::new(());

/// Writes another text and puts it in force; if that fails the file is as it was.
pub fn change(loaded: &Loaded, before: &str, text: &str, put_in_force: impl FnOnce() -> Result<()>) -> Result<()> {
    // Two at once would be one.
    let _alone = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = loaded.options.security.acl_file.as_deref();
    let path = path
        .context("rules in the configuration ([[security.rule]]) are changed there; security.acl_file names a file")?;
    if text.len() > TEXT_MAX {
        bail!("more than {TEXT_MAX} bytes are changed in {} itself", path.display());
    }
    let now = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    if now != before {
        bail!("{} has changed meanwhile; look at it again", path.display());
    }
    replace(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    put_in_force().map_err(|why| match replace(path, &now) {
        Ok(()) => why,
        Err(error) => why.context(format!("written, and not in force; the file cannot be put back ({error:#})")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigEntry, Sources, load};

    #[test]
    fn a_text_is_written_if_the_file_is_as_it_was_and_put_back_if_it_does_not_hold() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("acl");
        std::fs::write(&path, "topic read a\n").unwrap();
        let flags = vec![ConfigEntry::flag("--set", "security.acl_file", &path.display().to_string())];
        let loaded = load(&Sources { file: Some("/dev/null".into()), flags, ..Sources::default() }).unwrap();
        let read = || std::fs::read_to_string(&path).unwrap();
        let stale = change(&loaded, "topic read b\n", "", || Ok(())).unwrap_err().to_string();
        assert!(stale.ends_with("has changed meanwhile; look at it again"), "{stale}");
        let refused = change(&loaded, "topic read a\n", "nonsense\n", || bail!("acl:1:1: unknown word"));
        assert_eq!(
            (refused.unwrap_err().to_string().as_str(), read().as_str()),
            ("acl:1:1: unknown word", "topic read a\n")
        );
        change(&loaded, "topic read a\n", "topic read b\n", || Ok(())).unwrap();
        assert_eq!(read(), "topic read b\n");
        let long = change(&loaded, "topic read b\n", &"#".repeat(TEXT_MAX + 1), || Ok(())).unwrap_err().to_string();
        assert!(long.starts_with("more than 6144 bytes"), "{long}");
    }
}
