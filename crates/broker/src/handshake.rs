//! One socket that the core does not know (yet, or any more), and how far it has come.
//!
//! [PROXY header] → [TLS] → [WebSocket upgrade] → CONNECT (or an HTTP request, or SASL and AMQP's `open`) → who are you? → handed over; or, at any step: last words →
//! listening until the peer has closed. TLS happens inside the link: until it is done, there are no bytes. Decides nothing about users.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate_core::access::Identity;
use tidegate_face_amqp::{self as face_amqp, AmqpHello, Greeting, Offers};
use tidegate_face_http::{self as face_http, HttpHello};
use tidegate_wire_mqtt::{Connect, Limits, ReasonCode, Version};

use crate::authenticate::{Credentials, LoginGrant};
use crate::first_packet::{First, first_packet, refusal, refusal_until};
use crate::limits::READ_BYTES_MAX;
use crate::link::{SocketLink, SourceState};
use crate::listener::{OpenListener, PeerStanding};
use crate::listener_counts::ListenerRefusal;
use crate::permit::Permit;
use crate::proxy_header::{PROXY_HEADER_BYTES_MAX, ProxyHeader, proxy_header};
use crate::thread_message::{AcceptedSocket, Handover};
use crate::websocket::upgrade::judge_request_origin;
use crate::websocket::{AllowedPages, Upgrade, upgrade};

/// Nobody asks for the address of somebody that is leaving.
const UNKNOWN_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// Said to those whose password is not looked at for lack of time.
pub(crate) const PASSWORDS_WAIT: &str = "too many passwords are waiting";

/// A socket and its stage.
#[derive(Debug)]
pub(crate) struct Handshake {
    link: SocketLink,
    stage: HandshakeStage,
    /// What was read and not used yet. In `Checking`: the CONNECT and what came after it.
    input: Vec<u8>,
    /// Last words that were not written yet.
    output: Vec<u8>,
    peer: SocketAddr,
    /// Where it came in; nobody asks after it has been connected.
    listener: Option<Arc<OpenListener>>,
    /// Its place among the handshakes, while it is in one.
    permit: Option<Permit>,
    /// What went wrong, for the log.
    trouble: Option<String>,
    /// Client identifier and user, once they are known.
    name: Option<(String, Option<String>)>,
}

/// What went wrong with whom, for the log.
#[derive(Debug)]
pub(crate) struct HandshakeFailure {
    pub(crate) peer: SocketAddr,
    pub(crate) listener: &'static str,
    /// If it has come so far as to say it.
    pub(crate) client_id: Option<String>,
    /// As it called itself: nobody has believed it.
    pub(crate) user: Option<String>,
    pub(crate) why: String,
}

#[derive(Debug)]
enum HandshakeStage {
    /// A proxy is to say whom it speaks for.
    Proxy,
    Upgrade,
    Connect,
    /// Of HTTP: the first, or one that begins anew.
    Request,
    /// Of AMQP, as far as it has come.
    Container(Box<ContainerVisit>),
    Checking(Checking),
    Farewell,
    Lingering,
}

/// A client that has said hello.
#[derive(Debug)]
struct Checking {
    /// Bytes of the CONNECT.
    connect: usize,
    version: Version,
    client_id: String,
    /// What it said, if it speaks HTTP.
    http: Option<Box<HttpHello>>,
    /// How far it has come, if it speaks AMQP.
    amqp: Option<Box<ContainerVisit>>,
    /// Gone with it: who works for it looks here whether it is still there.
    presence: Arc<()>,
    /// It has been given more time.
    is_extended: bool,
}

impl Checking {
    fn new(connect: usize, version: Version, client_id: String) -> Self {
        Self { connect, version, client_id, http: None, amqp: None, presence: Arc::default(), is_extended: false }
    }

