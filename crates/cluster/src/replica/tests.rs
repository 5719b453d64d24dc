use super::*;
use crate::files::ReplicatedFiles;
use crate::writer::{Answer, StreamWriter, WriterAct};
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Operation {
    Create(u8),
    Append(u8, u16),
    Truncate(u8, u16),
    Rename(u8, u8),
    Remove(u8),
    Table,
}

fn operation() -> impl Strategy<Value = Operation> {
    let name = || 0..6_u8;
    prop_oneof![
        name().prop_map(Operation::Create),
        (name(), 0..900_u16).prop_map(|(name, len)| Operation::Append(name, len)),
        (name(), 0..900_u16).prop_map(|(name, size)| Operation::Truncate(name, size)),
        (name(), name()).prop_map(|(from, to)| Operation::Rename(from, to)),
        name().prop_map(Operation::Remove),
        Just(Operation::Table),
    ]
}

fn text(name: u8) -> String {
    format!("log-{name}.tide")
}

/// Does it to the model and to the stream's writer.
fn apply(operation: &Operation, model: &mut BTreeMap<String, Vec<u8>>, files: &mut ReplicatedFiles, salt: u8) {
    let done = match *operation {
        Operation::Create(name) => {
            model.insert(text(name), Vec::new());
            files.create(&text(name))
        }
        Operation::Append(name, len) => {
            let bytes = vec![salt; usize::from(len)];
            if let Some(file) = model.get_mut(&text(name)) {
                file.extend(&bytes);
            }
            files.append(&text(name), &bytes)
        }
        Operation::Truncate(name, size) => {
            if let Some(file) = model.get_mut(&text(name)) {
                file.truncate(usize::from(size));
            }
            files.truncate(&text(name), u64::from(size))
        }
        Operation::Rename(from, to) => {
            if let Some(file) = model.remove(&text(from)) {
                model.insert(text(to), file);
            }
            files.rename(&text(from), &text(to))
        }
        Operation::Remove(name) => {
            model.remove(&text(name));
            files.remove(&text(name))
        }
        Operation::Table => files.table(),
    };
    assert!(done.is_ok());
}

/// A stream that takes everything and throws away what it is told to.
fn drain(files: &mut ReplicatedFiles, stream: &mut BTreeMap<u64, (crate::Subject, Bytes)>, purges: bool) {
    loop {
        match files.writer.poll(Duration::ZERO) {
            WriterAct::Publish { subject, message, expected_last, number, attempt } => {
                stream.insert(expected_last + 1, (subject, message));
                files.writer.on_answer(number, attempt, Answer::Kept(expected_last + 1), Duration::ZERO);
            }
            WriterAct::Purge { subject, below, attempt } => {
                let is_gone = |at: u64, of| of == subject && below.is_none_or(|below| at < below);
                stream.retain(|at, (of, _)| !purges || !is_gone(*at, *of));
                files.writer.on_purged(attempt, true);
            }
            _ => return,
        }
    }
}

proptest! {
    #[test]
    fn a_copy_is_what_was_done_whatever_was_thrown_away(
        operations in prop::collection::vec((operation(), any::<bool>()), 0..200),
    ) {
        let mut files = ReplicatedFiles::new(StreamWriter::new(1, 1), &[]);
        let (mut model, mut stream) = (BTreeMap::new(), BTreeMap::new());
        for (index, (operation, purges)) in operations.iter().enumerate() {
            apply(operation, &mut model, &mut files, index as u8);
            drain(&mut files, &mut stream, *purges);
        }
        let (mut replica, mut copy) = (Replica::default(), BTreeMap::<FileKey, Vec<u8>>::new());
        for (sequence, (_, message)) in stream {
            for change in replica.apply(sequence, Entry::decode(&message).unwrap()).unwrap() {
                match change {
                    Change::Append(file, bytes) => copy.entry(file).or_default().extend(bytes),
                    Change::Truncate(file, size) => copy.get_mut(&file).unwrap().truncate(size as usize),
                    Change::Remove(file) => drop(copy.remove(&file)),
                }
            }
        }
        let copied = replica.finish();
        let read: BTreeMap<String, Vec<u8>> = copied
            .whole()
            .unwrap()
            .iter()
            .map(|FileEntry { file, name, size }| {
                let bytes = copy.remove(file).unwrap_or_default();
                assert_eq!(bytes.len() as u64, *size);
                (name.clone(), bytes)
            })
            .collect();
        prop_assert_eq!(read, model);
    }
}

#[test]
fn what_comes_from_an_epoch_that_was_over_is_no_copy() {
    let open = |epoch, incarnation| {
        let node = "a".parse().unwrap();
        Entry { epoch, number: 0, op: DiskOp::Open(Opening { node, incarnation, cluster: 9 }) }
    };
    let mut replica = Replica::default();
    replica.apply(1, open(1, 5)).unwrap();
    replica.apply(2, open(2, 6)).unwrap();
    let late = Entry { epoch: 1, number: 1, op: DiskOp::Table { files: Vec::new() } };
    assert_eq!(replica.apply(3, late), Err(ReplicaError::OldEpoch { epoch: 1, current: 2 }));
    assert_eq!(replica.apply(2, open(3, 7)), Err(ReplicaError::Order { sequence: 2 }));
}

#[test]
fn a_file_that_counts_and_is_not_whole_is_an_error() {
    let file = FileKey { epoch: 1, count: 0 };
    let mut replica = Replica::default();
    let bytes = Bytes::from_static(b"behind the hole");
    replica.apply(7, Entry { epoch: 1, number: 7, op: DiskOp::Append { file, at: 10, bytes } }).unwrap();
    assert_eq!(replica.finish().whole(), Err(ReplicaError::Nameless));
    let files = vec![FileEntry { file, name: "log-1.tide".into(), size: 25 }];
    replica.apply(8, Entry { epoch: 1, number: 8, op: DiskOp::Table { files } }).unwrap();
    assert_eq!(replica.finish().whole(), Err(ReplicaError::Hole { name: "log-1.tide".into() }));
}
