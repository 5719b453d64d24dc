//! The pacer as a layer of tower: any service becomes one that is ready when its pace allows.
//!
//! `cargo run -p tidegate-client --example tower_layer`

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_control::pacer::{Outcome, Pacer, PacerConfig, PacerPlan};
use tokio::time::{Instant, Sleep, sleep};
use tower_layer::Layer;
use tower_service::Service;

/// How an answer is judged.
trait Judge<R>: Clone + Send + 'static {
    fn outcome(&self, answer: &R, latency: Duration) -> Outcome;
}

impl<R, F: Fn(&R, Duration) -> Outcome + Clone + Send + 'static> Judge<R> for F {
    fn outcome(&self, answer: &R, latency: Duration) -> Outcome {
        self(answer, latency)
    }
}

/// Makes paced services.
struct PaceLayer<J> {
    plan: Arc<PacerPlan>,
    judge: J,
}

/// A service that waits for its pace.
struct Paced<S, J> {
    inner: S,
    judge: J,
    state: Arc<Mutex<(Pacer, Xoshiro256PlusPlus, Duration)>>,
    began: Instant,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S, J: Clone> Layer<S> for PaceLayer<J> {
    type Service = Paced<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        let rng = Xoshiro256PlusPlus::seed_from_u64(u64::from(std::process::id()));
        let state = Arc::new(Mutex::new((Pacer::new(&self.plan), rng, Duration::ZERO)));
        Paced { inner, judge: self.judge.clone(), state, began: Instant::now(), waiting: None }
    }
}

impl<S, Q, J> Service<Q> for Paced<S, J>
where
    S: Service<Q>,
    S::Future: Send + 'static,
    S::Response: Send,
    J: Judge<Result<S::Response, S::Error>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let delay = self.state.lock().map(|mut state| std::mem::take(&mut state.2)).unwrap_or_default();
        if !delay.is_zero() {
            self.waiting = Some(Box::pin(sleep(delay)));
        }
        if let Some(waiting) = &mut self.waiting {
            if waiting.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.waiting = None;
        }
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        if let Ok(mut state) = self.state.lock() {
            state.0.on_sent();
        }
        let (sent, began) = (Instant::now(), self.began);
        let (state, judge, answer) = (Arc::clone(&self.state), self.judge.clone(), self.inner.call(request));
        Box::pin(async move {
            let answer = answer.await;
            let outcome = judge.outcome(&answer, sent.elapsed());
            if let Ok(mut state) = state.lock() {
                let (pacer, rng, delay) = &mut *state;
                *delay = pacer.on_outcome(Timestamp::ZERO + began.elapsed(), &outcome, rng).unwrap_or_default();
            }
            answer
        })
    }
}

/// A server that refuses every third request.
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
    let mut service = PaceLayer { plan: config.build()?, judge }.layer(Busy(0));
    let began = Instant::now();
    for _ in 0..8 {
        let _ = std::future::poll_fn(|context| service.poll_ready(context)).await;
        let answer = service.call("check").await;
        println!("{:>6} ms: {answer:?}", began.elapsed().as_millis());
    }
    Ok(())
}
