//! Five kinds of trouble on a busy broker, each named on the first page: a flooder with MQTT 5, one with 3.1.1, a receiver that
//! loses, a ban, and a gate that is off. And a bridge that is down.

use serde_json::json;
use tidegate_test_support::{Launch, tidegate};

use crate::driver::Browser;
use crate::flood::Flood;
use crate::launch;

const SENSORS: usize = 20;

/// The names on the cards.
fn cards(browser: &Browser) -> Vec<(String, String)> {
    let script = "return [...document.querySelectorAll('.trouble')].map((it) => \
                  [it.querySelector('.badge').textContent, it.getAttribute('aria-label')])";
    let cards = browser.run(script, &json!([]));
    serde_json::from_value(cards).expect("pairs")
}

fn says(browser: &Browser, words: &str) {
    browser.until(&format!("document.querySelector('#sentence').textContent.includes({})", json!(words)));
}

/// As it looks by day, by night and on a telephone; nothing is wider than the window.
fn looked_at(browser: &Browser, name: &str) {
    for (look, width) in [("light", 1280), ("dark", 1280), ("phone", 390)] {
        browser.size(width, 900);
        if look == "dark" || look == "phone" {
            browser.click("#theme");
        }
        assert_eq!(
            browser.run("return document.documentElement.scrollWidth > innerWidth + 1", &json!([])),
            false,
            "{look}"
        );
        browser.picture(&format!("trouble-{name}-{look}"));
    }
}

#[test]
fn two_flooders_a_loser_and_a_ban_are_named_on_the_first_page_and_the_badge_is_not_green() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().start();
    browser.go(&broker.admin());
    browser.until("document.querySelector('#level').classList.contains('good')");
    let ban = tidegate(&["ban", "add", "pest", "--for", "1h", "--admin", &broker.admin()]).output().expect("it runs");
    assert!(ban.status.success());
    says(&browser, "\"pest\" is banned");
    browser.until("document.querySelector('#level').classList.contains('warn')");
    let floods = Flood::new().with_sensors(&broker, SENSORS).with_reader(&broker, "historian");
    let floods = floods.with_new(&broker, "meter-17").with_old(&broker, "gateway-old");
    for words in ["\"meter-17\" sends", "\"gateway-old\" sends", "\"historian\" loses", "\"pest\" is banned"] {
        says(&browser, words);
    }
    browser.until("document.querySelector('#level').classList.contains('bad')");
    browser.until("document.querySelectorAll('.trouble').length >= 4");
    let cards = cards(&browser);
    for (kind, name) in
        [("floods", "meter-17"), ("floods", "gateway-old"), ("loses", "historian"), ("banned", "client pest")]
    {
        assert!(cards.contains(&(kind.to_owned(), name.to_owned())), "{kind} {name} in {cards:?}");
    }
    assert!(!cards.iter().any(|(_, name)| name.starts_with("sensor")), "who does its work is not named: {cards:?}");
    looked_at(&browser, "four");
    drop(floods);
    // Nothing but the ban is left, and it is said.
    browser.until("document.querySelector('#sentence').textContent === '\"pest\" is banned'");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_gate_that_is_off_is_said_on_the_first_page_and_why_says_it_too() {
    let Some(browser) = Browser::open() else { return };
    let broker = Launch::new().door("admin").config("[backoff]\nmode = \"off\"\n").start();
    browser.go(&broker.admin());
    says(&browser, "the gate is off");
    let floods = Flood::new().with_sensors(&broker, SENSORS);
    let floods = floods.with_reader(&broker, "historian").with_old(&broker, "gateway-old");
    says(&browser, "\"historian\" loses");
    says(&browser, "the gate is off");
    browser.until("document.querySelector('#level').classList.contains('bad')");
    looked_at(&browser, "gate-off");
    browser.run("location.hash = '#/clients/gateway-old'", &json!([]));
    browser.until("document.querySelector('.why')?.textContent.includes('the gate is off')");
    drop(floods);
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_bridge_that_is_down_is_named_with_what_to_do_on_the_first_page_and_on_its_own() {
    let Some(browser) = Browser::open() else { return };
    // Nobody listens at this port any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let bridge = format!(
        "[[bridge]]\nname = \"hub\"\naddress = [\"127.0.0.1:{port}\"]\n[[bridge.topic]]\nfilter = \"t/#\"\nqos = 1\n"
    );
    let broker = Launch::new().door("admin").config(&bridge).start();
    broker.send(&["-t", "t/a", "-m", "waits", "-q", "1"]);
    browser.go(&broker.admin());
    says(&browser, "the bridge \"hub\" to 127.0.0.1:");
    browser.until("document.querySelector('.trouble .why')?.textContent.includes('is the port right?')");
    assert_eq!(cards(&browser), [("bridge down".to_owned(), "hub".to_owned())]);
    looked_at(&browser, "bridge");
    browser.run("location.hash = '#/bridges'", &json!([]));
    browser.until("document.querySelector('#bridges')?.textContent.includes('1 messages wait')");
    browser.until("document.querySelector('#bridges .badge')?.textContent === 'down'");
    browser.picture("bridges");
    assert_eq!(browser.errors(), [""; 0]);
}
