//! The smart space of the process: its service, its doors and its maps.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, Result};
use tidegate_broker::ExtraMetric;
use tidegate_space::{
    AccessPolicy, BoundSockets, MemoryBudget, PressureSource, Service, ServiceOptions, SpaceAddresses, SpaceListeners,
    SpaceOpening, SpacePressure, StoreConfig,
};
use tracing::{info, warn};

use crate::config::setting::Size;
use crate::config::{Loaded, Origin};
use crate::door_certificates::DoorCertificates;
use crate::mapping::{MapCounts, Mapping};
use crate::running::RunningProcess;
use crate::{bind, descriptors, plan};

/// The smart space while it is open. The maps end first; the doors close before what is behind them ends.
#[derive(Debug)]
pub struct SpaceService {
    _mapping: Option<Mapping>,
    doors: SpaceListeners,
    _service: Service,
}

impl SpaceService {
    pub fn addresses(&self) -> SpaceAddresses {
        self.doors.addresses()
    }
}

/// Opens the doors that are on; nothing if all are off and there are no maps.
pub fn open(loaded: &Loaded, has_users: bool, running: &Arc<RunningProcess>) -> Result<Option<SpaceService>> {
    let binds = plan::space(&loaded.options, has_users);
    let (http, ssap) = (door(loaded, "http", binds.http)?, door(loaded, "ssap", binds.ssap)?);
    let sepa_http = door(loaded, "sepa_http", binds.sepa_http)?;
    let sepa_ws = door(loaded, "sepa_ws", binds.sepa_ws)?;
    let (https, ssaps) = (door(loaded, "https", binds.https)?, door(loaded, "ssaps", binds.ssaps)?);
    let has_doors = [&http, &ssap, &sepa_http, &sepa_ws, &https, &ssaps].into_iter().any(Option::is_some);
    if !has_doors && loaded.maps.is_empty() {
        return Ok(None);
    }
    let service = service(loaded, running).context("the smart space did not start")?;
    if let Some(store) = service.store() {
        running.note_space_store(store);
    }
    running.note_space(service.handle());
    let (broker, space) = (running.handle.clone(), service.handle());
    let mapping = (!loaded.maps.is_empty()).then(|| {
        let user = loaded.options.map.user.0.as_deref();
        Mapping::start(loaded.maps.clone(), user, &broker, &space)
    });
    let mapping = mapping.transpose()?;
    let counts = mapping.as_ref().map(Mapping::counts);
    let policy = Arc::clone(running) as Arc<dyn AccessPolicy>;
    let mut bound = BoundSockets::new(http, ssap).with_sepa(sepa_http, sepa_ws);
    if https.is_some() || ssaps.is_some() {
        let files = plan::certificates(&loaded.options).context("there is no certificate")?;
        let certificates = Arc::new(DoorCertificates::load(&files)?);
        running.note_space_certificates(Arc::clone(&certificates));
        bound = bound.with_tls(https, ssaps, certificates);
    }
    let doors = SpaceListeners::start(bound.with_connections_max(descriptors::shares(true).space), &space, policy);
    let doors = doors.context("the listeners of the smart space did not open")?;
    broker.show_extra_metrics(Box::new(move || extra_metrics(&space, counts.as_deref())));
    Ok(Some(SpaceService { _mapping: mapping, doors, _service: service }))
}

/// The memory budget of the broker, of which what the space reads, answers and keeps is a part.
#[derive(Debug)]
struct BrokerMemory(tidegate_broker::Handle);

impl MemoryBudget for BrokerMemory {
    fn take(&self, bytes: usize) -> bool {
        self.0.take_memory(bytes)
    }

    fn charge(&self, bytes: usize) {
        self.0.charge_memory(bytes);
    }

    fn give(&self, bytes: usize) {
        self.0.give_memory(bytes);
    }

    fn take_data(&self, bytes: usize) -> bool {
        self.0.take_data_memory(bytes)
    }

    fn charge_data(&self, bytes: usize) {
        self.0.charge_data_memory(bytes);
    }

    fn give_data(&self, bytes: usize) {
        self.0.give_data_memory(bytes);
    }
}

/// The level of the broker, and the processors that its threads leave.
#[derive(Debug)]
struct BrokerPressure {
    broker: tidegate_broker::Handle,
    spare_processors: usize,
}

impl BrokerPressure {
    fn new(broker: tidegate_broker::Handle) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { spare_processors: processors.saturating_sub(broker.shards()), broker }
    }
}

impl PressureSource for BrokerPressure {
    fn pressure(&self) -> SpacePressure {
        let report = self.broker.pressure();
        SpacePressure { level: report.level, cause: report.cause, spare_processors: self.spare_processors }
    }
}

