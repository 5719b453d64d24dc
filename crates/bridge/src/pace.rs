//! How much may be under way to the other broker, and how soon the next message may go: so that a backlog drains as fast as the
//! other side bears, and no faster.
//!
//! ```text
//! window   each round of acknowledgements (as many as the window): base = least mean latency of 32 in a row in 10 to 20 minutes,
//!          gradient = (base · 1.5 + ¼ ms) / mean latency of this round, between ¾ and 1;  window ← window · gradient + √window
//! refusal  0x97 and the like: window halves, once a round; nothing goes for as long as the other side says, else
//!          100 ms · 2ⁿ for the n-th in a row
//! rate     what the operator has set (GCRA), and the interval that a Tidegate asks for (pace-interval-ms)
//! outage   the next drain begins with four under way
//! ```
//! The gradient is Netflix' concurrency limit. Many answers and not the single one are compared because a broker that syncs its disk
//! answers in groups: the least of all answers is one that happened to come before a sync, and says nothing of how busy it is. (A
//! round of four was probably such a group: with the least of those a drain stayed at four under way for as long as it lasted, 2 500
//! messages a second. The cause is not proven, and the drain has not been measured again since.) With one and a half the queue that
//! the bridge adds at the other side is at most half of what that side takes when it is left alone; and a quarter of a millisecond,
//! which a process may wait for its processor, whoever it is. Latency alone closes the window to sixteen, where w = ¾ · w + √w: fewer
//! help nobody, and who is slower than usual for another reason would be waited for for ever. Refusals and advice close it further.
//!
//! Told: [`DrainPace::on_sent`], [`DrainPace::on_answer`], [`DrainPace::on_refused`], [`DrainPace::on_lost`]; asked:
//! [`DrainPace::verdict`]. Knows neither packets nor sockets.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;

use crate::limits::{PAUSE_MAX, RATE_BURST, REFUSAL_PAUSE, WINDOW_DEFAULT, WINDOW_FIRST};

/// How many times its undisturbed latency a round may take before the window shrinks.
const TOLERANCE: f64 = 1.5;
/// What it may take besides: processes wait for a processor.
const SLACK: Duration = Duration::from_micros(250);
/// By how much the window shrinks at most in a round because of latency.
const GRADIENT_MIN: f64 = 0.75;
/// Answers in a row whose mean says what the undisturbed latency is.
const BASE_ANSWERS: u32 = 32;
/// How long the least latency is remembered, at least.
const BASE_SPAN: Duration = Duration::from_secs(600);

/// What the operator says about the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceConfig {
    /// Messages under way at most.
    pub window_max: u16,
    /// Messages a second at most.
    pub rate_max: Option<u32>,
}

impl Default for PaceConfig {
    fn default() -> Self {
        Self { window_max: WINDOW_DEFAULT, rate_max: None }
    }
}

/// Whether the next message may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceVerdict {
    /// Now.
    Ready,
    /// Not before then.
    At(Timestamp),
    /// Not before an answer comes.
    Full,
}

/// The pace of one drain.
#[derive(Clone, Debug)]
pub struct DrainPace {
    config: PaceConfig,
    window: f64,
    round: AnswerRound,
    base: BaseLatency,
    /// Answers and their latencies since the last mean that was held against the base.
    sample: (u32, Duration),
    /// The mean of the last round.
    latency: Option<Duration>,
    /// Nothing goes before: a refusal.
    pause_until: Timestamp,
    /// When the next is due by the rate.
    due: Timestamp,
    /// The interval that the other side asks for.
    asked: Option<Duration>,
    /// Refusals in a row.
    refusals: u8,
    /// The window was halved in this round.
    has_halved: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct AnswerRound {
    answers: u32,
    latencies: Duration,
    stretch: f64,
}

/// The least mean latency of some answers in a row: of the span that is being filled, and of the one before.
#[derive(Clone, Copy, Debug, Default)]
struct BaseLatency {
    filling: Option<Duration>,
    full: Option<Duration>,
    since: Timestamp,
}

impl BaseLatency {
    fn note(&mut self, latency: Duration, now: Timestamp) {
        if self.filling.is_some() && now.since(self.since) >= BASE_SPAN {
            *self = Self { filling: None, full: self.filling, since: now };
        } else if self.filling.is_none() {
            self.since = now;
        }
        self.filling = Some(self.filling.map_or(latency, |least| least.min(latency)));
    }