    /// A CONNACK that says no, or what that is in HTTP or AMQP.
    fn refusal(&self, reason: ReasonCode, later: Option<(&str, Duration)>) -> Vec<u8> {
        if let Some(visit) = &self.amqp {
            let (words, retry_after) = later.map_or((reason.name(), None), |(words, time)| (words, Some(time)));
            return visit.greeting.refusal(reason, words, retry_after);
        }
        match (&self.http, later) {
            (None, None) => refusal(self.version, reason),
            (None, Some((words, retry_after))) => refusal_until(self.version, reason, words, retry_after),
            (Some(hello), later) => refuse_request(hello, reason, later),
        }
    }
}

/// Somebody who speaks AMQP: says who it is, and then what it is called.
#[derive(Debug, Default)]
struct ContainerVisit {
    greeting: Greeting,
    /// Who it is, by the rules of this number.
    granted: Option<(LoginGrant, u64)>,
    /// What it said.
    hello: Option<Box<AmqpHello>>,
}

/// What is asked of whoever comes in, by the rules of now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectTerms<'a> {
    /// Of the CONNECT.
    pub(crate) limits: &'a Limits,
    /// Of the WebSocket request.
    pub(crate) pages: AllowedPages<'a>,
    /// Of AMQP: whether somebody without a name may come in.
    pub(crate) admits_nobody: bool,
}

/// What is to be done about a handshake.
#[derive(Debug)]
pub(crate) enum HandshakeStep {
    /// Nothing until its socket is ready again.
    Wait,
    /// There may be more to read: go on next turn.
    Again,
    /// Ask who this is, and come back with the answer.
    Check(Credentials),
    /// Its time to listen begins.
    Linger,
    /// Drop it.
    Close,
}

impl Handshake {
    /// Somebody new.
    pub(crate) fn new(arrival: AcceptedSocket) -> Self {
        let AcceptedSocket { link, peer, listener, permit } = arrival;
        let stage = match listener.standing(peer.ip()) {
            PeerStanding::Proxy => HandshakeStage::Proxy,
            // A stranger that was let in before a reload is asked for what was asked then.
            PeerStanding::Client | PeerStanding::Stranger => first_stage(&listener),
        };
        let listener = Some(listener);
        Self {
            link,
            stage,
            input: Vec::new(),
            output: Vec::new(),
            peer,
            listener,
            permit: Some(permit),
            trouble: None,
            name: None,
        }
    }

    /// A connection of HTTP whose next request begins anew; these are its bytes.
    pub(crate) fn again(arrival: AcceptedSocket, input: Vec<u8>) -> Self {
        Self { stage: HandshakeStage::Request, input, ..Self::new(arrival) }
    }

    /// Somebody that is leaving: everything was written.
    pub(crate) fn leaving(link: SocketLink) -> Self {
        let (input, output, stage) = (Vec::new(), Vec::new(), HandshakeStage::Lingering);
        let (peer, listener) = (UNKNOWN_PEER, None);
        Self { link, stage, input, output, peer, listener, permit: None, trouble: None, name: None }
    }

    /// What went wrong with whom at which listener, once.
    pub(crate) fn take_trouble(&mut self) -> Option<HandshakeFailure> {
        let why = self.trouble.take()?;
        let (client_id, user) = self.name.take().unwrap_or_default();
        let client_id = Some(client_id).filter(|client_id| !client_id.is_empty());
        Some(HandshakeFailure { peer: self.peer, listener: self.listener(), client_id, user, why })
    }

    /// The socket is ready, or it is worth trying.
    pub(crate) fn on_ready(
        &mut self,
        scratch: &mut [u8],
        terms: &ConnectTerms<'_>,
        make_id: impl FnOnce() -> String,
    ) -> HandshakeStep {
        match self.stage {
            HandshakeStage::Proxy => self.hear_proxy(scratch),
            HandshakeStage::Upgrade
            | HandshakeStage::Connect
            | HandshakeStage::Request
            | HandshakeStage::Container(_) => self.read(scratch, terms, make_id),
            HandshakeStage::Farewell => self.say_goodbye(),
            HandshakeStage::Lingering if self.link.drain(scratch) => HandshakeStep::Close,
            HandshakeStage::Checking(_) | HandshakeStage::Lingering => HandshakeStep::Wait,
        }
    }

