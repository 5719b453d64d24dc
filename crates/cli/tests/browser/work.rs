//! What an operator does with the pages: finds who floods, limits it and takes that back; reads charts with the keyboard;
//! publishes, subscribes and deletes; asks and changes the space; looks after users.

use serde_json::json;
use tidegate_test_support::Launch;

use crate::driver::Browser;
use crate::flood::Flood;
use crate::{READER, RETAINED, launch};

#[test]
fn the_first_page_names_who_floods_and_who_loses_and_a_limit_is_set_and_undone() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().start();
    let flood = Flood::begin(&broker);
    browser.go(&broker.admin());
    browser.until("document.querySelector('#sentence').textContent.includes('\"flooder\" sends')");
    browser.until("document.querySelector('#sentence').textContent.includes('\"historian\" loses')");
    browser.until("document.querySelector('#level').classList.contains('bad')");
    let cards = "return [...document.querySelectorAll('#troubles article')].map((it) => it.getAttribute('aria-label'))";
    browser.until("document.querySelectorAll('#troubles article').length >= 2");
    assert_eq!(browser.run(cards, &json!([])), json!(["flooder", "historian"]), "the culprit first");
    // The worst one is open, and its proposal has a button.
    browser.until("document.querySelector('#troubles article:first-child [data-act=limit], #troubles article:first-child [data-act=ban]')");
    browser.picture("now-flood");
    let is_there = "fetch('api/v1/limits').then((it) => it.json()).then((it) => it.limits.length)";
    browser.run("location.hash = '#/clients/flooder'", &json!([]));
    browser.fill("#rate", "50/s");
    browser.click("#rate ~ button, label[for=rate] + button");
    browser.click("#yes");
    browser.until("document.querySelector('#toast button')?.textContent === 'Undo'");
    assert_eq!(browser.promised(is_there, &json!([])), 1);
    browser.picture("client-flood");
    browser.click("#toast button");
    browser.until("document.querySelector('#toast').textContent.includes('is as it was')");
    assert_eq!(browser.promised(is_there, &json!([])), 0, "undone");
    drop(flood);
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn charts_tell_their_values_to_the_keyboard_and_zoom() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().start();
    browser.go(&broker.admin());
    browser.until("document.querySelectorAll('svg.chart polyline').length > 6");
    let press = |key: &str| {
        let script = "const it = document.querySelector('svg.chart'); it.focus(); \
                      it.dispatchEvent(new KeyboardEvent('keydown', { key: arguments[0], bubbles: true }))";
        browser.run(script, &json!([key]));
    };
    press("End");
    browser.until(
        "!document.querySelector('.tip').hidden && document.querySelector('.tip').textContent.includes('delivered')",
    );
    // One crosshair for all of them.
    assert_eq!(
        browser.run("return [...document.querySelectorAll('.tip')].every((it) => !it.hidden)", &json!([])),
        true
    );
    browser.until("document.querySelector('svg.chart polyline').getAttribute('points').split(' ').length > 8");
    press("+");
    browser.until(
        "[...document.querySelectorAll('.legend button')].some((it) => !it.hidden && it.textContent === 'Show all')",
    );
    press("Escape");
    browser.until(
        "[...document.querySelectorAll('.legend button')].every((it) => it.hidden || it.textContent !== 'Show all')",
    );
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn fifty_five_clients_fit_on_a_telephone_and_heads_sort() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().start();
    let names: Vec<String> = (0..55).map(|number| format!("sensor-{number:02}")).collect();
    let _readers: Vec<_> =
        names.iter().map(|name| broker.subscriber(&[&["-i", name.as_str()], &READER[..]].concat())).collect();
    browser.go(&format!("{}/#/clients", broker.admin()));
    browser.until("document.querySelectorAll('table.compact tbody tr').length === 55");
    browser.click("table.compact th:first-child button");
    browser.until("document.querySelector('table.compact th:first-child').getAttribute('aria-sort') === 'ascending'");
    browser.until("document.querySelector('table.compact td.name').textContent === 'sensor-00'");
    browser.size(390, 844);
    browser.picture("phone-clients-55");
    let height = browser.run("return document.documentElement.scrollHeight", &json!([])).as_u64().unwrap_or(u64::MAX);
    assert!(height < 3500, "{height} px");
    assert_eq!(browser.run("return document.documentElement.scrollWidth > innerWidth + 1", &json!([])), false);
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn the_page_publishes_subscribes_and_deletes_what_is_retained() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().start();
    broker.send(&[&RETAINED[..], &["-t", "t/kitchen/temperature", "-m", "21.5"]].concat());
    browser.go(&format!("{}/#/topics", broker.admin()));
    browser.fill("#try-filter", "t/#");
    browser.click("#try-subscribe");
    browser.until("document.querySelector('#try-messages').textContent.includes('21.5')");
    browser.fill("#try-topic", "t/page");
    browser.fill("#try-payload", "h\u{e9}llo <b>");
    browser.click("#try-publish");
    browser.until("document.querySelector('#try-messages').textContent.includes('h\u{e9}llo <b>')");
    browser.picture("topics-try");
    browser.click("button[aria-label='Delete the retained message of t/kitchen/temperature']");
    browser.click("#yes");
    browser.until("!document.querySelector('button[aria-label^=\"Delete the retained\"]')");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn rights_of_mqtt_hold_for_the_page() {
    let Some(browser) = Browser::open() else { return };
    let rule = "[[security.rule]]\nuser = \"ann\"\nallow = \"readwrite\"\ntopic = \"own/#\"\n";
    let broker = Launch::new().door("admin").config(rule).user("ann", "admin").user("vera", "viewer").start();
    browser.go(&broker.admin());
    browser.fill("input[name=user]", "ann");
    browser.fill("input[name=password]", "secret");
    browser.click("form button.main");
    browser.until("document.querySelector('#link').textContent === 'live'");
    browser.run("location.hash = '#/topics'", &json!([]));
    browser.click("#try-publish");
    browser.until("/password|authorized/.test(document.querySelector('[role=alert]:not(:empty)').textContent)");
    browser.fill("#try-password", "secret");
    browser.fill("#try-topic", "others/a");
    browser.click("#try-publish");
    browser.until(
        "[...document.querySelectorAll('[role=alert]')].some((it) => it.textContent.includes('not authorized'))",
    );
    browser.fill("#try-topic", "own/a");
    browser.click("#try-publish");
    browser.until("document.querySelector('#try-state').textContent === 'published to own/a'");
    // Users are listed, and changed in their file.
    browser.run("location.hash = '#/system'", &json!([]));
    browser.until("[...document.querySelectorAll('td.name')].some((it) => it.textContent === 'vera')");
    browser.until("document.body.innerText.includes('user ann may readwrite topic own/#')");
    browser.fill("#user-name", "bob");
    browser.fill("#user-password", "secret2");
    browser.click("#role-operator");
    browser.click("label[for=user-roles] + button");
    browser.click("#yes");
    browser.until("document.querySelector('#toast').textContent.includes('bob is written') || document.querySelector('input[name=user]')");
    let users = std::fs::read_to_string(broker.folder().join("data/users")).unwrap_or_default();
    assert!(users.contains("bob:") && users.contains("ann:"), "{users}");
}

