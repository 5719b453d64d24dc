//! What pages refer to exists: links and anchors, commands and flags in running text, packages and examples of cargo,
//! the table of contents, and what the container is built from.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use crate::page::{Page, root};

/// All Markdown of the project, from its root.
pub(crate) fn all_pages() -> Vec<String> {
    let folders = ["", "docs", "docs/control", "dist", "fuzz", "specs"].map(str::to_owned);
    let crates = std::fs::read_dir(root().join("crates")).expect("crates").flatten();
    let crates = crates.map(|entry| format!("crates/{}", entry.file_name().to_string_lossy()));
    let mut pages = Vec::new();
    for folder in folders.into_iter().chain(crates) {
        for entry in std::fs::read_dir(root().join(&folder)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().extension().is_some_and(|ending| ending == "md") {
                pages.push(if folder.is_empty() { name } else { format!("{folder}/{name}") });
            }
        }
    }
    pages.sort();
    pages
}

#[test]
fn every_link_leads_somewhere() {
    let mut complaints = Vec::new();
    for name in all_pages() {
        let page = Page::read(&name);
        for (line, target) in page.links() {
            // Elsewhere, or a place of the code that rustdoc looks up.
            if target.contains("://") || target.contains("::") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let folder = root().join(&name).parent().expect("a folder").to_owned();
            let file = if path.is_empty() { root().join(&name) } else { folder.join(path) };
            let found = match std::fs::read_to_string(&file) {
                Ok(text) => {
                    anchor.is_empty() || Page { name: target.clone(), text }.anchors().iter().any(|a| a == anchor)
                }
                // A folder, or a picture, which is no text.
                Err(_) => file.exists() && anchor.is_empty(),
            };
            if !found {
                complaints.push(format!("{name}:{line}: {target}"));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// The book has every page of `docs/`, once.
#[test]
fn the_table_of_contents_is_complete() {
    let summary = Page::read("docs/SUMMARY.md");
    let listed: Vec<String> = summary.links().into_iter().map(|(_, target)| format!("docs/{target}")).collect();
    let unique: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice: mdBook refuses that");
    let pages: Vec<String> = all_pages().into_iter().filter(|name| name.starts_with("docs/")).collect();
    for page in pages.iter().filter(|name| !name.ends_with("SUMMARY.md")) {
        assert!(listed.contains(page), "{page} is not in docs/SUMMARY.md");
    }
    let book = std::fs::read_to_string(root().join("docs/book.toml")).expect("book.toml");
    let book = toml::de::DeTable::parse(&book).unwrap_or_else(|error| panic!("{error}"));
    assert!(book.get_ref().iter().any(|(name, _)| name.get_ref() == "book"));
}

/// Commands of the program that are named anywhere, in running text and in blocks that are not run, have these names
/// and take these flags.
#[test]
fn every_command_and_flag_that_is_named_exists() {
    let mut help = Help::default();
    let mut complaints = Vec::new();
    for name in all_pages().iter().filter(|name| !name.starts_with("specs/")) {
        let page = Page::read(name);
        let blocks = page.blocks().into_iter().filter(|block| block.not_run.is_some());
        let lines = blocks.flat_map(|block| {
            let lines: Vec<_> = block.text.lines().map(|line| (block.line, line.to_owned())).collect();
            lines
        });
        for (line, code) in page.inline_code().into_iter().chain(lines) {
            let code = code.split('#').next().unwrap_or_default();
            let words = code.trim().trim_start_matches("$ ").replace("cargo run --release -- ", "tidegate ");
            if let Some(rest) = words.strip_prefix("tidegate ") {
                complaints.extend(help.judge(rest).map(|why| format!("{name}:{line}: `{code}`: {why}")));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// What `--help` says, by command.
#[derive(Default)]
struct Help(BTreeMap<String, Option<String>>);

impl Help {
    fn of(&mut self, path: &str) -> Option<String> {
        let ask = || {
            let words: Vec<&str> = path.split(' ').filter(|word| !word.is_empty()).collect();
            let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
                .args(&words)
                .arg("--help")
                .stdin(Stdio::null())
                .output()
                .expect("the program runs");
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        self.0.entry(path.to_owned()).or_insert_with(ask).clone()
    }

    /// What is wrong with a command line.
    fn judge(&mut self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_command = |word: &str| word.chars().all(|c| c.is_ascii_lowercase());
        let mut path = String::new();
        let mut text = self.of("")?;
        for word in words.iter().take_while(|word| is_command(word)) {
            let commands = text.split("Commands:").nth(1).unwrap_or_default();
            let commands = commands.split("\n\n").next().unwrap_or_default();
            if !commands.lines().any(|line| line.split_whitespace().next() == Some(word)) {
                // Behind a command that has none of its own there are arguments.
                let is_argument = !path.is_empty() && commands.trim().is_empty();
                return (!is_argument)
                    .then(|| format!("there is no command {word:?}"))
                    .or_else(|| flags(&text, &words));
            }
            if !path.is_empty() {
                path.push(' ');
            }
            path.push_str(word);
            text = self.of(&path)?;
        }
        flags(&text, &words)
    }
}

/// A flag that is not in the help.
fn flags(help: &str, words: &[&str]) -> Option<String> {
    let name =
        |word: &str| word.trim_end_matches([',', '.', ';', ')']).split('=').next().unwrap_or_default().to_owned();
    let unknown = words.iter().filter(|word| word.starts_with("--") && word.len() > 2).map(|word| name(word));
    unknown.filter(|flag| !help.contains(flag.as_str())).map(|flag| format!("there is no flag {flag}")).next()
}

/// `cargo … -p PACKAGE --example NAME --test NAME` of pages name what there is.
#[test]
fn packages_examples_and_tests_that_are_named_exist() {
    let mut complaints = Vec::new();
    for name in all_pages() {
        let page = Page::read(&name);
        let blocks = page.blocks();
        let lines = blocks.iter().flat_map(|block| block.text.lines().map(|line| (block.line, line.to_owned())));
        for (line, code) in page.inline_code().into_iter().chain(lines) {
            if !code.contains("cargo ") || name.starts_with("fuzz/") {
                continue;
            }
            let after = |flags: [&str; 2]| {
                let mut words = code.split_whitespace().skip_while(|word| !flags.contains(word));
                words.nth(1).map(|word| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned())
            };
            let Some(package) = after(["-p", "--package"]) else { continue };
            let folder = root().join("crates").join(package.trim_start_matches("tidegate-"));
            let found = |kind: &str, name: String| {
                let file = folder.join(format!("{kind}/{name}.rs"));
                if file.exists() { file } else { folder.join(format!("{kind}/{name}/main.rs")) }
            };
            let mut wanted = vec![folder.join("Cargo.toml")];
            wanted.extend(after(["--example", "--examples"]).map(|name| found("examples", name)));
            wanted.extend(after(["--test", "--tests"]).map(|name| found("tests", name)));
            for path in wanted.into_iter().filter(|path| !path.exists() && package != "xtask") {
                complaints.push(format!("{name}:{line}: {code}: there is no {}", path.display()));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Settings, losses and metrics that are named in running text exist.
#[test]
fn settings_losses_and_metrics_that_are_named_exist() {
    let source = |path: &str| std::fs::read_to_string(root().join(path)).expect("a source");
    let settings = known_settings();
    let ledger = source("crates/core/src/ledger.rs") + &source("crates/core/src/event.rs");
    let metrics = source("docs/metrics.md");
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let mut complaints = Vec::new();
    for name in all_pages().iter().filter(|name| !name.starts_with("specs/") && !name.starts_with("crates/")) {
        // An arrow is in what the program prints, and not in what one writes.
        for (line, code) in Page::read(name).inline_code().into_iter().filter(|(_, code)| !code.contains('→')) {
            let word = code.split([' ', '=', '{', '[']).next().unwrap_or_default();
            let is_known = match word.split_once('.') {
                Some((section, key))
                    if settings.contains_key(section) && !key.is_empty() && key.chars().all(is_word) =>
                {
                    settings[section].contains(key)
                }
                _ if word.starts_with("dropped_") && word.chars().all(is_word) => ledger.contains(word),
                _ if word.starts_with("tidegate_") && word.len() > 9 && word.chars().all(is_word) => {
                    metrics.contains(&format!("`{word}`"))
                }
                _ => true,
            };
            if !is_known {
                complaints.push(format!("{name}:{line}: there is no {word}"));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Names by section, from the page that is generated; lists of tables are there as names, too.
fn known_settings() -> BTreeMap<String, BTreeSet<String>> {
    let mut settings: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut section, page) = (String::new(), Page::read("docs/configuration.md"));
    for line in page.text.lines() {
        if let Some(head) = line.strip_prefix("## ") {
            head.trim_matches(['[', ']']).clone_into(&mut section);
            if let Some((section, name)) = section.split_once('.') {
                settings.entry(section.to_owned()).or_default().insert(name.to_owned());
            }
        } else if let Some(name) = line.strip_prefix("| `").and_then(|rest| rest.split('`').next()) {
            settings.entry(section.clone()).or_default().insert(name.to_owned());
        }
    }
    // Files are no settings: `tidegate.toml`, `log.rs`, `map.rs`.
    settings.entry("log".to_owned()).or_default().insert("rs".to_owned());
    settings.entry("map".to_owned()).or_default().insert("rs".to_owned());
    settings.remove("classes");
    settings
}
