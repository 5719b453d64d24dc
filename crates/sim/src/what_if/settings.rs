//! Settings that can be asked about, by their names in tidegate.toml, and the block to write.

use std::fmt::Write;

use tidegate_control::rhythm::RhythmRule;
use tidegate_core::trace::Trace;

use super::Question;
use crate::broker::{Order, Publishers};

/// Keys and values, as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Asked(Vec<(&'static str, String)>);

const RATE: &str = "limits.rate";
const QUEUE: &str = "limits.queue_messages_max";

/// Keys with the words that they take; none of them for a number.
const KEYS: [(&str, &[&str]); 5] = [
    ("backoff.enforce", &["pressure", "always"]),
    ("backoff.mode", &["practical", "paper", "off"]),
    ("priority.mode", &["practical", "paper", "off"]),
    (QUEUE, &[]),
    (RATE, &[]),
];

impl Asked {
    /// Reads `KEY=VALUE`.
    pub(super) fn read(&mut self, text: &str) -> Result<(), String> {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("--set {text}: expected KEY=VALUE"))?;
        let (key, value) = (key.trim(), value.trim().trim_matches('"'));
        let Some((key, words)) = KEYS.iter().find(|(known, _)| *known == key) else {
            let known: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
            return Err(format!("--set {key}: what can be asked about is {}", known.join(", ")));
        };
        if !words.is_empty() && !words.contains(&value) {
            return Err(format!("--set {key}={value}: expected {}", words.join(", ")));
        }
        if *key == QUEUE && value.parse::<u32>().is_err() {
            return Err(format!("--set {key}={value}: expected a whole number"));
        }
        self.0.retain(|(other, _)| other != key);
        self.0.push((key, value.to_owned()));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The limit for everybody, which is one of the limits.
    pub(super) fn take_rate(&mut self) -> Option<String> {
        let place = self.0.iter().position(|(key, _)| *key == RATE)?;
        Some(self.0.remove(place).1)
    }

    pub(super) fn apply(&self, config: &mut Publishers) {
        for (key, value) in &self.0 {
            match (*key, value.as_str()) {
                ("backoff.enforce", word) => config.enforce_always = word == "always",
                ("backoff.mode", "off") => config.rule = None,
                ("backoff.mode", "paper") => config.rule = Some(RhythmRule::Paper),
                ("backoff.mode", _) => config.rule = Some(RhythmRule::Practical),
                ("priority.mode", "off") => config.order = Order::Fifo,
                ("priority.mode", "paper") => config.order = Order::Strict,
                ("priority.mode", _) => config.order = Order::Drr,
                (QUEUE, number) => config.queue_items = number.parse().unwrap_or(config.queue_items),
                _ => {}
            }
        }
    }
}

/// What to write into tidegate.toml.
pub(super) fn block(trace: &Trace, question: &Question) -> String {
    let mut text = String::new();
    let mut of_limits: Vec<(&str, String)> = Vec::new();
    of_limits.extend(question.limit_of_all().map(|limit| ("rate", format!("\"{}\"", limit.text))));
    let (mut backoff, mut priority) = (Vec::new(), Vec::new());
    for (key, value) in &question.settings.0 {
        match key.split_once('.') {
            Some(("limits", key)) => of_limits.push((key, value.clone())),
            Some(("backoff", key)) => backoff.push((key, format!("\"{value}\""))),
            Some((_, key)) => priority.push((key, format!("\"{value}\""))),
            None => {}
        }
    }
    for (section, keys) in [("limits", of_limits), ("backoff", backoff), ("priority", priority)] {
        if !keys.is_empty() {
            let _ = writeln!(text, "[{section}]");
            for (key, value) in &keys {
                let _ = writeln!(text, "{key} = {value}");
            }
            text.push('\n');
        }
    }
    for limit in question.limits.iter().filter(|limit| limit.group > 0) {
        let Some(group) = trace.groups().get(usize::from(limit.group) - 1) else { continue };
        let pattern = group.pattern.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(
            text,
            "[classes.{}]\nclients = [\"{pattern}\"]\nrate = \"{}\"\nweight = 2\n\n",
            group.name, limit.text
        );
    }
    text.truncate(text.trim_end().len());
    if !text.is_empty() {
        text.push('\n');
    }
    text
}