#[test]
fn an_update_changes_the_space_and_triples_are_a_graph() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().start();
    browser.go(&format!("{}/#/space", broker.admin()));
    browser.fill("#query", "INSERT DATA { <urn:kitchen> rdfs:label \"K\u{fc}che\" ; <urn:near> <urn:hall> }");
    browser.click("button.main");
    browser.until("document.querySelector('#result').textContent.includes('changed')");
    let text = browser.run("return document.querySelector('#query').value", &json!([]));
    assert!(text.as_str().unwrap_or_default().starts_with("PREFIX rdfs: <"), "{text}");
    browser.fill("#query", "CONSTRUCT WHERE { ?s ?p ?o }");
    browser.click("button.main");
    browser.until("document.querySelectorAll('#rows tbody tr').length === 2");
    browser.click(".tabs button:last-child");
    browser.until("document.querySelectorAll('svg.graph circle').length === 3");
    browser.picture("space-graph");
    // The same editor at the listener of the space itself.
    browser.go(&format!("http://{}/", broker.address("sparql")));
    browser.fill("#query", "SELECT ?o { <urn:kitchen> ?p ?o }");
    browser.click("button.main");
    browser.until("document.querySelectorAll('#rows tbody tr').length === 2");
    browser.picture("sparql-page");
    browser.fill("#query", "DELETE WHERE { ?s ?p ?o }");
    browser.click("button.main");
    browser.until("document.querySelector('#result').textContent.includes('changed')");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_client_is_followed_line_by_line_on_its_page_and_a_topic_on_another() {
    let Some(browser) = Browser::open() else { return };
    let broker = launch().start();
    let mut reader = broker.subscriber(&["-i", "reader", "-t", "t/#"]);
    browser.go(&format!("{}/#/clients/reader", broker.admin()));
    let follow = "[...document.querySelectorAll('form button[type=submit]')].find((it) => it.textContent === 'Follow')";
    browser.until(follow);
    browser.run(&format!("{follow}.click()"), &json!([]));
    browser.until("document.body.innerText.includes('Nothing yet.')");
    broker.send(&["-i", "writer", "-t", "t/<i>a", "-m", "secret words"]);
    assert_eq!(reader.line(), "secret words");
    browser.until("document.querySelector('ol.log').textContent.includes('reader is sent t/<i>a, QoS 0, 12 bytes')");
    assert!(!browser.text().contains("secret words"), "no payload is shown");
    browser.picture("client-log");
    browser.run("location.hash = '#/topics'", &json!([]));
    browser.fill("#follow-topic", "t/#");
    browser.until(follow);
    browser.run(&format!("{follow}.click()"), &json!([]));
    browser.until("document.body.innerText.includes('Nothing yet.')");
    broker.send(&["-i", "writer", "-t", "t/b", "-m", "x"]);
    browser.until("document.querySelector('ol.log').textContent.includes('writer published t/b')");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn tokens_are_made_and_taken_back_in_the_page() {
    let Some(browser) = Browser::open() else { return };
    let secret = "0123456789abcdef0123456789abcdef";
    let config = "[jwt]\nsecret_file = \"secret\"\n";
    let launch = Launch::new().door("admin").config(config).file("secret", secret);
    let broker = launch.user("root", "admin").start();
    browser.go(&format!("{}/#/system", broker.admin()));
    browser.fill("input[name=user]", "root");
    browser.fill("input[name=password]", "secret");
    browser.click("form button.main");
    browser.fill("#token-user", "lamp");
    browser.click("#token-make");
    browser.until("document.querySelector('#token-made')?.value.startsWith('eyJ')");
    let token = browser.run("return document.querySelector('#token-made').value", &json!([]));
    let token = token.as_str().unwrap_or_default();
    let published = || broker.publish(&["-q", "1", "-t", "t", "-m", "x", "-u", "lamp", "-P", token]).status.success();
    assert!(published());
    browser.fill("#revoke-user", "lamp");
    browser.click("#token-revoke");
    browser.picture("tokens");
    browser.click("#yes");
    // Sessions here end with it, as after a reload.
    browser.until("document.querySelector('#toast').textContent.includes('taken back') || document.querySelector('input[name=user]')");
    assert!(!published(), "taken back");
}
