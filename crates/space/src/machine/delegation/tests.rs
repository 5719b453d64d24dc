//! What must hold whatever the load does, and a broker in a loop with it.

use proptest::prelude::*;

use super::entry::STAY_MIN;
use super::*;

const CALM: Duration = Duration::ZERO;
const BUSY: Duration = Duration::from_millis(80);

struct Bed {
    delegator: Delegator,
    now: Timestamp,
    /// Changes a second of each.
    rates: Vec<f64>,
    debts: Vec<f64>,
    /// When each has last checked, while it is delegated.
    checked: BTreeMap<u64, Timestamp>,
    moves: Vec<u32>,
}

impl Bed {
    /// Subscriptions of these ranks, each with so many changes a second.
    fn new(share_max: f64, all: &[(u8, f64)]) -> Self {
        let now = Timestamp::from_secs_f64(100.0);
        let mut delegator = Delegator::new(&DelegationConfig { share_max, ..DelegationConfig::default() });
        for (id, (rank, _)) in all.iter().enumerate() {
            delegator.begin(now, id as u64, DelegationTerms { is_accepted: true, rank: *rank, client: id as u64 % 2 });
        }
        let rates = all.iter().map(|(_, rate)| *rate).collect::<Vec<_>>();
        let checked = BTreeMap::new();
        Self { delegator, now, debts: vec![0.0; rates.len()], checked, moves: vec![0; rates.len()], rates }
    }

    /// A look later; who was moved.
    fn look(&mut self, wait: Duration) -> Vec<u64> {
        self.now = self.now + LOOK_INTERVAL;
        for (id, debt) in self.debts.iter_mut().enumerate() {
            *debt += self.rates[id] * LOOK_INTERVAL.as_secs_f64();
            let id = id as u64;
            if let Some(every) = self.delegator.every(id) {
                let last = self.checked.entry(id).or_insert(self.now);
                if self.now.since(*last) >= every {
                    *last = self.now;
                    self.delegator.note_check(self.now, id, *debt as u64);
                    *debt -= debt.floor();
                }
                continue;
            }
            self.checked.remove(&id);
            while *debt >= 1.0 {
                *debt -= 1.0;
                self.delegator.note(id, 1);
            }
        }
        let moved = self.delegator.look(self.now, wait);
        for id in &moved {
            self.moves[*id as usize] += 1;
            assert!(self.delegator.poll_notice(*id), "whoever is moved is told how it is");
            assert!(!self.delegator.poll_notice(*id), "once");
        }
        moved
    }

    fn run(&mut self, secs: u64, wait: Duration) {
        for _ in 0..secs * 4 {
            self.look(wait);
        }
    }

    fn delegated(&self) -> usize {
        self.delegator.counts().delegated
    }

    /// What must hold after each look.
    fn check(&self, moved: &[u64]) {
        assert!(moved.len() <= MOVES_MAX);
        let (mut checks, mut pushes) = (0.0, 0.0);
        for (id, entry) in self.delegator.entries.iter().filter(|(id, _)| self.delegator.is_delegated(**id)) {
            assert!(entry.rank > 0, "the most important are always pushed");
            let every = self.delegator.every(*id).unwrap();
            assert!((INTERVAL_MIN..=INTERVAL_MAX).contains(&every), "{every:?}");
            checks += check_load(entry);
            pushes += entry.load(self.now);
        }
        assert!(checks <= ALLOWANCE + 1e-9, "all checks together: {checks}");
        assert!(checks <= pushes + 1e-9 || moved.len() == MOVES_MAX, "checks {checks}, pushes {pushes}");
    }
}

/// A load that is worth it: 200 subscriptions of 20 changes a second are 0.04 processors.
fn crowd(rank: u8) -> Vec<(u8, f64)> {
    vec![(rank, 20.0); 200]
}

#[test]
fn while_it_is_calm_nobody_is_delegated_and_without_anybody_it_is_not_even_looked() {
    let mut bed = Bed::new(1.0, &crowd(2));
    bed.run(30, Duration::from_millis(49));
    assert_eq!(bed.delegator.counts(), DelegationCounts { accepting: 200, ..DelegationCounts::default() });
    let mut nobody = Delegator::new(&DelegationConfig::default());
    nobody.begin(bed.now, 1, DelegationTerms { is_accepted: false, rank: 2, client: 0 });
    nobody.begin(bed.now, 2, DelegationTerms { is_accepted: true, rank: 0, client: 0 });
    assert_eq!((nobody.poll_look(), nobody.counts()), (None, DelegationCounts::default()));
}

