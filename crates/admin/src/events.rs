//! `/api/v1/events`: what goes on, as server-sent events; and `/api/v1/history`, what went on.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::entrance::EntrancePlace;
use crate::problem::{Answered, Problem, json_of};
use crate::state::{AdminState, lock};
use crate::status;

/// A page that listens.
struct Feed {
    /// What is told at once.
    first: Option<Bytes>,
    inbox: mpsc::Receiver<Bytes>,
    _seat: OwnedSemaphorePermit,
}

impl hyper::body::Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.inbox.poll_recv(context).map(|message| message.map(|message| Ok(Frame::data(message))))
    }
}

pub(crate) async fn listen(State(state): State<Arc<AdminState>>, place: Option<Extension<EntrancePlace>>) -> Answered {
    let seat = Arc::clone(&state.listeners).try_acquire_owned().map_err(|_| {
        let most = crate::limits::LISTENERS_MAX;
        Problem::busy(format!("{most} pages are listening already, and there are no more places"))
            .after(Duration::from_secs(30))
    })?;
    if let Some(Extension(place)) = place {
        place.give_back();
    }
    let now = format!("retry: 2000\nevent: tick\ndata: {}\n\n", status::summary(&state));
    let feed = Feed { first: Some(now.into()), inbox: state.live.listen(), _seat: seat };
    let kind = HeaderValue::from_static("text/event-stream");
    // The connection has no place any more: it ends with the feed.
    let close = HeaderValue::from_static("close");
    let headers = [(header::CONTENT_TYPE, kind), (header::CONNECTION, close)];
    Ok((StatusCode::OK, headers, Body::new(feed)).into_response())
}

pub(crate) async fn history(
    State(state): State<Arc<AdminState>>,
    Query(words): Query<HashMap<String, String>>,
) -> Answered {
    let seconds = match words.get("seconds") {
        None => 300,
        Some(text) => {
            let seconds = text.parse().ok().filter(|seconds| (1..=3600).contains(seconds));
            seconds.ok_or_else(|| Problem::usage("seconds must be a number from 1 to 3600"))?
        }
    };
    let value = lock(&state.live.history).json(seconds);
    Ok(json_of(&value))
}
