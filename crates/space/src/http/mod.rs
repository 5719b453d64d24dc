//! The HTTP door: SPARQL 1.1 Protocol, Graph Store Protocol, and subscriptions over WebSocket.

pub(crate) mod body;
mod check;
mod federation;
mod guard;
mod negotiate;
mod page;
pub(crate) mod problem;
mod site;
mod sparql;
mod store;
mod subscribe;

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, Version, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use futures_util::StreamExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use problem::SpaceProblem;
use tidegate_control::admission::Class;
use tidegate_control::hints::Asks;
use tidegate_graph::QueryLimits;
use tidegate_http::{PasswordCache, SecureStream, Timeouts, TlsDoor, serve_connection};

use crate::access_policy::{AccessPolicy, KpIdentity};
use crate::counts::ConnectionKind;
use crate::handle::SpaceHandle;
use crate::limits::{
    BODY_BYTES_MAX, BODY_TIMEOUT, HEAD_BYTES_MAX, HEAD_TIMEOUT, HTTP_CONNECTION_TIME, HTTP_LAST_TIME, INLINE_BYTES,
};
use crate::machine::request::{AnswerDelivery, DeclinedBy, Refused, RequestOrigin, SpaceResponse};
use crate::memory::TextCharge;
use crate::notifications::SpaceRequest;
use crate::panics::Part;
use crate::places::{AcceptTrouble, Places};

/// What all requests share.
#[derive(Debug)]
pub(crate) struct HttpState {
    pub(crate) handle: SpaceHandle,
    pub(crate) policy: Arc<dyn AccessPolicy>,
    pub(crate) remembered: PasswordCache<u64>,
    pub(crate) places: Arc<Places>,
}

const TIMEOUTS: Timeouts = Timeouts {
    head: HEAD_TIMEOUT,
    connection: HTTP_CONNECTION_TIME,
    last: HTTP_LAST_TIME,
    buffer_bytes: HEAD_BYTES_MAX,
};

fn routes(door: Arc<HttpState>) -> Router {
    Router::new()
        .route("/", get(welcome))
        .route("/ui/{name}", get(page::file))
        .route("/query", any(sparql::query))
        .route("/update", any(sparql::update))
        .route("/sparql", any(sparql::either))
        .route("/store", any(store::serve))
        .route("/check", any(check::serve))
        .route("/subscribe", get(subscribe::upgrade))
        .fallback(nothing_here)
        .layer(from_fn_with_state(Arc::clone(&door), guard::guard))
        .with_state(door)
}

async fn nothing_here(uri: Uri) -> SpaceProblem {
    let detail = format!("there is nothing at {}; GET / lists what there is", uri.path());
    SpaceProblem::new(StatusCode::NOT_FOUND, "no-such-place", detail)
}

/// A browser gets an editor, everybody else a list of what there is.
async fn welcome(axum::extract::State(door): axum::extract::State<Arc<HttpState>>, headers: HeaderMap) -> Response {
    if let Some(page) = page::for_browser(&headers) {
        return page;
    }
    let mut text = String::from(
        "tidegate, smart space\n\n/query      SPARQL 1.1 queries\n/update     SPARQL 1.1 updates\n/sparql     both\n\
         /store      graphs as a whole (Graph Store Protocol)\n/check      what has changed since\n/subscribe  WebSocket: standing queries, as SEPA has them\n\n",
    );
    let (running, bytes) = door.handle.load();
    let _ = writeln!(text, "version {}  running {running}  answer bytes {bytes}", door.handle.version());
    for (class, outcome, number) in door.handle.counts() {
        let _ = writeln!(text, "{class} {outcome} {number}");
    }
    text.into_response()
}

pub(crate) async fn serve(listener: &TcpListener, door: &Arc<HttpState>, tls: Option<&Arc<TlsDoor>>) {
    let router = routes(Arc::clone(door));
    let mut trouble = AcceptTrouble::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                trouble.over();
                let Some(place) = door.places.take(ConnectionKind::Http, &door.handle.shared.counts) else {
                    // Without TLS: a client that expects it takes this for the end.
                    door.places.refuse(stream);
                    continue;
                };
                let (router, door, tls) = (router.clone(), Arc::clone(door), tls.cloned());
                tokio::spawn(async move {
                    let served = attend(stream, peer.ip(), router, &door, tls);
                    let _ = door.handle.shared.panics.catch_async(Part::Http, served).await;
                    drop(place);
                });
            }
            Err(error) => trouble.failed("http", &error).await,
        }
    }
}

async fn attend(stream: TcpStream, from: IpAddr, router: Router, door: &HttpState, tls: Option<Arc<TlsDoor>>) {
    let Some(tls) = tls else {
        // Answers are small, and somebody waits for them.
        let _ = stream.set_nodelay(true);
        return serve_connection(stream, from, router, TIMEOUTS).await;
    };
    match tls.enter(stream).await {
        Ok(SecureStream { stream, user }) => {
            let router = router.layer(Extension(guard::CertificateUser(user.map(Arc::from))));
            serve_connection(stream, from, router, TIMEOUTS).await;
        }
        Err(Some(plain)) => door.places.refuse_plain(plain),
        Err(None) => {}
    }
}

