//! What broker and client tell each other about pace, and how it is written on the wire.
//!
//! A hint is optional and may be ignored. It travels as a pair of short texts: a user property in MQTT 5, a header in
//! HTTP, a parameter in SSAP. Numbers are decimal digits, times are whole milliseconds, the stretch is in thousandths.
//! Reading never fails a connection: what is not a number is [`HintRead::Malformed`] and leaves everything as it was, what
//! is out of range is clamped where it is used. This module knows the words; the sockets and headers are elsewhere.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::time::Duration;

use crate::appointments::Ticket;

/// Hints from the broker: with an answer, a denial or a notification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// `pace-queued-ms`: how long this request waited in the broker's queue.
    pub queued: Option<Duration>,
    /// `pace-dbr-ms`: the paper's `D_br`, processing time plus the queueing that the broker permits itself.
    pub permitted: Option<Duration>,
    /// `pace-stretch`: multiply your interval by this.
    pub stretch: Option<f64>,
    /// `pace-interval-ms`: the interval that the broker would like between two requests of this client.
    pub interval: Option<Duration>,
    /// `pace-retry-after-ms`: come back in; a promise if there is a ticket, else advice.
    pub retry_after: Option<Duration>,
    /// `pace-ticket`: shows, when the client comes back, that its place is already paid for.
    pub ticket: Option<Ticket>,
    /// `pace-spread-ms`: fetch after a random time up to this.
    pub spread: Option<Duration>,
    /// `pace-delegate`: whether this subscription is pushed, or its client checks every `interval`.
    pub delegate: Option<Delegate>,
}

/// Who brings the changes of a subscription to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delegate {
    /// The client fetches them: the broker pushes nothing until it says otherwise.
    Check,
    /// The broker brings them, as it usually does.
    Push,
}

impl Delegate {
    /// The word on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Push => "push",
        }
    }
}

/// What a client tells the broker with a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asks {
    /// `pace-deadline-ms`: how long the client will wait for the answer.
    pub deadline: Option<Duration>,
    /// `pace-want-ms`: the interval at which the client would like to ask.
    pub want: Option<Duration>,
    /// `pace-version`: the last version seen; an equal one is answered "not modified".
    pub version: Option<u64>,
    /// `pace-ticket`: the appointment that is now kept.
    pub ticket: Option<Ticket>,
    /// `pace-accept: ticket`: the client keeps appointments. Who does not say so is never sent away to a kept place.
    pub accept: Option<Accept>,
    /// `pace-client`: what the client calls itself, where several come from one address. Believed for nothing but its share
    /// among these.
    pub client: Option<Box<str>>,
    /// `pace-class`: the class as which it would like to be served.
    pub class: Option<Box<str>>,
    /// `pace-delegate: accept`: the client checks by itself while the broker asks it to. Who does not say so is always
    /// pushed to.
    pub delegate: bool,
}

/// What a client understands beyond waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// It comes back when its ticket says.
    Ticket,
}

/// What became of a pair of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintRead {
    /// It was a hint, and it was taken.
    Taken,
    /// It was not one of ours.
    Unknown,
    /// The name was ours, the text was not; nothing was taken.
    Malformed,
}

impl Hints {
    /// Takes one pair of texts.
    pub fn read(&mut self, name: &str, text: &str) -> HintRead {
        match name {
            "pace-queued-ms" => take(&mut self.queued, millis(text)),
            "pace-dbr-ms" => take(&mut self.permitted, millis(text)),
            "pace-stretch" => take(&mut self.stretch, whole(text).map(|thousandths| thousandths as f64 / 1000.0)),
            "pace-interval-ms" => take(&mut self.interval, millis(text)),
            "pace-retry-after-ms" => take(&mut self.retry_after, millis(text)),
            "pace-ticket" => take(&mut self.ticket, text.parse().ok()),
            "pace-spread-ms" => take(&mut self.spread, millis(text)),
            "pace-delegate" => {
                let words = [Delegate::Check, Delegate::Push];
                take(&mut self.delegate, words.into_iter().find(|delegate| delegate.word() == text))
            }
            _ => HintRead::Unknown,
        }
    }

