use super::*;

/// Draws that do not matter here.
pub(super) struct Fixed;

impl rand_core::TryRng for Fixed {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(7)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(7)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        bytes.fill(7);
        Ok(())
    }
}

const WORK: Duration = Duration::from_millis(1);

fn pool() -> RequestQueue<u64> {
    let mut config = PoolConfig::default();
    config.classes[Class::Update.index()].cost_initial = WORK;
    let servers = Servers { threads: 1, long_max: 1, worth: 1, apart_max: 0 };
    RequestQueue::new(&config, servers, TicketKey::new([3; 16])).unwrap()
}

fn at(nanos: u128) -> Timestamp {
    Timestamp::from_nanos(u64::try_from(nanos).unwrap())
}

fn offer(pool: &mut RequestQueue<u64>, now: Timestamp, caller: &Caller) -> Result<(), Box<Hints>> {
    offer_like(pool, now, caller, Shape::default())
}

/// What differs from others in constants only.
const ALIKE: Shape = Shape { exact: 0, kind: 1, size: 0, own: 0 };

fn offer_like(pool: &mut RequestQueue<u64>, now: Timestamp, caller: &Caller, shape: Shape) -> Result<(), Box<Hints>> {
    let client = caller.client;
    let patience = Duration::from_secs(10);
    let request = Arrival {
        class: Class::Update,
        key: None,
        kp: KpPlace::default(),
        check: None,
        shape,
        patience,
        terms: WaitTerms::default(),
        value: client,
    };
    let hints = pool.hints(now, Class::Update, caller);
    match pool.offer(now, request, caller, &hints, &mut Fixed) {
        Entered::Waits => Ok(()),
        Entered::Refused(value, hints) => {
            assert_eq!(value, caller.client, "it comes back to whoever offered it");
            Err(hints)
        }
        Entered::Dropped(_) => panic!("nobody said drop-newest"),
    }
}

/// A burst of clients at once, and a server that needs this long for each; those sent away come when they were told,
/// those who waited in vain at once. Virtual time. Multiples of the ideal time, and requests of each client.
fn burst(pool: &mut RequestQueue<u64>, work: Duration) -> (f64, f64) {
    const CLIENTS: u64 = 2000;
    // Who comes when: time, client, ticket, first time.
    let mut arrivals: std::collections::BTreeMap<(u128, u64), Option<Ticket>> =
        (0..CLIENTS).map(|client| ((0, client), None)).collect();
    let (mut requests, mut served, mut now) = (0u64, Vec::new(), 0u128);
    let mut busy: Option<(u128, Job, u64)> = None;
    while served.len() < CLIENTS as usize {
        let next_arrival = arrivals.keys().next().map(|(time, _)| *time);
        let next_end = busy.as_ref().map(|(end, ..)| *end);
        now = match (next_arrival, next_end) {
            (Some(arrival), Some(end)) => arrival.min(end),
            (Some(time), None) | (None, Some(time)) => time,
            (None, None) => panic!("{} served, and nobody will come", served.len()),
        }
        .max(now);
        if let Some((end, job, client)) = busy.take() {
            if end <= now {
                pool.served(job, work);
                served.push(client);
            } else {
                busy = Some((end, job, client));
            }
        }
        while let Some(entry) = arrivals.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, client), ticket) = entry.remove_entry();
            requests += 1;
            let caller = Caller { client, ticket, want: None, accepts_tickets: true, ..Caller::default() };
            if let Err(hints) = offer_like(pool, at(now), &caller, ALIKE) {
                let after = hints.retry_after.unwrap();
                assert!(hints.ticket.is_some() || after > Duration::from_secs(60), "a promise, or it is far away");
                arrivals.insert((now + after.as_nanos(), client), hints.ticket);
            }
        }
        if busy.is_none()
            && let Some(Taken { job, value, .. }) = pool.take(at(now))
        {
            busy = Some((now + work.as_nanos(), job, value));
        }
        arrivals.extend(pool.drain().into_iter().map(|ended| match ended {
            // Whoever waited in vain asks again.
            EndedWait::Late(client) | EndedWait::Outdated(client) | EndedWait::Dropped(client) => ((now, client), None),
            EndedWait::SentAway(client, place) => ((now + place.retry_after.as_nanos(), client), place.ticket),
        }));
    }
    let ideal = u128::from(CLIENTS) * work.as_nanos();
    (now as f64 / ideal as f64, requests as f64 / CLIENTS as f64)
}

