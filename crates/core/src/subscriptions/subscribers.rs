//! The sessions at one filter or in one group, in no order: found, added and removed in constant time, however many.

use alloc::boxed::Box;
use alloc::vec::Vec;

use foldhash::quality::FixedState;
use hashbrown::HashMap;

use super::SubscriberOptions;

#[derive(Debug, Default)]
pub(super) struct Subscribers {
    list: Vec<(u32, SubscriberOptions)>,
    /// Where each session is in the list, once there are too many to look through. Sessions are numbered by us: nobody
    /// can choose numbers that collide.
    places: Option<Box<HashMap<u32, u32, FixedState>>>,
}

/// Looking through so many is as fast as a table; nearly every filter has fewer.
const LOOK_THROUGH_MAX: usize = 16;

impl Subscribers {
    pub(super) fn as_slice(&self) -> &[(u32, SubscriberOptions)] {
        &self.list
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds a session, or gives it another wish; the answer is the one it had.
    pub(super) fn insert(&mut self, session: u32, wish: SubscriberOptions) -> Option<SubscriberOptions> {
        if let Some(place) = self.place_of(session) {
            return Some(core::mem::replace(&mut self.list[place].1, wish));
        }
        let place = self.list.len();
        self.list.push((session, wish));
        if let Some(places) = &mut self.places {
            places.insert(session, place as u32);
        } else if self.list.len() > LOOK_THROUGH_MAX {
            let numbered = self.list.iter().zip(0..).map(|((session, _), place)| (*session, place));
            self.places = Some(Box::new(numbered.collect()));
        }
        None
    }

    pub(super) fn remove(&mut self, session: u32) -> Option<SubscriberOptions> {
        let place = self.place_of(session)?;
        let (_, wish) = self.list.swap_remove(place);
        if let Some(places) = &mut self.places {
            places.remove(&session);
            if let Some((moved, _)) = self.list.get(place) {
                places.insert(*moved, place as u32);
            }
        }
        if self.list.len() <= LOOK_THROUGH_MAX / 2 {
            self.places = None;
        }
        Some(wish)
    }

    fn place_of(&self, session: u32) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(&session).map(|place| *place as usize),
            None => self.list.iter().position(|(subscriber, _)| *subscriber == session),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;
    use tidegate_wire_mqtt::QoS;

    proptest! {
        #[test]
        fn sessions_are_found_however_many_there_are(operations in prop::collection::vec((0..60_u32, 0..3_u8), 1..400)) {
            let (mut subscribers, mut model) = (Subscribers::default(), BTreeMap::new());
            for (session, operation) in operations {
                let qos = QoS::from_bits(operation).unwrap_or(QoS::AtMostOnce);
                let wish = SubscriberOptions { qos, no_local: false, retain_as_published: false, is_latest: false, id: None };
                if operation == 2 {
                    prop_assert_eq!(subscribers.remove(session), model.remove(&session));
                } else {
                    prop_assert_eq!(subscribers.insert(session, wish), model.insert(session, wish));
                }
                let mut list = subscribers.as_slice().to_vec();
                list.sort_by_key(|(session, _)| *session);
                prop_assert_eq!(list, model.iter().map(|(session, wish)| (*session, *wish)).collect::<Vec<_>>());
                let places = subscribers.places.as_ref().map_or(0, |places| places.len());
                prop_assert!(places == 0 || places == subscribers.len());
            }
        }
    }
}
