//! One address: its handshake, its records, and who it is.

use std::sync::Arc;
use std::time::Instant;

use dimpl::{Dtls, Output};
use tidegate_control::Timestamp;

use crate::beside;
use crate::hello::{self, Alert, COOKIE_BYTES, Hello};
use crate::plan::{DtlsPlan, Way};

/// Who is at the other end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DtlsPeer {
    /// Nobody in particular: no certificate is asked for.
    Anonymous,
    /// The name in a certificate that is trusted.
    Certificate(Arc<str>),
    /// The name of a key that it has.
    Key(Arc<str>),
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its peer has said so.
    Closed,
    /// Its handshake failed, or took too long.
    Failed,
    /// Its certificate is not trusted.
    NotTrusted,
}

/// What comes out of a session.
pub(crate) enum Outgoing<'a> {
    /// To be sent.
    Datagram(&'a [u8]),
    /// What the peer has said.
    Data(&'a [u8]),
}

pub(crate) struct Session {
    dtls: Dtls,
    /// Of the hello that it began with: the same hello again is no new session.
    pub(crate) random: [u8; 32],
    /// By how much its first records are later than it thinks.
    shift: u64,
    who: DtlsPeer,
    is_open: bool,
    /// When its handshake has to be over: dimpl has such a time, too, but not before a hello has satisfied it.
    pub(crate) deadline: Timestamp,
    pub(crate) heard_at: Timestamp,
    /// When it is looked at without being asked; its real time may be later.
    pub(crate) wake_at: Timestamp,
}

impl Session {
    /// A session whose hello has the right cookie. None if this is no hello for us.
    pub(crate) fn begin(
        plan: &DtlsPlan,
        (hello, cookie, way): (&Hello<'_>, [u8; COOKIE_BYTES], Way),
        (instant, now): (Instant, Timestamp),
        buffer: &mut [u8],
    ) -> Option<Self> {
        let mut dtls = plan.begin(way, instant)?;
        dtls.handle_timeout(instant).ok()?;
        beside::with_cookie(cookie, || {
            dtls.handle_packet(&hello.before_cookie())?;
            // Its request to repeat the hello was ours, and is answered.
            while !matches!(dtls.poll_output(buffer), Output::Timeout(_) | Output::BufferTooSmall { .. }) {}
            dtls.handle_packet(hello.record)
        })
        .ok()?;
        // What it sends next has the number one, and is to have that of the hello.
        let shift = hello.number().saturating_sub(1);
        let (random, who) = (*hello.random, DtlsPeer::Anonymous);
        let (deadline, wake_at) = (now + plan.handshake_timeout, Timestamp::MAX);
        Some(Self { dtls, random, shift, who, is_open: false, deadline, heard_at: now, wake_at })
    }

    /// Who it is, once that is known.
    pub(crate) fn peer(&self) -> Option<&DtlsPeer> {
        self.is_open.then_some(&self.who)
    }

    /// A datagram came.
    pub(crate) fn hear(&mut self, datagram: &[u8], instant: Instant) -> Result<(), Ending> {
        let heard = self.dtls.handle_timeout(instant).and_then(|()| self.dtls.handle_packet(datagram));
        if let Some(name) = beside::take_identity() {
            self.who = DtlsPeer::Key(name.into());
        }
        heard.map_err(|_| Ending::Failed)
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, instant: Instant) -> Result<(), Ending> {
        self.dtls.handle_timeout(instant).map_err(|_| Ending::Failed)
    }

    /// Something to be told to the peer.
    pub(crate) fn say(&mut self, data: &[u8]) -> Result<(), Ending> {
        self.dtls.send_application_data(data).map(drop).map_err(|_| Ending::Failed)
    }

    /// The last word.
    pub(crate) fn close(&mut self) {
        // What cannot be said any more is not said.
        let _ = self.dtls.close();
    }

    /// All that there is to be sent and to be heard, and when to look again.
    pub(crate) fn drain(
        &mut self,
        plan: &DtlsPlan,
        buffer: &mut [u8],
        mut give: impl FnMut(Outgoing<'_>),
    ) -> Result<Instant, Ending> {
        let mut is_closed = false;
        loop {
            match self.dtls.poll_output(buffer) {
                Output::Packet(packet) => {
                    let length = packet.len();
                    let packet = &mut buffer[..length];
                    hello::shift_numbers(packet, self.shift);
                    give(Outgoing::Datagram(packet));
                }
                Output::PeerCert(certificate) => {
                    let name = plan.name(certificate).ok_or(Ending::NotTrusted)?;
                    self.who = DtlsPeer::Certificate(name.into());
                }
                Output::Connected => self.is_open = true,
                Output::ApplicationData(data) => give(Outgoing::Data(data)),
                Output::CloseNotify => is_closed = true,
                Output::Timeout(_) if is_closed => return Err(Ending::Closed),
                Output::Timeout(at) => return Ok(at),
                // The buffer has room for whatever came in, or was to go out.
                Output::BufferTooSmall { .. } => return Err(Ending::Failed),
                _ => {}
            }
        }
    }

    /// The word that there will be no session, if there is none yet.
    pub(crate) fn refusal(&self, ending: Ending) -> Option<Vec<u8>> {
        let why = match ending {
            Ending::Closed => return None,
            Ending::Failed => Alert::HandshakeFailure,
            Ending::NotTrusted => Alert::BadCertificate,
        };
        // A number that none of its records has had.
        (!self.is_open).then(|| hello::alert(why, self.shift + LATER))
    }
}

/// More records than a handshake has.
const LATER: u64 = 1 << 16;