#[test]
fn a_burst_is_served_in_order_by_appointments_and_nobody_asks_more_than_twice_or_so() {
    let (time, requests) = burst(&mut pool(), WORK);
    assert!(time <= 1.15, "{time} times the ideal time");
    assert!(requests <= 2.1, "{requests} requests of each client");
}

/// Nothing was served yet, and each costs forty times as much as is assumed: places were promised too densely, and those who
/// kept them found the queue full, got another place and took twice the time, because what had been let in before anybody
/// knew better counted as that of strangers.
#[test]
fn a_burst_of_dear_requests_at_a_cold_start_takes_little_longer_than_it_must() {
    let (time, requests) = burst(&mut pool(), WORK * 40);
    println!("{time:.2} times the ideal time, {requests:.2} requests of each client");
    assert!(time <= 1.25, "{time} times the ideal time");
    assert!(requests <= 3.1, "{requests} requests of each client");
}

/// Nobody knows what a request costs until some were served: places that are given before that are as wrong as the guess.
#[test]
fn before_anything_was_served_whoever_keeps_appointments_waits_until_a_place_is_worth_something() {
    const DEAR: Duration = Duration::from_millis(40);
    let mut pool = pool();
    let caller = |client| Caller { client, accepts_tickets: true, ..Caller::default() };
    let mut now = at(0);
    assert!(offer_like(&mut pool, now, &caller(0), ALIKE).is_ok());
    let mut running = pool.take(now).unwrap();
    for client in 1..2000 {
        assert!(offer_like(&mut pool, now, &caller(client), ALIKE).is_ok(), "{client} is told to come by a guess");
    }
    let mut served = 0_u32;
    let sent_away = loop {
        now = now + DEAR;
        pool.served(running.job, DEAR);
        served += 1;
        running = pool.take(now).unwrap();
        let ended = pool.drain();
        if !ended.is_empty() {
            break ended;
        }
    };
    assert!(now <= at(7_500_000_000) + DEAR, "they hear of it while they still wait");
    assert!(served >= 100 && sent_away.len() > 1500, "{served} served, {} sent away", sent_away.len());
    let mut slots = Vec::new();
    for ended in sent_away {
        let EndedWait::SentAway(client, place) = ended else { panic!("{ended:?} waited in vain") };
        assert!(place.ticket.is_some() && client > u64::from(served), "who came first stays: {client} {place:?}");
        slots.push(place.retry_after);
    }
    assert!(slots[0] <= Duration::from_millis(200), "{:?}", slots[0]);
    let apart = slots[slots.len() - 1].saturating_sub(slots[0]).as_secs_f64() / (slots.len() - 1) as f64;
    assert!((0.036..=0.0401).contains(&apart), "{apart} s between two places");
    // From here on places are given at the door, behind all of those.
    let hints = offer_like(&mut pool, now, &caller(5000), ALIKE).unwrap_err();
    assert!(hints.ticket.is_some() && hints.retry_after.unwrap() > *slots.last().unwrap(), "{hints:?}");
}

#[test]
fn a_ticket_is_bound_to_its_client_and_honoured_once() {
    let mut pool = pool();
    let start = at(1_000_000_000);
    let mut denied = None;
    for client in 0..102 {
        denied = offer(&mut pool, start, &Caller { client, accepts_tickets: true, ..Caller::default() })
            .err()
            .map(|hints| (client, hints));
    }
    let (client, hints) = denied.unwrap();
    let (ticket, after) = (hints.ticket.unwrap(), hints.retry_after.unwrap());
    assert!(hints.permitted.unwrap() >= Duration::from_millis(100), "D_br");
    // Nothing was served meanwhile: the queue is as full as before, and the place is kept all the same.
    let then = start + after;
    let thief = Caller { client: 7, ticket: Some(ticket), want: None, accepts_tickets: true, ..Caller::default() };
    assert!(offer(&mut pool, then, &thief).is_err(), "another's ticket");
    let owner = Caller { client, ticket: Some(ticket), want: None, accepts_tickets: true, ..Caller::default() };
    assert!(offer(&mut pool, then, &owner).is_ok());
    assert!(offer(&mut pool, then, &owner).is_err(), "once");
}

