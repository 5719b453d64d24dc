//! What all requests share.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tidegate_broker::Handle;
use tidegate_control::Timestamp;
use tidegate_core::event::Stats;
use tidegate_http::PasswordCache;
use tokio::sync::Semaphore;

use crate::activity::FollowedLog;
use crate::audit::Audit;
use crate::entrance::Entrance;
use crate::limits::{
    CERTIFICATES_FOR, CHECKS_MAX, LISTENERS_MAX, PAGE_MQTT_MAX, REMEMBERED_FOR, REMEMBERED_MAX, WALKS_MAX,
};
use crate::live::Live;
use crate::password::PasswordProof;
use crate::process_control::{Certificate, ProcessControl};
use crate::session::Sessions;
use crate::trace::TraceRecording;
use crate::watch::LastLook;
use crate::webhook::Webhook;

pub(crate) struct AdminState {
    pub(crate) handle: Handle,
    pub(crate) entrance: Arc<Entrance>,
    pub(crate) process: Arc<dyn ProcessControl>,
    pub(crate) walks: Semaphore,
    pub(crate) checks: Semaphore,
    pub(crate) remembered: PasswordCache<PasswordProof>,
    pub(crate) sessions: Sessions,
    pub(crate) audit: Audit,
    pub(crate) live: Live,
    /// What is wrong, and which alarms are raised.
    pub(crate) watch: Mutex<LastLook>,
    /// Who else is told of alarms.
    pub(crate) webhook: Option<Webhook>,
    /// Places for pages that listen.
    pub(crate) listeners: Arc<Semaphore>,
    /// Places for pages that speak MQTT.
    pub(crate) mqtt_pages: Arc<Semaphore>,
    /// The recording that is under way.
    pub(crate) trace: Mutex<Option<TraceRecording>>,
    /// Logs that are followed.
    pub(crate) logs: Mutex<Vec<FollowedLog>>,
    certificates: Mutex<Option<(Instant, Vec<Certificate>)>>,
    samples: Mutex<Samples>,
}

/// Two looks at the counters, for rates between them.
#[derive(Clone, Copy)]
struct Samples {
    before: (Instant, Stats),
    latest: (Instant, Stats),
}

impl fmt::Debug for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminState").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl AdminState {
    pub(crate) fn new(handle: Handle, process: Arc<dyn ProcessControl>, webhook: Option<Webhook>) -> Self {
        let sample = (Instant::now(), handle.stats());
        Self {
            handle,
            entrance: Arc::new(Entrance::new()),
            process,
            walks: Semaphore::new(WALKS_MAX),
            checks: Semaphore::new(CHECKS_MAX),
            remembered: PasswordCache::new(REMEMBERED_MAX, REMEMBERED_FOR),
            sessions: Sessions::new(),
            audit: Audit::default(),
            live: Live::default(),
            watch: Mutex::default(),
            webhook,
            listeners: Arc::new(Semaphore::new(LISTENERS_MAX)),
            mqtt_pages: Arc::new(Semaphore::new(PAGE_MQTT_MAX)),
            trace: Mutex::default(),
            logs: Mutex::default(),
            certificates: Mutex::default(),
            samples: Mutex::new(Samples { before: sample, latest: sample }),
        }
    }

    /// The counters now, and what was counted over the seconds before: from the last look that is a second old or more.
    pub(crate) fn stats(&self) -> (Stats, Stats, f64) {
        let (now, stats) = (Instant::now(), self.handle.stats());
        let mut samples = lock(&self.samples);
        if now.duration_since(samples.latest.0) >= Duration::from_secs(1) {
            samples.before = samples.latest;
            samples.latest = (now, stats);
        }
        let (at, before) = samples.before;
        (stats, before, now.duration_since(at).as_secs_f64().max(1e-3))
    }

    /// The certificates, as their files were a minute ago at most: a scrape every second reads nothing.
    pub(crate) fn certificates(&self) -> Vec<Certificate> {
        let mut known = lock(&self.certificates);
        match &*known {
            Some((at, certificates)) if at.elapsed() < CERTIFICATES_FOR => certificates.clone(),
            _ => {
                let certificates = self.process.certificates();
                *known = Some((Instant::now(), certificates.clone()));
                certificates
            }
        }
    }

    /// The broker's time as the world has it.
    pub(crate) fn wall(&self, at: Timestamp) -> SystemTime {
        wall(&self.handle, at)
    }
}

/// A broker's time as the world has it.
pub(crate) fn wall(handle: &Handle, at: Timestamp) -> SystemTime {
    SystemTime::now().checked_sub(handle.now().since(at)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Nothing is done while this is locked that could leave it half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
