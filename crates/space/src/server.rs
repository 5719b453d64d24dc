//! The doors: one thread for all of them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tidegate_http::{PasswordCache, Serving, TlsDoor, TlsSource};

use crate::access_policy::AccessPolicy;
use crate::handle::SpaceHandle;
use crate::limits::{DOORS_CONNECTIONS_MAX, HEAD_TIMEOUT, REMEMBERED_FOR, REMEMBERED_MAX, STACK_BYTES};
use crate::panics::Part;
use crate::places::Places;
use crate::{http, ssap};

/// Where the doors are; port 0 takes a free one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceAddresses {
    /// SPARQL and subscriptions.
    pub http: Option<SocketAddr>,
    /// Smart-M3.
    pub ssap: Option<SocketAddr>,
    /// The door of SPARQL once more, where clients of SEPA look for queries and updates.
    pub sepa_http: Option<SocketAddr>,
    /// And where they look for subscriptions.
    pub sepa_ws: Option<SocketAddr>,
    /// SPARQL and subscriptions over TLS.
    pub https: Option<SocketAddr>,
    /// Smart-M3 over TLS.
    pub ssaps: Option<SocketAddr>,
}

impl SpaceAddresses {
    /// All of them by name, in the order in which they are shown.
    pub fn named(&self) -> [(&'static str, Option<SocketAddr>); 6] {
        let Self { http, ssap, sepa_http, sepa_ws, https, ssaps } = *self;
        [
            ("http", http),
            ("https", https),
            ("ssap", ssap),
            ("ssaps", ssaps),
            ("sepa_http", sepa_http),
            ("sepa_ws", sepa_ws),
        ]
    }
}

/// The sockets of the doors, before anybody is served.
#[derive(Debug)]
pub struct BoundSockets {
    http: Option<TcpListener>,
    ssap: Option<TcpListener>,
    /// SEPA's two.
    sepa: [Option<TcpListener>; 2],
    /// HTTP and SSAP over TLS, and who knows the certificates.
    secure: [Option<TcpListener>; 2],
    tls: Option<Arc<dyn TlsSource>>,
    /// Connections that all of them may have together.
    connections_max: usize,
}

/// The doors while they are open. Dropping them closes them.
#[derive(Debug)]
pub struct SpaceListeners {
    addresses: SpaceAddresses,
    _serving: Serving,
}

/// Opens one door.
pub fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl BoundSockets {
    /// Doors whose sockets are open already.
    pub fn new(http: Option<TcpListener>, ssap: Option<TcpListener>) -> Self {
        Self { http, ssap, sepa: [None, None], secure: [None, None], tls: None, connections_max: DOORS_CONNECTIONS_MAX }
    }

    /// The same with the ports where clients of SEPA look for queries and updates, and for subscriptions.
    #[must_use]
    pub fn with_sepa(self, http: Option<TcpListener>, ws: Option<TcpListener>) -> Self {
        Self { sepa: [http, ws], ..self }
    }

    /// The same with doors for HTTP and SSAP over TLS, with the certificates of this source.
    #[must_use]
    pub fn with_tls(
        self,
        https: Option<TcpListener>,
        ssaps: Option<TcpListener>,
        certificates: Arc<dyn TlsSource>,
    ) -> Self {
        Self { secure: [https, ssaps], tls: Some(certificates), ..self }
    }

    /// The same, with so many connections together at most.
    #[must_use]
    pub fn with_connections_max(self, connections_max: usize) -> Self {
        Self { connections_max, ..self }
    }

    /// Opens all of them but those with TLS, which need certificates.
    pub fn open(binds: SpaceAddresses) -> io::Result<Self> {
        let open = |at: Option<SocketAddr>| at.map(bind).transpose();
        Ok(Self::new(open(binds.http)?, open(binds.ssap)?).with_sepa(open(binds.sepa_http)?, open(binds.sepa_ws)?))
    }
}

impl SpaceListeners {
    /// Begins to serve.
    pub fn start(bound: BoundSockets, handle: &SpaceHandle, policy: Arc<dyn AccessPolicy>) -> io::Result<Self> {
        let address = |listener: &Option<TcpListener>| listener.as_ref().map(TcpListener::local_addr).transpose();
        let ([sepa_http, sepa_ws], [https, ssaps]) = (&bound.sepa, &bound.secure);
        let addresses = SpaceAddresses {
            http: address(&bound.http)?,
            ssap: address(&bound.ssap)?,
            sepa_http: address(sepa_http)?,
            sepa_ws: address(sepa_ws)?,
            https: address(https)?,
            ssaps: address(ssaps)?,
        };
        let places = Arc::new(Places::new(bound.connections_max));
        let web = Arc::new(http::HttpState {
            handle: handle.clone(),
            policy: Arc::clone(&policy),
            remembered: PasswordCache::new(REMEMBERED_MAX, REMEMBERED_FOR),
            places: Arc::clone(&places),
        });
        let m3 = Arc::new(ssap::SsapState::new(handle.clone(), places, policy));
        let secure = |name, listener: Option<TcpListener>| {
            let tls = TlsDoor::new(name, bound.tls.clone()?, HEAD_TIMEOUT);
            Some((listener?, Some(Arc::new(tls))))
        };
        let [https, ssaps] = bound.secure;
        let (tls_http, tls_ssap) = (secure("https", https), secure("ssaps", ssaps));
        let plain = |listener: Option<TcpListener>| listener.map(|listener| (listener, None));
        let [sepa_http, sepa_ws] = bound.sepa;
        let shared = Arc::clone(&handle.shared);
        let begin = async move || {
            tokio::spawn(async move { shared.pulse.listen(|| shared.now()).await });
            // What is served is the same at all of them.
            for (listener, tls) in [plain(bound.http), plain(sepa_http), plain(sepa_ws), tls_http].into_iter().flatten()
            {
                let (web, listener) = (Arc::clone(&web), tokio::net::TcpListener::from_std(listener)?);
                tokio::spawn(async move {
                    let panics = &web.handle.shared.panics;
                    // A door that fails opens again; who is inside stays.
                    while panics.catch_async(Part::Http, http::serve(&listener, &web, tls.as_ref())).await.is_err() {}
                });
            }
            for (listener, tls) in [plain(bound.ssap), tls_ssap].into_iter().flatten() {
                let (m3, listener) = (Arc::clone(&m3), tokio::net::TcpListener::from_std(listener)?);
                tokio::spawn(async move {
                    let panics = &m3.handle.shared.panics;
                    while panics.catch_async(Part::Ssap, ssap::serve(&listener, &m3, tls.as_ref())).await.is_err() {}
                });
            }
            Ok(())
        };
        // Nothing that nests is read here; but whoever finds a request that waited too long drops its query. Nothing waits
        // for files.
        Ok(Self { addresses, _serving: Serving::start("space-doors", STACK_BYTES, 1, begin)? })
    }

    /// Where they are, with the real ports.
    pub fn addresses(&self) -> SpaceAddresses {
        self.addresses
    }
}
