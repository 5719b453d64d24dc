//! The broker's side: what the request pool answers in time, how a burst is spread, what everybody is advised.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::admission::{AdmissionRequest, Class, PoolConfig, RequestPool};
use tidegate_control::advice::{AdviceConfig, Declared, StretchAdvice};
use tidegate_control::appointments::{Appointment, Appointments, AppointmentsConfig, Server, TicketKey, Visitor};
use tidegate_control::hints::Hints;
use tidegate_control::pacer::{Outcome, Pacer, PacerConfig, Preset};

use crate::Drawn;
use crate::chance::{exponential, seeded};
use crate::plot::{Axis, Curve, CurveShape, Figure, evenly, thinned};

/// What a pool did with a Poisson flow of requests.
struct Served {
    /// Answers within 2 s, as a share of what the server could do.
    goodput: f64,
    /// Mean time in the queue of those that were taken, seconds.
    queued: f64,
}

/// Requests of 5 ms for one server, at `load` times its capacity, for 100 s.
fn serve(config: &PoolConfig, load: f64) -> Drawn<Served> {
    let mut pool: RequestPool<f64> = RequestPool::new(config)?;
    let mut chance = seeded(2);
    let (mut arrival, mut free) = (0.0, 0.0);
    let (mut in_time, mut taken, mut queued) = (0_u32, 0_u32, 0.0);
    while arrival < 100.0 {
        arrival += exponential(&mut chance, COST / load);
        while free <= arrival {
            let Some(next) = pool.take(Timestamp::from_secs_f64(free)) else { break };
            free += COST;
            pool.on_served(next.job, Duration::from_secs_f64(COST));
            in_time += u32::from(free - next.value <= 2.0);
            taken += 1;
            queued += next.queued.as_secs_f64();
        }
        free = f64::max(free, arrival);
        let request = AdmissionRequest { class: Class::Query, key: None, deadline: None, value: arrival };
        // Refused or not, the arrivals go on: an open loop.
        let _ = pool.offer(Timestamp::from_secs_f64(arrival), request);
        while pool.poll_ended().is_some() {}
    }
    Ok(Served { goodput: f64::from(in_time) * COST / 100.0, queued: queued / f64::from(taken) })
}

