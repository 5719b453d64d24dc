//! Programs from elsewhere: installed once, run with a bound on time, and missed aloud.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longest time for one program. A guard only: none needs a quarter of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of a program.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// `None`: it was ended because it took too long, or by a signal.
    pub(crate) code: Option<i32>,
    /// What it printed, standard output and standard error.
    pub(crate) text: String,
}

/// Runs a program to its end; the error says why it could not be started.
pub(crate) fn run(command: &mut Command) -> Result<Outcome, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (mut reader, writer) = std::io::pipe().map_err(|error| error.to_string())?;
    let errors = writer.try_clone().map_err(|error| error.to_string())?;
    command.stdin(Stdio::null()).stdout(writer).stderr(errors);
    let spawned = command.spawn();
    // The command holds the writing ends too; the reader would wait for them.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawned.map_err(|error| format!("{name} does not start ({error})"))?;
    let (done, finished) = mpsc::channel();
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = reader.read_to_end(&mut bytes);
        let _ = done.send(());
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let in_time = finished.recv_timeout(PATIENCE).is_ok();
    if !in_time {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let text = reading.join().unwrap_or_default();
    Ok(Outcome { code: status.code().filter(|_| in_time), text })
}

/// Runs a step of an installation; the error is the step and the end of what it printed.
pub(crate) fn install_step(command: &mut Command) -> Result<(), String> {
    let outcome = run(command)?;
    if outcome.code == Some(0) {
        return Ok(());
    }
    let told = || outcome.text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = told().find(|line| line.to_lowercase().contains("error")).or_else(|| told().next_back());
    let mut words = vec![command.get_program()];
    words.extend(command.get_args());
    let words: Vec<_> = words.into_iter().map(|word| word.to_string_lossy()).collect();
    Err(format!("`{}` failed: {}", words.join(" "), line.unwrap_or("it took too long")))
}

/// A folder under `target/clients/`, filled by `fill` unless it is there already. Two test runs at the same time fill two
/// folders, and the first to be ready gives it its name.
pub(crate) fn installed(name: &str, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let clients = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients");
    let ready = clients.join(name);
    if ready.is_dir() {
        return Ok(ready);
    }
    std::fs::create_dir_all(&clients).map_err(|error| format!("{}: {error}", clients.display()))?;
    let draft = tempfile::Builder::new().prefix(name).tempdir_in(&clients).map_err(|error| error.to_string())?;
    fill(draft.path())?;
    match std::fs::rename(draft.path(), &ready) {
        Err(error) if !ready.is_dir() => Err(error.to_string()),
        _ => Ok(ready),
    }
}

/// Runs a client's own test program against a broker. It prints a line per scenario and ends with code 0 if all hold.
pub(crate) fn judge(command: &mut Command, scenarios: usize) {
    let outcome = run(command).unwrap_or_else(|why| panic!("{why}"));
    let (passed, other): (Vec<_>, Vec<_>) = outcome.text.lines().partition(|line| line.starts_with("ok "));
    assert_eq!((outcome.code, passed.len()), (Some(0), scenarios), "\n{}", other.join("\n"));
}
