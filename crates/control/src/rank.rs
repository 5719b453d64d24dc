//! Who publishes rarely, and who all the time: publishers in the order of their learned rate.
//!
//! P22 gives priority to the publisher with the lowest frequency and sorts all of them again for every message
//! (Algorithm 2). [`Ranks`] keeps the order instead, in sorted chunks: a rank is two binary searches, and a new rate
//! costs the short way from the old place to the new one. It learns nothing itself: rates come from the caller, who also
//! decides which publisher is which [`FlowId`] (one per principal, B17 and B18). Its answers feed the scheduler:
//! [`Ranks::order_key`] for the strict rule of the paper, [`Tercile::weight`] for deficit round robin.
//!
//! An entry is one `u64`, the upper half of the rate's `f64` bits above the identifier. So rates count as equal when
//! they agree in the first 20 bits of the mantissa (one part in a million), and equals are ordered by identifier.
//! [`Bands`] does with a byte for each publisher where only thirds are asked for.

mod bands;

use alloc::vec::Vec;

pub use bands::{Band, Bands};

use crate::schedule::{FlowId, FlowOverMaximum, INDEX_MAX};

/// Publishers in ascending order of their rate; those without a rate come last.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// By identifier: the rate's code, or [`LEARNING`], or [`ABSENT`].
    codes: Vec<u32>,
    /// All entries in ascending order, cut into chunks of fewer than `2 * CHUNK`.
    chunks: Vec<Vec<u64>>,
    /// By chunk: a lower bound of its entries, and an upper bound of those before. The first is 0.
    firsts: Vec<u64>,
    /// By chunk: how many entries are before it.
    starts: Vec<u32>,
    /// Publishers that are ranked, and those among them that have a rate.
    len: u32,
    learned: u32,
    publishers_max: u32,
}

/// What a new rate changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// Nobody's rank: the publisher is still between the same neighbours, although its order key may be another.
    Kept,
    /// The publisher is new, or has moved past others.
    Moved,
}

/// A third of the publishers that have a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tercile {
    /// The third with the lowest rates.
    Rare,
    /// The third between, and everyone whose rate is not known yet (B16).
    Middle,
    /// The third with the highest rates.
    Chatty,
}

impl Tercile {
    /// Share of service under deficit round robin (CONTROL 9.2).
    pub const fn weight(self) -> u32 {
        match self {
            Self::Rare => 4,
            Self::Middle => 2,
            Self::Chatty => 1,
        }
    }
}

impl Ranks {
    /// No publishers yet; identifiers from `publishers_max` (16 million at most) on will be refused. Memory grows with the largest
    /// identifier in use: 4 bytes each, and about 12 for each publisher that is ranked (at worst 64).
    pub fn new(publishers_max: u32) -> Self {
        Self {
            codes: Vec::new(),
            chunks: alloc::vec![Vec::new()],
            firsts: alloc::vec![0],
            starts: alloc::vec![0],
            len: 0,
            learned: 0,
            publishers_max: publishers_max.min(INDEX_MAX),
        }
    }

    /// Publishers that are ranked, with or without a rate.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether nobody is ranked.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Learns the rate of a publisher, in messages per second. `None` is one that is still learning, and so is NaN;
    /// negative rates count as 0 and infinite ones as `f64::MAX`.
    ///
    /// A rate that differs by less than one part in a million costs one comparison, one that stays within its chunk
    /// a move inside 4 KiB. Beyond that the cost is one addition for each chunk between the old place and the new, so
    /// that an estimate which trembles stays cheap however many publishers there are.
    pub fn set(&mut self, id: FlowId, rate: Option<f64>) -> Result<Placing, FlowOverMaximum> {
        FlowOverMaximum::check(id, self.publishers_max)?;
        if self.codes.len() <= id.index() {
            self.codes.resize(id.index() + 1, ABSENT);
        }
        let old = core::mem::replace(&mut self.codes[id.index()], code(rate));
        let new = self.codes[id.index()];
        self.learned = self.learned + u32::from(new < LEARNING) - u32::from(old < LEARNING);
        if old == ABSENT {
            self.len += 1;
            self.insert(entry(new, id));
            return Ok(Placing::Moved);
        }
        if old == new {
            return Ok(Placing::Kept);
        }
        Ok(self.relocate(entry(old, id), entry(new, id)))
    }

    /// Forgets a publisher; unknown ones are none.
    pub fn remove(&mut self, id: FlowId) {
        let Some(old) = self.code(id) else { return };
        self.codes[id.index()] = ABSENT;
        self.len -= 1;
        self.learned -= u32::from(old < LEARNING);
        let (chunk, _) = self.take(entry(old, id));
        for start in &mut self.starts[chunk + 1..] {
            *start -= 1;
        }
        self.merge(chunk);
    }

