//! What is simulated: publishers, their rhythm, how much the reader takes, and the settings of the broker that vary.

use tidegate_control::rhythm::RhythmRule;

/// Publishers before a broker. Times are in seconds, rates per second, shares in 0 ..= 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Publishers {
    /// Latencies and losses are measured from here on: ranks have to be learned first.
    pub warm_up: f64,
    /// The end.
    pub duration: f64,
    /// How many publish.
    pub count: u32,
    /// The time between two messages of one publisher.
    pub interval: Interval,
    /// The first messages come regularly, at the mean interval: so many.
    pub regular: u32,
    /// The rates of the publishers differ by this factor between the rarest and the busiest; 1 for equal ones.
    pub rate_range: f64,
    /// A publisher waits until its message was taken before it thinks of the next one (QoS 1 with a window of one), or it
    /// publishes at its own pace.
    pub closed_loop: bool,
    /// Bytes of a message on the uplink.
    pub message_bytes: u32,
    /// How a broken rhythm is recognised and slowed; none for no control.
    pub rule: Option<RhythmRule>,
    /// Whether the broker is taken to be under pressure always, or only when it is.
    pub enforce_always: bool,
    /// Who is served next.
    pub order: Order,
    /// Messages per second that the broker can serve; none for as many as come.
    pub capacity: Option<f64>,
    /// Demand as a multiple of the capacity; the mean interval follows from it. None leaves the intervals as they are.
    pub load: Option<f64>,
    /// Messages that may wait.
    pub queue_items: u32,
    /// Publishers that break their rhythm, by which factor, from when and for how long.
    pub attackers: u32,
    pub attack_factor: f64,
    /// When it begins.
    pub attack_from: f64,
    /// How long it lasts.
    pub attack_length: f64,
}

impl Publishers {
    /// Whether attackers attack at this time.
    pub fn is_attack(&self, now: f64) -> bool {
        (self.attack_from..self.attack_from + self.attack_length).contains(&now)
    }

    /// Whether an attack has just ended, and attackers should be heard again.
    pub(crate) fn is_after_attack(&self, now: f64) -> bool {
        let end = self.attack_from + self.attack_length;
        (end..end + AFTER_ATTACK).contains(&now)
    }

    /// A third of the measured time, as far as an attack leaves it: for a quick look. Short runs stay, their bytes are
    /// compared with those of the paper.
    pub(crate) fn shorten(&mut self) {
        if self.duration <= SHORT {
            return;
        }
        let attacked = if self.attackers > 0 { self.attack_from + self.attack_length + AFTER_ATTACK } else { 0.0 };
        self.duration = (self.warm_up + (self.duration - self.warm_up) / 3.0).max(attacked).min(self.duration);
    }
}

/// Runs of so many seconds are not made shorter.
const SHORT: f64 = 600.0;
/// How long after an attack it is watched whether the publisher is heard again, seconds.
const AFTER_ATTACK: f64 = 120.0;

/// The law of the time between two messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// Uniform between these.
    Uniform(f64, f64),
    /// A whole number of seconds, uniform between these.
    WholeSeconds(u32, u32),
    /// Exponential with this mean.
    Exponential(f64),
    /// A period, and its coefficient of variation (log-normal).
    Periodic(f64, f64),
}

impl Interval {
    /// The mean, in seconds.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Uniform(low, high) => f64::midpoint(low, high),
            Self::WholeSeconds(low, high) => f64::from(low + high) / 2.0,
            Self::Exponential(mean) | Self::Periodic(mean, _) => mean,
        }
    }
}

/// Who is served next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First come, first served; a full queue drops the newcomer.
    Fifo,
    /// Paper 003: the publisher with the lowest rate first; a full queue drops the newcomer.
    Strict,
    /// Deficit round robin by rank; a full queue drops the head of the longest.
    Drr,
}

impl Order {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 3] = [("fifo", Self::Fifo), ("strict", Self::Strict), ("drr", Self::Drr)];
}

impl Default for Publishers {
    fn default() -> Self {
        Self {
            warm_up: 0.0,
            duration: 600.0,
            count: 30,
            interval: Interval::Uniform(0.0, 20.0),
            regular: 4,
            rate_range: 1.0,
            closed_loop: true,
            message_bytes: 16,
            rule: None,
            enforce_always: true,
            order: Order::Fifo,
            capacity: None,
            load: None,
            queue_items: 2000,
            attackers: 0,
            attack_factor: 1.0,
            attack_from: 0.0,
            attack_length: 0.0,
        }
    }
}
