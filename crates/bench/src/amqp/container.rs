//! A container with one session and one link, on a socket that is waited for.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::wire::{NULL, Said, code, described, flag, frame, small, text, uint};

/// How long a server may take for whatever it owes.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Frames that a server may have under way to us, and messages: a flow says so anew when half of them have come.
const WINDOW: u32 = 2048;
/// Bytes of a payload.
const PAYLOAD_BYTES: usize = 64;
const HEADER: &[u8] = b"AMQP\x00\x01\x00\x00";

/// What was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// So many of our messages have an answer; and of these so many were taken.
    Answers(u32, u32),
    /// A message. `None`: it is settled already.
    Message(Option<u32>),
    /// Nothing that counts.
    Other,
    /// Nothing at all, for as long as a server may take.
    Silence,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Container {
    stream: TcpStream,
    inbox: Vec<u8>,
    /// Bytes of the inbox that are done with.
    read: usize,
    /// Messages that were sent, and how many may be by the credit of the link.
    sent: u32,
    sent_max: u32,
    /// The first transfer that the window of the session does not allow.
    window_end: u32,
    /// Messages that came, and how many may by the credit that was given.
    received: u32,
    received_max: u32,
    next_incoming: u32,
}

impl Container {
    /// Connected, with a session.
    pub(super) fn open(address: SocketAddr, name: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(HEADER)?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).context("no header")?;
        if answer != HEADER {
            bail!("the server does not speak AMQP 1.0 without SASL");
        }
        let mut container = Self {
            stream,
            inbox: Vec::new(),
            read: 0,
            sent: 0,
            sent_max: 0,
            window_end: 0,
            received: 0,
            received_max: 0,
            next_incoming: 0,
        };
        container.say(&frame(code::OPEN, &[text(name), text("localhost")], &[]))?;
        container.say(&frame(code::BEGIN, &[NULL.to_vec(), uint(0), uint(WINDOW), uint(WINDOW)], &[]))?;
        container.await_code(code::BEGIN)?;
        Ok(container)
    }

    /// A link to an address; returns when there is credit.
    pub(super) fn attach_sender(&mut self, address: &str) -> Result<()> {
        let (null, source, target) =
            (NULL.to_vec(), described(code::SOURCE, &[]), described(code::TARGET, &[text(address)]));
        let fields =
            [text("in"), uint(0), flag(false), null.clone(), null.clone(), source, target, null.clone(), null, uint(0)];
        self.say(&frame(code::ATTACH, &fields, &[]))?;
        self.await_code(code::ATTACH)?;
        self.await_credit()
    }

    /// A link from an address, with credit; a server is asked not to wait for answers, or to wait.
    pub(super) fn attach_receiver(&mut self, address: &str, is_settled: bool) -> Result<()> {
        let mode = small(u8::from(is_settled));
        let (source, target) = (described(code::SOURCE, &[text(address)]), described(code::TARGET, &[]));
        let fields = [text("out"), uint(0), flag(true), mode, NULL.to_vec(), source, target];
        self.say(&frame(code::ATTACH, &fields, &[]))?;
        self.await_code(code::ATTACH)?;
        self.give_credit()
    }

    /// Sends up to so many messages, as far as they may be sent, and says how many; waits while none may be.
    pub(super) fn send(&mut self, count: u32, is_settled: bool) -> Result<u32> {
        self.await_credit()?;
        let count = count.min(self.sent_max.wrapping_sub(self.sent)).min(self.window_end.wrapping_sub(self.sent));
        let mut bytes = Vec::new();
        for id in self.sent..self.sent.wrapping_add(count) {
            let tag = [&[0xa0, 4][..], &id.to_be_bytes()].concat();
            let message = [&[0, 0x53, code::DATA, 0xa0, PAYLOAD_BYTES as u8][..], &[b'x'; PAYLOAD_BYTES]].concat();
            bytes.extend(frame(code::TRANSFER, &[uint(0), uint(id), tag, uint(0), flag(is_settled)], &message));
        }
        self.sent = self.sent.wrapping_add(count);
        self.say(&bytes)?;
        Ok(count)
    }

    /// All messages from the first to the last of these are taken.
    pub(super) fn accept(&mut self, first: u32, last: u32) -> Result<()> {
        let state = described(code::ACCEPTED, &[]);
        self.say(&frame(code::DISPOSITION, &[flag(true), uint(first), uint(last), flag(true), state], &[]))
    }

    /// The next thing that the server says.
    pub(super) fn hear(&mut self) -> Result<Heard> {
        loop {
            let found = match Said::read(&self.inbox[self.read..]) {
                Err(words) => bail!("{words}"),
                Ok(None) => None,
                Ok(Some((said, length))) => Some((said.as_ref().map(Word::of).transpose()?, length)),
            };
            if let Some((word, length)) = found {
                self.read += length;
                return word.map_or(Ok(Heard::Other), |word| self.handle(&word));
            }
            self.inbox.drain(..self.read);
            self.read = 0;
            let mut buffer = [0; 16 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(count) => self.inbox.extend_from_slice(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(Heard::Silence);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn handle(&mut self, word: &Word) -> Result<Heard> {
        match *word {
            Word::Begin { next_outgoing, incoming_window } => {
                (self.next_incoming, self.window_end) = (next_outgoing, incoming_window);
            }
            Word::Flow { next_incoming, incoming_window, link } => {
                self.window_end = next_incoming.wrapping_add(incoming_window);
                if let Some((delivery_count, credit)) = link {
                    self.sent_max = delivery_count.wrapping_add(credit);
                }
            }
            Word::Answer { count, is_taken } => return Ok(Heard::Answers(count, if is_taken { count } else { 0 })),
            Word::Transfer { id, is_settled } => {
                self.received += 1;
                self.next_incoming = self.next_incoming.wrapping_add(1);
                if self.received_max.wrapping_sub(self.received) < WINDOW / 2 {
                    self.give_credit()?;
                }
                return Ok(Heard::Message(Some(id).filter(|_| !is_settled)));
            }
            Word::Other => {}
        }
        Ok(Heard::Other)
    }

    fn give_credit(&mut self) -> Result<()> {
        self.received_max = self.received.wrapping_add(WINDOW);
        let session = [uint(self.next_incoming), uint(WINDOW), uint(self.sent), uint(WINDOW)];
        let link = [uint(0), uint(self.received), uint(WINDOW)];
        self.say(&frame(code::FLOW, &[&session[..], &link].concat(), &[]))
    }

    fn await_credit(&mut self) -> Result<()> {
        while self.sent == self.sent_max || self.sent == self.window_end {
            if self.hear()? == Heard::Silence {
                bail!("no credit");
            }
        }
        Ok(())
    }

    /// Hears until this was said.
    fn await_code(&mut self, wanted: u8) -> Result<()> {
        loop {
            while let Some((said, length)) = Said::read(&self.inbox[self.read..]).map_err(anyhow::Error::msg)? {
                let is_it = said.as_ref().is_some_and(|said| said.code == wanted);
                let word = said.as_ref().map(Word::of).transpose()?;
                self.read += length;
                if let Some(word) = word {
                    self.handle(&word)?;
                }
                if is_it {
                    return Ok(());
                }
            }
            let mut buffer = [0; 4096];
            let count = self.stream.read(&mut buffer).context("no answer")?;
            if count == 0 {
                bail!("the server closed the connection");
            }
            self.inbox.extend_from_slice(&buffer[..count]);
        }
    }

    fn say(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }
}

/// What counts of what a server says.
#[derive(Clone, Copy, Debug)]
enum Word {
    Begin { next_outgoing: u32, incoming_window: u32 },
    Flow { next_incoming: u32, incoming_window: u32, link: Option<(u32, u32)> },
    Transfer { id: u32, is_settled: bool },
    Answer { count: u32, is_taken: bool },
    Other,
}

impl Word {
    fn of(said: &Said<'_>) -> Result<Self> {
        let number = |place| said.number(place);
        Ok(match said.code {
            code::BEGIN => {
                Self::Begin { next_outgoing: number(1).unwrap_or(0), incoming_window: number(2).unwrap_or(0) }
            }
            code::FLOW => Self::Flow {
                next_incoming: number(0).unwrap_or(0),
                incoming_window: number(1).unwrap_or(0),
                link: number(4).and_then(|_| Some((number(5).unwrap_or(0), number(6)?))),
            },
            code::TRANSFER => Self::Transfer { id: number(1).unwrap_or(0), is_settled: said.is_set(4) },
            code::DISPOSITION if !said.is_set(0) => Self::Other,
            code::DISPOSITION => {
                let first = number(1).context("a disposition of nothing")?;
                let count = number(2).unwrap_or(first).wrapping_sub(first).wrapping_add(1);
                Self::Answer { count, is_taken: said.meaning(4) == Some(code::ACCEPTED) }
            }
            code::DETACH | code::END | code::CLOSE => bail!("the server ends: {}", said.words()),
            _ => Self::Other,
        })
    }
}
