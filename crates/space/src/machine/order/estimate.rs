//! What a request will cost, learned from requests like it.
//!
//! ```text
//! the very same request was served before        its own mean
//! some of the shape take long, or this asker's   the mean of this asker's, once four are known
//!   take a quarter, or four times, of the others'
//! one of the same shape and size was             the mean of the shape (constants do not count, sizes count by octaves)
//! one of the same shape and a smaller size was   that, in proportion to the size
//! else                                           the mean of the class, to which one sample adds at most a quarter
//! a place in the book                            the mean over 256, less one part in 2√n while there are only n; or that of
//!                                                eight, if it is less than half
//! ```
//! Who is estimated to wait is told by what is known of the last few, because a host that slows is to be seen at once. A place
//! is as long as the request will take on a usual day: it may be far off, a place too early costs one request more, and one
//! too late an idle server.
//!
//! A class mean alone lets one bulk load of a second make every small change look dear: 76 to 97 % of plain writers were
//! refused after one load of 14 MB. What was cancelled is learned, too: it takes at least as long as it ran.
//!
//! What a shape takes may depend on its constants, and these on who asks. Twelve clients that asked for all of a building what
//! four asked for a room, of equal shape, were once taken for short by the mean of both, and had all servers, the one that is
//! kept for what is short, too: point queries of others waited for 4.6 s, 3.3 s without any order. So a shape of which some took
//! long of late is not *safe*, and who asks is asked for: what it asked for before others came, too, because a client that is
//! learned anew only when its requests are few among many waits behind these until it is known.
//!
//! Of a shape of which one in ten takes long the mean is that of none of them. What most of them take is the geometric mean,
//! and by that it is decided whether a request is begun as a short one; if it is not, it yields (`yielding`).
//!
//! Knows neither clocks nor requests, only names and times. All tables are bounded, and forget what was not used of late.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_control::admission::{Class, PoolConfig};

/// What is known of a request before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Its own name, a hash; 0 if the request has none.
    pub exact: u64,
    /// The name of all that differ from the request in constants only, a hash; 0 if it has none.
    pub kind: u64,
    /// Units of data that the request brings; 0 for a question.
    pub size: u32,
    /// The name of those of this kind that the same client asks; 0 if it is not known who asks. The queue sets it.
    pub own: u64,
}

/// An estimate, and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Nanoseconds of work.
    pub(crate) nanos: u64,
    /// What most of them take.
    pub(crate) most: u64,
    /// Learned from such requests, not assumed from the class.
    pub(crate) is_known: bool,
    /// And none of these took long of late: it may have the last free server.
    pub(crate) is_safe: bool,
    /// Nanoseconds that a place for it is long.
    pub(crate) place: u64,
    /// The same without any doubt: for whoever had a place already.
    pub(crate) usual: u64,
}

impl Estimate {
    fn of(mean: Mean) -> Self {
        let is_safe = !mean.is_mixed() && mean.nanos < LONG_NANOS;
        let (nanos, most, usual) = (mean.nanos, mean.most(), mean.usual);
        Self { nanos, most, is_known: true, is_safe, place: mean.place(), usual }
    }

    /// Whether it takes so long that a person notices, as far as is known.
    pub(crate) fn is_long(&self) -> bool {
        self.most >= LONG_NANOS
    }
}

/// Means by name.
#[derive(Debug)]
pub(crate) struct Estimates {
    exact: Table,
    own: Table,
    /// The same of those that were not worth telling apart when they asked.
    alike: Table,
    shapes: Table,
    classes: [u64; Class::COUNT],
}

impl Estimates {
    pub(crate) fn new(config: &PoolConfig) -> Self {
        let classes = config.classes.map(|class| nanos(class.cost_initial));
        let [exact, own, alike, shapes] = [const { Table::new() }; 4];
        Self { exact, own, alike, shapes, classes }
    }

