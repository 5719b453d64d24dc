//! KPs at the doors: by what each is known, which class it has, and what a claim is worth.

#![allow(clippy::unwrap_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::net::IpAddr;
use std::sync::Arc;

use common::{CONFIRM, Peer, graph, message_of, start_with, triple};
use tidegate_graph::SpaceLimits;
use tidegate_space::{
    AccessMode, AccessPolicy, Checked, KpClass, KpIdentity, KpReport, KpRole, KpStanding, LimitOwner, RequestLimit,
};

/// Nodes that are called agent are services, and ann may be one.
#[derive(Debug)]
struct Agents;

impl AccessPolicy for Agents {
    fn rule(&self) -> AccessMode {
        AccessMode::ReadersOpen
    }

    fn generation(&self) -> u64 {
        0
    }

    fn class_of(&self, kp: &KpIdentity<'_>, claim: Option<&str>) -> KpClass {
        assert!(kp.address.is_loopback(), "the door says where it comes from");
        let is_agent = kp.name.is_some_and(|name| name.starts_with("agent"));
        let may = is_agent || kp.user == Some("ann") && claim == Some("agents");
        let role = if may { KpRole::Service } else { KpRole::Customer };
        let name = if may { "agents" } else { "normal" }.into();
        let is_claim_ignored = claim.is_some() && !may;
        KpClass { name, standing: KpStanding { role, weight: 4 }, is_claim_ignored }
    }

    fn banned_for(&self, kp: &KpIdentity<'_>) -> Option<std::time::Duration> {
        kp.name.is_some_and(|name| name.starts_with("loud")).then_some(std::time::Duration::from_secs(60))
    }

    fn limit_of(&self, kp: &KpIdentity<'_>) -> Option<RequestLimit> {
        let hour = std::time::Duration::from_secs(3600);
        match kp {
            KpIdentity { name: Some("greedy"), .. } => {
                Some(RequestLimit { interval: hour, burst: 2, owner: LimitOwner::Kp })
            }
            KpIdentity { user: Some("ann"), .. } => {
                Some(RequestLimit { interval: hour, burst: 3, owner: LimitOwner::User })
            }
            _ => None,
        }
    }

    fn check(&self, user: String, password: Vec<u8>, _: IpAddr, verdict: Box<dyn FnOnce(bool) + Send>) -> Checked {
        verdict(user == "ann" && password == b"x");
        Checked::Asked
    }
}

fn find<'a>(kps: &'a [KpReport], name: Option<&str>) -> &'a KpReport {
    kps.iter().find(|kp| kp.name.as_deref() == name).unwrap_or_else(|| panic!("no {name:?} in {kps:?}"))
}

#[test]
fn kps_behind_one_address_are_known_by_their_own_names_at_all_doors() {
    let broker = start_with(SpaceLimits::default(), Arc::new(Agents));
    let ask = |headers: &[(&str, &str)]| broker.request("GET", "/query?query=ASK%7B%7D", headers, b"").status;
    for name in ["lamp-1", "lamp-2", "lamp-1"] {
        assert_eq!(ask(&[("pace-client", name)]), 200);
    }
    assert_eq!(ask(&[]), 200);
    assert_eq!(ask(&[("pace-client", "two words")]), 200, "what is no name is passed over");
    let mut peer = Peer::new(broker.ssap());
    for (id, node) in [(1, "agent-7"), (2, "another")] {
        peer.send(&message_of(
            node,
            "INSERT",
            id,
            &format!("{CONFIRM}{}", graph("insert_graph", &triple("urn:a", "urn:b", "1"))),
        ));
        assert!(peer.next().contains("m3:Success"));
    }
    let kps = broker.handle().kps();
    let counts = |name| {
        let kp = find(&kps, name);
        (kp.counts.requests, kp.counts.answered, kp.door, &*kp.class, kp.standing.role)
    };
    assert_eq!(counts(Some("lamp-1")), (2, 2, "http", "normal", KpRole::Customer));
    assert_eq!(counts(Some("lamp-2")), (1, 1, "http", "normal", KpRole::Customer));
    assert_eq!(counts(None), (2, 2, "http", "normal", KpRole::Customer));
    assert_eq!(counts(Some("agent-7")), (2, 2, "ssap", "agents", KpRole::Service), "by its first message");
    assert_eq!(kps.len(), 4);
}

