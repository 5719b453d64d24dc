//! A time that may not be there, in the room of one that is: sessions and connections have several, and there are many of those.

use tidegate_control::Timestamp;

/// None is the end of time, which nothing waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SomeTime(Timestamp);

impl SomeTime {
    pub(crate) const NONE: Self = Self(Timestamp::MAX);

    #[inline]
    pub(crate) fn get(self) -> Option<Timestamp> {
        (self.0 < Timestamp::MAX).then_some(self.0)
    }

    #[inline]
    pub(crate) fn set(&mut self, at: Option<Timestamp>) {
        self.0 = at.unwrap_or(Timestamp::MAX);
    }
}
