//! One change at a time, told to many: how long until the last of them knows.

use std::time::Instant;

use anyhow::{Context, Result};
use oxrdf::{GraphName, Literal, NamedNode, Quad};
use tidegate_graph::{Mask, MaskGraph};
use tidegate_space::SpaceRequest;
use tokio::sync::mpsc;

use super::Named;
use super::host::{SpaceHost, ask, is_over, rate};
use super::socket::SubscriberSocket;
use crate::histogram::Histogram;
use crate::measure::RunSettings;

const QUERY: &str = "SELECT ?o { <urn:lamp> <urn:state> ?o }";

pub(super) async fn run(subscribers: usize, sockets: usize, setting: &RunSettings) -> Result<Named> {
    let host = SpaceHost::start()?;
    let (told, mut tellings) = mpsc::channel(1024);
    for number in 0..sockets {
        let mut socket = SubscriberSocket::connect(host.http()?).await?;
        // As even as can be.
        for _ in 0..(subscribers * (number + 1) / sockets - subscribers * number / sockets) {
            socket.subscribe(QUERY).await?;
        }
        let told = told.clone();
        tokio::spawn(async move {
            while socket.next().await.is_ok() {
                if told.send(Instant::now()).await.is_err() {
                    return;
                }
            }
        });
    }
    drop(told);
    let (mut each, mut last) = (Histogram::new(), Histogram::new());
    let warm = Instant::now() + setting.warm_up;
    let (mut measured, mut number) = (None, 0);
    while !is_over(warm + setting.time, setting) {
        let at = Instant::now();
        if at >= warm {
            measured.get_or_insert(at);
        }
        number += 1;
        ask(&host.handle(), || switch(number)).await?;
        let mut latest = at;
        for _ in 0..subscribers {
            let when = tellings.recv().await.context("every subscriber has gone")?;
            latest = latest.max(when);
            if measured.is_some() {
                each.record(when.duration_since(at).as_nanos() as u64);
            }
        }
        if measured.is_some() {
            last.record(latest.duration_since(at).as_nanos() as u64);
        }
    }
    let time = measured.map(|since| since.elapsed()).unwrap_or_default();
    let ms = |nanos: u64| nanos as f64 / 1e6;
    Ok(vec![
        ("notifications/s", rate(each.total() as usize, time)),
        ("p50 ms", ms(each.quantile(0.5))),
        ("p99 ms", ms(each.quantile(0.99))),
        ("p50 ms to the last", ms(last.quantile(0.5))),
        ("p99 ms to the last", ms(last.quantile(0.99))),
    ])
}

/// Another state in place of the one before.
fn switch(number: u32) -> SpaceRequest {
    let node = |text: &str| NamedNode::new_unchecked(text);
    let (lamp, state) = (node("urn:lamp"), node("urn:state"));
    let remove = Mask {
        subject: Some(lamp.clone().into()),
        predicate: Some(state.clone()),
        object: None,
        graph: MaskGraph::Default,
    };
    let insert = Quad::new(lamp, state, Literal::from(number), GraphName::DefaultGraph);
    SpaceRequest::Edit { remove: vec![remove], insert: vec![insert] }
}
