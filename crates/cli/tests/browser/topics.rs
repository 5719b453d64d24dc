//! The page of `docs/http.md` in a real browser: what is published is seen, a click is published, and what was missed is told.

use serde_json::Value;
use tidegate_test_support::{Launch, text, tidegate};

use crate::driver::Browser;

#[test]
fn the_page_of_ten_lines_shows_what_is_published_and_publishes_and_comes_back() {
    let Some(browser) = Browser::open() else { return };
    let broker = Launch::new().door("http-topics").door("admin").arguments(["--shards", "2"]).start();
    let mut clicks = broker.subscriber(&["-t", "clicks", "-v", "-C", "1"]);
    browser.go(&format!("http://127.0.0.1:{}/", broker.port("topics")));
    browser.until("events.readyState === EventSource.OPEN");
    broker.send(&["-t", "home/<b>door</b>", "-m", "open \"wide\" <i>", "-q", "1"]);
    browser.until("document.body.innerText.includes('home/<b>door</b> open \"wide\" <i>')");
    browser.run("document.body.click()", &Value::Array(Vec::new()));
    assert!(clicks.line().starts_with("clicks 20"), "the time");
    browser.until("document.body.innerText.includes('clicks 20')");
    // The operator ends the connection; the browser comes back by itself, shows where it was, and is told.
    let operate = |arguments: &[&str]| {
        let output = tidegate(arguments).args(["--admin", &broker.admin()]).output().expect("the command runs");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let list: Value = serde_json::from_str(&operate(&["clients", "--json"])).expect("JSON");
    let names = list["clients"].as_array().expect("a list").iter().filter_map(|client| client["client_id"].as_str());
    let stream = names.rev().find(|name| name.starts_with("$http/t")).expect("a stream");
    assert!(operate(&["why", stream]).contains("$http/"));
    operate(&["kick", stream]);
    browser.until("document.body.innerText.includes('missed: nobody knows how many')");
    broker.send(&["-t", "after", "-m", "all", "-q", "1"]);
    browser.until("document.body.innerText.includes('after all')");
    // A browser asks every site for its picture.
    let errors: Vec<String> = browser.errors().into_iter().filter(|error| !error.contains("favicon")).collect();
    assert!(errors.is_empty(), "{errors:?}");
}
