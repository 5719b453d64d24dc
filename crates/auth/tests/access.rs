//! Access by our own rules: who may do what, and above all who may not.

#![allow(clippy::unwrap_used, reason = "a test whose files cannot be read has failed")]

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_auth::{Access, Acl, AclEffect, AclRule, AclSubject, Actions, FileFault, MONITOR, Users};
use tidegate_core::access::Action::{Publish, Receive, Subscribe};
use tidegate_core::access::{Action, Identity, Policy};

use AclEffect::{Allow, Deny};

const HASH: &str =
    "$6$8RFzANNkUWT62fin$Nf3fG9LGsfghMMgW0x56EDZ095JBVSIebWIKaCmGtKqQpwA3jyyGNfDl5alxQUwO9u7D7wviZzMly6BqYi1Zuw==";

/// Alice is an operator, mona may look at the broker itself, bob is just bob.
fn users() -> Users {
    Users::parse(&format!("alice:{HASH}:roles=operator\nbob:{HASH}\nmona:{HASH}:roles=monitor\n")).unwrap()
}

fn user(name: &str) -> AclSubject {
    AclSubject::User(name.into())
}

fn access(rules: &[(AclSubject, AclEffect, Actions, &str)]) -> Access {
    let rules = rules
        .iter()
        .map(|(subject, effect, actions, filter)| AclRule::new(subject.clone(), *effect, *actions, filter).unwrap());
    Access::new(&Acl::new(rules.collect()).unwrap(), &users())
}

/// As this user, empty for nobody, with client id `client`.
fn asks(access: &Access, name: &str, action: Action, topic: &str) -> bool {
    asks_as_client(access, name, "client", action, topic)
}

fn asks_as_client(access: &Access, name: &str, client_id: &str, action: Action, topic: &str) -> bool {
    let user = (!name.is_empty()).then(|| name.into());
    access.allows(
        &Identity { user, peer: "peer".into(), listener: "mqtt", roles: None, claims: None },
        client_id,
        action,
        topic,
    )
}

#[test]
fn f071_no_rules_allow_nothing() {
    let access = access(&[]);
    for action in [Publish, Subscribe, Receive] {
        for name in ["", "alice", "stranger"] {
            assert!(!asks(&access, name, action, "a"));
        }
    }
}

#[test]
fn an_open_list_allows_everything_but_dollar_topics() {
    let access = Access::new(&Acl::open(), &users());
    for action in [Publish, Subscribe, Receive] {
        assert!(asks(&access, "", action, "a/b"));
        assert!(!asks(&access, "alice", action, "$SYS/broker"));
        assert!(!asks(&access, "alice", action, "$CONTROL/x"));
    }
    assert!(asks(&access, "", Subscribe, "#"));
}

#[test]
fn each_subject_gets_its_own_rules_and_no_others() {
    let access = access(&[
        (AclSubject::Everyone, Allow, Actions::READ, "all"),
        (AclSubject::Anonymous, Allow, Actions::READ, "anonymous"),
        (user("bob"), Allow, Actions::READ, "bob"),
        (AclSubject::Role("operator".into()), Allow, Actions::READ, "operators"),
        (AclSubject::Client("sensor-*".into()), Allow, Actions::READ, "sensors"),
    ]);
    let topics = ["all", "anonymous", "bob", "operators", "sensors"];
    let allowed = |name, client| topics.map(|topic| asks_as_client(&access, name, client, Receive, topic));
    assert_eq!(allowed("", "client"), [true, true, false, false, false]);
    assert_eq!(allowed("alice", "client"), [true, false, false, true, false]);
    assert_eq!(allowed("bob", "sensor-1"), [true, false, true, false, true]);
    assert_eq!(allowed("stranger", "a-sensor-1"), [true, false, false, false, false]);
}

#[test]
fn actions_are_allowed_one_by_one() {
    let actions = ["publish", "subscribe", "receive", "read", "write", "readwrite"];
    let allowed = actions.map(|word| {
        let access = access(&[(AclSubject::Everyone, Allow, word.parse().unwrap(), "a")]);
        [Publish, Subscribe, Receive].map(|action| asks(&access, "", action, "a"))
    });
    let expected = [
        [true, false, false],
        [false, true, false],
        [false, false, true],
        [false, true, true],
        [true, false, false],
        [true, true, true],
    ];
    assert_eq!(allowed, expected);
    assert_eq!("all".parse::<Actions>(), Err(FileFault::AccessUnknown("all".into())));
    assert_eq!(Actions::READ.and(Actions::WRITE), Actions::READWRITE);
}

