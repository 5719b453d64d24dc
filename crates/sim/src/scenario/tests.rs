//! Scenario files: what they mean, and what is refused.

use tidegate_control::pacer::{Parameter, Preset};

use super::*;

fn problems(text: &str) -> Vec<String> {
    Scenario::read("t", text).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn every_scenario_of_the_book_is_sound() {
    for (name, text) in BOOK {
        match Scenario::read(name, text) {
            Ok(scenario) => assert!(!scenario.question.is_empty() && !scenario.cases().unwrap().is_empty(), "{name}"),
            Err(problems) => panic!("{name}: {problems:#?}"),
        }
    }
}

#[test]
fn mistakes_are_named_with_line_and_suggestion() {
    let text =
        "version = 1\n[clients]\nintervall = \"10s\"\ninterval = 10\n[[vary]]\nkey = \"host.capasity\"\nvalues = [1]\n";
    assert_eq!(
        problems(text),
        [
            "line 3: clients.intervall: unknown key; did you mean \"clients.interval\"?",
            "line 6: host.capasity: unknown key; did you mean \"host.capacity\"?",
        ]
    );
    assert_eq!(
        problems("[clients]\ninterval = 10\n"),
        ["line 2: clients.interval: expected a time with a unit, such as \"10s\" or \"250ms\"; did you mean \"10s\"?"]
    );
    assert_eq!(problems("[link]\nloss = \"120%\"\n"), ["line 2: link.loss: 1.2 is not within 0 and 0.99"]);
    assert_eq!(problems("wurld = \"polling\"\n"), ["line 1: wurld: unknown key; did you mean \"world\"?"]);
    assert!(problems("primary = \"stail\"\n")[0].contains("did you mean \"stale\"?"));
    assert!(problems("[run]\nwarm_up = \"900s\"\n")[0].contains("not before the end"));
    assert!(problems("version = 2\n")[0].starts_with("line 1: version"));
    assert!(!problems("title = = 3\n").is_empty());
}

#[test]
fn axes_make_a_grid_and_variants_are_bundles() {
    let text = "[[vary]]\nkey = \"clients.load\"\nvalues = [0.5, 2]\n\
                [[variant]]\nname = \"a\"\n\"broker.preset\" = \"paper\"\n\"broker.deadlines\" = true\n\
                [[variant]]\nname = \"b\"\n";
    let scenario = Scenario::read("t", text).unwrap();
    let cases = scenario.cases().unwrap();
    let labels: Vec<String> = cases.iter().map(|case| format!("{} {}", case.labels[0].1, case.labels[1].1)).collect();
    assert_eq!(labels, ["0.5 a", "0.5 b", "2 a", "2 b"]);
    let World::Polling(config) = &cases[0].world else { panic!("polling is the default") };
    assert!(config.broker.deadlines && config.broker.queue_items == Some(5.0));
}

#[test]
fn the_command_line_has_the_last_word() {
    let mut scenario = Scenario::read("t", "[[vary]]\nkey = \"clients.load\"\nvalues = [0.5, 2]\n").unwrap();
    scenario.set("clients.load", "3");
    assert_eq!(scenario.cases().unwrap().len(), 1);
    let mut by_count = Scenario::read("t", "[[vary]]\nkey = \"clients.load\"\nvalues = [0.5, 2]\n").unwrap();
    by_count.set("clients.count", "7");
    let cases = by_count.cases().unwrap();
    let World::Polling(config) = &cases[0].world else { panic!("polling is the default") };
    assert_eq!((cases.len(), config.clients_count()), (1, 7));
    scenario.set("clients.load", "many");
    assert_eq!(scenario.check()[0].to_string(), "clients.load: expected a number without quotes");
}

/// A value that is not the usual one.
fn unusual(parameter: Parameter) -> &'static str {
    match parameter {
        Parameter::Alpha | Parameter::Beta => "3",
        Parameter::Growths | Parameter::Burst | Parameter::Rounds | Parameter::Kappa => "7",
        Parameter::Theta | Parameter::Gamma | Parameter::Jitter => "0.3",
        Parameter::Ast => "algorithm2",
        Parameter::Rbt => "p19",
        Parameter::Noise => "off",
        Parameter::Detector => "light-paper",
        Parameter::Average => "ewma",
        Parameter::Denial => "fast",
        Parameter::Initial => "minimum",
        Parameter::Start => "immediately",
        Parameter::Hints => "ignore",
        Parameter::Delta
        | Parameter::DetectionDelay
        | Parameter::BeforeDecrease
        | Parameter::Floor
        | Parameter::Ceiling
        | Parameter::Minimum
        | Parameter::Maximum
        | Parameter::Network
        | Parameter::Processing
        | Parameter::Small
        | Parameter::QueueTarget
        | Parameter::Interval
        | Parameter::Timeout => "77ms",
    }
}

#[test]
fn each_parameter_of_a_client_is_a_key_of_the_same_name_and_takes_the_same_words() {
    for parameter in Parameter::ALL {
        let (key, text) = (format!("clients.{}", parameter.name()), unusual(*parameter));
        let mut scenario = Scenario::read("t", "").unwrap();
        scenario.set(&key, text);
        let cases = scenario.cases().unwrap_or_else(|problems| panic!("{key}={text}: {problems:?}"));
        let World::Polling(config) = &cases[0].world else { panic!("polling is the default") };
        let pacer = config.pacer(Preset::Active).unwrap();
        let mut again = pacer.clone();
        again.set(*parameter, text).unwrap();
        assert_eq!(pacer, again, "{key}={text} does what --set {}={text} does", parameter.name());
        assert_ne!(pacer, Polling::default().pacer(Preset::Active).unwrap(), "{key}={text} changes nothing");
    }
}