/// A body, and what it is charged with.
struct Whole {
    bytes: Vec<u8>,
    _charges: Vec<TextCharge>,
}

/// The whole body, within its size and time, and within what all texts may take together. It is charged as it comes.
async fn read_body(door: &HttpState, body: Body) -> Result<Whole, SpaceProblem> {
    let too_large = || {
        let detail = format!("the body has more than {} MiB", BODY_BYTES_MAX >> 20);
        SpaceProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail)
    };
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let read = async {
        let (mut bytes, mut charges, mut charged) = (Vec::new(), Vec::new(), 0);
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            // Whoever breaks off in the middle hears no answer.
            let piece = piece.map_err(|_| SpaceProblem::usage("the body has no end"))?;
            if bytes.len() + piece.len() > BODY_BYTES_MAX {
                return Err(too_large());
            }
            while bytes.len() + piece.len() > charged {
                let more = charged.max(INLINE_BYTES);
                charges.push(door.handle.charge(more).ok_or_else(|| SpaceProblem::busy(Duration::from_secs(1)))?);
                charged += more;
                bytes.reserve_exact(charged - bytes.len());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Whole { bytes, _charges: charges })
    };
    match timeout(BODY_TIMEOUT, read).await {
        Ok(read) => read,
        Err(_) => Err(SpaceProblem::new(StatusCode::REQUEST_TIMEOUT, "body-too-slow", "the body did not come in time")),
    }
}

/// Has a text read where that harms nobody, and asks what it says. `work` also says what is to be known with the answer.
async fn ask_text<N: Send + Sync + 'static>(
    handle: &SpaceHandle,
    (bytes, class, asker): (usize, Class, RequestOrigin),
    work: impl FnOnce(&QueryLimits) -> Result<(SpaceRequest, N), SpaceProblem> + Send + 'static,
) -> Result<(SpaceResponse, N), SpaceProblem> {
    let reading = handle.read(bytes, class, asker, move |limits| match work(limits) {
        Ok((ask, note)) => (Ok(note), Ok(ask)),
        Err(problem) if problem.is_late() => (Err(problem), Err(Refused::Late)),
        Err(problem) => (Err(problem), Err(Refused::Declined(DeclinedBy::Mistake))),
    });
    match reading.answer().await {
        (_, Some(Err(problem))) => Err(problem),
        (Ok(answered), Some(Ok(note))) => Ok((answered, note)),
        (Ok(_), None) => Err(Refused::Closing.into()),
        (Err(refused), _) => Err(refused.into()),
    }
}

/// What a request says about pace. What is not understood is passed over.
fn asks(headers: &HeaderMap) -> Asks {
    let mut asks = Asks::default();
    for known in Asks::NAMES {
        if let Some(text) = headers.get(known).and_then(|value| value.to_str().ok()) {
            asks.read(known, text.trim());
        }
    }
    asks
}

/// Who asks, with the time it gives: `timeout=` of the query string or `pace-deadline-ms`.
fn asker(door: &HttpState, parameters: &body::Parameters, head: &Parts) -> Result<RequestOrigin, SpaceProblem> {
    let asks = asks(&head.headers);
    // A form does not hide what stands in the address.
    let address = body::Parameters::read(head.uri.query().unwrap_or_default().as_bytes());
    let timeout = match parameters.one("timeout")? {
        Some(text) => Some(text),
        None => address.one("timeout")?,
    };
    let patience = match timeout {
        Some(text) => {
            let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
            let number = digits.parse::<u64>().ok();
            let span = match (number, unit) {
                (Some(number), "s" | "") => Duration::from_secs(number),
                (Some(number), "ms") => Duration::from_millis(number),
                _ => {
                    return Err(SpaceProblem::usage(format!(
                        "timeout={text:?}: a number of seconds, or such as 250ms"
                    )));
                }
            };
            Some(span)
        }
        None => asks.deadline,
    };
    // Whoever has not shown who it is, is known by its address, and by what it calls itself.
    let user = head.extensions.get::<guard::Authenticated>().map(|known| &*known.user);
    let kp = KpIdentity { user, address: tidegate_http::peer(head), name: asks.client.as_deref() };
    let caller = door.handle.caller(&*door.policy, &kp, &asks, ConnectionKind::Http);
    // Several clients of one address may ask the same: only who has a name is known to be the same as before.
    let is_check =
        asks.client.is_some() && (asks.version.is_some() || head.headers.contains_key(header::IF_NONE_MATCH));
    // Before HTTP 1.1 a body ends with its connection: what is broken off would look like the whole.
    let delivery = match patience {
        _ if head.version < Version::HTTP_11 => AnswerDelivery::Whole,
        Some(_) => AnswerDelivery::StreamedInTime,
        None => AnswerDelivery::Streamed,
    };
    Ok(RequestOrigin { is_check, delivery, ..RequestOrigin::new(0, patience).of(caller) })
}

/// A header that is made of numbers and known words.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

fn method_not_allowed(allowed: &'static str) -> Response {
    let detail = format!("only {allowed} here");
    let mut response = SpaceProblem::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail).into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}
