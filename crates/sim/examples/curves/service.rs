//! The order of service: real claims and the real order, a loop that can do so much and no more.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::claim::{Claim, ClaimPlan};
use tidegate_control::order::{ReadOrder, ReadPlace, Served, Standing};

use crate::plot::{Axis, Curve, CurveShape, Figure};

/// Units of work a second.
const CAPACITY: u32 = 400;
const TICK: Duration = Duration::from_millis(10);
const SECONDS: usize = 50;

struct Sender {
    claim: Claim,
    due: f64,
    unread: u32,
    dry_at: Timestamp,
    place: Option<ReadPlace>,
    /// Messages that were read in each second.
    served: [f64; SECONDS],
}

impl Sender {
    fn new(plan: &ClaimPlan, usual: f32) -> Self {
        let claim = Claim::resume(plan, usual, 1, Timestamp::ZERO);
        Self { claim, due: 0.0, unread: 0, dry_at: Timestamp::ZERO, place: None, served: [0.0; SECONDS] }
    }

    fn standing(&self, plan: &ClaimPlan, now: Timestamp) -> Standing {
        let missing = 1.0 - self.claim.tokens_at(plan, now, self.dry_at);
        let rate = self.claim.rate().unwrap_or(1.0) * plan.headroom;
        let entitled_at =
            if missing <= 0.0 { Timestamp::ZERO } else { now + Duration::from_secs_f32((missing / rate).max(1e-4)) };
        Standing { entitled_at, weight: 1, grant: 0 }
    }

    fn read(&mut self, plan: &ClaimPlan, units: u32, now: Timestamp) -> u32 {
        let units = units.min(self.unread);
        for _ in 0..units {
            if self.claim.ends_second(now) {
                self.claim.go_on(plan, now, self.dry_at, f32::INFINITY);
            }
            let _ = self.claim.on_message(plan, now, self.dry_at);
        }
        self.unread -= units;
        units
    }
}

/// A device floods beside twenty others and a gateway.
pub(crate) fn flood() -> Figure {
    let plan = ClaimPlan::default();
    // A gateway, the flooder, and twenty devices, each from a network of its own.
    let usual = |index: usize| if index == 0 { 100.0 } else { 5.0 };
    let mut senders: Vec<Sender> = (0..22).map(|index| Sender::new(&plan, usual(index) as f32)).collect();
    let mut order = ReadOrder::default();
    for tick in 1..(SECONDS as u32 * 100) {
        let now = Timestamp::ZERO + TICK * tick;
        let second = (tick / 100) as usize;
        for (index, sender) in senders.iter_mut().enumerate() {
            let is_flood = index == 1 && (10..30).contains(&second);
            sender.due += if is_flood { 1000.0 } else { usual(index) } * TICK.as_secs_f64();
            let come = sender.due as u32;
            sender.due -= f64::from(come);
            // What a socket holds; the rest waits with the client, and is given up.
            sender.unread = (sender.unread + come).min(2000);
            if sender.place.is_none() {
                sender.dry_at = now;
                let standing = sender.standing(&plan, now);
                sender.place =
                    (sender.unread > 0).then(|| order.wait(index as u32, index as u64 + 1, standing, 0, now));
            }
        }
        let mut left = CAPACITY / 100;
        order.begin_turn(left, now);
        while left > 0 {
            let tokens = |key: u32| {
                let sender = &senders[key as usize];
                sender.claim.tokens_at(&plan, now, sender.dry_at) as u32
            };
            let Some(visit) = order.next(now, tokens) else { break };
            let sender = &mut senders[visit.key as usize];
            let units = sender.read(&plan, visit.units.min(left), now);
            sender.served[second] += f64::from(units);
            left -= units.clamp(1, left);
            let served = if sender.unread == 0 { Served::Dry } else { Served::More(sender.standing(&plan, now)) };
            if served == Served::Dry {
                sender.place = None;
            }
            order.served(visit.place, units, served, now);
        }
    }
    let sum = |from: usize, to: usize| {
        let rate = |second: usize| senders[from..to].iter().map(|sender| sender.served[second]).sum::<f64>();
        (0..SECONDS).map(|second| (second as f64, rate(second))).collect::<Vec<_>>()
    };
    Figure {
        title: "A device of 5 messages/s sends 1000/s for 20 s, beside others; the loop can do 400/s",
        x: Axis::linear("time, s", 0.0, 50.0, 10.0),
        y: Axis::linear("messages read per second", 0.0, 450.0, 50.0),
        curves: vec![
            Curve::new("the gateway, usually 100/s", CurveShape::Steps, sum(0, 1)),
            Curve::new("twenty devices, 5/s each", CurveShape::Steps, sum(2, 22)),
            Curve::new("the flooder", CurveShape::Steps, sum(1, 2)),
            Curve::new("what the loop can do", CurveShape::Dashed, vec![(0.0, 400.0), (50.0, 400.0)]),
        ],
    }
}
