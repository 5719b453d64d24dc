//! A message in a sink's hands, and several of them under way.

use tidegate_client::session::mqtt::connection::ReceivedMessage;
use tidegate_wire_mqtt::{PacketId, QoS};

/// One message. What of it goes out, the kind of sink decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkMessage {
    /// Its number on the connection to the broker; none at QoS 0.
    pub packet_id: Option<PacketId>,
    /// Its topic.
    pub topic: String,
    /// Its payload.
    pub payload: Vec<u8>,
    /// The quality of service with which it came here.
    pub qos: QoS,
    /// Whether it was retained.
    pub retain: bool,
    /// When it left the broker's queue: milliseconds since 1970.
    pub at_ms: u64,
    /// What its publisher says that the payload is.
    pub content_type: Option<String>,
    /// What its publisher says beside it.
    pub user_properties: Vec<(String, String)>,
}

impl SinkMessage {
    pub(crate) fn new(received: ReceivedMessage, at_ms: u64) -> Self {
        let properties = received.properties();
        let content_type = properties.content_type().map(str::to_owned);
        let pairs = properties.user_properties();
        let user_properties = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let ReceivedMessage { topic, payload, qos, retain, packet_id, .. } = received;
        Self { packet_id, topic, payload, qos, retain, at_ms, content_type, user_properties }
    }

    /// What it counts as, of the bytes of a batch and of those that are held: whatever its publisher has made long.
    pub fn size(&self) -> usize {
        // Two empty texts take their places, too.
        let pair = |(name, value): &(String, String)| size_of::<(String, String)>() + name.len() + value.len();
        let properties: usize = self.user_properties.iter().map(pair).sum();
        self.topic.len() + self.payload.len() + self.content_type.as_ref().map_or(0, String::len) + properties
    }
}

/// What goes together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkBatch {
    /// Counts the batches of this life of the process. The same batch that is sent again has the same number.
    pub number: u64,
    /// In the order in which they came.
    pub messages: Vec<SinkMessage>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_publisher_makes_long_is_free() {
        let plain = SinkMessage { topic: "a/b".into(), payload: b"21".to_vec(), ..SinkMessage::default() };
        assert_eq!(plain.size(), 5);
        let user_properties = vec![("n".repeat(1000), "v".repeat(60_000)); 3];
        let long = SinkMessage { content_type: Some("t".repeat(500)), user_properties, ..plain.clone() };
        assert!(long.size() >= 5 + 500 + 3 * 61_000, "{}", long.size());
        let empty = SinkMessage { user_properties: vec![(String::new(), String::new()); 1000], ..plain };
        assert!(empty.size() >= 1000 * size_of::<(String, String)>(), "{}", empty.size());
    }
}
