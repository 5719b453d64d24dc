//! libcoap's coap-client (Debian's package libcoap3-bin), if it is on the path, beside an MQTT client.

use std::process::Command;

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Broker, Launch};

use crate::install::{Outcome, run};

/// The tool's name where it has no TLS, and where it may have.
const NAMES: [&str; 2] = ["coap-client-notls", "coap-client"];

fn tool() -> Option<&'static str> {
    let found = NAMES.into_iter().find(|name| run(Command::new(name).arg("-V")).is_ok());
    if found.is_none() {
        skip("coap-client", "no such program", Remedy::Owner("apt-get install libcoap3-bin"));
    }
    found
}

struct Door {
    broker: Broker,
    tool: &'static str,
}

impl Door {
    fn open(arguments: &[&str]) -> Option<Self> {
        let tool = tool()?;
        Some(Self { broker: Launch::new().door("coap").door("admin").arguments(arguments).start(), tool })
    }

    fn ask(&self, arguments: &[&str], path: &str) -> Outcome {
        let url = format!("coap://127.0.0.1:{}/{path}", self.broker.port("coap"));
        run(Command::new(self.tool).args(["-B", "5"]).args(arguments).arg(url)).expect("it runs")
    }
}

#[test]
fn a_state_goes_in_and_out_at_both_doors_once() {
    for shards in ["1", "2"] {
        let Some(door) = Door::open(&["--shards", shards]) else { return };
        let subscriber = door.broker.subscriber(&["-t", "home/#", "-v", "-C", "3", "-q", "1"]);
        // Confirmable, unconfirmed, and in blocks.
        assert_eq!(door.ask(&["-m", "put", "-e", "21.5"], "ps/home/t").code, Some(0));
        door.ask(&["-N", "-m", "put", "-e", "22"], "ps/home/t");
        let large = "0123456789abcdef".repeat(300);
        door.ask(&["-m", "put", "-b", "512", "-e", &large], "ps/home/large");
        let expected = format!("home/t 21.5\nhome/t 22\nhome/large {large}\n");
        assert_eq!(subscriber.finish(), (Some(0), expected), "{shards} shards");
        assert_eq!(door.ask(&["-m", "get"], "ps/home/t").text.trim_end(), "22");
        assert_eq!(door.ask(&["-m", "get", "-b", "256"], "ps/home/large").text.trim_end(), large);
        door.broker.send(&["-t", "home/t", "-m", "from MQTT", "-r", "-q", "1"]);
        assert_eq!(door.ask(&["-m", "get"], "ps/home/t").text.trim_end(), "from MQTT");
        assert!(door.ask(&["-m", "delete"], "ps/home/t").code == Some(0));
        assert!(door.ask(&["-m", "get"], "ps/home/t").text.contains("4.04"));
        assert!(door.ask(&["-m", "get"], ".well-known/core").text.contains("</ps>"));
    }
}

#[test]
fn malformed_datagrams_are_counted_and_the_door_stays_open() {
    let Some(door) = Door::open(&[]) else { return };
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = format!("127.0.0.1:{}", door.broker.port("coap"));
    for bytes in [&[][..], &[0x40], &[0x49, 1, 0, 5, 1], &[0xff; 1200], &[0x50, 1, 0, 5, 0xbd], &[0x60, 0x45, 0, 9]] {
        socket.send_to(bytes, &to).expect("sent");
    }
    assert_eq!(door.ask(&["-m", "put", "-e", "x"], "ps/a").code, Some(0));
    assert!(door.broker.metric("tidegate_coap_datagrams_total{event=\"malformed\"}") >= 4.0);
    assert!(door.broker.metric("tidegate_coap_peers") >= 1.0);
}
