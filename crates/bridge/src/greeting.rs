//! What each broker is told when a connection begins: who the bridge is there, and what it wants to be sent.

use std::num::NonZeroU16;

use tidegate_wire_mqtt::{
    Connect, Delivery, Limits, Packet, PacketId, Properties, Property, Publish, QoS, RetainHandling, Subscribe,
    Subscription, SubscriptionList, SubscriptionOptions, TopicFilter, TopicFilters, Unsubscribe, Version, Will,
};

use crate::config::{BridgeConfig, SpoolKeep};
use crate::limits::{RECEIVE_MAX, TOPIC_LEVELS_MAX};
use crate::wire_end::WireEnd;

/// The user property by which a subscriber asks for the newest message of each topic only.
const CONFLATE: &str = "pace-conflate";

/// Filters in one SUBSCRIBE: AWS IoT takes no more than eight.
const FILTERS_PER_PACKET: usize = 8;

/// Where the other broker is told whether the bridge stands: mosquitto's topic.
pub(crate) fn state_topic(id: &str) -> String {
    format!("$SYS/broker/connection/{id}/state")
}

/// CONNECT to this broker, whose session of the bridge is never to end.
pub(crate) fn greet_local(config: &BridgeConfig, end: &mut WireEnd) {
    let window = NonZeroU16::new(config.pace.window_max).unwrap_or(NonZeroU16::MIN);
    let list = [Property::SessionExpiry(u32::MAX), Property::ReceiveMaximum(window)];
    end.write(&Packet::Connect(Connect {
        version: Version::V5,
        is_bridge: false,
        clean_start: false,
        // The two ends are one process.
        keep_alive: 0,
        properties: Properties::new(&list),
        client_id: &config.local_id,
        will: None,
        user_name: None,
        password: None,
    }));
}

/// CONNECT to the other broker. Before MQTT 5 a bit of the protocol level says that this is a bridge; not every broker knows it.
pub(crate) fn greet_remote(config: &BridgeConfig, with_bit: bool, end: &mut WireEnd) {
    let topic = state_topic(&config.remote_id);
    let will =
        Will { qos: QoS::AtLeastOnce, retain: true, properties: Properties::EMPTY, topic: &topic, payload: b"0" };
    let expiry = if config.is_clean { 0 } else { u32::MAX };
    let list = [Property::SessionExpiry(expiry), Property::ReceiveMaximum(RECEIVE)];
    let (user_name, password) = match &config.user {
        Some((name, password)) => (Some(name.as_str()), password.as_deref()),
        None => (None, None),
    };
    end.write(&Packet::Connect(Connect {
        version: config.version,
        is_bridge: with_bit && !config.version.is_v5(),
        clean_start: config.is_clean,
        keep_alive: config.keep_alive,
        properties: if config.version.is_v5() { Properties::new(&list) } else { Properties::EMPTY },
        client_id: &config.remote_id,
        will: config.notifies.then_some(will),
        user_name,
        password: password.map(str::as_bytes),
    }));
}

const RECEIVE: NonZeroU16 = match NonZeroU16::new(RECEIVE_MAX) {
    Some(max) => max,
    None => NonZeroU16::MIN,
};

/// The number of the bridge's own packet at this place: from the top, because the messages under way, whose numbers a resumed session
/// has in use, were counted from the bottom.
fn own_number(place: usize) -> Option<PacketId> {
    u16::try_from(place).ok().and_then(|place| PacketId::new(u16::MAX - place))
}

/// SUBSCRIBE to all of these; the answer is the numbers of the packets.
pub(crate) fn subscribe(filters: &[(&str, QoS)], keep: SpoolKeep, end: &mut WireEnd) -> Vec<PacketId> {
    let limits = Limits { topic_levels_max: TOPIC_LEVELS_MAX, ..Limits::default() };
    let mut ids = Vec::new();
    for (place, part) in filters.chunks(FILTERS_PER_PACKET).enumerate() {
        let list: Vec<Subscription<'_>> = part
            .iter()
            .filter_map(|(filter, qos)| {
                let options = SubscriptionOptions {
                    qos: (*qos).min(end.qos_max),
                    // What came from there does not go back, and what is retained there is retained here.
                    no_local: true,
                    retain_as_published: true,
                    // Once, and not with every connection.
                    retain_handling: RetainHandling::SendIfNew,
                };
                Some(Subscription { filter: TopicFilter::parse(filter, &limits).ok()?, options })
            })
            .collect();
        let conflate = [Property::UserProperty(CONFLATE, "latest")];
        let is_latest = keep == SpoolKeep::Latest && end.version().is_v5();
        let properties = if is_latest { Properties::new(&conflate) } else { Properties::EMPTY };
        let Some(packet_id) = own_number(place) else { break };
        if end.write(&Packet::Subscribe(Subscribe {
            packet_id,
            properties,
            subscriptions: SubscriptionList::new(&list),
        })) {
            ids.push(packet_id);
        }
    }
    ids
}

/// UNSUBSCRIBE from all of these, with a number behind those that are in use; the answer is that number.
pub(crate) fn unsubscribe(filters: &[String], used: usize, end: &mut WireEnd) -> Option<PacketId> {
    let limits = Limits { topic_levels_max: TOPIC_LEVELS_MAX, ..Limits::default() };
    let list: Vec<TopicFilter<'_>> = filters.iter().filter_map(|text| TopicFilter::parse(text, &limits).ok()).collect();
    let packet_id = own_number(used).filter(|_| !list.is_empty())?;
    let (properties, filters) = (Properties::EMPTY, TopicFilters::new(&list));
    end.write(&Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters })).then_some(packet_id)
}

/// Tells the other broker that the bridge stands. At QoS 0: numbers on that connection are this broker's.
pub(crate) fn say_up(config: &BridgeConfig, end: &mut WireEnd) {
    let topic = state_topic(&config.remote_id);
    let (properties, retain) = (Properties::EMPTY, end.retains);
    end.write(&Packet::Publish(Publish {
        delivery: Delivery::AtMostOnce,
        retain,
        topic: &topic,
        properties,
        payload: b"1",
    }));
}