/// The numbers of the space and its maps, as `$SYS` and metrics have them.
fn extra_metrics(space: &tidegate_space::SpaceHandle, maps: Option<&MapCounts>) -> Vec<ExtraMetric> {
    let one = |family, help, is_counter, value| ExtraMetric { family, help, is_counter, labels: Vec::new(), value };
    let (running, bytes) = space.load();
    let mut all = vec![
        one("space_version", "Version of the smart space; it grows with each change.", true, space.version()),
        one("space_running", "Evaluations under way.", false, running as u64),
        one(
            "space_yielding",
            "Whether what takes long in the smart space is held back for the broker (1) or not (0).",
            false,
            u64::from(space.is_yielding()),
        ),
        one("space_answer_bytes", "Bytes of answers that are made, sent or remembered.", false, bytes as u64),
    ];
    let ((restarts, runaways), (text_bytes, texts_refused)) = (space.restarts(), space.texts());
    all.extend([
        one("space_restarts", "Times that the smart space began anew after a fault.", true, restarts),
        one(
            "space_runaways",
            "Threads of the smart space that were given up because they did not end.",
            true,
            runaways,
        ),
        one("space_text_bytes", "Memory that is charged for texts which are read.", false, text_bytes as u64),
        one(
            "space_texts_refused",
            "Texts that were refused because there was no memory for them.",
            true,
            texts_refused,
        ),
    ]);
    let (data_bytes, data_refused) = space.data_memory();
    all.extend([
        one("space_data_bytes", "Memory that is charged for the data of the smart space.", false, data_bytes as u64),
        one(
            "space_data_refused",
            "Times that the data of the smart space could not grow because there was no memory for them.",
            true,
            data_refused,
        ),
    ]);
    all.extend(space.panics().into_iter().map(|(part, value)| ExtraMetric {
        family: "space_panics",
        help: "Faults of the smart space that were contained, by the part that met them.",
        is_counter: true,
        labels: vec![("part", part)],
        value,
    }));
    all.extend(space.turned_away().into_iter().map(|(door, value)| ExtraMetric {
        family: "space_connections_refused",
        help: "Connections to the smart space that found no place, by listener.",
        is_counter: true,
        labels: vec![("door", door)],
        value,
    }));
    all.extend(space.pool_decisions().into_iter().map(|(class, policy, value)| ExtraMetric {
        family: "space_pool",
        help: "Requests to the smart space for which there was no room, or no use, by class and what was decided: deny (told \
               when to come back), drop (told nothing, or let go for a later one), postpone (let in all the same), outdated \
               (whoever asked has left, or has asked again).",
        is_counter: true,
        labels: vec![("class", class), ("policy", policy)],
        value,
    }));
    all.push(one(
        "space_class_claims_ignored",
        "Requests to the smart space that claimed a class (pace-class) without the right to it.",
        true,
        space.class_claims_ignored(),
    ));
    all.extend(space.counts().into_iter().map(|(class, outcome, value)| ExtraMetric {
        family: "space_requests",
        help: "Requests to the smart space by class and what became of them.",
        is_counter: true,
        labels: vec![("class", class), ("outcome", outcome)],
        value,
    }));
    for (name, value) in maps.map(MapCounts::all).unwrap_or_default() {
        all.push(one(name, "What became of messages and solutions in maps.", true, value));
    }
    all
}

/// The space as it was kept; an empty one if nothing is to be kept.
fn service(loaded: &Loaded, running: &RunningProcess) -> std::io::Result<Service> {
    let store = &loaded.options.store;
    let budget: Option<Arc<dyn MemoryBudget>> = Some(Arc::new(BrokerMemory(running.handle.clone())));
    let options = ServiceOptions {
        admission: plan::admission(&loaded.options),
        delegation: plan::delegation(&loaded.options),
        long_answers: plan::long_answers(&loaded.options),
        services: loaded.options.space.services.0.clone(),
        budget,
        pressure: Some(Arc::new(BrokerPressure::new(running.handle.clone()))),
        mirror: running.space_mirror(),
        ..ServiceOptions::default()
    };
    if !store.keep {
        return Service::start_by(&options);
    }
    let dir = plan::space_dir(&loaded.options);
    let size_max = store.max_size.value().map(|Size(bytes)| bytes);
    let config = StoreConfig { dir, durability: store.durability.0, strict: store.strict, size_max };
    let (service, opening) = Service::open_by(&config, &options)?;
    // A fault of ours when it was read; what is tried about it is logged by the space itself.
    let Some(opening) = opening else { return Ok(service) };
    let SpaceOpening { report, version, quads, rules, holes, notes } = opening;
    let rules = rules.len();
    let words = if report.is_new() { "a new smart space" } else { "the smart space is back" };
    info!(event = "space_opened", version, quads, rules, holes, %report, "{words}");
    for line in &report.lines {
        warn!(event = "store_repaired", "the smart space: {line}");
    }
    if report.lines_left_out > 0 {
        warn!(event = "store_repaired", "the smart space: and {} more", report.lines_left_out);
    }
    for note in notes {
        warn!(event = "store_note", "the smart space: {note}");
    }
    Ok(service)
}

/// One that nobody asked for, at a port that is taken, is no reason not to serve.
fn door(loaded: &Loaded, name: &str, at: Option<SocketAddr>) -> Result<Option<TcpListener>> {
    let Some(at) = at else { return Ok(None) };
    match tidegate_space::bind(at) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if *loaded.origin(&format!("listeners.{name}")) == Origin::Default => {
            warn!(event = "door_off", door = name, %error, "no {name}: {at} cannot be opened; choose another with --{name} ADDR");
            Ok(None)
        }
        Err(error) => Err(bind::cannot_listen(name, at, &error).into()),
    }
}
