//! Who a client belongs to: its user, else the network that it comes from. Where something is scarce, parents share it
//! evenly before their clients do, so that more client identifiers gain nothing.
//!
//! A parent is a number of 48 bits by a hash whose key the driver draws when the broker starts, the same for all shards:
//! nobody outside can choose a name or a network that has the number of somebody else. By chance two of a hundred
//! thousand parents have the same in one of 56 000 lives of a broker; they then share one part. On disk 23 bits are kept
//! with a message, and mean nothing but "the same as that one" in the next life, which has another key.

use alloc::string::String;
use core::fmt::Write;
use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher13;

use crate::access::Identity;

/// The highest number of a parent.
pub(crate) const PARENT_MAX: u64 = (1 << 48) - 1;

/// The user; without one the /24 or /64 of the address, or the address as it is if it is none. No text of MQTT has a NUL,
/// and the first letter keeps users and networks apart.
pub(crate) fn parent_name(identity: &Identity) -> String {
    let mut name = String::new();
    // Writing into a string cannot fail.
    let _ = match &identity.user {
        Some(user) => write!(name, "U{user}"),
        None => match identity.peer.parse::<SocketAddr>().map(|peer| peer.ip().to_canonical()) {
            Ok(IpAddr::V4(ip)) => write!(name, "4{:02x?}", &ip.octets()[..3]),
            Ok(IpAddr::V6(ip)) => write!(name, "6{:04x?}", &ip.segments()[..4]),
            Err(_) => write!(name, "?{}", identity.peer),
        },
    };
    name
}

/// The number of such a name, the same wherever `seed` is; 0 if neither user nor network is known.
pub(crate) fn parent_number(name: &str, seed: u64) -> u64 {
    if name.starts_with('?') {
        return 0;
    }
    let mut hasher = keyed(seed);
    hasher.write(name.as_bytes());
    (hasher.finish() & PARENT_MAX).max(1)
}

pub(crate) fn parent_of(identity: &Identity, seed: u64) -> u64 {
    parent_number(&parent_name(identity), seed)
}

/// A hash that nobody can foresee who does not know the seed.
pub(crate) fn keyed(seed: u64) -> SipHasher13 {
    SipHasher13::new_with_keys(seed, !seed.rotate_left(32))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    fn parent(user: Option<&str>, peer: &str) -> u64 {
        parent_of(
            &Identity { user: user.map(Into::into), peer: peer.into(), listener: "mqtt", roles: None, claims: None },
            7,
        )
    }

    #[test]
    fn a_user_counts_before_an_address_and_neighbours_are_one() {
        assert_eq!(parent(Some("fleet"), "10.0.0.1:5"), parent(Some("fleet"), "10.9.9.9:7"));
        assert_ne!(parent(Some("fleet"), "10.0.0.1:5"), parent(None, "10.0.0.1:5"));
        assert_eq!(parent(None, "10.0.0.1:5"), parent(None, "10.0.0.254:7"));
        assert_ne!(parent(None, "10.0.0.1:5"), parent(None, "10.0.1.1:5"));
        assert_eq!(parent(None, "[2001:db8::1]:5"), parent(None, "[2001:db8::ffff:1]:5"));
        assert_ne!(parent(None, "[2001:db8::1]:5"), parent(None, "[2001:db8:0:1::1]:5"));
        assert_eq!(parent(None, "[::ffff:10.0.0.1]:5"), parent(None, "10.0.0.2:5"));
        assert_eq!(parent(None, ""), 0);
    }

    /// With 23 bits and a seed that everybody knows, two of six thousand names are enough, and can be looked for at home.
    #[test]
    fn nobody_finds_a_name_that_has_a_victims_number() {
        let names = || (0..30_000).map(|n| alloc::format!("Uuser {n}"));
        let numbers: BTreeSet<u64> = names().map(|name| parent_number(&name, 7)).collect();
        assert_eq!(numbers.len(), 30_000, "no two of thirty thousand are the same");
        let again: BTreeSet<u64> = names().map(|name| parent_number(&name, 8)).collect();
        assert!(numbers.is_disjoint(&again), "what was found out about one life is of no use in the next");
    }
}