    /// How many publishers are served before this one: 0 has the lowest rate (P22, B13). `None` if it is not ranked.
    pub fn rank(&self, id: FlowId) -> Option<u32> {
        Some(self.position(entry(self.code(id)?, id)))
    }

    /// A number that orders publishers as [`Ranks::rank`] does, and does not change when others come and go. Those
    /// that are not ranked are last of all.
    pub fn order_key(&self, id: FlowId) -> u64 {
        entry(self.code(id).unwrap_or(ABSENT), id)
    }

    /// The third to which a publisher belongs. Equal rates share the third of the first of them: identical devices must
    /// not get different shares because of their identifiers.
    pub fn tercile(&self, id: FlowId) -> Tercile {
        let Some(code) = self.code(id).filter(|code| *code < LEARNING) else { return Tercile::Middle };
        let rank = u64::from(self.position(entry(code, FlowId(0))));
        match rank * 3 / u64::from(self.learned) {
            0 => Tercile::Rare,
            1 => Tercile::Middle,
            _ => Tercile::Chatty,
        }
    }

    fn code(&self, id: FlowId) -> Option<u32> {
        self.codes.get(id.index()).copied().filter(|code| *code != ABSENT)
    }

    /// How many entries are less than this one.
    fn position(&self, entry: u64) -> u32 {
        let chunk = self.locate(entry);
        self.starts[chunk] + lower_bound(&self.chunks[chunk], entry) as u32
    }

    /// The chunk in which an entry is, or would be.
    fn locate(&self, entry: u64) -> usize {
        self.firsts.partition_point(|first| *first <= entry) - 1
    }

    fn insert(&mut self, entry: u64) {
        let (chunk, _) = self.put(entry);
        for start in &mut self.starts[chunk + 1..] {
            *start += 1;
        }
        self.split(chunk);
    }

    fn relocate(&mut self, old: u64, new: u64) -> Placing {
        let chunk = self.locate(old);
        let end = self.firsts.get(chunk + 1).copied().unwrap_or(u64::MAX);
        if (self.firsts[chunk]..end).contains(&new) {
            return slide(&mut self.chunks[chunk], old, new);
        }
        let (from, at) = self.take(old);
        let rank_old = self.starts[from] + at;
        let (to, at) = self.put(new);
        for start in self.starts.get_mut(from + 1..=to).into_iter().flatten() {
            *start -= 1;
        }
        for start in self.starts.get_mut(to + 1..=from).into_iter().flatten() {
            *start += 1;
        }
        let rank_new = self.starts[to] + at;
        // The later chunk first: the other one's index then stays what it is.
        if from < to {
            self.split(to);
            self.merge(from);
        } else {
            self.merge(from);
            self.split(to);
        }
        if rank_old == rank_new { Placing::Kept } else { Placing::Moved }
    }

    /// Puts an entry into its chunk and says where; the caller corrects `starts`.
    fn put(&mut self, entry: u64) -> (usize, u32) {
        let chunk = self.locate(entry);
        let at = lower_bound(&self.chunks[chunk], entry);
        self.chunks[chunk].insert(at, entry);
        (chunk, at as u32)
    }

    /// Takes an entry out of its chunk and says where it was; the caller corrects `starts`.
    fn take(&mut self, entry: u64) -> (usize, u32) {
        let chunk = self.locate(entry);
        let at = lower_bound(&self.chunks[chunk], entry);
        self.chunks[chunk].remove(at);
        (chunk, at as u32)
    }

    /// Cuts a full chunk in two.
    fn split(&mut self, chunk: usize) {
        if self.chunks[chunk].len() < 2 * CHUNK {
            return;
        }
        let mut upper = Vec::with_capacity(2 * CHUNK);
        upper.extend(self.chunks[chunk].drain(CHUNK..));
        self.firsts.insert(chunk + 1, upper[0]);
        self.starts.insert(chunk + 1, self.starts[chunk] + CHUNK as u32);
        self.chunks.insert(chunk + 1, upper);
    }

    /// Joins a small chunk with a neighbour if both together are far from full, so that the next few changes neither
    /// split it again nor join it again. Two small ones are never neighbours, which bounds the memory.
    fn merge(&mut self, chunk: usize) {
        if self.chunks[chunk].len() >= CHUNK / 2 {
            return;
        }
        for lower in [Some(chunk), chunk.checked_sub(1)].into_iter().flatten() {
            let Some([left, right]) = self.chunks.get_mut(lower..lower + 2) else { continue };
            if left.len() + right.len() <= CHUNK + CHUNK / 2 {
                left.append(right);
                self.chunks.remove(lower + 1);
                self.firsts.remove(lower + 1);
                self.starts.remove(lower + 1);
                return;
            }
        }
    }
}

