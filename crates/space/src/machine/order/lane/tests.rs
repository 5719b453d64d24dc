use super::*;
use proptest::prelude::*;

fn entry(work: u64, value: u32) -> Entry<u32> {
    let (arrived, deadline) = (Timestamp::ZERO, Timestamp::MAX);
    let first = Waiter { value, arrived, deadline, check: None };
    let (joined, class, shape, standing) = (Vec::new(), Class::Query, Shape::default(), KpStanding::default());
    let (key, keeps_appointments, asker) = (None, false, 0);
    Entry { first, joined, key, class, shape, standing, work, is_known: true, keeps_appointments, asker, flow: 0 }
}

/// A client that is a household of its own.
fn alone(client: u64) -> LineId {
    LineId { household: client, client }
}

fn next(lane: &mut Lane<u32>) -> Option<(u64, u32)> {
    lane.pop(&[], |_| true).map(|(id, entry)| (id.client, entry.first.value))
}

/// Clients that ask once in a while owe nothing, so all have the same tag: those with high numbers waited for as long as
/// others came.
#[test]
fn of_clients_that_owe_the_same_the_one_that_came_first_is_next() {
    let mut lane = Lane::new();
    for client in [9, 4, 7] {
        lane.push(alone(client), entry(10, 0));
    }
    assert_eq!(next(&mut lane), Some((9, 0)));
    lane.push(alone(1), entry(10, 0));
    let order: Vec<u64> = std::iter::from_fn(|| next(&mut lane)).map(|(client, _)| client).collect();
    assert_eq!(order, [4, 7, 1]);
}

#[test]
fn whoever_comes_alone_is_next_behind_at_most_one_of_each() {
    let mut lane = Lane::new();
    for n in 0..100 {
        lane.push(alone(1), entry(10, n));
    }
    assert_eq!(next(&mut lane), Some((1, 0)));
    lane.push(alone(2), entry(10, 1000));
    assert_eq!(next(&mut lane), Some((2, 1000)), "its line was empty, the other one owes");
    assert_eq!(next(&mut lane), Some((1, 1)));
}

#[test]
fn who_was_found_to_be_cheap_has_not_paid_for_it() {
    let mut lane = Lane::new();
    for client in [1, 2] {
        (0..3).for_each(|n| lane.push(alone(client), entry(100, n)));
    }
    assert_eq!((next(&mut lane), next(&mut lane)), (Some((1, 0)), Some((2, 0))));
    // Both were taken for the same, and the first took a tenth of that.
    lane.refund(alone(1), 90);
    let order: Vec<u64> = std::iter::from_fn(|| next(&mut lane)).map(|(client, _)| client).collect();
    assert_eq!(order, [1, 2, 1, 2]);
    lane.refund(alone(1), u64::MAX);
    lane.push(alone(3), entry(100, 0));
    lane.push(alone(1), entry(100, 0));
    assert_eq!(next(&mut lane), Some((3, 0)), "who has nothing waiting has saved nothing up");
}

#[test]
fn who_was_found_to_be_dear_waits_for_it() {
    let mut lane = Lane::new();
    lane.push(alone(1), entry(1, 0));
    lane.pop(&[], |_| true).unwrap();
    lane.charge(alone(1), 1000);
    lane.push(alone(1), entry(1, 1));
    for n in 0..5 {
        lane.push(alone(2), entry(100, n));
    }
    let order: Vec<u64> = std::iter::from_fn(|| next(&mut lane)).map(|(client, _)| client).collect();
    assert_eq!(order, [2, 2, 2, 2, 2, 1]);
    lane.charge(alone(1), 1000);
    lane.forgive();
    assert!(lane.households.is_empty());
}

