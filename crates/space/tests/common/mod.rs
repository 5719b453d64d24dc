//! The doors on free ports of this machine, and clients that know nothing but sockets.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_graph::SpaceLimits;
use tidegate_space::{
    AccessPolicy, BoundSockets, Everybody, Part, Probe, Service, ServiceOptions, SpaceAddresses, SpaceHandle,
    SpaceListeners,
};

/// A guard only: whoever waits so long waits for nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Broker {
    // Dropped in this order: the doors first.
    pub(crate) doors: SpaceListeners,
    pub(crate) service: Service,
}

pub(crate) fn start() -> Broker {
    start_with(SpaceLimits::default(), Arc::new(Everybody))
}

pub(crate) fn start_with(limits: SpaceLimits, policy: Arc<dyn AccessPolicy>) -> Broker {
    start_by(&ServiceOptions { limits, ..ServiceOptions::default() }, policy)
}

pub(crate) fn start_by(options: &ServiceOptions, policy: Arc<dyn AccessPolicy>) -> Broker {
    let free = Some("127.0.0.1:0".parse().unwrap());
    let service = Service::start_by(options).unwrap();
    let bound = BoundSockets::open(SpaceAddresses { http: free, ssap: free, ..SpaceAddresses::default() }).unwrap();
    let doors = SpaceListeners::start(bound, &service.handle(), policy).unwrap();
    Broker { doors, service }
}

/// A writer that does nothing while it is held, and takes a millisecond for each change while it is slow.
#[derive(Debug, Default)]
pub(crate) struct HeldWriter {
    is_held: AtomicBool,
    is_slow: AtomicBool,
    reached: AtomicBool,
}

impl HeldWriter {
    pub(crate) fn hold(&self) {
        self.is_held.store(true, Ordering::SeqCst);
    }

    pub(crate) fn slow_down(&self) {
        self.is_slow.store(true, Ordering::SeqCst);
    }

    pub(crate) fn let_go(&self) {
        self.is_held.store(false, Ordering::SeqCst);
        self.is_slow.store(false, Ordering::SeqCst);
    }

    /// Whether it has something to do that it does not do.
    pub(crate) fn is_waiting(&self) -> bool {
        self.reached.load(Ordering::SeqCst)
    }
}

impl Probe for HeldWriter {
    fn at(&self, part: Part) {
        while part == Part::Writer && self.is_held.load(Ordering::SeqCst) {
            self.reached.store(true, Ordering::SeqCst);
            std::thread::yield_now();
        }
        if part == Part::Writer && self.is_slow.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Broker {
    pub(crate) fn http(&self) -> SocketAddr {
        self.doors.addresses().http.unwrap()
    }

    pub(crate) fn ssap(&self) -> SocketAddr {
        self.doors.addresses().ssap.unwrap()
    }

    pub(crate) fn handle(&self) -> SpaceHandle {
        self.service.handle()
    }

    /// One request on a connection of its own: status, head and body.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut stream = connect(self.http());
        send(&mut stream, self.http(), method, path, headers, body);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Response::read(&bytes)
    }

    pub(crate) fn get(&self, path: &str, accept: &str) -> Response {
        self.request("GET", path, &[("Accept", accept)], b"")
    }

    pub(crate) fn update(&self, text: &str) -> Response {
        self.request("POST", "/update", &[("Content-Type", "application/sparql-update")], text.as_bytes())
    }

    pub(crate) fn query(&self, text: &str, accept: &str) -> Response {
        let headers = [("Content-Type", "application/sparql-query"), ("Accept", accept)];
        self.request("POST", "/query", &headers, text.as_bytes())
    }
}

pub(crate) fn send(
    stream: &mut TcpStream,
    host: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    let host = host.to_string();
    let has_host = headers.iter().any(|(name, _)| *name == "Host");
    for (name, value) in headers.iter().copied().chain((!has_host).then_some(("Host", host.as_str()))) {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses early may have closed already.
    let _ = stream.write_all(body);
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// In small letters.
    pub(crate) head: String,
    /// As it came.
    fields: String,
    pub(crate) body: String,
}

impl Response {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_ascii_lowercase(), fields: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.lines().filter_map(|line| line.split_once(": "));
        fields.find_map(|(field, value)| field.eq_ignore_ascii_case(name).then_some(value))
    }
}

pub(crate) fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A client of SSAP that reads message by message.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    bytes: Vec<u8>,
}

