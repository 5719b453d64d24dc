//! The order against a naive model, and what it promises (GATE properties 2, 3, 4, 7 and 8).

mod model;

use super::*;
use alloc::vec;
use proptest::prelude::*;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

const STRANGER: Standing = Standing { entitled_at: Timestamp::MAX, weight: 1, grant: 0 };
const ENTITLED: Standing = Standing { entitled_at: Timestamp::ZERO, weight: 1, grant: 0 };

#[test]
fn who_is_entitled_to_half_a_visit_has_a_whole_one() {
    for (tokens, units) in [(1, 1), (19, 19), (20, 40), (100, 40)] {
        let mut order = ReadOrder::default();
        for key in 0..5 {
            order.wait(key, u64::from(key), ENTITLED, 100, at(0));
        }
        order.begin_turn(200, at(0));
        let visit = order.next(at(0), |_| tokens).unwrap();
        assert_eq!((visit.order, visit.units), (ServiceOrder::Entitled, units), "{tokens} tokens");
    }
}

/// One that sends: `backlog` units wait, `tokens` of them are entitled.
#[derive(Clone, Debug)]
struct Sender {
    parent: u64,
    weight: u32,
    grant: u32,
    backlog: u64,
    tokens: u64,
    /// Units and tokens that come with each turn.
    rate: u64,
    refill: u64,
    served: u64,
    place: Option<ReadPlace>,
    /// Turns since it began to wait, and the longest that it ever waited.
    waits: u64,
    longest: u64,
}

impl Sender {
    fn new(parent: u64, rate: u64, refill: u64) -> Self {
        Self {
            parent,
            weight: 1,
            grant: 0,
            backlog: 0,
            tokens: 0,
            rate,
            refill,
            served: 0,
            place: None,
            waits: 0,
            longest: 0,
        }
    }

    fn standing(&self) -> Standing {
        let entitled_at = if self.tokens > 0 { Timestamp::ZERO } else { Timestamp::MAX };
        Standing { entitled_at, weight: self.weight, grant: self.grant }
    }
}

/// A loop with a capacity, in units for each turn.
struct Loop {
    order: ReadOrder,
    senders: vec::Vec<Sender>,
    capacity: u32,
    turn: u64,
}

impl Loop {
    fn new(senders: vec::Vec<Sender>, capacity: u32) -> Self {
        Self { order: ReadOrder::default(), senders, capacity, turn: 0 }
    }

    /// The answer is what was served.
    fn turn(&mut self) -> u32 {
        self.turn += 1;
        let now = at(self.turn);
        for (key, sender) in self.senders.iter_mut().enumerate() {
            sender.backlog += sender.rate;
            let had_none = sender.tokens == 0;
            sender.tokens = (sender.tokens + sender.refill).min(60 * sender.refill.max(1));
            if sender.backlog > 0 && sender.place.is_none() {
                sender.waits = 0;
                sender.place = Some(self.order.wait(key as u32, sender.parent, sender.standing(), 0, now));
            } else if let (Some(place), true, true) = (sender.place, had_none, sender.tokens > 0) {
                // What a promise of a token does.
                self.order.leave(place);
                sender.place = Some(self.order.wait(key as u32, sender.parent, sender.standing(), 0, now));
            }
        }
        self.order.begin_turn(self.capacity, now);
        let mut left = self.capacity;
        while left > 0 {
            let senders = &self.senders;
            let tokens = |key: u32| senders[key as usize].tokens as u32;
            let Some(visit) = self.order.next(now, tokens) else { break };
            let sender = &mut self.senders[visit.key as usize];
            let used = u64::from(visit.units.min(left)).min(sender.backlog);
            sender.backlog -= used;
            sender.served += used;
            sender.tokens = sender.tokens.saturating_sub(used);
            sender.longest = sender.longest.max(sender.waits);
            sender.waits = 0;
            left -= (used as u32).min(left);
            let result = if sender.backlog == 0 { Served::Dry } else { Served::More(sender.standing()) };
            if sender.backlog == 0 {
                sender.place = None;
            }
            self.order.served(visit.place, used as u32, result, now);
        }
        self.senders.iter_mut().filter(|sender| sender.place.is_some()).for_each(|sender| sender.waits += 1);
        self.capacity - left
    }

    fn run(&mut self, turns: u64) -> &[Sender] {
        (0..turns).for_each(|_| _ = self.turn());
        &self.senders
    }
}

#[test]
fn the_rare_are_served_before_any_flood_whoever_they_are() {
    let mut senders: vec::Vec<_> = (0..20).map(|n| Sender::new(n, 200, 0)).collect();
    senders.push(Sender::new(99, 1, 0));
    let senders = Loop::new(senders, 100).run(200)[20].clone();
    assert_eq!((senders.served, senders.longest), (200, 0), "a stranger with one message a turn");
}

