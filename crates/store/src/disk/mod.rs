//! The seam between the log and the machine: a flat directory of files that grow at their end.
//!
//! It lies below the log and not above it, so that the simulator runs the very same log, recovery and compaction as the
//! field, on a disk that fails by seed ([`sim`]), and only these few calls exist twice.

mod fs;
mod mirrored;
pub mod sim;

use std::io;
use std::time::Duration;

pub use fs::{FsDisk, FsFiles, create_private_dir, narrow_dir};
pub use mirrored::{Mirror, MirrorChange, MirroredDisk};

/// The file system that a directory is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Bytes that we may still write.
    pub free: u64,
    /// Bytes of all of it.
    pub total: u64,
}

/// Files that can be read.
pub trait Files {
    /// Reads up to `into.len()` bytes; fewer only at the end of the file.
    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Bytes of the file.
    fn size(&mut self, name: &str) -> io::Result<u64>;
}

/// A directory of one owner.
pub trait Disk: Files + Sized {
    /// Names of all files.
    fn list(&mut self) -> io::Result<Vec<String>>;
    /// A new, empty file; an error if there is one with this name.
    fn create(&mut self, name: &str) -> io::Result<()>;
    /// Writes at the end. After an error any part of it may be there.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Returns when everything in the file is on the medium.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Returns when creations, renames and removals are on the medium.
    fn sync_names(&mut self) -> io::Result<()>;
    /// Cuts the file.
    fn truncate(&mut self, name: &str, size: u64) -> io::Result<()>;
    /// Renames, over an existing file if there is one.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes the file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Writes over a few bytes of a small file, which is made if it is missing, and does not wait for the medium. After a
    /// crash any of these bytes may be the old ones.
    fn note(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes a file that takes so many bytes of the medium, which are free again when it is removed.
    fn reserve(&mut self, name: &str, bytes: u64) -> io::Result<()>;
    /// What the file system has room for; None if that is not known.
    fn partition(&self) -> Option<Partition>;
    /// No more writes will come for this file.
    fn close(&mut self, name: &str);
    /// A number that nobody outside can guess; the salt of a new file.
    fn salt(&mut self) -> u32;
    /// Time since some moment; for measuring only.
    fn clock(&self) -> Duration;
    /// The same directory once more, for a thread beside the owner's.
    fn again(&self) -> io::Result<Self>;
    /// What operators call this place.
    fn place(&self) -> String;
}
