//! A service that refuses every third request, and the layer that makes its client obey.
//!
//! `cargo run -p tidegate-pace --features tower --example tower`

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_pace::{Hints, Outcome, PaceLayer, PacerConfig};
use tower_layer::Layer;
use tower_service::Service;

struct Busy(u32);

impl Service<&'static str> for Busy {
    type Response = String;
    type Error = Duration;
    type Future = std::future::Ready<Result<String, Duration>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Duration>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: &'static str) -> Self::Future {
        self.0 += 1;
        let is_refused = self.0.is_multiple_of(3);
        std::future::ready(if is_refused { Err(Duration::from_millis(700)) } else { Ok(request.to_uppercase()) })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = PacerConfig { interval: Duration::from_millis(200), ..PacerConfig::default() };
    let judge = |answer: &Result<String, Duration>, latency| match answer {
        Ok(_) => Outcome::answered(latency, 0),
        Err(after) => Outcome::Denied { hints: Hints { retry_after: Some(*after), ..Hints::default() } },
    };
    let mut service = PaceLayer::new(&config.build()?, judge).layer(Busy(0));
    let began = Instant::now();
    for _ in 0..8 {
        let _ = std::future::poll_fn(|context| service.poll_ready(context)).await;
        let answer = service.call("check").await;
        println!("{:>6} ms: {answer:?}", began.elapsed().as_millis());
    }
    Ok(())
}
