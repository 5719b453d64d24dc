//! Open where nothing is configured, closed wherever something is wrong.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::config::{ConfigEntry, Sources, load as load_config};
use crate::plan::space as space_doors;
use tidegate_broker::authenticate::{Credentials, LoginRefusal};
use tidegate_core::access::{Action, Identity};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(config: &str, users: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tidegate.toml"), config).unwrap();
        if let Some(users) = users {
            std::fs::write(folder.path().join("users"), users).unwrap();
        }
        Self { folder }
    }

    fn loaded(&self, flags: &[(&str, &str)]) -> Loaded {
        let data = self.folder.path().display().to_string();
        let mut flags: Vec<ConfigEntry> =
            flags.iter().map(|(path, value)| ConfigEntry::flag("--set", path, value)).collect();
        flags.push(ConfigEntry::flag("--data", "server.data", &data));
        let file = Some(self.folder.path().join("tidegate.toml"));
        load_config(&Sources { file, flags, ..Sources::default() }).unwrap()
    }

    fn security(&self, flags: &[(&str, &str)]) -> Result<Security, String> {
        load(&self.loaded(flags)).map_err(|problems| problems.to_string())
    }
}

fn alice() -> String {
    let mut users = Users::default();
    users.add("alice", b"secret", &[7; 16]).unwrap();
    users.to_text()
}

fn come_in(security: &Security, name: Option<(&str, &str)>) -> Result<Option<Arc<str>>, LoginRefusal> {
    security.authenticator.authenticate(&Credentials {
        client_id: "c".into(),
        user_name: name.map(|(user, _)| user.into()),
        password: name.map(|(_, password)| password.into()),
        ..Credentials::default()
    })
}

fn may(security: &Security, user: Option<&str>, action: Action, topic: &str) -> bool {
    let identity = Identity { user: user.map(Arc::from), ..Identity::default() };
    security.policy.allows(&identity, "c", action, topic)
}

#[test]
fn nothing_configured_is_open() {
    let security = Place::new("", None).security(&[]).unwrap();
    assert!(!security.has_users);
    assert_eq!(come_in(&security, None), Ok(None));
}

#[test]
fn users_in_the_data_folder_close_the_door() {
    let place = Place::new("", Some(&alice()));
    let security = place.security(&[]).unwrap();
    assert!(security.has_users);
    assert_eq!(come_in(&security, None), Err(LoginRefusal::NotAuthorized));
    assert_eq!(come_in(&security, Some(("alice", "secret"))), Ok(Some("alice".into())));
    assert!(may(&security, Some("alice"), Action::Publish, "a"));
    let both = place.security(&[("security.allow_anonymous", "true")]).unwrap();
    assert_eq!(come_in(&both, None), Ok(None));
}

#[test]
fn a_bad_or_missing_file_is_an_error_with_its_line() {
    let text = Place::new("", Some("alice:plain\n")).security(&[]).unwrap_err();
    assert!(text.contains("users:1:1: not a password hash"), "{text}");
    let text = Place::new("", None).security(&[("security.password_file", "/nonexistent")]).unwrap_err();
    assert!(text.starts_with("error: /nonexistent: cannot be read: "), "{text}");
}

#[test]
fn rules_of_the_configuration_are_obeyed() {
    let rule = "[[security.rule]]\nuser = \"alice\"\nallow = \"read\"\ntopic = \"home/#\"\n";
    let security = Place::new(rule, Some(&alice())).security(&[]).unwrap();
    assert!(may(&security, Some("alice"), Action::Subscribe, "home/x"));
    assert!(!may(&security, Some("alice"), Action::Publish, "home/x"));
    assert!(!may(&security, Some("alice"), Action::Subscribe, "else"));
}

#[test]
fn rules_stand_in_one_place() {
    let rule = "[[security.rule]]\nallow = \"read\"\ntopic = \"a\"\n";
    let text = Place::new(rule, None).security(&[("security.acl_file", "/dev/null")]).unwrap_err();
    assert!(
        text.contains("tidegate.toml:2:1: security.rule: rules stand both here and in security.acl_file"),
        "{text}"
    );
}

