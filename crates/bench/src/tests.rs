//! What is understood of the arguments.

use super::*;

fn plan(words: &[&str]) -> Result<BenchPlan, String> {
    let words = std::iter::once(&"tidegate-bench").chain(words);
    let args = BenchArgs::try_parse_from(words).map_err(|error| error.to_string())?;
    BenchPlan::of(&args).map_err(|error| format!("{error:#}"))
}

#[test]
fn without_arguments_everything_is_measured_on_our_own_broker() {
    let plan = plan(&[]).unwrap();
    assert_eq!(plan.own, BrokerSource::own());
    assert_eq!(plan.cases.len(), cases::CASES.len());
}

#[test]
fn groups_are_chosen_by_name() {
    let names = |words: &[&str]| -> Vec<_> { plan(words).unwrap().cases.iter().map(|case| case.name).collect() };
    assert_eq!(names(&["churn", "storm"]), ["churn 64", "storm 10 000", "storm users"]);
    assert_eq!(names(&["peers"]).len(), cases::CASES.len());
    let refused = plan(&["idel"]).unwrap_err();
    assert!(
        refused.contains("\"idel\" is no group of cases; there are: peers, overload, overload-storm, traffic, latency"),
        "{refused}"
    );
}

#[test]
fn peers_are_found_named_or_switched_off() {
    let peers = |words: &[&str]| plan(words).map(|plan| plan.peers);
    assert_eq!(peers(&["--peer", "none"]).unwrap(), []);
    let (mosquitto, rumqttd) = (BrokerSource::Mosquitto("/bin/sh".into()), BrokerSource::Rumqttd("/bin/ls".into()));
    assert_eq!(peers(&["--peer", "/bin/sh", "--rumqttd", "none"]).unwrap(), std::slice::from_ref(&mosquitto));
    assert_eq!(peers(&["--peer", "/bin/sh", "--rumqttd", "/bin/ls"]).unwrap(), [mosquitto, rumqttd.clone()]);
    assert_eq!(peers(&["--peer", "none", "--rumqttd", "/bin/ls"]).unwrap(), [rumqttd]);
    assert_eq!(peers(&["--peer", "/no/where"]).unwrap_err(), "wrong usage: --peer /no/where: no such file");
    assert_eq!(peers(&["--rumqttd", "/no/where"]).unwrap_err(), "wrong usage: --rumqttd /no/where: no such file");
    let command = "rumqttd -c {port}.toml";
    assert_eq!(peers(&["--peer-cmd", command]).unwrap(), [BrokerSource::Command(command.to_owned())]);
    assert!(peers(&["--peer-cmd", "rumqttd"]).unwrap_err().contains("{port}"));
    assert!(peers(&["--peer-cmd", command, "--peer", "none"]).is_err());
}

#[test]
fn each_case_has_its_brokers() {
    let sources = |words: &[&str]| {
        let plan = plan(words).unwrap();
        plan.sources(&plan.cases[0]).iter().map(BrokerSource::name).collect::<Vec<_>>()
    };
    assert_eq!(sources(&["relay", "--peer", "none"]), ["tidegate", "relay"]);
    assert_eq!(sources(&["shards", "--peer", "none"]), ["1 shard", "2 shards"]);
    assert_eq!(sources(&["idle", "--peer", "none", "--rumqttd", "/bin/ls"]), ["tidegate", "ls"]);
}

#[test]
fn reports_go_to_a_file_or_to_the_output() {
    let json = |words: &[&str]| {
        let words = std::iter::once(&"tidegate-bench").chain(words);
        BenchArgs::try_parse_from(words).unwrap().json
    };
    assert_eq!(json(&["idle"]), None);
    assert_eq!(json(&["idle", "--json"]), Some("-".into()));
    assert_eq!(json(&["idle", "--json", "out.json"]), Some("out.json".into()));
}

#[test]
fn only_this_machine_is_flooded() {
    let own = |words: &[&str]| plan(words).map(|plan| plan.own);
    let at = |text: &str, pid| Ok(BrokerSource::Running { address: text.parse().unwrap(), pid });
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
    for bad in ["0", "2", "x"] {
        assert!(plan(&["--scale", bad]).is_err(), "{bad}");
    }
    let refused = plan(&["--only", "nonsense"]).unwrap_err();
    assert!(refused.contains("fan-in q0, fan-out"), "{refused}");
}
