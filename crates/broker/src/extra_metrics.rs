//! Numbers of what runs beside the broker in the same process, so that `$SYS` and metrics show one picture.

use std::fmt;

use crate::handle::Handle;
use crate::inbox::lock;

/// One number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraMetric {
    /// What is counted: `space_requests`.
    pub family: &'static str,
    /// What that means, in a sentence.
    pub help: &'static str,
    /// Whether it only ever grows.
    pub is_counter: bool,
    /// Names and values that tell it from others of its family; each from a closed set.
    pub labels: Vec<(&'static str, &'static str)>,
    pub value: u64,
}

/// Says what the numbers are now. Called on threads of the broker: it must not wait.
pub type Source = Box<dyn Fn() -> Vec<ExtraMetric> + Send + Sync>;

/// The source, once there is one.
#[derive(Default)]
pub(crate) struct ExtraMetrics(std::sync::Mutex<Option<Source>>);

impl fmt::Debug for ExtraMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Besides")
    }
}

impl ExtraMetrics {
    pub(crate) fn all(&self) -> Vec<ExtraMetric> {
        lock(&self.0).as_ref().map(|source| source()).unwrap_or_default()
    }
}

impl ExtraMetric {
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
    pub fn show_extra_metrics(&self, source: Source) {
        *lock(&self.shared().extra_metrics.0) = Some(source);
    }

    /// The numbers of now.
    pub fn extra_metrics(&self) -> Vec<ExtraMetric> {
        self.shared().extra_metrics.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_topic_of_its_own() {
        let labels = vec![("class", "update"), ("outcome", "busy")];
        let metric = ExtraMetric { family: "space_requests", help: "", is_counter: true, labels, value: 1 };
        assert_eq!(metric.topic(), "space/requests/update/busy");
    }
}
