//! Who a client belongs to: its user, else the network that it comes from. Where something is scarce, parents share it
//! evenly before their clients do, so that more client identifiers gain nothing.
//!
//! A parent is a number of 23 bits, small enough to be kept with each message. Two that have the same by chance share
//! one part, which six pairs of ten thousand do.

use core::hash::BuildHasher;
use core::net::{IpAddr, SocketAddr};

use foldhash::quality::FixedState;

use crate::access::Identity;

/// The highest number of a parent.
pub(crate) const PARENT_MAX: u32 = (1 << 23) - 1;

/// The user; without one the /24 or /64 of the address; 0 if neither is known. The same on every shard and after every
/// start: messages are kept with it.
pub(crate) fn parent_of(identity: &Identity) -> u32 {
    let hasher = FixedState::with_seed(0);
    let hash = match (&identity.user, identity.peer.parse::<SocketAddr>().map(|peer| peer.ip().to_canonical())) {
        (Some(user), _) => hasher.hash_one(("user", &**user)),
        (None, Ok(IpAddr::V4(address))) => hasher.hash_one(("v4", &address.octets()[..3])),
        (None, Ok(IpAddr::V6(address))) => hasher.hash_one(("v6", &address.octets()[..8])),
        (None, Err(_)) => return 0,
    };
    (hash as u32 & PARENT_MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(user: Option<&str>, peer: &str) -> u32 {
        parent_of(&Identity { user: user.map(Into::into), peer: peer.into(), listener: "mqtt" })
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
}
