//! A process with a folder of its own, that ends with the value.

use std::process::{Child, Command};

use anyhow::{Context, Result, anyhow};
use tempfile::TempDir;

/// Field order is drop order: the process has ended when its folder is removed.
#[derive(Debug)]
pub(super) struct ChildBroker {
    pub(super) child: KillOnDrop,
    pub(super) folder: TempDir,
    /// What ours was told, to start it once more.
    pub(super) arguments: Vec<String>,
}

impl ChildBroker {
    /// Starts a process whose complaints go to a file.
    pub(super) fn new(mut command: Command, folder: TempDir) -> Result<Self> {
        let log = std::fs::File::create(folder.path().join("log"))?;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.current_dir(folder.path()).stderr(log).spawn().with_context(|| program)?;
        Ok(Self { child: KillOnDrop(child), folder, arguments: Vec::new() })
    }

    /// What it complained about last.
    pub(super) fn complaint(&self) -> anyhow::Error {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        anyhow!("{}", last.trim())
    }
}

/// A process that is ended when this is dropped. Nothing of it is worth keeping, so it is not asked twice.
#[derive(Debug)]
pub(super) struct KillOnDrop(Child);

impl std::ops::Deref for KillOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for KillOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that goes with its broker.
pub(crate) fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("tidegate-bench-").tempdir().context("no temporary folder")?;
    // mosquitto gives up root's rights before it looks at its folder again.
    #[cfg(unix)]
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_started_process_and_its_folder_are_gone_afterwards() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let started = ChildBroker::new(command, folder().unwrap()).unwrap();
        let (pid, path) = (started.child.id(), started.folder.path().to_owned());
        drop(started);
        assert!(!path.exists());
        assert_eq!(crate::procfs::usage(pid), None);
    }
}