#[test]
fn who_is_banned_comes_in_at_no_door_and_its_neighbours_do() {
    let broker = start_with(SpaceLimits::default(), Arc::new(Agents));
    let ask = |name| broker.request("GET", "/query?query=ASK%7B%7D", &[("pace-client", name)], b"");
    let told = ask("loud-1");
    assert_eq!((told.status, told.header("retry-after")), (403, Some("60")), "{}", told.body);
    assert!(told.body.contains("\"banned\""), "{}", told.body);
    assert_eq!(ask("quiet").status, 200);
    let insert = |node: &str| {
        let mut peer = Peer::new(broker.ssap());
        let triples = graph("insert_graph", &triple("urn:a", "urn:b", "1"));
        peer.send(&message_of(node, "INSERT", 1, &format!("{CONFIRM}{triples}")));
        (peer.next(), peer)
    };
    let (told, mut peer) = insert("loud-2");
    assert!(told.contains("m3:KP.Error.Request") && told.contains("banned"), "{told}");
    assert_eq!(peer.rest(), "", "the connection ends");
    assert!(insert("quiet").0.contains("m3:Success"));
    assert!(broker.handle().kps().iter().all(|kp| kp.name.as_deref() == Some("quiet")));
}

/// With the time to come back, at each door; and nobody else notices.
#[test]
fn who_asks_more_than_an_operator_allows_is_told_so_at_all_doors() {
    let broker = start_with(SpaceLimits::default(), Arc::new(Agents));
    let ask = |headers: &[(&str, &str)]| broker.request("GET", "/query?query=ASK%7B%7D", headers, b"");
    let greedy = [("pace-client", "greedy")];
    assert_eq!([ask(&greedy).status, ask(&greedy).status], [200, 200], "two at once");
    let told = ask(&greedy);
    assert_eq!((told.status, told.header("retry-after")), (429, Some("3600")), "{}", told.body);
    assert!(told.body.contains("\"limited\""), "{}", told.body);
    let after: u64 = told.header("pace-retry-after-ms").unwrap().parse().unwrap();
    assert!((3_500_000..=3_600_000).contains(&after), "{after}");
    assert_eq!(ask(&[("pace-client", "modest")]).status, 200);
    // One account for all KPs of a user.
    let ann = |name| ask(&[("pace-client", name), ("Authorization", "Basic YW5uOng=")]).status;
    assert_eq!(["a", "b", "c", "d"].map(ann), [200, 200, 200, 429]);

    let mut peer = Peer::new(broker.ssap());
    let triples = graph("insert_graph", &triple("urn:a", "urn:b", "1"));
    peer.send(&message_of("greedy", "INSERT", 1, &format!("{CONFIRM}{triples}")));
    let told = peer.next();
    assert!(told.contains("m3:SIB.Failure.OutOfResources") && told.contains("limit"), "{told}");
    assert!(told.contains("pace-retry-after-ms"), "{told}");
    peer.send(&message_of("greedy", "LEAVE", 2, ""));
    assert!(peer.next().contains("m3:Success"), "leaving is always possible");

    let kps = broker.handle().kps();
    let counts = |door: &str, name: &str| {
        let kp = kps.iter().find(|kp| kp.name.as_deref() == Some(name)).unwrap();
        assert_eq!(kp.door, door);
        (kp.counts.limited, kp.limit.map(|limit| (limit.burst, limit.owner)))
    };
    assert_eq!(counts("http", "modest"), (0, None));
    assert_eq!(counts("ssap", "greedy"), (2, Some((2, LimitOwner::Kp))), "the same KP at both doors");
    assert_eq!(counts("http", "d"), (1, Some((3, LimitOwner::User))));
    let limited: u64 =
        broker.handle().counts().iter().filter(|(_, outcome, _)| *outcome == "limited").map(|it| it.2).sum();
    assert_eq!(limited, 3);
    let ended = |kp: &KpReport| kp.counts.answered + kp.counts.refused + kp.counts.limited + kp.counts.outdated;
    assert!(kps.iter().all(|kp| kp.counts.requests == ended(kp)), "{kps:?}");
}

