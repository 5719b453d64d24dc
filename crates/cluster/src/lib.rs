#![doc = include_str!("../README.md")]

pub mod limits;

mod compare;
mod entry;
mod files;
mod folder;
mod names;
mod replica;
mod watch;
mod writer;

pub use compare::{Mending, Note, NoteError, Verdict, judge, mend};
pub use entry::{DiskOp, Entry, EntryError, FileEntry, FileKey, Opening};
pub use files::ReplicatedFiles;
pub use folder::{ACCESS_FILES, Folder};
pub use names::{BadName, ClusterName, NodeName, Subject, Subjects};
pub use replica::{Change, Copied, Replica, ReplicaError};
pub use watch::{Decision, Lease, LeaseWatch, Seen};
pub use writer::{Answer, Ending, ProbeAnswer, Refusal, StreamWriter, WriterAct};