proptest! {
    /// Over any backlog two clients that both wait differ by at most one request of each.
    #[test]
    fn work_is_shared_by_client_whatever_each_sends(
        requests in prop::collection::vec((0..4u64, 1..100u64), 1..200),
    ) {
        let mut lane = Lane::new();
        let mut left = [0usize; 4];
        for (place, (client, work)) in requests.iter().enumerate() {
            lane.push(alone(*client), entry(*work, place as u32));
            left[*client as usize] += 1;
        }
        let (mut done, mut last) = ([0u64; 4], [None; 4]);
        while let Some((id, entry)) = lane.pop(&[], |_| true) {
            let of = id.client as usize;
            prop_assert!(last[of] < Some(entry.first.value), "in the order of arrival");
            (last[of], left[of]) = (Some(entry.first.value), left[of] - 1);
            done[of] += entry.work;
            for other in 0..4 {
                if left[of] > 0 && left[other] > 0 {
                    prop_assert!(done[of].abs_diff(done[other]) <= 200, "{done:?}");
                }
            }
        }
        prop_assert_eq!((lane.items(), lane.work(), left), (0, 0, [0; 4]));
    }
}

fn of(household: u64, client: u64) -> LineId {
    LineId { household, client }
}

fn served(lane: &mut Lane<u32>, turns: usize) -> BTreeMap<u64, usize> {
    let mut served = BTreeMap::new();
    for _ in 0..turns {
        *served.entry(lane.pop(&[], |_| true).unwrap().0.household).or_default() += 1;
    }
    served
}

/// Names cost nothing, so they gain nothing: a household with a hundred of them has what one with one has.
#[test]
fn more_names_of_one_household_gain_nothing_beside_another() {
    let mut lane = Lane::new();
    for n in 0..200 {
        lane.push(of(1, u64::from(n)), entry(10, n));
        lane.push(of(2, 7), entry(10, n));
    }
    assert_eq!(served(&mut lane, 100), BTreeMap::from([(1, 50), (2, 50)]));
}

#[test]
fn one_greedy_client_of_a_household_is_one_of_it() {
    let mut lane = Lane::new();
    for n in 0..1000 {
        lane.push(of(1, 0), entry(10, n));
    }
    assert_eq!(next(&mut lane), Some((0, 0)));
    for client in 1..300 {
        lane.push(of(1, client), entry(10, 0));
    }
    let order: Vec<u64> = (0..299).filter_map(|_| next(&mut lane)).map(|(client, _)| client).collect();
    assert_eq!(order, (1..300).collect::<Vec<_>>(), "each of them before the second of the greedy one");
}

#[test]
fn a_share_is_by_weight() {
    let mut lane = Lane::new();
    let weighing = |weight, n| {
        let standing = KpStanding { weight, ..KpStanding::default() };
        Entry { standing, ..entry(1000, n) }
    };
    for n in 0..400 {
        lane.push(alone(1), weighing(8, n));
        lane.push(alone(2), weighing(2, n));
    }
    assert_eq!(served(&mut lane, 100), BTreeMap::from([(1, 80), (2, 20)]));
}

#[test]
fn what_was_left_behind_is_swept_out_of_the_middle_and_the_rest_keeps_its_order() {
    let mut lane = Lane::new();
    for n in 0..10 {
        let key = Some(QueryKey(u128::from(n)));
        lane.push(alone(u64::from(n % 2)), Entry { key, ..entry(10, n) });
    }
    let swept = lane.sweep(64, |entry| entry.first.value % 3 == 0);
    assert_eq!(swept.iter().map(|entry| entry.first.value).collect::<Vec<_>>(), [0, 6, 3, 9]);
    assert!(lane.equal(QueryKey(6), 9).is_none(), "nobody joins what is gone");
    assert_eq!(lane.equal(QueryKey(8), 9).map(|entry| entry.first.value), Some(8));
    let order: Vec<u32> = std::iter::from_fn(|| next(&mut lane)).map(|(_, value)| value).collect();
    assert_eq!(order, [2, 1, 4, 5, 8, 7]);
    assert_eq!((lane.items(), lane.work()), (0, 0));
}

