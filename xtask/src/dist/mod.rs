//! `cargo xtask dist`: what somebody installs. For each target a static program in an archive and in a Debian package, once a
//! list of all that is inside (SBOM) and the checksums, in `target/dist`.
//!
//! ```text
//! cargo xtask dist                                    x86-64 and aarch64
//! cargo xtask dist --target x86_64-unknown-linux-musl one of them
//! cargo xtask dist --programs DIR                     packs the programs of this folder, for this machine or one --target; nothing is built
//! ```
//!
//! A target that cannot be built here is named with what is missing and how to get it, before anything is built; the others are
//! made, and the exit code is 1.

mod build;
mod checksums;
mod deb;
mod elf;
mod needs;
mod sbom;
mod stage;
mod trial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::{root, target};
use build::{TARGETS, Target};
use trial::Runner;

pub(crate) type Failure = String;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct DistOptions {
    targets: Vec<&'static Target>,
    /// Programs that are there already.
    programs: Option<PathBuf>,
    out: PathBuf,
}

pub(crate) fn dist(options: &[String]) -> ExitCode {
    let options = match parse(options) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("xtask dist: {why}");
            return ExitCode::from(2);
        }
    };
    match make_all(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failures) => {
            for failure in failures {
                eprintln!("xtask dist: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}

fn parse(options: &[String]) -> Result<DistOptions, Failure> {
    let mut parsed = DistOptions { targets: Vec::new(), programs: None, out: target().join("dist") };
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--target" => {
                let names = || TARGETS.map(|target| target.triple).join(", ");
                let known = TARGETS.iter().find(|target| target.triple == value);
                parsed.targets.push(known.ok_or_else(|| format!("--target {value}: there are {}", names()))?);
            }
            "--programs" => parsed.programs = Some(value.into()),
            "--out" => parsed.out = value.into(),
            other => return Err(format!("{other}: there are --target, --programs and --out")),
        }
    }
    if parsed.targets.is_empty() {
        parsed.targets = TARGETS.iter().filter(|it| parsed.programs.is_none() || it.is_of_this_machine()).collect();
    }
    if parsed.programs.is_some() && parsed.targets.len() > 1 {
        return Err("--programs are of one --target".to_owned());
    }
    Ok(parsed)
}

fn make_all(options: &DistOptions) -> Result<(), Vec<Failure>> {
    let one = |why: Failure| vec![why];
    let version = env!("CARGO_PKG_VERSION");
    let missing = needs::missing(options);
    if !missing.is_empty() {
        return Err(missing);
    }
    std::fs::create_dir_all(&options.out).map_err(|error| one(format!("{}: {error}", options.out.display())))?;
    let (mut made, mut failures) = (Vec::new(), Vec::new());
    for target in can_be_built(options, &mut failures) {
        match make(target, options, version) {
            Ok(files) => made.extend(files),
            Err(why) => failures.push(format!("{}: {why}", target.triple)),
        }
    }
    if !made.is_empty() {
        made.push(sbom::write(&options.out, version, &options.targets).map_err(one)?);
        made.push(checksums::write(&options.out, &made).map_err(one)?);
    }
    for file in &made {
        let bytes = std::fs::metadata(file).map_or(0, |it| it.len());
        println!("{:>7.1} MiB  {}", bytes as f64 / f64::from(1 << 20), file.display());
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// Those for which nothing is missing.
fn can_be_built(options: &DistOptions, failures: &mut Vec<Failure>) -> Vec<&'static Target> {
    let mut targets = options.targets.clone();
    if options.programs.is_some() {
        return targets;
    }
    targets.retain(|target| {
        let missing = needs::missing_for(target);
        for why in &missing {
            eprintln!("xtask dist: {} is left out: {why}", target.triple);
            failures.push(format!("{}: {why}", target.triple));
        }
        missing.is_empty()
    });
    targets
}

/// The archive and the package of one target.
fn make(target: &Target, options: &DistOptions, version: &str) -> Result<Vec<PathBuf>, Failure> {
    let programs = match &options.programs {
        Some(folder) => folder.clone(),
        None => build::build(target)?,
    };
    let runner = Runner::of(target);
    let kind = elf::loader(&programs.join("tidegate"))?.map_or("static".to_owned(), |it| format!("not static ({it})"));
    match &runner {
        Some(runner) => println!("{}: {kind}; {}", target.triple, trial::run(runner, &programs.join("tidegate"))?),
        None => println!("{}: {kind}; not tried here: apt-get install qemu-user-static runs it", target.triple),
    }
    let folder = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
    let tree = stage::tree(folder.path(), &programs, runner.as_ref(), version)?;
    let archive = stage::archive(&tree, target, version, &options.out)?;
    let package = deb::pack(&tree, target, version, &options.out)?;
    Ok(vec![archive, package])
}

/// A file of the project.
fn source(path: &str) -> PathBuf {
    root().join(path)
}

/// Copies a file, and makes the folders that it needs.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let folder = to.parent().unwrap_or(to);
    let copied = std::fs::create_dir_all(folder).and_then(|()| std::fs::copy(from, to));
    copied.map(drop).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: &[&str]) -> Result<DistOptions, Failure> {
        parse(&options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn without_options_all_targets_are_built() {
        assert_eq!(parsed(&[]).expect("fine").targets.len(), TARGETS.len());
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (options, words) in [
            (&["--target"][..], "--target needs a value"),
            (&["--target", "z80"], "--target z80: there are x86_64-unknown-linux-musl, "),
            (&["--fast", "yes"], "--fast: there are --target, --programs and --out"),
        ] {
            let why = parsed(options).expect_err("wrong");
            assert!(why.starts_with(words), "{why}");
        }
    }
}
