//! What was done, in words for people and in members for programs: `what` is one of a closed set.

use serde_json::{Value, json};
use tidegate_broker::why_in_words;
use tidegate_core::Confirmation;
use tidegate_core::activity::{Deed, MessageSketch, PublishOutcome};
use tidegate_core::event::Event;

use crate::status::meaning;
use crate::view;
use crate::why::words::counted;

/// One line, without its time and its client.
pub(super) fn line(deed: &Deed) -> Value {
    match deed {
        Deed::Happened(event) => happened(event),
        Deed::Published { message, outcome } => {
            let (word, text) = outcome_in_words(*outcome);
            let mut line = of_message("published", message, &format!(": {text}"));
            line["outcome"] = json!(word);
            if let PublishOutcome::Gone(loss) = outcome {
                line["reason"] = json!(loss.name());
            }
            line
        }
        Deed::Subscribed { filter, granted } => {
            let (granted, text) = match granted {
                Ok(qos) => (json!(qos.bits()), format!("subscribed to {filter}, QoS {}", qos.bits())),
                Err(reason) => (Value::Null, format!("asked for {filter}, and was refused: {}", reason.name())),
            };
            json!({ "what": "subscribed", "topic": filter, "qos": granted, "text": text })
        }
        Deed::Unsubscribed { filter, existed } => {
            let text = match existed {
                true => format!("wants no more of {filter}"),
                false => format!("wants no more of {filter}, which it had not subscribed to"),
            };
            json!({ "what": "unsubscribed", "topic": filter, "text": text })
        }
        Deed::Sent { message, number, is_repeated } => {
            let number = number.map(std::num::NonZero::get);
            let again = if *is_repeated { ", once more" } else { "" };
            let end = number.map(|number| format!(", number {number}{again}")).unwrap_or_default();
            let mut line = of_message("sent", message, &end);
            line["number"] = json!(number);
            line
        }
        Deed::Queued { message } => of_message("queued", message, ""),
        Deed::Lost { message, reason } => {
            let mut line = of_message("lost", message, &format!(": {}", meaning(*reason)));
            line["reason"] = json!(reason.name());
            line
        }
        Deed::Confirmed { number, confirmation } => {
            let word = match confirmation {
                Confirmation::Received => "has",
                Confirmation::Stored => "has stored",
                Confirmation::Declined => "declines",
                Confirmation::Completed => "is done with",
            };
            json!({ "what": "confirmed", "number": number.get(), "text": format!("{word} number {}", number.get()) })
        }
    }
}

fn of_message(what: &str, message: &MessageSketch, end: &str) -> Value {
    let MessageSketch { topic, qos, retain, payload_bytes } = message;
    let verb = match what {
        "sent" => "is sent",
        "queued" => "does not take now, so there waits for it",
        "lost" => "does not get",
        other => other,
    };
    let retained = if *retain { ", retained" } else { "" };
    let bytes = counted(u64::from(*payload_bytes), "byte");
    let text = format!("{verb} {topic}, QoS {}, {bytes}{retained}{end}", qos.bits());
    json!({ "what": what, "topic": topic, "qos": qos.bits(), "retain": retain, "bytes": payload_bytes, "text": text })
}

fn outcome_in_words(outcome: PublishOutcome) -> (&'static str, String) {
    match outcome {
        PublishOutcome::Passed { places: 0 } => ("passed", "taken, and nobody wants it".to_owned()),
        PublishOutcome::Passed { places: 1 } => ("passed", "passed on to one".to_owned()),
        PublishOutcome::Passed { places } => ("passed", format!("passed on to {places}")),
        PublishOutcome::Held => ("held", "it has to wait, because its client is too fast".to_owned()),
        PublishOutcome::Unread => ("unread", "not read yet, because its client is too fast".to_owned()),
        PublishOutcome::Gone(loss) if loss.is_refusal() => ("refused", format!("refused: {}", meaning(loss))),
        PublishOutcome::Gone(loss) => ("lost", meaning(loss).to_owned()),
    }
}

fn happened(event: &Event) -> Value {
    let (what, text) = match event {
        Event::Connected { session_present, identity, protocol, keep_alive, .. } => {
            let user = identity.user.as_ref().map(|user| format!(" as {user}")).unwrap_or_default();
            let session = if *session_present { "its session from before" } else { "a new session" };
            let (peer, listener) = (&identity.peer, identity.listener);
            let how = format!("connected{user} from {peer} at {listener}, {}", protocol_name(protocol));
            ("connected", format!("{how}, with {session}, keep-alive {keep_alive} s"))
        }
        Event::Refused { identity, reason, .. } => {
            ("refused", format!("was not let in from {}: {}", identity.peer, reason.name()))
        }
        Event::Disconnected { why, .. } => ("disconnected", format!("is disconnected: {}", why_in_words(why))),
        Event::SessionEnded { .. } => ("session_ended", "its session has ended".to_owned()),
        Event::Denied { what, topic, .. } => ("denied", format!("may not {what} {topic}")),
        Event::Slowed { rate, interval, .. } => {
            let usual = interval.map(|interval| 1.0 / interval.as_secs_f64().max(1e-9));
            let usual = usual.map(|usual| format!(", usually {}/s", view::rounded(usual))).unwrap_or_default();
            ("slowed", format!("is slowed: it sends {}/s{usual}", view::rounded(*rate)))
        }
        Event::Recovered { .. } => ("recovered", "is no longer slowed".to_owned()),
        Event::Outlawed { time, .. } => ("banned", format!("is kept out for {} s", time.as_secs())),
        Event::Drifted { .. } => ("drifted", "sends four times as fast as it used to".to_owned()),
        Event::Store { .. } => ("store", "the store".to_owned()),
    };
    json!({ "what": what, "text": text })
}

/// Versions of MQTT are told by their number alone.
fn protocol_name(protocol: &str) -> String {
    let is_number = protocol.starts_with(|letter: char| letter.is_ascii_digit());
    if is_number { format!("MQTT {protocol}") } else { protocol.to_owned() }
}

#[cfg(test)]
mod tests {
    use tidegate_core::ledger::Loss;
    use tidegate_wire_mqtt::{QoS, ReasonCode};

    use super::*;

    #[test]
    fn a_line_says_what_became_of_a_message() {
        let message =
            MessageSketch { topic: "plant/3".into(), qos: QoS::AtLeastOnce, retain: false, payload_bytes: 12 };
        let text = |deed: &Deed| line(deed)["text"].as_str().unwrap().to_owned();
        let published = |outcome| text(&Deed::Published { message: message.clone(), outcome });
        assert_eq!(
            published(PublishOutcome::Passed { places: 2 }),
            "published plant/3, QoS 1, 12 bytes: passed on to 2"
        );
        assert!(published(PublishOutcome::Gone(Loss::Refused)).contains(": refused: the publisher was too fast"));
        let lost = line(&Deed::Lost { message: message.clone(), reason: Loss::QueueFull });
        assert_eq!((lost["what"].as_str(), lost["reason"].as_str()), (Some("lost"), Some("dropped_queue_full")));
        assert!(lost["text"].as_str().unwrap().ends_with(": the receiver's queue was full"), "{lost}");
        let refused = Deed::Subscribed { filter: "x/#".into(), granted: Err(ReasonCode::NotAuthorized) };
        assert_eq!(text(&refused), "asked for x/#, and was refused: Not authorized");
    }
}
