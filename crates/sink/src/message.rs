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

    /// What it counts as, of the bytes of a batch.
    pub fn size(&self) -> usize {
        self.topic.len() + self.payload.len()
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
