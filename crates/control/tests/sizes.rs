//! What a client and a publisher cost in memory: a broker keeps one state per principal, a simulation a million pacers.

use tidegate_control::advice::Declared;
use tidegate_control::pacer::Pacer;
use tidegate_control::rhythm::Rhythm;

#[test]
fn states_are_small() {
    println!("Rhythm {} B, Pacer {} B, Declared {} B", size_of::<Rhythm>(), size_of::<Pacer>(), size_of::<Declared>());
    assert!(size_of::<Rhythm>() <= 36, "a tracked publisher: {} B", size_of::<Rhythm>());
    assert!(size_of::<Pacer>() <= 160, "a pacer: {} B", size_of::<Pacer>());
    assert!(size_of::<Declared>() <= 16, "a declared interval: {} B", size_of::<Declared>());
}
