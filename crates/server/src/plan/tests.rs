//! The rules between keys.

use tidegate_store::Durability;

use tidegate_broker::config::ListenerKind;

use super::*;
use crate::config::{ConfigEntry, Sources, load};

fn planned(flags: &[(&str, &str)]) -> Result<Config, String> {
    let flags = flags.iter().map(|(path, value)| ConfigEntry::flag("--set", path, value)).collect();
    // A file that is named keeps the test away from those of the machine.
    let sources = Sources { file: Some("/dev/null".into()), flags, ..Sources::default() };
    let loaded = load(&sources).map_err(|problems| problems.to_string())?;
    broker(&loaded).map_err(|problems| problems.to_string())
}

fn open(config: &Config) -> Vec<(ListenerKind, String)> {
    config.listeners.iter().map(|listener| (listener.kind, listener.bind.to_string())).collect()
}

#[test]
fn defaults_are_those_of_the_broker() {
    let config = planned(&[]).unwrap();
    assert_eq!(config.settings, Settings::default());
    let store = config.store.clone().unwrap();
    assert!(store.dir.ends_with("tidegate-data/store") && store.durability == Durability::Always && !store.strict);
    let usual = Config { listeners: config.listeners.clone(), store: Some(store), ..Config::default() };
    assert_eq!(format!("{config:?}"), format!("{usual:?}"));
    assert_eq!(
        open(&config),
        [
            (ListenerKind::Mqtt, "127.0.0.1:1883".into()),
            (ListenerKind::Ws, "127.0.0.1:8083".into()),
            (ListenerKind::Coap, "127.0.0.1:5683".into()),
            (ListenerKind::Sn, "127.0.0.1:1885".into()),
            (ListenerKind::HttpTopics, "127.0.0.1:8082".into()),
            (ListenerKind::Amqp, "127.0.0.1:5672".into())
        ]
    );
    for door in ["listeners.coap", "listeners.sn", "listeners.http_topics", "listeners.amqp"] {
        assert_eq!(open(&planned(&[(door, "off")]).unwrap()).len(), 5, "{door}");
    }
    // Without MQTT nothing of it is opened unasked.
    assert_eq!(open(&planned(&[("listeners.mqtt", "off")]).unwrap()), [(ListenerKind::Ws, "127.0.0.1:8083".into())]);
    // A datagram names no user, wherever users are known.
    let users = [
        [("http_auth.url", "https://users.example/ask")].as_slice(),
        &[("jwt.keys", "https://users.example/keys"), ("jwt.audience", "tidegate")],
        &[("jwt.secret_file", "/dev/null")],
        &[("security.password_file", "/dev/null")],
    ];
    for flags in users {
        let open = open(&planned(flags).unwrap());
        assert!(open.iter().all(|(kind, _)| !kind.is_datagrams()), "{flags:?}: {open:?}");
    }
    // Datagrams and streams have ports of their own.
    assert!(planned(&[("listeners.coap", "127.0.0.1:1883")]).is_ok());
    let met = planned(&[("listeners.coap", "127.0.0.1:1885")]).unwrap_err();
    assert!(met.contains("listeners.coap and listeners.sn are both at 127.0.0.1:1885"), "{met}");
}

#[test]
fn the_gateway_of_mqtt_sn_has_its_topics_and_its_number() {
    let config = planned(&[("sn.topics", "1=room/t,700=alarm"), ("sn.gateway", "9")]).unwrap();
    assert_eq!((config.sn.topics.id("alarm"), config.sn.gateway), (Some(700), 9));
    assert_eq!(config.sn.advertising, None, "nobody is told unasked");
    let refused = planned(&[("sn.topics", "1=room/#")]).unwrap_err();
    assert!(refused.contains("sn.topics") && refused.contains("each of them once"), "{refused}");
    let upstream = ("guard.upstream", "127.0.0.1:9999");
    let refused = planned(&[upstream, ("listeners.sn", "127.0.0.1:1885")]).unwrap_err();
    assert!(refused.contains("listener for MQTT-SN"), "{refused}");
}