/// Replaces an entry of a chunk by another one that belongs into the same chunk.
fn slide(chunk: &mut [u64], old: u64, new: u64) -> Placing {
    let from = lower_bound(chunk, old);
    let above = chunk.get(from + 1).is_none_or(|next| new < *next);
    let below = from == 0 || chunk[from - 1] < new;
    chunk[from] = new;
    if above && below {
        return Placing::Kept;
    }
    if above {
        let to = lower_bound(&chunk[..from], new);
        chunk[to..=from].rotate_right(1);
    } else {
        let passed = lower_bound(&chunk[from + 1..], new);
        chunk[from..=from + passed].rotate_left(1);
    }
    Placing::Moved
}

/// How many entries of a sorted slice are less than this one.
fn lower_bound(entries: &[u64], entry: u64) -> usize {
    entries.partition_point(|other| *other < entry)
}

/// A rate as a number of 31 bits in the same order: sign, exponent and 20 bits of mantissa of its `f64`.
fn code(rate: Option<f64>) -> u32 {
    match rate {
        Some(rate) if !rate.is_nan() => (rate.clamp(0.0, f64::MAX).abs().to_bits() >> 32) as u32,
        _ => LEARNING,
    }
}

const fn entry(code: u32, id: FlowId) -> u64 {
    (code as u64) << 32 | id.0 as u64
}

/// Above the code of every rate.
const LEARNING: u32 = 1 << 31;
/// Not ranked.
const ABSENT: u32 = u32::MAX;

