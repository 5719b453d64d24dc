//! Who is let in, as whom, and under which client identifier.

#![allow(clippy::unwrap_used, reason = "a test whose files cannot be read has failed")]

use std::sync::Arc;

use tidegate_auth::{AnonymousClients, AuthSettings, CertificateUsers, ClientIds, PasswordAuthenticator, Users};
use tidegate_broker::authenticate::{Authenticator, Credentials, LoginRefusal};

const HASH: &str =
    "$6$8RFzANNkUWT62fin$Nf3fG9LGsfghMMgW0x56EDZ095JBVSIebWIKaCmGtKqQpwA3jyyGNfDl5alxQUwO9u7D7wviZzMly6BqYi1Zuw==";

/// `a`, `a-b` and `alice`, all with password `wonderland`.
fn authenticator(settings: AuthSettings) -> PasswordAuthenticator {
    let text = ["a", "a-b", "alice"].map(|name| format!("{name}:{HASH}\n")).concat();
    PasswordAuthenticator::new(Users::parse(&text).unwrap(), settings)
}

fn strict() -> PasswordAuthenticator {
    authenticator(AuthSettings::default())
}

fn nothing() -> Credentials {
    Credentials { client_id: "client".into(), ..Credentials::default() }
}

fn password(name: &str, password: &str) -> Credentials {
    Credentials { user_name: Some(name.into()), password: Some(password.into()), ..nothing() }
}

fn certificate(name: &str) -> Credentials {
    Credentials { certificate_name: Some(name.into()), ..nothing() }
}

fn named(name: &str) -> Arc<str> {
    name.into()
}

#[test]
fn the_right_password_gives_the_name_and_everything_else_the_same_refusal() {
    let door = strict();
    assert_eq!(door.authenticate(&password("alice", "wonderland")), Ok(Some(named("alice"))));
    let wrong = [
        password("alice", "Wonderland"),
        password("nobody", "wonderland"),
        password("alice", &"x".repeat(2000)),
        password("", ""),
        Credentials { password: None, ..password("alice", "") },
        Credentials { user_name: None, ..password("", "wonderland") },
    ];
    for credentials in wrong {
        assert_eq!(door.authenticate(&credentials), Err(LoginRefusal::BadUserNameOrPassword), "{credentials:?}");
    }
}

#[test]
fn f072_whoever_was_let_in_may_stay_while_it_is_still_known() {
    let door = strict();
    assert!(door.admits(Some("alice"), "any"));
    assert!(!door.admits(Some("removed"), "any") && !door.admits(None, "any"));
    let open = authenticator(AuthSettings { anonymous: AnonymousClients::Admit, ..AuthSettings::default() });
    assert!(open.admits(None, "any"));
    let any = authenticator(AuthSettings { certificate_users: CertificateUsers::Any, ..AuthSettings::default() });
    assert!(any.admits(Some("of a certificate"), "any"));
    let bound = authenticator(AuthSettings { client_ids: ClientIds::BoundToUser, ..AuthSettings::default() });
    assert!(bound.admits(Some("a"), "a-1") && bound.admits(Some("a"), "") && !bound.admits(Some("a"), "a-b-1"));
}

#[test]
fn anonymous_clients_are_refused_unless_admitted() {
    assert_eq!(strict().authenticate(&nothing()), Err(LoginRefusal::NotAuthorized));
    let open = authenticator(AuthSettings { anonymous: AnonymousClients::Admit, ..AuthSettings::default() });
    assert_eq!(open.authenticate(&nothing()), Ok(None));
    // Showing a wrong password is not the same as showing none.
    assert_eq!(open.authenticate(&password("nobody", "x")), Err(LoginRefusal::BadUserNameOrPassword));
}

