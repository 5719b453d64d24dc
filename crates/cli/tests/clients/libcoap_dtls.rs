//! libcoap's coap-client with DTLS, as it is built with OpenSSL and with GnuTLS (both in Debian's package libcoap3-bin): users by
//! key and by certificate.

use std::path::Path;
use std::process::Command;

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Broker, Launch};

use crate::broker::signed;
use crate::install::{Outcome, run};

const NAMES: [&str; 2] = ["coap-client-openssl", "coap-client-gnutls"];
/// As the tool takes it, and as the broker does.
const KEY: (&str, &str) = ("0123456789abcdef", "30313233343536373839616263646566");

fn tools() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().filter(|name| {
        let is_there = run(Command::new(name).arg("-V")).is_ok();
        if !is_there {
            skip(name, "no such program", Remedy::Owner("apt-get install libcoap3-bin"));
        }
        is_there
    })
}

/// A broker with users, a certificate, an authority for those of clients, and keys of two.
fn start(shards: &str) -> Broker {
    let (ca, [server, pump, mallory]) = signed(["localhost", "pump-7", "mallory"]);
    let (keys, acl) = (["pump-8", "mallory"].map(|name| format!("{name}:{}\n", KEY.1)).concat(), RULES);
    let launch = Launch::new()
        .door("coaps")
        .user("pump-7", "")
        .user("pump-8", "")
        .file("ca.pem", &ca)
        .file("cert.pem", &server.0)
        .file("key.pem", &server.1)
        .file("pump-7.pem", &(pump.0 + &pump.1))
        .file("mallory.pem", &(mallory.0 + &mallory.1))
        .file("keys", &keys)
        .file("acl", acl);
    let at = |name: &str| launch.folder().join(name).into_os_string();
    let files = [
        ("--cert", "cert.pem"),
        ("--key", "key.pem"),
        ("--client-ca", "ca.pem"),
        ("--psk-file", "keys"),
        ("--acl-file", "acl"),
    ];
    let files: Vec<_> = files.iter().flat_map(|(flag, name)| [(*flag).into(), at(name)]).collect();
    launch.arguments(["--shards", shards, "--mqtts", "off", "--wss", "off"]).arguments(files).start()
}

const RULES: &str = "user pump-7\ntopic readwrite home/#\n\nuser pump-8\ntopic read home/#\n";

fn ask(tool: &str, broker: &Broker, who: &[&str], arguments: &[&str]) -> Outcome {
    let url = format!("coaps://127.0.0.1:{}/ps/home/t", broker.port("coaps"));
    let place = |word: &&str| {
        if Path::new(word).extension().is_some_and(|it| it == "pem") { broker.folder().join(word) } else { word.into() }
    };
    run(Command::new(tool).args(["-B", "5"]).args(who.iter().map(place)).args(arguments).arg(url)).expect("it runs")
}

#[test]
fn users_come_in_by_key_and_by_certificate_and_rules_hold_for_them() {
    let [seven, eight] = [["-c", "pump-7.pem", "-C", "ca.pem"], ["-u", "pump-8", "-k", KEY.0]];
    for tool in tools() {
        for shards in ["1", "2"] {
            let broker = start(shards);
            let put = ask(tool, &broker, &seven, &["-m", "put", "-e", "21.5"]);
            assert_eq!((put.code, put.text.trim()), (Some(0), ""), "{tool}");
            assert_eq!(ask(tool, &broker, &eight, &["-m", "get"]).text.trim_end(), "21.5", "{tool}");
            assert!(ask(tool, &broker, &eight, &["-m", "put", "-e", "22"]).text.contains("4.03"), "a rule says no");
            let observed = ask(tool, &broker, &eight, &["-m", "get", "-s", "1"]).text;
            assert!(observed.contains("21.5"), "{tool}: {observed}");
            let large = "0123456789abcdef".repeat(300);
            ask(tool, &broker, &seven, &["-m", "put", "-b", "512", "-e", &large]);
            assert_eq!(ask(tool, &broker, &eight, &["-m", "get"]).text.trim_end(), large, "{tool}, in blocks");
        }
    }
}

#[test]
fn who_is_no_user_or_has_a_wrong_key_or_a_certificate_of_somebody_else_does_not_come_in() {
    for tool in tools() {
        let broker = start("2");
        let mallory = ask(tool, &broker, &["-u", "mallory", "-k", KEY.0], &["-m", "get"]);
        assert!(mallory.text.contains("4.01"), "{tool}: {}", mallory.text);
        let signed = ask(tool, &broker, &["-c", "mallory.pem", "-C", "ca.pem"], &["-m", "get"]);
        assert!(signed.text.contains("4.01"), "{tool}: {}", signed.text);
        for wrong in [["-u", "pump-8", "-k", "another key of 16"], ["-u", "nobody", "-k", KEY.0]] {
            let text = ask(tool, &broker, &wrong, &["-m", "get"]).text;
            assert!(!text.contains("21.5") && !text.contains("4.0"), "{tool}: {text}");
        }
    }
}
