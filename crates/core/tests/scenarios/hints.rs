//! Every hint is computed from what is allowed or served, and whoever obeys it from any backlog is through with that in a
//! time that can be computed before; MQTT 3.1.1 without an ear for hints is left alone and gets the same.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::Whom;
use tidegate_core::settings::Rate;
use tidegate_wire_mqtt::{Decoded, Limits, Packet, Sender, Version, decode};

use crate::backoff::{SECOND, v311};
use crate::claims::messages;
use crate::net::{Net, Options, Wire};

/// What a client hears: whether something was refused, and the words that came with it.
#[derive(Default)]
struct Heard {
    taken: u32,
    refused: u32,
    interval: Option<Duration>,
    retry_after: Option<Duration>,
}

fn hear(net: &mut Net, wire: Wire, version: Version) -> Heard {
    let (bytes, mut at, mut heard) = (net.raw(wire), 0, Heard::default());
    while let Ok(Decoded::Packet { packet, consumed }) =
        decode(&bytes[at..], version, &Limits::default().with_sender(Sender::Server))
    {
        at += consumed;
        match packet {
            Packet::Ack(ack) => {
                heard.taken += u32::from(!ack.reason.is_failure());
                heard.refused += u32::from(ack.reason.is_failure());
                ack.properties.user_properties().for_each(|(name, text)| heard.note(name, text));
            }
            // {"reason":"...","pace-interval-ms":16}
            Packet::Publish(notice) => {
                let text = String::from_utf8_lossy(notice.payload).replace(['{', '}', '"'], "");
                text.split(',').filter_map(|pair| pair.split_once(':')).for_each(|(name, text)| heard.note(name, text));
            }
            _ => {}
        }
    }
    heard
}

impl Heard {
    fn note(&mut self, name: &str, text: &str) {
        let millis = || Some(Duration::from_millis(text.parse().unwrap()));
        match name {
            "pace-interval-ms" => self.interval = millis(),
            "pace-retry-after-ms" => self.retry_after = millis(),
            _ => {}
        }
    }
}

/// Seconds until a backlog is through that is served so many messages a second; an obedient client sends at the interval
/// that it heard last, and four times as fast as it is served as long as it has heard none.
fn unread_for(version: Version, qos: u8, served: u16, backlog: u32, obeys: bool) -> u32 {
    let options = if version == Version::V5 { Options::default() } else { v311() };
    let mut net = Net::new(1);
    let sender = net.connect("sender", &options);
    net.subscribe(sender, "$SYS/broker/pace/sender", 0);
    let (mut left, mut waiting, mut interval, mut due) = (backlog, 0_u32, None, 0.0);
    let (mut seconds, mut unread) = (0, Duration::ZERO);
    while left + waiting > 0 {
        due += interval.map_or(4.0 * f64::from(served), |interval: Duration| 1.0 / interval.as_secs_f64());
        let sent = (due as u32).min(left);
        due -= f64::from(due as u32);
        (left, waiting) = (left - sent, waiting + sent);
        let taken = waiting.min(served.into());
        waiting -= taken;
        unread = if waiting > 0 { unread + SECOND } else { Duration::ZERO };
        net.offer_portion(sender, &messages(version, taken as u16, qos, 1, b"x"), unread, u32::MAX);
        net.live(SECOND);
        let heard = hear(&mut net, sender, version);
        assert_eq!(heard.refused, 0);
        if let Some(told) = heard.interval.filter(|_| obeys) {
            let most = 1.25 / told.as_secs_f64().max(1e-3);
            assert!(most >= f64::from(served), "{told:?} is less than {served} a second");
            interval = Some(told);
        }
        seconds += 1;
        assert!(seconds < 100_000, "it never ends");
    }
    seconds
}

/// Seconds until a backlog is through that an operator's limit is in the way of, and what was refused or dropped.
fn limited_for(version: Version, qos: u8, rate: u32, backlog: u32) -> (f64, f64, u64) {
    let options = if version == Version::V5 { Options::default() } else { v311() };
    let mut net = Net::new(1);
    let sender = net.connect("sender", &options);
    net.subscribe(sender, "$SYS/broker/pace/sender", 0);
    net.shards[0].set_limit(&Whom::Client("sender".into()), Some(Rate::new(rate, SECOND, rate)), net.now).unwrap();
    let (start, passed) = (net.now, |net: &Net| net.stats().publish_passed as u32);
    let (mut left, mut interval, mut retry, mut packet_id) = (backlog, Duration::ZERO, Duration::ZERO, 0);
    let mut next_at = net.now;
    while passed(&net) < backlog {
        if next_at <= net.now && left > 0 {
            left -= 1;
            packet_id = packet_id % 60_000 + 1;
            net.publish(sender, "t", "x", qos, false, packet_id);
            next_at = net.now + interval;
        }
        let heard = hear(&mut net, sender, version);
        left += heard.refused;
        interval = heard.interval.unwrap_or(interval);
        if let Some(told) = heard.retry_after {
            retry = retry.max(told);
            next_at = net.now + told;
        }
        if next_at > net.now || left == 0 {
            net.live(Duration::from_millis(1).max(next_at.since(net.now)).min(SECOND));
        }
        assert!(net.now.since(start) < Duration::from_secs(100_000), "it never ends");
    }
    let stats = net.stats();
    let lost = stats.dropped_rhythm + stats.dropped_held_full;
    (net.now.since(start).as_secs_f64(), retry.as_secs_f64(), lost)
}

#[test]
fn in_the_first_second_nothing_is_known_and_nothing_is_said() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    net.offer_portion(sender, &messages(Version::V5, 500, 1, 1, b"x"), 2 * SECOND, u32::MAX);
    assert!(hear(&mut net, sender, Version::V5).interval.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// By default: as soon as the loop lets it through, and a second or two for finding out.
    #[test]
    fn who_obeys_a_pace_is_through_as_soon_as_it_is_served(
        served in 1_u16..700, rounds in 1_u32..40, part in 0.0..1.0_f64,
        (version, qos) in prop::sample::select(vec![(Version::V5, 1), (Version::V5, 0), (Version::V311, 0), (Version::V311, 1)]),
    ) {
        let backlog = 1 + (f64::from(served) * f64::from(rounds) * part) as u32;
        let computed = backlog.div_ceil(served.into());
        let obeying = unread_for(version, qos, served, backlog, true);
        prop_assert!(obeying <= computed + 2, "{obeying} s for {backlog} at {served}/s");
        prop_assert!(unread_for(version, qos, served, backlog, false) >= computed, "nobody is faster");
    }

    /// Under a limit: a message every interval, and the time that it was told to wait at first.
    #[test]
    fn who_obeys_a_limit_is_through_in_the_time_of_the_limit(
        rate in 1_u32..60, backlog in 1_u32..600,
        (version, qos) in prop::sample::select(vec![(Version::V5, 1), (Version::V5, 0), (Version::V311, 0), (Version::V311, 1)]),
    ) {
        let (took, retry, lost) = limited_for(version, qos, rate, backlog);
        let computed = f64::from(backlog) / f64::from(rate) + retry + 1.0;
        prop_assert!(took <= computed, "{version:?} QoS {qos}: {took} s for {backlog} at {rate}/s, {computed} computed");
        prop_assert!(lost == 0, "{lost} of {backlog} at {rate}/s");
        prop_assert!(took + 1.0 >= f64::from(backlog.saturating_sub(rate)) / f64::from(rate), "the limit is one");
    }
}