    /// More time for the answer to who this is, once.
    pub(crate) fn extend(&mut self) -> bool {
        match &mut self.stage {
            HandshakeStage::Checking(checking) => !std::mem::replace(&mut checking.is_extended, true),
            _ => false,
        }
    }

    /// The time for this stage is up; a client that has said hello may come back after a while.
    pub(crate) fn on_deadline(&mut self, retry_after: Duration) -> HandshakeStep {
        match &self.stage {
            HandshakeStage::Proxy => {
                self.count(ListenerRefusal::ProxyHeader);
                self.trouble = Some("no PROXY header in time".into());
                HandshakeStep::Close
            }
            HandshakeStage::Upgrade | HandshakeStage::Connect => {
                self.trouble = Some("no CONNECT in time".into());
                HandshakeStep::Close
            }
            HandshakeStage::Container(_) => {
                self.trouble = Some("no open in time".into());
                HandshakeStep::Close
            }
            HandshakeStage::Checking(_) => self.refuse_until(ReasonCode::ServerBusy, PASSWORDS_WAIT, retry_after),
            // Nothing is wrong with a request that does not come: browsers open connections in advance.
            HandshakeStage::Request | HandshakeStage::Farewell | HandshakeStage::Lingering => HandshakeStep::Close,
        }
    }

    /// Says no to a client that has said hello; to others there is nothing to say.
    pub(crate) fn refuse(&mut self, reason: ReasonCode) -> HandshakeStep {
        let answer = match &self.stage {
            HandshakeStage::Checking(checking) => checking.refusal(reason, None),
            _ => Vec::new(),
        };
        self.trouble = Some(reason.name().into());
        self.farewell(answer)
    }

    /// The same for a reason that passes.
    pub(crate) fn refuse_until(&mut self, reason: ReasonCode, words: &str, retry_after: Duration) -> HandshakeStep {
        let answer = match &self.stage {
            HandshakeStage::Checking(checking) => checking.refusal(reason, Some((words, retry_after))),
            _ => Vec::new(),
        };
        self.trouble = Some(words.into());
        self.farewell(answer)
    }

    /// Counts why it is turned away.
    pub(crate) fn count(&self, why: ListenerRefusal) {
        if let Some(listener) = &self.listener {
            listener.counts.refuse(why);
        }
    }

