//! The node's own folders at a takeover: what is in them, what the stream had, and which of the two counts. The store's folder has the
//! note that says so for both: when a copy takes the place of both, the smart space's goes first, so that a process that ends in between
//! finds the old note and does it again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tidegate_cluster::{Copied, Folder, Mending, Note, Verdict, mend};
use tidegate_store::FileId;
use tidegate_store::disk::create_private_dir;

use crate::access::{self, AccessFile};
use crate::engine::ClusterError;
use crate::follower::{at, copy_in, copy_of, sync_dir};
use crate::standby::{Membership, News};

/// Name of the note in the store's folder.
const NOTE: &str = "CLUSTER";
const COMPARE_BYTES: usize = 64 * 1024;

/// The folders of a node.
#[derive(Clone, Debug)]
pub(crate) struct Folders {
    /// The store.
    store: PathBuf,
    /// The smart space.
    space: PathBuf,
    /// Users and rules.
    access: Vec<AccessFile>,
    /// The copy of both that is being written while others carry the lineage.
    pub(crate) following: PathBuf,
}

/// What the stream lacks of a file: from this byte on; None is all of it, with its name.
pub(crate) type Lack = (String, Option<u64>);

/// Whether a file of the lineage is a finished one of a log.
pub(crate) fn is_of_log(name: &str) -> bool {
    FileId::parse(Folder::of(name).1).is_some()
}

fn beside(folder: &Path, suffix: &str) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    folder.with_file_name(name)
}

/// Puts a copy in the place of a folder that others have overtaken, which is kept beside it until the next time.
fn replace(folder: &Path, copy: &Path) -> Result<(), ClusterError> {
    if folder.exists() {
        if Folders::logs(folder)?.is_empty() {
            std::fs::remove_dir_all(folder).map_err(at("remove", folder))?;
        } else {
            let before = beside(folder, ".before");
            let _ = std::fs::remove_dir_all(&before);
            std::fs::rename(folder, &before).map_err(at("set aside", folder))?;
        }
    }
    std::fs::rename(copy, folder).map_err(at("rename", copy))?;
    sync_dir(folder.parent().unwrap_or(Path::new(".")))
}

impl Folders {
    pub(crate) fn new(membership: &Membership) -> Self {
        let Membership { store, space, access, .. } = membership.clone();
        let following = beside(&store, ".following");
        Self { store, space, access, following }
    }

    /// Where a file of a log is on this node; none of one that is no log's.
    pub(crate) fn place(&self, name: &str) -> Option<PathBuf> {
        match Folder::of(name) {
            (Folder::Store, inside) => Some(self.store.join(inside)),
            (Folder::Space, inside) => Some(self.space.join(inside)),
            (Folder::Access, _) => None,
        }
    }

    /// What the folder says of itself.
    pub(crate) fn note(&self) -> Result<Option<Note>, ClusterError> {
        let path = self.store.join(NOTE);
        match std::fs::read_to_string(&path) {
            Ok(text) => match text.parse() {
                Ok(note) => Ok(Some(note)),
                Err(error) => Err(ClusterError::Refused(format!("{} {error}", path.display()))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at("read", &path)(error)),
        }
    }

    /// The files of a log and their sizes.
    fn logs(dir: &Path) -> Result<BTreeMap<String, u64>, ClusterError> {
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries.map_err(at("read", dir))?,
        };
        let mut files = BTreeMap::new();
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if FileId::parse(&name).is_some() {
                files.insert(name, entry.metadata().map_err(at("read", &entry.path()))?.len());
            }
        }
        Ok(files)
    }

    pub(crate) fn has_files(&self) -> Result<bool, ClusterError> {
        Ok(!Self::logs(&self.store)?.is_empty())
    }

    /// Makes the folders what counts, and notes whose they are; what the stream lacks then.
    pub(crate) fn settle(
        &self,
        verdict: Verdict,
        found: &Copied,
        note: &Note,
        say: &dyn Fn(News),
    ) -> Result<Vec<Lack>, ClusterError> {
        let mut lacks = Vec::new();
        if verdict == Verdict::Adopt {
            found.whole().map_err(|error| ClusterError::Refused(error.to_string()))?;
            // In the copy before that is the store: a process that ends in between would not know whose it is.
            write_note(&self.following, note)?;
            replace(&self.space, &copy_in(&self.following, Folder::Space))?;
            let copies = copy_in(&self.following, Folder::Access);
            access::take(&self.access, &copies, say);
            let _ = std::fs::remove_dir_all(copies);
            replace(&self.store, &self.following)?;
        } else {
            lacks = self.merge(found)?;
            write_note(&self.store, note)?;
        }
        let _ = std::fs::remove_dir_all(&self.following);
        Ok(lacks)
    }

    /// File by file, whoever has more.
    fn merge(&self, copied: &Copied) -> Result<Vec<Lack>, ClusterError> {
        for folder in [&self.store, &self.space] {
            create_private_dir(folder).map_err(at("make", folder))?;
        }
        let mut own = Self::logs(&self.store)?;
        own.extend(Self::logs(&self.space)?.into_iter().map(|(name, size)| (Folder::Space.name(&name), size)));
        let stream: BTreeMap<&str, u64> = copied.files.iter().map(|entry| (entry.name.as_str(), entry.size)).collect();
        let names: BTreeSet<&str> = own.keys().map(String::as_str).chain(stream.keys().copied()).collect();
        let mut lacks = Vec::new();
        for name in names {
            if !is_of_log(name) {
                // Unfinished when its writer died; the log would remove it.
                continue;
            }
            let Some(own_path) = self.place(name) else { continue };
            let copy = copy_of(&self.following, name);
            let (own, stream) = (own.get(name).copied(), stream.get(name).copied());
            let agrees = own.is_none() || stream.is_none() || agree(&own_path, &copy).map_err(at("read", &copy))?;
            match mend(own, stream, agrees) {
                Mending::Same => {}
                Mending::Send(from) => lacks.push((name.to_owned(), Some(from))),
                Mending::SendWhole => lacks.push((name.to_owned(), None)),
                Mending::Take => std::fs::rename(&copy, &own_path).map_err(at("rename", &copy))?,
            }
        }
        sync_dir(&self.space)?;
        sync_dir(&self.store)?;
        Ok(lacks)
    }
}

