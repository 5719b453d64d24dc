//! What a client says, packet by packet, and what it hears.

use tidegate_wire_mqtt::{
    Ack, AckKind, Decoded, Delivery, Limits, Packet, PacketId, Properties, Property, Publish, QoS, ReasonCode, Sender,
    Subscribe, Subscription, SubscriptionList, SubscriptionOptions, TopicFilter, TopicFilters, Unsubscribe, decode,
};

use super::{End, Net, Wire};
use crate::got::{Got, owned};

impl Net {
    pub(crate) fn publish(&mut self, wire: Wire, topic: &str, payload: &str, qos: u8, retain: bool, id: u16) {
        self.publish_with(wire, topic, payload, qos, retain, id, &[]);
    }

    #[allow(clippy::too_many_arguments, reason = "a test reads best as one line")]
    pub(crate) fn publish_with(
        &mut self,
        wire: Wire,
        topic: &str,
        payload: &str,
        qos: u8,
        retain: bool,
        id: u16,
        properties: &[Property<'_>],
    ) {
        let packet_id = PacketId::new(id.max(1)).unwrap();
        let delivery = match qos {
            0 => Delivery::AtMostOnce,
            1 => Delivery::AtLeastOnce { packet_id, dup: false },
            _ => Delivery::ExactlyOnce { packet_id, dup: false },
        };
        let properties = Properties::new(properties);
        self.send(wire, &Publish { delivery, retain, topic, properties, payload: payload.as_bytes() });
    }

    pub(crate) fn subscribe(&mut self, wire: Wire, filter: &str, qos: u8) -> ReasonCode {
        let options = SubscriptionOptions::with_qos(QoS::from_bits(qos).unwrap());
        self.subscribe_with(wire, filter, options, &[])
    }

    /// Subscribes; the SUBACK is taken out of what was received, the rest stays.
    pub(crate) fn subscribe_with(
        &mut self,
        wire: Wire,
        filter: &str,
        options: SubscriptionOptions,
        properties: &[Property<'_>],
    ) -> ReasonCode {
        let filter = TopicFilter::parse(filter, &Limits::default()).unwrap();
        let list = [Subscription { filter, options }];
        let packet = Subscribe {
            packet_id: PacketId::MIN,
            properties: Properties::new(properties),
            subscriptions: SubscriptionList::new(&list),
        };
        self.send(wire, &packet);
        match self.receive_one(wire) {
            Some(Got::SubAck(reasons)) => reasons[0],
            other => panic!("{other:?} instead of a SUBACK"),
        }
    }

    pub(crate) fn unsubscribe(&mut self, wire: Wire, filter: &str) -> Vec<ReasonCode> {
        let list = [TopicFilter::parse(filter, &Limits::default()).unwrap()];
        let packet =
            Unsubscribe { packet_id: PacketId::MIN, properties: Properties::EMPTY, filters: TopicFilters::new(&list) };
        self.send(wire, &packet);
        match self.receive_one(wire) {
            Some(Got::UnsubAck(reasons)) => reasons,
            other => panic!("{other:?} instead of an UNSUBACK"),
        }
    }

    /// Subscribes at QoS 1; what comes is for the caller to receive.
    pub(crate) fn subscribe_quietly(&mut self, wire: Wire, filter: &str) {
        let filter = TopicFilter::parse(filter, &Limits::default()).unwrap();
        let list = [Subscription { filter, options: SubscriptionOptions::with_qos(QoS::AtLeastOnce) }];
        let (packet_id, properties, subscriptions) = (PacketId::MIN, Properties::EMPTY, SubscriptionList::new(&list));
        self.send(wire, &Subscribe { packet_id, properties, subscriptions });
    }

    /// Unsubscribes; what comes is for the caller to receive.
    pub(crate) fn unsubscribe_quietly(&mut self, wire: Wire, filter: &str) {
        let list = [TopicFilter::parse(filter, &Limits::default()).unwrap()];
        let (packet_id, properties, filters) = (PacketId::MIN, Properties::EMPTY, TopicFilters::new(&list));
        self.send(wire, &Unsubscribe { packet_id, properties, filters });
    }

    /// The same again, with DUP set. QoS 1 or 2.
    pub(crate) fn publish_again(&mut self, wire: Wire, topic: &str, payload: &str, qos: u8, id: u16) {
        let packet_id = PacketId::new(id).unwrap();
        let delivery = match qos {
            1 => Delivery::AtLeastOnce { packet_id, dup: true },
            _ => Delivery::ExactlyOnce { packet_id, dup: true },
        };
        let (properties, payload) = (Properties::EMPTY, payload.as_bytes());
        self.send(wire, &Publish { delivery, retain: false, topic, properties, payload });
    }

    pub(crate) fn ack(&mut self, wire: Wire, kind: AckKind, id: u16) {
        self.send(wire, &Ack::success(kind, PacketId::new(id).unwrap()));
    }

    /// Everything that arrived.
    pub(crate) fn receive(&mut self, wire: Wire) -> Vec<Got> {
        std::iter::from_fn(|| self.receive_one(wire)).collect()
    }

    pub(crate) fn receive_one(&mut self, wire: Wire) -> Option<Got> {
        let end = &mut self.ends[wire.0];
        let limits = Limits { packet_bytes_max: u32::MAX, ..Limits::default().with_sender(Sender::Server) };
        let (got, consumed) = match decode(&end.received, end.version, &limits) {
            Ok(Decoded::Packet { packet, consumed }) => (owned(&packet), consumed),
            Ok(Decoded::Incomplete { .. }) => {
                assert!(end.received.is_empty(), "half a packet: {:x?}", end.received);
                return None;
            }
            Err(error) => panic!("the broker sent nonsense: {error}"),
        };
        end.received.drain(..consumed);
        Some(got)
    }

    /// The next packet, which is a message, as it came.
    pub(crate) fn look_at_message<T>(&mut self, wire: Wire, look: impl FnOnce(&Publish<'_>) -> T) -> T {
        let End { version, ref mut received, .. } = self.ends[wire.0];
        match decode(received, version, &Limits::default().with_sender(Sender::Server)) {
            Ok(Decoded::Packet { packet: Packet::Publish(publish), consumed }) => {
                let seen = look(&publish);
                received.drain(..consumed);
                seen
            }
            other => panic!("{other:?} instead of a message"),
        }
    }

    /// The bytes that arrived.
    pub(crate) fn raw(&mut self, wire: Wire) -> Vec<u8> {
        std::mem::take(&mut self.ends[wire.0].received)
    }

    /// Payloads of the messages that arrived; everything else is dropped.
    pub(crate) fn payloads(&mut self, wire: Wire) -> Vec<String> {
        let got = self.receive(wire).into_iter();
        got.filter_map(|got| if let Got::Message { payload, .. } = got { Some(payload) } else { None }).collect()
    }
}
