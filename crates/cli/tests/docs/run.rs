//! Runs the blocks of a page, in order, in a folder of their own and with brokers on free ports.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate_test_support::ensure;
use tidegate_test_support::skip::{Remedy, skip};

use crate::page::{Block, Page, names_of, root};

/// A block that takes longer hangs.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(180);
/// Separates what the commands of a block print.
const MARK: char = '\u{1e}';

/// Runs everything of a page that can be run; every complaint.
pub(crate) fn run(page: &Page) -> Vec<String> {
    let state = State::new();
    let mut complaints = Vec::new();
    for block in page.blocks() {
        let place = format!("{}:{}", page.name, block.line);
        match (&block.not_run, block.language.as_str()) {
            (Some(reason), _) if reason.len() < 8 => complaints.push(format!("{place}: not run, without a reason")),
            (Some(reason), _) => eprintln!("{place}: not run: {reason}"),
            (None, _) if block.text.contains("curl ") && !has_curl() => {
                skip("curl", &format!("{place} calls it"), Remedy::Owner("apt-get install curl"));
            }
            (None, "sh") => complaints.extend(state.script(&block).err().map(|why| format!("{place}: {why}"))),
            (None, "console") => complaints.extend(state.console(&block).iter().map(|why| format!("{place}: {why}"))),
            (None, "toml") => complaints.extend(state.check(&block).err().map(|why| format!("{place}: {why}"))),
            (None, "text" | "") if block.text.lines().any(|line| line.starts_with("$ ")) => {
                complaints.push(format!("{place}: commands with their output belong into a block ```console"));
            }
            _ => {}
        }
    }
    complaints
}

fn has_curl() -> bool {
    Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// What outlives a block: the folder of the page, and its broker.
struct State {
    run: tempfile::TempDir,
    work: tempfile::TempDir,
}

impl State {
    fn new() -> Self {
        ensure("tidegate-lab");
        ensure("tidegate-bench");
        let folder = || tempfile::tempdir().expect("a folder");
        let state = Self { run: folder(), work: folder() };
        for name in ["examples", "dist"] {
            std::os::unix::fs::symlink(root().join(name), state.work.path().join(name)).expect("a link");
        }
        state
    }

    fn script(&self, block: &Block) -> Result<String, String> {
        self.shell(&format!("{}{}", block.first, block.text))
    }

    fn console(&self, block: &Block) -> Vec<String> {
        let spoken = block.spoken();
        let mut script = block.first.clone();
        for (number, one) in spoken.iter().enumerate() {
            let _ = write!(script, "printf '{MARK}{number}\\n'\n{}", one.command);
        }
        let said = match self.shell(&script) {
            Ok(said) => said,
            Err(why) => return vec![why],
        };
        // A command that goes on prints at the end of its block, so names are looked for from its mark on.
        let mut complaints = Vec::new();
        for (number, one) in spoken.iter().enumerate() {
            let from = said.find(&format!("{MARK}{number}\n")).unwrap_or(0);
            let lines = one.sample.lines().map(str::trim).filter(|line| block.is_exact && !line.is_empty());
            let missing: Vec<&str> =
                names_of(&one.sample).chain(lines).filter(|name| !said[from..].contains(name)).collect();
            if !missing.is_empty() {
                complaints.push(format!(
                    "`{}` does not print {missing:?}, but:\n{}",
                    one.command.trim(),
                    &said[from..]
                ));
            }
        }
        complaints
    }

    /// A piece of a configuration has to be sound by itself, with users or without.
    fn check(&self, block: &Block) -> Result<String, String> {
        let file = self.run.path().join("block.toml");
        std::fs::write(&file, &block.text).expect("the file is written");
        let data = self.run.path().join("check");
        let check = format!(
            "mkdir -p {data}; [ -f {data}/users ] || echo pw | \"$TIDEGATE\" user add me --password-stdin --data {data}\n\
             \"$TIDEGATE\" check -c {file} --data {data}",
            data = data.display(),
            file = file.display()
        );
        self.shell(&check)
    }

    /// What a script prints, or why it failed.
    fn shell(&self, script: &str) -> Result<String, String> {
        let prelude = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/docs/shell.sh");
        let script = format!(". '{}'\n{script}\n_end_followers\n", prelude.display());
        let output = self.run.path().join("output");
        let file = std::fs::File::create(&output).expect("a file for the output");
        let mut shell = Command::new("sh")
            .args(["-c", &script])
            .current_dir(self.work.path())
            .env("TIDEGATE", env!("CARGO_BIN_EXE_tidegate"))
            .env("RUN", self.run.path())
            .env("HOME", self.work.path())
            .env_remove("TIDEGATE_CONFIG")
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a handle"))
            .stderr(file)
            .spawn()
            .expect("a shell");
        let status = wait(&mut shell);
        let said = String::from_utf8_lossy(&std::fs::read(&output).expect("the output")).into_owned();
        match status {
            Some(status) if status.success() => Ok(said),
            Some(status) => Err(format!("{status}:\n{said}")),
            None => Err(format!("did not end:\n{said}")),
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(self.run.path().join("pid")) {
            let _ = Command::new("kill").args(["-9", pid.trim()]).status();
        }
    }
}

/// The end of a process; none: it was ended here.
fn wait(child: &mut std::process::Child) -> Option<std::process::ExitStatus> {
    let (done, watch) = std::sync::mpsc::channel::<()>();
    let pid = child.id().to_string();
    let watcher = std::thread::spawn(move || {
        let is_late = watch.recv_timeout(BLOCK_TIMEOUT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if is_late {
            let _ = Command::new("kill").args(["-9", &pid]).status();
        }
        is_late
    });
    let status = child.wait().expect("it ends");
    drop(done);
    if watcher.join().expect("the watcher ends") { None } else { Some(status) }
}