#[test]
fn a_flood_waits_behind_the_others_from_the_turn_in_which_it_begins() {
    let mut senders: vec::Vec<_> = (0..20).map(|n| Sender::new(n, 2, 2)).collect();
    senders.push(Sender::new(99, 2, 2));
    let mut it = Loop::new(senders, 100);
    it.run(100);
    it.senders[20].rate = 1000;
    for _ in 0..100 {
        it.turn();
        let (flooder, others) = it.senders.split_last().unwrap();
        assert!(flooder.backlog > 0 && others.iter().all(|other| other.backlog == 0 && other.longest == 0));
    }
}

#[test]
fn who_is_as_usual_waits_for_nobody_in_excess() {
    // A gateway of 50 units beside five floods of 400 that are used to 1, with a capacity of 100.
    let mut senders: vec::Vec<_> = (0..5).map(|n| Sender::new(n, 400, 2)).collect();
    senders.push(Sender::new(9, 50, 100));
    let served = Loop::new(senders, 100).run(500).to_vec();
    assert_eq!(served[5].longest, 0, "{served:?}");
    assert!(served[5].served >= 24_900, "{}", served[5].served);
    let floods: u64 = served[..5].iter().map(|sender| sender.served).sum();
    assert_eq!(floods + served[5].served, 50_000, "nothing is left unused");
}

#[test]
fn ten_times_as_many_ids_of_one_parent_change_nothing() {
    let share = |ids: u64| {
        let mut senders: vec::Vec<_> = (0..ids).map(|_| Sender::new(1, 1000, 0)).collect();
        senders.extend([Sender::new(2, 1000, 0), Sender::new(3, 1000, 0)]);
        let served = Loop::new(senders, 300).run(300).to_vec();
        served[..ids as usize].iter().map(|sender| sender.served).sum::<u64>()
    };
    let (one, many) = (share(1), share(10));
    assert!(one.abs_diff(many) <= 300 && one.abs_diff(30_000) <= 600, "{one} {many}");
}

#[test]
fn a_grant_stands_with_the_sparse_and_goes_before_who_is_entitled() {
    let mut senders: vec::Vec<_> = (0..100).map(|n| Sender::new(n, 4, 8)).collect();
    senders.push(Sender { grant: 500, ..Sender::new(900, 50, 100) });
    let mut lo = Loop::new(senders, 100);
    // At first everybody is sparse.
    lo.run(20);
    (lo.senders[100].longest, lo.senders[100].served) = (0, 0);
    let granted = &lo.run(300)[100];
    assert_eq!(granted.longest, 0);
    assert!(granted.served >= 14_900, "{}", granted.served);
}

#[test]
fn weights_share_among_equals() {
    let senders = vec![Sender { weight: 3, ..Sender::new(1, 500, 0) }, Sender::new(2, 500, 0)];
    let served = Loop::new(senders, 100).run(400).to_vec();
    assert!(served[0].served.abs_diff(30_000) < 500, "{} {}", served[0].served, served[1].served);
}

#[test]
fn a_flow_that_leaves_in_the_middle_of_its_visit_is_gone_and_the_others_go_on() {
    let mut order = ReadOrder::default();
    let (first, second) = (order.wait(1, 1, STRANGER, 0, at(0)), order.wait(2, 1, STRANGER, 0, at(0)));
    order.begin_turn(100, at(0));
    let visit = order.next(at(0), |_| 0).unwrap();
    assert_eq!((visit.key, visit.place, visit.order), (1, first, ServiceOrder::Sparse));
    order.leave(first);
    order.served(first, 1, Served::More(STRANGER), at(0));
    assert_eq!(order.len(), 1);
    let visit = order.next(at(1), |_| 0).unwrap();
    assert_eq!((visit.key, visit.waited), (2, Duration::from_millis(1)));
    order.leave(second);
    order.leave(second);
    assert_eq!(order.next(at(1), |_| 0), None);
    assert!(order.is_empty());
}

#[test]
fn a_token_that_comes_while_one_waits_moves_it_up() {
    let mut order = ReadOrder::default();
    let promise = Standing { entitled_at: at(10), ..STRANGER };
    order.wait(1, 1, promise, 5, at(0));
    for n in 2..9 {
        order.wait(n, u64::from(n), STRANGER, 5, at(0));
    }
    order.begin_turn(8, at(9));
    let visit = order.next(at(9), |_| 1).unwrap();
    assert_eq!((visit.key, visit.order), (1, ServiceOrder::Excess), "as all others");
    order.served(visit.place, 4, Served::More(promise), at(9));
    order.begin_turn(8, at(10));
    let visit = order.next(at(10), |_| 1).unwrap();
    assert_eq!((visit.key, visit.order, visit.units), (1, ServiceOrder::Entitled, 1));
    order.served(visit.place, 1, Served::More(Standing { entitled_at: at(20), ..STRANGER }), at(10));
    assert_eq!(order.next(at(10), |_| 1).unwrap().order, ServiceOrder::Excess);
}