    fn value(&self) -> Option<Duration> {
        self.filling.into_iter().chain(self.full).min()
    }
}

impl DrainPace {
    /// The pace of a bridge that has not sent anything.
    pub fn new(config: PaceConfig) -> Self {
        Self {
            config,
            window: WINDOW_FIRST.min(f64::from(config.window_max)),
            round: AnswerRound::default(),
            base: BaseLatency::default(),
            sample: (0, Duration::ZERO),
            latency: None,
            pause_until: Timestamp::ZERO,
            due: Timestamp::ZERO,
            asked: None,
            refusals: 0,
            has_halved: false,
        }
    }

    /// Whether a message may go while so many are under way; `receive_max` is what the other side takes.
    pub fn verdict(&self, under_way: usize, receive_max: u16, now: Timestamp) -> PaceVerdict {
        if under_way >= self.window().min(receive_max.max(1)).into() {
            return PaceVerdict::Full;
        }
        self.verdict_without_window(now)
    }

    /// The same for a message that nobody acknowledges.
    pub fn verdict_without_window(&self, now: Timestamp) -> PaceVerdict {
        let at = self.pause_until.max(self.due);
        if at > now { PaceVerdict::At(at) } else { PaceVerdict::Ready }
    }

    /// Messages that may be under way.
    pub fn window(&self) -> u16 {
        (self.window as u16).clamp(1, self.config.window_max.max(1))
    }

    /// The mean latency of the last round, and the undisturbed one.
    pub fn latencies(&self) -> (Option<Duration>, Option<Duration>) {
        (self.latency, self.base.value())
    }

    /// Until when nothing goes because the other side refused; none if that is over.
    pub fn paused_until(&self, now: Timestamp) -> Option<Timestamp> {
        Some(self.pause_until).filter(|until| *until > now)
    }

    /// A message was sent.
    pub fn on_sent(&mut self, now: Timestamp) {
        let by_rate = self.config.rate_max.map(|rate| Duration::from_secs(1) / rate.max(1));
        let Some(interval) = by_rate.max(self.asked) else { return };
        // What was not used for a moment may go at once; nobody saves up for longer.
        let earliest = Timestamp::from_nanos(now.as_nanos().saturating_sub(RATE_BURST.as_nanos() as u64));
        self.due = self.due.max(earliest) + interval;
    }

    /// A message was acknowledged after this time.
    pub fn on_answer(&mut self, latency: Duration, hints: &Hints, now: Timestamp) {
        self.refusals = 0;
        self.asked = hints.interval.map(|interval| interval.min(PAUSE_MAX));
        self.round.answers += 1;
        self.round.latencies += latency;
        self.round.stretch = self.round.stretch.max(hints.stretch.unwrap_or(1.0));
        self.sample = (self.sample.0 + 1, self.sample.1 + latency);
        if self.sample.0 >= BASE_ANSWERS {
            let (answers, latencies) = core::mem::take(&mut self.sample);
            self.base.note(latencies / answers, now);
        }
        if self.round.answers >= u32::from(self.window()) {
            self.end_round();
        }
    }

    fn end_round(&mut self) {
        let AnswerRound { answers, latencies, stretch } = core::mem::take(&mut self.round);
        let latency = latencies / answers.max(1);
        self.latency = Some(latency);
        let bearable = self.base.value().unwrap_or(latency).as_secs_f64() * TOLERANCE + SLACK.as_secs_f64();
        let gradient = (bearable / latency.as_secs_f64().max(1e-9)).clamp(GRADIENT_MIN, 1.0);
        // Advice of the other side counts as what was measured does, and no more.
        let gradient = gradient.min((1.0 / stretch.max(1.0)).max(0.5));
        if !core::mem::take(&mut self.has_halved) {
            self.window = self.window * gradient + self.window.sqrt();
        }
        self.window = self.window.clamp(1.0, f64::from(self.config.window_max.max(1)));
    }