#[test]
fn who_comes_long_before_its_time_keeps_its_place_and_waits_if_it_can() {
    let (mut pool, start) = (pool(), at(1_000_000_000));
    let caller = |client, ticket| Caller { client, ticket, want: None, accepts_tickets: true, ..Caller::default() };
    let denied = |pool: &mut RequestQueue<u64>, client| offer(pool, start, &caller(client, None)).err();
    let places: Vec<_> = (0..20_000).filter_map(|client| Some((client, denied(&mut pool, client)?))).collect();
    let (client, hints) = places.last().unwrap();
    let (ticket, after) = (hints.ticket, hints.retry_after.unwrap());
    assert!(after > Duration::from_secs(15), "{after:?}");
    let before = pool.book.wait(start);
    let told = offer(&mut pool, start + Duration::from_secs(1), &caller(*client, ticket)).unwrap_err();
    assert_eq!(
        (told.ticket, told.retry_after),
        (ticket, Some(after.saturating_sub(Duration::from_secs(1)))),
        "the same place"
    );
    assert_eq!(pool.book.wait(start), before, "and no other");
    // Half of its patience early: it can wait for that.
    let (client, hints) = &places[4000];
    assert!(offer(&mut pool, start, &caller(*client, hints.ticket)).is_ok());
}

/// A host at a tenth of its speed: whoever comes for its place finds it late, and is told another time, in the order in which
/// they came and before those who were promised a later one.
#[test]
fn a_place_at_a_host_that_slows_is_moved_and_not_lost() {
    let (mut pool, start) = (pool(), at(1_000_000_000));
    let caller = |client, ticket| Caller { client, ticket, want: None, accepts_tickets: true, ..Caller::default() };
    let denied = |pool: &mut RequestQueue<u64>, client| offer_like(pool, start, &caller(client, None), ALIKE).err();
    let places: Vec<_> = (0..20_000).filter_map(|client| Some((client, denied(&mut pool, client)?))).collect();
    let end = pool.book.wait(start);
    fill(&mut pool, start, Duration::from_secs(8), &mut (50_000..));
    let (mut last, mut moved) = (Duration::ZERO, 0);
    for (client, hints) in &places[..500] {
        let now = start + hints.retry_after.unwrap();
        if let Err(told) = offer_like(&mut pool, now, &caller(*client, hints.ticket), ALIKE) {
            let then = hints.retry_after.unwrap() + told.retry_after.unwrap();
            assert!(told.ticket.is_some(), "{told:?}");
            assert!(then < end, "{client} went to the back: {then:?} of {end:?}");
            moved += 1;
            last = last.max(then);
        }
    }
    assert!(moved > 300 && last < Duration::from_secs(12), "{moved} moved, the last to {last:?}");
}

/// Others who know no tickets, until so much waits.
fn fill(pool: &mut RequestQueue<u64>, now: Timestamp, backlog: Duration, clients: &mut std::ops::RangeFrom<u64>) {
    while pool.backlog(now) < backlog {
        let client = clients.next().unwrap();
        let caller = Caller { client, ticket: None, want: None, accepts_tickets: false, ..Caller::default() };
        assert!(offer(pool, now, &caller).is_ok(), "they have the patience");
    }
}

#[test]
fn a_place_is_kept_for_a_request_that_needs_most_of_its_patience_for_itself() {
    const DEAR: Shape = Shape { exact: 9, kind: 9, size: 0, own: 0 };
    let (mut pool, mut clients) = (pool(), 1..);
    let caller = |ticket| Caller { client: 0, ticket, want: None, accepts_tickets: true, ..Caller::default() };
    for client in clients.by_ref().take(20) {
        let teacher = Caller { client, ticket: None, want: None, accepts_tickets: true, ..Caller::default() };
        assert!(offer_like(&mut pool, at(0), &teacher, DEAR).is_ok());
        let taken = pool.take(at(0)).unwrap();
        pool.served(taken.job, Duration::from_secs(6));
    }
    fill(&mut pool, at(0), Duration::from_secs(2), &mut clients);
    let hints = offer_like(&mut pool, at(0), &caller(None), DEAR).unwrap_err();
    let (due, ticket) = (hints.retry_after.unwrap(), hints.ticket);
    assert!(ticket.is_some(), "{hints:?}");
    // Longer than whoever has no place may make others wait, and shorter than anybody's patience.
    fill(&mut pool, at(due.as_nanos()), Duration::from_secs(2), &mut clients);
    assert!(offer_like(&mut pool, at(due.as_nanos()), &caller(ticket), DEAR).is_ok(), "it was told to come now");
}