/// The default pool, and a pool of the papers with room for so many seconds of work.
fn pools() -> [(&'static str, PoolConfig); 3] {
    let mut bounded = PoolConfig::default();
    for class in &mut bounded.classes {
        class.cost_initial = Duration::from_secs_f64(COST);
    }
    [
        ("default: 100 ms of delay, deadlines", bounded),
        ("papers: 100 requests (0.5 s)", PoolConfig::paper(100)),
        ("papers: 1000 requests (5 s)", PoolConfig::paper(1000)),
    ]
}

fn over_loads(value: impl Fn(&Served) -> f64) -> Drawn<Vec<Curve>> {
    let mut curves = Vec::new();
    for (label, config) in pools() {
        let mut points = Vec::new();
        for load in evenly(0.1, 3.0, 30) {
            points.push((load, value(&serve(&config, load)?)));
        }
        curves.push(Curve::new(label, CurveShape::Line, points));
    }
    Ok(curves)
}

/// Answers in time over the offered load.
pub(crate) fn goodput() -> Drawn<Figure> {
    Ok(Figure {
        title: "Answers within 2 s, by offered load",
        x: Axis::linear("offered load, times the capacity", 0.0, 3.0, 0.5),
        y: Axis::linear("goodput, share of the capacity", 0.0, 1.1, 0.2),
        curves: over_loads(|served| served.goodput)?,
    })
}

/// Time in the queue over the offered load.
pub(crate) fn delay() -> Drawn<Figure> {
    let ticks = [(1.0, "1 ms"), (10.0, "10 ms"), (100.0, "100 ms"), (1000.0, "1 s"), (10_000.0, "10 s")];
    Ok(Figure {
        title: "Time in the queue, by offered load",
        x: Axis::linear("offered load, times the capacity", 0.0, 3.0, 0.5),
        y: Axis::logarithmic("mean time in the queue", 0.5, 10_000.0, &ticks),
        curves: over_loads(|served| (served.queued * 1000.0).max(0.5))?,
    })
}

/// The answers to 1500 clients that come at the same moment with 100 ms of work each.
pub(crate) fn slots() -> Drawn<Figure> {
    let mut book = Appointments::new(&AppointmentsConfig::default(), TicketKey::new(*b"only for a curve"))?;
    let mut chance = seeded(6);
    let [mut promised, mut advised] = [const { Vec::new() }; 2];
    for client in 0..1500_u32 {
        let visitor = Visitor { client: &client.to_le_bytes(), work: Duration::from_millis(100), ticket: None };
        match book.decide(Timestamp::ZERO, &visitor, Server::Busy, &mut chance) {
            Appointment::Admit => promised.push((f64::from(client), 0.0)),
            Appointment::Deny { retry_after, ticket } => {
                let list = if ticket.is_some() { &mut promised } else { &mut advised };
                list.push((f64::from(client), retry_after.as_secs_f64()));
            }
        }
    }
    Ok(Figure {
        title: "1500 clients come at once, 100 ms of work each, horizon 120 s",
        x: Axis::linear("client, in order of arrival", 0.0, 1500.0, 250.0),
        y: Axis::linear("come back in, s", 0.0, 250.0, 50.0),
        curves: vec![
            Curve::new("slot with a ticket: a promise", CurveShape::Line, thinned(&promised, 100)),
            Curve::new("beyond the horizon: advice, no ticket", CurveShape::Dots, thinned(&advised, 150)),
        ],
    })
}

/// How a burst of 2000 clients drains: with slots, and with plain denials.
pub(crate) fn burst() -> Drawn<Figure> {
    let ideal = vec![(0.0, 0.0), (CLIENTS * COST, CLIENTS), (60.0, CLIENTS)];
    Ok(Figure {
        title: "2000 clients come at once, 5 ms of work each",
        x: Axis::linear("time, s", 0.0, 60.0, 10.0),
        y: Axis::linear("clients served", 0.0, 2100.0, 500.0),
        curves: vec![
            Curve::new("ideal", CurveShape::Dashed, ideal),
            Curve::new("appointments", CurveShape::Line, drained(Preset::Active, true)?),
            Curve::new("deny, practical urgent fetch", CurveShape::Line, drained(Preset::Active, false)?),
            Curve::new("deny, active-p19", CurveShape::Steps, drained(Preset::ActiveP19, false)?),
        ],
    })
}

/// Clients served over time. Whoever finds more than 100 ms of work is denied, with a slot or without.
fn drained(preset: Preset, slots: bool) -> Drawn<Vec<(f64, f64)>> {
    let plan = PacerConfig::from(preset).build()?;
    let mut book = Appointments::new(&AppointmentsConfig::default(), TicketKey::new(*b"only for a curve"))?;
    let mut chance = seeded(7);
    let mut clients = vec![(Pacer::new(&plan), None); CLIENTS as usize];
    let mut arrivals: BinaryHeap<_> = (0..clients.len()).map(|client| Reverse((Timestamp::ZERO, client))).collect();
    let (mut free, mut done) = (0.0, vec![(0.0, 0.0)]);
    while let Some(Reverse((now, client))) = arrivals.pop() {
        if now.as_secs_f64() > 60.0 {
            break;
        }
        let backlog = f64::max(free - now.as_secs_f64(), 0.0);
        let (pacer, ticket) = &mut clients[client];
        let name = client.to_le_bytes();
        let visitor = Visitor { client: &name, work: Duration::from_secs_f64(COST), ticket: *ticket };
        let server = if backlog > 0.0 { Server::Busy } else { Server::Idle };
        let hints = match slots.then(|| book.decide(now, &visitor, server, &mut chance)) {
            Some(Appointment::Deny { retry_after, ticket }) => {
                Some(Hints { retry_after: Some(retry_after), ticket, ..Hints::default() })
            }
            None if backlog > 0.1 => Some(Hints::default()),
            Some(Appointment::Admit) | None => None,
        };
        if let Some(hints) = hints {
            pacer.on_user_waiting();
            *ticket = hints.ticket;
            let delay = pacer.on_outcome(now, &Outcome::Denied { hints }, &mut chance).ok_or("level none")?;
            arrivals.push(Reverse((now + delay, client)));
        } else {
            free = f64::max(free, now.as_secs_f64()) + COST;
            done.push((free, done.len() as f64));
        }
    }
    let last = (60.0, (done.len() - 1) as f64);
    Ok(thinned(&done, 250).into_iter().chain([last]).collect())
}

/// σ and what is left of the load when everybody obeys, over the declared demand.
pub(crate) fn advice() -> Drawn<Figure> {
    let cost = Duration::from_millis(5);
    let mut advice = StretchAdvice::new(&AdviceConfig::default())?;
    let (mut factor, mut load, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
    // Each session wants a check every 10 s: 20 of them are 1 % of the host.
    for session in 1..=10_000_u32 {
        advice.declare(&mut Declared::default(), Duration::from_secs(10));
        if session.is_multiple_of(100) {
            let demand = advice.demand() * cost.as_secs_f64();
            let stretch = advice.stretch(cost);
            factor.push((demand, stretch));
            load.push((demand, demand / stretch));
            wanted.push((demand, demand));
        }
    }
    Ok(Figure {
        title: "Advised stretch, and the load when all obey",
        x: Axis::linear("declared demand, times the capacity", 0.0, 5.0, 0.5),
        y: Axis::linear("σ; load, times the capacity", 0.0, 6.0, 1.0),
        curves: vec![
            Curve::new("σ", CurveShape::Line, factor),
            Curve::new("load with advice", CurveShape::Line, load),
            Curve::new("load without", CurveShape::Dashed, wanted),
        ],
    })
}

/// Seconds that a request takes.
const COST: f64 = 0.005;
const CLIENTS: f64 = 2000.0;
