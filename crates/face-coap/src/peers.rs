//! Addresses that are known and the connections behind them, each found by the other.
//!
//! Both ways lead to a place in one list: a table of places takes some 8 bytes for each address with the room that it has left on
//! average, one of addresses and a tree of connections took 170.

use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use core::net::SocketAddr;

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use tidegate_control::Timestamp;
use tidegate_core::ConnId;

/// One address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) conn: ConnId,
    /// When something is to be done about it.
    pub(crate) deadline: Timestamp,
    pub(crate) observers: u32,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Peers {
    /// In no order.
    list: Vec<Peer>,
    by_address: HashTable<u32>,
    by_conn: HashTable<u32>,
    hasher: FixedState,
}

impl Peers {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self { list: Vec::new(), by_address: HashTable::new(), by_conn: HashTable::new(), hasher }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The connection of an address.
    pub(crate) fn conn_of(&self, address: SocketAddr) -> Option<ConnId> {
        let is_it = |place: &u32| self.list.get(*place as usize).is_some_and(|peer| peer.address == address);
        let place = self.by_address.find(self.hasher.hash_one(address), is_it)?;
        self.list.get(*place as usize).map(|peer| peer.conn)
    }

    fn place_of(&self, conn: ConnId) -> Option<usize> {
        let is_it = |place: &u32| self.list.get(*place as usize).is_some_and(|peer| peer.conn == conn);
        self.by_conn.find(self.hasher.hash_one(conn), is_it).map(|place| *place as usize)
    }

    /// The address of a connection, and what is known of it.
    pub(crate) fn get(&self, conn: ConnId) -> Option<&Peer> {
        self.list.get(self.place_of(conn)?)
    }

    /// The same, to be changed; not address and connection.
    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Peer> {
        let place = self.place_of(conn)?;
        self.list.get_mut(place)
    }

    /// One more; neither its address nor its connection is known.
    pub(crate) fn insert(&mut self, peer: Peer) {
        let Self { list, by_address, by_conn, hasher } = self;
        let place = list.len() as u32;
        list.push(peer);
        let hash = |key: &dyn Fn(&Peer) -> u64, place: &u32| list.get(*place as usize).map_or(0, key);
        let address = |peer: &Peer| hash_of(hasher, &peer.address);
        let conn = |peer: &Peer| hash_of(hasher, &peer.conn);
        by_address.insert_unique(address(&peer), place, |place| hash(&address, place));
        by_conn.insert_unique(conn(&peer), place, |place| hash(&conn, place));
    }

    /// A connection is gone.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<Peer> {
        let place = self.place_of(conn)?;
        let gone = *self.list.get(place)?;
        self.point(&gone, place, None);
        let last = self.list.len() - 1;
        if let Some(moved) = self.list.get(last).copied().filter(|_| last != place) {
            self.point(&moved, last, Some(place));
        }
        self.list.swap_remove(place);
        Some(gone)
    }

    /// Both ways to a peer lead somewhere else from now on, or nowhere.
    fn point(&mut self, peer: &Peer, from: usize, to: Option<usize>) {
        let hashes = [hash_of(&self.hasher, &peer.address), hash_of(&self.hasher, &peer.conn)];
        for (table, hash) in [&mut self.by_address, &mut self.by_conn].into_iter().zip(hashes) {
            let Ok(mut entry) = table.find_entry(hash, |place| *place as usize == from) else { continue };
            match to {
                Some(to) => *entry.get_mut() = to as u32,
                None => drop(entry.remove()),
            }
        }
    }
}

fn hash_of(hasher: &FixedState, key: &impl Hash) -> u64 {
    hasher.hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32) -> Peer {
        let address = SocketAddr::from(([10, 0, 0, 1], number as u16));
        Peer { address, conn: ConnId { index: number, generation: 3 }, deadline: Timestamp::ZERO, observers: 0 }
    }

    #[test]
    fn each_is_found_by_the_other_as_long_as_it_is_there() {
        let mut peers = Peers::new(7);
        (0..1000).for_each(|number| peers.insert(peer(number)));
        for number in (0..1000).step_by(3).chain([1]) {
            assert!(peers.remove(peer(number).conn).is_some(), "{number}");
            assert!(peers.remove(peer(number).conn).is_none(), "{number}, again");
        }
        for number in 0..1000 {
            let is_there = number % 3 != 0 && number != 1;
            assert_eq!(peers.conn_of(peer(number).address).is_some(), is_there, "{number}");
            assert_eq!(peers.get(peer(number).conn).map(|it| it.address), is_there.then(|| peer(number).address));
        }
        peers.get_mut(peer(2).conn).unwrap().observers = 5;
        assert_eq!((peers.get(peer(2).conn).unwrap().observers, peers.len()), (5, 665));
        assert!(!peers.is_empty());
    }
}
