//! A shard with this door, in virtual time, and sockets that are strings.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open, Policy};
use tidegate_core::event::Why;
use tidegate_core::settings::Settings;
use tidegate_core::{ConnId, Portion, Shard, Then};
use tidegate_face_http::{Arrival, First, HttpDoor, Pages, Waits, first};

pub(crate) struct World {
    pub shard: Shard,
    pub door: HttpDoor,
    pub now: Timestamp,
    sockets: Vec<Socket>,
    tokens: u32,
}

/// One socket, as its client sees it.
#[derive(Default)]
struct Socket {
    conn: Option<ConnId>,
    kept: Vec<u8>,
    at_least: usize,
    said: Vec<u8>,
    is_closed: bool,
    /// It takes nothing.
    is_blocked: bool,
    user: Option<Arc<str>>,
}

/// Every page but one.
struct Site;

impl Pages for Site {
    fn judge(&self, _: IpAddr, _: &str, origin: Option<&str>) -> Result<(), &'static str> {
        if origin == Some("http://evil") { Err("a page from elsewhere") } else { Ok(()) }
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default(), Arc::new(Open))
    }

    pub(crate) fn with(settings: Settings, policy: Arc<dyn Policy>) -> Self {
        let shard = Shard::new(0, 1, Arc::new(settings), policy, 7);
        let now = Timestamp::from_secs_f64(1000.0);
        Self { shard, door: HttpDoor::default(), now, sockets: Vec::new(), tokens: 0 }
    }

    /// Somebody connects.
    pub(crate) fn dial(&mut self) -> usize {
        self.dial_as(None)
    }

    /// Somebody connects whom everybody will believe to be this user.
    pub(crate) fn dial_as(&mut self, user: Option<&str>) -> usize {
        self.sockets.push(Socket { at_least: 1, user: user.map(Arc::from), ..Socket::default() });
        self.sockets.len() - 1
    }

    /// What a client hears after it has said this.
    pub(crate) fn say(&mut self, socket: usize, bytes: impl AsRef<[u8]>) -> String {
        self.send(socket, bytes);
        self.hear(socket)
    }

    /// Bytes of a client, and what comes of them.
    pub(crate) fn send(&mut self, socket: usize, bytes: impl AsRef<[u8]>) {
        self.sockets[socket].kept.extend_from_slice(bytes.as_ref());
        for _ in 0..100 {
            let before = self.sockets[socket].kept.len();
            self.read(socket);
            self.turn();
            let after = &self.sockets[socket];
            if after.is_closed || after.kept.is_empty() || after.kept.len() == before && after.conn.is_some() {
                return;
            }
            if after.conn.is_none() && matches!(first(&after.kept, [127, 0, 0, 1].into(), &Site), First::Incomplete) {
                return;
            }
        }
        panic!("it has no end");
    }

    /// What a client has heard since it was last asked.
    pub(crate) fn hear(&mut self, socket: usize) -> String {
        String::from_utf8(std::mem::take(&mut self.sockets[socket].said)).unwrap()
    }

    pub(crate) fn is_closed(&self, socket: usize) -> bool {
        self.sockets[socket].is_closed
    }

    pub(crate) fn block(&mut self, socket: usize, is_blocked: bool) {
        self.sockets[socket].is_blocked = is_blocked;
    }

    fn read(&mut self, socket: usize) {
        let peer: SocketAddr = ([127, 0, 0, 1], 1000 + socket as u16).into();
        if self.sockets[socket].is_closed || self.sockets[socket].kept.len() < self.sockets[socket].at_least {
            return;
        }
        let Some(conn) = self.sockets[socket].conn else {
            return self.greet(socket, peer);
        };
        let bytes = self.sockets[socket].kept.clone();
        let portion = Portion { since: self.now, dry_at: self.now, units: u32::MAX };
        let progress = self.door.handle_portion(&mut self.shard, conn, &bytes, &portion, (&Site, self.now));
        let here = &mut self.sockets[socket];
        here.kept.drain(..progress.consumed.min(bytes.len()));
        here.at_least = progress.at_least.max(1);
        if progress.then == Then::Close {
            here.kept.clear();
        }
    }

    fn greet(&mut self, socket: usize, peer: SocketAddr) {
        match first(&self.sockets[socket].kept, peer.ip(), &Site) {
            First::Incomplete => {}
            First::Answer { consumed, answer } => {
                self.sockets[socket].kept.drain(..consumed);
                self.sockets[socket].said.extend(answer);
            }
            First::Refuse { answer, .. } => {
                self.sockets[socket].said.extend(answer);
                self.sockets[socket].is_closed = true;
            }
            First::Hello(hello) => {
                self.tokens += 1;
                let token = format!("t{}", self.tokens);
                let client_id = hello.client_id(&peer.to_string(), || token);
                let user = self.sockets[socket].user.clone();
                let identity = Identity { user, peer: peer.to_string().into(), ..Identity::default() };
                let arrival = Arrival { client_id: &client_id, identity, peer, hello: &hello };
                let entered = self.door.enter(&mut self.shard, arrival, self.now).unwrap();
                for other in self.sockets.iter_mut().filter(|other| other.conn == Some(entered.conn)) {
                    assert!(entered.is_resumed);
                    (other.conn, other.is_closed) = (None, true);
                }
                self.sockets[socket].conn = Some(entered.conn);
                self.sockets[socket].at_least = 1;
                self.read(socket);
            }
        }
    }

    /// The socket of a client breaks.
    pub(crate) fn lose(&mut self, socket: usize) {
        let Some(conn) = self.sockets[socket].conn.take() else { return };
        self.sockets[socket].is_closed = true;
        if !self.door.handle_lost(&mut self.shard, conn, self.now) {
            self.shard.handle_closed(conn, Why::Lost, self.now);
            self.door.forget(conn);
        }
        self.turn();
    }

    fn socket_of(&self, conn: ConnId) -> Option<usize> {
        self.sockets.iter().position(|socket| socket.conn == Some(conn))
    }

    /// A turn of a driver.
    pub(crate) fn turn(&mut self) {
        self.shard.turn(self.now);
        self.door.turn(&mut self.shard, self.now);
        while let Some(conn) = self.shard.poll_write() {
            self.write(conn);
        }
        while let Some(conn) = self.shard.poll_close() {
            self.write(conn);
            self.shard.handle_closed(conn, Why::Lost, self.now);
            self.door.forget(conn);
            if let Some(socket) = self.socket_of(conn) {
                (self.sockets[socket].conn, self.sockets[socket].is_closed) = (None, true);
            }
        }
        for socket in 0..self.sockets.len() {
            self.settle(socket);
        }
        while self.shard.poll_event().is_some() {}
        assert_eq!(self.shard.audit(), Ok(()));
    }

    fn write(&mut self, conn: ConnId) {
        let Some(socket) = self.socket_of(conn) else {
            self.door.write_nowhere(&mut self.shard, conn, self.now);
            return;
        };
        for _ in 0..1000 {
            let bytes = self.shard.outbox(conn).concat();
            if self.sockets[socket].is_blocked {
                return self.shard.handle_written(conn, 0, self.now);
            }
            if bytes.is_empty() {
                return;
            }
            self.sockets[socket].said.extend_from_slice(&bytes);
            self.shard.handle_written(conn, bytes.len(), self.now);
        }
        panic!("it has no end");
    }

    fn settle(&mut self, socket: usize) {
        let Some(conn) = self.sockets[socket].conn else { return };
        let is_written = self.shard.outbox(conn).iter().all(|slice| slice.is_empty());
        match self.door.waits(&mut self.shard, conn).filter(|_| is_written) {
            None | Some(Waits::Nothing) => {}
            Some(waits) => {
                self.shard.handle_closed(conn, Why::Goodbye, self.now);
                self.door.forget(conn);
                (self.sockets[socket].conn, self.sockets[socket].at_least) = (None, 1);
                self.sockets[socket].is_closed = waits == Waits::Close;
            }
        }
    }

    /// Time passes, with a turn whenever something is due.
    pub(crate) fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..10_000 {
            let due = [self.door.poll_timeout(), self.shard.poll_timeout()].into_iter().flatten().min();
            self.now = due.unwrap_or(until).min(until).max(self.now);
            self.turn();
            if self.now >= until {
                return;
            }
        }
        panic!("time does not pass");
    }

    /// Publishes by a connection of its own.
    pub(crate) fn publish(&mut self, topic: &str, payload: &str) {
        let socket = self.dial();
        let text =
            format!("POST /topics/{topic} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{payload}", payload.len());
        let said = self.say(socket, text);
        assert!(said.starts_with("HTTP/1.1 204 "), "{said}");
        self.lose(socket);
    }
}

/// A request without a body.
pub(crate) fn ask(line: &str, fields: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: x\r\n{fields}\r\n")
}

/// The statuses of the responses in a text.
pub(crate) fn statuses(said: &str) -> Vec<&str> {
    let found = said.split("HTTP/1.1 ").skip(1).map(|text| &text[..3]);
    found.filter(|status| status.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

/// The data of the events in a text.
pub(crate) fn data(said: &str) -> Vec<&str> {
    said.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
}

/// The last id in a text.
pub(crate) fn last_id(said: &str) -> &str {
    said.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap()
}