fn exposure(place: &Place, flags: &[(&str, &str)]) -> Result<(), String> {
    let loaded = place.loaded(flags);
    let security = load(&loaded).map_err(|problems| problems.to_string())?;
    let config = crate::plan::broker(&loaded).map_err(|problems| problems.to_string())?;
    check_exposure(&config, &security, &loaded).map_err(|problems| problems.to_string())
}

#[test]
fn f082_beyond_this_machine_there_must_be_users() {
    let open = Place::new("", None);
    let everywhere = ("listeners.mqtt", "0.0.0.0:1883");
    assert_eq!(
        exposure(&open, &[everywhere]).unwrap_err(),
        "error: listeners.mqtt = \"0.0.0.0:1883\" accepts other machines, but there are no users; add one with \
         `tidegate user add NAME`, or insist on an open broker with --allow-anonymous"
    );
    assert_eq!(exposure(&open, &[]), Ok(()));
    assert_eq!(exposure(&open, &[("listeners.mqtt", "[::1]:1883")]), Ok(()));
    assert_eq!(exposure(&open, &[everywhere, ("security.allow_anonymous", "true")]), Ok(()));
    assert_eq!(exposure(&Place::new("", Some(&alice())), &[everywhere]), Ok(()));
}

#[test]
fn f150_root_is_recognised() {
    assert_eq!(is_root(), rustix::process::geteuid().is_root());
}

#[test]
fn f150_secrets_that_everybody_can_read_are_named() {
    let place = Place::new("", Some(&alice()));
    let users = place.folder.path().join("users");
    std::fs::set_permissions(&users, std::fs::Permissions::from_mode(0o644)).unwrap();
    let names_it =
        |warnings: &[String]| warnings.iter().any(|warning| warning.contains("users can be read by everybody"));
    assert!(names_it(&warned(&place, &[])));
    std::fs::set_permissions(&users, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!names_it(&warned(&place, &[])));
}

#[test]
fn the_audience_is_named_as_it_is() {
    let of = |place: &Place, flags: &[(&str, &str)]| {
        let loaded = place.loaded(flags);
        audience(&crate::plan::broker(&loaded).unwrap(), &load(&loaded).unwrap())
    };
    let open = Place::new("", None);
    assert_eq!(of(&open, &[]), Audience::ThisMachine);
    let exposed = [("listeners.mqtt", "0.0.0.0:1883"), ("security.allow_anonymous", "true")];
    assert_eq!(of(&open, &exposed), Audience::Everybody);
    assert_eq!(of(&open, &exposed[1..]), Audience::AnybodyHere, "it would stay so with users");
    let closed = Place::new("", Some(&alice()));
    assert_eq!(of(&closed, &[]), Audience::KnownHere);
    assert_eq!(of(&closed, &exposed[..1]), Audience::Known);
    assert_eq!(of(&closed, &exposed), Audience::Everybody, "users do not close what allow_anonymous opens");
    assert_eq!(of(&closed, &exposed[1..]), Audience::AnybodyHere);
}

fn warned(place: &Place, flags: &[(&str, &str)]) -> Vec<String> {
    let loaded = place.loaded(flags);
    warnings(&loaded, &crate::plan::broker(&loaded).unwrap(), &load(&loaded).unwrap())
}

#[test]
fn an_open_broker_is_a_warning_with_what_closes_it() {
    let open = "[security]\nallow_anonymous = true\n";
    let text = warned(&Place::new(open, Some(&alice())), &[("listeners.mqtt", "0.0.0.0:1883")]).join("\n");
    assert!(text.contains("anybody who reaches this broker may come in without a name (allow_anonymous)"), "{text}");
    assert!(text.contains("to close it, remove allow_anonymous (") && text.contains("tidegate.toml:2)"), "{text}");
    assert!(!warned(&Place::new("", Some(&alice())), &[]).join("\n").contains("anybody"));
}

#[test]
fn keys_of_tokens_without_an_audience_are_a_warning() {
    let place = Place::new("", Some(&alice()));
    let keys = place.folder.path().join("keys.json");
    std::fs::write(
        &keys,
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
    )
    .unwrap();
    let keys = ("jwt.keys", keys.to_str().unwrap());
    let is_warned = |flags: &[(&str, &str)]| warned(&place, flags).iter().any(|text| text.contains("jwt.audience"));
    assert!(is_warned(&[keys]) && !is_warned(&[]) && !is_warned(&[keys, ("jwt.audience", "tidegate")]));
}

