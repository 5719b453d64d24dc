//! The operator's door from outside, without a browser: sessions and tokens, the feed, hostile requests.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tidegate_test_support::{Broker, Launch, code, exchange, text, tidegate};

/// The operator's door and the smart space.
fn launch() -> Launch {
    Launch::new().door("http").door("admin").config("")
}

trait Ask {
    fn host(&self) -> &str;
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> String;
}

impl Ask for Broker {
    fn host(&self) -> &str {
        self.address("admin")
    }

    /// A request with these headers; the answer as it comes.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> String {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let headers = headers.iter().fold(String::new(), |all, (name, value)| all + name + ": " + value + "\r\n");
        let length = body.len();
        let host = self.host();
        exchange(
            host,
            &format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n{headers}Content-Length: {length}\r\n\r\n{body}"),
        )
    }
}

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn body(answer: &str) -> Value {
    serde_json::from_str(tidegate_test_support::body(answer)).unwrap_or_else(|_| panic!("no JSON: {answer}"))
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next()?;
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[test]
fn f086_a_session_is_a_cookie_that_no_script_reads_and_changes_need_its_token() {
    let broker = launch().user("ann", "operator").start();
    let ban = json!({ "client": "x" });
    let log_in = |password: &str| {
        let who = json!({ "user": "ann", "password": password });
        broker.ask("POST", "/api/v1/login", &[JSON], Some(&who))
    };
    assert_eq!(code(&log_in("wrong")), 401);
    let other = broker.ask("POST", "/api/v1/login", &[JSON, ("Origin", "https://evil.example")], Some(&json!({})));
    assert_eq!(code(&other), 403, "not from another site");
    let form = [("Content-Type", "text/plain")];
    assert_eq!(code(&broker.ask("POST", "/api/v1/login", &form, Some(&json!({})))), 415);
    let answer = log_in("secret");
    let set = header(&answer, "set-cookie").expect("a cookie");
    assert!(set.contains("; HttpOnly; SameSite=Strict; Path=/"), "{set}");
    let cookie = set.split(';').next().expect("its value").to_owned();
    let token = body(&answer)["token"].as_str().expect("a token").to_owned();
    let session = ("Cookie", cookie.as_str());
    assert_eq!(code(&broker.ask("GET", "/api/v1/status", &[session], None)), 200);
    assert_eq!(code(&broker.ask("GET", "/api/v1/status", &[("Cookie", "tidegate-session=0")], None)), 401);
    assert_eq!(code(&broker.ask("POST", "/api/v1/bans", &[session, JSON], Some(&ban))), 403, "no token");
    let wrong = ("x-csrf-token", "0000");
    assert_eq!(code(&broker.ask("POST", "/api/v1/bans", &[session, JSON, wrong], Some(&ban))), 403);
    let shown = ("x-csrf-token", token.as_str());
    assert_eq!(code(&broker.ask("POST", "/api/v1/bans", &[session, JSON, shown], Some(&ban))), 200);
    assert_eq!(code(&broker.ask("POST", "/api/v1/reload", &[session, shown], None)), 403, "the role is too low");
    let audit = body(&broker.ask("GET", "/api/v1/audit", &[session], None));
    assert_eq!((&audit["changes"][0]["user"], &audit["changes"][0]["path"]), (&"ann".into(), &"/api/v1/bans".into()));
    assert_eq!((&audit["changes"][0]["whom"], &audit["changes"][0]["from"]), (&"client x".into(), &"127.0.0.1".into()));
    broker.ask("DELETE", "/api/v1/login", &[session], None);
    assert_eq!(code(&broker.ask("GET", "/api/v1/status", &[session], None)), 401, "logged out");
}

#[test]
fn f086_without_users_a_page_still_needs_the_token_and_a_command_line_does_not() {
    let broker = launch().start();
    let (ban, origin) = (json!({ "client": "x" }), broker.admin());
    let ours = ("Origin", origin.as_str());
    assert_eq!(code(&broker.ask("POST", "/api/v1/bans", &[JSON, ours], Some(&ban))), 403, "our page, no token");
    let token = body(&broker.ask("GET", "/api/v1/login", &[], None))["token"].as_str().expect("a token").to_owned();
    let shown = ("x-csrf-token", token.as_str());
    assert_eq!(code(&broker.ask("POST", "/api/v1/bans", &[JSON, ours, shown], Some(&ban))), 200);
    assert_eq!(code(&broker.ask("POST", "/api/v1/bans", &[JSON], Some(&ban))), 200, "no browser");
    let evil = ("Origin", "http://evil.example");
    assert_eq!(code(&broker.ask("POST", "/api/v1/bans", &[JSON, evil, shown], Some(&ban))), 403);
    assert_eq!(code(&broker.ask("GET", "/api/v1/events", &[evil], None)), 403, "nor may it listen");
}

#[test]
fn f087_requests_that_lead_elsewhere_are_refused() {
    let broker = launch().start();
    for path in [
        "/ui/..%2f..%2fCargo.toml",
        "/ui/%2e%2e/Cargo.toml",
        "/ui/../Cargo.toml",
        "/..%2f..%2fetc/passwd",
        "/ui/%00",
        "/ui/app.js%00",
        "/ui/",
        "/%n%n%s%x",
    ] {
        let answer = broker.ask("GET", path, &[], None);
        assert!((400..500).contains(&code(&answer)), "{path}: {answer}");
    }
    let host = broker.host().to_owned();
    let bomb = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n", "x".repeat(64 * 1024));
    assert_eq!(code(&exchange(&host, &bomb)), 431);
    let smuggled = format!(
        "POST /api/v1/drain HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 4\r\n\
         Transfer-Encoding: nonsense\r\n\r\n0\r\n\r\n"
    );
    assert!((400..500).contains(&code(&exchange(&host, &smuggled))));
    assert_eq!(code(&broker.ask("GET", "/healthz", &[], None)), 200, "nothing of that was a drain");
}

#[test]
fn a_browser_gets_the_page_and_every_answer_says_what_it_may_do() {
    let broker = launch().start();
    let page = broker.ask("GET", "/", &[("Accept", "text/html,*/*")], None);
    assert!(page.contains("<!doctype html>") && page.contains("ui/app.js"), "{page}");
    let list = broker.ask("GET", "/", &[("Accept", "application/json")], None);
    assert!(body(&list)["see"].as_array().expect("a list").contains(&"/api/v1/status".into()), "{list}");
    for answer in [&page, &list, &broker.ask("GET", "/nowhere", &[], None)] {
        let policy = header(answer, "content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'self';") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(header(answer, "x-content-type-options"), Some("nosniff"));
    }
    let script = broker.ask("GET", "/ui/app.js", &[], None);
    assert!(header(&script, "content-type").expect("a type").starts_with("text/javascript"));
    let tag = header(&script, "etag").expect("a tag").to_owned();
    assert_eq!(code(&broker.ask("GET", "/ui/app.js", &[("If-None-Match", &tag)], None)), 304);
}

#[test]
fn everything_in_the_document_is_answered() {
    let broker = launch().start();
    let document = body(&broker.ask("GET", "/api/v1/openapi.json", &[], None));
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        if methods["get"].is_null() || path == "/api/v1/events" {
            continue;
        }
        let answer = broker.ask("GET", &path.replace("{id}", "nobody"), &[], None);
        // A WebSocket says so to whoever asks for less.
        if path == "/api/v1/mqtt" {
            assert!(code(&answer) == 400 && answer.to_lowercase().contains("upgrade"), "{answer}");
            continue;
        }
        assert!(matches!(code(&answer), 200 | 404), "{path}: {answer}");
        assert!(!answer.contains("no-such-place"), "{path}");
        count += 1;
    }
    assert!(count > 20, "{count}");
    let rows = broker.ask("POST", "/api/v1/queries", &[JSON], Some(&json!({ "query": "SELECT ?s { ?s ?p ?o }" })));
    assert!(rows.contains("\"bindings\":[]"), "{rows}");
    let wrong = broker.ask("POST", "/api/v1/queries", &[JSON], Some(&json!({ "query": "SELECT" })));
    assert_eq!(code(&wrong), 400, "{wrong}");
}