    pub(crate) fn of(&self, class: Class, shape: Shape) -> Estimate {
        if let Some(mean) = self.exact.known(shape.exact) {
            return Estimate::of(mean);
        }
        if let Some(mean) = self.shapes.known(shape.name(shape.octave())) {
            let own = self.own.known(shape.own_name()).or_else(|| self.alike.known(shape.own_name()));
            return Estimate::of(own.filter(|own| own.is_other_than(mean)).unwrap_or(mean));
        }
        let smaller = (0..shape.octave()).rev().find_map(|octave| {
            let mean = self.shapes.known(shape.name(octave))?;
            Some(mean.nanos.saturating_mul(1 << (shape.octave() - octave).min(32)))
        });
        let nanos = smaller.unwrap_or(self.classes[class.index()]).min(NANOS_MAX);
        Estimate { nanos, most: nanos, is_known: smaller.is_some(), is_safe: false, place: nanos, usual: nanos }
    }

    /// Mean of a class: what a stranger is taken to cost.
    pub(crate) fn class(&self, class: Class) -> Duration {
        Duration::from_nanos(self.classes[class.index()])
    }

    /// A request was done in this time.
    pub(crate) fn on_served(&mut self, class: Class, shape: Shape, elapsed: Duration) {
        let sample = nanos(elapsed).clamp(NANOS_MIN, NANOS_MAX);
        let mean = |known: Option<Mean>| {
            let Some(Mean { nanos, usual, log, peak, samples }) = known else { return Some(Mean::of(sample)) };
            let samples = (samples + 1).min(USUAL_SAMPLES);
            let bounded = |mean: u64| sample.min(mean.saturating_mul(SAMPLE_TIMES_MAX));
            let nanos = blend(nanos, bounded(nanos), samples.min(SAMPLES_MAX));
            let peak = sample.max(peak - peak / PEAK_SAMPLES);
            let log = log + ((sample as f64).ln() - log) / samples.min(SAMPLES_MAX) as f64;
            Some(Mean { nanos, usual: blend(usual, bounded(usual), samples), log, peak, samples })
        };
        self.exact.learn(shape.exact, mean);
        self.learn_own(shape, sample, mean);
        self.shapes.learn(shape.name(shape.octave()), mean);
        let mean = &mut self.classes[class.index()];
        *mean = blend(*mean, sample.min(mean.saturating_mul(SAMPLE_TIMES_MAX)), 16).max(NANOS_MIN);
    }

    /// Whether it is worth remembering what this asker's take: only if that is, or once was, far from what others' take, or if
    /// these differ.
    fn is_told_apart(&self, shape: Shape, sample: u64) -> bool {
        let of_others = self.shapes.known(shape.name(shape.octave()));
        let is_other = |mean: Mean| mean.is_mixed() || is_far(sample, mean.nanos);
        self.own.known(shape.own_name()).is_some() || of_others.is_some_and(is_other)
    }

    /// A request was given up after this time: it would have taken longer. That makes it known only if it was long: else
    /// whoever sends something dear and leaves at once would have it taken for short. The class learns nothing: a stranger
    /// is not to blame for it.
    pub(crate) fn on_cancelled(&mut self, shape: Shape, elapsed: Duration) {
        let sample = nanos(elapsed).clamp(NANOS_MIN, NANOS_MAX);
        let longer = |known: Option<Mean>| match known {
            None => (sample >= LONG_NANOS).then_some(Mean::of(sample)),
            Some(mean) => Some(Mean { nanos: mean.nanos.max(sample), peak: mean.peak.max(sample), ..mean }),
        };
        self.exact.learn(shape.exact, longer);
        self.learn_own(shape, sample, longer);
        self.shapes.learn(shape.name(shape.octave()), longer);
    }

