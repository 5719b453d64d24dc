//! Users and rules of access, which the node that serves has in the stream and the next one takes: small files that are replaced as
//! a whole. Who could have written the log last has the right ones: a node that goes on with its own folder keeps its own files, one
//! that others have overtaken takes those of the stream, and its own stay beside them as `NAME.before`.
//!
//! What cannot be written (a secret that is mounted for reading) is said, and is no reason not to serve.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::standby::News;

/// A file that says who may come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessFile {
    /// Its name in the lineage: one of `tidegate_cluster::ACCESS_FILES`.
    pub name: &'static str,
    /// Where it is on this node.
    pub path: PathBuf,
}

/// Takes what the stream had.
pub(crate) fn take(files: &[AccessFile], copies: &Path, say: &dyn Fn(News)) {
    for file in files {
        if let Err(error) = take_one(&copies.join(file.name), &file.path) {
            let words = format!("{} stays as it is, and is older than the cluster's: {error}", file.path.display());
            say(News::AccessStays(words));
        }
    }
}

/// What the stream does not have stays.
fn take_one(copy: &Path, own: &Path) -> io::Result<()> {
    let Some(new) = read(copy)? else { return Ok(()) };
    match read(own)? {
        Some(old) if old == new => return Ok(()),
        Some(old) => {
            let mut name = own.as_os_str().to_owned();
            name.push(".before");
            put(Path::new(&name), own, &old)?;
        }
        None => {}
    }
    put(own, own, &new)
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file beside and renames it, for its owner only; owner and group are those of the one that it stands for.
fn put(path: &Path, like: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let draft = Path::new(&name);
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    if let Ok(before) = fs::metadata(like) {
        file.set_permissions(Permissions::from_mode(before.mode() & 0o660))?;
        let _ = chown(draft, Some(before.uid()), Some(before.gid()));
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(draft, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn what_the_stream_has_is_taken_and_the_own_file_stays_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (copies, own) = (folder.path().join("copies"), folder.path().join("deep/users"));
        fs::create_dir(&copies).unwrap();
        let files = [AccessFile { name: "users", path: own.clone() }];
        let said = RefCell::new(Vec::new());
        let say = |news| said.borrow_mut().push(news);
        take(&files, &copies, &say);
        assert!(!own.exists(), "the stream has none");
        for (text, before) in [("ann", None), ("bob", Some("ann")), ("bob", Some("ann"))] {
            fs::write(copies.join("users"), text).unwrap();
            take(&files, &copies, &say);
            assert_eq!(fs::read_to_string(&own).unwrap(), text);
            assert_eq!(fs::read_to_string(folder.path().join("deep/users.before")).ok().as_deref(), before);
            assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o600);
        }
        assert!(said.borrow().is_empty());
        // A folder is where the file should be: it stays, and is said.
        let files = [AccessFile { name: "users", path: copies.clone() }];
        take(&files, &copies, &say);
        let [News::AccessStays(words)] = &said.borrow()[..] else { panic!("{said:?}") };
        assert!(words.contains("stays as it is, and is older than the cluster's"), "{words}");
    }
}
