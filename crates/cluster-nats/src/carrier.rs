//! A node that carries a lineage: a thread that sends what the store writes, says every two seconds that the node is there, and looks
//! whether it is still the owner.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tidegate_cluster::limits::{LOOK_INTERVAL, PIECE_BYTES_MAX, RENEW_INTERVAL};
use tidegate_cluster::{Copied, Ending, Folder, HandOver, Lease, NodeName, ReplicatedFiles, StreamWriter};
use tidegate_store::disk::{Mirror, MirrorChange};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::engine::{ClusterError, Engine};
use crate::folder::{Folders, Lack, is_of_log};
use crate::follower::at;
use crate::mirror::{FolderMirror, NatsMirror};
use crate::standby::{Membership, attend};

/// The lineage of this node, for as long as nobody else carries it on.
#[derive(Debug)]
pub struct Carrier {
    mirror: Arc<NatsMirror>,
    epoch: u64,
    handover: HandOver,
    farewell: Arc<Farewell>,
    thread: Option<JoinHandle<()>>,
}

/// How a carrier stands with the engine: what it has written and the engine does not keep yet, and whether it is heard at all.
#[derive(Clone, Debug)]
pub struct Lag(Arc<NatsMirror>);

impl Lag {
    /// Whether the engine has confirmed lately that this node has the lineage. While it has not, nobody is told anything.
    pub fn holds(&self) -> bool {
        self.0.holds()
    }

    /// Operations of the disk.
    pub fn waiting(&self) -> u64 {
        let files = self.0.files();
        files.writer.last().saturating_sub(files.writer.kept())
    }
}

/// How it ends.
#[derive(Debug, Default)]
struct Farewell {
    stop: Notify,
    /// Others are told that nobody has to wait.
    is_said: AtomicBool,
}

impl Carrier {
    /// Gives the stream what it lacks; the store may be opened when this returns. None if `is_stopping` said so before: others are told.
    pub(crate) fn start(
        runtime: Runtime,
        engine: Engine,
        membership: &Membership,
        (handover, opened_at): (HandOver, u64),
        (copied, lacks): (&Copied, Vec<Lack>),
        is_stopping: &dyn Fn() -> bool,
        on_end: impl FnOnce(Ending) + Send + 'static,
    ) -> Result<Option<Self>, ClusterError> {
        let epoch = handover.epoch;
        let mut files = ReplicatedFiles::new(StreamWriter::new(epoch, opened_at), &copied.files);
        for key in copied.loose.iter().copied().chain(copied.holey.iter().map(|(key, _)| *key)) {
            files.writer.drop_file(key);
        }
        let mirror = Arc::new(NatsMirror::new(files));
        let farewell = Arc::new(Farewell::default());
        let lease =
            Lease { incarnation: membership.incarnation, epoch, has_left: false, address: membership.address.clone() };
        let beside = membership.engine.beside.clone();
        let beat = Beat {
            engine: engine.clone(),
            node: membership.node.clone(),
            lease,
            handover: handover.clone(),
            mirror: Arc::clone(&mirror),
        };
        let (pump, goodbye) = (Arc::clone(&mirror), Arc::clone(&farewell));
        let run = move || {
            let ending = runtime.block_on(async move {
                if let Some(server) = beside {
                    engine.bring_near(&server).await;
                }
                tokio::select! {
                    ending = pump.pump(engine) => Some(ending),
                    () = beat.go_on() => None,
                    () = goodbye.stop.notified() => {
                        if goodbye.is_said.load(Ordering::Relaxed) {
                            beat.leave().await;
                        }
                        None
                    }
                }
            });
            if let Some(ending) = ending {
                on_end(ending);
            }
        };
        let thread = std::thread::Builder::new().name("cluster".to_owned()).spawn(run);
        let thread = thread.map_err(|source| ClusterError::Io { what: "cannot start a thread".to_owned(), source })?;
        let carrier = Self { mirror, epoch, handover, farewell, thread: Some(thread) };
        let folders = Folders::new(membership);
        let completed = attend(is_stopping, || {}, |told| carrier.complete(&folders, lacks, told));
        match completed {
            Ok(true) => Ok(Some(carrier)),
            Ok(false) => {
                carrier.leave();
                Ok(None)
            }
            Err(error) => {
                // Its thread would go on saying that this node has the lineage.
                carrier.abandon();
                Err(at("bring to the engine what is in", &membership.store)(error))
            }
        }
    }

