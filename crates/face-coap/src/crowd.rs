//! How many clients there are at each address, of whatever port: of IPv6 at each network of 64 bits, because whoever has one
//! address there has them all.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use tidegate_core::datagrams::network_of;

use crate::limits::ADDRESS_PEERS_MAX;

#[derive(Debug, Default)]
pub(crate) struct Crowd(BTreeMap<IpAddr, usize>);

impl Crowd {
    /// Whether there is room for one more.
    pub(crate) fn has_room(&self, address: IpAddr) -> bool {
        self.0.get(&network_of(address)).is_none_or(|count| *count < ADDRESS_PEERS_MAX)
    }

    pub(crate) fn enter(&mut self, address: IpAddr) {
        *self.0.entry(network_of(address)).or_default() += 1;
    }

    pub(crate) fn leave(&mut self, address: IpAddr) {
        let address = network_of(address);
        let Some(count) = self.0.get_mut(&address) else { return };
        *count -= 1;
        if *count == 0 {
            self.0.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_one_network_share_its_places_and_give_them_back() {
        let mut crowd = Crowd::default();
        let near = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
        for last in 0..ADDRESS_PEERS_MAX {
            assert!(crowd.has_room(near(last as u16)));
            crowd.enter(near(last as u16));
        }
        assert!(!crowd.has_room(near(5)) && crowd.has_room("2001:db8:0:1::".parse().unwrap()));
        crowd.leave(near(7));
        assert!(crowd.has_room(near(5)));
        for last in 1..ADDRESS_PEERS_MAX {
            crowd.leave(near(last as u16));
        }
        assert!(crowd.0.is_empty());
    }
}
