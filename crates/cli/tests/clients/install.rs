//! What others have written: installed once under `target/clients/`, and run with a bound on time.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longest time for one program. A guard only: none needs a quarter of it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time for a step of an installation, over a slow network and on a busy machine.
const INSTALL_PATIENCE: Duration = Duration::from_secs(300);
/// Where Python's packages lie without a virtual environment.
const PACKAGES: &str = "packages";

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
    run_within(command, PATIENCE)
}

fn run_within(command: &mut Command, patience: Duration) -> Result<Outcome, String> {
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
    let in_time = finished.recv_timeout(patience).is_ok();
    if !in_time {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let text = reading.join().unwrap_or_default();
    Ok(Outcome { code: status.code().filter(|_| in_time), text })
}

/// Runs a step of an installation; the error is the step and the end of what it printed.
fn install_step(command: &mut Command) -> Result<(), String> {
    let outcome = run_within(command, INSTALL_PATIENCE)?;
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

/// The package of npm that `package-lock.json` in this folder names, with its dependencies.
pub(crate) fn npm(name: &str, here: &Path) -> Result<PathBuf, String> {
    installed(name, |folder| {
        install_step(Command::new("node").arg("--version"))?;
        for name in ["package.json", "package-lock.json"] {
            std::fs::copy(here.join(name), folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=3"]);
        npm.args(["--fetch-retry-mintimeout=1000", "--fetch-timeout=20000"]);
        install_step(npm.current_dir(folder))
    })
}

/// What `requirements.txt` in this folder names, in a virtual environment of Python; where the system's Python cannot make
/// one, in a folder beside it.
pub(crate) fn pip(name: &str, here: &Path) -> Result<PathBuf, String> {
    let install = |python: &Path, into: &[&OsStr]| {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--retries", "3"]);
        install_step(pip.args(["--timeout", "10"]).args(into).arg("-r").arg(here.join("requirements.txt")))
    };
    installed(name, |folder| {
        if install_step(Command::new("python3").args(["-m", "venv"]).arg(folder)).is_ok() {
            return install(&folder.join("bin/python"), &[]);
        }
        let _ = std::fs::remove_dir_all(folder.join("bin"));
        install(Path::new("python3"), &["--target".as_ref(), folder.join(PACKAGES).as_ref()])
    })
}

/// Python with the packages in a folder that [`pip`] has filled.
pub(crate) fn python(folder: &Path) -> Command {
    let own = folder.join("bin/python");
    let mut command = Command::new(if own.exists() { &own } else { Path::new("python3") });
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", folder.join(PACKAGES));
    command
}

/// A folder under `target/clients/`, filled by `fill` unless it is there already. Two test runs at the same time fill two
/// folders, and the first to be ready gives it its name.
fn installed(name: &str, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
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
