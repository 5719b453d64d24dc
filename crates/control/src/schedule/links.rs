//! Doubly linked lists of flows, threaded through one array.
//!
//! A flow is in at most one list of a [`Links`] at a time, and every operation is a few writes to an array that has
//! grown already. The lists do not know what they stand for; whoever owns them remembers which flow is in which.

use alloc::vec::Vec;

/// No flow, no slot.
pub(super) const NIL: u32 = u32::MAX;

/// By flow: its neighbours.
#[derive(Clone, Debug, Default)]
pub(super) struct Links(Vec<ListLink>);

#[derive(Clone, Copy, Debug)]
struct ListLink {
    before: u32,
    after: u32,
}

/// Both ends of a list; [`NIL`] if it is empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListEnds {
    first: u32,
    last: u32,
}

impl ListEnds {
    pub(super) const EMPTY: Self = Self { first: NIL, last: NIL };

    pub(super) fn first(self) -> Option<u32> {
        (self.first != NIL).then_some(self.first)
    }

    pub(super) const fn is_empty(self) -> bool {
        self.first == NIL
    }
}

impl Links {
    /// Makes room for flows below `len`.
    pub(super) fn grow(&mut self, len: usize) {
        if self.0.len() < len {
            self.0.resize(len, ListLink { before: NIL, after: NIL });
        }
    }

    /// Appends a flow that is in no list.
    pub(super) fn push_back(&mut self, list: &mut ListEnds, flow: u32) {
        self.0[flow as usize] = ListLink { before: list.last, after: NIL };
        match list.last {
            NIL => list.first = flow,
            last => self.0[last as usize].after = flow,
        }
        list.last = flow;
    }

    /// Takes a flow out of the list in which it is.
    pub(super) fn remove(&mut self, list: &mut ListEnds, flow: u32) {
        let ListLink { before, after } = self.0[flow as usize];
        match before {
            NIL => list.first = after,
            before => self.0[before as usize].after = after,
        }
        match after {
            NIL => list.last = before,
            after => self.0[after as usize].before = before,
        }
    }

    /// Takes the first flow of a list.
    pub(super) fn pop_front(&mut self, list: &mut ListEnds) -> Option<u32> {
        let flow = list.first()?;
        self.remove(list, flow);
        Some(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(links: &mut Links, list: &mut ListEnds) -> Vec<u32> {
        core::iter::from_fn(|| links.pop_front(list)).collect()
    }

    #[test]
    fn lists_keep_their_order_when_members_leave() {
        for leaving in 0..5 {
            let mut links = Links::default();
            links.grow(5);
            let mut list = ListEnds::EMPTY;
            for flow in [3, 1, 4, 0, 2] {
                links.push_back(&mut list, flow);
            }
            links.remove(&mut list, leaving);
            let expected: Vec<u32> = [3, 1, 4, 0, 2].into_iter().filter(|flow| *flow != leaving).collect();
            assert_eq!(drain(&mut links, &mut list), expected);
            assert!(list.is_empty());
        }
    }
}
