//! The dashboard in a real browser: every page, hostile names, the demonstration, login and tokens.
//!
//! Without Chromium these tests are skipped and counted. `TIDEGATE_SCREENSHOTS=folder` keeps pictures to look at.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod driver;
mod flood;
mod topics;
mod trouble;
mod work;

use driver::Browser;
use serde_json::json;
use tidegate_test_support::Launch;

/// Name in the address, title, and something that is there once the page has asked the broker.
const PAGES: &[(&str, &str, &str)] = &[
    ("now", "Now", "the ledger balances"),
    ("clients", "Clients", "shown."),
    ("topics", "Topics", "Retained messages"),
    ("bridges", "Bridges", "No bridges."),
    ("drops", "Drops", "Both sums are right"),
    ("space", "Smart space", "Standing queries"),
    ("limits", "Limits", "Nobody is kept out"),
    ("system", "System", "limits.receive_max"),
    ("demo", "Demo", "not started"),
];

/// The operator's door and the smart space.
fn launch() -> Launch {
    Launch::new().door("http").door("admin").config("")
}

/// A subscriber that stays.
const READER: [&str; 4] = ["-t", "t/#", "-V", "5"];
/// A message that stays.
const RETAINED: [&str; 5] = ["-i", "writer", "-q", "1", "-r"];

const HOSTILE: &str = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>";

#[test]
fn every_page_loads_in_light_and_dark_and_on_a_telephone_without_errors() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().start();
    let _reader = broker.subscriber(&[&["-i", "reader-1"], &READER[..]].concat());
    broker.send(&[&RETAINED[..], &["-t", "t/kitchen/temperature", "-m", "21.5"]].concat());
    broker.update("INSERT DATA { <urn:room> <urn:temperature> 21.5 }");
    browser.go(&broker.admin());
    browser.until("document.querySelector('#link').textContent === 'live'");
    for (look, width) in [("light", 1280), ("dark", 1280), ("phone", 360)] {
        browser.size(width, 900);
        if look == "dark" {
            browser.click("#theme");
        }
        for (name, title, sign) in PAGES {
            browser.run("location.hash = arguments[0]", &json!([format!("#/{name}")]));
            browser.until(&format!(
                "document.querySelector('main h1').textContent === {} && document.body.innerText.includes({})",
                json!(title),
                json!(sign)
            ));
            let is_wide = browser.run("return document.documentElement.scrollWidth > innerWidth + 1", &json!([]));
            assert_eq!(is_wide, false, "{name} is wider than a window of {width}");
            let unlabelled = "return [...document.querySelectorAll('input, select, textarea, button, a[href]')].filter( \
                 (it) => !it.labels?.length && !it.getAttribute('aria-label') && !it.textContent.trim()).length";
            assert_eq!(browser.run(unlabelled, &json!([])), 0, "{name} has something without a name");
            browser.picture(&format!("{look}-{name}"));
        }
    }
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn f089_hostile_names_payloads_and_literals_are_text() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().start();
    let _hostile = broker.subscriber(&[&["-i", HOSTILE], &READER[..]].concat());
    let topic = format!("t/{}", HOSTILE.replace(['/', '+', '#'], "_"));
    broker.send(&[&RETAINED[..], &["-t", &topic, "-m", HOSTILE]].concat());
    let literal = HOSTILE.replace('"', "\\\"");
    broker.update(&format!("INSERT DATA {{ <urn:a> <urn:b> \"{literal}\" }}"));
    browser.go(&broker.admin());
    let safe = |place: &str| {
        let script = "return document.querySelectorAll('img[src=x], main script').length";
        assert_eq!(browser.run(script, &json!([])), 0, "{place}");
        assert_ne!(browser.run("return document.title", &json!([])), "owned", "{place}");
    };
    let shown = |selector: &str| {
        let text = json!(HOSTILE);
        browser.until(&format!(
            "[...document.querySelectorAll({})].some((it) => it.textContent.includes({text}))",
            json!(selector)
        ));
    };
    browser.run("location.hash = '#/clients'", &json!([]));
    shown("td.name a");
    safe("clients");
    browser.picture("hostile-clients");
    // The way to its page goes through an address and back.
    browser.click("td.name a[href*='onerror']");
    browser.until("document.querySelector('.why').textContent.includes('Is not slowed')");
    shown("h2");
    safe("one client");
    browser.picture("hostile-client");
    // A change with the page's own token is taken.
    browser.click("#kick");
    // It asks once, with the hostile name in the question.
    shown("dialog p");
    browser.click("#yes");
    browser.until("document.querySelector('.why').textContent.includes('Is gone')");
    browser.run("location.hash = '#/topics'", &json!([]));
    shown("td.long");
    safe("topics");
    browser.run("location.hash = '#/space'", &json!([]));
    browser.fill("#query", "SELECT ?o { <urn:a> <urn:b> ?o }");
    browser.click("button.main");
    shown("#rows td");
    safe("smart space");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_query_returns_rows_and_a_wrong_one_says_what_is_wrong() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().start();
    broker.update("INSERT DATA { <urn:s> <urn:p> 1, 2, 3 }");
    browser.go(&format!("{}/#/space", broker.admin()));
    browser.fill("#query", "SELECT ?o { <urn:s> <urn:p> ?o } ORDER BY ?o");
    browser.click("button.main");
    browser.until("document.querySelectorAll('#rows tbody tr').length === 3");
    browser.fill("#query", "SELECT nonsense");
    browser.click("button.main");
    browser.until("document.querySelector('#result .error')?.textContent.length > 10");
}