    /// Gives the pairs of texts, in a fixed order.
    pub fn write(&self, mut pair: impl FnMut(&'static str, String)) {
        // Rounded up, and never below one: a stretch of less is no advice.
        let thousandths = self.stretch.map(|stretch| (libm::ceil(stretch.max(1.0) * 1000.0) as u64).to_string());
        for (name, text) in [
            ("pace-queued-ms", self.queued.map(text_of)),
            ("pace-dbr-ms", self.permitted.map(text_of)),
            ("pace-stretch", thousandths),
            ("pace-interval-ms", self.interval.map(text_of)),
            ("pace-retry-after-ms", self.retry_after.map(text_of)),
            ("pace-ticket", self.ticket.map(|ticket| ticket.to_string())),
            ("pace-spread-ms", self.spread.map(text_of)),
            ("pace-delegate", self.delegate.map(|delegate| delegate.word().to_string())),
        ] {
            if let Some(text) = text {
                pair(name, text);
            }
        }
    }
}

impl Asks {
    /// The names of all pairs, for whoever has to look for them.
    pub const NAMES: [&str; 8] = [
        "pace-deadline-ms",
        "pace-want-ms",
        "pace-version",
        "pace-ticket",
        "pace-accept",
        "pace-client",
        "pace-class",
        "pace-delegate",
    ];

    /// Takes one pair of texts.
    pub fn read(&mut self, name: &str, text: &str) -> HintRead {
        match name {
            "pace-deadline-ms" => take(&mut self.deadline, millis(text)),
            "pace-want-ms" => take(&mut self.want, millis(text)),
            "pace-version" => take(&mut self.version, whole(text)),
            "pace-ticket" => take(&mut self.ticket, text.parse().ok()),
            "pace-accept" => take(&mut self.accept, (text == "ticket").then_some(Accept::Ticket)),
            "pace-client" => take(&mut self.client, name_of(text)),
            "pace-class" => take(&mut self.class, name_of(text)),
            "pace-delegate" if text == "accept" => {
                self.delegate = true;
                HintRead::Taken
            }
            "pace-delegate" => HintRead::Malformed,
            _ => HintRead::Unknown,
        }
    }

