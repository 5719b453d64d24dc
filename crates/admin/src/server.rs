//! The thread that serves: a bounded number of connections, each with a bounded time.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::{Extension, Router};
use tidegate_broker::Handle;
use tidegate_http::{Serving, Timeouts, serve_connection};
use tokio::net::TcpStream;

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
    address: SocketAddr,
    _serving: Serving,
}

impl Admin {
    /// Opens the door: port 0 takes a free one. Alarms go to `alarms`, too.
    pub fn start(
        bind: SocketAddr,
        handle: Handle,
        process: Arc<dyn ProcessControl>,
        alarms: Option<HttpTarget>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(bind)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = Arc::new(AdminState::new(handle, process, alarms.map(Webhook::start).transpose()?));
        let (router, entrance) = (routes(Arc::clone(&state)), Arc::clone(&state.entrance));
        let begin = async move || {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::spawn(live::run(state));
            tokio::spawn(async move { serve(listener, router, &entrance).await });
            Ok(())
        };
        Ok(Self { address, _serving: Serving::start("admin", STACK_BYTES, BLOCKING_MAX, begin)? })
    }

    /// Where it is, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(listener: tokio::net::TcpListener, router: Router, entrance: &Arc<Entrance>) {
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                entrance.note_accepted();
                admit(accepted, &router, entrance);
                // Everybody whose request is there is served before the next one comes in: a flood of newcomers who say
                // nothing pushes out nobody who says something.
                tokio::task::yield_now().await;
            }
            Err(error) if is_exhaustion(&error) => accept_with_reserve(&listener, &router, entrance, &error).await,
            Err(_) => {}
        }
    }
}

/// One more, with a descriptor of the reserve. Without anybody there it goes back at once.
async fn accept_with_reserve(
    listener: &tokio::net::TcpListener,
    router: &Router,
    entrance: &Arc<Entrance>,
    error: &io::Error,
) {
    if !entrance.make_room(error) {
        tokio::time::sleep(ACCEPT_PAUSE).await;
        entrance.refill();
        return;
    }
    match poll_fn(|context| Poll::Ready(listener.poll_accept(context))).await {
        Poll::Ready(Ok(accepted)) => {
            admit(accepted, router, entrance);
            tokio::task::yield_now().await;
        }
        Poll::Pending => drop(entrance.refill()),
        // Somebody else was quicker.
        Poll::Ready(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
    }
}

fn admit((stream, peer): (TcpStream, SocketAddr), router: &Router, entrance: &Arc<Entrance>) {
    // Answers are small, and somebody waits for them.
    let _ = stream.set_nodelay(true);
    entrance.admit(peer.ip(), |place| {
        let router = router.clone().layer(Extension(place.clone()));
        tokio::spawn(attend(PlaceGuard(place), stream, peer.ip(), router)).abort_handle()
    });
}

async fn attend(_stay: PlaceGuard, stream: TcpStream, from: IpAddr, router: Router) {
    serve_connection(stream, from, router, TIMEOUTS).await;
}