#[test]
fn the_demonstration_shows_the_flooder_throttled() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().start();
    browser.go(&format!("{}/#/demo", broker.admin()));
    browser.click("#start");
    browser.until("/slowed|backed-off|paused/.test(document.querySelector('#demo-state').textContent)");
    // Slowed, backed off or paused: which of them, and whether its usual rate is known by then, depends on the machine.
    browser.until("/\\[E041[234]\\]/.test(document.querySelector('pre').textContent)");
    browser.picture("demo-flood");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn f086_login_holds_and_so_does_the_token() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().user("ann", "admin").user("vera", "viewer").start();
    browser.go(&broker.admin());
    browser.until("document.querySelector('input[name=password]')");
    browser.picture("login");
    let status = "fetch('api/v1/status').then((answer) => answer.status)";
    assert_eq!(browser.promised(status, &json!([])), 401);
    let log_in = |user: &str, password: &str| {
        browser.fill("input[name=user]", user);
        browser.fill("input[name=password]", password);
        browser.click("form button.main");
    };
    log_in("ann", "wrong");
    browser.until("document.querySelector('.error').textContent.includes('wrong user name or password')");
    log_in("ann", "secret");
    browser.until("document.querySelector('#link').textContent === 'live'");
    browser.until("document.querySelector('#user').textContent === 'ann (admin)'");
    assert_eq!(browser.run("return document.cookie", &json!([])), "", "no script can read it");
    assert_eq!(browser.promised(status, &json!([])), 200);
    let change = "fetch('api/v1/bans', { method: 'POST', headers: { 'content-type': 'application/json', \
                  'x-csrf-token': arguments[0] }, body: JSON.stringify({ client: 'x' }) }).then((it) => it.status)";
    assert_eq!(browser.promised(change, &json!([""])), 403, "without the token");
    let token = browser.promised("fetch('api/v1/login').then((it) => it.json()).then((it) => it.token)", &json!([]));
    assert_eq!(browser.promised(change, &json!([token])), 200);
    browser.click("#logout");
    browser.until("document.querySelector('input[name=password]')");
    assert_eq!(browser.promised(status, &json!([])), 401, "the session is gone");
    log_in("vera", "secret");
    browser.until("document.querySelector('#user').textContent === 'vera (viewer)'");
    let token = browser.promised("fetch('api/v1/login').then((it) => it.json()).then((it) => it.token)", &json!([]));
    assert_eq!(browser.promised(change, &json!([token])), 403, "may only look");
}
