//! Arbitrary valid packets.
//!
//! Packets borrow; what they borrow is leaked, which a test can afford and which keeps the strategies short.

use std::num::{NonZeroU16, NonZeroU32};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tidegate_wire_mqtt::property::{PayloadFormat, PropertyId, PropertySite};
use tidegate_wire_mqtt::{
    Ack, AckKind, Auth, ConnAck, Connect, Delivery, Disconnect, Limits, Packet, PacketId, PacketType, Properties,
    Property, Publish, QoS, ReasonCode, ReasonCodes, RetainHandling, Sender, SubAck, Subscribe, Subscription,
    SubscriptionList, SubscriptionOptions, TopicFilter, TopicFilters, UnsubAck, Unsubscribe, Version, Will,
};

pub(crate) type Text = &'static str;

/// Both shapes of the protocol.
pub(crate) fn version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V311), Just(Version::V5)]
}

/// Any packet that exists in this version.
pub(crate) fn packet(version: Version) -> BoxedStrategy<Packet<'static>> {
    let common = prop_oneof![
        connect(version).prop_map(Packet::Connect),
        connack(version).prop_map(Packet::ConnAck),
        publish(version).prop_map(Packet::Publish),
        ack(version).prop_map(Packet::Ack),
        subscribe(version).prop_map(Packet::Subscribe),
        suback(version).prop_map(Packet::SubAck),
        unsubscribe(version).prop_map(Packet::Unsubscribe),
        unsuback(version).prop_map(Packet::UnsubAck),
        Just(Packet::PingReq),
        Just(Packet::PingResp),
        disconnect(version).prop_map(Packet::Disconnect),
    ];
    match version {
        Version::V5 => prop_oneof![11 => common, 1 => auth().prop_map(Packet::Auth)].boxed(),
        _ => common.boxed(),
    }
}

pub(crate) fn publish(version: Version) -> impl Strategy<Value = Publish<'static>> {
    (delivery(), any::<bool>(), topic(), properties(PropertySite::Publish, version), bytes(300)).prop_map(
        |(delivery, retain, topic, properties, payload)| {
            // Now and then the alias alone.
            let alias_only = properties.topic_alias().is_some_and(|alias| alias.get() % 2 == 0);
            let topic = if alias_only { "" } else { topic };
            Publish { delivery, retain, topic, properties, payload }
        },
    )
}

pub(crate) fn delivery() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        Just(Delivery::AtMostOnce),
        (packet_id(), any::<bool>()).prop_map(|(packet_id, dup)| Delivery::AtLeastOnce { packet_id, dup }),
        (packet_id(), any::<bool>()).prop_map(|(packet_id, dup)| Delivery::ExactlyOnce { packet_id, dup }),
    ]
}

fn connect(version: Version) -> impl Strategy<Value = Connect<'static>> {
    let head = (any::<bool>(), any::<u16>(), properties(PropertySite::Connect, version), text());
    let credentials = (option::of(text()), option::of(bytes(20)));
    (head, option::of(will(version)), credentials).prop_map(move |(head, will, (user_name, password))| {
        let (clean_start, keep_alive, properties, client_id) = head;
        let clean_start = clean_start || client_id.is_empty();
        let password = password.filter(|_| version == Version::V5 || user_name.is_some());
        Connect { version, is_bridge: false, clean_start, keep_alive, properties, client_id, will, user_name, password }
    })
}

fn will(version: Version) -> impl Strategy<Value = Will<'static>> {
    (qos(), any::<bool>(), properties(PropertySite::Will, version), topic(), bytes(40))
        .prop_map(|(qos, retain, properties, topic, payload)| Will { qos, retain, properties, topic, payload })
}

fn connack(version: Version) -> impl Strategy<Value = ConnAck<'static>> {
    let reasons = match version {
        Version::V5 => reasons_of(PacketType::ConnAck),
        _ => (0..=5).filter_map(ReasonCode::from_connack_return_code).collect(),
    };
    (any::<bool>(), prop::sample::select(reasons), properties(PropertySite::ConnAck, version)).prop_map(
        |(present, reason, properties)| {
            let session_present = present && reason == ReasonCode::Success;
            ConnAck { session_present, reason, properties }
        },
    )
}

fn ack(version: Version) -> impl Strategy<Value = Ack<'static>> {
    let kinds = [
        (AckKind::PubAck, PacketType::PubAck, PropertySite::PubAck),
        (AckKind::PubRec, PacketType::PubRec, PropertySite::PubRec),
        (AckKind::PubRel, PacketType::PubRel, PropertySite::PubRel),
        (AckKind::PubComp, PacketType::PubComp, PropertySite::PubComp),
    ];
    prop::sample::select(kinds.to_vec()).prop_flat_map(move |(kind, packet, site)| {
        (packet_id(), reason(packet, version), properties(site, version))
            .prop_map(move |(packet_id, reason, properties)| Ack { kind, packet_id, reason, properties })
    })
}

