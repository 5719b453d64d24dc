//! Events per second: the wheel against a binary heap, with as many events waiting as there are clients.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_sim::chance::Stream;
use tidegate_sim::wheel::Wheel;

fn main() {
    divan::main();
}

const EVENTS: u32 = 1_000_000;
const CLIENTS: [u32; 3] = [10_000, 100_000, 1_000_000];

/// Intervals of some 10 s, as clients have them.
fn delay(stream: &mut Stream) -> u64 {
    (stream.exponential(10.0) * 1e9) as u64
}

#[divan::bench(args = CLIENTS, sample_count = 5)]
fn wheel(bencher: divan::Bencher<'_, '_>, clients: u32) {
    let mut stream = Stream::of(1, "bench");
    let mut wheel = Wheel::default();
    (0..clients).for_each(|client| wheel.push(delay(&mut stream), u64::from(client)));
    bencher.counter(EVENTS).bench_local(|| {
        for _ in 0..EVENTS {
            if let Some((at, client)) = wheel.pop() {
                wheel.push(at + delay(&mut stream), client);
            }
        }
    });
}

#[divan::bench(args = CLIENTS, sample_count = 5)]
fn binary_heap(bencher: divan::Bencher<'_, '_>, clients: u32) {
    let mut stream = Stream::of(1, "bench");
    let mut heap = BinaryHeap::new();
    (0..clients).for_each(|client| heap.push(Reverse((delay(&mut stream), u64::from(client)))));
    bencher.counter(EVENTS).bench_local(|| {
        for _ in 0..EVENTS {
            if let Some(Reverse((at, client))) = heap.pop() {
                heap.push(Reverse((at + delay(&mut stream), client)));
            }
        }
    });
}