#[test]
fn nothing_grows_with_time() {
    let mut senders: vec::Vec<_> = (0..50).map(|n| Sender::new(n, 20, 3)).collect();
    senders.extend((50..60).map(|n| Sender::new(n, 1, 1)));
    let mut lo = Loop::new(senders, 100);
    lo.run(20_000);
    let order = &lo.order;
    let entries: usize = order.orders.iter().map(Fair::len).sum::<usize>() + order.promised.len() + order.ahead.len();
    let lists: usize = order.parents.iter().flat_map(|parent| &parent.lists).map(Fair::len).sum();
    assert!(entries < 3 * (4 * 60 + 2 * SWEEP_MIN) && lists < 60 * 3 * (SWEEP_MIN + 4), "{entries} {lists}");
    assert!(order.parents.len() <= 60 && order.flows.len() <= 60);
}

fn senders() -> impl Strategy<Value = vec::Vec<Sender>> {
    let sender = (0..8_u64, 0..40_u64, 0..20_u64, 1..4_u32)
        .prop_map(|(parent, rate, refill, weight)| Sender { weight, ..Sender::new(parent, rate, refill) });
    prop::collection::vec(sender, 1..24)
}

proptest! {
    /// Property 2: nothing is left unused while anybody waits.
    #[test]
    fn it_never_rests_while_anybody_is_unread(senders in senders(), capacity in 1..200_u32) {
        let mut lo = Loop::new(senders, capacity);
        for _ in 0..100 {
            let served = lo.turn();
            let waiting = lo.senders.iter().any(|sender| sender.backlog > 0);
            prop_assert!(served == capacity || !waiting);
            prop_assert_eq!(lo.order.is_empty(), !waiting);
        }
    }

    /// Property 3: who sends within its claim is served within a round, while the claims fit 31/32 of the capacity.
    #[test]
    fn who_conforms_waits_for_one_round_at_most(
        conforming in prop::collection::vec((0..30_u64, 1..6_u64), 1..12),
        floods in 1..20_u64,
    ) {
        let need: u64 = conforming.iter().map(|(_, rate)| *rate).sum();
        let capacity = (need * 32).div_ceil(31) as u32 + 8 + 2 * floods as u32;
        let mut senders: vec::Vec<_> =
            conforming.iter().map(|(parent, rate)| Sender { tokens: 60, ..Sender::new(*parent, *rate, 2 * *rate) }).collect();
        senders.extend((0..floods).map(|n| Sender::new(100 + n, 500, 0)));
        let served = Loop::new(senders, capacity).run(200).to_vec();
        for sender in &served[..conforming.len()] {
            prop_assert!(sender.longest <= 1 && sender.backlog <= 2 * sender.rate, "{:?}", sender);
        }
    }

    /// Property 4: those in excess get what is left, each parent the same.
    #[test]
    fn excess_is_shared_by_parents(floods in 2..10_u64, entitled in 0..30_u64, ids in 1..6_u64) {
        let mut senders: vec::Vec<_> =
            (0..floods).flat_map(|parent| (0..ids).map(move |_| Sender::new(parent, 1000, 0))).collect();
        senders.push(Sender { tokens: 60, ..Sender::new(99, entitled, 2 * entitled) });
        let capacity = 100;
        let served = Loop::new(senders, capacity).run(400).to_vec();
        let all = u64::from(capacity) * 400;
        let shares: vec::Vec<u64> =
            served[..served.len() - 1].chunks(ids as usize).map(|ids| ids.iter().map(|it| it.served).sum()).collect();
        let last = served.last().unwrap().served;
        prop_assert_eq!(shares.iter().sum::<u64>() + last, all);
        prop_assert!(last + 31 >= entitled * 399, "the entitled have theirs: {} of {}", last, entitled * 400);
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        prop_assert!(most - least <= 2 * u64::from(capacity), "{:?}", shares);
    }

    /// Property 7: claims that do not fit are served max-min over parents, by weight.
    #[test]
    fn claims_that_do_not_fit_are_shared_by_weight(weights in prop::collection::vec(1..4_u32, 2..8)) {
        let senders = weights.iter().enumerate().map(|(n, weight)| Sender {
            weight: *weight,
            tokens: 6000,
            ..Sender::new(n as u64, 100, 100)
        });
        let served = Loop::new(senders.collect(), 90).run(500).to_vec();
        let sum: u32 = weights.iter().sum();
        for sender in &served {
            let fair = 90 * 500 * u64::from(sender.weight) / u64::from(sum);
            prop_assert!(sender.served.abs_diff(fair) <= fair / 20 + 200, "{} of {}", sender.served, fair);
        }
    }

    /// Property 8: excess has its part of the work, however much is entitled.
    #[test]
    fn excess_never_starves(entitled in 1..20_u64, capacity in 10..300_u32) {
        let mut senders: vec::Vec<_> =
            (0..entitled).map(|n| Sender { tokens: 60_000, ..Sender::new(n, 1000, 1000) }).collect();
        senders.push(Sender::new(99, 1000, 0));
        let mut lo = Loop::new(senders, capacity);
        lo.run(10);
        let before = lo.senders.last().unwrap().served;
        let after = lo.run(400).last().unwrap().served;
        let part = u64::from(capacity) * 400 / u64::from(EXCESS_EVERY.max(entitled as u32 + 1));
        prop_assert!(after - before + 2 >= part * 95 / 100, "{} of {}", after - before, part);
    }
}
