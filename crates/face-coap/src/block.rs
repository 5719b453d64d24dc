//! A body that comes in blocks (RFC 7959, Block1): one at a time for each address, in order, within a maximum.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tidegate_control::Timestamp;
use tidegate_core::{Charge, Kind, Memory};

use crate::limits::EXCHANGE_LIFETIME;
use crate::message::{Block, code};

#[derive(Debug)]
pub(crate) struct Assembly {
    /// Path and queries: what the body is for.
    resource: Box<str>,
    body: Vec<u8>,
    touched_at: Timestamp,
}

/// What became of a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Assembled {
    /// More is to come.
    Continue,
    /// The body is whole.
    Whole(Vec<u8>),
    /// It cannot be: the code that says why.
    Not(u8),
}

impl Assembly {
    pub(crate) fn ends_at(&self) -> Timestamp {
        self.touched_at + EXCHANGE_LIFETIME
    }
}

/// Adds a block to what is there.
pub(crate) fn assemble(
    assembly: &mut Option<Box<Assembly>>,
    (resource, block, payload): (&str, Block, &[u8]),
    body_max: usize,
    (memory, charge): (&Memory, &mut Charge),
    now: Timestamp,
) -> Assembled {
    if block.number == 0 {
        forget(assembly, charge);
        *assembly = Some(Box::new(Assembly { resource: resource.into(), body: Vec::new(), touched_at: now }));
    }
    // The first block again, in a new message, begins anew; any other one has to be the next.
    let known = assembly.as_mut().filter(|known| &*known.resource == resource && known.body.len() == block.start());
    let Some(known) = known else {
        forget(assembly, charge);
        return Assembled::Not(code::INCOMPLETE);
    };
    if block.has_more && payload.len() != block.bytes() {
        forget(assembly, charge);
        return Assembled::Not(code::BAD_REQUEST);
    }
    if known.body.len() + payload.len() > body_max {
        forget(assembly, charge);
        return Assembled::Not(code::TOO_LARGE);
    }
    if !memory.has_room(Kind::Passing, payload.len()) {
        forget(assembly, charge);
        return Assembled::Not(code::UNAVAILABLE);
    }
    known.body.extend_from_slice(payload);
    known.touched_at = now;
    charge.change(payload.len(), 0);
    if block.has_more {
        return Assembled::Continue;
    }
    let Some(whole) = assembly.take() else { return Assembled::Not(code::INCOMPLETE) };
    charge.change(0, whole.body.len());
    Assembled::Whole(whole.body)
}

pub(crate) fn forget(assembly: &mut Option<Box<Assembly>>, charge: &mut Charge) {
    if let Some(gone) = assembly.take() {
        charge.change(0, gone.body.len());
    }
}
