//! Users and rules of the node that serves, on their way to the others: looked at every second, and brought to the engine when they have
//! changed. What a person has just changed here is at the next node a second later, and not before the command has returned.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_cluster_nats::{AccessFile, Carrier};
use tracing::{info, warn};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// How soon the end is noticed.
const GLANCE: Duration = Duration::from_millis(50);
/// Bytes of a file: twenty thousand users. It goes through the queue of the log, whose commits stand behind it.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What tells one content of a file from another, without reading it; none if there is no file.
type Mark = Option<(u64, u64, i64, i64)>;

/// Ends the copying, however the serving has ended.
pub(super) struct OnDrop<'a>(pub(super) &'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Brings what changes to the engine, until it is told to end.
pub(super) fn copy(files: &[AccessFile], carrier: &Carrier, is_ending: &AtomicBool) {
    let mut known: Vec<Option<Mark>> = vec![None; files.len()];
    let mut is_said = vec![false; files.len()];
    while !is_ending.load(Ordering::Relaxed) {
        for ((file, known), is_said) in files.iter().zip(&mut known).zip(&mut is_said) {
            match look(file, carrier, known) {
                Ok(()) => *is_said = false,
                // Who was overtaken hears of it elsewhere.
                Err(_) if carrier.ending().is_some() => return,
                Err(_) if *is_said => {}
                Err(error) => {
                    *is_said = true;
                    let path = file.path.display();
                    warn!(event = "access_not_copied", %error, %path, "the other nodes do not have this file as it is here; it is tried again");
                }
            }
        }
        let until = Instant::now() + LOOK;
        while Instant::now() < until && !is_ending.load(Ordering::Relaxed) {
            std::thread::sleep(GLANCE);
        }
    }
}

fn look(file: &AccessFile, carrier: &Carrier, known: &mut Option<Mark>) -> io::Result<()> {
    let mark = mark(&file.path)?;
    if *known == Some(mark) {
        return Ok(());
    }
    match read(&file.path)? {
        Some(bytes) => {
            carrier.keep_access(file.name, Some(&bytes))?;
            let (path, bytes) = (file.path.display(), bytes.len());
            info!(event = "access_copied", file = file.name, %path, bytes, "the other nodes have {} of this one", file.name);
        }
        None => carrier.keep_access(file.name, None)?,
    }
    // Of before the reading: what has changed meanwhile is read again.
    *known = Some(mark);
    Ok(())
}

fn mark(path: &Path) -> io::Result<Mark> {
    match fs::metadata(path) {
        Ok(file) => Ok(Some((file.ino(), file.len(), file.mtime(), file.mtime_nsec()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!("more than {BYTES_MAX} bytes")));
    }
    Ok(Some(bytes))
}
