//! A bridge between two brokers that are models: whatever is cut or killed, at every step, a message of QoS 1 arrives at least once
//! and one of QoS 2 exactly once; never is more under way than the sink takes.

#![allow(clippy::unwrap_used, reason = "tests")]

mod drain;
mod model;
mod rules;

use proptest::prelude::*;
use tidegate_wire_mqtt::{QoS, Version};

use model::World;

fn run(version: Version, receive_max: u16, steps: &[(u8, u8)]) -> Result<(), TestCaseError> {
    let mut world = World::new(version, receive_max);
    for (step, chance) in steps {
        world.step(*step, *chance);
    }
    world.calm_down();
    for (from, to, way) in [(&world.here, &world.there, "out"), (&world.there, &world.here, "in")] {
        for (number, qos) in &from.published {
            let times = to.received.iter().filter(|got| *got == number).count();
            match qos {
                QoS::ExactlyOnce => prop_assert_eq!(times, 1, "{} {}: QoS 2 came {} times", way, number, times),
                _ => prop_assert!(times >= 1, "{way} {number}: QoS 1 was lost"),
            }
        }
        prop_assert!(to.most_unanswered <= usize::from(to.receive_max), "{} were under way", to.most_unanswered);
        prop_assert!(from.flights.is_empty() && from.waiting.is_empty(), "{way}: everything is answered for");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_qos_2_comes_once_whoever_is_killed(
        steps in proptest::collection::vec((0_u8..24, any::<u8>()), 0..500),
        receive_max in 1_u16..20,
        is_new in any::<bool>(),
    ) {
        run(if is_new { Version::V5 } else { Version::V311 }, receive_max, &steps)?;
    }
}

/// Every place: the same conversation is cut, on either side or in the middle, after each of its first steps.
#[test]
fn a_conversation_may_be_cut_at_every_step() {
    for version in [Version::V5, Version::V311] {
        for killed in [16, 17, 18] {
            for at in 0..60 {
                let mut steps = vec![(20, 2), (20, 1), (21, 2), (21, 1)];
                steps.extend((0..60).map(|_| (0, 255)));
                steps.insert(4 + at, (killed, 0));
                run(version, 10, &steps).unwrap();
            }
        }
    }
}
