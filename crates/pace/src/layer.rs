//! The pacer as a layer of tower: any service becomes one that is ready when its pace allows.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_control::pacer::{Outcome, PacerPlan};
use tokio::time::{Instant, Sleep, sleep};
use tower_layer::Layer;
use tower_service::Service;

use crate::Pace;

/// How an answer is judged. Every function of an answer and its time is one.
pub trait Judge<R>: Clone + Send + 'static {
    /// What the answer means for the pace.
    fn outcome(&self, answer: &R, latency: Duration) -> Outcome;
}

impl<R, F: Fn(&R, Duration) -> Outcome + Clone + Send + 'static> Judge<R> for F {
    fn outcome(&self, answer: &R, latency: Duration) -> Outcome {
        self(answer, latency)
    }
}

/// Makes paced services, each with a pace of its own.
#[derive(Clone, Debug)]
pub struct PaceLayer<J> {
    plan: Arc<PacerPlan>,
    judge: J,
}

impl<J> PaceLayer<J> {
    /// With these settings, and this judgement of answers.
    pub fn new(plan: &Arc<PacerPlan>, judge: J) -> Self {
        Self { plan: Arc::clone(plan), judge }
    }
}

/// A service that waits for its pace. At most one request is meant to be under way: the next one waits for its outcome.
#[derive(Debug)]
pub struct Paced<S, J> {
    inner: S,
    judge: J,
    state: Arc<Mutex<State>>,
    waiting: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    /// How long the next one has to wait.
    delay: Duration,
}

impl<S, J: Clone> Layer<S> for PaceLayer<J> {
    type Service = Paced<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        // The first one need not wait: somebody asks.
        let state = State { pace: Pace::of(&self.plan), delay: Duration::ZERO };
        Paced { inner, judge: self.judge.clone(), state: Arc::new(Mutex::new(state)), waiting: None }
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
        let delay = std::mem::take(&mut lock(&self.state).delay);
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
        lock(&self.state).pace.sent();
        let sent = Instant::now();
        let (state, judge, answer) = (Arc::clone(&self.state), self.judge.clone(), self.inner.call(request));
        Box::pin(async move {
            let answer = answer.await;
            let outcome = judge.outcome(&answer, sent.elapsed());
            let mut state = lock(&state);
            state.delay = state.pace.outcome(&outcome).unwrap_or_default();
            drop(state);
            answer
        })
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, poll_fn, ready};

    use super::*;
    use crate::{Hints, PacerConfig};

    /// Refuses every third request.
    struct Busy(u32);

    impl Service<()> for Busy {
        type Response = u32;
        type Error = Duration;
        type Future = Ready<Result<u32, Duration>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Duration>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            self.0 += 1;
            ready(if self.0.is_multiple_of(3) { Err(Duration::from_millis(150)) } else { Ok(self.0) })
        }
    }

    #[tokio::test]
    async fn a_service_is_ready_when_its_pace_allows() {
        let plan = PacerConfig { interval: Duration::from_millis(20), ..PacerConfig::default() }.build().unwrap();
        let judge = |answer: &Result<u32, Duration>, latency| match answer {
            Ok(_) => Outcome::answered(latency, 0),
            Err(after) => Outcome::Denied { hints: Hints { retry_after: Some(*after), ..Hints::default() } },
        };
        let mut service = PaceLayer::new(&plan, judge).layer(Busy(0));
        let (mut before, mut waits) = (Instant::now(), Vec::new());
        for _ in 0..4 {
            poll_fn(|context| service.poll_ready(context)).await.unwrap();
            waits.push(before.elapsed());
            before = Instant::now();
            let _ = service.call(()).await;
        }
        assert!(waits[1..3].iter().all(|wait| *wait >= Duration::from_millis(10)), "{waits:?}");
        assert!(waits[3] >= Duration::from_millis(150), "as it was told: {waits:?}");
    }
}
