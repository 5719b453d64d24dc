//! The few packets of a flooder and of a slow reader, made with the broker's own codec. They are not the client library's: that
//! paces itself, and reads whatever comes.

use anyhow::{Result, anyhow, ensure};
use tidegate_wire_mqtt::{
    Connect, Delivery, Encode, Encoded, Limits, PacketId, Peer, Properties, Publish, QoS, Sender, Subscribe,
    Subscription, SubscriptionList, SubscriptionOptions, TopicFilter, Version,
};

/// The version that most devices speak.
pub(super) const PEER: Peer = Peer::new(Version::V311);

/// What a broker may send.
pub(super) fn limits() -> Limits {
    Limits::default().with_sender(Sender::Server)
}

pub(super) fn connect(client_id: &str) -> Result<Vec<u8>> {
    let packet = Connect {
        version: PEER.version,
        is_bridge: false,
        clean_start: true,
        keep_alive: 0,
        properties: Properties::EMPTY,
        client_id,
        will: None,
        user_name: None,
        password: None,
    };
    written(|out| packet.encode(PEER, out))
}

pub(super) fn subscribe(filter: &str) -> Result<Vec<u8>> {
    let filter = TopicFilter::parse(filter, &limits()).map_err(|rule| anyhow!("{filter:?}: {}", rule.detail))?;
    let wanted = [Subscription { filter, options: SubscriptionOptions::with_qos(QoS::AtMostOnce) }];
    let subscriptions = SubscriptionList::new(&wanted);
    let packet = Subscribe { packet_id: PacketId::MIN, properties: Properties::EMPTY, subscriptions };
    written(|out| packet.encode(PEER, out))
}

pub(super) fn publish(topic: &str, payload: &[u8]) -> Result<Vec<u8>> {
    let packet =
        Publish { delivery: Delivery::AtMostOnce, retain: false, topic, properties: Properties::EMPTY, payload };
    written(|out| packet.encode(PEER, out))
}

fn written(encode: impl FnOnce(&mut Vec<u8>) -> Encoded) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let outcome = encode(&mut out);
    ensure!(matches!(outcome, Encoded::Written { .. }), "a packet could not be encoded: {outcome:?}");
    Ok(out)
}