    /// False if it was told to stop. Where whole files are missing there it does not stop before they are there: what is there could be a part of
    /// a store that has never been there, and whoever is handed it would carry on with that part.
    fn complete(&self, folders: &Folders, lacks: Vec<Lack>, told: &AtomicBool) -> io::Result<bool> {
        let unfinished: Vec<String> = {
            let files = self.mirror.files();
            let is_unfinished = |name: &&str| match folders.place(name) {
                Some(own) => !is_of_log(name) && !own.exists(),
                None => name.strip_suffix(".tmp").is_some(),
            };
            files.names().filter(is_unfinished).map(str::to_owned).collect()
        };
        for name in unfinished {
            self.mirror.push(MirrorChange::Remove(&name), true)?;
        }
        let mut piece = vec![0; PIECE_BYTES_MAX];
        let may_stop = lacks.iter().all(|(_, from)| from.is_some());
        for (name, from) in lacks {
            if from.is_none() {
                self.mirror.push(MirrorChange::Create(&name), false)?;
            }
            let Some(own) = folders.place(&name) else { continue };
            let mut file = File::open(own)?;
            // It counts from now on: it has to be on the medium, which nobody knows of an end that a crash has left.
            file.sync_all()?;
            file.seek(SeekFrom::Start(from.unwrap_or(0)))?;
            loop {
                let len = file.read(&mut piece)?;
                if len == 0 {
                    break;
                }
                if may_stop && told.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                self.mirror.push(MirrorChange::Append(&name, &piece[..len]), false)?;
            }
        }
        let number = self.mirror.table()?;
        self.mirror.wait(number)?;
        Ok(!told.load(Ordering::Relaxed))
    }

    /// What the store's disk is mirrored by.
    pub fn mirror(&self) -> Arc<dyn Mirror> {
        Arc::clone(&self.mirror) as Arc<dyn Mirror>
    }

    /// What the smart space's disk is mirrored by: the same stream, behind the same opening.
    pub fn space_mirror(&self) -> Arc<dyn Mirror> {
        Arc::new(FolderMirror { folder: Folder::Space, mirror: Arc::clone(&self.mirror) })
    }

    /// Brings one of the files that say who may come in to the stream, or that there is none; it is kept when this returns. `name` is
    /// that of an [`AccessFile`](crate::AccessFile).
    pub fn keep_access(&self, name: &str, content: Option<&[u8]>) -> io::Result<()> {
        let access = FolderMirror { folder: Folder::Access, mirror: Arc::clone(&self.mirror) };
        let number = match content {
            Some(bytes) => {
                // Whole, or as it was.
                let draft = format!("{name}.tmp");
                access.push(MirrorChange::Create(&draft), false)?;
                access.push(MirrorChange::Append(&draft, bytes), false)?;
                access.push(MirrorChange::Rename(&draft, name), false)?
            }
            None => access.push(MirrorChange::Remove(name), false)?,
        };
        access.wait(number)
    }

    /// What waits for the engine, for whoever shows it.
    pub fn lag(&self) -> Lag {
        Lag(Arc::clone(&self.mirror))
    }

    /// Its epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whose the lineage was before, and why it is this node's.
    pub fn handover(&self) -> &HandOver {
        &self.handover
    }

    /// Why it is over, if it is.
    pub fn ending(&self) -> Option<Ending> {
        self.mirror.ending()
    }

    /// The store is closed: another node may carry the lineage on at once.
    pub fn leave(self) {
        self.farewell.is_said.store(true, Ordering::Relaxed);
        self.abandon();
    }

    /// Ends as if the process had been killed: others find out.
    pub fn abandon(mut self) {
        self.farewell.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Says that the node is there, and looks whether it is still the owner.
struct Beat {
    engine: Engine,
    node: NodeName,
    lease: Lease,
    /// For who asks later.
    handover: HandOver,
    mirror: Arc<NatsMirror>,
}

impl Beat {
    async fn go_on(&self) {
        let mut is_noted = false;
        loop {
            // Nobody is told anything without it: one that was lost is not left at that for as long as one that was taken.
            let is_confirmed = self.renew().await;
            is_noted = is_noted || is_confirmed && self.engine.note(&self.handover).await;
            tokio::time::sleep(if is_confirmed { RENEW_INTERVAL } else { LOOK_INTERVAL }).await;
        }
    }

    /// Whether it was confirmed.
    async fn renew(&self) -> bool {
        let asked = self.mirror.now();
        let is_renewed = self.engine.renew(&self.node, &self.lease).await;
        // A node that writes hears it from the stream. One that does not has to ask.
        let Ok(Some((_, epoch, _))) = self.engine.owner().await else { return false };
        self.mirror.fence(epoch);
        let is_confirmed = is_renewed && epoch == self.lease.epoch;
        if is_confirmed {
            self.mirror.confirm(asked);
        }
        is_confirmed
    }

    async fn leave(&self) {
        self.engine.renew(&self.node, &Lease { has_left: true, ..self.lease.clone() }).await;
    }
}