#[test]
fn everybody_is_told_of_a_gateway_only_where_somebody_can_reach_it() {
    let (group, door) = (("sn.advertise", "239.255.18.85:1885"), ("listeners.sn", "0.0.0.0:1885"));
    let told = planned(&[group, door, ("sn.advertise_interval", "1m")]).unwrap().sn.advertising.unwrap();
    assert_eq!((told.address.to_string().as_str(), told.interval.as_secs()), ("239.255.18.85:1885", 60));
    let usual = planned(&[("sn.advertise", "127.255.255.255:1885")]).unwrap().sn.advertising.unwrap();
    assert_eq!(usual.interval.as_secs(), 900);
    let cases = [
        (vec![group], "nobody at 239.255.18.85:1885 can reach"),
        (vec![group, ("listeners.sn", "off")], "listeners.sn is off"),
        (vec![group, ("listeners.sn", "[::]:1885")], "an address of IPv4"),
        (vec![("sn.advertise", "239.255.18.85")], "IPV4:PORT"),
        (vec![("sn.advertise", "0.0.0.0:1885")], "IPV4:PORT"),
        (vec![("sn.advertise", "239.255.18.85:0")], "IPV4:PORT"),
        (vec![group, door, ("sn.advertise_interval", "1d")], "sn.advertise_interval"),
    ];
    for (flags, words) in cases {
        let error = planned(&flags).unwrap_err();
        assert!(error.contains(words), "{flags:?}: {error}");
    }
}

#[test]
fn coap_over_dtls_is_opened_where_clients_can_show_who_they_are() {
    let has = |flags: &[(&str, &str)]| {
        let open = open(&planned(flags).unwrap());
        open.into_iter().find(|(kind, _)| *kind == ListenerKind::Coaps).map(|(_, at)| at)
    };
    assert_eq!(has(&[]), None);
    let keys = ("tls.psk_file", "/dev/null");
    assert_eq!(has(&[keys]).as_deref(), Some("127.0.0.1:5684"));
    assert_eq!(has(&[keys, ("listeners.coaps", "off")]), None);
    assert_eq!(has(&[keys, ("listeners.coaps", "127.0.0.1:1")]).as_deref(), Some("127.0.0.1:1"));
    let refused = planned(&[("listeners.coaps", "5684")]).unwrap_err();
    assert!(refused.contains("listeners.coaps needs a certificate"), "{refused}");
}

#[test]
fn words_become_what_the_broker_understands() {
    let config = planned(&[
        ("limits.connections_max", "unlimited"),
        ("limits.session_expiry_max", "unlimited"),
        ("limits.keep_alive_max", "1500ms"),
        ("sys.interval", "off"),
        ("server.shards", "3"),
    ])
    .unwrap();
    assert_eq!(config.connections_max, usize::MAX);
    assert_eq!(config.settings.session_expiry_max, FOREVER);
    assert_eq!(config.settings.keep_alive_max, Some(2));
    assert_eq!(config.sys_interval, Duration::ZERO);
    assert_eq!(config.shards, 3);
}

#[test]
fn tls_listeners_open_by_themselves_when_there_is_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert, key) = (write("cert", made.cert.pem()), write("key", made.signing_key.serialize_pem()));
    let config = planned(&[("tls.cert", &cert), ("tls.key", &key), ("listeners.wss", "off")]).unwrap();
    let (kind, at) = &open(&config)[1];
    assert_eq!((*kind, at.as_str()), (ListenerKind::Mqtts, "127.0.0.1:8883"));
    assert!(config.listeners[1].tls.is_some());
    assert!(config.listeners[0].tls.is_none());
}

#[test]
fn f148_incomplete_tls_is_named() {
    let refused = planned(&[("listeners.mqtts", "127.0.0.1:8883")]).unwrap_err();
    assert_eq!(
        refused,
        "error: listeners.mqtts needs a certificate and its private key; set tls.cert and tls.key (--cert, --key)"
    );
    let refused = planned(&[("tls.cert", "/dev/null")]).unwrap_err();
    assert!(refused.contains("tls.cert: a certificate needs its private key; set tls.key"), "{refused}");
    let refused = planned(&[("tls.cert", "/nonexistent"), ("tls.key", "/dev/null")]).unwrap_err();
    assert!(refused.contains("tls.cert: /nonexistent cannot be read: "), "{refused}");
}

#[test]
fn doors_must_not_share_an_address_and_one_must_be_open() {
    let refused = planned(&[("listeners.ws", "127.0.0.1:1883")]).unwrap_err();
    assert_eq!(refused, "error: listeners.mqtt and listeners.ws are both at 127.0.0.1:1883");
    assert!(planned(&[("listeners.ws", "127.0.0.1:0"), ("listeners.mqtt", "127.0.0.1:0")]).is_ok());
    let off = |names: &[&'static str]| {
        let flags: Vec<_> = names.iter().map(|name| (*name, "off")).collect();
        planned(&flags)
    };
    let refused = off(&["listeners.ws", "listeners.mqtt", "listeners.http", "listeners.ssap"]).unwrap_err();
    assert!(refused.contains("every listener is off"), "{refused}");
    let space = off(&["listeners.ws", "listeners.mqtt"]).unwrap();
    assert!(space.listeners.is_empty(), "the smart space is served without MQTT");
}

