//! A ticket: a slot, and a signature that binds it to one client.

use core::fmt;
use core::hash::Hasher;
use core::str::FromStr;

use siphasher::sip::SipHasher24;

use crate::time::Timestamp;

/// Shows that a place was promised. Opaque to clients: 33 characters to be sent back as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The promised time on the broker's clock.
    pub slot: Timestamp,
    /// SipHash-2-4 over slot, the book's epoch and client.
    pub mac: u64,
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.slot.as_nanos(), self.mac)
    }
}

/// The text is not a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotATicket;

impl fmt::Display for NotATicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a ticket is two groups of 16 hexadecimal digits joined by a hyphen")
    }
}

impl core::error::Error for NotATicket {}

impl FromStr for Ticket {
    type Err = NotATicket;

    fn from_str(text: &str) -> Result<Self, NotATicket> {
        let (slot, mac) = text.split_once('-').ok_or(NotATicket)?;
        Ok(Self { slot: Timestamp::from_nanos(word(slot)?), mac: word(mac)? })
    }
}

fn word(text: &str) -> Result<u64, NotATicket> {
    let hexadecimal = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hexadecimal { u64::from_str_radix(text, 16).map_err(|_| NotATicket) } else { Err(NotATicket) }
}

/// The broker's secret for signing tickets.
#[derive(Clone)]
pub struct TicketKey([u8; 16]);

impl TicketKey {
    /// A key from 16 bytes of a good random source.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(super) fn sign(&self, client: &[u8], slot: Timestamp, epoch: u64) -> Ticket {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&slot.as_nanos().to_le_bytes());
        hasher.write(&epoch.to_le_bytes());
        hasher.write(client);
        Ticket { slot, mac: hasher.finish() }
    }

    pub(super) fn has_signed(&self, client: &[u8], ticket: Ticket, epoch: u64) -> bool {
        self.sign(client, ticket.slot, epoch) == ticket
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(secret)")
    }
}
