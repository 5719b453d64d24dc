//! `rumqttc`'s client of MQTT 5.

use std::collections::VecDeque;

use ::rumqttc::v5::mqttbytes::QoS;
use ::rumqttc::v5::mqttbytes::v5::{
    ConnAck, Filter, LastWill, Packet, PubAckReason, PubCompReason, PubRecReason, Publish, PublishProperties,
    SubscribeProperties, SubscribeReasonCode, UnsubAckReason,
};
use ::rumqttc::v5::{Client as Handle, Connection, Event, MqttOptions};

use super::{Client, Hello, Message, PACKET_BYTES_MAX, PATIENCE, REQUESTS_MAX};
use crate::broker::Broker;

/// How long a session is kept that is to be kept.
const SESSION_SECONDS: u32 = 600;

/// A connected client.
pub(super) struct V5 {
    pub(super) handle: Handle,
    connection: Connection,
    /// What the broker said at the beginning.
    pub(super) hello: ConnAck,
    /// Messages that arrived while it waited for something else.
    arrived: VecDeque<Publish>,
}

impl V5 {
    /// Options for [`Self::connect_with`].
    pub(super) fn options(broker: &Broker, hello: &Hello<'_>) -> MqttOptions {
        let (host, port, transport) = hello.target(broker);
        let mut options = MqttOptions::new(hello.id, host, port);
        options.set_transport(transport).set_clean_start(hello.clean);
        options.set_max_packet_size(Some(PACKET_BYTES_MAX));
        options.set_session_expiry_interval((!hello.clean).then_some(SESSION_SECONDS));
        if let Some(will) = &hello.will {
            let (topic, payload) = (will.topic.as_str(), will.payload.clone());
            options.set_last_will(LastWill::new(topic, payload, quality(will.qos), will.retain, None));
        }
        options
    }

    pub(super) fn connect_with(options: MqttOptions) -> Self {
        let (handle, mut connection) = Handle::new(options, REQUESTS_MAX);
        let event = connection.recv_timeout(PATIENCE).expect("an answer in time").expect("the broker lets it in");
        let Event::Incoming(Packet::ConnAck(hello)) = event else { panic!("{event:?}") };
        Self { handle, connection, hello, arrived: VecDeque::new() }
    }

    /// The next packet from the broker that is not a message; messages are set aside.
    fn answer(&mut self) -> Packet {
        loop {
            match self.event().expect("the connection holds") {
                Packet::Publish(publish) => self.arrived.push_back(publish),
                packet => return packet,
            }
        }
    }

    /// Takes a step of an exchange that this client began, and checks its reason code.
    fn is_end_of_exchange(&mut self) -> bool {
        use PubAckReason::{NoMatchingSubscribers as AckedByNobody, Success as Acked};
        use PubRecReason::{NoMatchingSubscribers as ReceivedByNobody, Success as Received};
        match self.answer() {
            Packet::PubAck(answer) => assert!(matches!(answer.reason, Acked | AckedByNobody), "{answer:?}"),
            Packet::PubComp(answer) => assert_eq!(answer.reason, PubCompReason::Success),
            Packet::PubRec(answer) => {
                assert!(matches!(answer.reason, Received | ReceivedByNobody), "{answer:?}");
                return false;
            }
            packet => panic!("{packet:?}"),
        }
        true
    }

    /// The next packet from the broker; the error is why there will be none.
    pub(super) fn event(&mut self) -> Result<Packet, String> {
        loop {
            let event = self.connection.recv_timeout(PATIENCE).expect("a packet in time");
            if let Event::Incoming(packet) = event.map_err(|error| error.to_string())? {
                return Ok(packet);
            }
        }
    }

    /// Subscribes with options and an identifier; returns what the broker answered.
    pub(super) fn subscribe_with(&mut self, filter: Filter, id: Option<usize>) -> SubscribeReasonCode {
        let properties = SubscribeProperties { id, user_properties: Vec::new() };
        self.handle.subscribe_many_with_properties([filter], properties).expect("taken");
        let Packet::SubAck(answer) = self.answer() else { panic!("no SUBACK") };
        let [code] = answer.return_codes[..] else { panic!("{answer:?}") };
        code
    }

    /// Publishes with properties and waits for the acknowledgement, whose reason code it returns.
    pub(super) fn publish_with(&mut self, message: &Message, properties: PublishProperties) -> PubAckReason {
        let Message { topic, payload, qos, retain } = message.clone();
        self.handle.publish_with_properties(topic, quality(qos), retain, payload, properties).expect("taken");
        match self.answer() {
            Packet::PubAck(answer) if qos == 1 => answer.reason,
            packet => panic!("{packet:?}"),
        }
    }

    /// The next message with everything about it.
    pub(super) fn receive_whole(&mut self) -> Publish {
        loop {
            if let Some(publish) = self.arrived.pop_front() {
                return publish;
            }
            match self.event().expect("the connection holds") {
                Packet::Publish(publish) => return publish,
                Packet::PubRel(_) | Packet::PingResp(_) => {}
                packet => panic!("{packet:?}"),
            }
        }
    }
}

impl Client for V5 {
    fn connect(broker: &Broker, hello: &Hello<'_>) -> (Self, bool) {
        let client = Self::connect_with(Self::options(broker, hello));
        let session_present = client.hello.session_present;
        (client, session_present)
    }

    fn subscribe(&mut self, filter: &str, qos: u8) -> u8 {
        let code = self.subscribe_with(Filter::new(filter, quality(qos)), None);
        let SubscribeReasonCode::Success(granted) = code else { panic!("{code:?}") };
        granted as u8
    }

    fn unsubscribe(&mut self, filter: &str) {
        self.handle.unsubscribe(filter).expect("taken");
        let Packet::UnsubAck(answer) = self.answer() else { panic!("no UNSUBACK") };
        assert_eq!(answer.reasons, [UnsubAckReason::Success]);
    }

    fn publish(&mut self, messages: &[Message]) {
        for Message { topic, payload, qos, retain } in messages {
            self.handle.publish(topic, quality(*qos), *retain, payload.clone()).expect("taken");
        }
        for _ in messages.iter().filter(|message| message.qos > 0) {
            while !self.is_end_of_exchange() {}
        }
        // Something must drive the client until messages without acknowledgement are written: this is answered later.
        if messages.iter().any(|message| message.qos == 0) {
            self.handle.unsubscribe("nothing").expect("taken");
            let Packet::UnsubAck(answer) = self.answer() else { panic!("no UNSUBACK") };
            assert_eq!(answer.reasons, [UnsubAckReason::NoSubscriptionExisted]);
        }
    }

    fn receive(&mut self) -> Message {
        let publish = self.receive_whole();
        Message {
            topic: String::from_utf8(publish.topic.to_vec()).expect("UTF-8"),
            payload: publish.payload.to_vec(),
            qos: publish.qos as u8,
            retain: publish.retain,
        }
    }

    fn disconnect(mut self) {
        self.handle.disconnect().expect("taken");
        while self.event().is_ok() {}
    }
}

pub(super) fn quality(qos: u8) -> QoS {
    ::rumqttc::v5::mqttbytes::qos(qos).expect("0 to 2")
}
