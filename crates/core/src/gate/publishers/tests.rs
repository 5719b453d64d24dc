//! Publishers that come, are learned, expire and are restored.

use super::*;
use proptest::prelude::*;
use tidegate_control::rhythm::RhythmConfig;

fn key(user: Option<&str>, peer: &str, client_id: &str) -> String {
    key_of(
        &Identity { user: user.map(Into::into), peer: peer.into(), listener: "mqtt", roles: None, claims: None },
        client_id,
    )
}

#[test]
fn a_principal_is_an_identifier_of_its_user_or_in_its_network() {
    assert_eq!(key(Some("u"), "10.0.0.1:1", "a"), key(Some("u"), "[::1]:2", "a"), "a user everywhere");
    assert_ne!(key(Some("u"), "10.0.0.1:1", "a"), key(Some("u"), "10.0.0.1:1", "b"), "devices of one user");
    assert_eq!(key(None, "10.0.0.1:1", "a"), key(None, "10.0.0.200:9", "a"), "a /24");
    assert_eq!(key(None, "[2001:db8::1]:1", "a"), key(None, "[2001:db8::ffff:1]:2", "a"), "a /64");
    assert_eq!(key(None, "[::ffff:10.0.0.1]:1", "a"), key(None, "10.0.0.2:1", "a"), "mapped addresses");
    assert_ne!(key(None, "10.0.0.1:1", "a"), key(None, "10.0.1.1:1", "a"));
    assert_ne!(key(None, "10.0.0.1:1", "a"), key(None, "10.0.0.1:1", "b"), "neighbours behind one NAT");
    for peer in ["10.0.0.1:1", "[2001:db8::1]:1", "pipe"] {
        for user in [None, Some("4u ] a")] {
            let identity =
                Identity { user: user.map(Into::into), peer: peer.into(), listener: "mqtt", roles: None, claims: None };
            assert_eq!(parent_in(&key_of(&identity, "a ] b")), Some(&*parent_name(&identity)), "{peer}");
        }
        assert_eq!(client_in(&key(None, peer, "a ] b")), Some("a ] b"), "{peer}");
        assert_eq!(client_in(&key(Some("4u ] a"), peer, "c ] d")), Some("c ] d"), "{peer}");
    }
    assert_eq!(client_in("uanna"), None, "from before there were clients of users");
    assert_ne!(key(Some("a"), "10.0.0.1:1", "a"), key(None, "10.0.0.1:1", "a"), "no user by name of a client");
}

#[test]
fn the_oldest_without_a_connection_goes_first_and_the_hour_counts_from_the_last_one() {
    let plan = RhythmConfig::default().build().unwrap();
    let at = |secs: u32| Timestamp::from_secs_f64(secs.into());
    let hour = Duration::from_secs(3600);
    let mut publishers = Publishers::new(1);
    let learned = || Rhythm::resume(&plan, Duration::from_secs(1), at(0));
    let (first, second) = (publishers.join("first", 1, learned), publishers.join("second", 1, learned));
    assert_eq!(publishers.join("first", 1, || panic!("known")), first, "a second connection");
    publishers.leave(first, at(0));
    publishers.leave(second, at(10));
    publishers.expire(hour, at(3700));
    assert!(publishers.find("first").is_some(), "still connected once");
    assert!(publishers.find("second").is_none());
    publishers.leave(first, at(3700));
    for n in 0..PUBLISHERS_IDLE_MAX {
        let slot = publishers.join(&alloc::format!("n{n}"), 1, learned);
        publishers.leave(slot, at(3701));
    }
    assert_eq!(publishers.idle.since.len(), PUBLISHERS_IDLE_MAX);
    assert!(publishers.find("first").is_none(), "the oldest made room");
}

#[test]
fn f057_names_that_come_once_do_not_grow_the_table_nor_push_out_who_is_known() {
    let plan = RhythmConfig::default().build().unwrap();
    let mut publishers = Publishers::new(1);
    let known = publishers.join("known", 1, || Rhythm::resume(&plan, Duration::from_secs(1), Timestamp::ZERO));
    publishers.leave(known, Timestamp::ZERO);
    for n in 0..100_000_u32 {
        let slot = publishers.join(&alloc::format!("n{n}"), 1, || Rhythm::new(&plan));
        publishers.leave(slot, Timestamp::from_secs_f64(f64::from(n) / 100.0));
    }
    assert!(publishers.len() <= STRANGERS_IDLE_MAX + 1, "{}", publishers.len());
    assert!(publishers.find("known").is_some());
}

/// What happens to the identifiers of two parents in a loop that can do 400 messages a second: a hundred for each.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It publishes so many messages in each of ninety calm seconds, and stays or leaves.
    Train { id: u8, per_second: u32, stays: bool },
    /// Time passes.
    Wait(u32),
    /// The broker starts again with what was kept of it.
    Import { id: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let train = (0..12_u8, 1..120_u32, any::<bool>());
    let step = prop_oneof![
        8 => train.prop_map(|(id, per_second, stays)| Step::Train { id, per_second, stays }),
        1 => (1..2400_u32).prop_map(Step::Wait),
        1 => (0..12_u8).prop_map(|id| Step::Import { id }),
    ];
    prop::collection::vec(step, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The cap of a parent holds over all claims that are alive, whichever way they were trained.
    #[test]
    fn identifiers_trained_one_after_the_other_have_no_more_than_those_trained_together(steps in steps()) {
        let plan = RhythmConfig::default().build().unwrap();
        let hour = Duration::from_secs(3600);
        let mut publishers = Publishers { parents: Parents::of_capacity(400.0), ..Publishers::new(1) };
        let name = |id: u8| alloc::format!("U{}\0{id}", id % 2);
        let parent = |id: u8| parent_number(&alloc::format!("U{}", id % 2), 1);
        let mut secs = 1000.0;
        for step in steps {
            match step {
                Step::Wait(wait) => secs += f64::from(wait),
                Step::Import { id } => {
                    let Some(slot) = publishers.find(&name(id)) else { continue };
                    let Some(claim) = publishers.get(slot).map(|it| it.claim) else { continue };
                    let Some(rate) = claim.learned_rate() else { continue };
                    let now = Timestamp::from_secs_f64(secs);
                    let claim = Claim::resume(&plan.claim(), rate, claim.batch(), now);
                    publishers.import(&name(id), Rhythm::new(&plan), claim, now);
                }
                Step::Train { id, per_second, stays } => {
                    publishers.expire(hour, Timestamp::from_secs_f64(secs));
                    let slot = publishers.join(&name(id), parent(id), || Rhythm::new(&plan));
                    for n in 0..90 * per_second {
                        let now = Timestamp::from_secs_f64(secs + f64::from(n) / f64::from(per_second));
                        let (publisher, _, parents) = publishers.get_all(slot).unwrap();
                        publisher.end_second(&plan.claim(), now, now, parents);
                        let _ = publisher.claim.on_message(&plan.claim(), now, now);
                    }
                    secs += 90.0;
                    if !stays {
                        publishers.leave(slot, Timestamp::from_secs_f64(secs));
                    }
                }
            }
            for user in 0..2 {
                let alive = publishers.table.iter().flatten().filter(|it| it.parent() == parent(user));
                let sum: f32 = alive.map(Publisher::learned).sum();
                prop_assert!(sum <= 100.1, "{sum} of 100 a second");
                prop_assert!((publishers.parents.room(parent(user)) + sum - 100.0).abs() < 0.1, "the sum is kept");
            }
        }
    }
}