#[test]
fn a_denial_wins_wherever_it_stands_and_whomever_it_names() {
    for denied in
        [user("alice"), AclSubject::Everyone, AclSubject::Role("operator".into()), AclSubject::Client("cl*".into())]
    {
        let access = access(&[
            (user("alice"), Allow, Actions::READWRITE, "home/secret"),
            (denied, Deny, Actions::WRITE, "home/#"),
            (AclSubject::Everyone, Allow, Actions::READWRITE, "#"),
        ]);
        assert!(!asks(&access, "alice", Publish, "home/secret"));
        assert!(asks(&access, "alice", Receive, "home/secret"));
        assert!(asks(&access, "alice", Publish, "garden"));
    }
}

#[test]
fn a_subscription_must_be_covered_by_one_allowance() {
    let access = access(&[
        (AclSubject::Everyone, Allow, Actions::READ, "home/+/temperature"),
        (AclSubject::Everyone, Deny, Actions::READ, "home/cellar/#"),
    ]);
    let allowed = |filter| asks(&access, "", Subscribe, filter);
    assert!(allowed("home/+/temperature") && allowed("home/hall/temperature"));
    assert!(!allowed("home/#") && !allowed("#") && !allowed("home/+/+") && !allowed("home/cellar/temperature"));
    // The wildcard was granted; the denial works on each delivery.
    assert!(asks(&access, "", Receive, "home/hall/temperature"));
    assert!(!asks(&access, "", Receive, "home/cellar/temperature"));
}

#[test]
fn f073_a_right_that_is_gone_is_gone_at_the_next_delivery() {
    let before = access(&[(user("bob"), Allow, Actions::READ, "home/#")]);
    assert!(asks(&before, "bob", Subscribe, "home/#") && asks(&before, "bob", Receive, "home/hall"));
    let after = access(&[(user("bob"), Allow, Actions::READ, "home/garden")]);
    assert!(!asks(&after, "bob", Receive, "home/hall") && asks(&after, "bob", Receive, "home/garden"));
}

#[test]
fn f075_names_are_compared_and_never_substituted() {
    let access = access(&[
        (AclSubject::Everyone, Allow, Actions::READWRITE, "home/%u/#"),
        (AclSubject::Everyone, Allow, Actions::READWRITE, "devices/%c"),
    ]);
    assert!(asks_as_client(&access, "alice", "c1", Publish, "home/alice/lamp"));
    assert!(asks_as_client(&access, "alice", "c1", Subscribe, "home/alice/#"));
    assert!(asks_as_client(&access, "alice", "c1", Publish, "devices/c1"));
    for evil in ["#", "+", "+/alice", "alice/lamp", "al+ce", ""] {
        for topic in ["home/alice/lamp", "home/alice", "home", "devices/c1", "devices/alice/lamp", "home/+/#"] {
            for action in [Publish, Subscribe, Receive] {
                assert!(!asks_as_client(&access, evil, evil, action, topic), "{evil} {topic}");
            }
        }
    }
}

#[test]
fn f076_dollar_topics_are_for_those_whose_rule_says_so() {
    let access = access(&[
        (AclSubject::Everyone, Allow, Actions::READWRITE, "#"),
        (user("bob"), Allow, Actions::READ, "$SYS/broker/uptime"),
    ]);
    for filter in
        ["$SYS/#", "$CONTROL/#", "$share/g/$SYS/#", "$share/g/$share/h/a", "$share/g", "$share/", "$SYS/+/uptime"]
    {
        assert!(!asks(&access, "alice", Subscribe, filter), "{filter}");
        assert!(!asks(&access, "", Subscribe, filter), "{filter}");
    }
    assert!(asks(&access, "alice", Subscribe, "#") && !asks(&access, "alice", Receive, "$SYS/broker/uptime"));
    assert!(asks(&access, "bob", Subscribe, "$SYS/broker/uptime") && !asks(&access, "bob", Subscribe, "$SYS/#"));
    assert_eq!(MONITOR, "monitor");
    assert!(asks(&access, "mona", Subscribe, "$SYS/#") && asks(&access, "mona", Receive, "$SYS/broker/uptime"));
    assert!(asks(&access, "mona", Subscribe, "$share/g/$SYS/broker/+"));
}

#[test]
fn f076_even_a_monitor_can_be_denied() {
    let access = access(&[(user("mona"), Deny, Actions::READ, "$SYS/broker/clients/#")]);
    assert!(asks(&access, "mona", Receive, "$SYS/broker/uptime"));
    assert!(!asks(&access, "mona", Receive, "$SYS/broker/clients/total"));
}