    /// The other side does not take a message now.
    pub fn on_refused(&mut self, hints: &Hints, now: Timestamp) {
        let usual = REFUSAL_PAUSE.saturating_mul(1 << self.refusals.min(16));
        let pause = hints.retry_after.unwrap_or(usual).clamp(Duration::from_millis(1), PAUSE_MAX);
        self.pause_until = self.pause_until.max(now + pause);
        if !self.has_halved {
            self.has_halved = true;
            self.refusals = self.refusals.saturating_add(1);
            self.window = (self.window / 2.0).max(1.0);
            (self.round, self.sample) = (AnswerRound::default(), (0, Duration::ZERO));
        }
    }

    /// The connection is gone. What was learned about the latency of the other side holds, if it comes back.
    pub fn on_lost(&mut self) {
        self.window = WINDOW_FIRST.min(f64::from(self.config.window_max));
        (self.round, self.sample) = (AnswerRound::default(), (0, Duration::ZERO));
        (self.asked, self.has_halved) = (None, false);
        (self.refusals, self.pause_until) = (0, Timestamp::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * MS)
    }

    /// A broker that takes `service` for each message, one after the other, beside 2 ms on the way. The answer is the window and the
    /// latency at the end, in ms.
    fn drain(pace: &mut DrainPace, service: f64, messages: u32, receive_max: u16) -> (u16, f64) {
        let (mut now, mut free_at, mut under_way, mut latency) =
            (0.0_f64, 0.0_f64, std::collections::VecDeque::new(), 0.0);
        let (mut sent, mut done) = (0, 0);
        while done < messages {
            let stamp = Timestamp::from_nanos((now * 1e6) as u64);
            let verdict = pace.verdict(under_way.len(), receive_max, stamp);
            if sent < messages && verdict == PaceVerdict::Ready {
                free_at = free_at.max(now + 1.0) + service;
                under_way.push_back((now, free_at + 1.0));
                pace.on_sent(stamp);
                (sent, now) = (sent + 1, now + 0.001);
                assert!(under_way.len() <= usize::from(receive_max).min(pace.window().into()));
            } else if let Some((began, ends)) = under_way.pop_front() {
                now = now.max(ends);
                latency = now - began;
                let took = Duration::from_nanos((latency * 1e6) as u64);
                pace.on_answer(took, &Hints::default(), Timestamp::from_nanos((now * 1e6) as u64));
                done += 1;
            } else if let PaceVerdict::At(then) = verdict {
                now = then.as_nanos() as f64 / 1e6;
            }
        }
        (pace.window(), latency)
    }

    #[test]
    fn a_slow_broker_gets_a_short_queue_and_a_fast_one_the_whole_window() {
        let mut pace = DrainPace::new(PaceConfig::default());
        // Ten messages a millisecond: the pipe holds 21 of them.
        let (window, latency) = drain(&mut pace, 0.1, 20_000, u16::MAX);
        assert!((15..60).contains(&window), "{window}");
        assert!(latency < 6.0, "the queue that the bridge makes: {latency} ms");
        let mut pace = DrainPace::new(PaceConfig::default());
        let (window, _) = drain(&mut pace, 0.001, 20_000, u16::MAX);
        assert_eq!(window, WINDOW_DEFAULT);
        let (_, latency) = drain(&mut DrainPace::new(PaceConfig::default()), 0.1, 5000, 3);
        assert!(latency < 2.5, "the other side's Receive Maximum is kept: {latency}");
    }

    /// A broker that syncs its disk every 5 ms, and answers everything that came before: now and then a few messages come just
    /// before a sync.
    #[test]
    fn a_drain_does_not_stay_at_its_beginning_because_of_a_few_quick_answers() {
        let mut pace = DrainPace::new(PaceConfig::default());
        let (mut now, mut sent) = (4.9_f64, 0);
        while sent < 20_000 {
            let window = pace.window();
            let sync = (now / 5.0).floor().mul_add(5.0, 5.0);
            for _ in 0..window {
                pace.on_sent(Timestamp::from_nanos((now * 1e6) as u64));
            }
            let took = Duration::from_nanos(((sync - now) * 1e6) as u64);
            for _ in 0..window {
                pace.on_answer(took, &Hints::default(), Timestamp::from_nanos((sync * 1e6) as u64));
            }
            sent += u32::from(window);
            now = sync + 0.05;
        }
        assert!(pace.window() > 128, "{} under way", pace.window());
    }

