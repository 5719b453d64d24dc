//! What a start does about its own folder and the stream: the one may be ahead of the other, behind it, or somebody else's.
//!
//! Acknowledged is what both have. After a crash either may have more: nobody was told of that, and it is kept. A folder
//! is a part of the lineage's story only if nobody has written since the process that it is from ([`Note`]).

use std::fmt;

use crate::names::NodeName;
use crate::replica::Replica;

/// What a folder says of itself: which cluster's, and written last by which epoch. The rim keeps it beside the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The cluster's own number.
    pub cluster: u64,
    /// The epoch.
    pub epoch: u64,
    /// The process that had opened it.
    pub incarnation: u64,
    /// The node it ran as.
    pub node: NodeName,
}

/// A note that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteError;

impl fmt::Display for NoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot be understood; a newer release may have written it")
    }
}

impl std::error::Error for NoteError {}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, epoch, incarnation, node } = self;
        writeln!(f, "tidegate-cluster 1 {cluster:016x} {epoch} {incarnation:016x} {node}")
    }
}

impl std::str::FromStr for Note {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let ["tidegate-cluster", "1", cluster, epoch, incarnation, node] = words[..] else { return Err(NoteError) };
        let hex = |text| u64::from_str_radix(text, 16).map_err(|_| NoteError);
        let epoch = epoch.parse().map_err(|_| NoteError)?;
        let node = node.parse().map_err(|_| NoteError)?;
        Ok(Self { cluster: hex(cluster)?, epoch, incarnation: hex(incarnation)?, node })
    }
}

/// What to do with the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no lineage yet: the folder, empty or not, is its beginning.
    Begin,
    /// Nobody has written since: file by file, whoever has more ([`mend`]).
    Continue,
    /// Others have gone on: the stream is what counts, and the folder is set aside.
    Adopt,
    /// The folder is another cluster's.
    OtherCluster,
    /// The folder has a store, and it is no cluster's.
    NotOurs,
    /// The folder is of a cluster of which the engine knows nothing.
    StreamGone,
}

/// Judges a folder. `has_files`: whether it has any of a log.
pub fn judge(note: Option<&Note>, has_files: bool, replica: &Replica) -> Verdict {
    let Some((_, opening)) = replica.opening() else {
        return if note.is_some() { Verdict::StreamGone } else { Verdict::Begin };
    };
    let Some(note) = note else { return if has_files { Verdict::NotOurs } else { Verdict::Adopt } };
    if note.cluster != opening.cluster {
        return Verdict::OtherCluster;
    }
    let (epoch, incarnation) = replica.last_writer();
    let is_last = note.epoch > epoch || (note.epoch == epoch && note.incarnation == incarnation);
    if is_last { Verdict::Continue } else { Verdict::Adopt }
}

/// What to do with one file of a folder that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mending {
    /// Nothing.
    Same,
    /// The stream gets what it lacks of it: from this byte on.
    Send(u64),
    /// The stream gets all of it; it has none.
    SendWhole,
    /// The folder gets the stream's.
    Take,
}

/// Compares the sizes of a file that is here, there or both. `agrees`: whether the bytes that both have are the same; if they
/// are not, own ones are damaged, for those of the stream have checksums.
pub fn mend(own: Option<u64>, stream: Option<u64>, agrees: bool) -> Mending {
    match (own, stream) {
        (Some(_), None) => Mending::SendWhole,
        (None, Some(_)) => Mending::Take,
        (Some(_), Some(_)) if !agrees => Mending::Take,
        (Some(own), Some(stream)) if own > stream => Mending::Send(stream),
        (Some(own), Some(stream)) if own < stream => Mending::Take,
        (None, None) | (Some(_), Some(_)) => Mending::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{DiskOp, Entry, Opening};

    fn replica(epochs: &[(u64, u64, bool)]) -> Replica {
        let (mut replica, mut sequence) = (Replica::default(), 0);
        for &(epoch, incarnation, writes) in epochs {
            let open = DiskOp::Open(Opening { node: "a".parse().unwrap(), incarnation, cluster: 7 });
            let table = writes.then_some(DiskOp::Table { files: Vec::new() });
            for op in [open].into_iter().chain(table) {
                sequence += 1;
                replica.apply(sequence, Entry { epoch, number: 0, op }).unwrap();
            }
        }
        replica
    }

    fn note(epoch: u64, incarnation: u64) -> Note {
        Note { cluster: 7, epoch, incarnation, node: "a".parse().unwrap() }
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_nothing_else_is() {
        let note = note(3, u64::MAX);
        assert_eq!(note.to_string().parse(), Ok(note.clone()));
        for bad in ["", "tidegate-cluster 2 1 1 1 a", "tidegate-cluster 1 x 1 1 a", "tidegate-cluster 1 1 1 1 A"] {
            assert_eq!(bad.parse::<Note>(), Err(NoteError), "{bad}");
        }
    }

    #[test]
    fn a_folder_goes_on_only_if_nobody_has_written_since() {
        let told = |epochs: &[_], note: &Note| judge(Some(note), true, &replica(epochs));
        assert_eq!(told(&[(1, 5, true)], &note(1, 5)), Verdict::Continue);
        assert_eq!(told(&[(1, 5, true), (2, 6, false)], &note(1, 5)), Verdict::Continue, "opened, and nothing written");
        assert_eq!(told(&[(1, 5, true), (2, 6, true)], &note(1, 5)), Verdict::Adopt);
        assert_eq!(told(&[(1, 5, true)], &note(2, 6)), Verdict::Continue, "noted, and nothing written");
        assert_eq!(told(&[(1, 5, true)], &note(1, 6)), Verdict::Adopt, "another's epoch of the same number");
        assert_eq!(told(&[(1, 5, true)], &Note { cluster: 8, ..note(1, 5) }), Verdict::OtherCluster);
        assert_eq!(told(&[], &note(1, 5)), Verdict::StreamGone);
        assert_eq!(judge(None, true, &replica(&[])), Verdict::Begin);
        assert_eq!(judge(None, true, &replica(&[(1, 5, true)])), Verdict::NotOurs);
        assert_eq!(judge(None, false, &replica(&[(1, 5, true)])), Verdict::Adopt);
    }

    #[test]
    fn whoever_has_more_of_a_file_gives() {
        assert_eq!(mend(Some(9), Some(4), true), Mending::Send(4));
        assert_eq!(mend(Some(4), Some(9), true), Mending::Take);
        assert_eq!(mend(Some(9), Some(4), false), Mending::Take);
        assert_eq!(mend(Some(4), None, true), Mending::SendWhole);
        assert_eq!(mend(None, Some(4), true), Mending::Take);
        assert_eq!(mend(Some(4), Some(4), true), Mending::Same);
    }
}
