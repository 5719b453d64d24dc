//! The node's own folders at a takeover: what is in them, what the stream had, and which of the two counts. The store's folder has the
//! note that says so for both: when a copy takes the place of both, the smart space's goes first, so that a process that ends in between
//! finds the old note and does it again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tidegate_cluster::{Copied, Folder, Mending, Note, Verdict, mend};
use tidegate_store::FileId;
use tidegate_store::disk::create_private_dir;

use crate::engine::ClusterError;
use crate::follower::{at, copied_space, copy_of, sync_dir};

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
    pub(crate) fn new(store: &Path, space: &Path) -> Self {
        Self { store: store.to_path_buf(), space: space.to_path_buf(), following: beside(store, ".following") }
    }

    /// Where a file of the lineage is on this node.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        match Folder::of(name) {
            (Folder::Store, inside) => self.store.join(inside),
            (Folder::Space, inside) => self.space.join(inside),
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

    /// Makes the store's folder what counts, and notes whose it is; what the stream lacks then.
    pub(crate) fn settle(&self, verdict: Verdict, copied: &Copied, note: &Note) -> Result<Vec<Lack>, ClusterError> {
        let lacks = match verdict {
            Verdict::Adopt => {
                copied.whole().map_err(|error| ClusterError::Refused(error.to_string()))?;
                // In the copy before that is the store: a process that ends in between would not know whose it is.
                write_note(&self.following, note)?;
                replace(&self.space, &copied_space(&self.following))?;
                replace(&self.store, &self.following)?;
                Vec::new()
            }
            _ => {
                let lacks = self.merge(copied)?;
                write_note(&self.store, note)?;
                lacks
            }
        };
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
            let (own_path, copy) = (self.place(name), copy_of(&self.following, name));
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
    let mut file = File::create(&temporary).map_err(at("write", &temporary))?;
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
