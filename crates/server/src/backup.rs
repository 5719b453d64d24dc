//! Copies of what the broker keeps: sessions and messages, the smart space, and the users with whose tokens were taken back.
//!
//! Each part has a moment of its own. A copy appears under its name when it is whole, and is for its owner alone. What the
//! operator has written and placed (configuration, rules, certificates, keys) is not in it.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tidegate_store::{RecoveryReport, StoreError};

use crate::plan;
use crate::tokens::REVOKED;

/// What was found in each part.
#[derive(Debug)]
pub struct PartReports {
    pub store: RecoveryReport,
    pub space: Option<RecoveryReport>,
    pub has_users: bool,
}

impl fmt::Display for PartReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.store)?;
        if let Some(space) = &self.space {
            write!(f, "; smart space: {space}")?;
        }
        f.write_str(if self.has_users { "; users" } else { "" })
    }
}

/// Makes a copy of both parts and the users, which appears under its name when it is whole.
pub fn copy(
    to: &Path,
    store: impl FnOnce(&Path) -> Result<RecoveryReport, StoreError>,
    space: impl FnOnce(&Path) -> Result<Option<RecoveryReport>, StoreError>,
    users: &Path,
) -> Result<PartReports> {
    ensure_free(to)?;
    let mut stage = to.as_os_str().to_owned();
    stage.push(".copy");
    let stage = PathBuf::from(stage);
    ensure_free(&stage)?;
    let copied = store(&stage).and_then(|store| Ok((store, space(&stage.join(plan::SPACE))?)));
    let placed = copied.map_err(anyhow::Error::from).and_then(|(store, space)| {
        let parts = PartReports { store, space, has_users: copy_users(users, &stage.join(plan::USERS))? };
        // Whoever lost its tokens does not get them back with a copy.
        copy_users(&users.with_file_name(REVOKED), &stage.join(REVOKED))?;
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
pub fn copy_space(dir: &Path, to: &Path) -> Result<Option<RecoveryReport>, StoreError> {
    if plan::is_missing(dir) {
        return Ok(None);
    }
    tidegate_store::backup::<tidegate_space::SpaceImage>(dir, to).map(Some)
}

/// Copies the file of the users, for its owner alone, if there is one; whether there is. One that is there already stays.
pub fn copy_users(from: &Path, to: &Path) -> Result<bool> {
    if plan::is_missing(from) || !plan::is_missing(to) {
        return Ok(false);
    }
    fs::copy(from, to)
        .and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(0o600)))
        .and_then(|()| File::open(to)?.sync_all())
        .with_context(|| format!("cannot copy the users in {}", from.display()))?;
    Ok(true)
}

/// A directory that is not there, or empty.
pub fn ensure_free(dir: &Path) -> Result<()> {
    match fs::read_dir(dir).map(Iterator::count) {
        Ok(1..) => bail!("{} is there already", dir.display()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", dir.display())),
    }
}
