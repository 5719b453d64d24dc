//! What somebody has who has run mosquitto for years.

use std::path::Path;

use super::mosquitto::{lines, translate};

fn imported(text: &str) -> String {
    translate(&lines(text, "m.conf", 0)).to_toml(Path::new("m.conf"))
}

#[test]
fn a_usual_file_becomes_a_configuration() {
    let text = imported(
        "# mine\n\
         per_listener_settings false\n\
         listener 1883\n\
         listener 8883 10.0.0.5\n\
         certfile /etc/ssl/server.pem\n\
         keyfile /etc/ssl/server.key\n\
         listener 9001\n\
         protocol websockets\n\
         allow_anonymous false\n\
         password_file /etc/mosquitto/passwd\n\
         acl_file /etc/mosquitto/acl \"x\"\n\
         max_queued_messages 5000\n\
         persistent_client_expiration 2w\n\
         sys_interval 0\n",
    );
    assert_eq!(
        text,
        "# from m.conf; check it with:  tidegate check -c FILE\n\
         # Off, because mosquitto has no such listener: http, ssap, coap, sn, http_topics, amqp. Delete a line of [listeners] to have that protocol on this machine.\n\n\
         [limits]\nqueue_messages_max = 5000\nsession_expiry_v3 = \"336h\"\n\n\
         [listeners]\namqp = \"off\"\ncoap = \"off\"\nhttp = \"off\"\nhttp_topics = \"off\"\nmqtt = \"0.0.0.0:1883\"\nmqtts = \"10.0.0.5:8883\"\n\
         sn = \"off\"\nssap = \"off\"\nws = \"0.0.0.0:9001\"\n\n\
         [security]\nacl_file = \"/etc/mosquitto/acl \\\"x\\\"\"\nallow_anonymous = false\n\
         password_file = \"/etc/mosquitto/passwd\"\n\n\
         [sys]\ninterval = \"off\"\n\n\
         [tls]\ncert = \"/etc/ssl/server.pem\"\nkey = \"/etc/ssl/server.key\"\n\n\
         # Not taken over:\n\
         #   m.conf:2 per_listener_settings false: users, rules and limits hold for all listeners\n"
    );
}

