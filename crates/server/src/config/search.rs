//! Which files are read: the one that was named, else `./tidegate.toml`, else the system's with its `conf.d`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::plan::is_missing;

/// Beside the broker's start, for trying things out.
const LOCAL: &str = "tidegate.toml";
const SYSTEM: &str = "/etc/tidegate/tidegate.toml";
/// Fragments of packages and tools, in the order of their names, after the system's file.
const FRAGMENTS: &str = "/etc/tidegate/conf.d";

/// The files to read, later ones winning. One that was named is returned whether it exists or not: a missing file that
/// somebody asked for is an error, a missing default is not.
pub(super) fn files(named: Option<PathBuf>) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named];
    }
    if Path::new(LOCAL).is_file() {
        return vec![LOCAL.into()];
    }
    let mut files: Vec<PathBuf> = vec![SYSTEM.into()];
    // One that we may not look at is reported when it is read: without it the broker would be open.
    files.retain(|path| !is_missing(path));
    files.extend(fragments(Path::new(FRAGMENTS)));
    files
}

fn fragments(folder: &Path) -> Vec<PathBuf> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries.flatten(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        // Reading it will say what is wrong.
        Err(_) => return vec![folder.to_owned()],
    };
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_toml).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_is_the_only_one() {
        assert_eq!(files(Some("x.toml".into())), [PathBuf::from("x.toml")]);
    }

    #[test]
    fn fragments_are_sorted_and_other_files_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["20-b.toml", "10-a.toml", "README", "x.toml.bak"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<_> = fragments(folder.path()).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["10-a.toml", "20-b.toml"]);
        assert!(fragments(Path::new("/nonexistent")).is_empty());
        let no_folder = folder.path().join("README");
        assert_eq!(fragments(&no_folder), std::slice::from_ref(&no_folder), "to be complained about, not left out");
    }
}