#[test]
fn f070_listeners_are_fed_and_counted_and_leave_room_for_others() {
    let broker = launch().start();
    let listen = || {
        let mut stream = TcpStream::connect(broker.host()).expect("accepted");
        let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: {}\r\n\r\n", broker.host());
        stream.write_all(request.as_bytes()).expect("it listens");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("an answer");
        (code(&line), reader)
    };
    let mut all: Vec<_> = (0..128).map(|_| listen()).collect();
    assert!(all.iter().all(|(code, _)| *code == 200));
    assert_eq!(listen().0, 503, "there are so many places and no more");
    assert_eq!(code(&broker.ask("GET", "/api/v1/status", &[], None)), 200, "who asks has other places");
    for (_, reader) in &mut all {
        let mut line = String::new();
        while !line.starts_with("data: {") {
            line.clear();
            assert!(reader.read_line(&mut line).expect("it goes on") > 0, "it ended");
        }
    }
    drop(all);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while listen().0 != 200 {
        assert!(std::time::Instant::now() < end, "the places are free again");
    }
    // One that reads nothing keeps nobody.
    let (_, mut silent) = listen();
    assert_eq!(code(&broker.ask("GET", "/metrics", &[], None)), 200);
    let _ = silent.get_mut().read(&mut [0; 16]);
}

