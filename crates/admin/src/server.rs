//! The thread that serves: a bounded number of connections, each with a bounded time.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{fmt, io};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tidegate_broker::Handle;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tracing::{error, warn};

use crate::events::Place;
use crate::guard::Peer;
use crate::limits::{BUFFER_BYTES, CONNECTION_TIMEOUT, CONNECTIONS_MAX, HEAD_TIMEOUT};
use crate::live;
use crate::routes::routes;
use crate::state::State;
use crate::steward::Steward;

/// The operator's door while it is open. Dropping it closes it.
pub struct Admin {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Admin {
    /// Opens the door: port 0 takes a free one.
    pub fn start(bind: SocketAddr, handle: Handle, steward: Arc<dyn Steward>) -> io::Result<Self> {
        let listener = TcpListener::bind(bind)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Reloads, certificates and backups wait for files, the demonstration for its threads; nothing else is done there.
            .max_blocking_threads(2)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let state = Arc::new(State::new(handle, steward));
        let router = routes(Arc::clone(&state));
        let serve = move || {
            let served = runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tokio::spawn(live::run(state));
                let serving = serve(listener, router);
                let mut serving = std::pin::pin!(serving);
                let mut stopped = std::pin::pin!(stopped);
                std::future::poll_fn(|context| {
                    let is_over = stopped.as_mut().poll(context).is_ready();
                    if is_over { std::task::Poll::Ready(()) } else { serving.as_mut().poll(context) }
                })
                .await;
                Ok::<_, io::Error>(())
            });
            if let Err(error) = served {
                error!(event = "admin_failed", %error, "the operator's door is closed");
            }
            // Whoever still waits for an answer does not keep the process.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("admin".to_owned()).spawn(serve)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it is, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!(event = "panic", "the admin thread has panicked");
        }
    }
}

async fn serve(listener: tokio::net::TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without a place it is closed at once: a client that waits does not know why.
                if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                    let place = Place::new(place);
                    let peer = Extension(Peer(peer.ip()));
                    let router = router.clone().layer(peer).layer(Extension(place.clone()));
                    tokio::spawn(attend(stream, router, place));
                }
            }
            Err(error) => {
                warn!(event = "accept_failed", listener = "admin", %error, "cannot accept");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn attend(stream: TcpStream, router: Router, place: Place) {
    // Answers are small, and somebody waits for them.
    let _ = stream.set_nodelay(true);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // However it ends: that is the client's affair.
    let _ = timeout(CONNECTION_TIMEOUT, serving).await;
    place.give_back();
}
