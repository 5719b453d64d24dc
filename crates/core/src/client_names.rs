//! Sessions by the names of their clients: their places alone, because the names are with the sessions.
//!
//! A table of names and places takes some 41 bytes for each client, at the room that such a table has left on average; this one 8.

use alloc::sync::Arc;
use core::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use crate::session::Session;
use crate::slab::Slab;

/// The places of sessions. Who asks has the sessions.
#[derive(Debug)]
pub(crate) struct ClientNames {
    places: HashTable<u32>,
    hasher: FixedState,
}

impl ClientNames {
    pub(crate) fn new(seed: u64) -> Self {
        Self { places: HashTable::new(), hasher: FixedState::with_seed(seed) }
    }

    /// The place of the session of this client.
    pub(crate) fn find(&self, client_id: &str, sessions: &Slab<Session>) -> Option<u32> {
        let is_it = |place: &u32| sessions.get(*place).is_some_and(|session| **session.client_id() == *client_id);
        self.places.find(self.hasher.hash_one(client_id), is_it).copied()
    }

    /// A session has this place, and no other one has its name.
    pub(crate) fn insert(&mut self, place: u32, sessions: &Slab<Session>) {
        let Self { places, hasher } = self;
        let hash = |place: &u32| sessions.get(*place).map_or(0, |session| hasher.hash_one(&**session.client_id()));
        let own = hash(&place);
        places.insert_unique(own, place, hash);
    }

    /// The session with this name has left its place.
    pub(crate) fn remove(&mut self, client_id: &Arc<str>, place: u32) {
        let found = self.places.find_entry(self.hasher.hash_one(&**client_id), |known| *known == place);
        if let Ok(found) = found {
            found.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Identity;

    #[test]
    fn clients_are_found_by_their_names_as_long_as_they_are_there() {
        let (mut names, mut sessions) = (ClientNames::new(7), Slab::new());
        let name = |number: u32| alloc::format!("client-{number}");
        for number in 0..1000 {
            let (place, _) = sessions.insert(Session::new(name(number).into(), Identity::default(), 0, 0));
            names.insert(place, &sessions);
        }
        for number in (0..1000).step_by(3) {
            let place = names.find(&name(number), &sessions).unwrap();
            let session = sessions.remove(place).unwrap();
            names.remove(session.client_id(), place);
        }
        for number in 0..1000 {
            let found = names.find(&name(number), &sessions).and_then(|place| sessions.get(place));
            assert_eq!(found.map(|session| &**session.client_id()), (number % 3 != 0).then_some(&*name(number)));
        }
    }
}
