//! A smart space of one's own, and the clock of a case.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tidegate_graph::SpaceLimits;
use tidegate_space::{
    BoundSockets, Everybody, Refused, RequestOrigin, Service, ServiceOptions, SpaceAddresses, SpaceAdmission,
    SpaceHandle, SpaceListeners, SpaceRequest, SpaceResponse, StoreConfig,
};
use tidegate_store::Durability;

/// Lives as long as its case.
pub(super) struct SpaceHost {
    doors: SpaceListeners,
    service: Service,
    _folder: Option<TempDir>,
}

impl SpaceHost {
    /// In memory.
    pub(super) fn start() -> Result<Self> {
        let service = Service::start(SpaceLimits::default()).context("the smart space did not start")?;
        Self::with(service, None)
    }

    /// In memory, with these options.
    pub(super) fn start_by(options: &ServiceOptions) -> Result<Self> {
        Self::with(Service::start_by(options).context("the smart space did not start")?, None)
    }

    /// On disk: what is confirmed is synced. Its folder is below the one where temporary files are, and ends with it.
    pub(super) fn start_durable() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-bench-").tempdir()?;
        let dir = folder.path().to_owned();
        let config = StoreConfig { dir, durability: Durability::Always, strict: true, size_max: None };
        let opened = Service::open(&config, SpaceLimits::default(), &SpaceAdmission::default());
        let (service, _) = opened.context("the smart space did not start")?;
        Self::with(service, Some(folder))
    }

    fn with(service: Service, folder: Option<TempDir>) -> Result<Self> {
        let free: Option<SocketAddr> = Some(([127, 0, 0, 1], 0).into());
        let bound = BoundSockets::open(SpaceAddresses { http: free, ssap: free, ..SpaceAddresses::default() })?;
        let doors = SpaceListeners::start(bound, &service.handle(), Arc::new(Everybody))?;
        Ok(Self { doors, service, _folder: folder })
    }

    pub(super) fn handle(&self) -> SpaceHandle {
        self.service.handle()
    }

    pub(super) fn ssap(&self) -> Result<SocketAddr> {
        self.doors.addresses().ssap.context("no door for SSAP")
    }

    pub(super) fn http(&self) -> Result<SocketAddr> {
        self.doors.addresses().http.context("no door for HTTP")
    }
}

/// Asks until there is room.
pub(super) async fn ask(handle: &SpaceHandle, mut make: impl FnMut() -> SpaceRequest) -> Result<SpaceResponse> {
    loop {
        match handle.ask(make(), RequestOrigin::new(0, None)).await {
            Ok(answered) => return Ok(answered),
            Err(Refused::Busy(hints)) => tokio::time::sleep(hints.retry_after.unwrap_or_default()).await,
            Err(other) => bail!("refused: {other:?}"),
        }
    }
}

/// How often in a second.
pub(super) fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

/// Whether a case goes on.
pub(super) fn is_over(until: Instant, setting: &crate::measure::RunSettings) -> bool {
    Instant::now() >= until || setting.stop.is_wanted()
}
