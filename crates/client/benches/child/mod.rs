//! The broker's space in a process of its own, so that what is measured of the client is the client's.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tidegate_graph::SpaceLimits;
use tidegate_space::{BoundSockets, Everybody, Service, SpaceAddresses, SpaceListeners};

/// A broker that ends when this is dropped.
pub(crate) struct Broker {
    child: Child,
    pub(crate) url: String,
}

/// If this process was started as the broker: is it, until its input ends.
pub(crate) fn be_broker() -> bool {
    if std::env::args().nth(1).as_deref() != Some("--broker") {
        return false;
    }
    let service = Service::start(SpaceLimits::default()).expect("a space");
    let http = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let bound = BoundSockets::open(SpaceAddresses { http, ..SpaceAddresses::default() }).expect("a port");
    let doors = SpaceListeners::start(bound, &service.handle(), Arc::new(Everybody)).expect("doors");
    println!("{}", doors.addresses().http.expect("a door"));
    let _ = std::io::stdout().flush();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    true
}

impl Broker {
    pub(crate) fn start() -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg("--broker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut line = String::new();
        let out = child.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("an address");
        Self { child, url: format!("http://{}", line.trim()) }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The number after `--name`, if it is there.
pub(crate) fn number(name: &str, usual: usize) -> usize {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
