//! The words of pace, as user properties of MQTT 5: `pace-retry-after-ms`, and `pace-interval-ms` for the interval that was
//! learned or would do.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::hints::Hints;
use tidegate_wire_mqtt::Property;

/// The words that go with an answer.
pub(crate) struct PaceWords(Vec<(&'static str, String)>);

impl PaceWords {
    pub(crate) fn new(interval: Option<Duration>, retry_after: Option<Duration>) -> Self {
        let mut words = Vec::new();
        let hints = Hints { interval, retry_after, ..Hints::default() };
        hints.write(|name, text| words.push((name, text)));
        Self(words)
    }

    /// The words alone: there is nothing to explain about a success.
    pub(crate) fn words(&self) -> Vec<Property<'_>> {
        self.0.iter().map(|(name, text)| Property::UserProperty(name, text)).collect()
    }

    pub(crate) fn properties<'a>(&'a self, reason: &'a str) -> Vec<Property<'a>> {
        let words = self.0.iter().map(|(name, text)| Property::UserProperty(name, text));
        [Property::ReasonString(reason)].into_iter().chain(words).collect()
    }
}