    #[test]
    fn a_refusal_is_a_pause_and_half_of_the_window_once_a_round() {
        let mut pace = DrainPace::new(PaceConfig::default());
        drain(&mut pace, 0.001, 20_000, u16::MAX);
        let told = Hints { retry_after: Some(Duration::from_millis(700)), ..Hints::default() };
        for _ in 0..5 {
            pace.on_refused(&told, at(10_000));
        }
        assert_eq!(pace.window(), WINDOW_DEFAULT / 2);
        assert_eq!(pace.verdict(0, 100, at(10_000)), PaceVerdict::At(at(10_700)));
        assert_eq!(pace.verdict(0, 100, at(10_700)), PaceVerdict::Ready);
        let absurd = Hints { retry_after: Some(Duration::MAX), ..Hints::default() };
        pace.on_refused(&absurd, at(20_000));
        assert_eq!(pace.paused_until(at(20_000)), Some(at(20_000) + PAUSE_MAX));
        pace.on_lost();
        assert_eq!((pace.window(), pace.paused_until(at(20_000))), (4, None), "after an outage it begins slowly");
    }

    #[test]
    fn refusals_without_advice_wait_longer_each_time() {
        let mut pace = DrainPace::new(PaceConfig::default());
        let mut now = at(0);
        for pause in [100, 200, 400] {
            pace.on_refused(&Hints::default(), now);
            assert_eq!(pace.paused_until(now), Some(now + Duration::from_millis(pause)));
            now = now + Duration::from_millis(pause);
            pace.has_halved = false;
        }
        pace.on_answer(Duration::from_millis(1), &Hints::default(), now);
        pace.on_refused(&Hints::default(), now);
        assert_eq!(pace.paused_until(now), Some(now + Duration::from_millis(100)));
    }

    #[test]
    fn the_rate_is_kept_to_a_burst_of_a_tenth_of_a_second() {
        let mut pace = DrainPace::new(PaceConfig { rate_max: Some(100), ..PaceConfig::default() });
        let mut sent = 0_u32;
        for ms in 5000..7000 {
            while pace.verdict(0, u16::MAX, at(ms)) == PaceVerdict::Ready {
                pace.on_sent(at(ms));
                sent += 1;
            }
        }
        assert!((200..=212).contains(&sent), "{sent} in two seconds at 100/s");
    }

    #[test]
    fn a_tidegate_that_asks_for_an_interval_gets_it() {
        let mut pace = DrainPace::new(PaceConfig::default());
        let asks = Hints { interval: Some(Duration::from_millis(500)), ..Hints::default() };
        pace.on_answer(Duration::from_millis(1), &asks, at(1000));
        pace.on_sent(at(1000));
        assert_eq!(pace.verdict(0, 10, at(1001)), PaceVerdict::At(at(1400)));
        pace.on_answer(Duration::from_millis(1), &Hints::default(), at(1500));
        pace.on_sent(at(2000));
        assert_eq!(pace.verdict(0, 10, at(2000)), PaceVerdict::Ready, "and no longer than it asks");
    }

    proptest! {
        #[test]
        fn nothing_that_the_other_side_says_breaks_the_bounds(
            window_max in 1_u16..1024,
            steps in proptest::collection::vec((0_u8..4, 0_u64..u64::MAX / 4, any::<u64>(), proptest::num::f64::ANY), 1..200),
        ) {
            let mut pace = DrainPace::new(PaceConfig { window_max, rate_max: None });
            let mut now = Timestamp::ZERO;
            for (what, time, millis, stretch) in steps {
                now = now + Duration::from_nanos(time >> 20);
                let hint = Duration::from_millis(millis);
                let hints = Hints { retry_after: Some(hint), interval: Some(hint), stretch: Some(stretch), ..Hints::default() };
                match what {
                    0 => pace.on_answer(Duration::from_nanos(time), &hints, now),
                    1 => pace.on_refused(&hints, now),
                    2 => pace.on_sent(now),
                    _ => pace.on_lost(),
                }
                prop_assert!((1..=window_max).contains(&pace.window()));
                if let PaceVerdict::At(then) = pace.verdict(0, 1, now) {
                    prop_assert!(then.since(now) <= PAUSE_MAX * 201);
                }
            }
        }
    }
}
