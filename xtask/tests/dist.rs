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
    command
        .args([
            "--ssap",
            "off",
            "--coap",
            "off",
            "--sn",
            "off",
            "--http-topics",
            "off",
            "--amqp",
            "off",
            "--admin",
            "off",
            "--data",
        ])
        .arg(folder.join("data"));
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
    let lists = |name: &str| components.iter().any(|it| it["name"] == name);
    assert!(components.len() > 100 && lists("rustls") && lists("async-nats"), "{}", components.len());
    assert!(!lists("proptest"), "what only tests need is not shipped");

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

/// A build takes many minutes: nobody is told after it that a tool is missing.
#[test]
fn what_is_missing_is_named_with_how_to_get_it_before_anything_is_built() {
    let (folder, out) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let dist = |target: &str| {
        let mut dist = Command::new(env!("CARGO_BIN_EXE_xtask"));
        dist.args(["dist", "--target", target, "--out"]).arg(out.path()).env("PATH", folder.path());
        dist.env_remove(format!("CC_{}", target.replace('-', "_")));
        let output = dist.output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let (own, other) = (
        format!("{}-unknown-linux-musl", std::env::consts::ARCH),
        if cfg!(target_arch = "aarch64") { "x86_64-unknown-linux-musl" } else { "aarch64-unknown-linux-musl" },
    );
    let said = dist(&own);
    assert!(said.contains("dpkg-deb is missing: apt-get install dpkg\n"), "{said}");

    for tool in ["dpkg-deb", "tar", "gzip"] {
        std::os::unix::fs::symlink("/bin/true", folder.path().join(tool)).expect("a link");
    }
    let path = std::env::var_os("PATH").expect("a path");
    let rustc = std::env::split_paths(&path).map(|it| it.join("rustc")).find(|it| it.is_file());
    let rustc = rustc.expect("a compiler of Rust");
    std::os::unix::fs::symlink(rustc, folder.path().join("rustc")).expect("a link");
    let said = dist(other);
    assert!(said.contains("a C compiler for it is missing: pip install ziglang cargo-zigbuild\n"), "{said}");
    let said = dist(&own);
    assert!(said.contains("pip install ziglang cargo-zigbuild, or apt-get install musl-tools\n"), "{said}");
}

/// The release build takes many minutes: what `cargo xtask dist` has built is tried, where it has.
#[test]
fn static_programs_run_here_or_in_qemu_and_are_packed() {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), std::path::PathBuf::from);
    for (triple, emulator) in [
        ("x86_64-unknown-linux-musl", (std::env::consts::ARCH != "x86_64").then_some("qemu-x86_64-static")),
        ("aarch64-unknown-linux-musl", (std::env::consts::ARCH != "aarch64").then_some("qemu-aarch64-static")),
    ] {
        let programs = target.join(triple).join("release");
        if !programs.join("tidegate-bench").is_file() {
            skip(triple, "it was not built", Remedy::Owner("cargo xtask dist"));
            continue;
        }
        if let Some(emulator) = emulator.filter(|emulator| !is_there(emulator)) {
            skip(emulator, "it is not on the path", Remedy::Owner("apt-get install qemu-user-static"));
            continue;
        }
        if !is_there("dpkg-deb") {
            return skip("dpkg-deb", "it is not on the path", Remedy::Owner("apt-get install dpkg"));
        }
        let out = tempfile::tempdir().expect("a folder");
        let mut make = Command::new(env!("CARGO_BIN_EXE_xtask"));
        make.args(["dist", "--target", triple, "--programs"]).arg(&programs).arg("--out").arg(out.path());
        let made = make.output().expect("it runs");
        assert!(made.status.success(), "{}", text(&made.stderr));
        let said = text(&made.stdout);
        assert!(said.contains(": static; starts, keeps a message through kill -9"), "{said}");
    }
}

/// Settings of the container, on free ports.
fn settings_of_the_container() -> Vec<(String, String)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/Dockerfile");
    let text = std::fs::read_to_string(file).expect("the Dockerfile").replace("\\\n", " ");
    let lines = text.lines().filter_map(|line| line.strip_prefix("ENV "));
    let pairs = lines.flat_map(str::split_whitespace).filter_map(|pair| pair.split_once('='));
    let free =
        |value: &str| value.strip_prefix("0.0.0.0:").map_or_else(|| value.to_owned(), |_| "0.0.0.0:0".to_owned());
    pairs.map(|(name, value)| (name.to_owned(), free(value))).collect()
}

/// There may be no builder of containers: an empty root with what the Dockerfile copies, its user and its settings is one.
#[test]
fn the_container_starts_from_an_empty_root_as_its_own_user() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::fs::{MetadataExt, chown};
    use std::process::Stdio;
    const USER: u32 = 65532;

    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), std::path::PathBuf::from);
    let program = target.join(format!("{}-unknown-linux-musl/release/tidegate", std::env::consts::ARCH));
    if !program.is_file() {
        return skip("a static program", "it was not built", Remedy::Owner("cargo xtask dist"));
    }
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0);
    if !is_root || !is_there("chroot") {
        return skip("chroot", "only root may use it", Remedy::Owner("run the tests as root"));
    }
    let root = tempfile::tempdir().expect("a folder");
    for folder in ["usr/bin", "var/lib/tidegate", "etc/tidegate", "tmp"] {
        std::fs::create_dir_all(root.path().join(folder)).expect("a folder");
    }
    std::fs::copy(&program, root.path().join("usr/bin/tidegate")).expect("a copy");
    std::fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("open");
    chown(root.path().join("var/lib/tidegate"), Some(USER), Some(USER)).expect("its folder");
    let inside = |words: &[&str]| {
        let mut command = Command::new("chroot");
        command.arg(format!("--userspec={USER}:{USER}")).arg(root.path()).arg("/usr/bin/tidegate").args(words);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(settings_of_the_container());
        command
    };
    let refused = inside(&["serve"]).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(2), "without users it listens to nobody: {}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("user add"), "{}", text(&refused.stderr));

    let mut add = inside(&["user", "add", "me", "--roles", "admin", "--password-stdin"]);
    let mut add = add.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    add.stdin.take().expect("piped").write_all(b"correct-horse\n").expect("a password");
    assert!(add.wait().expect("it ends").success());
    let mode = std::fs::metadata(root.path().join("var/lib/tidegate/users")).expect("the users").mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut broker = inside(&["serve"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
    let mut said = BufReader::new(broker.stdout.take().expect("piped"));
    let mut banner = String::new();
    said.read_line(&mut banner).expect("a banner");
    let port = banner.split("admin http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
    let port = port.rsplit(':').next().unwrap_or_default();
    let health =
        inside(&["health"]).env("TIDEGATE_ADMIN", format!("http://127.0.0.1:{port}")).output().expect("it runs");
    let _ = broker.kill();
    let _ = broker.wait();
    assert!(health.status.success(), "{banner} {}", text(&health.stderr));
}