#[test]
fn a_file_that_cannot_be_looked_at_is_not_missing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "").unwrap();
    std::os::unix::fs::symlink(at("nowhere"), at("link")).unwrap();
    assert!(is_missing(&at("users")) && is_missing(&at("no/users")));
    // Not a folder and not permitted are the same to it; the tests may run as root, who is permitted everything.
    assert!(!is_missing(&at("file/users")) && !is_missing(&at("link")) && !is_missing(&at("file")));
}

#[test]
fn a_data_folder_must_be_one() {
    let folder = tempfile::tempdir().unwrap();
    let checked = |path: &Path| {
        let flags = vec![ConfigEntry::flag("--data", "server.data", &path.display().to_string())];
        let loaded = load(&Sources { file: Some("/dev/null".into()), flags, ..Sources::default() }).unwrap();
        check_data_kind(&loaded).and_then(|()| check_data(&loaded)).map_err(|problems| problems.to_string())
    };
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!((checked(folder.path()), checked(&folder.path().join("later"))), (Ok(()), Ok(())));
    let refused = checked(&file).unwrap_err();
    assert!(
        refused.contains("file is a file, and a folder is needed; name another folder with --data DIR"),
        "{refused}"
    );
}

#[test]
fn missing_files_are_named_beside_other_mistakes() {
    let flags = ["limits.nonsense", "tls.cert", "security.acl_file"]
        .map(|path| ConfigEntry::flag("--set", path, "/nonexistent"));
    let sources = Sources { file: Some("/dev/null".into()), flags: flags.into(), ..Sources::default() };
    let refused = crate::serve::prepare(&sources).err().unwrap().to_string();
    for part in
        ["limits.nonsense: unknown key", "tls.cert: /nonexistent cannot", "security.acl_file: /nonexistent cannot"]
    {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

#[test]
fn what_a_class_asks_for_in_vain_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.toml");
    let problems = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let loaded = load(&Sources { file: Some(file.clone()), ..Sources::default() }).unwrap();
        broker(&loaded).map(|_| ()).map_err(|problems| problems.to_string())
    };
    let class = "[classes.bulk]\nweight = 1\nmax_bytes = \"1MiB\"\nmax_delay = \"5s\"\n";
    assert_eq!(problems(class), Ok(()));
    let small = problems(&format!("[limits]\nqueue_bytes_max = \"64KiB\"\n{class}")).unwrap_err();
    assert!(small.contains("classes.bulk.max_bytes: more than limits.queue_bytes_max (65536 bytes)"), "{small}");
    let off = problems(&format!("[priority]\nmode = \"off\"\n{class}")).unwrap_err();
    assert!(off.contains("classes.bulk.max_bytes: there are no classes while priority.mode is \"off\""), "{off}");
}

#[test]
fn nobody_can_wait_longer_than_a_request_may_take() {
    let refused =
        planned(&[("space.time_max", "2s"), ("space.update_delay_max", "3s"), ("space.check_delay_max", "2s")]);
    assert_eq!(
        refused.unwrap_err(),
        "error: flag --set: space.update_delay_max: \"3s\" is more than space.time_max (\"2s\"), which comes first"
    );
    // The delays that nobody chose do not keep anybody from a short time.
    assert!(planned(&[("space.time_max", "50ms")]).is_ok());
}

#[test]
fn a_guard_has_doors_for_mqtt_alone_and_is_not_behind_itself() {
    let upstream = ("guard.upstream", "127.0.0.1:1884");
    let config = planned(&[upstream]).unwrap();
    let kinds: Vec<ListenerKind> = config.listeners.iter().map(|listener| listener.kind).collect();
    assert_eq!(kinds, [ListenerKind::Mqtt, ListenerKind::Ws]);
    assert_eq!(config.sys_interval, Duration::ZERO, "$SYS is the other broker's");
    assert!(config.store.unwrap().dir.ends_with("tidegate-data/guard"));
    let refused = planned(&[upstream, ("listeners.coap", "127.0.0.1:5683")]).unwrap_err();
    assert!(refused.contains("listener for CoAP"), "{refused}");
    let refused = planned(&[("guard.upstream", "127.0.0.1:1883")]).unwrap_err();
    assert!(refused.contains("behind itself"), "{refused}");
}
