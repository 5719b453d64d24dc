//! Password files: what is read, what is refused, what comes back.

#![allow(clippy::unwrap_used, reason = "a test whose files cannot be read has failed")]

use proptest::prelude::*;
use tidegate_auth::limits::{ERRORS_MAX, LINE_BYTES_MAX, PASSWORD_BYTES_MAX};
use tidegate_auth::{FileError, FileFault, PasswordVerdict, Users, read};

const PBKDF2: &str = include_str!("fixtures/mosquitto_2_0_11_pbkdf2.txt");
const SHA512: &str = include_str!("fixtures/mosquitto_2_0_11_sha512.txt");
const BOB: &str =
    "$7$101$PRDNEvDVNzo10bwu$4fEuDoxJklwmq61l40rOpCUhmOh6aWJL/6l5P0mzaEJjqyaieMl5lZ8hwS97P+Dn5Jb6mVvneoHWUCRREWe/gA==";
/// By the reference tool: `echo -n wonderland | argon2 saltsaltsaltsalt -id -v 13 -k 19456 -t 2 -p 1 -l 32 -e`.
const ARGON2: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0c2FsdA$KJ1RHp6e5Vq0yc9x/B5HkXAdDt+6ASGqACdN8hyeIKc";

fn faults(text: &str) -> Vec<(usize, FileFault)> {
    Users::parse(text).unwrap_err().into_iter().map(|FileError { line, what }| (line, what)).collect()
}

#[test]
fn files_of_the_real_mosquitto_passwd_are_understood() {
    let passwords = [("alice", "wonderland"), ("bob", "p:a$s sw#rd"), ("Zoë Ångström", "пароль"), ("empty", "")];
    for file in [PBKDF2, SHA512] {
        let users = Users::parse(file).unwrap();
        assert_eq!(users.len(), passwords.len());
        for (name, password) in passwords {
            assert_eq!(users.verify(name, password.as_bytes()), PasswordVerdict::Right, "{name}");
            assert_eq!(users.verify(name, b"Wonderland"), PasswordVerdict::Wrong, "{name}");
            assert_eq!(users.roles(name), []);
        }
        assert_eq!(users.to_text(), file);
    }
}

#[test]
fn a_hash_of_the_argon2_reference_tool_is_understood() {
    let users = Users::parse(&format!("alice:{ARGON2}:roles=operator,monitor\n")).unwrap();
    assert_eq!(users.verify("alice", b"wonderland"), PasswordVerdict::Right);
    assert_eq!(users.verify("alice", b"wonderlane"), PasswordVerdict::Wrong);
    assert_eq!(users.verify("bob", b"wonderland"), PasswordVerdict::UnknownUser);
    assert_eq!(users.roles("alice").iter().map(|role| &**role).collect::<Vec<_>>(), ["operator", "monitor"]);
}