    /// A request was stopped after this time, because it kept others waiting: what such requests take is learned when it is
    /// done. Until then it is known that some take long.
    pub(crate) fn on_yielded(&mut self, shape: Shape, elapsed: Duration) {
        let sample = nanos(elapsed).clamp(NANOS_MIN, NANOS_MAX);
        let longer = |known: Option<Mean>| known.map(|mean| Mean { peak: mean.peak.max(sample), ..mean });
        self.exact.learn(shape.exact, longer);
        self.own.learn(shape.own_name(), longer);
        self.shapes.learn(shape.name(shape.octave()), longer);
    }

    /// What this asker's take, in the table of those that are told apart or in that of all others.
    fn learn_own(&mut self, shape: Shape, sample: u64, mean: impl Fn(Option<Mean>) -> Option<Mean>) {
        let name = shape.own_name();
        if self.is_told_apart(shape, sample) {
            let before = self.alike.known(name);
            self.own.learn(name, |known| mean(known.or(before)));
        } else {
            self.alike.learn(name, mean);
        }
    }
}

impl Shape {
    /// The same, asked by this client.
    #[must_use]
    pub(crate) fn asked_by(self, client: u64) -> Self {
        // Kinds are hashes that nobody can choose.
        let own = if self.kind == 0 { 0 } else { (self.kind ^ client.wrapping_mul(ODD)).rotate_left(17).max(1) };
        Self { own, ..self }
    }

    fn own_name(self) -> u64 {
        if self.own == 0 { 0 } else { self.own.rotate_left(self.octave()) ^ u64::from(self.octave()) }
    }

    /// Sizes count by powers of two.
    fn octave(self) -> u32 {
        u32::BITS - self.size.leading_zeros()
    }

    fn name(self, octave: u32) -> u64 {
        if self.kind == 0 { 0 } else { self.kind.rotate_left(octave) ^ u64::from(octave) }
    }
}

/// Whether two times are so different that they are not of the same.
fn is_far(one: u64, other: u64) -> bool {
    one.min(other).saturating_mul(APART_TIMES) <= one.max(other)
}

fn blend(mean: u64, sample: u64, weight: u64) -> u64 {
    mean - mean / weight + sample / weight
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds: over the last few samples, and over many; the mean of their logarithms; the longest of late; and how many there
/// were.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    nanos: u64,
    usual: u64,
    log: f64,
    peak: u64,
    samples: u64,
}

impl Mean {
    fn of(sample: u64) -> Self {
        Self { nanos: sample, usual: sample, log: (sample as f64).ln(), peak: sample, samples: 1 }
    }

    /// Whether enough is known of it to be told from this one, of which it is a part.
    fn is_other_than(self, mean: Self) -> bool {
        self.samples >= OWN_SAMPLES && (mean.is_mixed() || is_far(self.nanos, mean.nanos))
    }

    /// Some of these took long of late, and far longer than they take on average.
    fn is_mixed(self) -> bool {
        self.peak >= LONG_NANOS && is_far(self.nanos, self.peak)
    }

    /// What most of these take: no more than their mean.
    fn most(self) -> u64 {
        (self.log.exp() as u64).min(self.nanos)
    }

    fn place(self) -> u64 {
        let mean = if self.nanos < self.usual / 2 { self.nanos } else { self.usual };
        let doubt = if self.samples < USUAL_SAMPLES { 0.5 / (self.samples.max(1) as f64).sqrt() } else { 0.0 };
        (mean as f64 * (1.0 - doubt)) as u64
    }
}

/// Means in two generations: when the younger one is full, the older one is forgotten.
#[derive(Debug)]
struct Table {
    young: BTreeMap<u64, Mean>,
    old: BTreeMap<u64, Mean>,
}

impl Table {
    const fn new() -> Self {
        Self { young: BTreeMap::new(), old: BTreeMap::new() }
    }

    fn known(&self, name: u64) -> Option<Mean> {
        self.young.get(&name).or_else(|| self.old.get(&name)).copied()
    }

