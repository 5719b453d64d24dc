//! The thread that serves: a bounded number of connections, each with a bounded time.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::{Extension, Router};
use tidegate_broker::Handle;
use tidegate_http::{PLAIN_REFUSAL, SecureStream, Serving, Timeouts, TlsDoor, TlsSource, last_words, serve_connection};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::entrance::{Entrance, PlaceGuard, is_exhaustion};
use crate::limits::{ACCEPT_PAUSE, BLOCKING_MAX, BUFFER_BYTES, CONNECTION_TIMEOUT, HEAD_TIMEOUT, STACK_BYTES};
use crate::live;
use crate::post::HttpTarget;
use crate::process_control::ProcessControl;
use crate::routes::routes;
use crate::state::AdminState;
use crate::webhook::Webhook;

/// No request outlives its connection.
const TIMEOUTS: Timeouts =
    Timeouts { head: HEAD_TIMEOUT, connection: CONNECTION_TIMEOUT, last: Duration::ZERO, buffer_bytes: BUFFER_BYTES };

/// The admin API while it is open. Dropping it closes it.
#[derive(Debug)]
pub struct Admin {
    address: Option<SocketAddr>,
    secure_address: Option<SocketAddr>,
    _serving: Serving,
}

/// Where it is to be found: sockets that listen, at least one.
#[derive(Debug, Default)]
pub struct AdminListeners {
    /// Without TLS.
    pub plain: Option<TcpListener>,
    /// With TLS, and the certificates that are shown there.
    pub secure: Option<(TcpListener, Arc<dyn TlsSource>)>,
}

/// A request came over TLS: what it is given may be kept from connections without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverTls;

impl Admin {
    /// Opens the door: port 0 takes a free one. Alarms go to `alarms`, too.
    pub fn start(
        bind: SocketAddr,
        handle: Handle,
        process: Arc<dyn ProcessControl>,
        alarms: Option<HttpTarget>,
    ) -> io::Result<Self> {
        let listeners = AdminListeners { plain: Some(TcpListener::bind(bind)?), secure: None };
        Self::open(listeners, handle, process, alarms)
    }

    /// The same at sockets that listen already.
    pub fn open(
        listeners: AdminListeners,
        handle: Handle,
        process: Arc<dyn ProcessControl>,
        alarms: Option<HttpTarget>,
    ) -> io::Result<Self> {
        let address_of = |listener: &TcpListener| {
            listener.set_nonblocking(true)?;
            listener.local_addr()
        };
        let AdminListeners { plain, secure } = listeners;
        let address = plain.as_ref().map(address_of).transpose()?;
        let secure_address = secure.as_ref().map(|(listener, _)| address_of(listener)).transpose()?;
        let secure = secure.map(|(listener, source)| (listener, TlsDoor::new("admin_https", source, HEAD_TIMEOUT)));
        let state = Arc::new(AdminState::new(handle, process, alarms.map(Webhook::start).transpose()?));
        let (router, entrance) = (routes(Arc::clone(&state)), Arc::clone(&state.entrance));
        let begin = async move || {
            tokio::spawn(live::run(state));
            let plain = plain.map(|listener| (listener, None));
            let secure = secure.map(|(listener, tls)| (listener, Some(Arc::new(tls))));
            for (listener, tls) in [plain, secure].into_iter().flatten() {
                let door = Door { router: router.clone(), entrance: Arc::clone(&entrance), tls };
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tokio::spawn(async move { serve(listener, &door).await });
            }
            Ok(())
        };
        let serving = Serving::start("admin", STACK_BYTES, BLOCKING_MAX, begin)?;
        Ok(Self { address, secure_address, _serving: serving })
    }

    /// Where it is without TLS, with the real port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where it is with TLS.
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.secure_address
    }
}

/// One of its sockets, and what is behind it.
struct Door {
    router: Router,
    entrance: Arc<Entrance>,
    tls: Option<Arc<TlsDoor>>,
}

async fn serve(listener: tokio::net::TcpListener, door: &Door) {
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                door.entrance.note_accepted();
                admit(accepted, door);
                // Everybody whose request is there is served before the next one comes in: a flood of newcomers who say
                // nothing pushes out nobody who says something.
                tokio::task::yield_now().await;
            }
            Err(error) if is_exhaustion(&error) => accept_with_reserve(&listener, door, &error).await,
            Err(_) => {}
        }
    }
}

/// One more, with a descriptor of the reserve. Without anybody there it goes back at once.
async fn accept_with_reserve(listener: &tokio::net::TcpListener, door: &Door, error: &io::Error) {
    let entrance = &door.entrance;
    if !entrance.make_room(error) {
        tokio::time::sleep(ACCEPT_PAUSE).await;
        entrance.refill();
        return;
    }
    match poll_fn(|context| Poll::Ready(listener.poll_accept(context))).await {
        Poll::Ready(Ok(accepted)) => {
            admit(accepted, door);
            tokio::task::yield_now().await;
        }
        Poll::Pending => drop(entrance.refill()),
        // Somebody else was quicker.
        Poll::Ready(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
    }
}

fn admit((stream, peer): (TcpStream, SocketAddr), door: &Door) {
    // Answers are small, and somebody waits for them.
    let _ = stream.set_nodelay(true);
    door.entrance.admit(peer.ip(), |place| {
        let (router, tls) = (door.router.clone().layer(Extension(place.clone())), door.tls.clone());
        tokio::spawn(attend(PlaceGuard(place), stream, peer.ip(), router, tls)).abort_handle()
    });
}

async fn attend(_stay: PlaceGuard, stream: TcpStream, from: IpAddr, router: Router, tls: Option<Arc<TlsDoor>>) {
    let Some(tls) = tls else { return serve_connection(stream, from, router, TIMEOUTS).await };
    match tls.enter(stream).await {
        Ok(SecureStream { stream, .. }) => {
            serve_connection(stream, from, router.layer(Extension(OverTls)), TIMEOUTS).await;
        }
        Err(Some(plain)) => {
            let _ = timeout(HEAD_TIMEOUT, last_words(plain, PLAIN_REFUSAL, BUFFER_BYTES)).await;
        }
        Err(None) => {}
    }
}
