//! What `cargo xtask dist` makes, as somebody who installs it sees it: the sums are right, the package has what it names, and
//! the program in it runs, keeps a message, and finds it again.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Broker, ensure, path, text};

fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The programs without what debuggers read: a tenth to pack.
fn programs(folder: &Path) {
    if !path("tidegate").is_file() {
        ensure("tidegate-cli");
    }
    for name in ["tidegate", "tidegate-lab", "tidegate-bench"] {
        ensure(name);
        let (from, to) = (path(name), folder.join(name));
        let stripped = Command::new("strip").arg("-o").arg(&to).arg(&from).status();
        if !stripped.is_ok_and(|status| status.success()) {
            std::fs::copy(&from, &to).expect("a copy");
        }
    }
}

/// The program of a package, with a folder for what it keeps.
fn serve(program: &Path, folder: &Path) -> Broker {
    let mut command = Command::new(program);
    command.args(["serve", "-c", "/dev/null", "--mqtt", "127.0.0.1:0", "--ws", "off", "--http", "off"]);
    command.args(["--ssap", "off", "--admin", "off", "--data"]).arg(folder.join("data"));
    Broker::start(command, &folder.join("log"), None).expect("the installed program starts")
}

#[test]
fn what_is_installed_runs_and_keeps_what_it_was_told() {
    for tool in ["dpkg-deb", "tar", "sha256sum"] {
        if !is_there(tool) {
            return skip(tool, "it is not on the path", Remedy::Owner("apt-get install dpkg tar coreutils"));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (packed, out, root) = (folder.path().join("programs"), folder.path().join("out"), folder.path().join("root"));
    std::fs::create_dir(&packed).expect("a folder");
    programs(&packed);
    let mut make = Command::new(env!("CARGO_BIN_EXE_xtask"));
    make.args(["dist", "--programs"]).arg(&packed).arg("--out").arg(&out);
    let made = make.output().expect("it runs");
    assert!(made.status.success(), "{}", text(&made.stderr));

    let sums = Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&out).output();
    let sums = sums.expect("it runs");
    assert!(sums.status.success() && text(&sums.stdout).matches(": OK").count() == 3, "{}", text(&sums.stdout));
    let named = |end: &str| {
        let files = std::fs::read_dir(&out).expect("files").flatten().map(|entry| entry.path());
        files.into_iter().find(|path| path.to_string_lossy().ends_with(end)).expect(end)
    };
    let bill: Value = serde_json::from_slice(&std::fs::read(named(".cdx.json")).expect("the SBOM")).expect("JSON");
    let components = bill["components"].as_array().expect("a list");
    assert!(components.len() > 100 && components.iter().any(|it| it["name"] == "rustls"), "{}", components.len());

    let unpacked = Command::new("dpkg-deb").arg("-x").arg(named(".deb")).arg(&root).status();
    assert!(unpacked.expect("it runs").success());
    let unit = std::fs::read_to_string(root.join("lib/systemd/system/tidegate.service")).expect("the unit");
    assert!(unit.contains("ExecStart=/usr/bin/tidegate "));
    for file in [
        "etc/tidegate/tidegate.toml",
        "usr/share/man/man1/tidegate-why.1",
        "usr/share/bash-completion/completions/tidegate",
        "usr/share/doc/tidegate/examples/home.toml",
        "usr/share/doc/tidegate/LICENSE-MIT",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    let program = root.join("usr/bin/tidegate");
    let lab = Command::new(&program).args(["lab", "list"]).output().expect("it runs");
    assert!(lab.status.success(), "the programs beside it are found: {}", text(&lab.stderr));

    let broker = serve(&program, folder.path());
    broker.send(&["-t", "a/b", "-m", "kept", "-r", "-q", "1"]);
    broker.kill();
    let broker = serve(&program, folder.path());
    assert_eq!(broker.subscriber(&["-t", "a/b", "-C", "1"]).line(), "kept");
}

#[test]
fn a_target_that_is_not_known_is_answered_with_those_that_are() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["dist", "--target", "z80"]).output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("aarch64-unknown-linux-musl"), "{}", text(&output.stderr));
}
