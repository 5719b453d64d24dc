//! `rumqttc`'s client of MQTT 3.1.1.

use std::collections::VecDeque;

use ::rumqttc::{
    Client as Handle, Connection, Event, LastWill, MqttOptions, Packet, Publish, QoS, SubscribeReasonCode,
};

use super::{Client, Hello, Message, PACKET_BYTES_MAX, PATIENCE, REQUESTS_MAX};
use crate::broker::Broker;

/// A connected client.
pub(super) struct V4 {
    handle: Handle,
    connection: Connection,
    /// Messages that arrived while it waited for something else.
    arrived: VecDeque<Message>,
}

impl V4 {
    /// The next packet from the broker that is not a message; messages are set aside.
    fn answer(&mut self) -> Packet {
        loop {
            match self.event().expect("the connection holds") {
                Packet::Publish(publish) => self.arrived.push_back(message(&publish)),
                packet => return packet,
            }
        }
    }

    /// A step of an exchange that this client began.
    fn acknowledgement(&mut self) -> Packet {
        let packet = self.answer();
        assert!(matches!(packet, Packet::PubAck(_) | Packet::PubRec(_) | Packet::PubComp(_)), "{packet:?}");
        packet
    }

    /// The next packet from the broker; the error is why there will be none.
    fn event(&mut self) -> Result<Packet, String> {
        loop {
            let event = self.connection.recv_timeout(PATIENCE).expect("a packet in time");
            if let Event::Incoming(packet) = event.map_err(|error| error.to_string())? {
                return Ok(packet);
            }
        }
    }
}

impl Client for V4 {
    fn connect(broker: &Broker, hello: &Hello<'_>) -> (Self, bool) {
        let (host, port, transport) = hello.target(broker);
        let mut options = MqttOptions::new(hello.id, host, port);
        options.set_transport(transport).set_clean_session(hello.clean);
        options.set_max_packet_size(PACKET_BYTES_MAX as usize, PACKET_BYTES_MAX as usize);
        if let Some(will) = &hello.will {
            let will = LastWill::new(will.topic.as_str(), will.payload.clone(), quality(will.qos), will.retain);
            options.set_last_will(will);
        }
        let (handle, connection) = Handle::new(options, REQUESTS_MAX);
        let mut client = Self { handle, connection, arrived: VecDeque::new() };
        let Packet::ConnAck(answer) = client.answer() else { panic!("no CONNACK") };
        (client, answer.session_present)
    }

    fn subscribe(&mut self, filter: &str, qos: u8) -> u8 {
        self.handle.subscribe(filter, quality(qos)).expect("taken");
        let Packet::SubAck(answer) = self.answer() else { panic!("no SUBACK") };
        let [SubscribeReasonCode::Success(granted)] = answer.return_codes[..] else { panic!("{answer:?}") };
        granted as u8
    }

    fn unsubscribe(&mut self, filter: &str) {
        self.handle.unsubscribe(filter).expect("taken");
        assert!(matches!(self.answer(), Packet::UnsubAck(_)));
    }

    fn publish(&mut self, messages: &[Message]) {
        for Message { topic, payload, qos, retain } in messages {
            self.handle.publish(topic, quality(*qos), *retain, payload.clone()).expect("taken");
        }
        for _ in messages.iter().filter(|message| message.qos > 0) {
            while matches!(self.acknowledgement(), Packet::PubRec(_)) {}
        }
        // Something must drive the client until messages without acknowledgement are written: this is answered later.
        if messages.iter().any(|message| message.qos == 0) {
            self.unsubscribe("nothing");
        }
    }

    fn receive(&mut self) -> Message {
        loop {
            if let Some(message) = self.arrived.pop_front() {
                return message;
            }
            match self.event().expect("the connection holds") {
                Packet::Publish(publish) => return message(&publish),
                Packet::PubRel(_) | Packet::PingResp => {}
                packet => panic!("{packet:?}"),
            }
        }
    }

    fn disconnect(mut self) {
        self.handle.disconnect().expect("taken");
        while self.event().is_ok() {}
    }
}

fn message(publish: &Publish) -> Message {
    Message {
        topic: publish.topic.clone(),
        payload: publish.payload.to_vec(),
        qos: publish.qos as u8,
        retain: publish.retain,
    }
}

fn quality(qos: u8) -> QoS {
    ::rumqttc::qos(qos).expect("0 to 2")
}
