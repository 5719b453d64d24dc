#![doc = include_str!("../README.md")]

pub mod limits;

mod compare;
mod entry;
mod files;
mod folder;
mod handover;
mod names;
mod replica;
mod watch;
mod writer;

pub use compare::{Mending, Note, NoteError, Verdict, judge, mend};
pub use entry::{DiskOp, Entry, EntryError, FileEntry, FileKey, Opening};
pub use files::ReplicatedFiles;
pub use folder::{ACCESS_FILES, Folder};
pub use handover::{HandOver, Reason};
pub use names::{BadName, ClusterName, NodeName, Subject, Subjects};
pub use replica::{Change, Copied, Replica, ReplicaError};
pub use watch::{Decision, Lease, LeaseWatch, Seen, is_one_process, next_incarnation};
pub use writer::{Answer, Ending, ProbeAnswer, Refusal, StreamWriter, WriterAct};