    /// The name of the listener where it came in.
    pub(crate) fn listener(&self) -> &'static str {
        self.listener.as_ref().map_or("", |listener| listener.name())
    }

    /// The address it comes from.
    pub(crate) fn ip(&self) -> IpAddr {
        self.peer.ip()
    }

    /// Whether it speaks HTTP.
    pub(crate) fn is_request(&self) -> bool {
        matches!(&self.stage, HandshakeStage::Checking(checking) if checking.http.is_some())
    }

    /// Whether it is one of the broker's own bridges.
    pub(crate) fn is_inside(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.is_inside)
    }

    /// The client identifier of one that has said hello, and what is gone with it.
    pub(crate) fn checking(&self) -> Option<(&str, Weak<()>)> {
        match &self.stage {
            HandshakeStage::Checking(checking) => Some((&checking.client_id, Arc::downgrade(&checking.presence))),
            _ => None,
        }
    }

    /// True while it is on its way in.
    pub(crate) fn is_arriving(&self) -> bool {
        self.permit.is_some()
    }

    /// True while somebody is being asked who it is.
    pub(crate) fn is_checking(&self) -> bool {
        matches!(self.stage, HandshakeStage::Checking(_))
    }

    /// True while TLS is being agreed on: its next bytes may cost a signature.
    pub(crate) fn is_handshaking(&self) -> bool {
        let is_early = matches!(
            self.stage,
            HandshakeStage::Upgrade | HandshakeStage::Connect | HandshakeStage::Request | HandshakeStage::Container(_)
        );
        is_early && self.link.is_handshaking()
    }

    /// Whether something was computed for its TLS handshake since the last call.
    pub(crate) fn take_shaken(&mut self) -> bool {
        self.link.take_shaken()
    }

    /// It is this user by the rules of this number: ready for the core. `None` if it has not said hello, which nobody
    /// asks for.
    pub(crate) fn into_handover(self, grant: LoginGrant, generation: u64) -> Option<Handover> {
        let HandshakeStage::Checking(Checking { connect, client_id, http, amqp, .. }) = self.stage else { return None };
        let amqp = amqp.and_then(|visit| visit.hello);
        let (link, peer, listener, permit) = (self.link, self.peer, self.listener?, self.permit);
        let LoginGrant { user, roles, claims, valid_for } = grant;
        let identity = Identity { user, peer: peer.to_string().into(), listener: listener.name(), roles, claims };
        let mut connect_bytes = self.input;
        let rest = connect_bytes.split_off(connect);
        let connect = connect_bytes;
        Some(Handover {
            link,
            connect,
            http,
            amqp,
            rest,
            client_id,
            identity,
            peer,
            listener,
            permit,
            generation,
            valid_for,
        })
    }

    /// Somebody that was let in by rules that do not hold any more: it is asked again.
    pub(crate) fn returned(handover: Handover, version: Version, user: Option<String>) -> Self {
        let Handover { link, connect, http, amqp, rest, client_id, peer, listener, permit, .. } = handover;
        let name = Some((client_id.clone(), user));
        let visit = |hello| ContainerVisit { greeting: Greeting::opened(), granted: None, hello: Some(hello) };
        let amqp = amqp.map(|hello| Box::new(visit(hello)));
        let checking = Checking::new(connect.len(), version, client_id);
        let stage = HandshakeStage::Checking(Checking { http, amqp, ..checking });
        let (input, output, listener) = ([connect, rest].concat(), Vec::new(), Some(listener));
        Self { link, stage, input, output, peer, listener, permit, trouble: None, name }
    }

    fn read(
        &mut self,
        scratch: &mut [u8],
        terms: &ConnectTerms<'_>,
        make_id: impl FnOnce() -> String,
    ) -> HandshakeStep {
        let received = match self.link.receive(&mut scratch[..READ_BYTES_MAX]) {
            Ok(received) => received,
            Err(error) => {
                if self.link.is_handshaking() {
                    self.count(ListenerRefusal::Tls);
                }
                self.trouble = Some(error.to_string());
                // A layer may have words for it: a TLS alert, a WebSocket close.
                return self.farewell(Vec::new());
            }
        };
        self.input.extend_from_slice(&scratch[..received.bytes]);
        if self.link.wants_write() && self.link.send([&[], &[]]).is_err() {
            return HandshakeStep::Close;
        }
        match self.parse(terms, make_id) {
            HandshakeStep::Wait => match received.source {
                SourceState::Drained => HandshakeStep::Wait,
                SourceState::Short | SourceState::More => HandshakeStep::Again,
                SourceState::Ended => HandshakeStep::Close,
            },
            next => next,
        }
    }

    /// Waits for the header of a proxy, which stays in the socket until all of it is there: what follows may be TLS's.
    fn hear_proxy(&mut self, scratch: &mut [u8]) -> HandshakeStep {
        let seen = match self.link.peek(&mut scratch[..PROXY_HEADER_BYTES_MAX]) {
            Ok(Some(0)) | Err(_) => return HandshakeStep::Close,
            Ok(Some(seen)) => seen,
            Ok(None) => return HandshakeStep::Wait,
        };
        match proxy_header(&scratch[..seen]) {
            // More of it is an event of its own.
            ProxyHeader::Incomplete => HandshakeStep::Wait,
            ProxyHeader::Malformed(why) => {
                self.count(ListenerRefusal::ProxyHeader);
                self.trouble = Some(why.into());
                // Nobody knows what is spoken there, so there is nothing to say.
                self.permit = None;
                HandshakeStep::Close
            }
            ProxyHeader::Complete { bytes, client } => {
                if self.link.skip(&mut scratch[..bytes]).is_err() {
                    return HandshakeStep::Close;
                }
                self.peer = client.unwrap_or(self.peer);
                self.stage = self.listener.as_deref().map_or(HandshakeStage::Connect, first_stage);
                HandshakeStep::Again
            }
        }
    }

    fn parse(&mut self, terms: &ConnectTerms<'_>, make_id: impl FnOnce() -> String) -> HandshakeStep {
        if matches!(self.stage, HandshakeStage::Request) {
            return self.parse_request(terms, make_id);
        }
        if matches!(self.stage, HandshakeStage::Container(_)) {
            return self.parse_container(terms, make_id);
        }
        if matches!(self.stage, HandshakeStage::Upgrade) {
            match upgrade(&self.input, self.peer.ip(), terms.pages) {
                Upgrade::Incomplete => return HandshakeStep::Wait,
                Upgrade::Refuse { answer, why } => {
                    self.trouble = Some(why.into());
                    return self.farewell(answer);
                }
                Upgrade::Accept { consumed, answer } => {
                    // The first bytes into an empty socket: it takes them all, or something is wrong with it.
                    if !self.link.send([&answer, &[]]).is_ok_and(|sent| sent.taken == answer.len()) {
                        return HandshakeStep::Close;
                    }
                    self.input.drain(..consumed);
                    self.stage = HandshakeStage::Connect;
                    if self.link.become_websocket(&mut self.input).is_err() {
                        return self.farewell(Vec::new());
                    }
                }
            }
        }
        match first_packet(&self.input, terms.limits) {
            First::Incomplete => HandshakeStep::Wait,
            First::Refuse { answer, why } => {
                self.trouble = Some(why);
                self.farewell(answer)
            }
            First::Connect { connect, consumed } => {
                self.name = Some((connect.client_id.to_owned(), connect.user_name.map(str::to_owned)));
                let Ok(certificate_name) = self.link.certificate_name() else {
                    let answer = refusal(connect.version, ReasonCode::NotAuthorized);
                    self.trouble = Some("client certificate without a usable name".into());
                    return self.farewell(answer);
                };
                let client_id = if connect.client_id.is_empty() { make_id() } else { connect.client_id.to_owned() };
                let credentials = credentials(&connect, certificate_name, self.listener());
                self.stage = HandshakeStage::Checking(Checking::new(consumed, connect.version, client_id));
                HandshakeStep::Check(credentials)
            }
        }
    }

    /// The same of HTTP: pages that ask whether they may ask are answered, and then the first request says who asks.
    fn parse_request(&mut self, terms: &ConnectTerms<'_>, make_id: impl FnOnce() -> String) -> HandshakeStep {
        let pages = PagesHere(terms.pages);
        loop {
            match face_http::first(&self.input, self.peer.ip(), &pages) {
                face_http::First::Incomplete => return HandshakeStep::Wait,
                face_http::First::Refuse { answer, why } => {
                    self.trouble = Some(why.into());
                    return self.farewell(answer);
                }
                face_http::First::Answer { consumed, answer } => {
                    // Small, and nobody asks so twice without having read the first.
                    if !self.link.send([&answer, &[]]).is_ok_and(|sent| sent.taken == answer.len()) {
                        return HandshakeStep::Close;
                    }
                    self.input.drain(..consumed);
                }
                face_http::First::Hello(hello) => return self.ask_who(hello, make_id),
            }
        }
    }

    fn ask_who(&mut self, hello: Box<HttpHello>, make_id: impl FnOnce() -> String) -> HandshakeStep {
        let client_id = hello.client_id(&self.peer.to_string(), make_id);
        self.name = Some((client_id.clone(), hello.shown.user_name.clone()));
        let Ok(certificate_name) = self.link.certificate_name() else {
            self.trouble = Some("client certificate without a usable name".into());
            return self.farewell(refuse_request(&hello, ReasonCode::NotAuthorized, None));
        };
        let credentials = request_credentials(&hello, certificate_name, self.listener());
        let checking = Checking::new(0, Version::V311, client_id);
        self.stage = HandshakeStage::Checking(Checking { http: Some(hello), ..checking });
        HandshakeStep::Check(credentials)
    }

    /// The same of AMQP: SASL, and what the container is called.
    fn parse_container(&mut self, terms: &ConnectTerms<'_>, make_id: impl FnOnce() -> String) -> HandshakeStep {
        let Ok(certificate_name) = self.link.certificate_name() else {
            self.trouble = Some("client certificate without a usable name".into());
            return self.farewell(Vec::new());
        };
        let offers = Offers { anonymous: terms.admits_nobody, external: certificate_name.is_some() };
        loop {
            let HandshakeStage::Container(visit) = &mut self.stage else { return HandshakeStep::Wait };
            match visit.greeting.advance(&self.input, offers) {
                face_amqp::First::Incomplete => return HandshakeStep::Wait,
                face_amqp::First::Refuse { answer, why } => {
                    self.trouble = Some(why);
                    return self.farewell(answer);
                }
                face_amqp::First::Answer { consumed, answer } => {
                    if !self.link.send([&answer, &[]]).is_ok_and(|sent| sent.taken == answer.len()) {
                        return HandshakeStep::Close;
                    }
                    self.input.drain(..consumed);
                }
                face_amqp::First::Login { consumed, shown } => {
                    self.input.drain(..consumed);
                    let amqp = Some(std::mem::take(visit));
                    self.name = Some((String::new(), shown.user_name.clone()));
                    let credentials = container_credentials(&shown, "", certificate_name, self.listener());
                    let checking = Checking::new(0, Version::V311, String::new());
                    self.stage = HandshakeStage::Checking(Checking { amqp, ..checking });
                    return HandshakeStep::Check(credentials);
                }
                face_amqp::First::Hello { consumed, hello } => {
                    let mut visit = std::mem::take(visit);
                    let name = hello.container_id.as_str();
                    self.name = Some((name.to_owned(), hello.shown.user_name.clone()));
                    let credentials = container_credentials(&hello.shown, name, certificate_name, self.listener());
                    let client_id = if name.is_empty() { make_id() } else { name.to_owned() };
                    visit.hello = Some(hello);
                    let checking = Checking::new(consumed, Version::V311, client_id);
                    self.stage = HandshakeStage::Checking(Checking { amqp: Some(visit), ..checking });
                    return HandshakeStep::Check(credentials);
                }
            }
        }
    }

    /// Whether it speaks AMQP.
    pub(crate) fn is_amqp(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.is_amqp())
    }

    /// Whether SASL waits to hear who it is, and `open` is still to come.
    pub(crate) fn is_login(&self) -> bool {
        match &self.stage {
            HandshakeStage::Checking(checking) => checking.amqp.as_ref().is_some_and(|visit| visit.greeting.is_login()),
            _ => false,
        }
    }

    /// Who it is, if that is known already by the rules of this number.
    pub(crate) fn granted(&self, generation: u64) -> Option<LoginGrant> {
        let HandshakeStage::Checking(Checking { amqp: Some(visit), .. }) = &self.stage else { return None };
        let (grant, known_by) = visit.granted.as_ref()?;
        (*known_by == generation).then(|| grant.clone())
    }

    /// It is this user: SASL is told so, and AMQP begins.
    pub(crate) fn admit(&mut self, grant: LoginGrant, generation: u64) -> HandshakeStep {
        let HandshakeStage::Checking(Checking { amqp, .. }) = &mut self.stage else { return HandshakeStep::Close };
        let Some(mut visit) = amqp.take() else { return HandshakeStep::Close };
        visit.granted = Some((grant, generation));
        let answer = visit.greeting.admit();
        self.stage = HandshakeStage::Container(visit);
        if !self.link.send([&answer, &[]]).is_ok_and(|sent| sent.taken == answer.len()) {
            return HandshakeStep::Close;
        }
        HandshakeStep::Again
    }

    fn farewell(&mut self, answer: Vec<u8>) -> HandshakeStep {
        self.permit = None;
        self.input = Vec::new();
        self.output = answer;
        self.stage = HandshakeStage::Farewell;
        match self.say_goodbye() {
            HandshakeStep::Wait => HandshakeStep::Linger,
            next => next,
        }
    }

    fn say_goodbye(&mut self) -> HandshakeStep {
        match self.link.send([&self.output, &[]]) {
            Ok(sent) if sent.blocked => {
                self.output.drain(..sent.taken);
                HandshakeStep::Wait
            }
            Ok(_) => {
                self.output = Vec::new();
                self.link.finish();
                self.stage = HandshakeStage::Lingering;
                HandshakeStep::Linger
            }
            Err(_) => HandshakeStep::Close,
        }
    }
}

