//! The pacer as a layer of tower: any service becomes one that is ready when its pace allows.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_control::pacer::{Outcome, PacerPlan};
use tokio::time::{Instant, Sleep, sleep_until};
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

/// A service that waits for its pace. One request is under way at most: it is not ready for the next one before there is
/// an outcome. Whoever drops the answer's future, such as a timeout around it, has waited in vain: that is an outcome, too.
///
/// With level `none` nothing is to be asked: it is never ready.
#[derive(Debug)]
pub struct Paced<S, J> {
    inner: S,
    judge: J,
    state: Arc<Mutex<LayerState>>,
    waiting: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct LayerState {
    pace: Pace,
    next: NextSend,
    /// Who waits for the outcome.
    waker: Option<Waker>,
}

/// When the next request may be sent.
#[derive(Clone, Copy, Debug)]
enum NextSend {
    At(Instant),
    /// After the outcome of the one under way.
    UnderWay,
    /// Level `none`.
    Never,
}

impl NextSend {
    fn after(delay: Option<Duration>) -> Self {
        delay.map_or(Self::Never, |delay| Self::At(Instant::now() + delay.min(FAR)))
    }
}

/// Beyond any delay, and within what a clock can say.
const FAR: Duration = Duration::from_secs(365 * 86_400);

/// A request under way. Without an outcome it was given up.
#[derive(Debug)]
struct UnderWay {
    state: Arc<Mutex<LayerState>>,
    is_over: bool,
}

impl UnderWay {
    fn begin(state: &Arc<Mutex<LayerState>>) -> Self {
        let mut held = lock(state);
        held.pace.sent();
        held.next = NextSend::UnderWay;
        Self { state: Arc::clone(state), is_over: false }
    }

    fn end(&mut self, outcome: &Outcome) {
        self.is_over = true;
        let mut state = lock(&self.state);
        state.next = NextSend::after(state.pace.outcome(outcome));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(&Outcome::TimedOut);
        }
    }
}

impl<S, J: Clone> Layer<S> for PaceLayer<J> {
    type Service = Paced<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        let mut pace = Pace::of(&self.plan);
        // The first one need not wait: somebody asks.
        let next = NextSend::after(pace.first_delay().map(|_| Duration::ZERO));
        let state = LayerState { pace, next, waker: None };
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
        let due = {
            let mut state = lock(&self.state);
            match state.next {
                NextSend::At(due) => due,
                NextSend::UnderWay => {
                    state.waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
                NextSend::Never => return Poll::Pending,
            }
        };
        if due > Instant::now() {
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if waiting.deadline() != due {
                waiting.as_mut().reset(due);
            }
            if waiting.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.waiting = None;
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let (mut under_way, sent) = (UnderWay::begin(&self.state), Instant::now());
        let (judge, answer) = (self.judge.clone(), self.inner.call(request));
        Box::pin(async move {
            let answer = answer.await;
            under_way.end(&judge.outcome(&answer, sent.elapsed()));
            answer
        })
    }
}

fn lock(state: &Mutex<LayerState>) -> std::sync::MutexGuard<'_, LayerState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, poll_fn, ready};

    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::{Hints, Level, PacerConfig};

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

    /// Never answers.
    struct Silent;

    impl Service<()> for Silent {
        type Response = ();
        type Error = ();
        type Future = std::future::Pending<Result<(), ()>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            std::future::pending()
        }
    }

    fn silent(config: &PacerConfig) -> Paced<Silent, impl Judge<Result<(), ()>>> {
        let judge = |_: &Result<(), ()>, latency| Outcome::answered(latency, 0);
        PaceLayer::new(&config.build().unwrap(), judge).layer(Silent)
    }

    /// Whether it is ready, and whether it woke whoever waits since it was asked last.
    fn ask<S: Service<()>>(service: &mut S, woken: &Arc<Woken>) -> (bool, bool) {
        let was_woken = woken.0.swap(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(woken));
        (service.poll_ready(&mut Context::from_waker(&waker)).is_ready(), was_woken)
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_request_that_was_given_up_is_paced_and_the_next_waits_for_it() {
        let woken = Arc::new(Woken::default());
        let mut service = silent(&PacerConfig { interval: Duration::from_secs(3600), ..PacerConfig::default() });
        assert_eq!(ask(&mut service, &woken), (true, false), "the first need not wait");
        let answer = service.call(());
        assert_eq!(ask(&mut service, &woken), (false, false), "one is under way");
        let before = lock(&service.state).pace.snapshot();
        // What a timeout around it does.
        drop(answer);
        assert_eq!(ask(&mut service, &woken), (false, true), "it was woken, and has to wait for its pace");
        let after = lock(&service.state).pace.snapshot();
        assert!(after.rbt > before.rbt, "no answer is a sign of congestion: {before:?} {after:?}");
        let NextSend::At(due) = lock(&service.state).next else { panic!("it is over") };
        assert!(due > Instant::now());
    }

    #[tokio::test]
    async fn with_level_none_nothing_is_asked() {
        let woken = Arc::new(Woken::default());
        let mut service = silent(&PacerConfig { level: Level::None, ..PacerConfig::default() });
        assert_eq!(ask(&mut service, &woken), (false, false));
    }
}
