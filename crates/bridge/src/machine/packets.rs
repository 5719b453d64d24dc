//! What the packets of the two brokers mean to a bridge.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Ack, AckKind, ConnAck, Packet, Properties, Publish, QoS, ReasonCode, SubAck};

use super::{BridgeMachine, BridgeSide, Fall, PairPhase};
use crate::hops;
use crate::lane::{LaneOutcome, RelayedMessage, answer_source, hints_of};
use crate::limits::RECEIVE_MAX;

impl BridgeMachine {
    pub(super) fn handle(&mut self, side: BridgeSide, packet: &Packet<'_>, now: Timestamp) -> Result<(), Fall> {
        let is_up = self.end(side).is_up;
        match packet {
            Packet::ConnAck(answer) if !is_up => self.on_connack(side, answer, now),
            Packet::Publish(publish) if is_up => self.on_publish(side, publish),
            Packet::Ack(ack) if is_up => {
                self.on_ack(side, ack, now);
                Ok(())
            }
            Packet::SubAck(answer) if is_up => {
                self.on_suback(side, answer, now);
                Ok(())
            }
            Packet::UnsubAck(answer) if is_up => {
                self.asked(side).remove(&answer.packet_id);
                self.go_on(side, now);
                Ok(())
            }
            Packet::PingResp if is_up => {
                self.pinged = None;
                Ok(())
            }
            Packet::Disconnect(goodbye) => Err(said("ended the connection", goodbye.reason, goodbye.properties)),
            other => Err(format!("unexpected {}", other.kind().name()).into()),
        }
    }

    fn on_connack(&mut self, side: BridgeSide, answer: &ConnAck<'_>, now: Timestamp) -> Result<(), Fall> {
        if answer.reason != ReasonCode::Success {
            if side == BridgeSide::Remote && answer.reason == ReasonCode::UnsupportedProtocolVersion && self.leave_bit()
            {
                self.begin_again(now);
                return Ok(());
            }
            return Err(said("refused the connection", answer.reason, answer.properties));
        }
        self.end(side).on_welcome(answer);
        match side {
            BridgeSide::Local => {
                if !answer.session_present {
                    self.out.on_source_forgot();
                }
                self.subscribe(BridgeSide::Local);
            }
            BridgeSide::Remote => {
                if !answer.session_present {
                    self.into.on_source_forgot();
                }
                let seconds = answer.properties.server_keep_alive().unwrap_or(self.config.keep_alive);
                self.keep_alive = Duration::from_secs(seconds.into());
                self.trouble = None;
                // Before MQTT 5 each subscription brings all retained messages again.
                let is_v5 = self.config.version.is_v5();
                if is_v5 || !answer.session_present || !self.has_subscribed {
                    self.has_subscribed = false;
                    self.subscribe(BridgeSide::Remote);
                }
            }
        }
        if side == BridgeSide::Remote && answer.session_present {
            // What waited in the session comes before the answer to a subscription, and may be more than can be held: it is passed on
            // meanwhile. The subscriptions of before are there.
            self.attach(now);
        }
        self.go_on(side, now);
        Ok(())
    }

    /// Goes on when nothing is open any more at this side.
    fn go_on(&mut self, side: BridgeSide, now: Timestamp) {
        if !self.asked(side).is_empty() {
            return;
        }
        if side == BridgeSide::Remote {
            self.has_subscribed = true;
        }
        match (side, self.phase) {
            (BridgeSide::Remote, PairPhase::Greeting { .. }) => self.attach(now),
            (BridgeSide::Local, PairPhase::Attaching { .. }) => self.stand(now),
            (BridgeSide::Local, PairPhase::Registering { .. }) => self.registered(now),
            _ => {}
        }
    }

    fn on_suback(&mut self, side: BridgeSide, answer: &SubAck<'_>, now: Timestamp) {
        if !self.asked(side).remove(&answer.packet_id) {
            return;
        }
        if let Some(reason) = answer.reasons.iter().find(|reason| reason.is_failure()) {
            let whose = if side == BridgeSide::Local { "this" } else { "the other" };
            let what = format!("{whose} broker refused a subscription: {} (0x{:02x})", reason.name(), reason.code());
            self.trouble = Some(what);
        }
        self.go_on(side, now);
    }

