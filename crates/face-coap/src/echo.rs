//! The proof that somebody receives at the address that it sends from (RFC 9175): a value that only we can make, for this
//! address and this time. Nothing is remembered of whom it was given to.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;
use tidegate_control::Timestamp;

use crate::limits::ECHO_SECONDS;

/// Four bytes of time, eight that nobody else can make.
pub(crate) const ECHO_BYTES: usize = 12;

/// What the values are made with; drawn at each start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EchoKey([u64; 2]);

impl EchoKey {
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        Self(seed)
    }

    /// A value for this address.
    pub(crate) fn value(&self, address: SocketAddr, now: Timestamp) -> [u8; ECHO_BYTES] {
        self.at(address, seconds(now))
    }

    /// Whether this is one that this address was given a moment ago.
    pub(crate) fn is_proof(&self, value: &[u8], address: SocketAddr, now: Timestamp) -> bool {
        let Some(time) = value.first_chunk::<4>().map(|time| u32::from_be_bytes(*time)) else { return false };
        let age = seconds(now).wrapping_sub(time);
        age <= ECHO_SECONDS && value == self.at(address, time)
    }

    fn at(&self, address: SocketAddr, time: u32) -> [u8; ECHO_BYTES] {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        match address.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write_u16(address.port());
        hasher.write_u32(time);
        let mut value = [0; ECHO_BYTES];
        value[..4].copy_from_slice(&time.to_be_bytes());
        value[4..].copy_from_slice(&hasher.finish().to_be_bytes());
        value
    }
}

fn seconds(now: Timestamp) -> u32 {
    (now.as_nanos() / 1_000_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn a_proof_is_good_for_its_address_and_for_a_while() {
        let key = EchoKey::new([1, 2]);
        let (here, there) = ("192.0.2.1:5683".parse().unwrap(), "192.0.2.1:5684".parse().unwrap());
        let now = Timestamp::from_secs_f64(1000.0);
        let value = key.value(here, now);
        assert!(key.is_proof(&value, here, now + Duration::from_secs(100)));
        assert!(!key.is_proof(&value, there, now));
        assert!(!key.is_proof(&value, here, now + Duration::from_secs(130)), "too old");
        assert!(!key.is_proof(&value, here, Timestamp::from_secs_f64(900.0)), "from later");
        assert!(!EchoKey::new([1, 3]).is_proof(&value, here, now));
        assert!(!key.is_proof(&value[..11], here, now) && !key.is_proof(&[], here, now));
    }
}