#[test]
fn f077_sys_is_never_written_and_other_dollar_topics_only_by_name() {
    let access = access(&[
        (AclSubject::Everyone, Allow, Actions::READWRITE, "#"),
        (AclSubject::Everyone, Allow, Actions::READWRITE, "$SYS/#"),
        (user("alice"), Allow, Actions::READWRITE, "$gateway/#"),
    ]);
    for topic in ["$SYS", "$SYS/", "$SYS/broker/uptime"] {
        assert!(!asks(&access, "alice", Publish, topic) && !asks(&access, "mona", Publish, topic), "{topic}");
    }
    for topic in ["$", "$/", "$anything", "$share/g/a", "$SYSTEM/x"] {
        assert!(!asks(&access, "alice", Publish, topic), "{topic}");
    }
    assert!(asks(&access, "alice", Publish, "$gateway/1") && !asks(&access, "bob", Publish, "$gateway/1"));
}

#[test]
fn f081_a_share_gives_no_right_that_its_filter_does_not() {
    let access = access(&[(user("bob"), Allow, Actions::READ, "tenant/b/#")]);
    assert!(asks(&access, "bob", Subscribe, "$share/g/tenant/b/+"));
    assert!(!asks(&access, "bob", Subscribe, "$share/g/tenant/a/+"));
    assert!(!asks(&access, "bob", Subscribe, "$share/tenant/b/x"));
}

#[test]
fn rules_with_impossible_names_are_refused() {
    let fault = |subject| AclRule::new(subject, Allow, Actions::READ, "a").unwrap_err();
    assert_eq!(fault(user("")), FileFault::NameInvalid);
    assert_eq!(fault(AclSubject::Role("a:b".into())), FileFault::NameInvalid);
    assert_eq!(fault(AclSubject::Client("\n".into())), FileFault::NameInvalid);
}

/// A rule of the model: everyone or alice, allow or deny, one of a few filters.
fn any_rule() -> impl Strategy<Value = (AclSubject, AclEffect, Actions, &'static str)> {
    let subjects = vec![AclSubject::Everyone, user("alice"), AclSubject::Role("operator".into()), user("bob")];
    let filters = vec!["a", "a/#", "+", "+/b", "a/+", "#", "a/b", "%u/#", "$SYS/#"];
    let actions = vec![Actions::READ, Actions::WRITE, Actions::READWRITE, Actions::SUBSCRIBE];
    let effects = vec![Allow, Allow, Deny];
    let select = prop::sample::select::<&'static str>;
    (prop::sample::select(subjects), prop::sample::select(effects), prop::sample::select(actions), select(filters))
}

proptest! {
    #[test]
    fn a_denial_only_takes_away(rules in prop::collection::vec(any_rule(), 0..8), extra in any_rule(), name in "alice|bob|") {
        let before = access(&rules);
        let mut more = rules.clone();
        more.push((extra.0, Deny, extra.2, extra.3));
        let after = access(&more);
        for topic in ["a", "b", "a/b", "a/c", "c/b", "alice/x", "$SYS/x", "#", "a/#", "+/b"] {
            for action in [Publish, Subscribe, Receive] {
                let (was, is) = (asks(&before, &name, action, topic), asks(&after, &name, action, topic));
                prop_assert!(was || !is, "{:?} {}", action, topic);
            }
        }
    }

    #[test]
    fn the_order_of_rules_does_not_matter(rules in prop::collection::vec(any_rule(), 0..8), name in "alice|bob|") {
        let forward = access(&rules);
        let backward = access(&rules.iter().rev().cloned().collect::<Vec<_>>());
        for topic in ["a", "b", "a/b", "c/b", "alice/x", "$SYS/x", "#", "a/#"] {
            for action in [Publish, Subscribe, Receive] {
                prop_assert_eq!(asks(&forward, &name, action, topic), asks(&backward, &name, action, topic));
            }
        }
    }

    #[test]
    fn no_question_makes_it_panic(rules in prop::collection::vec(any_rule(), 0..4), name in "\\PC{0,4}", topic in "[a$/+#%u\\PC]{0,12}") {
        let access = access(&rules);
        for action in [Publish, Subscribe, Receive] {
            let _ = asks(&access, &name, action, &topic);
        }
    }
}

#[test]
fn roles_that_came_with_a_token_count_like_those_of_the_file() {
    let rule = AclRule::new(AclSubject::Role("sensor".into()), AclEffect::Allow, Actions::WRITE, "in/%u/#").unwrap();
    let access = Access::new(&Acl::new(vec![rule]).unwrap(), &Users::default());
    let with = |roles: &[&str]| Identity {
        user: Some("ann".into()),
        roles: Some(roles.iter().map(|role| Arc::from(*role)).collect()),
        ..Identity::default()
    };
    let may = |roles: &[&str], topic| access.allows(&with(roles), "c", Action::Publish, topic);
    assert!(may(&["other", "sensor"], "in/ann/x") && !may(&["sensor"], "in/bob/x"));
    assert!(!may(&["other"], "in/ann/x") && !may(&[], "in/ann/x"));
}

