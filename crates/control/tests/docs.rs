//! The pages of `docs/control/`: linked, complete, and true about the files that they name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// In this order, on every page but the index.
const HEADINGS: [&str; 8] = [
    "## What it answers",
    "## The formula",
    "## In the papers",
    "## The gap we closed",
    "## When it fails",
    "## Settings",
    "## Where it lives",
    "## The curve",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn folder() -> PathBuf {
    repository().join("docs/control")
}

/// Names and texts of all files of a folder that end so, in order.
fn files(folder: &Path, extension: &str) -> io::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            files.push((name.into_owned(), fs::read_to_string(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

/// All pages, the index among them.
fn pages() -> io::Result<Vec<(String, String)>> {
    files(&folder(), "md")
}

/// What stands between two marks, wherever they occur.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    text.split(open).skip(1).filter_map(|rest| Some(rest.split_once(close)?.0)).collect()
}

#[test]
fn every_page_is_linked_from_the_index_and_every_link_leads_somewhere() -> io::Result<()> {
    let index = fs::read_to_string(folder().join("README.md"))?;
    for (page, text) in pages()? {
        assert!(page == "README.md" || index.contains(&format!("]({page})")), "{page} is not in the index");
        for target in between(&text, "](", ")") {
            assert!(folder().join(target).is_file(), "{page} links to {target}");
        }
    }
    Ok(())
}

#[test]
fn every_page_shows_a_curve_and_every_curve_is_small_and_on_a_page() -> io::Result<()> {
    let pages = pages()?;
    for (page, text) in &pages {
        assert!(page == "README.md" || text.contains("](img/"), "{page} has no curve");
    }
    for (image, svg) in files(&folder().join("img"), "svg")? {
        let link = format!("](img/{image})");
        assert!(pages.iter().any(|(_, text)| text.contains(&link)), "{image} is on no page");
        assert!(svg.len() < 60_000, "{image} has {} bytes", svg.len());
    }
    Ok(())
}

#[test]
fn every_file_that_a_page_names_exists() -> io::Result<()> {
    for (page, text) in pages()? {
        let code = text.split('`').skip(1).step_by(2);
        for path in code.filter(|code| code.starts_with("crates/")) {
            assert!(repository().join(path).exists(), "{page} names {path}");
        }
    }
    Ok(())
}

#[test]
fn every_page_has_its_headings_in_order() -> io::Result<()> {
    for (page, text) in pages()?.iter().filter(|(page, _)| page != "README.md") {
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(headings, HEADINGS, "{page}");
        let lines = text.lines().count();
        assert!((40..=100).contains(&lines), "{page} has {lines} lines");
    }
    Ok(())
}