#[test]
fn whoever_says_what_it_wants_is_told_what_fits_until_it_is_silent() {
    let mut pool = pool();
    let start = at(0);
    let want = |client| Caller {
        client,
        want: Some(Duration::from_millis(100)),
        ticket: None,
        accepts_tickets: true,
        ..Caller::default()
    };
    // 100 clients at 10/s with 1 ms each are what the host can do; 300 are three times too much.
    for client in 0..300 {
        pool.hints(start, Class::Update, &want(client));
    }
    let hints = pool.hints(start, Class::Update, &want(0));
    let stretch = hints.stretch.unwrap();
    assert!((3.0..3.6).contains(&stretch), "{stretch}");
    let interval = hints.interval.unwrap();
    assert!((Duration::from_millis(300)..Duration::from_millis(360)).contains(&interval), "{interval:?}");
    assert_eq!(pool.hints(start, Class::Update, &Caller::default()).stretch, None, "who did not ask is not told");
    let later = start + Duration::from_secs(10);
    for _ in 0..300 {
        pool.hints(later, Class::Update, &Caller::default());
    }
    assert!(pool.wants.is_empty() && pool.silent.is_empty() && pool.advice.demand() == 0.0);
}

#[test]
fn the_longest_want_under_the_largest_stretch_is_a_time() {
    let mut pool = pool();
    let want =
        |client, want| Caller { client, want: Some(want), ticket: None, accepts_tickets: true, ..Caller::default() };
    // 20 000 that want 20 a second each, at 1 ms: four hundred times too much; then each costs a second.
    for client in 0..20_000 {
        pool.hints(at(0), Class::Update, &want(client, Duration::ZERO));
    }
    pool.advice.on_served(Duration::from_secs(1));
    pool.is_untried = false;
    for longest in [Duration::from_millis(u64::MAX), Duration::MAX] {
        let hints = pool.hints(at(0), Class::Update, &want(20_000, longest));
        assert_eq!((hints.stretch, hints.interval), (Some(1000.0), Some(WANT_MAX * 1000)));
    }
}

#[test]
fn one_that_wants_little_does_not_keep_the_others_from_being_forgotten() {
    let mut pool = pool();
    let want = |client, seconds| Caller {
        client,
        want: Some(Duration::from_secs(seconds)),
        accepts_tickets: true,
        ..Caller::default()
    };
    pool.hints(at(0), Class::Update, &want(0, u64::MAX));
    for client in 1..=8 {
        pool.hints(at(0), Class::Update, &want(client, 1));
    }
    let later = at(0) + Duration::from_secs(60);
    for _ in 0..2 {
        pool.hints(later, Class::Update, &Caller::default());
    }
    assert_eq!((pool.wants.len(), pool.silent.len()), (1, 1), "the one that wants little");
    pool.hints(later, Class::Update, &want(0, 1));
    pool.hints(later + Duration::from_secs(60), Class::Update, &Caller::default());
    assert!(pool.wants.is_empty() && pool.silent.is_empty(), "what it wants now counts");
}

#[test]
fn whoever_was_sent_away_does_not_come_of_its_own_accord() {
    let mut pool = pool();
    let start = at(1_000_000_000);
    let caller = |client| Caller {
        client,
        want: Some(Duration::from_secs(10)),
        ticket: None,
        accepts_tickets: true,
        ..Caller::default()
    };
    let refused = (0..2000).find(|client| offer(&mut pool, start, &caller(*client)).is_err()).unwrap();
    assert!(pool.wants[&refused].is_refused);
    pool.hints(start, Class::Update, &caller(refused));
    assert!(!pool.wants[&refused].is_refused, "once");
    assert!(!pool.wants[&0].is_refused);
}

/// One bulk load, four clients that know no tickets and ask again at once, and two that do: nobody is refused for as long as
/// anybody asks (76 to 97 % were).
#[test]
fn clients_that_know_no_tickets_are_served_beside_those_that_do() {
    let mut pool = pool();
    let plain = |client| Caller { client, ..Caller::default() };
    let mut now = at(1_000_000_000);
    let bulk = offer(&mut pool, now, &plain(99));
    assert!(bulk.is_ok());
    let taken = pool.take(now).unwrap();
    // Some that accept tickets are sent away with promises that they will never keep.
    for client in 200..1200 {
        let _ = offer(&mut pool, now, &Caller { client, accepts_tickets: true, ..Caller::default() });
    }
    now = now + Duration::from_millis(900);
    pool.served(taken.job, Duration::from_millis(900));
    let (mut served, mut refused) = (0, 0);
    for _ in 0..500 {
        for client in 0..4 {
            if offer(&mut pool, now, &plain(client)).is_err() {
                refused += 1;
            }
        }
        while let Some(taken) = pool.take(now) {
            now = now + WORK;
            served += u32::from(taken.value < 4);
            pool.served(taken.job, WORK);
        }
    }
    assert_eq!((served, refused), (2000, 0));
}
