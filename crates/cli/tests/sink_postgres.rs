//! A sink to Debian's PostgreSQL, which goes away and comes back. Built with `--features postgres`.

#![cfg(all(unix, feature = "postgres"))]
#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Broker, Launch, PATIENCE, text, tidegate};

/// A database of its own, ended with the test.
struct Database {
    programs: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
}

impl Database {
    fn new() -> Option<Self> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let programs =
            versions.flatten().map(|entry| entry.path().join("bin")).find(|path| path.join("initdb").is_file())?;
        let folder = tempfile::tempdir().expect("a folder");
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        let database = Self { programs, folder, port };
        if is_root() {
            let owned = Command::new("chown").arg("postgres").arg(database.folder.path()).status();
            if !owned.is_ok_and(|status| status.success()) {
                return None;
            }
        }
        let data = database.data().display().to_string();
        let made = database.run("initdb", &["-D", &data, "-A", "trust", "-U", "postgres", "--no-sync"]);
        made.then_some(database)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// PostgreSQL does not run as root.
    fn run(&self, program: &str, arguments: &[&str]) -> bool {
        let path = self.programs.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        let command = command.args(arguments).current_dir(Path::new("/")).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    fn start(&self) -> bool {
        let (data, folder) = (self.data().display().to_string(), self.folder.path().display().to_string());
        let options = format!("-p {} -c listen_addresses=127.0.0.1 -k {folder} -F", self.port);
        let log = format!("{folder}/log");
        self.run("pg_ctl", &["-D", &data, "-w", "-l", &log, "-o", &options, "start"])
    }

    fn stop(&self) {
        self.run("pg_ctl", &["-D", &self.data().display().to_string(), "-w", "-m", "fast", "stop"]);
    }

    fn ask(&self, question: &str) -> String {
        let port = self.port.to_string();
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-A", "-t", "-c", question]);
        text(&command.output().expect("psql runs").stdout).trim().to_owned()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_root() -> bool {
    text(&Command::new("id").arg("-u").output().expect("id runs").stdout).trim() == "0"
}

fn await_answer(database: &Database, broker: &Broker, question: &str, wanted: &str) {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = database.ask(question);
        if answer == wanted {
            return;
        }
        assert!(Instant::now() < end, "{question}: {answer:?} and not {wanted:?}\n{}", broker.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn rows_come_in_order_and_what_waits_comes_when_the_database_is_back() {
    let Some(database) = Database::new().filter(Database::start) else {
        return skip("PostgreSQL", "it cannot be started here", Remedy::Owner("apt-get install postgresql"));
    };
    let config = format!(
        "[[sink]]\nname = \"history\"\ntype = \"postgres\"\nurl = \"postgres://postgres@127.0.0.1:{}/postgres\"\ntable = \"readings\"\n\
         [[sink.topic]]\nfilter = \"sensors/#\"\n",
        database.port
    );
    let here = Launch::new().door("admin").config(&config).start();
    let end = Instant::now() + PATIENCE;
    loop {
        let output = tidegate(&["clients", "--json", "--admin", &here.admin()]).output().expect("clients runs");
        if text(&output.stdout).contains("$sink/history") {
            break;
        }
        assert!(Instant::now() < end, "the sink has no session:\n{}", here.log());
    }
    here.send(&["-t", "sensors/hall", "-m", "21.5", "-q", "1"]);
    await_answer(
        &database,
        &here,
        "SELECT topic, convert_from(payload, 'UTF8'), qos, retain FROM readings",
        "sensors/hall|21.5|1|f",
    );
    database.stop();
    for number in 0..20 {
        here.send(&["-t", "sensors/n", "-m", &number.to_string(), "-q", "1"]);
    }
    assert!(database.start(), "it starts again");
    let distinct = "SELECT count(DISTINCT payload) FROM readings WHERE topic = 'sensors/n'";
    await_answer(&database, &here, distinct, "20");
    // A row that the table does not want is given up, and nothing waits for it.
    database.ask("ALTER TABLE readings ADD CHECK (length(payload) < 100)");
    here.send(&["-t", "sensors/big", "-m", &"x".repeat(200), "-q", "1"]);
    here.send(&["-t", "sensors/small", "-m", "x", "-q", "1"]);
    await_answer(&database, &here, "SELECT count(*) FROM readings WHERE topic = 'sensors/small'", "1");
    let end = Instant::now() + PATIENCE;
    loop {
        let output = tidegate(&["sinks", "--json", "--admin", &here.admin()]).output().expect("sinks runs");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        if answer["sinks"][0]["refused"] == 1 {
            return;
        }
        assert!(Instant::now() < end, "{answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