    fn learn(&mut self, name: u64, mean: impl FnOnce(Option<Mean>) -> Option<Mean>) {
        if name == 0 {
            return;
        }
        let Some(mean) = mean(self.known(name)) else { return };
        if self.young.len() >= NAMES_MAX && !self.young.contains_key(&name) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, mean);
    }
}

/// What takes longer than this is long: a person notices, and nothing that is asked many times a second may.
pub(super) const LONG_NANOS: u64 = 50_000_000;
/// Samples of one name that count: the mean of all until there are so many.
const SAMPLES_MAX: u64 = 8;
/// And of those by which places are given: calm enough for a book of thousands of them.
pub(crate) const USUAL_SAMPLES: u64 = 256;
/// Requests of one client and shape after which it is believed that they are others than those of the shape, and how many
/// times as long as these they take, or these as they: by chance few do.
const OWN_SAMPLES: u64 = 4;
pub(super) const APART_TIMES: u64 = 4;
/// Spreads the numbers of clients.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
/// The longest of late counts less with each that is served: a fiftieth of it is left after some 250.
const PEAK_SAMPLES: u64 = 64;
/// Names in one generation of a table: 64 KiB each, and more shapes than an application has.
const NAMES_MAX: usize = 2048;
/// Times are counted within these bounds: a microsecond, and an hour.
const NANOS_MIN: u64 = 1_000;
const NANOS_MAX: u64 = 3_600_000_000_000;
/// One sample counts as at most so many means: for a class, a sixteenth of that is a quarter.
const SAMPLE_TIMES_MAX: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// The nanoseconds of an estimate that was learned.
    fn known(estimate: Estimate) -> Option<u64> {
        estimate.is_known.then_some(estimate.nanos)
    }

    const MS: Duration = Duration::from_millis(1);

    fn estimates() -> Estimates {
        let mut config = PoolConfig::default();
        config.classes[Class::Update.index()].cost_initial = Duration::from_micros(50);
        Estimates::new(&config)
    }

    fn insert(size: u32) -> Shape {
        Shape { exact: 0, kind: 77, size, own: 0 }
    }

    #[test]
    fn a_bulk_load_says_nothing_about_small_changes() {
        let mut estimates = estimates();
        estimates.on_served(Class::Update, insert(1), Duration::from_micros(40));
        estimates.on_served(Class::Update, insert(170_000), MS * 900);
        assert_eq!(known(estimates.of(Class::Update, insert(1))), Some(40_000));
        assert!(estimates.of(Class::Update, insert(170_000)).nanos >= 900_000_000);
        let stranger = estimates.of(Class::Update, Shape { exact: 0, kind: 5, size: 1, own: 0 });
        assert!(!stranger.is_known && stranger.nanos <= 63_000, "{stranger:?}");
    }

    #[test]
    fn a_larger_one_than_any_before_is_taken_in_proportion() {
        let mut estimates = estimates();
        estimates.on_served(Class::Update, insert(1_000), MS);
        let larger = estimates.of(Class::Update, insert(64_000));
        assert_eq!(known(larger), Some(64_000_000));
    }

    #[test]
    fn what_was_given_up_is_known_to_be_long_and_only_that() {
        let mut estimates = estimates();
        let query = Shape { exact: 9, kind: 8, size: 0, own: 0 };
        let before = estimates.class(Class::Query);
        for early in [Duration::ZERO, MS * 5] {
            estimates.on_cancelled(query, early);
            assert!(!estimates.of(Class::Query, query).is_known, "nobody makes a query short by leaving it");
        }
        estimates.on_cancelled(query, MS * 10_000);
        assert_eq!(estimates.of(Class::Query, query).nanos, 10_000_000_000);
        estimates.on_cancelled(query, MS);
        assert_eq!(estimates.of(Class::Query, query).nanos, 10_000_000_000, "who leaves early proves nothing");
        assert_eq!(estimates.class(Class::Query), before);
        // Other constants, the same shape; once a request is known by itself, the shape does not matter.
        let sibling = Shape { exact: 10, ..query };
        assert!(estimates.of(Class::Query, sibling).is_known);
        estimates.on_served(Class::Query, sibling, MS);
        assert_eq!(estimates.of(Class::Query, sibling).nanos, 1_000_000);
    }

    /// Means of the shape are of both, and so both were taken for long.
    #[test]
    fn clients_whose_constants_are_cheap_are_told_from_those_whose_are_dear() {
        let mut estimates = estimates();
        let of = |client: u64, exact: u64| Shape { exact, kind: 8, size: 0, own: 0 }.asked_by(client);
        for round in 0..6 {
            estimates.on_served(Class::Query, of(1, 100 + round), MS * 20);
            (0..3).for_each(|dear| estimates.on_served(Class::Query, of(2 + dear, 1000 + 3 * round + dear), MS * 900));
        }
        let nanos = |client: u64| estimates.of(Class::Query, of(client, 99)).nanos;
        assert_eq!(nanos(1), 20_000_000);
        assert!(nanos(2) > 400_000_000, "{}", nanos(2));
        assert!(nanos(77) > 400_000_000, "a stranger is taken for one of the shape: {}", nanos(77));
    }

    /// While two hundred others wait it took a second until four of its own requests were served.
    #[test]
    fn what_a_client_asked_for_before_dear_ones_of_the_same_shape_came_is_known() {
        let mut estimates = estimates();
        let of = |client: u64| Shape { exact: 0, kind: 8, size: 0, own: 0 }.asked_by(client);
        (0..6).for_each(|_| estimates.on_served(Class::Query, of(1), MS));
        (2..40).for_each(|client| estimates.on_served(Class::Query, of(client), MS * 20));
        assert_eq!(estimates.of(Class::Query, of(1)).nanos, 1_000_000);
        assert!(estimates.of(Class::Query, of(2)).nanos > 15_000_000);
    }

    /// The mean of one in ten that takes 900 ms and nine that take 20 ms is above 100 ms.
    #[test]
    fn what_most_of_a_shape_take_decides_whether_it_is_taken_for_long() {
        let mut estimates = estimates();
        let of = |number: u64| Shape { exact: number, kind: 8, size: 0, own: 0 };
        for number in 1..100 {
            estimates.on_served(Class::Query, of(number), MS * if number % 10 == 5 { 900 } else { 20 });
            let estimate = estimates.of(Class::Query, of(0));
            assert!(!estimate.is_long() && estimate.most <= estimate.nanos, "{number}: {estimate:?}");
        }
        assert!(!estimates.of(Class::Query, of(0)).is_safe);
        (0..20).for_each(|number| estimates.on_served(Class::Query, of(1000 + number), MS * 900));
        assert!(estimates.of(Class::Query, of(0)).is_long());
    }

    #[test]
    fn who_asks_for_what_all_ask_is_not_remembered() {
        let mut estimates = estimates();
        for client in 0..100 {
            let shape = Shape { exact: 0, kind: 8, size: 0, own: 0 }.asked_by(client);
            estimates.on_served(Class::Query, shape, MS * if client % 2 == 0 { 2 } else { 5 });
        }
        assert!(estimates.own.young.is_empty());
    }

    #[test]
    fn tables_are_bounded_and_keep_what_is_used() {
        let mut estimates = estimates();
        let used = Shape { exact: 1, kind: 1, size: 0, own: 0 };
        for n in 0..10 * NAMES_MAX as u64 {
            estimates.on_served(Class::Query, Shape { exact: 100 + n, kind: 100 + n, size: 0, own: 0 }, MS);
            if n % 100 == 0 {
                estimates.on_served(Class::Query, used, MS * 3);
            }
        }
        assert!(estimates.exact.young.len() + estimates.exact.old.len() <= 2 * NAMES_MAX);
        assert_eq!(known(estimates.of(Class::Query, used)), Some(3_000_000));
    }
}
