//! The thread that serves: a bounded number of connections, each with a bounded time.

use std::future::poll_fn;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::{fmt, io};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tidegate_broker::Handle;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::error;

use crate::entrance::{Entrance, Stay, is_exhaustion};
use crate::guard::Peer;
use crate::limits::{ACCEPT_PAUSE, BUFFER_BYTES, CONNECTION_TIMEOUT, HEAD_TIMEOUT};
use crate::live;
use crate::process_control::ProcessControl;
use crate::routes::routes;
use crate::state::AdminState;

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
    pub fn start(bind: SocketAddr, handle: Handle, process: Arc<dyn ProcessControl>) -> io::Result<Self> {
        let listener = TcpListener::bind(bind)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Reloads, certificates and backups wait for files, the demonstration for its threads; nothing else is done there.
            .max_blocking_threads(2)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let state = Arc::new(AdminState::new(handle, process));
        let (router, entrance) = (routes(Arc::clone(&state)), Arc::clone(&state.entrance));
        let serve = move || {
            let served = runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tokio::spawn(live::run(state));
                let serving = serve(listener, router, &entrance);
                let mut serving = std::pin::pin!(serving);
                let mut stopped = std::pin::pin!(stopped);
                poll_fn(|context| {
                    let is_over = stopped.as_mut().poll(context).is_ready();
                    if is_over { Poll::Ready(()) } else { serving.as_mut().poll(context) }
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
    entrance.admit(peer.ip(), |place| {
        let router = router.clone().layer(Extension(Peer(peer.ip()))).layer(Extension(place.clone()));
        tokio::spawn(attend(Stay(place), stream, router)).abort_handle()
    });
}

async fn attend(_stay: Stay, stream: TcpStream, router: Router) {
    // Answers are small, and somebody waits for them.
    let _ = stream.set_nodelay(true);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // However it ends: that is the client's affair.
    let _ = timeout(CONNECTION_TIMEOUT, serving).await;
}
