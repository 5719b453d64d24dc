//! CONNECT to a hello, and the CONNACK: what holds from now on.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::num::{NonZeroU16, NonZeroU32};
use core::time::Duration;

use tidegate_core::access::Identity;
use tidegate_core::settings::Settings;
use tidegate_core::{ClientWill, Shard};
use tidegate_wire_mqtt::{
    ConnAck, Connect, Diagnostics, Encode, Encoded, Peer, Properties, Property, QoS, ReasonCode, Version,
};

use crate::aliases::AliasesOut;
use crate::link::FaceLink;

/// A CONNECT that has been read, and whose sender has been authenticated.
#[derive(Debug)]
pub struct MqttHello<'a> {
    /// The packet.
    pub connect: &'a Connect<'a>,
    /// The client identifier: the packet's own, or the one that was made up because that was empty.
    pub client_id: &'a str,
    /// Who it is.
    pub identity: Identity,
}

/// The same in the words of the core.
pub(crate) fn hello<'a>(shard: &Shard, hello: &MqttHello<'a>) -> tidegate_core::Hello<'a> {
    let (connect, settings) = (hello.connect, shard.settings());
    let greeting = ConnackProperties::new(hello, settings);
    let objection = objection_to(connect, &greeting);
    let properties = &connect.properties;
    // Before MQTT 5 there is no window to announce; there are no more identifiers than that.
    let inbound_max = if connect.version == Version::V5 { settings.receive_max } else { u16::MAX };
    tidegate_core::Hello {
        client_id: hello.client_id,
        identity: hello.identity.clone(),
        objection,
        is_clean: connect.clean_start,
        expiry: session_expiry(hello, settings),
        keep_alive: keep_alive(connect, settings),
        window: properties.receive_maximum().map_or(u16::MAX, NonZeroU16::get),
        inbound_max,
        will: connect.will.map(|will| ClientWill {
            topic: will.topic,
            payload: will.payload,
            properties: will.properties,
            qos: will.qos,
            retain: will.retain,
            delay: Duration::from_secs(will.properties.will_delay().unwrap_or(0).into()),
        }),
        // It has passed the strict decoder, so that there is one way to write it: this is what came.
        bytes: connect.encoded_len(connect.version).unwrap_or(0),
        face: Box::new(link(shard, connect, greeting)),
    }
}

fn link(shard: &Shard, connect: &Connect<'_>, greeting: ConnackProperties) -> FaceLink {
    let properties = &connect.properties;
    let diagnostics = match properties.request_problem_information() {
        Some(false) => Diagnostics::Omit,
        _ => Diagnostics::Send,
    };
    let packet_bytes_max = properties.maximum_packet_size().map_or(u32::MAX, NonZeroU32::get);
    let aliases = properties.topic_alias_maximum().unwrap_or(0).min(shard.settings().topic_alias_out_max);
    FaceLink {
        peer: Peer { version: connect.version, packet_bytes_max, diagnostics },
        is_bridge: connect.is_bridge,
        greeting: Some(Box::new(greeting)),
        aliases_in: None,
        aliases_out: (aliases > 0).then(|| Box::new(AliasesOut::new(aliases, shard.hasher(), shard.memory()))),
    }
}

/// What MQTT itself has against a client.
fn objection_to(connect: &Connect<'_>, greeting: &ConnackProperties) -> Option<ReasonCode> {
    if connect.properties.authentication_method().is_some() {
        return Some(ReasonCode::BadAuthenticationMethod);
    }
    // Better no connection than one without an answer.
    let packet_bytes_max = connect.properties.maximum_packet_size()?;
    let peer = Peer { packet_bytes_max: packet_bytes_max.get(), ..Peer::new(connect.version) };
    let is_too_large = greeting.write(true, peer, &mut Vec::new()) == Encoded::TooLarge;
    is_too_large.then_some(ReasonCode::PacketTooLarge)
}

