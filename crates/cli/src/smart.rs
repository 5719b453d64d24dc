//! The smart space of the process: its service and its doors.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, Result};
use tidegate_graph::SpaceLimits;
use tidegate_space::{Binds, Bound, Doors, Opening, Porter, Service, StoreConfig};
use tracing::{info, warn};

use crate::config::{Loaded, Origin};
use crate::running::Running;
use crate::{bind, plan};

/// The smart space while it is open. The doors close before what is behind them ends.
#[derive(Debug)]
pub(crate) struct Smart {
    doors: Doors,
    _service: Service,
}

impl Smart {
    pub(crate) fn addresses(&self) -> Binds {
        self.doors.addresses()
    }
}

/// Opens the doors that are on; none if all are off.
pub(crate) fn open(loaded: &Loaded, has_users: bool, running: &Arc<Running>) -> Result<Option<Smart>> {
    let binds = plan::space(&loaded.options, has_users);
    let http = door(loaded, "http", binds.http)?;
    let ssap = door(loaded, "ssap", binds.ssap)?;
    if http.is_none() && ssap.is_none() {
        return Ok(None);
    }
    let service = service(loaded).context("the smart space did not start")?;
    if let Some(vault) = service.vault() {
        running.note_vault(vault);
    }
    running.note_space(service.handle());
    let porter = Arc::clone(running) as Arc<dyn Porter>;
    let doors = Doors::start(Bound::new(http, ssap), &service.handle(), porter);
    Ok(Some(Smart { doors: doors.context("the doors of the smart space did not open")?, _service: service }))
}

/// The space as it was kept; an empty one if nothing is to be kept.
fn service(loaded: &Loaded) -> std::io::Result<Service> {
    let store = &loaded.options.store;
    if !store.keep {
        return Service::start(SpaceLimits::default());
    }
    let dir = plan::space_dir(&loaded.options);
    let config = StoreConfig { dir, durability: store.durability.0, strict: store.strict };
    let (service, opening) = Service::open(&config, SpaceLimits::default())?;
    let Opening { report, version, quads, rules, holes } = opening;
    let rules = rules.len();
    info!(event = "space_opened", version, quads, rules, holes, %report, "the smart space is back");
    for line in &report.lines {
        warn!(event = "store_repaired", "the smart space: {line}");
    }
    if report.lines_left_out > 0 {
        warn!(event = "store_repaired", "the smart space: and {} more", report.lines_left_out);
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
