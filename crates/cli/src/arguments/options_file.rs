//! `-o FILE` of `pub` and `sub`: options from a file, as if they stood before those of the command line.
//!
//! One option per line, with its value behind it: `-h broker.example`, `--pw secret`. Empty lines and those that begin
//! with `#` are left out. A secret in a file of its own does not stand in the list of processes.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Nobody has more options than that.
const BYTES_MAX: u64 = 64 * 1024;

/// The arguments with the lines of the file in the place of `-o FILE`, right behind the command.
pub(crate) fn expand(arguments: Vec<OsString>) -> Result<Vec<OsString>> {
    let is_tool = arguments.get(1).is_some_and(|command| command == "pub" || command == "sub");
    let Some(at) = arguments.iter().position(|word| word == "-o" || word == "--options").filter(|_| is_tool) else {
        return Ok(arguments);
    };
    let Some(path) = arguments.get(at + 1) else { return Ok(arguments) };
    let from_file = read(Path::new(path)).with_context(|| format!("-o {}", Path::new(path).display()))?;
    let (tool, rest) = arguments.split_at(2);
    let rest = rest.iter().enumerate().filter(|(place, _)| ![at, at + 1].contains(&(place + 2))).map(|(_, word)| word);
    Ok(tool.iter().chain(&from_file).chain(rest).cloned().collect())
}

fn read(path: &Path) -> Result<Vec<OsString>> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        bail!("larger than {BYTES_MAX} bytes");
    }
    words(&text)
}

fn words(text: &str) -> Result<Vec<OsString>> {
    let mut words = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if !line.starts_with('-') {
            bail!("line {}: expected an option such as \"-h broker.example\"", number + 1);
        }
        let (option, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        words.push(option.into());
        match option {
            // The one option with several values.
            "-D" | "--property" => words.extend(value.split_whitespace().map(OsString::from)),
            _ if value.is_empty() => {}
            _ => words.push(value.trim().into()),
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_options_with_their_values() {
        let text = "# ours\n\n-h broker.example\n--pw two words \n-d\n-D publish user-property a b\n";
        let expected = ["-h", "broker.example", "--pw", "two words", "-d", "-D", "publish", "user-property", "a", "b"];
        assert_eq!(words(text).unwrap(), expected);
        assert!(words("-d\nbroker\n").unwrap_err().to_string().starts_with("line 2: expected an option"));
    }

    #[test]
    fn the_file_stands_before_the_command_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("options");
        std::fs::write(&path, "-h a\n-q 1\n").unwrap();
        let file = path.to_str().unwrap();
        let expanded = |words: &[&str]| expand(words.iter().map(OsString::from).collect());
        assert_eq!(
            expanded(&["tidegate", "pub", "-t", "x", "-o", file, "-q", "2"]).unwrap(),
            ["tidegate", "pub", "-h", "a", "-q", "1", "-t", "x", "-q", "2"]
        );
        assert_eq!(expanded(&["tidegate", "serve", "-o", file]).unwrap(), ["tidegate", "serve", "-o", file]);
        let missing = format!("{:#}", expanded(&["tidegate", "pub", "-o", "/nonexistent"]).unwrap_err());
        assert!(missing.starts_with("-o /nonexistent: "), "{missing}");
    }
}
