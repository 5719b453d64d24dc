//! The process while the broker runs: what a reload changes, and what the admin API asks of it.

mod control;
mod space_access;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use tidegate_admin::{Demo, Reloaded, Role, Roles, UserDirectory};
use tidegate_auth::{GraphAccess, RevokedTokens, Users};
use tidegate_broker::config::Listener;
use tidegate_broker::{Handle, load_certificates};
use tidegate_core::classes::Classes;
use tidegate_space::SpaceStore;
use tidegate_store::disk::Mirror;
use tracing::level_filters::LevelFilter;
use tracing::{error, info, warn};

use crate::bridges::BridgeBoard;
use crate::certificate::Reminder;
use crate::config::keys::TakesEffect;
use crate::config::listener::ListenerSetting;
use crate::config::{Loaded, Problems, Sources};
use crate::door_certificates::DoorCertificates;
use crate::http_authority::HttpAuthority;
use crate::log::LevelHandle;
use crate::security::{Security, server_certificates};
use crate::serve::{Ready, Seat, log_warnings, prepare_for};
use crate::sinks::SinkBoard;
use crate::tokens::TokenKeys;
use crate::{authority, certificate, plan};

/// A broker that runs, and all that is needed to change it.
#[derive(Debug)]
pub struct RunningProcess {
    pub handle: Handle,
    pub sources: Sources,
    pub level: LevelHandle,
    /// The listeners as they were opened.
    pub listeners: Vec<Listener>,
    /// The configuration at the start: what only a restart changes is still in force as it says.
    started: Loaded,
    now: Mutex<CurrentState>,
    is_draining: AtomicBool,
    /// The store of the smart space, if it has one.
    space_store: OnceLock<Arc<SpaceStore>>,
    space: OnceLock<tidegate_space::SpaceHandle>,
    /// The certificates of the smart space's doors, if any has TLS.
    space_certificates: OnceLock<Arc<DoorCertificates>>,
    /// Those of the admin API, if it has TLS.
    admin_certificates: OnceLock<Arc<DoorCertificates>>,
    /// Doors beside the broker's own: where each was to be, and where it is.
    doors: OnceLock<Vec<OtherDoor>>,
    demo: Arc<dyn Demo>,
    bridges: OnceLock<Vec<Arc<BridgeBoard>>>,
    sinks: OnceLock<Vec<Arc<SinkBoard>>>,
    /// The node, if this broker is one of a cluster.
    seat: OnceLock<Seat>,
}

/// What holds at the moment. Also keeps two reloads from happening at once.
#[derive(Debug)]
struct CurrentState {
    loaded: Loaded,
    /// Those of the configuration, for whoever asks the smart space.
    classes: Classes,
    directory: Option<UserDirectory>,
    graphs: Option<Arc<GraphAccess>>,
    tokens: Option<Arc<TokenKeys>>,
    revoked: Arc<RevokedTokens>,
    authority: Option<Arc<HttpAuthority>>,
    /// How often it was read again, and when last.
    generation: u64,
    at: SystemTime,
}

