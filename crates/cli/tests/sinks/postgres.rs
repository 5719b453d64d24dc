//! A sink to Debian's PostgreSQL, in a cluster of its own that goes away and comes back.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Broker, Launch, PATIENCE, free_port, text};

use crate::seen::{assert_in_order, await_seen, publish_numbers};

/// The right one.
const PASSWORD: &str = "p4ssword";

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
        let database = Self { programs, folder, port: free_port() };
        std::fs::write(database.password_file(), PASSWORD).expect("a file");
        if is_root() {
            let owned = Command::new("chown").args(["-R", "postgres"]).arg(database.folder.path()).status();
            if !owned.is_ok_and(|status| status.success()) {
                return None;
            }
        }
        let data = database.data().display().to_string();
        let password = format!("--pwfile={}", database.password_file().display());
        let how = ["-D", &data, "-A", "scram-sha-256", "-U", "postgres", &password, "--no-sync"];
        database.run("initdb", &how).then_some(database).filter(Self::start)
    }

    /// A sink to it, with this password.
    fn sink(&self, password: &str, more: &str) -> Launch {
        let config = format!(
            "[[sink]]\nname = \"history\"\ntype = \"postgres\"\nurl = \"postgres://postgres@127.0.0.1:{}/postgres\"\n\
             table = \"readings\"\npassword_file = \"password\"\ntimeout = \"1s\"\n{more}[[sink.topic]]\nfilter = \"sensors/#\"\n",
            self.port
        );
        Launch::new().door("admin").file("password", password).config(&config)
    }

    fn password_file(&self) -> PathBuf {
        self.folder.path().join("password")
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
        command.env("PGPASSWORD", PASSWORD);
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

/// A database, or the test is skipped.
fn database() -> Option<Database> {
    let database = Database::new();
    if database.is_none() {
        skip("PostgreSQL", "it cannot be started here", Remedy::Owner("apt-get install postgresql"));
    }
    database
}

#[test]
fn rows_come_in_order_and_what_waits_comes_when_the_database_is_back() {
    let Some(database) = database() else { return };
    let here = database.sink(PASSWORD, "").start();
    here.send(&["-t", "sensors/hall", "-m", "21.5", "-q", "1"]);
    let question = "SELECT topic, convert_from(payload, 'UTF8'), qos, retain FROM readings";
    await_answer(&database, &here, question, "sensors/hall|21.5|1|f");
    database.stop();
    publish_numbers(&here, 0..200);
    let down = await_seen(&here, "down", |sink| sink["state"] == "down" && sink["queued"] == 200);
    assert!(down["trouble"].as_str().expect("words").contains("Connection refused"), "{down}");
    assert!(database.start(), "it starts again");
    await_seen(&here, "drained", |sink| sink["queued"] == 0 && sink["state"] == "up");
    let rows =
        database.ask("SELECT convert_from(payload, 'UTF8') FROM readings WHERE topic = 'sensors/n' ORDER BY ctid");
    assert_in_order(rows.lines().map(|line| line.parse().expect("a number")), 0..200);
    // A row that the table does not want is given up, and nothing waits for it.
    database.ask("ALTER TABLE readings ADD CHECK (length(payload) < 100)");
    here.send(&["-t", "sensors/big", "-m", &"x".repeat(200), "-q", "1"]);
    here.send(&["-t", "sensors/small", "-m", "x", "-q", "1"]);
    await_answer(&database, &here, "SELECT count(*) FROM readings WHERE topic = 'sensors/small'", "1");
    let sink = await_seen(&here, "given up", |sink| sink["refused"] == 1);
    assert!(sink["refusal"].as_str().expect("words").contains("23514"), "{sink}");
    here.await_log("event=sink_refused");
}

#[test]
fn a_lost_answer_makes_rows_come_twice_and_loses_none() {
    let Some(database) = database() else { return };
    let here = database.sink(PASSWORD, "").start();
    here.send(&["-t", "sensors/first", "-m", "x", "-q", "1"]);
    await_answer(&database, &here, "SELECT count(*) FROM readings", "1");
    // Each insertion lasts longer than the sink waits: the row is there, and nobody was told.
    database.ask(
        "CREATE FUNCTION slow() RETURNS trigger AS 'BEGIN PERFORM pg_sleep(2); RETURN NULL; END' LANGUAGE plpgsql",
    );
    database.ask("CREATE TRIGGER slow AFTER INSERT ON readings EXECUTE FUNCTION slow()");
    publish_numbers(&here, 0..3);
    let late = await_seen(&here, "late", |sink| sink["state"] == "down");
    assert_eq!(late["trouble"], "no answer in 1 s");
    let copies = "SELECT count(*) >= 2 FROM readings WHERE topic = 'sensors/n' AND payload = '0'";
    await_answer(&database, &here, copies, "t");
    database.ask("DROP TRIGGER slow ON readings");
    await_seen(&here, "drained", |sink| sink["queued"] == 0 && sink["state"] == "up");
    let distinct = "SELECT count(DISTINCT payload) FROM readings WHERE topic = 'sensors/n'";
    await_answer(&database, &here, distinct, "3");
}

#[test]
fn a_wrong_password_loses_nothing_and_a_full_spool_counts_what_it_loses() {
    let Some(database) = database() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let launch = |password: &str| {
        let config = std::fs::read_to_string(database.sink("", "").folder().join("tidegate.toml")).expect("a file");
        let config = config + "[sink.spool]\nbytes = 200000\n";
        Launch::at(folder.path()).door("admin").file("password", password).config(&config).start()
    };
    let here = launch("wrong");
    here.send(&["-t", "sensors/first", "-m", "x", "-q", "1"]);
    let down = await_seen(&here, "refused", |sink| sink["state"] == "down");
    assert!(down["trouble"].as_str().expect("words").contains("28P01"), "{down}");
    assert_eq!((&down["queued"], &down["refused"]), (&1.into(), &0.into()));
    here.kill();
    // With the right one it comes.
    let here = launch(PASSWORD);
    await_answer(&database, &here, "SELECT topic FROM readings", "sensors/first");
    database.stop();
    let lines: Vec<String> = (0..3000).map(|number| format!("{number:01000}")).collect();
    crate::seen::publish_lines(&here, &lines);
    let full = await_seen(&here, "full", |sink| sink["state"] == "down" && sink["queued"].as_u64() > Some(1000));
    assert!(full["queued_bytes"].as_u64() <= Some(200_000 + 1024 * 2000), "{full}");
    assert!(database.start(), "it starts again");
    await_seen(&here, "drained", |sink| sink["queued"] == 0 && sink["state"] == "up");
    // The newest are there, and what is not was counted.
    let kept: u32 = database
        .ask("SELECT count(DISTINCT payload) FROM readings WHERE topic = 'sensors/n'")
        .parse()
        .expect("a number");
    assert!((1000..2999).contains(&kept), "{kept}");
    assert_eq!(database.ask(&format!("SELECT count(*) > 0 FROM readings WHERE payload = '{}'", lines[2999])), "t");
    let drops = text(
        &tidegate_test_support::tidegate(&["drops", "--json", "--admin", &here.admin()])
            .output()
            .expect("drops runs")
            .stdout,
    );
    let drops: serde_json::Value = serde_json::from_str(&drops).expect("JSON");
    assert!(drops.to_string().contains(&(3000 - kept).to_string()), "{drops}");
}