/// Rules about what a token says: ann at her site.
fn at_sites(denied: Option<&str>) -> Access {
    let everybody = || AclSubject::Everyone;
    let rule = |effect, filter| AclRule::new(everybody(), effect, Actions::READWRITE, filter).unwrap();
    let mut rules =
        vec![rule(AclEffect::Allow, "sites/%{claim.site}/%u/#"), rule(AclEffect::Allow, "lines/l-%{claim.org.line}/+")];
    rules.extend(denied.map(|filter| rule(AclEffect::Deny, filter)));
    Access::new(&Acl::new(rules).unwrap(), &Users::default())
}

fn with_claims(claims: &[(&str, &str)]) -> Identity {
    let claims = claims.iter().map(|(name, value)| (Arc::from(*name), Arc::from(*value))).collect();
    Identity { user: Some("ann".into()), roles: Some(Arc::default()), claims: Some(claims), ..Identity::default() }
}

#[test]
fn claims_of_a_token_stand_where_rules_name_them() {
    let access = at_sites(None);
    let may = |claims: &[(&str, &str)], action, topic| access.allows(&with_claims(claims), "c", action, topic);
    let north = [("site", "north"), ("org.line", "7")];
    assert!(may(&north, Action::Publish, "sites/north/ann/x") && may(&north, Action::Publish, "lines/l-7/x"));
    assert!(may(&north, Action::Subscribe, "sites/north/ann/#"));
    for topic in ["sites/south/ann/x", "sites/north/bob/x", "sites/north", "lines/l-77/x", "lines/l-/x", "lines/7/x"] {
        assert!(!may(&north, Action::Publish, topic), "{topic}");
    }
    for filter in ["sites/+/ann/#", "sites/#", "#", "sites/north/#", "lines/+/x", "lines/l-7/#"] {
        assert!(!may(&north, Action::Subscribe, filter), "{filter}");
    }
    // Who has no such claim, and who came with no token at all.
    assert!(!may(&[], Action::Publish, "sites/north/ann/x") && !may(&[], Action::Publish, "sites//ann/x"));
    let ann = Identity { user: Some("ann".into()), ..Identity::default() };
    assert!(!access.allows(&ann, "c", Action::Publish, "sites/north/ann/x"));
}

#[test]
fn a_claim_is_never_a_wildcard_nor_two_levels_and_a_denying_rule_does_not_lose_by_it() {
    let (allowing, denying) = (at_sites(None), at_sites(Some("sites/+/ann/%{claim.site}/#")));
    for wild in ["+", "#", "a/b", "north/ann", "/", "", "no+rth", "../north", "$SYS"] {
        let who = with_claims(&[("site", wild), ("org.line", wild)]);
        for topic in
            ["sites/north/ann/x", "sites/south/ann", "sites/a/b/ann/x", "sites//ann/x", "lines/l-7/x", "lines/l-/x"]
        {
            assert!(!allowing.allows(&who, "c", Action::Publish, topic), "{wild:?} {topic}");
        }
        for filter in ["sites/+/ann/#", "sites/#/ann/#", "sites/a/b/ann/#", "#", "lines/l-+/x", "lines/l-#"] {
            assert!(!allowing.allows(&who, "c", Action::Subscribe, filter), "{wild:?} {filter}");
        }
    }
    // A value that cannot be compared is denied everything from there on; a missing one is nobody's.
    let north = [("site", "north")];
    assert!(denying.allows(&with_claims(&north), "c", Action::Publish, "sites/north/ann/x"));
    assert!(!denying.allows(&with_claims(&north), "c", Action::Publish, "sites/north/ann/north/x"));
    assert!(!denying.allows(&with_claims(&[("site", "a/b")]), "c", Action::Publish, "sites/a/ann/x"));
}

#[test]
fn what_only_looks_like_a_claim_is_a_mistake_and_is_text_to_mosquitto() {
    for wrong in
        ["a/%{site}", "a/%{claim.}", "a/%{claim.x", "a/%{user}", "a/%{claim.a{b}", "$%{claim.x}/y", "a/%{claim.a%u}"]
    {
        let rule = AclRule::new(AclSubject::Everyone, AclEffect::Allow, Actions::READ, wrong);
        assert!(rule.is_err(), "{wrong}");
    }
    let acl = Acl::parse_mosquitto("pattern read a/%{claim.x}\n").unwrap();
    let access = Access::new(&acl, &Users::default());
    assert!(access.allows(&with_claims(&[("x", "b")]), "c", Action::Receive, "a/%{claim.x}"));
    assert!(!access.allows(&with_claims(&[("x", "b")]), "c", Action::Receive, "a/b"));
}