/// A door beside the broker's own: its name, where it was to be, and where it is.
pub type OtherDoor = (&'static str, Option<SocketAddr>, Option<SocketAddr>);

impl RunningProcess {
    pub fn new(
        handle: Handle,
        sources: Sources,
        level: LevelHandle,
        listeners: Vec<Listener>,
        loaded: Loaded,
        security: &Security,
        demo: Arc<dyn Demo>,
    ) -> Self {
        let (directory, graphs, at) = (directory(security), security.graphs.clone(), SystemTime::now());
        let (classes, generation) = (classes_of(&loaded), 0);
        let (tokens, authority) = (security.tokens.clone(), security.authority.clone());
        let now = Mutex::new(CurrentState {
            loaded: loaded.clone(),
            classes,
            directory,
            graphs,
            tokens,
            revoked: Arc::clone(&security.revoked),
            authority,
            generation,
            at,
        });
        let is_draining = AtomicBool::new(false);
        Self {
            handle,
            sources,
            level,
            listeners,
            started: loaded,
            now,
            is_draining,
            space_store: OnceLock::new(),
            space: OnceLock::new(),
            space_certificates: OnceLock::new(),
            admin_certificates: OnceLock::new(),
            doors: OnceLock::new(),
            demo,
            bridges: OnceLock::new(),
            sinks: OnceLock::new(),
            seat: OnceLock::new(),
        }
    }

    fn now(&self) -> MutexGuard<'_, CurrentState> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note_space_store(&self, store: Arc<SpaceStore>) {
        // There is one smart space.
        let _ = self.space_store.set(store);
    }

    /// The smart space is open, for as long as the process lives.
    pub fn note_space(&self, space: tidegate_space::SpaceHandle) {
        let _ = self.space.set(space);
    }

    /// Doors of the smart space have TLS, with these certificates until a reload.
    pub fn note_space_certificates(&self, certificates: Arc<DoorCertificates>) {
        let _ = self.space_certificates.set(certificates);
    }

    /// The admin API has TLS, with these certificates until a reload.
    pub fn note_admin_certificates(&self, certificates: Arc<DoorCertificates>) {
        let _ = self.admin_certificates.set(certificates);
    }

    /// The doors beside the broker's own are open, or are not.
    pub fn note_doors(&self, doors: Vec<OtherDoor>) {
        let _ = self.doors.set(doors);
    }

    /// The bridges run.
    pub fn note_bridges(&self, boards: Vec<Arc<BridgeBoard>>) {
        let _ = self.bridges.set(boards);
    }

    /// The sinks run.
    pub fn note_sinks(&self, boards: Vec<Arc<SinkBoard>>) {
        let _ = self.sinks.set(boards);
    }

    /// Where the smart space is kept besides, in a cluster.
    pub fn space_mirror(&self) -> Option<Arc<dyn Mirror>> {
        self.seat.get().map(|seat| Arc::clone(&seat.space))
    }

    /// The broker is a node of a cluster.
    pub fn note_seat(&self, seat: Seat) {
        let _ = self.seat.set(seat);
    }

    pub fn note_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Applies the configuration as it is now; if it is not sound, the one before stays in force.
    pub fn reload(&self) -> Result<Reloaded, Vec<String>> {
        let mut now = self.now();
        let done = self.apply(&mut now);
        match &done {
            Ok(done) => {
                let changed = done.changed.join(",");
                info!(event = "reloaded", changed, "configuration, users and certificates read again");
                if !done.restart.is_empty() {
                    let keys = done.restart.join(",");
                    warn!(event = "restart_needed", keys, "these changes take effect after a restart");
                }
            }
            Err(problems) => {
                for problem in problems {
                    error!(event = "reload_failed", "{problem}");
                }
                error!(event = "reload_failed", "the configuration from before stays in force");
            }
        }
        done
    }

    fn apply(&self, now: &mut CurrentState) -> Result<Reloaded, Vec<String>> {
        let said = |Problems(problems): Problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
        let ready = prepare_for(&self.listeners, &self.sources).map_err(said)?;
        let (had_users, has_users) = (now.directory.is_some(), ready.security.has_users);
        authority::check_reload(&now.loaded, &ready.loaded, had_users, has_users).map_err(said)?;
        log_warnings(&ready);
        authority::note(&ready.loaded.options);
        let Ready { loaded, config, security } = ready;
        let (directory, graphs, tokens) = (directory(&security), security.graphs.clone(), security.tokens.clone());
        if let Some((tokens, before)) = tokens.as_ref().zip(now.tokens.as_ref()) {
            tokens.inherit(before);
        }
        let authority = security.authority.clone();
        if let Some((authority, before)) = authority.as_ref().zip(now.authority.as_ref()) {
            authority.inherit(before);
        }
        // Read before anything changes: a file that cannot be used keeps everything as it is. Without files in the new
        // configuration the doors keep those that they have.
        let doors = [
            self.space_certificates.get().zip(plan::certificates(&loaded.options)),
            self.admin_certificates.get().zip(plan::admin_certificates(&loaded.options)),
        ];
        let read = doors.into_iter().flatten().map(|(doors, files)| Ok((doors, load_certificates(&files)?)));
        let certificates: Vec<_> = read.collect::<std::io::Result<_>>().map_err(|problem| vec![problem.to_string()])?;
        let (authenticator, policy) = security.judges(&config);
        let reloaded = self.handle.reload(&config, authenticator, policy);
        reloaded.map_err(|problem| vec![problem.to_string()])?;
        for (doors, read) in certificates {
            doors.replace(read);
        }
        if let Some(Err(error)) = tokens.as_ref().map(TokenKeys::start) {
            warn!(event = "token_keys_failed", %error, "the keys of tokens cannot be fetched anew");
        }
        self.level.set(loaded.options.log.level.0);
        let done = changes(&loaded, &now.loaded, &self.started);
        let (generation, at, classes) = (now.generation + 1, SystemTime::now(), classes_of(&loaded));
        let revoked = Arc::clone(&security.revoked);
        *now = CurrentState { loaded, classes, directory, graphs, tokens, revoked, authority, generation, at };
        Ok(done)
    }

    /// Debug logs on, or as the configuration says.
    pub fn toggle_debug(&self) {
        let is_debug = self.level.now() == LevelFilter::DEBUG;
        let usual = self.now().loaded.options.log.level.0;
        self.level.set(if is_debug { usual } else { LevelFilter::DEBUG });
        info!(event = "log_level", level = %self.level.now(), "log level changed");
    }
}