/// The definition, without any index: of all households that wait the one that has used least, of its clients the one that
/// has, of equal ones the one that came first; whoever comes has used at least as much as the last one that was served.
#[derive(Default)]
struct NaiveLane {
    waiting: Vec<(u64, u64, u64, u32)>,
    used: BTreeMap<Option<u64>, NaiveShares>,
}

#[derive(Default)]
struct NaiveShares {
    virtual_time: u64,
    turns: u64,
    tags: BTreeMap<u64, (u64, u64)>,
}

impl NaiveLane {
    fn on_waiting(&mut self, of: Option<u64>, key: u64, is_first: bool) {
        let shares = self.used.entry(of).or_default();
        if is_first {
            shares.turns += 1;
            let (turns, virtual_time) = (shares.turns, shares.virtual_time);
            let (tag, turn) = shares.tags.entry(key).or_default();
            (*tag, *turn) = ((*tag).max(virtual_time), turns);
        }
    }

    fn push(&mut self, id: LineId, cost: u64, value: u32) {
        let is_new = !self.waiting.iter().any(|(household, ..)| *household == id.household);
        let is_first =
            !self.waiting.iter().any(|(household, client, ..)| (*household, *client) == (id.household, id.client));
        self.on_waiting(Some(id.household), id.client, is_first);
        self.on_waiting(None, id.household, is_new);
        self.waiting.push((id.household, id.client, cost, value));
    }

    fn pop(&mut self) -> Option<u32> {
        let least = |of: Option<u64>, keys: Vec<u64>| keys.into_iter().min_by_key(|key| self.used[&of].tags[key]);
        let household = least(None, self.waiting.iter().map(|it| it.0).collect())?;
        let clients = self.waiting.iter().filter(|it| it.0 == household).map(|it| it.1).collect();
        let client = least(Some(household), clients)?;
        let place = self.waiting.iter().position(|it| (it.0, it.1) == (household, client))?;
        let (_, _, cost, value) = self.waiting.remove(place);
        for (of, key) in [(None, household), (Some(household), client)] {
            let shares = self.used.get_mut(&of)?;
            let (tag, _) = shares.tags.get_mut(&key)?;
            shares.virtual_time = shares.virtual_time.max(*tag);
            *tag += cost;
        }
        self.forget();
        Some(value)
    }

    /// A household that owes nothing, and of which nothing waits, is forgotten with all of its clients.
    fn forget(&mut self) {
        let Some(shares) = self.used.get_mut(&None) else { return };
        let is_idle = |key: &u64| !self.waiting.iter().any(|it| it.0 == *key);
        let owes_nothing =
            |(key, (tag, _)): (&u64, &(u64, u64))| (*tag <= shares.virtual_time && is_idle(key)).then_some(*key);
        let forgotten: Vec<u64> = shares.tags.iter().filter_map(owes_nothing).collect();
        shares.tags.retain(|key, _| !forgotten.contains(key));
        self.used.retain(|of, _| of.is_none_or(|key| !forgotten.contains(&key)));
    }
}

proptest! {
    /// Whatever comes and goes, the lane serves whom the definition names.
    #[test]
    fn the_lane_serves_whom_the_definition_names(
        steps in prop::collection::vec((0..3u64, 0..4u64, 1..100u64, 1..9u32, 0..3u8), 1..300),
    ) {
        let (mut lane, mut naive) = (Lane::new(), NaiveLane::default());
        for (number, (household, client, work, weight, turns)) in (0..).zip(steps) {
            let standing = KpStanding { weight, ..KpStanding::default() };
            let entry = Entry { standing, ..entry(work, number) };
            naive.push(of(household, client), standing.charge(work), number);
            lane.push(of(household, client), entry);
            for _ in 0..turns {
                prop_assert_eq!(next(&mut lane).map(|(_, value)| value), naive.pop());
            }
        }
        while let Some(value) = naive.pop() {
            prop_assert_eq!(next(&mut lane).map(|(_, value)| value), Some(value));
        }
        prop_assert_eq!((lane.items(), lane.work()), (0, 0));
    }
}
