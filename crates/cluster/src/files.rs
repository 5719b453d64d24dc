//! What happens to a store's folder, as operations of its lineage's stream: names become keys, long bytes become pieces.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::entry::{DiskOp, FileEntry, FileKey, is_mirrored};
use crate::limits::{FILES_MAX, NAMES_BETWEEN_TABLES, PIECE_BYTES_MAX};
use crate::writer::{Refusal, StreamWriter};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct File {
    key: FileKey,
    size: u64,
}

/// The files of a lineage, and the writer of its stream.
///
/// Each call gives the number of the operation to wait for; the caller does the same to its own files. What is refused was
/// not begun.
#[derive(Clone, Debug)]
pub struct ReplicatedFiles {
    /// Whoever drives the writer.
    pub writer: StreamWriter,
    files: BTreeMap<String, File>,
    next: u64,
    names_since_table: u64,
}

impl ReplicatedFiles {
    /// With the files that the stream has.
    pub fn new(writer: StreamWriter, files: &[FileEntry]) -> Self {
        let file = |entry: &FileEntry| (entry.name.clone(), File { key: entry.file, size: entry.size });
        Self { writer, files: files.iter().map(file).collect(), next: 0, names_since_table: 0 }
    }

    /// Bytes of a file, as the stream will have it.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.files.get(name).map(|file| file.size)
    }

    /// The names of all files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// A new, empty file.
    pub fn create(&mut self, name: &str) -> Result<u64, Refusal> {
        if !is_mirrored(name) {
            return Ok(self.writer.last());
        }
        self.writer.has_room(0, 3)?;
        if self.files.len() >= FILES_MAX {
            return Err(Refusal::Full);
        }
        self.forget(name);
        let key = FileKey { epoch: self.writer.epoch(), count: self.next };
        self.next += 1;
        self.files.insert(name.to_owned(), File { key, size: 0 });
        Ok(self.name_op(DiskOp::Create { file: key, name: name.to_owned() }))
    }

    /// Bytes at its end.
    pub fn append(&mut self, name: &str, bytes: &[u8]) -> Result<u64, Refusal> {
        let Some(file) = self.files.get_mut(name) else { return Ok(self.writer.last()) };
        self.writer.has_room(bytes.len(), bytes.len() / PIECE_BYTES_MAX + 1)?;
        for piece in bytes.chunks(PIECE_BYTES_MAX) {
            let bytes = Bytes::copy_from_slice(piece);
            self.writer.push(DiskOp::Append { file: file.key, at: file.size, bytes });
            file.size += piece.len() as u64;
        }
        Ok(self.writer.last())
    }

    /// Cuts it.
    pub fn truncate(&mut self, name: &str, size: u64) -> Result<u64, Refusal> {
        let Some(file) = self.files.get_mut(name).filter(|file| file.size > size) else {
            return Ok(self.writer.last());
        };
        self.writer.has_room(0, 2)?;
        file.size = size;
        let op = DiskOp::Truncate { file: file.key, size };
        Ok(self.name_op(op))
    }

    /// Gives it another name, over an existing file if there is one. One that is not mirrored under its new name is gone.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<u64, Refusal> {
        if !is_mirrored(to) {
            return self.remove(from);
        }
        if !self.files.contains_key(from) || from == to {
            return Ok(self.writer.last());
        }
        self.writer.has_room(0, 2)?;
        let Some(file) = self.files.remove(from) else { return Ok(self.writer.last()) };
        let displaced = self.files.insert(to.to_owned(), file).map(|file| file.key);
        let op = DiskOp::Rename { file: file.key, name: to.to_owned() };
        let number = self.writer.push_rename(op, displaced);
        Ok(self.count_name(number))
    }

    /// Removes it.
    pub fn remove(&mut self, name: &str) -> Result<u64, Refusal> {
        self.writer.has_room(0, 2)?;
        self.forget(name);
        Ok(self.writer.last())
    }

    /// Says what there is, so that what was said before can go.
    pub fn table(&mut self) -> Result<u64, Refusal> {
        self.writer.has_room(0, 1)?;
        Ok(self.push_table())
    }

    fn forget(&mut self, name: &str) {
        if let Some(file) = self.files.remove(name) {
            self.name_op(DiskOp::Remove { file: file.key });
        }
    }

    fn name_op(&mut self, op: DiskOp) -> u64 {
        let number = self.writer.push(op);
        self.count_name(number)
    }

    fn count_name(&mut self, number: u64) -> u64 {
        self.names_since_table += 1;
        if self.names_since_table >= NAMES_BETWEEN_TABLES {
            return self.push_table();
        }
        number
    }

    fn push_table(&mut self) -> u64 {
        self.names_since_table = 0;
        let entry = |(name, file): (&String, &File)| FileEntry { file: file.key, name: name.clone(), size: file.size };
        self.writer.push(DiskOp::Table { files: self.files.iter().map(entry).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::{Answer, WriterAct};
    use std::time::Duration;

    #[test]
    fn a_name_that_is_taken_over_is_one_operation() {
        let mut files = ReplicatedFiles::new(StreamWriter::new(1, 0), &[]);
        for name in ["snapshot-1.tide", "snapshot-1.tide.tmp"] {
            files.create(name).unwrap();
        }
        let before = files.writer.last();
        assert_eq!(files.rename("snapshot-1.tide.tmp", "snapshot-1.tide"), Ok(before + 1));
        let mut purged = None;
        loop {
            match files.writer.poll(Duration::ZERO) {
                WriterAct::Publish { number, attempt, .. } => {
                    files.writer.on_answer(number, attempt, Answer::Kept(number), Duration::ZERO);
                }
                WriterAct::Purge { subject, attempt, .. } => {
                    purged = Some(subject);
                    files.writer.on_purged(attempt, true);
                }
                _ => break,
            }
        }
        assert_eq!(purged, Some(crate::Subject::File(FileKey { epoch: 1, count: 0 })), "the one that had the name");
    }

    #[test]
    fn what_is_set_aside_is_gone_elsewhere() {
        let mut files = ReplicatedFiles::new(StreamWriter::new(1, 0), &[]);
        files.create("log-1.tide").unwrap();
        files.rename("log-1.tide", "log-1.tide.bad").unwrap();
        files.create("LOCK").unwrap();
        assert_eq!(files.names().count(), 0);
    }

    #[test]
    fn long_bytes_are_pieces() {
        let mut files = ReplicatedFiles::new(StreamWriter::new(1, 0), &[]);
        files.create("log-1.tide").unwrap();
        assert_eq!(files.append("log-1.tide", &vec![7; 2 * PIECE_BYTES_MAX + 1]), Ok(4));
        assert_eq!(files.size("log-1.tide"), Some(2 * PIECE_BYTES_MAX as u64 + 1));
    }
}