#[test]
fn what_has_no_counterpart_is_named_with_its_line_and_the_reason() {
    let text =
        imported("listener 1883\nlistener 1884\nlistener 0 /run/m.sock\nconnection up\nfrobnicate 7\nmax_qos two\n");
    for words in [
        "m.conf:3 listener 0 /run/m.sock: no sockets of the file system",
        "m.conf:4 connection up: a bridge has an address and a topic",
        "m.conf:5 frobnicate 7: nobody here knows this word",
        "m.conf:6 max_qos two: no such value here",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
}

#[test]
fn several_listeners_of_a_kind_are_taken_over() {
    let text = imported(
        "listener 1883 127.0.0.1\nlistener 1884\nmax_connections 50\nlistener 8883\ncertfile /a.pem\nkeyfile /a.key\n\
         listener 8884\ncertfile /b.pem\nkeyfile /b.key\ncafile /ca.pem\nrequire_certificate true\nlistener 8885\n\
         max_connections -1\n",
    );
    assert_eq!(
        text,
        "# from m.conf; check it with:  tidegate check -c FILE\n\
         # Off, because mosquitto has no such listener: ws, http, ssap, coap, sn, http_topics, amqp. Delete a line of [listeners] to have that protocol on this machine.\n\n\
         [listeners]\namqp = \"off\"\ncoap = \"off\"\nhttp = \"off\"\nhttp_topics = \"off\"\nmqtt = \"127.0.0.1:1883\"\nmqtts = \"0.0.0.0:8883\"\n\
         sn = \"off\"\nssap = \"off\"\nws = \"off\"\n\n\
         [tls]\ncert = \"/a.pem\"\nkey = \"/a.key\"\n\n\
         [[listener]]\nkind = \"mqtt\"\naddress = \"0.0.0.0:1884\"\nconnections_max = 50\n\n\
         [[listener]]\nkind = \"mqtts\"\naddress = \"0.0.0.0:8884\"\ncert = \"/b.pem\"\nkey = \"/b.key\"\n\
         client_ca = \"/ca.pem\"\n\n\
         [[listener]]\nkind = \"mqtt\"\naddress = \"0.0.0.0:8885\"\n\n\
         # Not taken over:\n#   m.conf:13 max_connections -1: no such number here, and none is no limit\n"
    );
}

#[test]
fn settings_of_each_listener_become_its_own() {
    let text = imported(
        "per_listener_settings true\nlistener 1883\nallow_anonymous true\nlistener 1884\npassword_file /users\nacl_file /acl\n",
    );
    assert_eq!(
        text,
        "# from m.conf; check it with:  tidegate check -c FILE\n\
         # Off, because mosquitto has no such listener: mqtt, ws, http, ssap, coap, sn, http_topics, amqp. Delete a line of [listeners] to have that protocol on this machine.\n\n\
         [listeners]\namqp = \"off\"\ncoap = \"off\"\nhttp = \"off\"\nhttp_topics = \"off\"\nmqtt = \"off\"\nsn = \"off\"\nssap = \"off\"\nws = \"off\"\n\n\
         [[listener]]\nkind = \"mqtt\"\naddress = \"0.0.0.0:1883\"\nanonymous = true\n\n\
         [[listener]]\nkind = \"mqtt\"\naddress = \"0.0.0.0:1884\"\nanonymous = false\npassword_file = \"/users\"\n\
         acl_file = \"/acl\"\n\n\
         # Not taken over:\n\
         #   per_listener_settings true: users of a listener are none for the admin API, which asks nobody on this machine \
         until `tidegate user add`\n"
    );
}

#[test]
fn an_endless_queue_is_not_taken_for_none() {
    let text = imported("max_queued_messages 0\nmax_inflight_messages 0\nmemory_limit 0\n");
    assert_eq!(text.matches("0 is without end there, and none here").count(), 3, "{text}");
}

#[test]
fn every_word_of_the_manual_page_of_ours_is_known() {
    // The table for people and this one must not differ: each word in the first column is no stranger here.
    let page = include_str!("../../../../docs/mosquitto.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|line| line.split('|').nth(1));
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter_map(|code| code.split(' ').next());
    let settings = words.filter(|word| word.contains('_') && !word.ends_with('…') && !word.starts_with("mosquitto_"));
    let mut count = 0;
    for word in settings {
        let text = imported(&format!("{word} 1\n"));
        assert!(!text.contains("nobody here knows this word"), "{word}");
        count += 1;
    }
    assert!(count > 40, "{count}");
}

#[test]
fn of_two_listeners_the_stricter_word_holds_whatever_their_order() {
    let (closed, open) = ("listener 8883\nallow_anonymous false\n", "listener 1883 127.0.0.1\nallow_anonymous true\n");
    for text in [format!("{closed}{open}"), format!("{open}{closed}")] {
        let toml = imported(&text);
        assert!(toml.contains("allow_anonymous = false") && toml.contains("listeners differ in this"), "{toml}");
    }
}

#[test]
fn a_password_is_not_repeated_and_no_line_is_passed_over_in_silence() {
    let text = imported("connection x\nremote_password s3cret\npid_file /run/m.pid\ncafile /ca.pem\nport 1883\n");
    assert!(!text.contains("s3cret"), "{text}");
    assert!(text.contains("pid_file /run/m.pid: needs no word here") && text.contains("cafile /ca.pem"), "{text}");
}

#[test]
fn a_connection_becomes_a_bridge() {
    let text = imported(
        "listener 1883 127.0.0.1\n\
         connection hub 1\n\
         address 10.0.0.5:1883 10.0.0.6\n\
         topic sensors/# out 1 \"\" building7/\n\
         topic cmd/+ in 2\n\
         topic bad sideways\n\
         remote_username site7\n\
         remote_password secret\n\
         cleansession false\n\
         try_private true\n\
         bridge_cafile /etc/ssl/hub.pem\n\
         keepalive_interval 30\n\
         listener 9001 127.0.0.1\n\
         protocol websockets\n",
    );
    assert_eq!(
        text,
        "# from m.conf; check it with:  tidegate check -c FILE\n\
         # Off, because mosquitto has no such listener: http, ssap, coap, sn, http_topics, amqp. Delete a line of [listeners] to have that protocol on this machine.\n\n\
         [listeners]\namqp = \"off\"\ncoap = \"off\"\nhttp = \"off\"\nhttp_topics = \"off\"\nmqtt = \"127.0.0.1:1883\"\n\
         sn = \"off\"\nssap = \"off\"\nws = \"127.0.0.1:9001\"\n\n\
         [[bridge]]\nname = \"hub-1\"\naddress = [\"10.0.0.5:1883\", \"10.0.0.6\"]\nversion = 4\nuser = \"site7\"\n\
         clean = false\nkeep_alive = \"30s\"\n[bridge.tls]\nca = \"/etc/ssl/hub.pem\"\n\
         [[bridge.topic]]\nfilter = \"sensors/#\"\ndirection = \"out\"\nqos = 1\nremote_prefix = \"building7/\"\n\
         [[bridge.topic]]\nfilter = \"cmd/+\"\ndirection = \"in\"\nqos = 2\n\n\
         # Not taken over:\n\
         #   m.conf:6 topic bad sideways: no such topic here\n\
         #   m.conf:8 remote_password …: put it into a file, and name the file with password_file of this bridge\n\
         #   m.conf:10 try_private true: needs no word here\n"
    );
}

#[test]
fn a_bridge_with_any_word_of_tls_does_not_become_one_without() {
    let bridge = |word: &str| imported(&format!("connection hub\naddress 10.0.0.5\ntopic a/# out 1\n{word}\n"));
    assert!(!bridge("try_private true").contains("[bridge.tls]"));
    for word in ["capath /etc/ssl", "insecure true", "tls_version tlsv1.2", "tls_use_os_certs true", "alpn mqtt"] {
        let text = bridge(&format!("bridge_{word}"));
        assert!(text.contains("[[bridge]]") && text.contains("[bridge.tls]\n[[bridge.topic]]"), "{word}: {text}");
    }
    for word in ["psk 1234", "identity me"] {
        let text = bridge(&format!("bridge_{word}"));
        assert!(!text.contains("[[bridge]]") && !text.contains("1234"), "{word}: {text}");
        assert!(text.contains("connection hub: its TLS has a shared key"), "{word}: {text}");
    }
}

#[test]
fn an_included_file_stands_where_it_is_named_and_begins_outside_of_listeners_and_connections() {
    let mut all =
        lines("listener 1884\nprotocol websockets\nconnection hub\naddress 10.0.0.5\ninclude_dir /d\n", "m.conf", 0);
    all.extend(lines("max_connections 70\nmax_qos 1\nlistener 1883\n", "a.conf", 1));
    all.extend(lines("max_connections 80\n", "b.conf", 2));
    all.extend(lines("topic a/# out 1\nmax_qos 2\n", "m.conf", 0));
    let text = translate(&all).to_toml(Path::new("m.conf"));
    assert!(text.contains("[limits]\nconnections_max = 80\nqos_max = 2\n"), "{text}");
    assert!(text.contains("mqtt = \"0.0.0.0:1883\"\n") && text.contains("ws = \"0.0.0.0:1884\"\n"), "{text}");
    assert!(text.contains("name = \"hub\"") && text.contains("filter = \"a/#\""), "the connection goes on: {text}");
}

#[test]
fn kinds_of_log_lines_add_up_until_none() {
    for (text, level) in [
        ("log_type debug\nlog_type error\n", "debug"),
        ("log_type error\nlog_type warning\n", "warn"),
        ("log_type error\n", "error"),
        ("log_type all\nlog_type none\nlog_type error\n", "error"),
        ("log_type none\n", "off"),
    ] {
        let toml = imported(text);
        assert!(toml.contains(&format!("[log]\nlevel = \"{level}\"\n")), "{text}: {toml}");
    }
}

/// A move opens nothing: mosquitto has MQTT alone, and that where it was told to.
#[test]
fn doors_that_mosquitto_does_not_have_are_closed_and_that_is_said() {
    for (conf, mqtt) in [
        ("allow_anonymous true\n", None),
        ("listener 1883\n", Some("0.0.0.0:1883")),
        ("listener 8883\ncertfile /a.pem\nkeyfile /a.key\n", Some("off")),
        ("listener 9001\nprotocol websockets\n", Some("off")),
        ("listener 0 /run/m.sock\n", None),
    ] {
        let text = imported(conf);
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(&format!("{key} = ")))
                .map(|it| it.trim_matches('"').to_owned())
        };
        assert_eq!(value("mqtt").as_deref(), mqtt, "{text}");
        for door in ["http", "ssap", "coap", "sn", "http_topics", "amqp"] {
            assert_eq!(value(door).as_deref(), Some("off"), "{door}: {text}");
            assert!(text.lines().any(|line| line.starts_with("# Off, because") && line.contains(door)), "{text}");
        }
        assert_eq!(value("ws").as_deref() == Some("off"), !conf.contains("websockets"), "{text}");
    }
}