impl Peer {
    pub(crate) fn new(at: SocketAddr) -> Self {
        Self { stream: connect(at), bytes: Vec::new() }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// The next whole message.
    pub(crate) fn next(&mut self) -> String {
        const END: &[u8] = b"</SSAP_message>";
        loop {
            if let Some(place) = self.bytes.windows(END.len()).position(|window| window == END) {
                let message: Vec<u8> = self.bytes.drain(..place + END.len()).collect();
                return String::from_utf8(message).unwrap().trim_start().to_owned();
            }
            let mut buffer = [0; 4096];
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "closed after {:?}", String::from_utf8_lossy(&self.bytes));
            self.bytes.extend_from_slice(&buffer[..length]);
        }
    }

    /// Everything until the other side closes.
    pub(crate) fn rest(&mut self) -> String {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

pub(crate) fn message(kind: &str, id: u32, parameters: &str) -> String {
    message_of("kp1", kind, id, parameters)
}

pub(crate) fn message_of(node: &str, kind: &str, id: u32, parameters: &str) -> String {
    format!(
        "<SSAP_message><node_id>{node}</node_id><space_id>X</space_id><transaction_type>{kind}</transaction_type>\
         <message_type>REQUEST</message_type><transaction_id>{id}</transaction_id>{parameters}</SSAP_message>"
    )
}

pub(crate) fn triple(subject: &str, predicate: &str, literal: &str) -> String {
    format!(
        "<triple><subject type=\"uri\">{subject}</subject><predicate>{predicate}</predicate><object \
         type=\"literal\"><![CDATA[{literal}]]></object></triple>"
    )
}

pub(crate) fn pattern(subject: &str) -> String {
    const ANY: &str = "http://www.nokia.com/NRC/M3/sib#any";
    format!(
        "<triple><subject type=\"uri\">{subject}</subject><predicate>{ANY}</predicate><object \
         type=\"uri\">{ANY}</object></triple>"
    )
}

pub(crate) fn graph(name: &str, triples: &str) -> String {
    format!("<parameter name=\"{name}\" encoding=\"RDF-M3\"><triple_list>{triples}</triple_list></parameter>")
}

pub(crate) fn question(triples: &str) -> String {
    format!(
        "<parameter name=\"type\">RDF-M3</parameter><parameter name=\"query\"><triple_list>{triples}</triple_list>\
         </parameter>"
    )
}

pub(crate) const CONFIRM: &str = "<parameter name=\"confirm\">TRUE</parameter>";

pub(crate) fn confirmed(kind: &str, id: u32, parameters: &str) -> String {
    format!(
        "<SSAP_message><message_type>CONFIRM</message_type><transaction_type>{kind}</transaction_type>\
         <transaction_id>{id}</transaction_id><space_id>X</space_id><node_id>kp1</node_id>\
         <parameter name=\"status\">m3:Success</parameter>{parameters}</SSAP_message>"
    )
}

pub(crate) const NO_BLANKS: &str = "<parameter name=\"bnodes\"><urilist></urilist></parameter>";

/// The text of a parameter.
pub(crate) fn parameter<'a>(message: &'a str, name: &str) -> &'a str {
    let begin = format!("<parameter name=\"{name}\">");
    let rest = message.split_once(&begin).unwrap_or_else(|| panic!("no {name} in {message}")).1;
    rest.split_once("</parameter>").unwrap().0
}