#[test]
fn users_are_added_changed_and_removed_and_comments_stay() {
    let mut users = Users::parse("# the humans\n\n# the machines\n").unwrap();
    users.add("alice", b"one", &[1; 16]).unwrap();
    users.set_roles("alice", &["operator"]).unwrap();
    users.add("alice", b"two", &[2; 16]).unwrap();
    let text = users.to_text();
    assert!(text.starts_with("# the humans\n\n# the machines\nalice:$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
    assert!(text.ends_with(":roles=operator\n"), "{text}");
    let again = Users::parse(&text).unwrap();
    assert_eq!(again.to_text(), text);
    assert_eq!(again.verify("alice", b"one"), PasswordVerdict::Wrong);
    assert_eq!(again.verify("alice", b"two"), PasswordVerdict::Right);
    users.remove("alice").unwrap();
    assert_eq!(users.to_text(), "# the humans\n\n# the machines\n");
    assert_eq!(users.remove("alice"), Err(FileFault::UserUnknown));
    assert_eq!(users.set_roles("alice", &[]), Err(FileFault::UserUnknown));
}

#[test]
fn names_that_would_not_survive_the_file_are_refused() {
    let mut users = Users::default();
    for name in ["", "a:b", "#a", " a", "a ", "a\nb", "a\0", &"x".repeat(257)] {
        assert_eq!(users.add(name, b"secret", &[0; 16]), Err(FileFault::NameInvalid), "{name:?}");
    }
    assert_eq!(users.add("a", b"", &[0; 16]), Err(FileFault::PasswordLength));
    assert!(users.is_empty());
}

#[test]
fn a_long_password_is_refused_before_it_is_hashed() {
    let mut users = Users::parse(PBKDF2).unwrap();
    let long = vec![b'x'; PASSWORD_BYTES_MAX + 1];
    assert_eq!(users.verify("alice", &long), PasswordVerdict::TooLong);
    assert_eq!(users.verify("nobody", &long), PasswordVerdict::TooLong);
    assert_eq!(users.verify("alice", &long[1..]), PasswordVerdict::Wrong);
    assert_eq!(users.add("x", &long, &[0; 16]), Err(FileFault::PasswordLength));
}

#[test]
fn f071_malformed_lines_are_all_reported_and_nobody_gets_in() {
    let text = format!(
        "alice\n:{BOB}\nbob:{BOB}\nbob:{BOB}\ncarol:\ndave:secret\nerin:$7$101$c2FsdA==$\nfred:$8$x$y\n#ok\n\
         gus:{BOB}:role=x\nhal:{BOB}:roles=\nida:{BOB}:roles=a,a\n jan:{BOB}\nkim:{BOB}$\n"
    );
    let expected = [
        (1, FileFault::HashMissing),
        (2, FileFault::NameMissing),
        (4, FileFault::NameTwice(3)),
        (5, FileFault::HashMissing),
        (6, FileFault::HashUnknown),
        (7, FileFault::HashMalformed),
        (8, FileFault::HashUnknown),
        (10, FileFault::FieldUnknown),
        (11, FileFault::RolesInvalid),
        (12, FileFault::RolesInvalid),
        (13, FileFault::NameInvalid),
        (14, FileFault::HashMalformed),
    ];
    assert_eq!(faults(&text), expected);
}

#[test]
fn f071_a_file_cut_off_anywhere_inside_a_hash_is_refused() {
    for hash in [BOB, ARGON2] {
        let line = format!("bob:{hash}");
        for end in "bob".len()..line.len() {
            assert!(Users::parse(&line[..end]).is_err(), "{}", &line[..end]);
        }
        assert!(Users::parse(&line).is_ok());
    }
}

#[test]
fn f071_an_empty_file_has_no_users_and_lets_nobody_in() {
    for text in ["", "\n", "# nobody yet\n", "\u{feff}"] {
        let users = Users::parse(text).unwrap();
        assert!(users.is_empty());
        assert_eq!(users.verify("", b""), PasswordVerdict::UnknownUser);
    }
}

#[test]
fn f071_line_ends_of_other_systems_change_nothing() {
    let text = PBKDF2.replace('\n', "\r\n");
    let users = Users::parse(&format!("\u{feff}{text}")).unwrap();
    assert_eq!(users.verify("alice", b"wonderland"), PasswordVerdict::Right);
    assert_eq!(users.to_text(), PBKDF2);
    assert_eq!(faults(&format!("bob:{BOB}\rx\n")), [(1, FileFault::ControlCharacter)]);
}

#[test]
fn f071_a_huge_file_is_refused() {
    assert_eq!(faults(&"x".repeat(LINE_BYTES_MAX + 1)), [(1, FileFault::LineTooLong)]);
    assert_eq!(faults(&"x".repeat(17 << 20)), [(0, FileFault::FileTooLong)]);
    assert_eq!(faults(&"x\n".repeat(100_000)).len(), ERRORS_MAX + 1);
    assert_eq!(read(std::io::repeat(0)).unwrap_err()[0].what, FileFault::FileTooLong);
}

#[test]
fn f072_a_directory_is_an_error_and_not_an_empty_file() {
    let Ok(folder) = std::fs::File::open(env!("CARGO_MANIFEST_DIR")) else { return };
    assert!(matches!(read(folder).unwrap_err()[0].what, FileFault::Unreadable(_)));
}

#[test]
fn costs_out_of_bounds_are_refused_before_anything_is_computed() {
    let costs = [
        "m=4294967295,t=2,p=1",
        "m=19456,t=4294967295,p=1",
        "m=19456,t=2,p=16777215",
        "m=7,t=1,p=1",
        "m=19456,t=0,p=1",
    ];
    for cost in costs {
        assert_eq!(
            faults(&format!("a:{}", ARGON2.replace("m=19456,t=2,p=1", cost))),
            [(1, FileFault::HashCost)],
            "{cost}"
        );
    }
    for rounds in ["0", "4294967295", "99999999999"] {
        assert_eq!(faults(&format!("a:{}", BOB.replace("101", rounds))), [(1, FileFault::HashCost)], "{rounds}");
    }
    for rounds in ["-1", "+101", "", "1e3"] {
        assert_eq!(faults(&format!("a:{}", BOB.replace("101", rounds))), [(1, FileFault::HashMalformed)], "{rounds}");
    }
}

#[test]
fn kinds_of_hashes_are_bounded_because_each_verification_pays_for_all() {
    let line = |rounds: u32| format!("user{rounds}:{}\n", BOB.replace("101", &rounds.to_string()));
    let text: String = (1..=5).map(line).collect();
    assert_eq!(faults(&text), [(5, FileFault::TooManyHashKinds)]);
}

#[test]
fn errors_and_debug_output_do_not_show_hashes_or_passwords() {
    let errors = Users::parse("dave:hunter2\nerin:$7$101$c2FsdA==$hunter2\n").unwrap_err();
    assert_eq!(errors.len(), 2);
    assert!(
        errors.iter().all(|error| !error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"))
    );
    assert!(errors[0].to_string().starts_with("line 1: not a password hash"));
    let users = format!("{:?}", Users::parse(PBKDF2).unwrap());
    assert!(!users.contains("JJN656oYqEK55KYU") && !users.contains("VHBdBqNBJd7"), "{users}");
}

proptest! {
    #[test]
    fn f071_no_text_makes_the_reader_panic(text in "([a-z]{0,3}:)?([$:=,#a-z0-9 \r\u{0}é]|argon2id|v=19|m=8,t=1,p=1|roles=|\n){0,40}") {
        let _ = Users::parse(&text);
    }

    /// One changed byte of a hash line: refused, or the password does not fit any more, or only the name changed.
    #[test]
    fn f071_a_damaged_line_never_accepts_another_password(at in 0usize..115, byte in 0x20u8..0x7f) {
        let mut line = format!("bob:{BOB}").into_bytes();
        line[at] = byte;
        if let Ok(users) = Users::parse(std::str::from_utf8(&line).unwrap()) {
            for (name, _) in users.iter() {
                prop_assert_ne!(users.verify(name, b"wrong"), PasswordVerdict::Right);
            }
        }
    }
}
