//! A broker for the browser to look at.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

pub(crate) fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).stdin(Stdio::null()).env_remove("TIDEGATE_CONFIG");
    command
}

/// A broker that is ended with the test.
pub(crate) struct Broker {
    pub(crate) child: Child,
    folder: tempfile::TempDir,
    pub(crate) port: String,
    /// Addresses with `http://`.
    pub(crate) admin: String,
    pub(crate) space: String,
}

impl Broker {
    /// With these users: name and role; the password is "secret".
    pub(crate) fn start(users: &[(&str, &str)]) -> Self {
        Self::start_with(users, ":")
    }

    /// The same, after this command of a shell.
    pub(crate) fn start_with(users: &[(&str, &str)], before: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, data) = (folder.path().join("tidegate.toml"), folder.path().join("data"));
        std::fs::write(&file, "").expect("a configuration");
        for (name, role) in users {
            let mut child = tidegate(&["user", "add", name, "--roles", role, "--password-stdin", "--password-file"])
                .arg(data.join("users"))
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .expect("user runs");
            child.stdin.take().expect("piped").write_all(b"secret\n").expect("it reads");
            assert!(child.wait().expect("it ends").success());
        }
        let here = "127.0.0.1:0";
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let mut child = Command::new("sh")
            .args(["-c", &format!("{before}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_tidegate")])
            .args(["serve", "--mqtt", here, "--ws", "off", "--http", here, "--ssap", "off", "--admin", here, "-c"])
            .arg(&file)
            .arg("--data")
            .arg(&data)
            .env_remove("TIDEGATE_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the broker starts");
        let mut banner = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut banner).expect("the broker speaks");
        let word = |door: &str| {
            let mut words = banner.split_whitespace().skip_while(|word| *word != door);
            words.nth(1).unwrap_or_else(|| panic!("no {door} in {banner:?}")).to_owned()
        };
        let port = word("mqtt").rsplit(':').next().unwrap_or_default().to_owned();
        Self { child, port, admin: word("admin"), space: word("sparql"), folder }
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("a log")
    }

    /// A client that stays until it is dropped.
    pub(crate) fn subscriber(&self, name: &str) -> Client {
        let mut child = tidegate(&["sub", "-h", "127.0.0.1", "-p", &self.port, "-i", name, "-t", "t/#"])
            .args(["-d", "-W", "300", "-V", "5"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sub runs");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.starts_with("subscribed") {
            line.clear();
            assert!(errors.read_line(&mut line).expect("sub speaks") > 0, "sub ended early");
        }
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Client(child)
    }

    pub(crate) fn publish(&self, topic: &str, payload: &str) {
        let done = tidegate(&["pub", "-h", "127.0.0.1", "-p", &self.port, "-i", "writer", "-q", "1", "-r"])
            .args(["-t", topic, "-m", payload])
            .output()
            .expect("pub runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// SPARQL that changes something, at the door of the smart space.
    pub(crate) fn update(&self, text: &str) {
        let host = self.space.trim_start_matches("http://");
        let request = format!(
            "POST /update HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/sparql-update\r\n\
             Content-Length: {}\r\n\r\n{text}",
            text.len()
        );
        let answer = exchange(host, &request);
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    }
}

/// A request as it is, and the answer as it comes.
pub(crate) fn exchange(host: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(host).expect("the door is open");
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ended with the test, too.
pub(crate) struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