/// Chunks are cut when they reach twice this length. Measured with 10⁶ publishers: half of it makes far moves slower
/// (1.3 to 2.2 µs), twice of it the near ones (0.6 to 0.9 µs).
const CHUNK: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranks(rates: &[(u32, Option<f64>)]) -> Ranks {
        let mut ranks = Ranks::new(1000);
        for (id, rate) in rates {
            ranks.set(FlowId(*id), *rate).unwrap();
        }
        ranks
    }

    #[test]
    fn lowest_rate_is_served_first_and_learners_last() {
        let ranks = ranks(&[(1, Some(5.0)), (2, None), (3, Some(0.1)), (4, Some(5.0)), (0, None)]);
        let order: Vec<_> = [3, 1, 4, 0, 2].iter().map(|id| ranks.rank(FlowId(*id))).collect();
        assert_eq!(order, [Some(0), Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(ranks.rank(FlowId(5)), None);
        assert_eq!(ranks.rank(FlowId(u32::MAX)), None);
        assert!(ranks.order_key(FlowId(3)) < ranks.order_key(FlowId(1)));
        assert!(ranks.order_key(FlowId(2)) < ranks.order_key(FlowId(5)));
    }

    #[test]
    fn odd_rates_are_clamped() {
        let ranks = ranks(&[
            (0, Some(f64::NAN)),
            (1, Some(f64::INFINITY)),
            (2, Some(f64::MAX)),
            (3, Some(f64::NEG_INFINITY)),
            (4, Some(-0.0)),
            (5, Some(f64::MIN_POSITIVE)),
        ]);
        let order: Vec<_> = [3, 4, 5, 1, 2, 0].iter().map(|id| ranks.rank(FlowId(*id)).unwrap()).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn an_identifier_over_the_maximum_is_answered() {
        let mut ranks = Ranks::new(2);
        let error = ranks.set(FlowId(2), None).unwrap_err();
        assert_eq!(error, FlowOverMaximum { flow: FlowId(2), flows_max: 2 });
        ranks.remove(FlowId(u32::MAX));
        assert!(ranks.is_empty());
    }

    #[test]
    fn identical_devices_get_identical_weights() {
        let same: Vec<_> = (0..30).map(|id| (id, Some(0.1))).collect();
        let ranks = ranks(&same);
        assert!((0..30).all(|id| ranks.tercile(FlowId(id)) == Tercile::Rare));
    }

    #[test]
    fn thirds_are_those_of_the_publishers_with_a_rate() {
        let mut rates: Vec<_> = (0..9).map(|id| (id, Some(f64::from(id)))).collect();
        rates.extend((10..40).map(|id| (id, None)));
        let ranks = ranks(&rates);
        let weights: Vec<_> = (0..11).map(|id| ranks.tercile(FlowId(id)).weight()).collect();
        assert_eq!(weights, [4, 4, 4, 2, 2, 2, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn a_rate_that_trembles_keeps_its_place() {
        let mut ranks = ranks(&[(0, Some(1.0)), (1, Some(2.0)), (2, Some(3.0))]);
        assert_eq!(ranks.set(FlowId(1), Some(2.000_000_1)), Ok(Placing::Kept));
        assert_eq!(ranks.set(FlowId(1), Some(2.9)), Ok(Placing::Kept));
        assert_eq!(ranks.set(FlowId(1), Some(3.1)), Ok(Placing::Moved));
    }

    /// Enough publishers for several chunks, which the model's few operations would not reach.
    #[test]
    fn ranks_are_exact_across_many_chunks() {
        let count = 20 * CHUNK as u32;
        let mut ranks = Ranks::new(count);
        // 7919 is prime: every residue once, in a scattered order.
        let rate = |id: u32| f64::from(u64::from(id).wrapping_mul(7919).rem_euclid(u64::from(count)) as u32);
        for id in 0..count {
            ranks.set(FlowId(id), Some(rate(id))).unwrap();
        }
        assert!((0..count).all(|id| ranks.rank(FlowId(id)) == Some(rate(id) as u32)));
        assert!(ranks.chunks.len() > 10);
        for id in 0..count {
            ranks.set(FlowId(id), Some(f64::from(count) - rate(id))).unwrap();
        }
        assert!((0..count).all(|id| ranks.rank(FlowId(id)) == Some(count - 1 - rate(id) as u32)));
        // In the order of their ranks, which empties one chunk after the other.
        let mut ids: Vec<_> = (0..count).map(FlowId).collect();
        ids.sort_by_key(|id| ranks.order_key(*id));
        for (left, id) in (1..count).rev().zip(ids) {
            ranks.remove(id);
            assert!(ranks.chunks.len() <= chunks_max(left as usize), "{left}");
        }
        assert_eq!((ranks.len(), ranks.chunks.len()), (1, 1));
    }

    /// Of two neighbours at most one is small.
    fn chunks_max(entries: usize) -> usize {
        1 + 2 * entries / (CHUNK / 2)
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Set(u32, Option<f64>),
        Remove(u32),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let rate = prop_oneof![
            1 => Just(None),
            4 => (0..20u32).prop_map(|rate| Some(f64::from(rate))),
            4 => (0.0..20.0).prop_map(Some),
            1 => any::<f64>().prop_map(Some),
        ];
        prop_oneof![4 => (0..1100u32, rate).prop_map(|(id, rate)| Operation::Set(id, rate)), 1 => (0..1100u32).prop_map(Operation::Remove)]
    }

    #[derive(Default)]
    struct Model {
        /// Sorted.
        entries: Vec<u64>,
    }

    impl Model {
        fn apply(&mut self, ranks: &mut Ranks, operation: &Operation) {
            let (Operation::Set(id, _) | Operation::Remove(id)) = *operation;
            let old = self.entries.iter().position(|entry| *entry as u32 == id);
            old.map(|at| self.entries.remove(at));
            match operation {
                Operation::Remove(_) => ranks.remove(FlowId(id)),
                Operation::Set(_, rate) => {
                    let placing = ranks.set(FlowId(id), *rate);
                    assert_eq!(placing.is_ok(), id < 1000);
                    if placing.is_err() {
                        return;
                    }
                    let new = entry(code(*rate), FlowId(id));
                    let at = lower_bound(&self.entries, new);
                    self.entries.insert(at, new);
                    let kept = old == Some(at);
                    assert_eq!(placing == Ok(Placing::Kept), kept, "{old:?} to {at}");
                }
            }
        }

        fn invariants(&self, ranks: &Ranks) {
            assert_eq!(ranks.len() as usize, self.entries.len());
            assert_eq!(ranks.chunks.concat(), self.entries);
            let learned = lower_bound(&self.entries, entry(LEARNING, FlowId(0)));
            for (rank, &this) in self.entries.iter().enumerate() {
                let id = FlowId(this as u32);
                assert_eq!(ranks.rank(id), Some(rank as u32));
                assert_eq!(ranks.order_key(id), this);
                let first = lower_bound(&self.entries, this >> 32 << 32);
                let weight = if rank >= learned { 2 } else { 4 >> (first * 3 / learned) };
                assert_eq!(ranks.tercile(id).weight(), weight);
            }
            assert!(ranks.chunks.iter().all(|chunk| chunk.len() < 2 * CHUNK));
            assert!(ranks.chunks.len() <= chunks_max(self.entries.len()));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn ranks_agree_with_a_sorted_list(
            crowd in 0..1000u32,
            operations in prop::collection::vec(operation(), 1..400),
        ) {
            let mut ranks = Ranks::new(1000);
            let mut model = Model::default();
            for id in 0..crowd {
                model.apply(&mut ranks, &Operation::Set(id, Some(f64::from(id % 37))));
            }
            for (step, operation) in operations.iter().enumerate() {
                model.apply(&mut ranks, operation);
                if step % 20 == 0 {
                    model.invariants(&ranks);
                }
            }
            model.invariants(&ranks);
        }
    }
}