/// What comes after a proxy has spoken, or if there is none.
fn first_stage(listener: &OpenListener) -> HandshakeStage {
    match () {
        () if listener.is_websocket() => HandshakeStage::Upgrade,
        () if listener.is_http() => HandshakeStage::Request,
        () if listener.is_amqp() => HandshakeStage::Container(Box::default()),
        () => HandshakeStage::Connect,
    }
}

/// Which pages may use a listener, for who speaks HTTP there.
#[derive(Debug)]
pub(crate) struct PagesHere<'a>(pub(crate) AllowedPages<'a>);

impl face_http::Pages for PagesHere<'_> {
    fn judge(&self, peer: IpAddr, host: &str, origin: Option<&str>) -> Result<(), &'static str> {
        judge_request_origin(peer, host, origin, self.0)
    }
}

/// No, in HTTP. Who has shown nothing is asked for it.
pub(crate) fn refuse_request(hello: &HttpHello, reason: ReasonCode, later: Option<(&str, Duration)>) -> Vec<u8> {
    let is_nobody = hello.shown == face_http::Shown::default() && reason == ReasonCode::NotAuthorized;
    let (reason, own_words) = if is_nobody {
        (ReasonCode::BadUserNameOrPassword, "a user name and a password are needed, or a token")
    } else {
        (reason, reason.name())
    };
    let (words, retry_after) = later.map_or((own_words, None), |(words, time)| (words, Some(time)));
    face_http::refusal(reason, words, retry_after, hello.origin.as_deref())
}

/// What a client of HTTP shows. It has no identifier of its own choice, as one of MQTT that leaves it empty.
pub(crate) fn request_credentials(
    hello: &HttpHello,
    certificate_name: Option<String>,
    listener: &'static str,
) -> Credentials {
    let (user_name, password) = (hello.shown.user_name.clone(), hello.shown.password.clone());
    Credentials { client_id: String::new(), user_name, password, certificate_name, listener }
}

/// What a container shows, and is called if that is known.
pub(crate) fn container_credentials(
    shown: &face_amqp::Shown,
    container_id: &str,
    certificate_name: Option<String>,
    listener: &'static str,
) -> Credentials {
    let (user_name, password) = (shown.user_name.clone(), shown.password.clone());
    Credentials { client_id: container_id.to_owned(), user_name, password, certificate_name, listener }
}

/// What a client shows.
pub(crate) fn credentials(
    connect: &Connect<'_>,
    certificate_name: Option<String>,
    listener: &'static str,
) -> Credentials {
    Credentials {
        client_id: connect.client_id.to_owned(),
        user_name: connect.user_name.map(str::to_owned),
        password: connect.password.map(<[u8]>::to_vec),
        certificate_name,
        listener,
    }
}