#[test]
fn services_are_never_delegated_and_customers_by_their_share() {
    let rank = |role, weight| DelegationTerms::new(true, KpStanding { role, weight }).rank;
    assert!([1, 2, 256, 0, u32::MAX].into_iter().all(|weight| rank(KpRole::Service, weight) == 0));
    let ranks = [0, 1, 2, 3, 16, 255, 256, u32::MAX].map(|weight| rank(KpRole::Customer, weight));
    assert_eq!(ranks, [9, 9, 8, 7, 5, 1, 1, 1], "the larger its share, the later");
}

#[test]
fn one_long_wait_is_an_accident_and_two_are_not() {
    let mut bed = Bed::new(1.0, &crowd(2));
    bed.run(10, CALM);
    for _ in 0..20 {
        assert!(bed.look(BUSY).is_empty());
        assert!(bed.look(CALM).is_empty());
    }
    bed.look(BUSY);
    let moved = bed.look(BUSY);
    assert!((50..=51).contains(&moved.len()), "a quarter of 200: {}", moved.len());
    let every = bed.delegator.every(moved[0]).unwrap();
    assert!((INTERVAL_MIN..INTERVAL_MIN * 2).contains(&every), "{every:?}");
}

#[test]
fn switched_off_or_limited_it_hands_over_no_more_than_that() {
    for (share_max, most) in [(0.0, 0), (-1.0, 0), (f64::NAN, 0), (0.1, 20), (7.0, 200)] {
        let mut bed = Bed::new(share_max, &crowd(2));
        bed.run(10, CALM);
        bed.run(20, BUSY);
        // Where pushing takes next to nothing, handing over more helps nobody.
        assert!(bed.delegated() <= most && (bed.delegated() > 0) == (most > 0), "{share_max}: {}", bed.delegated());
    }
}

#[test]
fn who_costs_next_to_nothing_is_left_alone() {
    let mut bed = Bed::new(1.0, &vec![(2, 0.2); 500]);
    bed.run(30, CALM);
    bed.run(30, BUSY);
    assert_eq!(bed.delegated(), 0, "a change in five seconds is cheaper to push than to be asked for");
}

#[test]
fn whoever_falls_silent_is_taken_back_although_it_is_not_calm() {
    let mut bed = Bed::new(1.0, &crowd(2));
    bed.run(10, CALM);
    bed.run(5, BUSY);
    assert!(bed.delegated() > 50);
    bed.rates.fill(0.0);
    // Each check without anything to fetch halves what it is taken for, and doubles the time to the next.
    bed.run(240, BUSY);
    assert_eq!(bed.delegated(), 0);
}

#[test]
fn when_it_is_calm_everybody_comes_back_the_most_important_first() {
    let mut all = crowd(3);
    all.extend(vec![(1, 40.0); 100]);
    let mut bed = Bed::new(1.0, &all);
    bed.run(10, CALM);
    bed.run(20, BUSY);
    let before = bed.delegated();
    assert!(before > 250, "{before}");
    let mut order = Vec::new();
    for _ in 0..4 * 120 {
        order.extend(bed.look(CALM).into_iter().map(|id| bed.delegator.entries[&id].rank));
    }
    assert_eq!((bed.delegated(), order.len()), (0, before));
    assert!(order.is_sorted(), "{order:?}");
}

/// A host that has one processor for pushing, for checks and for everything else. What is beyond waits, and is worked off.
#[test]
fn in_a_loop_with_a_host_it_finds_a_level_and_stays_there() {
    let mut all = vec![(2, 50.0); 1000];
    all.extend(vec![(1, 50.0); 200]);
    let mut bed = Bed::new(1.0, &all);
    bed.run(10, CALM);
    // 0.6 of a processor for pushing, and 0.7 for others: a third too much.
    let (mut backlog, mut over) = (0.0_f64, 0);
    let mut quarter = Vec::new();
    for look in 0..4 * 600 {
        let checks: f64 = bed.delegator.delegated.iter().map(|id| check_load(&bed.delegator.entries[id])).sum();
        let load = bed.delegator.pushed_load(bed.now) + checks + 0.7;
        backlog = (backlog + (load - 1.0) * LOOK_INTERVAL.as_secs_f64()).max(0.0);
        let moved = bed.look(Duration::from_secs_f64(backlog));
        bed.check(&moved);
        over += u32::from(look > 60 && backlog > 1.0);
        if look % 600 == 599 {
            quarter.push(bed.moves.iter().sum::<u32>());
        }
    }
    let service = bed.delegator.delegated.iter().filter(|id| **id >= 1000).count();
    assert_eq!((over, service), (0, 0), "nobody waits for long, and the more important are pushed all the time");
    assert!((300..=1000).contains(&bed.delegated()), "{}", bed.delegated());
    // Each step back is tried again, less and less often.
    let late = quarter[3] - quarter[2];
    assert!(late < quarter[0] / 2, "{quarter:?}");
}

