//! What is where after an installation: one tree, from which the archive and the Debian package are made. Times, owners and
//! order are fixed, so that the same programs give the same bytes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{PROGRAMS, Target};
use super::trial::Runner;
use super::{Failure, copy, source};
use crate::succeeds;

/// Files of the project, and where they go; a folder at the left means all that is in it.
const FILES: &[(&str, &str)] = &[
    ("dist/tidegate.toml", "etc/tidegate/tidegate.toml"),
    ("dist/tidegate.service", "lib/systemd/system/tidegate.service"),
    ("dist/examples", "usr/share/doc/tidegate/examples"),
    ("dist/grafana", "usr/share/doc/tidegate/grafana"),
    ("dist/debian/copyright", "usr/share/doc/tidegate/copyright"),
    ("LICENSE-MIT", "usr/share/doc/tidegate/LICENSE-MIT"),
    ("LICENSE-APACHE", "usr/share/doc/tidegate/LICENSE-APACHE"),
    ("README.md", "usr/share/doc/tidegate/README.md"),
    ("CHANGELOG.md", "usr/share/doc/tidegate/CHANGELOG.md"),
];

/// Completions, by shell.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/tidegate"),
    ("zsh", "usr/share/zsh/vendor-completions/_tidegate"),
    ("fish", "usr/share/fish/vendor_completions.d/tidegate.fish"),
];

/// Lays the tree out in a folder.
pub(super) fn tree(folder: &Path, programs: &Path, runner: Option<&Runner>, version: &str) -> Result<PathBuf, Failure> {
    let tree = folder.join(format!("tidegate-{version}"));
    for program in PROGRAMS {
        let place = tree.join("usr/bin").join(program);
        copy(&programs.join(program), &place)?;
        set_mode(&place, 0o755)?;
    }
    for (from, to) in FILES {
        lay(&source(from), &tree.join(to))?;
    }
    // By a program that runs here, whatever machine the package is for.
    match runner {
        Some(runner) => write_generated(&tree, runner, &programs.join("tidegate"))?,
        None => write_generated(&tree, &Runner::Native, &debug_program()?)?,
    }
    Ok(tree)
}

fn lay(from: &Path, to: &Path) -> Result<(), Failure> {
    if from.is_dir() {
        let entries = std::fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))?;
        return entries.flatten().try_for_each(|entry| lay(&entry.path(), &to.join(entry.file_name())));
    }
    copy(from, to)?;
    set_mode(to, 0o644)
}

fn debug_program() -> Result<PathBuf, Failure> {
    let mut build = crate::cargo();
    build.args(["build", "--locked", "--quiet", "-p", "tidegate-cli"]);
    if succeeds(&mut build) {
        Ok(crate::target().join("debug/tidegate"))
    } else {
        Err("the program that writes manual pages does not build".to_owned())
    }
}

/// Manual pages and completions.
fn write_generated(tree: &Path, runner: &Runner, program: &Path) -> Result<(), Failure> {
    let pages = tree.join("usr/share/man/man1");
    if !succeeds(runner.command(program).arg("man").arg(&pages)) {
        return Err(format!("{}: no manual pages", program.display()));
    }
    for (shell, place) in COMPLETIONS {
        let output = runner.command(program).args(["completions", shell]).output();
        let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
        if !output.status.success() {
            return Err(format!("{}: no completions for {shell}", program.display()));
        }
        let place = tree.join(place);
        let written = std::fs::create_dir_all(place.parent().unwrap_or(&place))
            .and_then(|()| std::fs::write(&place, output.stdout));
        written.map_err(|error| format!("{}: {error}", place.display()))?;
    }
    Ok(())
}

pub(super) fn set_mode(file: &Path, mode: u32) -> Result<(), Failure> {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode))
        .map_err(|error| format!("{}: {error}", file.display()))
}

/// The tree as an archive that is unpacked anywhere, or at the root.
pub(super) fn archive(tree: &Path, target: &Target, version: &str, out: &Path) -> Result<PathBuf, Failure> {
    let name = out.join(format!("tidegate-{version}-{}-linux.tar.gz", target.arch()));
    let (folder, leaf) = (tree.parent().unwrap_or(tree), tree.file_name().unwrap_or_default());
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"]);
    tar.args(["--use-compress-program", "gzip -n", "-cf"]).arg(&name).arg("-C").arg(folder).arg(leaf);
    if succeeds(&mut tar) { Ok(name) } else { Err("tar failed".to_owned()) }
}
