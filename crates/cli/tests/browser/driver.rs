//! As much of WebDriver as these tests need, by hand: it is JSON over HTTP, and there is no HTTP client in the tree.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tidegate_test_support::skip::{Remedy, skip};

/// How long a page may take for anything, on a machine that has other things to do.
const PATIENCE_MS: u64 = 60_000;

/// A browser that is ended with the test.
pub(crate) struct Browser {
    child: Child,
    port: u16,
    session: String,
    profile: tempfile::TempDir,
}

/// Where a program is, if it is installed.
fn installed(names: &[&str]) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}

/// A driver and its port; none if it ended at once.
#[expect(clippy::zombie_processes, reason = "whoever gets it waits for it")]
fn start(driver: &Path) -> Option<(Child, u16)> {
    let mut command = Command::new(driver);
    command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("chromedriver is there");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).expect("it speaks") == 0 {
            let _ = child.wait();
            return None;
        }
        let words = line.trim_end().trim_end_matches('.').rsplit_once("on port ");
        if let Some(port) = words.and_then(|(_, port)| port.parse::<u16>().ok()).filter(|port| *port != 0) {
            std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
            return Some((child, port));
        }
    }
}

impl Browser {
    /// Opens one; without Chromium it says what is missing, and there is no test.
    pub(crate) fn open() -> Option<Self> {
        let chromium = installed(&["chromium", "chromium-browser", "google-chrome"]);
        let driver = installed(&["chromedriver"]);
        let (Some(chromium), Some(driver)) = (chromium, driver) else {
            let remedy = Remedy::Owner("apt-get install chromium chromium-driver");
            skip("chromium and chromedriver", "they are not on the path", remedy);
            return None;
        };
        // Several that start at once may want the same port; who is too late ends.
        let (child, port) = (0..5).find_map(|_| start(&driver)).expect("chromedriver starts");
        let profile = tempfile::tempdir().expect("a folder");
        let mut browser = Self { child, port, session: String::new(), profile };
        let folder = format!("--user-data-dir={}", browser.profile.path().display());
        let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", &folder];
        let opened = browser.call(
            "POST",
            "/session",
            &json!({ "capabilities": { "alwaysMatch": {
                "goog:chromeOptions": { "binary": chromium, "args": arguments },
                "goog:loggingPrefs": { "browser": "ALL" },
                "timeouts": { "script": PATIENCE_MS, "pageLoad": PATIENCE_MS },
            } } }),
        );
        opened["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        browser.size(1280, 900);
        Some(browser)
    }

    /// One command; its value.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens");
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).expect("it listens");
        // It does not close what it was asked to close: the head says how long the answer is.
        let (mut reader, mut length, mut line) = (BufReader::new(stream), 0, String::new());
        while line != "\r\n" {
            line.clear();
            assert!(reader.read_line(&mut line).expect("it answers") > 0, "chromedriver ended");
            let field = line.to_ascii_lowercase();
            length = field.strip_prefix("content-length:").and_then(|text| text.trim().parse().ok()).unwrap_or(length);
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).expect("it answers");
        let value: Value = serde_json::from_slice(&answer).expect("JSON");
        assert!(value["value"]["error"].is_null(), "{method} {path} {body}: {value:#}");
        value["value"].clone()
    }

    fn command(&self, name: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}/{name}", self.session), body)
    }

    pub(crate) fn size(&self, width: u32, height: u32) {
        self.command("window/rect", &json!({ "width": width, "height": height }));
        // A window cannot be as narrow as a telephone; what is shown can.
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        let body = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": metrics });
        self.command("goog/cdp/execute", &body);
    }

    pub(crate) fn go(&self, address: &str) {
        self.command("url", &json!({ "url": address }));
    }

    /// What a script returns.
    pub(crate) fn run(&self, script: &str, arguments: &Value) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// What a promise comes to.
    pub(crate) fn promised(&self, expression: &str, arguments: &Value) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; \
             ({expression}).then(done, (error) => done('failed: ' + error))"
        );
        self.command("execute/async", &json!({ "script": script, "args": arguments }))
    }

    /// Waits until an expression holds, in the browser.
    pub(crate) fn until(&self, expression: &str) {
        let script = format!(
            "const done = arguments[arguments.length - 1]; const end = Date.now() + {PATIENCE_MS} - 5000; \
             const look = () => {{ let is = false; try {{ is = Boolean({expression}); }} catch (error) {{ is = false; }} \
             if (is) done(true); else if (Date.now() > end) done(false); else setTimeout(look, 50); }}; look();"
        );
        let held = self.command("execute/async", &json!({ "script": script, "args": [] }));
        assert_eq!(held, true, "never: {expression}\nthe page says: {}", self.text());
    }

    pub(crate) fn text(&self) -> String {
        self.run("return document.body.innerText", &json!([])).as_str().unwrap_or_default().to_owned()
    }

    /// Clicks what a selector finds.
    pub(crate) fn click(&self, selector: &str) {
        self.until(&format!("document.querySelector({}) && !document.querySelector({0}).disabled", json!(selector)));
        self.run("document.querySelector(arguments[0]).click()", &json!([selector]));
    }

    /// Types into a field, as a user would.
    pub(crate) fn fill(&self, selector: &str, text: &str) {
        self.until(&format!("document.querySelector({})", json!(selector)));
        let script = "const it = document.querySelector(arguments[0]); it.focus(); it.value = arguments[1]; \
                      it.dispatchEvent(new Event('input', { bubbles: true }));";
        self.run(script, &json!([selector, text]));
    }

    /// What the console has said since the last look, as far as it is an error.
    pub(crate) fn errors(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({ "type": "browser" }));
        let lines = log.as_array().cloned().unwrap_or_default();
        let severe = lines.iter().filter(|line| line["level"] == "SEVERE");
        severe.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Keeps a picture, if somebody wants to look at it: `TIDEGATE_SCREENSHOTS=folder`.
    pub(crate) fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("TIDEGATE_SCREENSHOTS") else { return };
        let picture = self.call("GET", &format!("/session/{}/screenshot", self.session), &json!({}));
        let bytes = BASE64_STANDARD.decode(picture.as_str().unwrap_or_default()).expect("a picture");
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes).expect("a place for pictures");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.call("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
