//! Publishers that are slowed: by their credit.

use std::time::Duration;

use tidegate_core::Whom;
use tidegate_core::settings::Rate;

use super::world::{World, attach_sender, data, transfer};
use crate::limits::CREDIT_MAX;

/// What the last flow of a link said.
fn credit_in(said: &[String]) -> Option<u32> {
    said.iter().rev().find_map(|words| words.strip_prefix("flow 0 ")?.rsplit(' ').next()?.parse().ok())
}

#[test]
fn a_flooder_has_the_credit_of_its_limit_and_others_have_all_of_theirs() {
    let mut world = World::new();
    let limit = Rate::new(10, Duration::from_secs(1), 1);
    world.shard.set_limit(&Whom::Client("flood".into()), Some(limit), world.now).unwrap();
    let (flood, other) = (world.dial("flood"), world.dial("other"));
    let mut left = credit_in(&world.say(flood, &attach_sender(0, "s", Some("a")))).unwrap();
    assert_eq!(left, CREDIT_MAX);
    assert_eq!(credit_in(&world.say(other, &attach_sender(0, "s", Some("b")))), Some(CREDIT_MAX));
    let (mut sent, mut accepted, mut others) = (0, 0, 0);
    // It sends whenever it has credit, for a minute.
    for _ in 0..600 {
        while left > 0 && !world.is_paused(flood) {
            left -= 1;
            let said = world.say(flood, &transfer(0, sent, false, &data("x")));
            sent += 1;
            accepted += said.iter().filter(|words| words.ends_with("accepted")).count();
            left = credit_in(&said).unwrap_or(left);
        }
        world.wait(Duration::from_millis(100));
        let said = world.hear(flood);
        accepted += said.iter().filter(|words| words.ends_with("accepted")).count();
        left = credit_in(&said).unwrap_or(left);
        let said = world.say(other, &transfer(0, others, false, &data("y")));
        assert!(said.contains(&format!("disposition {others} accepted")), "{said:?}");
        others += 1;
    }
    assert!(!world.is_closed(flood), "it obeys, and stays");
    assert!((500..=700).contains(&accepted), "{accepted} of {sent} accepted in a minute at ten a second");
    // Nearly all that it sends is taken: it is slowed before, not refused after.
    assert!(sent as usize - accepted < 200, "{sent} sent, {accepted} accepted");
}
