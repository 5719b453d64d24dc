//! What a whole configuration comes to: precedence, origins, all problems at once.

use std::path::Path;

use super::*;

fn sources(file: &Path, environment: &[(&str, &str)], flags: Vec<ConfigEntry>) -> Sources {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Sources { file: Some(file.to_owned()), environment: environment.iter().map(own).collect(), flags }
}

fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.toml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn problems(text: &str) -> Vec<String> {
    let (_folder, path) = written(text);
    let Problems(problems) = load(&sources(&path, &[], Vec::new())).unwrap_err();
    let prefix = format!("{}:", path.parent().unwrap().display()).replace(':', "/");
    problems.iter().map(|problem| problem.to_string().replace(&prefix, "")).collect()
}

const RECEIVE_MAX: &str = "limits.receive_max";

#[test]
fn f151_flag_beats_environment_beats_file_beats_default() {
    let (_folder, path) = written("[limits]\nreceive_max = 10\n");
    let environment = [("TIDEGATE_LIMITS__RECEIVE_MAX", "20")];
    let flag = vec![ConfigEntry::flag("--set", RECEIVE_MAX, "30")];
    let show = |loaded: &Loaded| (SettingKey::find(RECEIVE_MAX).unwrap().show)(&loaded.options);

    let file = load(&sources(&path, &[], Vec::new())).unwrap();
    assert_eq!((show(&file), file.origin(RECEIVE_MAX).to_string()), ("10".into(), format!("{}:2", path.display())));
    let env = load(&sources(&path, &environment, Vec::new())).unwrap();
    assert_eq!(show(&env), "20");
    assert_eq!(env.origin(RECEIVE_MAX).to_string(), "environment TIDEGATE_LIMITS__RECEIVE_MAX");
    let all = load(&sources(&path, &environment, flag)).unwrap();
    assert_eq!((show(&all), all.origin(RECEIVE_MAX).to_string()), ("30".into(), "flag --set".into()));
    assert_eq!(all.origin("limits.inflight_max"), &Origin::Default);
    assert_eq!(all.changed_from(&file).map(|key| key.path).collect::<Vec<_>>(), [RECEIVE_MAX]);
}

#[test]
fn f146_values_of_the_wrong_kind_say_what_is_expected() {
    let text = "[limits]\nreceive_max = \"5\"\nhandshake_timeout = 10\npacket_bytes_max = \"1Mib\"\nqos_max = 3\n\
                connections_max = -1\nqueue_qos0 = \"yes\"\n[listeners]\nmqtt = 1883\nssap = \"on\"\n";
    assert_eq!(
        problems(text),
        [
            "tidegate.toml:2:1: limits.receive_max: \"5\" does not fit: expected a whole number from 1 to 65535",
            "tidegate.toml:3:1: limits.handshake_timeout: 10 does not fit: expected a duration with its unit such as \
             \"10s\", \"5m\" or \"1h30m\", at least 1ms",
            "tidegate.toml:4:1: limits.packet_bytes_max: \"1Mib\" does not fit: expected a size such as \"64KiB\", \
             \"16MiB\" or \"1MB\", from 128B to 268435460B",
            "tidegate.toml:5:1: limits.qos_max: 3 does not fit: expected a whole number from 0 to 2",
            "tidegate.toml:6:1: limits.connections_max: -1 does not fit: expected a whole number from 1 to 4294967295, \
             or \"unlimited\"",
            "tidegate.toml:7:1: limits.queue_qos0: \"yes\" does not fit: expected true or false",
            "tidegate.toml:9:1: listeners.mqtt: 1883 does not fit: expected \"PORT\" (this machine only), \
             \"HOST:PORT\" with an IP address or localhost (\"0.0.0.0:1883\" is all addresses), \"[V6]:PORT\" (port 0 \
             takes a free one), or \"off\"",
            "tidegate.toml:10:1: listeners.ssap: \"on\" does not fit: expected \"PORT\" (this machine only), \
             \"HOST:PORT\" with an IP address or localhost (\"0.0.0.0:1883\" is all addresses), \"[V6]:PORT\" (port 0 \
             takes a free one), or \"off\", or \"auto\"",
        ]
    );
}

#[test]
fn unlimited_is_a_word_and_only_where_it_may_be() {
    let (_folder, path) = written("[limits]\nconnections_max = \"unlimited\"\nsession_expiry_max = \"unlimited\"\n");
    assert!(load(&sources(&path, &[], Vec::new())).is_ok());
    assert_eq!(problems("[limits]\nqueue_bytes_max = \"unlimited\"\n").len(), 1);
}

#[test]
fn a_named_file_must_exist() {
    let Problems(found) = load(&sources(Path::new("/nonexistent/t.toml"), &[], Vec::new())).unwrap_err();
    assert!(found[0].to_string().starts_with("/nonexistent/t.toml: cannot be read: "), "{}", found[0]);
}

#[test]
fn the_environment_can_name_the_file() {
    let (_folder, path) = written("[limits]\nreceive_max = 11\n");
    let environment = vec![("TIDEGATE_CONFIG".to_owned(), path.display().to_string())];
    let loaded = load(&Sources { environment, ..Sources::default() }).unwrap();
    assert_eq!(loaded.files, [path]);
}

#[test]
fn problems_of_all_sources_come_together() {
    let (_folder, path) = written("[limits]\nreceive_max = 0\nnope = 1\n");
    let flags =
        vec![ConfigEntry::flag("--set", "limits.qos_max", "9"), ConfigEntry::flag("--set", "limits.qos_mx", "1")];
    let Problems(found) = load(&sources(&path, &[("TIDEGATE_LIMITS__QOS_MAX", "x")], flags)).unwrap_err();
    let text = Problems(found).to_string();
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.contains("error: flag --set: limits.qos_mx: unknown key; did you mean \"qos_max\"?"), "{text}");
    assert!(text.contains("environment TIDEGATE_LIMITS__QOS_MAX: limits.qos_max: \"x\" does not fit"), "{text}");
}

#[test]
fn paths_start_at_the_file_that_names_them_and_are_absolute() {
    let (folder, path) = written("[server]\ndata = \"kept\"\n[security]\nacl_file = \"acl\"\n");
    let loaded = load(&sources(&path, &[], Vec::new())).unwrap();
    assert_eq!(loaded.options.server.data, folder.path().join("kept"));
    assert_eq!(loaded.options.security.acl_file, Some(folder.path().join("acl")));
    let here = load(&sources(&path, &[], vec![ConfigEntry::flag("--data", "server.data", "kept")])).unwrap();
    assert_eq!(here.options.server.data, std::env::current_dir().unwrap().join("kept"));
}