fn subscribe(version: Version) -> impl Strategy<Value = Subscribe<'static>> {
    let list = vec((filter(), options(version)), 1..5);
    (packet_id(), properties(PropertySite::Subscribe, version), list).prop_map(|(packet_id, properties, list)| {
        let list: Vec<_> = list
            .into_iter()
            .map(|(filter, mut options)| {
                options.no_local &= filter.group().is_none();
                Subscription { filter, options }
            })
            .collect();
        Subscribe { packet_id, properties, subscriptions: SubscriptionList::new(list.leak()) }
    })
}

fn options(version: Version) -> BoxedStrategy<SubscriptionOptions> {
    if version != Version::V5 {
        return qos().prop_map(SubscriptionOptions::with_qos).boxed();
    }
    let handling =
        prop::sample::select(vec![RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::DoNotSend]);
    (qos(), any::<bool>(), any::<bool>(), handling)
        .prop_map(|(qos, no_local, retain_as_published, retain_handling)| SubscriptionOptions {
            qos,
            no_local,
            retain_as_published,
            retain_handling,
        })
        .boxed()
}

fn unsubscribe(version: Version) -> impl Strategy<Value = Unsubscribe<'static>> {
    (packet_id(), properties(PropertySite::Unsubscribe, version), vec(filter(), 1..5)).prop_map(
        |(packet_id, properties, list)| Unsubscribe { packet_id, properties, filters: TopicFilters::new(list.leak()) },
    )
}

fn suback(version: Version) -> impl Strategy<Value = SubAck<'static>> {
    let reasons = match version {
        Version::V5 => reasons_of(PacketType::SubAck),
        _ => [0, 1, 2, 0x80].into_iter().filter_map(ReasonCode::from_code).collect(),
    };
    (packet_id(), properties(PropertySite::SubAck, version), vec(prop::sample::select(reasons), 1..5)).prop_map(
        |(packet_id, properties, list)| SubAck { packet_id, properties, reasons: ReasonCodes::new(list.leak()) },
    )
}

fn unsuback(version: Version) -> impl Strategy<Value = UnsubAck<'static>> {
    let list = vec(reason(PacketType::UnsubAck, version), 1..5);
    (packet_id(), properties(PropertySite::UnsubAck, version), list).prop_map(
        move |(packet_id, properties, mut list)| {
            if version != Version::V5 {
                list.clear();
            }
            UnsubAck { packet_id, properties, reasons: ReasonCodes::new(list.leak()) }
        },
    )
}

fn disconnect(version: Version) -> impl Strategy<Value = Disconnect<'static>> {
    (reason(PacketType::Disconnect, version), properties(PropertySite::Disconnect, version))
        .prop_map(|(reason, properties)| Disconnect { reason, properties })
}

fn auth() -> impl Strategy<Value = Auth<'static>> {
    (reason(PacketType::Auth, Version::V5), properties(PropertySite::Auth, Version::V5)).prop_map(
        |(reason, properties)| {
            let mut list: Vec<_> = properties.iter().collect();
            if !properties.has(PropertyId::AuthenticationMethod) {
                list.push(Property::AuthenticationMethod("SCRAM"));
            }
            Auth { reason, properties: Properties::new(list.leak()) }
        },
    )
}

fn reasons_of(packet: PacketType) -> Vec<ReasonCode> {
    ReasonCode::ALL.iter().copied().filter(|reason| reason.allowed_in(packet, Sender::Either)).collect()
}

fn reason(packet: PacketType, version: Version) -> impl Strategy<Value = ReasonCode> {
    let reasons = if version == Version::V5 { reasons_of(packet) } else { vec![ReasonCode::Success] };
    prop::sample::select(reasons)
}

/// A list that may stand at this place: in any order, singles once, data only with its method.
fn properties(site: PropertySite, version: Version) -> BoxedStrategy<Properties<'static>> {
    if version != Version::V5 {
        return Just(Properties::EMPTY).boxed();
    }
    let allowed: Vec<_> = PropertyId::ALL.iter().copied().filter(|id| id.allowed_in(site)).collect();
    vec(prop::sample::select(allowed).prop_flat_map(property), 0..6)
        .prop_map(move |list| {
            let mut kept: Vec<Property<'static>> = Vec::new();
            for property in list {
                let id = property.id();
                let orphan = id == PropertyId::AuthenticationData
                    && !kept.iter().any(|earlier| earlier.id() == PropertyId::AuthenticationMethod);
                let twice = !id.repeats_in(site) && kept.iter().any(|earlier| earlier.id() == id);
                if !orphan && !twice {
                    kept.push(property);
                }
            }
            Properties::new(kept.leak())
        })
        .boxed()
}