/// Every request of a KP ends somewhere, also one that cannot be read and one that need not be asked.
#[test]
fn what_became_of_the_requests_of_a_kp_adds_up() {
    let broker = start_with(SpaceLimits::default(), Arc::new(tidegate_space::Everybody));
    let name = ("pace-client", "lamp-1");
    let ask = |path: &str, headers: &[(&str, &str)]| broker.request("GET", path, headers, b"");
    let first = ask("/query?query=ASK%7B%7D", &[name]);
    assert_eq!(first.status, 200);
    assert_eq!(ask("/query?query=SELEC", &[name]).status, 400);
    let version = first.header("pace-version").unwrap().to_owned();
    assert_eq!(ask("/query?query=ASK%7B%7D", &[name, ("pace-version", &version)]).status, 304);
    assert_eq!(
        broker.request("POST", "/update", &[name, ("Content-Type", "application/sparql-update")], b"NO").status,
        400
    );
    let mut peer = Peer::new(broker.ssap());
    peer.send(&message_of("node-1", "QUERY", 1, "<parameter name=\"type\">sparql</parameter>"));
    assert!(!peer.next().contains("m3:Success"));
    let kps = broker.handle().kps();
    for kp in &kps {
        let counts = kp.counts;
        let ended = counts.answered + counts.refused + counts.outdated + counts.failed;
        assert_eq!(counts.requests, ended, "{kp:?}");
    }
    let lamp = find(&kps, Some("lamp-1")).counts;
    assert_eq!((lamp.requests, lamp.answered, lamp.failed), (4, 2, 2));
}

#[test]
fn f133_a_class_that_is_claimed_without_the_right_to_it_is_ignored_and_counted() {
    let broker = start_with(SpaceLimits::default(), Arc::new(Agents));
    let ask = |headers: &[(&str, &str)]| broker.request("GET", "/query?query=ASK%7B%7D", headers, b"").status;
    assert_eq!(ask(&[("pace-client", "eve"), ("pace-class", "agents")]), 200);
    let right = ("Authorization", "Basic YW5uOng=");
    assert_eq!(ask(&[("pace-client", "ann-1"), ("pace-class", "agents"), right]), 200);
    assert_eq!(ask(&[("pace-client", "eve"), ("pace-class", "agents"), ("Authorization", "Basic YW5uOnk=")]), 401);
    let mut peer = Peer::new(broker.ssap());
    let claim = "<parameter name=\"pace-class\">agents</parameter>";
    peer.send(&message_of(
        "mallory",
        "INSERT",
        1,
        &format!("{CONFIRM}{claim}{}", graph("insert_graph", &triple("urn:a", "urn:b", "1"))),
    ));
    assert!(peer.next().contains("m3:Success"));
    let kps = broker.handle().kps();
    let of = |name| {
        let kp = find(&kps, Some(name));
        (&*kp.class, kp.user.as_deref(), kp.counts.claims_ignored)
    };
    assert_eq!(of("eve"), ("normal", None, 1));
    assert_eq!(of("ann-1"), ("agents", Some("ann"), 0));
    assert_eq!(of("mallory"), ("normal", None, 1));
    assert_eq!(broker.handle().class_claims_ignored(), 2);
}

/// Questions of whoever has left are out of date; what it changed is not.
#[test]
fn a_change_whose_sender_has_left_is_done() {
    let broker = start_with(SpaceLimits::default(), Arc::new(tidegate_space::Everybody));
    let mut peer = Peer::new(broker.ssap());
    peer.send(&message_of(
        "kp1",
        "INSERT",
        1,
        &format!("{CONFIRM}{}", graph("insert_graph", &triple("urn:a", "urn:b", "1"))),
    ));
    drop(peer);
    let until = std::time::Instant::now() + common::PATIENCE;
    while !broker.query("ASK { <urn:a> <urn:b> ?o }", "application/sparql-results+json").body.contains("true") {
        assert!(std::time::Instant::now() < until, "the change was lost");
    }
}
