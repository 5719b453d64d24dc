//! What this broker is told when the connection begins.

use std::num::NonZeroU16;

use tidegate_client::session::mqtt::connection::MqttConnection;
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{
    Connect, Limits, Packet, PacketId, Properties, Property, QoS, RetainHandling, Subscribe, Subscription,
    SubscriptionList, SubscriptionOptions, TopicFilter, TopicFilters, Unsubscribe, Version,
};

use super::SinkConfig;
use crate::limits::{FILTERS_PER_PACKET, RECEIVE_MAX, TOPIC_LEVELS_MAX};

/// The user property by which a subscriber asks for the newest message of each topic only.
const CONFLATE: &str = "pace-conflate";

/// CONNECT. The session never ends, and twice a batch is under way at most.
pub(super) fn greet(config: &SinkConfig, link: &mut MqttConnection, now: Timestamp) {
    let window = u16::try_from(config.batch.messages * 2).unwrap_or(RECEIVE_MAX).clamp(1, RECEIVE_MAX);
    let window = NonZeroU16::new(window).unwrap_or(NonZeroU16::MIN);
    let list = [Property::SessionExpiry(u32::MAX), Property::ReceiveMaximum(window)];
    // It fits: nobody has said a maximum yet.
    let _ = link.open(
        &Connect {
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
        },
        now,
    );
}

/// SUBSCRIBE to all topics, UNSUBSCRIBE from those of an earlier configuration; the answer is how many of the former there were.
pub(super) fn subscribe(config: &SinkConfig, stale: &[String], link: &mut MqttConnection) -> usize {
    let limits = Limits { topic_levels_max: TOPIC_LEVELS_MAX, ..Limits::default() };
    let conflate = [Property::UserProperty(CONFLATE, "latest")];
    let properties = if config.keeps_latest { Properties::new(&conflate) } else { Properties::EMPTY };
    for part in config.filters.chunks(FILTERS_PER_PACKET) {
        let list: Vec<Subscription<'_>> = part
            .iter()
            .filter_map(|(filter, qos)| {
                let options = SubscriptionOptions {
                    // Once more than at least once nobody can promise to a receiver that keeps no numbers.
                    qos: (*qos).min(QoS::AtLeastOnce),
                    no_local: false,
                    retain_as_published: true,
                    retain_handling: RetainHandling::SendIfNew,
                };
                Some(Subscription { filter: TopicFilter::parse(filter, &limits).ok()?, options })
            })
            .collect();
        let packet_id = link.take_id(|_| false);
        let subscriptions = SubscriptionList::new(&list);
        let _ = link.write(&Packet::Subscribe(Subscribe { packet_id, properties, subscriptions }));
    }
    let list: Vec<TopicFilter<'_>> = stale.iter().filter_map(|text| TopicFilter::parse(text, &limits).ok()).collect();
    for part in list.chunks(FILTERS_PER_PACKET) {
        let packet_id: PacketId = link.take_id(|_| false);
        let (properties, filters) = (Properties::EMPTY, TopicFilters::new(part));
        let _ = link.write(&Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters }));
    }
    config.filters.chunks(FILTERS_PER_PACKET).count()
}
