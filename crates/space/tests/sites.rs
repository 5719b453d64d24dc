//! Requests that a page makes its visitor's browser send, over a socket: refused from elsewhere, whatever their method;
//! taken from pages that are listed; programs that are no browsers are not concerned.

#![allow(clippy::unwrap_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::sync::Arc;

use tidegate_graph::SpaceLimits;
use tidegate_space::{AccessMode, AccessPolicy, Checked};

#[derive(Debug)]
struct Lists;

impl AccessPolicy for Lists {
    fn rule(&self) -> AccessMode {
        AccessMode::Open
    }

    fn generation(&self) -> u64 {
        0
    }

    fn is_welcome(&self, origin: &str) -> bool {
        origin == "https://app.example"
    }

    fn check(&self, _: String, _: Vec<u8>, _: std::net::IpAddr, _: Box<dyn FnOnce(bool) + Send>) -> Checked {
        Checked::Busy
    }
}

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

#[test]
fn no_page_from_elsewhere_makes_a_browser_ask_or_change_anything() {
    let broker = common::start();
    let image: &[(&str, &str)] =
        &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "image")];
    let form: &[(&str, &str)] = &[("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site"), FORM];
    let old_form: &[(&str, &str)] = &[("Origin", "http://evil.example"), FORM];
    let sandbox: &[(&str, &str)] = &[("Origin", "null"), FORM];
    let neighbour: &[(&str, &str)] = &[("Sec-Fetch-Site", "same-site"), FORM];
    for (method, path, headers, body) in [
        ("GET", "/query?query=ASK%7B%7D", image, ""),
        ("GET", "/sparql?query=ASK%7B%7D", image, ""),
        ("GET", "/store?default", image, ""),
        ("GET", "/check", image, ""),
        ("GET", "/", image, ""),
        ("POST", "/query", form, "query=ASK%7B%7D"),
        ("POST", "/query", old_form, "query=ASK%7B%7D"),
        ("POST", "/query", sandbox, "query=ASK%7B%7D"),
        ("POST", "/update", form, "update=INSERT+DATA+%7B%7D"),
        ("POST", "/update", neighbour, "update=INSERT+DATA+%7B%7D"),
        ("DELETE", "/store?default", form, ""),
        ("OPTIONS", "/update", form, ""),
    ] {
        let answer = broker.request(method, path, headers, body.as_bytes());
        assert_eq!(answer.status, 403, "{method} {path} {headers:?}: {}", answer.body);
        assert!(answer.header("access-control-allow-origin").is_none(), "{}", answer.head);
    }
    assert!(broker.handle().counts().is_empty(), "nothing of it was asked");
    let link = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
    assert_eq!(broker.request("GET", "/", &link, b"").status, 200, "a link to the list of what there is");
    assert_eq!(broker.request("GET", "/query?query=ASK%7B%7D", &link, b"").status, 403);
}

#[test]
fn programs_and_pages_of_our_own_are_served_as_ever() {
    let broker = common::start();
    let host = broker.http().to_string();
    let own = format!("http://{host}");
    for headers in [
        &[FORM][..],
        &[FORM, ("Sec-Fetch-Site", "none")],
        &[FORM, ("Sec-Fetch-Site", "same-origin"), ("Origin", own.as_str())],
    ] {
        assert_eq!(broker.request("POST", "/query", headers, b"query=ASK%7B%7D").status, 200, "{headers:?}");
        let update = b"update=INSERT+DATA+%7B+%3Curn%3Aa%3E+%3Curn%3Ab%3E+1+%7D";
        assert_eq!(broker.request("POST", "/update", headers, update).status, 200, "{headers:?}");
        assert_eq!(broker.request("GET", "/query?query=ASK%7B%7D", headers, b"").status, 200, "{headers:?}");
    }
}

#[test]
fn a_page_that_is_listed_may_ask_and_read_the_answer() {
    let broker = common::start_with(SpaceLimits::default(), Arc::new(Lists));
    let page = ("Origin", "https://app.example");
    let site = ("Sec-Fetch-Site", "cross-site");
    let before = [page, site, ("Access-Control-Request-Method", "POST")];
    let allowed = broker.request("OPTIONS", "/update", &before, b"");
    assert_eq!(allowed.status, 204);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example"));
    assert!(allowed.header("access-control-allow-methods").unwrap().contains("POST"), "{}", allowed.head);
    let answer = broker.request("POST", "/query", &[page, site, FORM], b"query=ASK%7B%7D");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    let wrong = broker.request("POST", "/query", &[page, site, FORM], b"query=nonsense");
    assert_eq!((wrong.status, wrong.header("access-control-allow-origin")), (400, Some("https://app.example")));
    let request = tungstenite::ClientRequestBuilder::new(format!("ws://{}/subscribe", broker.http()).parse().unwrap());
    let (mut socket, _) = tungstenite::connect(request.clone().with_header("Origin", "https://app.example")).unwrap();
    socket.send(r#"{"subscribe":{"sparql":"SELECT * {?s ?p ?o}"}}"#.into()).unwrap();
    assert!(socket.read().unwrap().to_string().contains("notification"));
    assert!(tungstenite::connect(request.with_header("Origin", "https://evil.example")).is_err());
}
