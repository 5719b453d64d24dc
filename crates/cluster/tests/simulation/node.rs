//! A node: the crate's machines, folders of its own that lose what was not synced, and records of eight bytes that it
//! acknowledges when they are kept in both places. A record of the smart space has its version in its upper half.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_cluster::limits::{LOOK_INTERVAL, RENEW_INTERVAL};
use tidegate_cluster::{
    Answer, Change, Decision, DiskOp, Ending, Entry, FileKey, Folder, Lease, LeaseWatch, Mending, NodeName, Note,
    Opening, Replica, ReplicatedFiles, StreamWriter, Verdict, WriterAct, judge, mend,
};

use super::twin::{Reply, Request};

/// A file of the folder; what is behind `synced` may be lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) synced: usize,
}

/// The version of the smart space that a record makes; 0 of one of the store's.
pub(crate) fn version_of(record: u64) -> u32 {
    (record >> 32) as u32
}

#[derive(Debug)]
enum Phase {
    /// Looks at others.
    StandsBy,
    /// The lineage is its own; it reads what there is.
    Reads {
        opened_at: u64,
        epoch: u64,
        opening: Opening,
    },
    Owns {
        files: Box<ReplicatedFiles>,
        ready_at: u64,
        is_ready: bool,
    },
}

/// What came of a step.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) requests: Vec<Request>,
    /// Records that clients were told to be kept, with the operation that says so.
    pub(crate) acknowledged: Vec<(u64, (u64, u64))>,
    /// It serves from now on, with these records.
    pub(crate) began: Option<BTreeSet<u64>>,
    /// The process ends, and comes again.
    pub(crate) ended: Option<Ending>,
    pub(crate) doubted: bool,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) incarnation: u64,
    pub(crate) folder: BTreeMap<String, OwnFile>,
    pub(crate) note: Option<Note>,
    phase: Phase,
    watch: LeaseWatch,
    replica: Replica,
    copy: BTreeMap<FileKey, Vec<u8>>,
    renewed_at: Option<Duration>,
    /// Records, the file and size that holds them, and the operation they wait for.
    owed: Vec<(u64, String, usize, u64)>,
    /// Of the smart space, since it serves.
    version: u32,
}

impl Node {
    pub(crate) fn new(name: &str, incarnation: u64) -> Self {
        let name: NodeName = name.parse().unwrap();
        Self {
            watch: LeaseWatch::new(name.clone(), incarnation),
            name,
            incarnation,
            folder: BTreeMap::new(),
            note: None,
            phase: Phase::StandsBy,
            replica: Replica::default(),
            copy: BTreeMap::new(),
            renewed_at: None,
            owed: Vec::new(),
            version: 0,
        }
    }

    /// The same node as another process, with what its folder has.
    pub(crate) fn reborn(&self, incarnation: u64) -> Self {
        let mut node = Self::new(self.name.as_str(), incarnation);
        node.folder.clone_from(&self.folder);
        node.note.clone_from(&self.note);
        node
    }

