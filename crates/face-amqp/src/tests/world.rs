//! A shard with this door, and clients whose sockets are buffers.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open, Policy};
use tidegate_core::event::Why;
use tidegate_core::settings::Settings;
use tidegate_core::{ConnId, Portion, Shard, Then};

use crate::first::AmqpHello;
use crate::frame::{self, Framed};
use crate::limits::FRAME_BYTES_MAX;
use crate::types::{Items, Reader, Value};
use crate::write::{binary, composite, frame as put_frame, map, symbol, text, ubyte};
use crate::{AmqpDoor, Arrival};

pub(super) struct World {
    pub(super) shard: Shard,
    pub(super) door: AmqpDoor,
    pub(super) now: Timestamp,
    /// What is written to the disk stays in its cache.
    pub(super) is_disk_stuck: bool,
    written: u64,
    sockets: Vec<Socket>,
}

struct Socket {
    conn: Option<ConnId>,
    kept: Vec<u8>,
    said: Vec<u8>,
    is_paused: bool,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(Settings::default(), Arc::new(Open))
    }

    pub(super) fn with(settings: Settings, policy: Arc<dyn Policy>) -> Self {
        let shard = Shard::new(0, 1, Arc::new(settings), policy, 7);
        let (door, now) = (AmqpDoor::default(), Timestamp::from_secs_f64(1000.0));
        Self { shard, door, now, is_disk_stuck: false, written: 0, sockets: Vec::new() }
    }

    /// One whose sessions are kept on disk.
    pub(super) fn with_disk() -> Self {
        let mut world = Self::new();
        world.shard.keep_journal(0);
        world
    }

    /// A container with one session, on channel 0.
    pub(super) fn dial(&mut self, name: &str) -> usize {
        let socket = self.dial_with(name, AmqpHello::default());
        assert_eq!(self.say(socket, &begin(0)), ["open", "begin"]);
        socket
    }

    pub(super) fn dial_with(&mut self, name: &str, hello: AmqpHello) -> usize {
        let identity = Identity { peer: "127.0.0.1:7".into(), ..Identity::default() };
        let max_frame_size = if hello.max_frame_size == 0 { u32::MAX } else { hello.max_frame_size };
        let hello = AmqpHello { max_frame_size, channel_max: u16::MAX, ..hello };
        let arrival = Arrival { client_id: name, identity, hello: &hello };
        let conn = self.door.enter(&mut self.shard, arrival, self.now).unwrap();
        self.sockets.push(Socket { conn: Some(conn), kept: Vec::new(), said: Vec::new(), is_paused: false });
        self.turn();
        self.sockets.len() - 1
    }

    /// What a client hears after it has said this.
    pub(super) fn say(&mut self, socket: usize, bytes: &[u8]) -> Vec<String> {
        self.sockets[socket].kept.extend_from_slice(bytes);
        self.read(socket);
        self.turn();
        self.hear(socket)
    }

    /// Bytes that wait for a client after it has said this, and nobody has written anything.
    pub(super) fn say_and_wait(&mut self, socket: usize, bytes: &[u8], ear: usize) -> usize {
        self.sockets[socket].kept.extend_from_slice(bytes);
        self.read(socket);
        self.conn(ear).map_or(0, |conn| self.shard.outbox(conn).concat().len())
    }

    pub(super) fn conn(&self, socket: usize) -> Option<ConnId> {
        self.sockets[socket].conn
    }

    /// What a client has heard since it was last asked.
    pub(super) fn hear(&mut self, socket: usize) -> Vec<String> {
        said(&std::mem::take(&mut self.sockets[socket].said))
    }

    pub(super) fn is_closed(&self, socket: usize) -> bool {
        self.sockets[socket].conn.is_none()
    }

    pub(super) fn is_paused(&self, socket: usize) -> bool {
        self.sockets[socket].is_paused
    }

    fn read(&mut self, socket: usize) {
        let Some(conn) = self.sockets[socket].conn else { return };
        let bytes = self.sockets[socket].kept.clone();
        let portion = Portion { since: self.now, dry_at: self.now, units: u32::MAX };
        let progress = self.door.handle_portion(&mut self.shard, conn, &bytes, &portion, self.now);
        let here = &mut self.sockets[socket];
        here.kept.drain(..progress.consumed.min(bytes.len()));
        here.is_paused = progress.then == Then::Pause;
    }

    /// A turn of a driver.
    pub(super) fn turn(&mut self) {
        self.shard.turn(self.now);
        self.door.turn(&mut self.shard, self.now);
        while let Some(turn) = self.shard.poll_journal() {
            self.written = turn.position;
        }
        if !self.is_disk_stuck {
            self.shard.handle_synced(self.written, self.now);
        }
        for _ in 0..1000 {
            let Some(conn) = self.shard.poll_write() else { break };
            self.write(conn);
        }
        while let Some(conn) = self.shard.poll_close() {
            self.write(conn);
            self.shard.handle_closed(conn, Why::Lost, self.now);
            self.door.forget(conn);
            for socket in self.sockets.iter_mut().filter(|socket| socket.conn == Some(conn)) {
                socket.conn = None;
            }
        }
        for socket in 0..self.sockets.len() {
            let may_read = self.sockets[socket].conn.is_some_and(|conn| self.shard.may_read(conn));
            if self.sockets[socket].is_paused && may_read {
                self.sockets[socket].is_paused = false;
                self.read(socket);
            }
        }
        while self.shard.poll_event().is_some() {}
        assert_eq!(self.shard.audit(), Ok(()));
    }

    fn write(&mut self, conn: ConnId) {
        let Some(socket) = self.sockets.iter_mut().find(|socket| socket.conn == Some(conn)) else { return };
        for _ in 0..1000 {
            let bytes = self.shard.outbox(conn).concat();
            if bytes.is_empty() {
                return;
            }
            socket.said.extend_from_slice(&bytes);
            self.shard.handle_written(conn, bytes.len(), self.now);
        }
        panic!("it has no end");
    }

    /// The socket of a client breaks.
    pub(super) fn lose(&mut self, socket: usize) {
        let Some(conn) = self.sockets[socket].conn.take() else { return };
        self.shard.handle_closed(conn, Why::Lost, self.now);
        self.door.forget(conn);
        self.turn();
    }

    /// Time passes, with a turn whenever something is due.
    pub(super) fn wait(&mut self, time: Duration) {
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

    /// Publishes by a container of its own.
    pub(super) fn publish(&mut self, topic: &str, payload: &str) {
        let name = format!("publisher-{}", self.sockets.len());
        let socket = self.dial(&name);
        self.say(socket, &attach_sender(0, "s", Some(topic)));
        let said = self.say(socket, &transfer(0, 0, false, &data(payload)));
        assert!(said.contains(&"disposition 0 accepted".to_owned()), "{said:?}");
        self.say(socket, &close());
        assert!(self.is_closed(socket));
    }
}

