//! The store's own folder at a takeover: what is in it, what the stream had, and which of the two counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tidegate_cluster::{Copied, Mending, Note, Verdict, mend};
use tidegate_store::FileId;
use tidegate_store::disk::create_private_dir;

use crate::engine::ClusterError;
use crate::follower::{at, sync_dir};

/// Name of the note in the store's folder.
const NOTE: &str = "CLUSTER";
const COMPARE_BYTES: usize = 64 * 1024;

/// The folders of a node.
#[derive(Clone, Debug)]
pub(crate) struct Folders {
    /// The store.
    pub(crate) store: PathBuf,
    /// The copy that is being written while others carry the lineage.
    pub(crate) following: PathBuf,
    /// The store that others have overtaken, of the last time.
    before: PathBuf,
}

/// What the stream lacks of a file: from this byte on; None is all of it, with its name.
pub(crate) type Lack = (String, Option<u64>);

impl Folders {
    pub(crate) fn new(store: &Path) -> Self {
        let beside = |suffix: &str| {
            let mut name = store.file_name().unwrap_or_default().to_owned();
            name.push(suffix);
            store.with_file_name(name)
        };
        Self { store: store.to_path_buf(), following: beside(".following"), before: beside(".before") }
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
                self.replace()?;
                Vec::new()
            }
            _ => self.merge(copied)?,
        };
        self.write_note(note)?;
        let _ = std::fs::remove_dir_all(&self.following);
        Ok(lacks)
    }

    /// The copy takes the place of a store that others have overtaken.
    fn replace(&self) -> Result<(), ClusterError> {
        if self.store.exists() {
            if self.has_files()? {
                let _ = std::fs::remove_dir_all(&self.before);
                std::fs::rename(&self.store, &self.before).map_err(at("set aside", &self.store))?;
            } else {
                std::fs::remove_dir_all(&self.store).map_err(at("remove", &self.store))?;
            }
        }
        std::fs::rename(&self.following, &self.store).map_err(at("rename", &self.following))?;
        let parent = self.store.parent().unwrap_or(Path::new("."));
        sync_dir(parent)
    }

    /// File by file, whoever has more.
    fn merge(&self, copied: &Copied) -> Result<Vec<Lack>, ClusterError> {
        create_private_dir(&self.store).map_err(at("make", &self.store))?;
        let own = Self::logs(&self.store)?;
        let stream: BTreeMap<&str, u64> = copied.files.iter().map(|entry| (entry.name.as_str(), entry.size)).collect();
        let names: BTreeSet<&str> = own.keys().map(String::as_str).chain(stream.keys().copied()).collect();
        let mut lacks = Vec::new();
        for name in names {
            if FileId::parse(name).is_none() {
                // Unfinished when its writer died; the log would remove it.
                continue;
            }
            let (own_path, copy) = (self.store.join(name), self.following.join(name));
            let (own, stream) = (own.get(name).copied(), stream.get(name).copied());
            let agrees = own.is_none() || stream.is_none() || agree(&own_path, &copy).map_err(at("read", &copy))?;
            match mend(own, stream, agrees) {
                Mending::Same => {}
                Mending::Send(from) => lacks.push((name.to_owned(), Some(from))),
                Mending::SendWhole => lacks.push((name.to_owned(), None)),
                Mending::Take => std::fs::rename(&copy, &own_path).map_err(at("rename", &copy))?,
            }
        }
        sync_dir(&self.store)?;
        Ok(lacks)
    }

    fn write_note(&self, note: &Note) -> Result<(), ClusterError> {
        let (path, temporary) = (self.store.join(NOTE), self.store.join("CLUSTER.new"));
        let private = File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let mut file = private.map_err(at("write", &temporary))?;
        file.write_all(note.to_string().as_bytes()).and_then(|()| file.sync_all()).map_err(at("write", &temporary))?;
        std::fs::rename(&temporary, &path).map_err(at("rename", &temporary))?;
        sync_dir(&self.store)
    }
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
