//! `tidegate lab draw`: the figures of a manual anew, from the tables that it has.

use std::fs;
use std::path::Path;

use anyhow::Result;
use tidegate_program::say;
use tidegate_sim::report;
use tidegate_sim::scenario::BOOK;

use super::all::PAGES;
use super::{load, write};

pub(super) fn run(manual: &Path, only: Option<&str>) -> Result<u8> {
    for (name, _) in BOOK.iter().filter(|(name, _)| only.is_none_or(|part| name.contains(part))) {
        let read = |kind: &str| fs::read_to_string(manual.join(PAGES).join(format!("{name}.{kind}")));
        let (Ok(page), Ok(table)) = (read("md"), read("csv")) else {
            say!("{name}: it has no page there");
            continue;
        };
        match report::redrawn(&load(name)?, &page, &table) {
            Ok(figures) => {
                for figure in &figures {
                    write(&manual.join(PAGES).join(&figure.file), &figure.svg)?;
                }
                say!("{name}: {} figures", figures.len());
            }
            Err(why) => say!("{name}: left as it is: {why}"),
        }
    }
    Ok(0)
}