pub(super) fn performative(channel: u16, code: u8, fields: impl FnOnce(&mut crate::write::Fields<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(channel, &mut out, |out| composite(code, out, fields));
    out
}

pub(super) fn begin(channel: u16) -> Vec<u8> {
    performative(channel, 0x11, |fields| {
        fields.null().uint(0).uint(2048).uint(2048);
    })
}

pub(super) fn attach_sender(handle: u32, name: &str, topic: Option<&str>) -> Vec<u8> {
    performative(0, 0x12, |fields| {
        fields.text(name).uint(handle).boolean(false).null().null().null();
        fields.put(|out| {
            composite(0x29, out, |fields| {
                fields.some(topic, text);
            });
        });
        fields.null().null().uint(0);
    })
}

/// `mode`: 0 unsettled, 1 settled, 2 mixed.
pub(super) fn attach_receiver(handle: u32, name: &str, filter: &str, mode: u8) -> Vec<u8> {
    performative(0, 0x12, |fields| {
        fields.text(name).uint(handle).boolean(true).put(|out| ubyte(mode, out)).null();
        fields.put(|out| {
            composite(0x28, out, |fields| {
                fields.text(filter);
            });
        });
        fields.put(|out| composite(0x29, out, |_| {}));
    })
}

/// Credit for a link of which so much was seen.
pub(super) fn credit(handle: u32, seen: u32, credit: u32) -> Vec<u8> {
    flow(handle, seen, credit, (seen, 2048), false)
}

pub(super) fn flow(handle: u32, seen: u32, credit: u32, window: (u32, u32), drain: bool) -> Vec<u8> {
    performative(0, 0x13, |fields| {
        fields.uint(window.0).uint(window.1).uint(0).uint(2048).uint(handle).uint(seen).uint(credit).null();
        fields.boolean(drain);
    })
}

pub(super) fn transfer(handle: u32, id: u32, is_settled: bool, message: &[u8]) -> Vec<u8> {
    piece(handle, Some(id), is_settled, false, message)
}

pub(super) fn piece(handle: u32, id: Option<u32>, is_settled: bool, more: bool, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(0, &mut out, |out| {
        composite(0x14, out, |fields| {
            fields.uint(handle).some(id, crate::write::uint);
            fields.some(id, |id, out| binary(&id.to_be_bytes(), out)).uint(0).boolean(is_settled).boolean(more);
        });
        out.extend_from_slice(bytes);
    });
    out
}

pub(super) fn settle(first: u32, last: u32, state: u8) -> Vec<u8> {
    performative(0, 0x15, |fields| {
        fields.boolean(true).uint(first).uint(last).boolean(true).put(|out| composite(state, out, |_| {}));
    })
}

pub(super) fn detach(handle: u32, closed: bool) -> Vec<u8> {
    performative(0, 0x16, |fields| {
        fields.uint(handle).boolean(closed);
    })
}

pub(super) fn close() -> Vec<u8> {
    performative(0, 0x18, |_| {})
}

/// A message of these bytes.
pub(super) fn data(payload: &str) -> Vec<u8> {
    let mut out = vec![0, 0x53, 0x75];
    binary(payload.as_bytes(), &mut out);
    out
}

/// The same for this topic, retained.
pub(super) fn retained(to: &str, payload: &str) -> Vec<u8> {
    let mut out = vec![0, 0x53, 0x72];
    map(1, &mut out, |out| {
        symbol("x-opt-retain-message", out);
        out.push(0x41);
    });
    composite(0x73, &mut out, |fields| {
        fields.null().null().text(to);
    });
    out.extend(data(payload));
    out
}

/// Frames, in words.
fn said(mut bytes: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    while let Framed::Frame(read) = frame::read(bytes, FRAME_BYTES_MAX) {
        bytes = &bytes[read.size..];
        let mut reader = Reader::new(read.body);
        words.push(match reader.value().ok().and_then(Value::described) {
            None => "heartbeat".to_owned(),
            Some(described) => {
                let fields = described.fields().unwrap();
                in_words(described.code.unwrap(), fields, reader.rest())
            }
        });
    }
    assert!(bytes.is_empty(), "half a frame");
    words
}

fn in_words(code: u64, mut fields: Items<'_>, payload: &[u8]) -> String {
    let mut all = Vec::new();
    while !fields.is_empty() {
        all.push(fields.field().unwrap());
    }
    let number = |at: usize| match all.get(at) {
        Some(Value::Unsigned(number)) => *number,
        _ => 0,
    };
    let error = all.iter().find_map(|value| {
        let error = value.described().filter(|error| error.code == Some(0x1d))?;
        match error.fields().unwrap().field() {
            Ok(Value::Symbol(condition)) => Some(format!(" {condition}")),
            _ => None,
        }
    });
    let error = error.unwrap_or_default();
    match code {
        0x10 => "open".to_owned(),
        0x11 => "begin".to_owned(),
        0x12 => {
            let is_there = [5, 6].into_iter().all(|at| all.get(at).is_none_or(Value::is_null));
            format!("attach {}{}", number(1), if is_there { " none" } else { "" })
        }
        0x13 if all.len() < 5 => "flow".to_owned(),
        0x13 => format!("flow {} count {} credit {}", number(4), number(5), number(6)),
        0x14 => {
            let more = if all.get(5) == Some(&Value::Bool(true)) { " more" } else { "" };
            let settled = if all.get(4) == Some(&Value::Bool(true)) { " settled" } else { "" };
            format!("transfer {}{settled}{more} {}", number(0), payload_of(payload))
        }
        0x15 => {
            let state = all.get(4).and_then(|state| state.described());
            let name = match state.and_then(|state| state.code) {
                Some(0x24) => "accepted".to_owned(),
                Some(0x25) => match state.unwrap().fields().unwrap().field().unwrap().described().unwrap().fields() {
                    Ok(mut fields) => match fields.field() {
                        Ok(Value::Symbol(condition)) => format!("rejected {condition}"),
                        other => panic!("{other:?}"),
                    },
                    Err(error) => panic!("{error:?}"),
                },
                Some(0x27) => "modified".to_owned(),
                other => format!("{other:?}"),
            };
            format!("disposition {} {name}", number(1))
        }
        0x16 => format!("detach {}{error}", number(0)),
        0x17 => format!("end{error}"),
        0x18 => format!("close{error}"),
        other => format!("{other:#x}"),
    }
}

/// The text of a message's body, with a mark if it was retained.
fn payload_of(bytes: &[u8]) -> String {
    let mut reader = Reader::new(bytes);
    let mut is_retained = "";
    while let Ok(value) = reader.value() {
        let Some(section) = value.described() else { break };
        match (section.code, section.value()) {
            (Some(0x72), _) => is_retained = "retained ",
            (Some(0x75), Ok(Value::Binary(bytes))) => {
                return format!("{is_retained}{}", String::from_utf8_lossy(bytes));
            }
            (Some(0x77), Ok(Value::Text(text))) => return format!("{is_retained}\"{text}\""),
            _ => {}
        }
    }
    format!("{} bytes", bytes.len())
}