fn session_expiry(hello: &MqttHello<'_>, settings: &Settings) -> Duration {
    let connect = hello.connect;
    let wanted = match connect.version {
        Version::V5 => match connect.properties.session_expiry().unwrap_or(0) {
            u32::MAX => Duration::MAX,
            seconds => Duration::from_secs(seconds.into()),
        },
        _ if connect.clean_start => Duration::ZERO,
        _ => settings.session_expiry_v3,
    };
    // A session of the broker's own bridges is as long as they want.
    if hello.identity.is_own() { wanted } else { wanted.min(settings.session_expiry_max) }
}

/// Seconds of silence that are agreed on; 0 is without end.
fn keep_alive(connect: &Connect<'_>, settings: &Settings) -> u16 {
    match (settings.keep_alive_max, connect.version) {
        (Some(most), Version::V5) if connect.keep_alive == 0 || connect.keep_alive > most => most,
        _ => connect.keep_alive,
    }
}

/// What a CONNACK says to a client that is let in; nothing of it before MQTT 5.
#[derive(Debug)]
pub(crate) struct ConnackProperties {
    list: Vec<Property<'static>>,
    /// The identifier that was made up for the client.
    assigned: Option<String>,
    topic_alias_max: Option<u16>,
    keep_alive: Option<u16>,
}

impl ConnackProperties {
    fn new(hello: &MqttHello<'_>, settings: &Settings) -> Self {
        let connect = hello.connect;
        let mut greeting = Self { list: Vec::new(), assigned: None, topic_alias_max: None, keep_alive: None };
        if connect.version != Version::V5 {
            return greeting;
        }
        let list = &mut greeting.list;
        let wanted = connect.properties.session_expiry().unwrap_or(0);
        let granted = u32::try_from(session_expiry(hello, settings).as_secs()).unwrap_or(u32::MAX);
        if granted != wanted {
            list.push(Property::SessionExpiry(granted));
        }
        list.extend(NonZeroU16::new(settings.receive_max).map(Property::ReceiveMaximum));
        if settings.qos_max < QoS::ExactlyOnce {
            list.push(Property::MaximumQos(settings.qos_max));
        }
        if !settings.retain_available {
            list.push(Property::RetainAvailable(false));
        }
        list.extend(NonZeroU32::new(settings.packet_bytes_max).map(Property::MaximumPacketSize));
        greeting.topic_alias_max = Some(settings.topic_alias_max);
        greeting.assigned = connect.client_id.is_empty().then(|| hello.client_id.into());
        greeting.keep_alive = Some(keep_alive(connect, settings)).filter(|agreed| *agreed != connect.keep_alive);
        greeting
    }

    pub(crate) fn write(&self, session_present: bool, peer: Peer, out: &mut Vec<u8>) -> Encoded {
        let mut list: Vec<Property<'_>> = self.list.clone();
        list.extend(self.assigned.as_deref().map(Property::AssignedClientId));
        list.extend(self.topic_alias_max.map(Property::TopicAliasMaximum));
        list.extend(self.keep_alive.map(Property::ServerKeepAlive));
        let properties = Properties::new(&list);
        ConnAck { session_present, reason: ReasonCode::Success, properties }.encode(peer, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MqttShard;
    use alloc::sync::Arc;
    use tidegate_control::Timestamp;
    use tidegate_core::access::Open;
    use tidegate_core::event::Event;

    #[test]
    fn a_connect_is_one_packet_with_its_bytes() {
        let mut shard = Shard::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 7);
        let connect = Connect {
            version: Version::V311,
            is_bridge: false,
            clean_start: true,
            keep_alive: 60,
            properties: Properties::EMPTY,
            client_id: "x",
            will: None,
            user_name: None,
            password: None,
        };
        let hello = MqttHello { connect: &connect, client_id: "x", identity: Identity::default() };
        assert!(shard.handle_connect(&hello, Timestamp::ZERO).is_some());
        // Two of fixed header, ten of variable header, three of identifier.
        assert_eq!((shard.stats().packets_received, shard.stats().bytes_received), (1, 15));
        let event = shard.poll_event();
        assert!(matches!(event, Some(Event::Connected { protocol: "3.1.1", keep_alive: 60, .. })), "{event:?}");
    }
}