#[test]
fn rules_for_users_that_do_not_exist_are_a_warning() {
    let rule = |user: &str| format!("[[security.rule]]\nuser = \"{user}\"\nallow = \"read\"\ntopic = \"a\"\n");
    let place = Place::new(&(rule("alice") + &rule("bbo") + &rule("bbo")), Some(&alice()));
    let about = |text: &String| text.contains("rules name the user");
    let found: Vec<String> = warned(&place, &[]).into_iter().filter(about).collect();
    assert_eq!(found, ["rules name the user \"bbo\", who is not in the password file"]);
}

#[test]
fn the_smart_space_is_open_to_others_only_with_users_and_smart_m3_only_on_demand() {
    let users = alice();
    let exposure = |users: Option<&str>, flags: &[(&str, &str)]| {
        let place = Place::new("", users);
        let loaded = place.loaded(flags);
        let config = crate::plan::broker(&loaded).unwrap();
        check_exposure(&config, &load(&loaded).unwrap(), &loaded).map_err(|problems| problems.to_string())
    };
    let http = [("listeners.http", "0.0.0.0:7878")];
    assert!(exposure(None, &http).unwrap_err().contains("listeners.http = \"0.0.0.0:7878\" accepts other machines"));
    assert_eq!(exposure(Some(&users), &http), Ok(()));
    let ssap = [("listeners.ssap", "0.0.0.0:10010"), ("security.allow_anonymous", "false")];
    for users in [None, Some(users.as_str())] {
        assert!(exposure(users, &ssap).unwrap_err().contains("Smart-M3 knows no users"));
    }
    assert_eq!(exposure(Some(&users), &[ssap[0], ("security.allow_anonymous", "true")]), Ok(()));
    let options = Place::new("", None).loaded(&[]).options;
    assert!(space_doors(&options, false).ssap.is_some() && space_doors(&options, true).ssap.is_none());
}

#[test]
fn rules_for_graphs_stand_beside_those_for_topics_and_their_faults_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    let load_with = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let data = folder.path().display().to_string();
        let flags = vec![crate::config::ConfigEntry::flag("--data", "server.data", &data)];
        let sources = crate::config::Sources { file: Some(file.clone()), flags, ..Default::default() };
        load(&crate::config::load(&sources).unwrap()).map_err(|problems| problems.to_string())
    };
    assert!(load_with("").unwrap().graphs.is_none(), "without a rule everything is allowed");
    let security =
        load_with("[[security.rule]]\nuser = \"ann\"\nallow = \"readwrite\"\ngraph = \"urn:home/%u/*\"\n").unwrap();
    let graphs = security.graphs.unwrap();
    let home = oxrdf::NamedNodeRef::new_unchecked("urn:home/ann/1");
    assert!(graphs.rights(Some("ann")).write.has_named(home) && !graphs.rights(None).read.has_named(home));
    assert!(!graphs.rights(Some("ann")).read.has_default(), "what no rule allows is refused");
    for (rule, expected) in [
        ("allow = \"read\"\ngraph = \"no iri\"", "security.rule.graph: \"no iri\" does not fit: expected \"default\""),
        ("deny = \"publish\"\ngraph = \"urn:a\"", "security.rule.deny: \"publish\" is nothing that is done to a graph"),
        (
            "client = \"x\"\nallow = \"read\"\ngraph = \"urn:a\"",
            "security.rule.client: a rule for a graph has user, role",
        ),
    ] {
        let refused = load_with(&format!("[[security.rule]]\n{rule}\n")).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
}

const TWO: &str = "[[listener]]\nname = \"factory\"\nkind = \"mqtt\"\naddress = \"0.0.0.0:1884\"\n";

fn at(listener: &'static str, name: Option<(&str, &str)>) -> Credentials {
    Credentials {
        user_name: name.map(|(user, _)| user.into()),
        password: name.map(|(_, password)| password.into()),
        listener,
        ..Credentials::default()
    }
}

