//! What each control level does to a broker at ten times its capacity, and after a one-minute dip at half load.
//!
//! `cargo run --release -p tidegate-control --example overload`: 2 000 clients in virtual time, about ten seconds.

#[path = "../tests/support/space.rs"]
mod space;

use space::Report;
use tidegate_control::pacer::Preset;

const PRESETS: [Preset; 8] = [
    Preset::Fixed,
    Preset::Random,
    Preset::AdaptiveEquation3,
    Preset::AdaptiveAlgorithm2,
    Preset::ActiveP19,
    Preset::ActiveP18,
    Preset::Adaptive,
    Preset::Active,
];

fn main() {
    println!("Ten times the capacity: 2 000 clients want 10 checks for each one that the server can answer.");
    println!("The broker keeps at most 100 ms of work and denies the rest; a denial costs 5 % of an answer.\n");
    table(space::overload);
    println!("\nA dip: half load, one minute at a tenth of the capacity, looked at from seven minutes later on.");
    println!("The broker queues up to 5 s of work and drops the rest without a word.\n");
    table(space::dip);
    println!("\ngoodput: answers to clients still waiting, of the capacity.  offered: requests, times the capacity.");
    println!("stale: mean share of clients whose copy is out of date.  `active` is the default.");
}

fn table(run: fn(Preset) -> Report) {
    println!("{:<22}{:>10}{:>10}{:>10}", "pacer", "goodput", "offered", "stale");
    for preset in PRESETS {
        println!("{}", run(preset).row(preset));
    }
}
