//! A page of the documentation, as far as a test has to understand Markdown: fences, their notes, inline code, links.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file and what is in it.
pub(crate) struct Page {
    /// From the root.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A block of code.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The first word behind the fence: `sh`, `console`, `toml`; empty if there is none.
    pub(crate) language: String,
    pub(crate) text: String,
    /// Of the fence, from 1.
    pub(crate) line: usize,
    /// `<!-- not run: REASON -->` before it.
    pub(crate) not_run: Option<String>,
    /// `<!-- first: COMMANDS -->` before it: what a reader has at that point, and does not type.
    pub(crate) first: String,
    /// `<!-- exact: REASON -->` before it: what it prints is the same to the letter each time, so its figures count.
    pub(crate) is_exact: bool,
}

/// A command with what the page says it prints.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Spoken {
    pub(crate) command: String,
    pub(crate) sample: String,
}

impl Page {
    pub(crate) fn read(name: &str) -> Self {
        let text = std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name: name.to_owned(), text }
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let (mut open, mut note): (Option<Block>, Block) = (None, Block::default());
        for (index, line) in self.text.lines().enumerate() {
            if let Some(mut block) = open.take() {
                if line.starts_with("```") {
                    blocks.push(block);
                } else {
                    block.text.push_str(line);
                    block.text.push('\n');
                    open = Some(block);
                }
            } else if let Some(language) = line.strip_prefix("```") {
                let language = language.split([',', ' ']).next().unwrap_or_default().to_owned();
                open = Some(Block { language, line: index + 1, ..std::mem::take(&mut note) });
            } else if let Some(reason) = comment(line, "not run:") {
                note.not_run = Some(reason.to_owned());
            } else if comment(line, "exact:").is_some_and(|reason| !reason.is_empty()) {
                note.is_exact = true;
            } else if let Some(commands) = comment(line, "first:") {
                note.first.push_str(commands);
                note.first.push('\n');
            } else if !line.is_empty() {
                note = Block::default();
            }
        }
        assert!(open.is_none(), "{}: a fence is not closed", self.name);
        blocks
    }

    /// Text in backticks outside of blocks, with its line.
    pub(crate) fn inline_code(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (start, paragraph) in self.paragraphs() {
            for (index, part) in paragraph.split('`').enumerate() {
                if index % 2 == 1 {
                    found.push((start, part.split_whitespace().collect::<Vec<_>>().join(" ")));
                }
            }
        }
        found
    }

    /// What `[words](target)` and `![words](target)` point at, with its line.
    pub(crate) fn links(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (start, paragraph) in self.paragraphs() {
            let targets = paragraph.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            found.extend(targets.map(|target| (start, target.to_owned())));
        }
        found
    }

    /// Anchors of its headings, as GitHub and mdBook make them.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let headings = self.prose().filter(|(_, line)| line.starts_with('#'));
        headings.map(|(_, line)| anchor(line.trim_start_matches('#').trim())).collect()
    }

    /// Lines outside of blocks.
    fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut is_code = false;
        self.text.lines().enumerate().filter_map(move |(index, line)| {
            let is_fence = line.starts_with("```");
            is_code ^= is_fence;
            (!is_code && !is_fence).then_some((index + 1, line))
        })
    }

    /// Joined lines, because backticks and links may go over the end of one. Each row of a table is one.
    fn paragraphs(&self) -> Vec<(usize, String)> {
        let mut paragraphs: Vec<(usize, String)> = vec![(1, String::new())];
        let mut last = 0;
        for (number, line) in self.prose() {
            let is_new = line.is_empty() || line.starts_with(['|', '#', '-', '<']) || number != last + 1;
            match paragraphs.last_mut() {
                Some((_, text)) if !is_new => {
                    text.push(' ');
                    text.push_str(line);
                }
                _ => paragraphs.push((number, line.to_owned())),
            }
            last = number;
        }
        paragraphs
    }
}

impl Block {
    /// Commands after `$ `, each with the lines that follow it.
    pub(crate) fn spoken(&self) -> Vec<Spoken> {
        let mut all: Vec<Spoken> = Vec::new();
        let mut goes_on = false;
        for line in self.text.lines() {
            match (line.strip_prefix("$ "), all.last_mut()) {
                (Some(command), _) => {
                    all.push(Spoken { command: format!("{command}\n"), sample: String::new() });
                    goes_on = command.ends_with('\\');
                }
                (None, Some(spoken)) if goes_on => {
                    spoken.command.push_str(line);
                    spoken.command.push('\n');
                    goes_on = line.ends_with('\\');
                }
                (None, Some(spoken)) => {
                    spoken.sample.push_str(line);
                    spoken.sample.push('\n');
                }
                (None, None) => panic!("line {}: output without a command", self.line),
            }
        }
        all
    }
}

fn comment<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.strip_prefix("<!-- ")?.strip_suffix(" -->")?.strip_prefix(word).map(str::trim)
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Words of a sample that must be in what is really printed: of letters only, so no times, sums and addresses.
pub(crate) fn names_of(sample: &str) -> impl Iterator<Item = &str> {
    let tokens = sample.split_whitespace().filter(|token| !token.contains(|c: char| c.is_ascii_digit()));
    let words = tokens.flat_map(|token| token.split(|c: char| !c.is_ascii_alphabetic() && c != '_'));
    words.filter(|word| word.len() >= 3)
}

#[test]
fn blocks_have_their_notes() {
    let text = "a\n<!-- not run: needs root -->\n```sh\nx\n```\n\n<!-- first: y -->\n<!-- exact: z -->\n\n```console\n$ a \\\n  b\nOut 5s\n$ c\n```\n";
    let page = Page { name: "t".to_owned(), text: text.to_owned() };
    let blocks = page.blocks();
    assert_eq!((blocks[0].not_run.as_deref(), blocks[0].line), (Some("needs root"), 3));
    assert_eq!((blocks[1].not_run.as_deref(), blocks[1].first.as_str()), (None, "y\n"));
    assert_eq!((blocks[0].is_exact, blocks[1].is_exact), (false, true));
    let spoken = blocks[1].spoken();
    assert_eq!((spoken[0].command.as_str(), spoken[0].sample.as_str()), ("a \\\n  b\n", "Out 5s\n"));
    assert_eq!(spoken.len(), 2);
}

#[test]
fn names_are_words_without_digits() {
    let found: Vec<&str> = names_of("CLIENT  RATE/s up 5 s {\"spuid\":\"x1\"} kept_back 10.0.0.1:5 a").collect();
    assert_eq!(found, ["CLIENT", "RATE", "kept_back"]);
    assert_eq!(anchor("How a *setting* gets `its` value"), "how-a-setting-gets-its-value");
}
