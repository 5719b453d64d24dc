//! A guard that speaks TLS to the broker behind: whom it trusts, and what it shows.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tidegate_test_support::{Broker, Launch, Mosquitto, connect_packet as connect, raw_connection as raw, text};

/// An authority and what it has signed, as files.
struct Papers {
    folder: tempfile::TempDir,
}

impl Papers {
    fn new() -> Self {
        let papers = Self { folder: tempfile::tempdir().expect("a folder") };
        let mut authority = CertificateParams::new(Vec::<String>::new()).expect("no names");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
        let key = KeyPair::generate().expect("a key");
        papers.write("ca.pem", &authority.self_signed(&key).expect("signed").pem());
        let issuer = Issuer::new(authority, key);
        let sign = |name: &str, params: CertificateParams| {
            let key = KeyPair::generate().expect("a key");
            papers.write(&format!("{name}.pem"), &params.signed_by(&key, &issuer).expect("signed").pem());
            papers.write(&format!("{name}.key"), &key.serialize_pem());
        };
        let named = |names: &[&str], common: &str| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut params = CertificateParams::new(names).expect("names");
            params.distinguished_name.push(rcgen::DnType::CommonName, common);
            params.use_authority_key_identifier_extension = true;
            params
        };
        sign("behind", named(&["localhost"], "localhost"));
        sign("guard", named(&[], "the-guard"));
        let mut old = named(&["localhost"], "localhost");
        (old.not_before, old.not_after) = (rcgen::date_time_ymd(2000, 1, 1), rcgen::date_time_ymd(2001, 1, 1));
        sign("expired", old);
        // Of another authority.
        let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        papers.write("stranger.pem", &stranger.cert.pem());
        papers
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
        for path in [self.path(name), self.folder.path().display().to_string()] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(path, mode).expect("rights");
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// mosquitto that speaks TLS and shows this, with these lines besides.
    fn mosquitto(&self, shows: &str, more: &str) -> Option<Mosquitto> {
        let [ca, cert, key] = ["ca.pem", &format!("{shows}.pem"), &format!("{shows}.key")].map(|name| self.path(name));
        Mosquitto::start(&format!("cafile {ca}\ncertfile {cert}\nkeyfile {key}\n{more}"))
    }

    fn guard(&self, upstream: &str, ca: &str, more: &[String]) -> Broker {
        let arguments = ["--upstream", upstream, "--upstream-ca", &self.path(ca)].map(str::to_owned);
        let arguments = arguments.into_iter().chain(more.iter().cloned());
        Launch::new().door("admin").arguments(arguments).start_as("guard")
    }
}

#[test]
fn messages_pass_over_tls_with_a_certificate_of_the_guard() {
    let papers = Papers::new();
    let Some(other) = papers.mosquitto("behind", "require_certificate true\nuse_identity_as_username true") else {
        return;
    };
    let shown = ["--upstream-cert", &papers.path("guard.pem"), "--upstream-key", &papers.path("guard.key")];
    let guard = papers.guard(&format!("mqtts://localhost:{}", other.port), "ca.pem", &shown.map(str::to_owned));
    for version in ["311", "5"] {
        let mut all = guard.subscriber(&["-V", version, "-t", "a/#", "-q", "2", "-F", "%t %q %p"]);
        let long = "x".repeat(100_000);
        for (qos, said) in [("0", "short"), ("1", "short"), ("2", &long)] {
            guard.send(&["-V", version, "-t", "a/b", "-q", qos, "-m", said]);
            assert_eq!(all.line(), format!("a/b {qos} {said}"), "version {version}");
        }
    }
    assert!((guard.metric("tidegate_guard_up") - 1.0).abs() < 0.1);
    // Without the certificate the other broker does not let it in.
    let bare = papers.guard(&format!("mqtts://localhost:{}", other.port), "ca.pem", &[]);
    assert_eq!(raw(bare.port("mqtt"), &connect(4, 60, "x")).1, b"\x20\x02\x00\x03");
}

#[test]
fn who_cannot_be_trusted_behind_is_named_and_gets_nothing() {
    let papers = Papers::new();
    let Some(other) = papers.mosquitto("behind", "") else { return };
    let Some(old) = papers.mosquitto("expired", "") else { return };
    let Some(plain) = Mosquitto::start("") else { return };
    let cases = [
        (format!("mqtts://localhost:{}", other.port), "stranger.pem", "UnknownIssuer"),
        (format!("mqtts://127.0.0.1:{}", other.port), "ca.pem", "certificate"),
        (format!("mqtts://localhost:{}", old.port), "ca.pem", "xpired"),
    ];
    for (upstream, ca, words) in cases {
        let guard = papers.guard(&upstream, ca, &[]);
        assert_eq!(raw(guard.port("mqtt"), &connect(5, 60, "x")).1[..4], *b"\x20\x03\x00\x88", "{upstream}");
        let said = guard.await_log("the broker behind cannot be reached");
        assert!(said.contains(words), "{said}");
        assert!(guard.metric("tidegate_guard_failures_total{reason=\"tls\"}") > 0.5, "{upstream}");
    }
    // What speaks no TLS, and what speaks nothing else.
    let guard = papers.guard(&format!("mqtts://localhost:{}", plain.port), "ca.pem", &[]);
    assert_eq!(raw(guard.port("mqtt"), &connect(4, 60, "x")).1, b"\x20\x02\x00\x03");
    let guard = super::guard(other.port);
    assert_eq!(raw(guard.port("mqtt"), &connect(4, 60, "x")).1, b"\x20\x02\x00\x03");
}

#[test]
fn files_that_are_wrong_are_named_before_anybody_comes() {
    let papers = Papers::new();
    let cases: [(&[&str], &str); 4] = [
        (&["--upstream", "mqtts://localhost:1", "--upstream-ca", "/nonexistent/ca.pem"], "/nonexistent/ca.pem"),
        (&["--upstream", "localhost:1", "--upstream-ca", &papers.path("ca.pem")], "no TLS to the broker behind"),
        (&["--upstream", "https://localhost:1"], "HOST:PORT"),
        (&["--upstream", "mqtts://localhost:1", "--upstream-cert", &papers.path("guard.pem")], "--upstream-key"),
    ];
    for (arguments, words) in cases {
        let mut command = Launch::new().arguments(arguments).command("guard");
        let output = command.output().expect("it runs");
        assert!(!output.status.success(), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
