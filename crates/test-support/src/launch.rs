//! How a broker for a test is started: on free ports, in a folder of its own, with every door shut that the test does not
//! name.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::broker::Broker;
use crate::program::{path, tidegate};

/// A port that the system chooses.
const FREE: &str = "127.0.0.1:0";
/// Doors that are open unless they are shut.
const BY_DEFAULT: [&str; 9] = ["ws", "http", "ssap", "admin", "coap", "coaps", "sn", "http-topics", "amqp"];

/// A broker that is not started yet.
#[derive(Debug)]
pub struct Launch {
    folder: PathBuf,
    owned: Option<tempfile::TempDir>,
    config: Option<PathBuf>,
    data: PathBuf,
    doors: Vec<&'static str>,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    before: Option<String>,
}

impl Default for Launch {
    fn default() -> Self {
        Self::new()
    }
}

impl Launch {
    /// In a folder that goes with the broker.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { owned: Some(folder), ..Self::at(&PathBuf::new()) }.settle()
    }

    /// In a folder of the test's own, where the broker may have been before. Its configuration is empty.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            owned: None,
            config: None,
            data: folder.join("data"),
            doors: vec!["mqtt"],
            arguments: Vec::new(),
            environment: Vec::new(),
            before: None,
        }
    }

    fn settle(mut self) -> Self {
        if let Some(folder) = &self.owned {
            folder.path().clone_into(&mut self.folder);
            self.data = folder.path().join("data");
        }
        self
    }

    /// Where its files are: `tidegate.toml`, `data`, `log`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Opens this door, too: `ws`, `http`, `https`, `ssap`, `ssaps`, `admin`, `mqtts`, `wss`, `coap`, `coaps`, `sn`, `http-topics`,
    /// `https-topics`, `amqp`, `amqps`, `sepa-http`, `sepa-ws`.
    #[must_use]
    pub fn door(mut self, name: &'static str) -> Self {
        self.doors.push(name);
        self
    }

    /// Writes the configuration.
    #[must_use]
    pub fn config(self, text: &str) -> Self {
        self.file("tidegate.toml", text).config_file("tidegate.toml")
    }

    /// Takes this configuration, whose name is relative to the folder.
    #[must_use]
    pub fn config_file(mut self, path: impl AsRef<Path>) -> Self {
        self.config = Some(self.folder.join(path));
        self
    }

    /// Keeps what must last in this folder, whose name is relative to the broker's.
    #[must_use]
    pub fn data(mut self, path: impl AsRef<Path>) -> Self {
        self.data = self.folder.join(path);
        self
    }

    /// Writes a file into the folder.
    #[must_use]
    pub fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.folder.join(name), text).expect("a file");
        self
    }

    /// Adds a user with the password "secret".
    #[must_use]
    pub fn user(self, name: &str, roles: &str) -> Self {
        add_user(&self.data.join("users"), name, roles, "secret");
        self
    }

    /// More arguments of `serve`.
    #[must_use]
    pub fn arguments<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// A variable of its environment.
    #[must_use]
    pub fn environment(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// A command of the shell that comes before the broker, in the same process.
    #[must_use]
    pub fn after(mut self, command: &str) -> Self {
        self.before = Some(command.to_owned());
        self
    }

    /// `serve`, or another command that takes the same arguments.
    #[must_use]
    pub fn command(&self, name: &str) -> Command {
        let mut command = tidegate(&[]);
        if let Some(before) = &self.before {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{before} && exec \"$0\" \"$@\"")]).arg(path("tidegate"));
            command = shell;
            command.stdin(Stdio::null()).env_remove("TIDEGATE_CONFIG");
        }
        command.arg(name);
        for door in &self.doors {
            command.args([&format!("--{door}"), FREE]);
        }
        for door in BY_DEFAULT.iter().filter(|door| !self.doors.contains(door)) {
            command.args([&format!("--{door}"), "off"]);
        }
        let nothing = Path::new("/dev/null");
        command.arg("-c").arg(self.config.as_deref().unwrap_or(nothing)).arg("--data").arg(&self.data);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts it, and waits until it listens.
    ///
    /// # Panics
    /// If it does not start; with what it said.
    #[must_use]
    pub fn start(self) -> Broker {
        self.start_as("serve")
    }

    /// The same by another command that takes the same arguments.
    ///
    /// # Panics
    /// If it does not start; with what it said.
    #[must_use]
    pub fn start_as(mut self, name: &str) -> Broker {
        let (command, log) = (self.command(name), self.folder.join("log"));
        let owned = self.owned.take();
        Broker::start(command, &log, owned).unwrap_or_else(|said| panic!("the broker did not start: {said}"))
    }
}

/// Adds a user to a file, or gives it another password.
pub fn add_user(file: &Path, name: &str, roles: &str, password: &str) {
    let mut child = tidegate(&["user", "add", name, "--roles", roles, "--password-stdin", "--password-file"])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("user runs");
    writeln!(child.stdin.take().expect("piped"), "{password}").expect("the password is read");
    assert!(child.wait().expect("user ends").success());
}
