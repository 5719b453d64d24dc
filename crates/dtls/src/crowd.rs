//! How many sessions and handshakes there are for each address: of IPv6 for each network of 64 bits, because whoever has one
//! address there has them all.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::limits::{ADDRESS_HANDSHAKES_MAX, ADDRESS_SESSIONS_MAX, HANDSHAKES_MAX, SESSIONS_MAX};

#[derive(Debug, Default)]
pub(crate) struct Crowd {
    places: BTreeMap<IpAddr, Count>,
    all: Count,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    sessions: u32,
    handshakes: u32,
}

impl Crowd {
    /// One more that begins. False if there is no room.
    pub(crate) fn enter(&mut self, address: IpAddr) -> bool {
        let here = self.places.get(&place(address)).copied().unwrap_or_default();
        let has_room = (self.all.sessions as usize) < SESSIONS_MAX
            && (self.all.handshakes as usize) < HANDSHAKES_MAX
            && here.sessions < ADDRESS_SESSIONS_MAX
            && here.handshakes < ADDRESS_HANDSHAKES_MAX;
        if has_room {
            for count in [&mut self.all, self.places.entry(place(address)).or_default()] {
                count.sessions += 1;
                count.handshakes += 1;
            }
        }
        has_room
    }

    /// A handshake is over.
    pub(crate) fn settle(&mut self, address: IpAddr) {
        for count in [Some(&mut self.all), self.places.get_mut(&place(address))].into_iter().flatten() {
            count.handshakes = count.handshakes.saturating_sub(1);
        }
    }

    /// A session is over, settled or not.
    pub(crate) fn leave(&mut self, address: IpAddr, is_settled: bool) {
        if !is_settled {
            self.settle(address);
        }
        self.all.sessions = self.all.sessions.saturating_sub(1);
        let address = place(address);
        let Some(count) = self.places.get_mut(&address) else { return };
        count.sessions = count.sessions.saturating_sub(1);
        if count.sessions == 0 {
            self.places.remove(&address);
        }
    }

    pub(crate) fn handshakes(&self) -> u64 {
        self.all.handshakes.into()
    }
}

/// Whose places those of an address are.
pub(crate) fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => {
            let mut octets = six.octets();
            octets[8..].fill(0);
            octets.into()
        }
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_does_not_take_every_place_and_gives_all_back() {
        let mut crowd = Crowd::default();
        let near = |last: u32| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last as u16]);
        for last in 0..ADDRESS_HANDSHAKES_MAX {
            assert!(crowd.enter(near(last)));
        }
        assert!(!crowd.enter(near(1)), "its handshakes are all taken");
        assert!(crowd.enter("2001:db8:0:1::1".parse().unwrap()), "those of its neighbours are not");
        crowd.settle(near(0));
        assert!(crowd.enter(near(0)), "one that is over makes room");
        for last in 0..=ADDRESS_HANDSHAKES_MAX {
            crowd.leave(near(last), last == 0);
        }
        crowd.leave("2001:db8:0:1::1".parse().unwrap(), false);
        assert_eq!((crowd.places.len(), crowd.all.sessions, crowd.handshakes()), (0, 0, 0));
    }

    #[test]
    fn sessions_of_one_address_have_an_end_too() {
        let mut crowd = Crowd::default();
        let here = "192.0.2.1".parse().unwrap();
        for _ in 0..ADDRESS_SESSIONS_MAX {
            assert!(crowd.enter(here));
            crowd.settle(here);
        }
        assert!(!crowd.enter(here) && !crowd.enter("::ffff:192.0.2.1".parse().unwrap()));
        assert!(crowd.enter("192.0.2.2".parse().unwrap()));
    }
}