#[test]
fn a_listener_has_users_and_rules_of_its_own() {
    let rules = "[[security.rule]]\nallow = \"read\"\ntopic = \"home/#\"\n\
                 [[security.rule]]\nset = \"f\"\nuser = \"bob\"\nallow = \"write\"\ntopic = \"machines/%u\"\n";
    let place = Place::new(
        &format!("{TWO}password_file = \"theirs\"\nrules = \"f\"\nanonymous = true\n{rules}"),
        Some(&alice()),
    );
    let mut bob = Users::default();
    bob.add("bob", b"hammer", &[8; 16]).unwrap();
    std::fs::write(place.folder.path().join("theirs"), bob.to_text()).unwrap();
    let security = place.security(&[]).unwrap();
    let come = |credentials| security.authenticator.authenticate(&credentials);
    assert_eq!(come(at("factory", Some(("bob", "hammer")))), Ok(Some("bob".into())));
    assert_eq!(come(at("factory", Some(("alice", "secret")))), Err(LoginRefusal::BadUserNameOrPassword));
    assert_eq!(come(at("mqtt", Some(("bob", "hammer")))), Err(LoginRefusal::BadUserNameOrPassword));
    assert_eq!((come(at("factory", None)), come(at("mqtt", None))), (Ok(None), Err(LoginRefusal::NotAuthorized)));
    let bob = |listener| Identity { user: Some("bob".into()), listener, ..Identity::default() };
    let stays = |listener| security.authenticator.admits_identity(&bob(listener), "");
    assert!(stays("factory") && !stays("mqtt"));
    let asks = |listener, user: &str, action, topic: &str| {
        let identity = Identity { user: Some(user.into()), listener, ..Identity::default() };
        security.policy.allows(&identity, "c", action, topic)
    };
    assert!(asks("factory", "bob", Action::Publish, "machines/bob"));
    assert!(!asks("factory", "bob", Action::Subscribe, "home/x"), "the rules without a set are not its own");
    assert!(asks("mqtt", "alice", Action::Subscribe, "home/x"));
    assert!(!asks("mqtt", "bob", Action::Publish, "machines/bob"));
}

#[test]
fn a_set_of_rules_has_rules_and_a_listener() {
    let text = Place::new(&format!("{TWO}rules = \"f\"\n"), None).security(&[]).unwrap_err();
    assert!(text.contains("listener.factory.rules: no [[security.rule]] has set = \"f\""), "{text}");
    let rule = "[[security.rule]]\nset = \"f\"\nallow = \"read\"\ntopic = \"a\"\n";
    let text = Place::new(rule, None).security(&[]).unwrap_err();
    assert!(text.contains("security.rule.set: no [[listener]] has rules = \"f\""), "{text}");
}

#[test]
fn f082_a_listener_beyond_this_machine_is_open_only_if_it_says_so() {
    let text = exposure(&Place::new(TWO, None), &[]).unwrap_err();
    assert!(text.contains("listener factory at 0.0.0.0:1884 accepts other machines, but there are no users"), "{text}");
    assert_eq!(exposure(&Place::new(TWO, Some(&alice())), &[]), Ok(()));
    let open = Place::new(&format!("{TWO}anonymous = true\n"), None);
    assert_eq!(exposure(&open, &[]), Ok(()));
    let loaded = open.loaded(&[]);
    let (config, security) = (crate::plan::broker(&loaded).unwrap(), load(&loaded).unwrap());
    assert_eq!(audience(&config, &security), Audience::Everybody);
    assert!(opener(&loaded).how_to_close.starts_with("remove anonymous = true ("), "{:?}", opener(&loaded));
    let closed = Place::new(&format!("{TWO}anonymous = false\n"), None);
    assert_eq!(exposure(&closed, &[]), Ok(()), "nobody comes in there");
}

#[test]
fn an_open_listener_stays_open_for_nobody_else() {
    let place = Place::new(&format!("{TWO}anonymous = true\n"), Some(&alice()));
    let security = place.security(&[]).unwrap();
    let come = |listener| security.authenticator.authenticate(&at(listener, None));
    assert_eq!(
        (come("factory"), come("mqtt"), come("ws")),
        (Ok(None), Err(LoginRefusal::NotAuthorized), Err(LoginRefusal::NotAuthorized))
    );
}
