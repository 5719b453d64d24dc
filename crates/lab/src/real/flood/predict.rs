//! The same messages in virtual time: a shard as it ships, and a reader that takes as much.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use tidegate_core::trace::{Arrival, Trace};
use tidegate_sim::broker::{self, Order, Publishers};

use super::{
    FLOOD, FLOOD_INTERVAL, FLOOD_TOPIC, FloodFigures, PAYLOAD_BYTES, RARE_INTERVAL, RARE_TOPIC, READER_BYTES, Setting,
    USUAL, USUAL_INTERVAL, rare_count,
};

pub(super) fn predict(setting: &Setting) -> Result<FloodFigures> {
    let (trace, seconds) = (trace(), (USUAL_INTERVAL * USUAL + FLOOD_INTERVAL * FLOOD).as_secs_f64());
    let world = Publishers {
        duration: seconds,
        closed_loop: false,
        rule: setting.rule,
        order: if setting.is_strict { Order::Strict } else { Order::Drr },
        capacity: Some(READER_BYTES / PAYLOAD_BYTES as f64),
        queue_items: 10_000,
        ..Publishers::default()
    };
    let outcome = broker::run(&world, Some(&Arc::new(trace)), 1).map_err(|error| anyhow!("{error}"))?;
    let metric = |name: &str| outcome.metric(name).unwrap_or(f64::NAN);
    let count = rare_count();
    Ok(FloodFigures {
        acked: metric("uplink_bytes"),
        offered: PAYLOAD_BYTES as f64 * f64::from(USUAL + FLOOD),
        rare_mean: metric("latency_rare_mean"),
        rare_max: metric("latency_rare_p99"),
        rare_arrived: ((1.0 - metric("lost_rare")) * count as f64).round() as u64,
        rare_sent: count,
    })
}

/// The messages of both publishers, in their order.
fn trace() -> Trace {
    let arrival = |at: std::time::Duration, publisher: u32, topic: &str, payload: usize| Arrival {
        micros: at.as_micros() as u64,
        publisher,
        topic: publisher,
        topic_bytes: topic.len() as u16,
        payload_bytes: payload as u32,
        qos: 0,
        retain: false,
        group: 0,
    };
    let usual = (0..USUAL).map(|number| USUAL_INTERVAL * number);
    let flood = (0..FLOOD).map(|number| USUAL_INTERVAL * USUAL + FLOOD_INTERVAL * number);
    let flooder = usual.chain(flood).map(|at| arrival(at, 0, FLOOD_TOPIC, PAYLOAD_BYTES));
    let rare = (0..rare_count()).map(|number| {
        let at = RARE_INTERVAL.mul_f64(number as f64 + 0.5);
        arrival(at, 1, RARE_TOPIC, at.as_secs_f64().to_string().len())
    });
    let mut arrivals: Vec<Arrival> = flooder.chain(rare).collect();
    arrivals.sort_by_key(|arrival| arrival.micros);
    Trace::new(arrivals)
}
