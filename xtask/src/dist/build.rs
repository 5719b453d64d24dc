//! Static programs. Rust brings along musl and the linker (`.cargo/config.toml`); a C compiler is for ring alone: zig's for
//! every target, musl's own for the machine's own.

use std::path::PathBuf;
use std::process::Command;

use super::{Failure, elf, needs};
use crate::{cargo, succeeds, target as target_folder};

/// What can be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) triple: &'static str,
    /// As Debian calls it.
    pub(super) debian: &'static str,
    arch: &'static str,
}

pub(super) const TARGETS: [Target; 2] = [
    Target { triple: "x86_64-unknown-linux-musl", debian: "amd64", arch: "x86_64" },
    Target { triple: "aarch64-unknown-linux-musl", debian: "arm64", arch: "aarch64" },
];

/// The programs of a package.
pub(super) const PROGRAMS: [&str; 3] = ["tidegate", "tidegate-lab", "tidegate-bench"];
/// The packages that they are built from.
pub(super) const PACKAGES: [&str; 3] = ["tidegate-cli", "tidegate-lab", "tidegate-bench"];

impl Target {
    pub(super) fn is_of_this_machine(&self) -> bool {
        self.arch == std::env::consts::ARCH
    }

    /// Programs of qemu that run what is for this machine.
    pub(super) fn emulators(&self) -> [&'static str; 2] {
        match self.arch {
            "aarch64" => ["qemu-aarch64-static", "qemu-aarch64"],
            _ => ["qemu-x86_64-static", "qemu-x86_64"],
        }
    }

    /// For names of files.
    pub(super) fn arch(&self) -> &'static str {
        self.arch
    }
}

/// Who compiles C for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compiler {
    /// zig's, whose options `cargo-zigbuild` makes those of gcc.
    Zig,
    /// `musl-gcc`.
    MuslTools,
    /// Whoever builds has named one: `CC_x86_64_unknown_linux_musl` and the like.
    Named,
}

impl Compiler {
    /// What builds of C programs are told, as the `cc` crate reads it.
    fn variables(self, target: &Target) -> Vec<(String, String)> {
        let of = |word: &str| format!("{word}_{}", target.triple.replace('-', "_"));
        match self {
            // Without its checks for undefined behaviour, whose library is zig's own.
            Self::Zig => vec![
                (
                    of("CC"),
                    format!("cargo-zigbuild zig cc -- -target {}-linux-musl -fno-sanitize=undefined", target.arch),
                ),
                (of("AR"), "cargo-zigbuild zig ar --".to_owned()),
            ],
            Self::MuslTools => vec![(of("CC"), "musl-gcc".to_owned())],
            Self::Named => Vec::new(),
        }
    }
}

/// Builds the programs of a target; the folder that they are in.
pub(super) fn build(target: &Target) -> Result<PathBuf, Failure> {
    let compiler = needs::compiler(target)?;
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--target", target.triple]).envs(compiler.variables(target));
    for package in PACKAGES {
        build.args(["-p", package]);
    }
    if !succeeds(&mut build) {
        return Err("it does not build".to_owned());
    }
    let folder = target_folder().join(target.triple).join("release");
    for program in PROGRAMS {
        if let Some(loader) = elf::loader(&folder.join(program))? {
            return Err(format!("{program} is not static: it needs {loader}"));
        }
    }
    Ok(folder)
}

/// The linker that Rust brings along, if it does.
pub(super) fn linker() -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let print = |what: &str| {
        let output = Command::new(&rustc).args(["--print", what]).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let (sysroot, host) = (print("sysroot")?, print("host-tuple")?);
    let linker = PathBuf::from(sysroot).join("lib/rustlib").join(host).join("bin/rust-lld");
    linker.is_file().then_some(linker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_is_told_by_variables_of_its_target() {
        let variables = Compiler::Zig.variables(&TARGETS[1]);
        assert_eq!(variables[0].0, "CC_aarch64_unknown_linux_musl");
        assert!(variables[0].1.contains("-target aarch64-linux-musl"), "{variables:?}");
        assert_eq!(
            Compiler::MuslTools.variables(&TARGETS[0]),
            [("CC_x86_64_unknown_linux_musl".to_owned(), "musl-gcc".to_owned())]
        );
    }
}