    fn on_publish(&mut self, side: BridgeSide, publish: &Publish<'_>) -> Result<(), Fall> {
        if publish.properties.topic_alias().is_some() {
            return Err("a topic alias, though none was offered".to_owned().into());
        }
        if matches!(self.phase, PairPhase::Registering { .. }) {
            // Not answered: it comes again when the other broker is there.
            return Ok(());
        }
        let mapped = match side {
            BridgeSide::Local => self.config.topics.outward(publish.topic),
            BridgeSide::Remote => self.config.topics.inward(publish.topic),
        };
        let Some((topic, qos_max)) = mapped else {
            self.counts.unmapped += 1;
            answer_source(self.end(side), publish.delivery, ReasonCode::Success);
            return Ok(());
        };
        let Some(properties) = hops::go_on(publish.properties) else {
            self.counts.looped += 1;
            answer_source(self.end(side), publish.delivery, ReasonCode::Success);
            return Ok(());
        };
        let lane = if side == BridgeSide::Local { &mut self.out } else { &mut self.into };
        let (delivery, retain, payload) = (publish.delivery, publish.retain, publish.payload.to_vec());
        if delivery.qos() == QoS::AtMostOnce && !lane.has_room() {
            self.counts.lost += 1;
            return Ok(());
        }
        // Before MQTT 5 the other broker was not told how many; this one keeps to what it was told. Who was told and does not is named, and
        // not left: mosquitto 2.0.11 sends all that waits as soon as a session is resumed, so it would be met the same way for ever. What
        // bounds a broker of 3.1.1 bounds it, too: it is not read while too much is held.
        let is_told = side == BridgeSide::Remote && self.config.version.is_v5();
        if is_told && delivery.packet_id().is_some() && lane.unanswered() >= RECEIVE_MAX.into() {
            self.trouble =
                Some(format!("the other broker sends more than {RECEIVE_MAX} messages at once (Receive Maximum)"));
        }
        lane.take(RelayedMessage { topic, payload, properties, retain, delivery, qos_max });
        Ok(())
    }

    fn on_ack(&mut self, side: BridgeSide, ack: &Ack<'_>, now: Timestamp) {
        if ack.kind == AckKind::PubRel {
            // While the bridge only registers nobody is there to be told; it comes again.
            if !matches!(self.phase, PairPhase::Registering { .. }) {
                (if side == BridgeSide::Local { &mut self.out } else { &mut self.into }).on_release(ack.packet_id);
            }
            return;
        }
        let (outcome, pace) = match side {
            BridgeSide::Remote => (self.out.on_answer(ack, &mut self.local, now), &mut self.pace_out),
            BridgeSide::Local => (self.into.on_answer(ack, &mut self.remote, now), &mut self.pace_in),
        };
        match outcome {
            LaneOutcome::Step => {}
            LaneOutcome::Taken(latency) => {
                pace.on_answer(latency, &hints_of(ack.properties), now);
                *(if side == BridgeSide::Remote { &mut self.counts.sent } else { &mut self.counts.received }) += 1;
            }
            LaneOutcome::Deferred => {
                pace.on_refused(&hints_of(ack.properties), now);
                self.counts.deferred += 1;
            }
            LaneOutcome::Refused(reason) => self.on_refused(side, reason, ack.properties),
        }
    }

    fn on_refused(&mut self, side: BridgeSide, reason: ReasonCode, properties: Properties<'_>) {
        let (whose, count) = match side {
            BridgeSide::Remote => ("the other", &mut self.counts.refused),
            BridgeSide::Local => ("this", &mut self.counts.refused_here),
        };
        *count += 1;
        let detail = properties.reason_string().map(|detail| format!(": {detail}")).unwrap_or_default();
        let (name, code) = (reason.name(), reason.code());
        self.trouble = Some(format!("{whose} broker refused a message for good: {name} (0x{code:02x}){detail}"));
    }
}

fn said(what: &str, reason: ReasonCode, properties: Properties<'_>) -> Fall {
    let detail = properties.reason_string().map(|detail| format!(" ({detail})")).unwrap_or_default();
    let words = format!("{what}: {} (0x{:02x}){detail}", reason.name(), reason.code());
    Fall { words, hints: Some(Box::new(hints_of(properties))) }
}