    fn epoch(&self) -> u64 {
        if let Phase::Owns { files, .. } = &self.phase { files.writer.epoch() } else { 0 }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Owns { is_ready: true, .. })
    }

    /// Twice a second.
    pub(crate) fn on_tick(&mut self, now: Duration) -> Step {
        let mut step = Step::default();
        step.requests.push(Request::Look);
        if self.renewed_at.is_none_or(|at| now >= at + RENEW_INTERVAL) && self.is_named(now) {
            self.renewed_at = Some(now);
            let lease =
                Lease { incarnation: self.incarnation, epoch: self.epoch(), has_left: false, address: String::new() };
            step.requests.push(Request::Renew { lease });
        }
        if let Phase::Reads { .. } = self.phase {
            step.requests.push(Request::Read { behind: self.replica.sequence() });
        }
        self.pump(now, &mut step);
        step
    }

    /// Whether the name is free: asked before it is said to be ours.
    fn is_named(&self, now: Duration) -> bool {
        self.renewed_at.is_some() || self.watch.decide(now, None) == Decision::Adopt
    }

    pub(crate) fn on_reply(&mut self, reply: Reply, now: Duration) -> Step {
        let mut step = Step::default();
        match reply {
            Reply::Table { leases, owner } => self.on_table(leases, owner, now, &mut step),
            Reply::Messages(messages) => self.on_messages(messages, &mut step),
            Reply::Taken { number, attempt, at } => {
                let answer = at.map_or(Answer::WrongLast, Answer::Kept);
                self.with_files(|files| files.writer.on_answer(number, attempt, answer, now));
            }
            Reply::Last { attempt, last } => self.with_files(|files| files.writer.on_probe(attempt, last, now)),
            Reply::Purged { attempt } => self.with_files(|files| files.writer.on_purged(attempt, true)),
        }
        self.pump(now, &mut step);
        step
    }

    /// No answer came in time.
    pub(crate) fn on_silence(&mut self, request: &Request, now: Duration) -> Step {
        let mut step = Step::default();
        self.with_files(|files| match *request {
            Request::Publish { number, attempt, .. } => files.writer.on_answer(number, attempt, Answer::Maybe, now),
            Request::Probe { attempt } => files.writer.on_probe(attempt, None, now),
            Request::Purge { attempt, .. } => files.writer.on_purged(attempt, false),
            _ => {}
        });
        self.pump(now, &mut step);
        step
    }

    fn with_files(&mut self, then: impl FnOnce(&mut ReplicatedFiles)) {
        if let Phase::Owns { files, .. } = &mut self.phase {
            then(files);
        }
    }

    fn on_table(
        &mut self,
        leases: Vec<(NodeName, u64, Lease)>,
        owner: Option<(u64, u64, Opening)>,
        now: Duration,
        step: &mut Step,
    ) {
        self.watch.on_reading(now, leases);
        let (at, epoch) = owner.as_ref().map_or((0, 0), |(at, epoch, _)| (*at, *epoch));
        let opening = owner.map(|(.., opening)| opening);
        match &mut self.phase {
            Phase::Owns { files, .. } => files.writer.fence(epoch),
            Phase::Reads { epoch: own, .. } if epoch > *own => step.ended = Some(Ending::Fenced { by: epoch }),
            Phase::Reads { .. } => {}
            Phase::StandsBy => {
                if let Some(opening) = opening.clone().filter(|opening| opening.incarnation == self.incarnation) {
                    self.phase = Phase::Reads { opened_at: at, epoch, opening };
                    return;
                }
                if self.watch.decide(now, opening.as_ref()) == Decision::Adopt {
                    // An engine that has forgotten everything: an operator decides that, here it is the last owner.
                    let noted = self.note.as_ref().map_or(self.incarnation, |note| note.cluster);
                    let cluster = opening.map_or(noted, |opening| opening.cluster);
                    let opening = Opening { node: self.name.clone(), incarnation: self.incarnation, cluster };
                    let epoch = epoch.max(self.note.as_ref().map_or(0, |note| note.epoch)) + 1;
                    let message = Entry { epoch, number: 0, op: DiskOp::Open(opening) }.encode();
                    step.requests.push(Request::Open { message, expected_owner: at });
                }
            }
        }
    }

    fn on_messages(&mut self, messages: Vec<(u64, bytes::Bytes)>, step: &mut Step) {
        let Phase::Reads { opened_at, epoch, opening } = &self.phase else { return };
        let (opened_at, epoch, opening) = (*opened_at, *epoch, opening.clone());
        for (sequence, message) in messages {
            if sequence <= self.replica.sequence() || sequence > opened_at {
                continue;
            }
            for change in self.replica.apply(sequence, Entry::decode(&message).unwrap()).unwrap() {
                match change {
                    Change::Append(file, bytes) => self.copy.entry(file).or_default().extend(bytes),
                    Change::Truncate(file, size) => self.copy.get_mut(&file).unwrap().truncate(size as usize),
                    Change::Remove(file) => drop(self.copy.remove(&file)),
                }
            }
        }
        if self.replica.sequence() == opened_at {
            self.begin(opened_at, epoch, &opening);
        } else {
            step.requests.push(Request::Read { behind: self.replica.sequence() });
        }
    }

    /// Everything was read: the folder is made what counts, and the stream is given what it lacks.
    fn begin(&mut self, opened_at: u64, epoch: u64, opening: &Opening) {
        // The opening at the end is this one; who was there before it decides.
        let verdict = judge(self.note.as_ref(), !self.folder.is_empty(), &self.replica);
        let copied = self.replica.finish();
        let mut copy: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for entry in &copied.files {
            copy.insert(entry.name.clone(), self.copy.remove(&entry.file).unwrap_or_default());
        }
        let is_first = self.replica.last_writer().0 == 0 && self.note.is_none();
        match verdict {
            Verdict::Adopt if !is_first => {
                copied.whole().unwrap();
                self.folder.clear();
            }
            Verdict::Continue | Verdict::Adopt => {}
            other => panic!("{other:?}"),
        }
        let mut files = ReplicatedFiles::new(StreamWriter::new(epoch, opened_at), &copied.files);
        for key in copied.loose.iter().copied().chain(copied.holey.iter().map(|(key, _)| *key)) {
            files.writer.drop_file(key);
        }
        let names: BTreeSet<String> = self.folder.keys().chain(copy.keys()).cloned().collect();
        for name in names {
            let (own, stream) = (self.folder.get(&name).map(|file| file.bytes.clone()), copy.remove(&name));
            let sizes = [&own, &stream].map(|bytes| bytes.as_ref().map(|bytes| bytes.len() as u64));
            let agrees = own.iter().zip(&stream).all(|(own, stream)| own.iter().zip(stream).all(|(a, b)| a == b));
            match mend(sizes[0], sizes[1], agrees) {
                Mending::Same => {}
                Mending::Send(from) => drop(files.append(&name, &own.unwrap_or_default()[from as usize..]).unwrap()),
                Mending::SendWhole => {
                    files.create(&name).unwrap();
                    files.append(&name, &own.unwrap_or_default()).unwrap();
                }
                Mending::Take => {
                    let bytes = stream.unwrap_or_default();
                    self.folder.insert(name, OwnFile { synced: bytes.len(), bytes });
                }
            }
        }
        for file in self.folder.values_mut() {
            file.synced = file.bytes.len();
        }
        let (cluster, incarnation) = (opening.cluster, self.incarnation);
        self.note = Some(Note { cluster, epoch, incarnation, node: self.name.clone() });
        let ready_at = files.table().unwrap();
        self.phase = Phase::Owns { files: Box::new(files), ready_at, is_ready: false };
    }

    pub(crate) fn records(&self) -> BTreeSet<u64> {
        Folder::LOGS.iter().flat_map(|folder| self.records_of(*folder)).collect()
    }

    fn records_of(&self, folder: Folder) -> BTreeSet<u64> {
        let is_finished = |name: &str| Folder::of(name).0 == folder && name.strip_suffix(".tmp").is_none();
        let files = self.folder.iter().filter(|(name, _)| is_finished(name));
        let words = files.flat_map(|(_, file)| file.bytes.chunks_exact(8));
        words.map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    /// A client's record: into a folder and on its way to the stream. It is acknowledged later, or never.
    pub(crate) fn write(&mut self, folder: Folder, content: u32, now: Duration) -> Step {
        let mut step = Step::default();
        let version = match folder {
            Folder::Space => self.version + 1,
            _ => 0,
        };
        let record = u64::from(version) << 32 | u64::from(content);
        let Phase::Owns { files, is_ready: true, .. } = &mut self.phase else { return step };
        let name = folder.name(&format!("log-{}.tide", files.writer.epoch()));
        if !self.folder.contains_key(&name) && files.create(&name).is_ok() {
            self.folder.insert(name.clone(), OwnFile::default());
        }
        let bytes = record.to_le_bytes();
        if let (Ok(number), Some(file)) = (files.append(&name, &bytes), self.folder.get_mut(&name)) {
            file.bytes.extend(bytes);
            self.owed.push((record, name, file.bytes.len(), number));
            self.version = self.version.max(version);
        }
        self.pump(now, &mut step);
        step
    }

    /// Everything of a folder into one new file, and the others go; all at once, and without waiting for the stream.
    pub(crate) fn compact(&mut self, folder: Folder, now: Duration) -> Step {
        let (mut step, records) = (Step::default(), self.records_of(folder));
        let Phase::Owns { files, is_ready: true, .. } = &mut self.phase else { return step };
        let name = folder.name(&format!("snapshot-{}-{}.tide", files.writer.epoch(), records.len()));
        let temporary = format!("{name}.tmp");
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.to_le_bytes()).collect();
        let current = folder.name(&format!("log-{}.tide", files.writer.epoch()));
        let is_old = |old: &&String| Folder::of(old).0 == folder && **old != name && **old != current;
        let olds: Vec<String> = self.folder.keys().filter(is_old).cloned().collect();
        let is_written = files.create(&temporary).is_ok()
            && files.append(&temporary, &bytes).is_ok()
            && files.rename(&temporary, &name).is_ok();
        if is_written {
            self.folder.insert(name, OwnFile { synced: bytes.len(), bytes });
            for old in olds {
                if files.remove(&old).is_ok() {
                    self.folder.remove(&old);
                }
            }
        }
        self.pump(now, &mut step);
        step
    }

    /// The folder's files are on their medium.
    pub(crate) fn on_synced(&mut self, now: Duration) -> Step {
        for file in self.folder.values_mut() {
            file.synced = file.bytes.len();
        }
        let mut step = Step::default();
        self.pump(now, &mut step);
        step
    }

    fn pump(&mut self, now: Duration, step: &mut Step) {
        let Phase::Owns { files, ready_at, is_ready } = &mut self.phase else { return };
        loop {
            match files.writer.poll(now) {
                WriterAct::Publish { subject, message, expected_last, number, attempt } => {
                    step.requests.push(Request::Publish { subject, message, expected_last, number, attempt });
                }
                WriterAct::Probe { attempt } => {
                    step.doubted = true;
                    step.requests.push(Request::Probe { attempt });
                }
                WriterAct::Purge { subject, below, attempt } => {
                    step.requests.push(Request::Purge { subject, below, attempt });
                }
                WriterAct::Wait(_) | WriterAct::Idle => break,
            }
        }
        step.ended = step.ended.or(files.writer.ending());
        let (kept, epoch) = (files.writer.kept(), files.writer.epoch());
        let begins = kept >= *ready_at && !*is_ready;
        *is_ready |= begins;
        let folder = &self.folder;
        self.owed.retain(|(record, name, size, number)| {
            let is_synced = folder.get(name).is_none_or(|file| file.synced >= *size);
            let is_kept = is_synced && *number <= kept;
            if is_kept {
                step.acknowledged.push((*record, (epoch, *number)));
            }
            !is_kept
        });
        if begins {
            let records = self.records();
            self.version = records.last().map_or(0, |record| version_of(*record));
            step.began = Some(records);
        }
    }
}

/// How often a node looks.
pub(crate) const TICK: Duration = LOOK_INTERVAL;