    /// Gives the pairs of texts, in a fixed order.
    pub fn write(&self, mut pair: impl FnMut(&'static str, String)) {
        for (name, text) in [
            ("pace-deadline-ms", self.deadline.map(text_of)),
            ("pace-want-ms", self.want.map(text_of)),
            ("pace-version", self.version.map(|version| version.to_string())),
            ("pace-ticket", self.ticket.map(|ticket| ticket.to_string())),
            ("pace-accept", self.accept.map(|Accept::Ticket| "ticket".to_string())),
            ("pace-client", self.client.as_deref().map(ToString::to_string)),
            ("pace-class", self.class.as_deref().map(ToString::to_string)),
            ("pace-delegate", self.delegate.then(|| "accept".to_string())),
        ] {
            if let Some(text) = text {
                pair(name, text);
            }
        }
    }
}

fn take<T>(field: &mut Option<T>, value: Option<T>) -> HintRead {
    if value.is_none() {
        return HintRead::Malformed;
    }
    *field = value;
    HintRead::Taken
}

/// The longest name of a client or a class: as many bytes as a UUID with room for what stands around it.
pub const NAME_BYTES_MAX: usize = 128;

/// A name: visible ASCII, so that it goes through every protocol as it is.
fn name_of(text: &str) -> Option<Box<str>> {
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then(|| text.into())
}

/// Decimal digits only: `u64::from_str` would also take a plus sign.
fn whole(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn millis(text: &str) -> Option<Duration> {
    whole(text).map(Duration::from_millis)
}

/// Rounded up: "come back in 0" for a wait of half a millisecond would be a lie.
fn text_of(duration: Duration) -> String {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read() {
        let hints = Hints {
            queued: Some(Duration::from_millis(12)),
            permitted: Some(Duration::ZERO),
            stretch: Some(2.5),
            interval: Some(Duration::from_secs(30)),
            retry_after: Some(Duration::from_millis(u64::MAX)),
            ticket: Some(Ticket { slot: Timestamp::from_nanos(77), mac: u64::MAX }),
            spread: Some(Duration::from_millis(1)),
            delegate: Some(Delegate::Check),
        };
        let mut again = Hints::default();
        hints.write(|name, text| assert_eq!(again.read(name, &text), HintRead::Taken, "{name}={text}"));
        assert_eq!(again, hints);

        let asks = Asks {
            deadline: Some(Duration::from_secs(2)),
            want: Some(Duration::from_secs(10)),
            version: Some(u64::MAX),
            ticket: hints.ticket,
            accept: Some(Accept::Ticket),
            client: Some("lamp-1".into()),
            class: Some("service".into()),
            delegate: true,
        };
        let mut names = Vec::new();
        asks.write(|name, _| names.push(name));
        assert_eq!(names, Asks::NAMES);
        let mut again = Asks::default();
        asks.write(|name, text| assert_eq!(again.read(name, &text), HintRead::Taken, "{name}={text}"));
        assert_eq!(again, asks);
    }

    #[test]
    fn nonsense_is_named_and_changes_nothing() {
        let mut hints = Hints::default();
        for text in ["", "NaN", "inf", "-1", "+1", "1.5", "1e3", " 1", "18446744073709551616", "１"] {
            assert_eq!(hints.read("pace-queued-ms", text), HintRead::Malformed, "{text:?}");
            assert_eq!(hints.read("pace-stretch", text), HintRead::Malformed, "{text:?}");
            assert_eq!(hints.read("pace-ticket", text), HintRead::Malformed, "{text:?}");
            assert_eq!(Asks::default().read("pace-accept", text), HintRead::Malformed, "{text:?}");
            assert_eq!(Asks::default().read("pace-delegate", text), HintRead::Malformed, "{text:?}");
            assert_eq!(hints.read("pace-delegate", text), HintRead::Malformed, "{text:?}");
        }
        for text in ["", "a b", "\u{e9}", "a\nb", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(Asks::default().read("pace-client", text), HintRead::Malformed, "{text:?}");
            assert_eq!(Asks::default().read("pace-class", text), HintRead::Malformed, "{text:?}");
        }
        assert_eq!(hints.read("Pace-Stretch", "1000"), HintRead::Unknown);
        assert_eq!(hints, Hints::default());
    }

    #[test]
    fn a_time_is_never_rounded_down_to_now() {
        let hints = Hints { retry_after: Some(Duration::from_micros(1)), ..Hints::default() };
        let mut texts = Vec::new();
        hints.write(|_, text| texts.push(text));
        assert_eq!(texts, ["1"]);
    }

    #[test]
    fn whatever_is_written_can_be_read() {
        for stretch in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0, 1.0, 1.0001, 1e6, f64::INFINITY] {
            let hints = Hints {
                stretch: Some(stretch),
                retry_after: Some(Duration::MAX),
                ticket: Some(Ticket { slot: Timestamp::MAX, mac: 0 }),
                ..Hints::default()
            };
            let mut again = Hints::default();
            hints.write(|name, text| assert_eq!(again.read(name, &text), HintRead::Taken, "{name}={text}"));
            assert!(
                again.stretch.is_some_and(|read| read >= 1.0 && read >= stretch.clamp(1.0, 1e15) || stretch.is_nan())
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(name in "(pace-[a-z-]{0,20}|.{0,20})", text in ".{0,40}") {
            Hints::default().read(&name, &text);
            Asks::default().read(&name, &text);
        }
    }
}