fn waits() -> impl Strategy<Value = Vec<(u16, u8)>> {
    // Milliseconds, for so many looks.
    prop::collection::vec((prop_oneof![Just(0), Just(9), Just(30), Just(60), 0..500_u16], 1..60_u8), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn it_never_flaps_the_most_important_go_last_and_checks_cost_less_than_pushes(
        all in prop::collection::vec((0..4_u8, prop_oneof![Just(0.0), 0.1..5.0, 5.0..200.0]), 1..120),
        waits in waits(),
        silent in prop::collection::vec(any::<bool>(), 120),
    ) {
        let mut bed = Bed::new(1.0, &all);
        bed.run(10, CALM);
        let since = bed.now;
        for (turn, (millis, looks)) in waits.into_iter().enumerate() {
            if turn % 8 == 7 {
                for (rate, (is_silent, (_, usual))) in bed.rates.iter_mut().zip(silent.iter().zip(&all)) {
                    *rate = if *is_silent && turn % 16 == 7 { 0.0 } else { *usual };
                }
            }
            for _ in 0..looks {
                let before = bed.delegator.delegated.clone();
                let next = bed.now + LOOK_INTERVAL;
                let may_go: Vec<u64> = bed.delegator.entries.iter()
                    .filter(|(id, entry)| bed.delegator.may_go(next, **id, entry)).map(|(id, _)| *id).collect();
                let moved = bed.look(Duration::from_millis(millis.into()));
                bed.check(&moved);
                // Nobody goes while somebody less important could have gone, beside those who became dear in this moment.
                let went = moved.iter().filter(|id| bed.delegator.is_delegated(**id) && !before.contains(id));
                let least = went.map(|id| bed.delegator.entries[id].rank).min();
                let stayed = may_go.iter().filter(|id| !bed.delegator.is_delegated(**id) && !moved.contains(id));
                let stayed = stayed.map(|id| bed.delegator.entries[id].rank).max();
                prop_assert!(least.zip(stayed).is_none_or(|(went, stayed)| went >= stayed), "{least:?} {stayed:?}");
            }
        }
        // Delegated at most once in 10, 15, 25, … and then 165 s, and taken back as often.
        let secs = bed.now.since(since).as_secs_f64() / STAY_MIN.as_secs_f64();
        let most = 2.0 * ((secs + 1.0).log2().min(6.0) + secs / 32.0 + 2.0);
        for moves in &bed.moves {
            prop_assert!(f64::from(*moves) <= most, "{moves} moves in {secs} times 5 s");
        }
    }
}

#[test]
fn what_is_delegated_is_known_by_client() {
    let mut delegator =
        Delegator::new(&DelegationConfig { wait: Duration::ZERO, load_min: 0.0, ..DelegationConfig::default() });
    let now = Timestamp::from_nanos(1);
    for (id, client) in [(1, 7), (2, 7), (3, 8)] {
        delegator.begin(now, id, DelegationTerms { is_accepted: true, rank: 2, client });
    }
    delegator.begin(now, 4, DelegationTerms { is_accepted: false, rank: 2, client: 9 });
    let all = delegator.by_client();
    let accepting: Vec<_> =
        all.iter().map(|(client, own)| (*client, own.accepting, own.delegated, own.every)).collect();
    assert_eq!(accepting, [(7, 2, 0, None), (8, 1, 0, None)]);
    delegator.end(3);
    assert!(!delegator.by_client().contains_key(&8));
}

/// Intervals change with what there is to do, and a client hears of it when it checks: until then it does what it was told.
#[test]
fn the_interval_of_a_client_is_what_it_was_told_and_not_what_it_will_be() {
    let mut delegator = Delegator::new(&DelegationConfig::default());
    let now = Timestamp::from_nanos(1);
    delegator.begin(now, 1, DelegationTerms { is_accepted: true, rank: 2, client: 7 });
    delegator.delegated.insert(1);
    let set =
        |delegator: &mut Delegator, secs| delegator.entries.get_mut(&1).unwrap().every = Duration::from_secs(secs);
    set(&mut delegator, 14);
    assert_eq!(delegator.by_client()[&7].every, None, "it has not heard of it");
    assert_eq!(delegator.tell_every(1), Some(Duration::from_secs(14)));
    set(&mut delegator, 4);
    assert_eq!(delegator.by_client()[&7].every, Some(Duration::from_secs(14)));
    assert_eq!(delegator.tell_every(1), Some(Duration::from_secs(4)));
    assert_eq!(delegator.by_client()[&7].every, Some(Duration::from_secs(4)));
}