fn write_note(folder: &Path, note: &Note) -> Result<(), ClusterError> {
    let (path, temporary) = (folder.join(NOTE), folder.join("CLUSTER.new"));
    let private = File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
    let mut file = private.map_err(at("write", &temporary))?;
    file.write_all(note.to_string().as_bytes()).and_then(|()| file.sync_all()).map_err(at("write", &temporary))?;
    std::fs::rename(&temporary, &path).map_err(at("rename", &temporary))?;
    sync_dir(folder)
}

/// Whether the bytes that both files have are the same.
fn agree(own: &Path, copy: &Path) -> io::Result<bool> {
    let (mut own, mut copy) = (File::open(own)?, File::open(copy)?);
    let common = own.metadata()?.len().min(copy.metadata()?.len());
    let (mut here, mut there) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    let mut left = common;
    while left > 0 {
        let len = left.min(COMPARE_BYTES as u64) as usize;
        own.read_exact(&mut here[..len])?;
        copy.read_exact(&mut there[..len])?;
        if here[..len] != there[..len] {
            return Ok(false);
        }
        left -= len as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_takeover_that_ends_halfway_leaves_the_note_that_begins_it_anew() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        // Where nothing can be put yet: as if the process had ended there.
        let (store, space, following) = (at("store"), at("missing/space"), at("store.following"));
        let folders = Folders { store: store.clone(), space, access: Vec::new(), following: following.clone() };
        let note = |epoch| Note { cluster: 7, epoch, incarnation: epoch, node: "a".parse().unwrap() };
        for dir in [&store, &copy_in(&following, Folder::Space), &copy_in(&following, Folder::Access)] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let name = FileId::segment(1).name();
        std::fs::write(store.join(&name), "overtaken").unwrap();
        write_note(&store, &note(1)).unwrap();
        for dir in [following.clone(), copy_in(&following, Folder::Space)] {
            std::fs::write(dir.join(&name), "the cluster's").unwrap();
        }
        let settle = || folders.settle(Verdict::Adopt, &Copied::default(), &note(2), &|_| {});
        assert!(settle().is_err());
        assert_eq!(folders.note().unwrap(), Some(note(1)), "the next process sees that it was overtaken");
        assert_eq!(std::fs::read_to_string(store.join(&name)).unwrap(), "overtaken");

        std::fs::create_dir(at("missing")).unwrap();
        assert_eq!(settle().unwrap(), []);
        assert_eq!(folders.note().unwrap(), Some(note(2)));
        for dir in [at("store"), at("missing/space")] {
            assert_eq!(std::fs::read_to_string(dir.join(&name)).unwrap(), "the cluster's");
        }
        assert_eq!(std::fs::read_to_string(at("store.before").join(&name)).unwrap(), "overtaken");
        assert!(!at("store/space").exists() && !at("store/access").exists());
    }
}
