//! `tidegate check` and `tidegate config show`: look at a configuration without running it.

use std::io::Write;

use anyhow::Result;
use serde_json::json;

use crate::arguments::{CheckArgs, ShowArgs};
use tidegate_server::config::keys::{KEYS, SettingKey, TakesEffect};
use tidegate_server::config::{Loaded, Origin, Problems, load};
use tidegate_server::{security, serve};

/// Whether the configuration is sound; the answer is printed.
pub(crate) fn check(args: &CheckArgs) -> Result<bool> {
    let outcome = serve::prepare(&args.serve.sources());
    let mut out = std::io::stdout().lock();
    match (&outcome, args.json) {
        (Ok(ready), false) => {
            for warning in security::warnings(&ready.loaded, &ready.config, &ready.security) {
                eprintln!("warning: {warning}");
            }
            writeln!(out, "ok: {}", read_from(&ready.loaded))?;
        }
        (Ok(ready), true) => {
            let warnings = security::warnings(&ready.loaded, &ready.config, &ready.security);
            let report = json!({ "ok": true, "files": ready.loaded.files, "problems": [], "warnings": warnings });
            writeln!(out, "{report}")?;
        }
        (Err(problems), false) => {
            let count = problems.0.len();
            eprintln!("{problems}\n{count} problem{}", if count == 1 { "" } else { "s" });
        }
        (Err(Problems(problems)), true) => {
            let problems: Vec<_> = problems.iter().map(tidegate_server::config::ConfigProblem::to_json).collect();
            writeln!(out, "{}", json!({ "ok": false, "problems": problems }))?;
        }
    }
    Ok(outcome.is_ok())
}

fn read_from(loaded: &Loaded) -> String {
    let files: Vec<_> = loaded.files.iter().map(|path| path.display().to_string()).collect();
    if files.is_empty() { "no configuration file, only defaults".to_owned() } else { files.join(", ") }
}

/// Prints every setting, in the form of a configuration file.
pub(crate) fn show(args: &ShowArgs) -> Result<()> {
    let loaded = load(&args.serve.sources())?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let setting = |key: &SettingKey| {
            let value = Some((key.show)(&loaded.options)).filter(|value| value != "unset");
            let (origin, restart) = (loaded.origin(key.path).to_string(), key.change == TakesEffect::Restart);
            json!({ "key": key.path, "value": value, "origin": origin, "needs_restart": restart, "about": key.about.trim() })
        };
        let settings: Vec<_> = KEYS.iter().map(setting).collect();
        writeln!(out, "{:#}", json!({ "files": loaded.files, "settings": settings }))?;
        return Ok(());
    }
    writeln!(out, "# {}", read_from(&loaded))?;
    let mut section = "";
    for key in KEYS {
        let (home, name) = key.path.split_once('.').unwrap_or(("", key.path));
        if home != section {
            section = home;
            writeln!(out, "\n[{section}]")?;
        }
        let value = (key.show)(&loaded.options);
        let line = if value == "unset" { format!("# {name} =") } else { format!("{name} = {value}") };
        let restart = if key.change == TakesEffect::Restart { " (restart)" } else { "" };
        if args.origin {
            writeln!(out, "{line:<44} # {}", loaded.origin(key.path))?;
        } else {
            writeln!(out, "{line:<44} #{}{restart}", key.about)?;
        }
    }
    show_rules(&loaded, &mut out)
}

fn show_rules(loaded: &Loaded, out: &mut impl Write) -> Result<()> {
    for (class, origin) in &loaded.classes {
        writeln!(out, "\n# the class [classes.{}] stands at {origin}", class.name)?;
    }
    for listener in &loaded.listeners {
        writeln!(out, "\n# the [[listener]] {} stands at {}", listener.name, listener.origin)?;
    }
    for rule in &loaded.rules {
        let Origin::File { .. } = rule.origin else { continue };
        writeln!(out, "\n# a [[security.rule]] for {:?} stands at {}", rule.target.name(), rule.origin)?;
    }
    Ok(())
}
