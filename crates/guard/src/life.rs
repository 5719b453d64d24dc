//! Whether a client that is not read for a while is kept alive at the other broker.
//!
//! That broker ends a client that is silent for one and a half times its keep-alive, and while the guard does not read, the
//! silence is the guard's: after half a keep-alive a PINGREQ goes in the client's place. But only while the client itself is
//! there. What it sends gathers unread in its socket; a client that has sent nothing for a whole keep-alive is silent itself,
//! and the other broker is to find that out as it would without a guard.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Decoded, Limits, Packet, Sender, Version, decode};

/// Bytes that lie unread in a client's socket from which on nothing is concluded from their number: the socket may be full, and then
/// a client that is there cannot say so. (One that is gone is found by TCP.)
pub const UNREAD_ENOUGH: usize = 16 * 1024;

/// Signs of life between one client and the other broker.
#[derive(Clone, Copy, Debug)]
pub struct LifeWatch {
    /// None: neither of them ever asks.
    keep_alive: Option<Duration>,
    /// When the client was last heard, and how much of it was unread then.
    heard_at: Timestamp,
    unread: usize,
    /// When the other broker last was.
    sent_at: Timestamp,
    looked_at: Option<Timestamp>,
}

impl LifeWatch {
    /// Of a client that was let in now, with this keep-alive in seconds.
    pub fn new(keep_alive: u16, now: Timestamp) -> Self {
        let keep_alive = Some(Duration::from_secs(keep_alive.into())).filter(|time| !time.is_zero());
        Self { keep_alive, heard_at: now, unread: 0, sent_at: now, looked_at: None }
    }

    /// Bytes of the client were read.
    pub fn on_heard(&mut self, now: Timestamp) {
        self.heard_at = now;
    }

    /// Bytes went to the other broker.
    pub fn on_sent(&mut self, now: Timestamp) {
        self.sent_at = now;
    }

    /// When to look at a client that is not read until then.
    pub fn due(&self) -> Option<Timestamp> {
        let keep_alive = self.keep_alive?;
        let by_silence = self.sent_at + keep_alive / 2;
        // A client that was not there when it was looked at may be a little late.
        Some(self.looked_at.map_or(by_silence, |looked| by_silence.max(looked + keep_alive / 4)))
    }

    /// So many bytes of it lie unread, [`UNREAD_ENOUGH`] at most: whether the other broker is to hear a PINGREQ.
    pub fn look(&mut self, unread: usize, now: Timestamp) -> bool {
        let Some(keep_alive) = self.keep_alive else { return false };
        if unread != self.unread || unread >= UNREAD_ENOUGH {
            (self.heard_at, self.unread) = (now, unread);
        }
        self.looked_at = Some(now);
        now.since(self.heard_at) < keep_alive
    }
}

/// The keep-alive that holds: the client's own, unless the other broker's welcome says another (MQTT 5).
pub fn keep_alive_of(asked: u16, connack: &[u8], version: Version) -> u16 {
    let limits = Limits::default().with_sender(Sender::Server);
    match decode(connack, version, &limits) {
        Ok(Decoded::Packet { packet: Packet::ConnAck(answer), .. }) => {
            answer.properties.server_keep_alive().unwrap_or(asked)
        }
        _ => asked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// Looks whenever it is due until `end`, with so many bytes unread; how often the other broker was pinged, and when last.
    fn pings(life: &mut LifeWatch, end: u64, unread: impl Fn(u64) -> usize) -> (u32, u64) {
        let (mut count, mut last) = (0, 0);
        while let Some(due) = life.due().filter(|due| *due <= at(end)) {
            let ms = due.as_nanos() / 1_000_000;
            if life.look(unread(ms), due) {
                life.on_sent(due);
                (count, last) = (count + 1, ms);
            }
        }
        (count, last)
    }

    #[test]
    fn a_client_that_pings_is_kept_alive_for_as_long_as_it_is_not_read() {
        let mut life = LifeWatch::new(10, at(0));
        // A ping of two bytes every ten seconds, a little late.
        let (count, last) = pings(&mut life, 600_000, |ms| 2 * (ms / 10_300) as usize);
        assert!(count > 100 && last > 590_000, "{count} until {last}");
    }

    #[test]
    fn a_client_that_is_silent_itself_is_given_up_after_its_keep_alive() {
        let mut life = LifeWatch::new(10, at(0));
        assert_eq!(
            pings(&mut life, 600_000, |_| 40),
            (2, 10_000),
            "its forty bytes are a sign of life when they are seen first"
        );
        life.on_heard(at(600_000));
        assert!(pings(&mut life, 620_000, |_| 40).0 > 0, "and it may come back");
    }

    #[test]
    fn a_socket_that_may_be_full_proves_nothing() {
        let mut life = LifeWatch::new(10, at(0));
        assert_eq!(pings(&mut life, 600_000, |_| UNREAD_ENOUGH).1, 600_000);
    }

    #[test]
    fn who_has_no_keep_alive_is_not_looked_at() {
        let mut life = LifeWatch::new(0, at(0));
        assert_eq!((life.due(), life.look(1, at(1000))), (None, false));
    }

    #[test]
    fn the_other_broker_has_the_last_word_on_the_keep_alive() {
        assert_eq!(keep_alive_of(600, b"\x20\x02\x00\x00", Version::V311), 600);
        assert_eq!(keep_alive_of(600, b"\x20\x03\x00\x00\x00", Version::V5), 600);
        assert_eq!(keep_alive_of(600, b"\x20\x06\x00\x00\x03\x13\x00\x3c", Version::V5), 60);
        assert_eq!(keep_alive_of(600, b"\x20\x06\x00\x00\x7f\x13\x00\x3c", Version::V5), 600, "what cannot be read");
    }
}