#[test]
fn over_tls_the_commands_trust_what_they_are_told_to_and_the_cookie_stays_there() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let files = [("cert.pem", made.cert.pem()), ("key.pem", made.signing_key.serialize_pem())];
    let launch = Launch::new().door("admin").door("admin-https").user("ann", "admin");
    let folder = launch.folder().display().to_string();
    let tls = format!("[tls]\ncert = \"{folder}/cert.pem\"\nkey = \"{folder}/key.pem\"\n");
    let config = format!("{tls}[listeners]\nmqtts = \"off\"\nwss = \"off\"\n");
    let launch = files.iter().fold(launch, |launch, (name, text)| launch.file(name, text));
    let broker = launch.config(&config).start();
    let (port, ca) = (broker.port("admin https"), format!("{folder}/cert.pem"));
    let url = format!("https://localhost:{port}");
    let ask = |arguments: &[&str]| {
        let who = ["-u", "ann", "-P", "secret"];
        let output = tidegate(&["status"]).args(who).args(arguments).output().expect("it runs");
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = ask(&["--admin", &url, "--cafile", &ca]);
    assert!(code == Some(0) && said.contains("calm") && said.contains("admin_https"), "{said}");
    let (code, said) = ask(&["--admin", &url]);
    assert!(code == Some(3) && said.contains("signed it with --cafile"), "{said}");
    let (code, said) = ask(&["--admin", &format!("http://localhost:{port}")]);
    assert!(code == Some(2) && said.contains("this port speaks TLS"), "{said}");
    let (code, said) = ask(&["--admin", &broker.admin().replace("http", "https"), "--insecure"]);
    assert!(code == Some(3) && said.contains("does not speak TLS"), "{said}");
    broker.await_log("came to admin_https, which is for TLS");
    let who = json!({ "user": "ann", "password": "secret" });
    let plain = broker.ask("POST", "/api/v1/login", &[JSON], Some(&who));
    assert!(!header(&plain, "set-cookie").expect("a cookie").contains("Secure"));
    let trust = tidegate_program::Trust { ca: Some(ca.into()), ..tidegate_program::Trust::default() };
    let session = tidegate_program::tls_session("localhost", &trust).expect("TLS");
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let mut stream = rustls::StreamOwned::new(session, stream);
    let (body, kind) = (who.to_string(), "Content-Type: application/json");
    let head =
        format!("POST /api/v1/login HTTP/1.0\r\nHost: localhost\r\n{kind}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(header(&answer, "set-cookie").expect("a cookie").ends_with("; Secure"), "{answer}");
}
