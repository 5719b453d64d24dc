//! The thread that serves, and one connection of it. Who may come in, and how many, is for whoever accepts.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::http::request::Parts;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::error;

/// A thread with a runtime of its own. Dropping it ends what runs there, and waits for the thread.
#[derive(Debug)]
pub struct Serving {
    name: &'static str,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Runs `begin` on a new thread; whatever it spawns runs until this is dropped. `blocking_max` threads more are for
    /// what waits for files.
    pub fn start<F: Future<Output = io::Result<()>>>(
        name: &'static str,
        stack_bytes: usize,
        blocking_max: usize,
        begin: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(blocking_max).build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let life = move || {
            let served = runtime.block_on(async {
                begin().await?;
                // Told to stop, or whoever could tell is gone.
                let _ = stopped.await;
                Ok::<_, io::Error>(())
            });
            if let Err(error) = served {
                error!(event = "http_failed", thread = name, %error, "a door did not open");
            }
            // Whoever still waits for an answer does not keep the process.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(life)?;
        Ok(Self { name, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!(event = "panic", thread = self.name, "a thread of a door has panicked");
        }
    }
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub IpAddr);

/// Where a request comes from, as whoever accepted its connection has noted.
pub fn peer(head: &Parts) -> IpAddr {
    head.extensions.get::<PeerAddress>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |PeerAddress(ip)| *ip)
}

/// The bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the head of a request.
    pub head: Duration,
    /// For all of the connection.
    pub connection: Duration,
    /// After that, for the request that is being answered.
    pub last: Duration,
    /// For the head, and the pieces of what is read.
    pub buffer_bytes: usize,
}

/// Serves a connection to its end.
pub async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    from: IpAddr,
    router: Router,
    within: Timeouts,
) {
    let router = router.layer(Extension(PeerAddress(from)));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(within.head)
        .max_buf_size(within.buffer_bytes)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    // However it ends: that is the client's affair. That it ends is ours.
    if timeout(within.connection, serving.as_mut()).await.is_err() {
        serving.as_mut().graceful_shutdown();
        let _ = timeout(within.last, serving).await;
    }
}
