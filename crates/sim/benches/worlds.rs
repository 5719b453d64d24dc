//! Events per second of a polling world, and the bytes of its clients.

use tidegate_sim::polling::{BYTES_PER_CLIENT, Broker, Count, Polling, run};

fn main() {
    println!("a client takes about {BYTES_PER_CLIENT} bytes");
    divan::main();
}

/// Ten nominal intervals at 1.5 times the capacity.
#[divan::bench(args = [10_000, 100_000, 1_000_000], sample_count = 3)]
fn polling(bencher: divan::Bencher<'_, '_>, clients: u32) {
    let mut config = Polling { warm_up: 50.0, duration: 100.0, ..Polling::default() };
    config.host.capacity = f64::from(clients) / 15.0;
    config.clients.count = Count::Clients(clients);
    config.broker = Broker::preset("product").unwrap_or(config.broker);
    let events = run(&config, 1).ok().and_then(|outcome| outcome.metric("events")).unwrap_or(0.0);
    bencher.counter(events as u64).bench_local(|| run(&config, 1));
}
