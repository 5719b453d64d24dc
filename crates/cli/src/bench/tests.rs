//! What is understood of the arguments.

use super::*;
use crate::arguments::{Cli, Command};
use clap::Parser;

fn plan(words: &[&str]) -> Result<Plan, String> {
    let words = ["tidegate", "bench"].iter().chain(words);
    match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
        Some(Command::Bench(args)) => Plan::of(&args).map_err(|error| format!("{error:#}")),
        _ => Err("not bench".to_owned()),
    }
}

#[test]
fn without_arguments_everything_is_measured_on_our_own_broker() {
    let plan = plan(&[]).unwrap();
    assert_eq!(plan.own, Source::Tidegate);
    assert_eq!(plan.cases.len(), cases::CASES.len());
}

#[test]
fn peers_are_found_named_or_switched_off() {
    assert_eq!(plan(&["--peer", "none"]).unwrap().peer, None);
    assert_eq!(plan(&["--peer", "/bin/sh"]).unwrap().peer, Some(Source::Mosquitto("/bin/sh".into())));
    assert_eq!(plan(&["--peer", "/no/where"]).unwrap_err(), "wrong usage: --peer /no/where: no such file");
    let command = "rumqttd -c {port}.toml";
    assert_eq!(plan(&["--peer-cmd", command]).unwrap().peer, Some(Source::Command(command.to_owned())));
    assert!(plan(&["--peer-cmd", "rumqttd"]).unwrap_err().contains("{port}"));
    assert!(plan(&["--peer-cmd", command, "--peer", "none"]).is_err());
}

#[test]
fn only_this_machine_is_flooded() {
    let own = |words: &[&str]| plan(words).map(|plan| plan.own);
    let at = |text: &str, pid| Ok(Source::Running { address: text.parse().unwrap(), pid });
    assert_eq!(own(&["--url", "mqtt://127.0.0.1:1884", "--pid", "7"]), at("127.0.0.1:1884", Some(7)));
    assert_eq!(own(&["--url", "mqtt://127.0.0.1/"]), at("127.0.0.1:1883", None));
    assert_eq!(own(&["--url", "mqtt://[::1]:1884"]), at("[::1]:1884", None));
    let refused = own(&["--url", "mqtt://192.0.2.1:1883"]).unwrap_err();
    assert!(refused.contains("192.0.2.1 is not this machine"), "{refused}");
    assert!(own(&["--url", "http://127.0.0.1"]).unwrap_err().contains("expected mqtt://HOST:PORT"));
    assert!(own(&["--pid", "7"]).is_err(), "a process needs its address");
}

#[test]
fn times_and_names_are_checked() {
    for bad in ["0", "-1", "1e9", "NaN", "x"] {
        assert!(plan(&["--secs", bad]).is_err(), "{bad}");
    }
    assert!(plan(&["--secs", "0.2"]).is_ok());
    let refused = plan(&["--only", "nonsense"]).unwrap_err();
    assert!(refused.contains("fan-in q0, fan-out"), "{refused}");
}