#[test]
fn a_certificate_wins_over_a_password() {
    let door = strict();
    let both = Credentials { certificate_name: Some("alice".into()), ..password("a", "wrong") };
    assert_eq!(door.authenticate(&both), Ok(Some(named("alice"))));
    assert_eq!(door.authenticate(&certificate("stranger")), Err(LoginRefusal::NotAuthorized));
    let both = Credentials { certificate_name: Some("stranger".into()), ..password("a", "wonderland") };
    assert_eq!(door.authenticate(&both), Err(LoginRefusal::NotAuthorized));
    let any = authenticator(AuthSettings { certificate_users: CertificateUsers::Any, ..AuthSettings::default() });
    assert_eq!(any.authenticate(&certificate("urn:dev:42")), Ok(Some(named("urn:dev:42"))));
}

#[test]
fn f078_names_of_certificates_with_control_characters_are_refused() {
    let any = authenticator(AuthSettings { certificate_users: CertificateUsers::Any, ..AuthSettings::default() });
    for name in ["", "alice\0", "alice\0.evil", "alice\n", "\u{7f}", &"x".repeat(300)] {
        assert_eq!(any.authenticate(&certificate(name)), Err(LoginRefusal::NotAuthorized), "{name:?}");
    }
}

#[test]
fn f080_only_passwords_are_slow_and_known_names_as_much_as_unknown_ones() {
    let door = strict();
    assert!(door.is_slow(&password("alice", "x")) && door.is_slow(&password("nobody", "x")));
    assert!(!door.is_slow(&nothing()) && !door.is_slow(&certificate("alice")));
    assert!(!door.is_slow(&password("alice", &"x".repeat(2000))));
    assert!(!door.is_slow(&Credentials { password: None, ..password("alice", "") }));
}

#[test]
fn f081_client_ids_are_bound_to_their_user() {
    let settings = AuthSettings {
        anonymous: AnonymousClients::Admit,
        certificate_users: CertificateUsers::Any,
        client_ids: ClientIds::BoundToUser,
    };
    let door = authenticator(settings);
    let may = |credentials: Credentials, client_id: &str| match door
        .authenticate(&Credentials { client_id: client_id.into(), ..credentials })
    {
        Ok(_) => true,
        Err(refusal) => {
            assert_eq!(refusal, LoginRefusal::NotAuthorized);
            false
        }
    };
    let a = || password("a", "wonderland");
    for id in ["a", "a-1", "a_1", "a/1", "a:1", "a-", "a-bc", ""] {
        assert!(may(a(), id), "{id}");
    }
    for id in ["b", "ab", "A", "alice", "alice-1", "a.1", "-a", "x-a", "a-b", "a-b-1", "a-b:c"] {
        assert!(!may(a(), id), "{id}");
    }
    assert!(may(password("a-b", "wonderland"), "a-b-1"));
    assert!(may(nothing(), "free") && may(nothing(), "") && may(nothing(), "b-1") && may(nothing(), "aa"));
    assert!(!may(nothing(), "a") && !may(nothing(), "alice-1") && !may(nothing(), "a-b-1") && !may(nothing(), "a-x"));
    assert!(may(certificate("robot"), "robot-1") && !may(certificate("robot"), "alice-1"));
    assert!(!may(certificate("a-b-c"), "a-b") && may(certificate("a-b-c"), "a-b-c-1"));
    assert!(!may(certificate("rob"), "robot-1"));
    assert!(!may(nothing(), &("a".to_owned() + &"-".repeat(60_000))));
}

#[test]
fn a_wrong_password_is_told_before_a_wrong_client_id() {
    let door = authenticator(AuthSettings { client_ids: ClientIds::BoundToUser, ..AuthSettings::default() });
    let credentials = Credentials { client_id: "other".into(), ..password("alice", "wrong") };
    assert_eq!(door.authenticate(&credentials), Err(LoginRefusal::BadUserNameOrPassword));
}

#[test]
fn debug_output_names_no_user() {
    let shown = format!("{:?}", strict());
    assert!(shown.contains("users: 3") && !shown.contains("alice"), "{shown}");
}
