//! Numbers of what runs beside the broker in the same process, so that `$SYS` and metrics show one picture.

use std::fmt;

use crate::handle::Handle;
use crate::inbox::lock;

/// One number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// What is counted: `space_requests`.
    pub family: &'static str,
    /// What that means, in a sentence.
    pub help: &'static str,
    /// Whether it only ever grows.
    pub is_counter: bool,
    /// Names and values that tell it from others of its family; each from a closed set.
    pub labels: Vec<(&'static str, &'static str)>,
    /// The number.
    pub value: u64,
}

/// Says what the numbers are now. Called on threads of the broker: it must not wait.
pub type Source = Box<dyn Fn() -> Vec<Beside> + Send + Sync>;

/// The source, once there is one.
#[derive(Default)]
pub(crate) struct Besides(std::sync::Mutex<Option<Source>>);

impl fmt::Debug for Besides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Besides")
    }
}

impl Besides {
    pub(crate) fn all(&self) -> Vec<Beside> {
        lock(&self.0).as_ref().map(|source| source()).unwrap_or_default()
    }
}

impl Beside {
    /// Below `$SYS/broker/`: the family's first word is a level, and so is each label's value.
    pub(crate) fn topic(&self) -> String {
        let mut topic = self.family.replacen('_', "/", 1);
        for (_, value) in &self.labels {
            topic.push('/');
            topic.push_str(value);
        }
        topic
    }
}

impl Handle {
    /// Shows these numbers with the broker's own, from now on.
    pub fn show_beside(&self, source: Source) {
        *lock(&self.common().beside.0) = Some(source);
    }

    /// The numbers of now.
    pub fn beside(&self) -> Vec<Beside> {
        self.common().beside.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_topic_of_its_own() {
        let labels = vec![("class", "update"), ("outcome", "busy")];
        let beside = Beside { family: "space_requests", help: "", is_counter: true, labels, value: 1 };
        assert_eq!(beside.topic(), "space/requests/update/busy");
    }
}
