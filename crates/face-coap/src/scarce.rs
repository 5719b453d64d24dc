//! Parts of an address that have memory only while there is something in them: nearly all addresses say nothing most of the time, and
//! there may be ten thousand of them.
//!
//! A part that is not there reads as one in which there is nothing. Whoever changes it makes it be there; `rest` takes it away again.

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};

/// What can be away.
pub(crate) trait Fresh: Sized + 'static {
    /// With nothing in it.
    const FRESH: Self;

    /// The same, for reading.
    fn fresh() -> &'static Self;

    /// Whether there is nothing in it that anybody will ask for.
    fn is_fresh(&self) -> bool;
}

/// A part that is there while there is something in it.
#[derive(Debug)]
pub(crate) struct Scarce<T>(Option<Box<T>>);

impl<T: Fresh> Scarce<T> {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Gives back the memory of a part with nothing in it.
    pub(crate) fn rest(&mut self) {
        if self.0.as_ref().is_some_and(|part| part.is_fresh()) {
            self.0 = None;
        }
    }
}

impl<T: Fresh> Deref for Scarce<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(part) => part,
            None => T::fresh(),
        }
    }
}

impl<T: Fresh> DerefMut for Scarce<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_with(|| Box::new(T::FRESH))
    }
}