fn property(id: PropertyId) -> BoxedStrategy<Property<'static>> {
    use PropertyId as Id;
    let flag = any::<bool>();
    let long = any::<u32>();
    let short = any::<u16>();
    match id {
        Id::PayloadFormat => flag
            .prop_map(|text| if text { PayloadFormat::Utf8 } else { PayloadFormat::Bytes })
            .prop_map(Property::PayloadFormat)
            .boxed(),
        Id::MessageExpiry => long.prop_map(Property::MessageExpiry).boxed(),
        Id::ContentType => text().prop_map(Property::ContentType).boxed(),
        Id::ResponseTopic => topic().prop_map(Property::ResponseTopic).boxed(),
        Id::CorrelationData => bytes(20).prop_map(Property::CorrelationData).boxed(),
        Id::SubscriptionId => {
            (1_u32..268_435_456).prop_map(|id| Property::SubscriptionId(NonZeroU32::new(id).unwrap())).boxed()
        }
        Id::SessionExpiry => long.prop_map(Property::SessionExpiry).boxed(),
        Id::AssignedClientId => text().prop_map(Property::AssignedClientId).boxed(),
        Id::ServerKeepAlive => short.prop_map(Property::ServerKeepAlive).boxed(),
        Id::AuthenticationMethod => text().prop_map(Property::AuthenticationMethod).boxed(),
        Id::AuthenticationData => bytes(20).prop_map(Property::AuthenticationData).boxed(),
        Id::RequestProblemInformation => flag.prop_map(Property::RequestProblemInformation).boxed(),
        Id::WillDelay => long.prop_map(Property::WillDelay).boxed(),
        Id::RequestResponseInformation => flag.prop_map(Property::RequestResponseInformation).boxed(),
        Id::ResponseInformation => text().prop_map(Property::ResponseInformation).boxed(),
        Id::ServerReference => text().prop_map(Property::ServerReference).boxed(),
        Id::ReasonString => text().prop_map(Property::ReasonString).boxed(),
        Id::ReceiveMaximum => packet_id().prop_map(Property::ReceiveMaximum).boxed(),
        Id::TopicAliasMaximum => short.prop_map(Property::TopicAliasMaximum).boxed(),
        Id::TopicAlias => packet_id().prop_map(Property::TopicAlias).boxed(),
        Id::MaximumQos => {
            flag.prop_map(|one| Property::MaximumQos(if one { QoS::AtLeastOnce } else { QoS::AtMostOnce })).boxed()
        }
        Id::RetainAvailable => flag.prop_map(Property::RetainAvailable).boxed(),
        Id::UserProperty => (text(), text()).prop_map(|(name, value)| Property::UserProperty(name, value)).boxed(),
        Id::MaximumPacketSize => {
            (1..=u32::MAX).prop_map(|size| Property::MaximumPacketSize(NonZeroU32::new(size).unwrap())).boxed()
        }
        Id::WildcardAvailable => flag.prop_map(Property::WildcardAvailable).boxed(),
        Id::SubscriptionIdsAvailable => flag.prop_map(Property::SubscriptionIdsAvailable).boxed(),
        Id::SharedAvailable => flag.prop_map(Property::SharedAvailable).boxed(),
    }
}

pub(crate) fn packet_id() -> impl Strategy<Value = PacketId> {
    (1..=u16::MAX).prop_map(|id| NonZeroU16::new(id).unwrap())
}

fn qos() -> impl Strategy<Value = QoS> {
    prop::sample::select(vec![QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce])
}

/// Any text without U+0000; characters of one to four bytes.
fn text() -> impl Strategy<Value = Text> {
    vec(any::<char>().prop_filter("no U+0000", |&c| c != '\0'), 0..12)
        .prop_map(|chars| &*chars.into_iter().collect::<String>().leak())
}

fn topic() -> impl Strategy<Value = Text> {
    "[a-zäß€😀/ $]{1,40}".prop_map(|topic| &*topic.leak())
}

fn filter() -> impl Strategy<Value = TopicFilter<'static>> {
    let level = prop_oneof!["[a-zä€]{0,6}", Just("+".to_owned())];
    let share = option::of("[a-z]{1,5}");
    (share, vec(level, 1..6), any::<bool>()).prop_map(|(share, mut levels, hash)| {
        if hash || levels.join("/").is_empty() {
            levels.push("#".to_owned());
        }
        let pattern = levels.join("/");
        let text = share.map_or(pattern.clone(), |group| format!("$share/{group}/{pattern}"));
        TopicFilter::parse(text.leak(), &Limits::default()).unwrap()
    })
}

fn bytes(most: usize) -> impl Strategy<Value = &'static [u8]> {
    vec(any::<u8>(), 0..most).prop_map(|bytes| &*bytes.leak())
}
