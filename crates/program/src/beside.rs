//! Where Tidegate's other programs are: in the folder of this one, or on the path.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program of Tidegate that is nowhere to be found.
#[derive(Debug)]
pub struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.0;
        // The packages are called as their programs are, but for the command line's.
        let package = if name == "tidegate" { "tidegate-cli" } else { name };
        write!(
            f,
            "the program {name} is neither beside this one nor on the path; in the sources it is made by `cargo build \
             --release -p {package}`"
        )
    }
}

impl std::error::Error for Missing {}

/// The program of this name: beside the one that runs, else on the path.
pub fn program_beside(name: &str) -> Result<PathBuf, Missing> {
    let here = std::env::current_exe().ok();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    find(name, here.as_deref(), &paths).ok_or_else(|| Missing(name.to_owned()))
}

fn find(name: &str, here: Option<&Path>, paths: &OsStr) -> Option<PathBuf> {
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let beside = here.and_then(Path::parent).map(|folder| folder.join(&file));
    // An element that is empty or relative means another folder wherever one stands.
    let folders = std::env::split_paths(paths).filter(|folder| folder.is_absolute());
    let on_path = folders.map(|folder| folder.join(&file));
    beside.into_iter().chain(on_path).find(|path| can_be_run(path))
}

fn can_be_run(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_comes_before_the_path_and_nothing_is_said_to_be_missing() {
        let here = std::env::current_exe().unwrap();
        let (folder, name) = (here.parent().unwrap(), here.file_name().unwrap().to_str().unwrap());
        assert_eq!(find(name, Some(&folder.join("other")), OsStr::new("")), Some(here.clone()));
        assert_eq!(find(name, None, folder.as_os_str()), Some(here.clone()), "on the path");
        assert_eq!(find(name, None, OsStr::new(":.")), None, "not wherever one stands");
        assert_eq!(find("no-such-program", Some(&here), folder.as_os_str()), None);
        assert!(Missing("tidegate".into()).to_string().contains("-p tidegate-cli"));
    }
}
