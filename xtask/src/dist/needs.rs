//! What the machine has to have, asked before anything is built: a build takes many minutes, and what is missing is named with
//! how to get it.

use std::process::{Command, Stdio};

use super::build::{Compiler, Target, linker};
use super::{DistOptions, Failure};
use crate::succeeds;

/// Tools of every package, and where Debian has them.
const TOOLS: [(&str, &str); 3] = [("dpkg-deb", "dpkg"), ("tar", "tar"), ("gzip", "gzip")];

/// What is missing for all targets.
pub(super) fn missing(options: &DistOptions) -> Vec<Failure> {
    let tools = TOOLS.iter().filter(|(tool, _)| !answers(tool, &["--version"]));
    let mut missing: Vec<Failure> =
        tools.map(|(tool, package)| format!("{tool} is missing: apt-get install {package}")).collect();
    if options.programs.is_none() && linker().is_none() {
        missing.push("rust-lld is missing, which toolchains of rustup have: https://rustup.rs".to_owned());
    }
    missing
}

/// What is missing to build for this target; its standard library is installed.
pub(super) fn missing_for(target: &Target) -> Vec<Failure> {
    let mut missing = Vec::new();
    if !has_library(target) {
        missing.push(format!("its standard library is missing: rustup target add {}", target.triple));
    }
    missing.extend(compiler(target).err());
    missing
}

fn has_library(target: &Target) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let folder = Command::new(rustc).args(["--print", "target-libdir", "--target", target.triple]).output();
    let is_there = folder.is_ok_and(|it| std::path::Path::new(String::from_utf8_lossy(&it.stdout).trim()).is_dir());
    is_there || succeeds(Command::new("rustup").args(["target", "add", target.triple]))
}

/// Who compiles C for it.
pub(super) fn compiler(target: &Target) -> Result<Compiler, Failure> {
    let is_named = std::env::var_os(format!("CC_{}", target.triple.replace('-', "_"))).is_some();
    if is_named {
        Ok(Compiler::Named)
    } else if answers("cargo-zigbuild", &["zig", "cc", "--", "--version"]) {
        Ok(Compiler::Zig)
    } else if target.is_of_this_machine() && answers("musl-gcc", &["--version"]) {
        Ok(Compiler::MuslTools)
    } else {
        let own = if target.is_of_this_machine() { ", or apt-get install musl-tools" } else { "" };
        Err(format!("a C compiler for it is missing: pip install ziglang cargo-zigbuild{own}"))
    }
}

fn answers(program: &str, arguments: &[&str]) -> bool {
    succeeds(Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()))
}