/// Looks at the certificates now and then, for as long as the broker runs: most of them end while nobody looks.
pub fn watch_certificates(running: &Arc<RunningProcess>) -> std::io::Result<()> {
    let running = Arc::downgrade(running);
    let watch = move || {
        let (mut reminder, mut is_start) = (Reminder::default(), true);
        while let Some(running) = running.upgrade() {
            let certificates = server_certificates(&running.now().loaded);
            drop(running);
            for cert in certificates {
                if let (_, Some(ends)) = certificate::describe(&cert)
                    && let Some(warning) = reminder.remind(&cert, ends, SystemTime::now())
                    // What is due at the start was said there: see `security::warnings`.
                    && !is_start
                {
                    warn!(event = "certificate_expiry", "{warning}");
                }
            }
            is_start = false;
            std::thread::sleep(CERTIFICATES_EVERY);
        }
    };
    std::thread::Builder::new().name("certificates".to_owned()).spawn(watch).map(drop)
}

/// The last reminder is a day before the end.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(3600);

/// The classes of a configuration that is sound.
fn classes_of(loaded: &Loaded) -> Classes {
    Classes::new(loaded.classes.iter().map(|(class, _)| class.clone()).collect()).unwrap_or_default()
}

/// What a new configuration changes: at once against the one before, after a restart against the one of the start.
fn changes(new: &Loaded, before: &Loaded, started: &Loaded) -> Reloaded {
    let keys = |other: &Loaded, when| -> Vec<String> {
        let keys = new.changed_from(other).filter(move |key| key.change == when);
        keys.map(|key| key.path.to_owned()).collect()
    };
    let mut changed = keys(before, TakesEffect::Reload);
    changed.extend(new.changed_lists(before));
    let mut restart = keys(started, TakesEffect::Restart);
    let is_new = |block: &&ListenerSetting| {
        let same = |other: &ListenerSetting| {
            (other.name, other.kind, other.address) == (block.name, block.kind, block.address)
        };
        !started.listeners.iter().any(same)
    };
    restart.extend(new.listeners.iter().filter(is_new).map(|block| format!("listener {}", block.name)));
    if new.maps.texts() != started.maps.texts() {
        restart.push("map.ingest, map.emit".to_owned());
    }
    if new.bridges != started.bridges {
        restart.push("bridge".to_owned());
    }
    if new.sinks != started.sinks {
        restart.push("sink".to_owned());
    }
    Reloaded { changed, restart }
}

/// Who may come in at the admin API; none if there are no users.
pub fn directory(security: &Security) -> Option<UserDirectory> {
    let (authenticator, roles) = (Arc::clone(&security.authenticator), security.roles.clone()?);
    Some(UserDirectory { authenticator, roles: Arc::new(roles) })
}

/// The best role of each user that has one.
#[derive(Clone, Debug, Default)]
pub struct RoleTable(BTreeMap<Arc<str>, Role>);

impl RoleTable {
    pub fn new(users: &Users) -> Self {
        let best = |roles: &[Arc<str>]| roles.iter().filter_map(|role| Role::named(role)).max();
        Self(users.iter().filter_map(|(name, roles)| Some((Arc::clone(name), best(roles)?))).collect())
    }
}

impl Roles for RoleTable {
    fn role(&self, user: &str) -> Option<Role> {
        self.0.get(user).copied()
    }
}

#[cfg(test)]
mod tests;
