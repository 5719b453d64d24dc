//! What a peer says first, whatever the listener speaks: the header of a proxy, the upgrade to a WebSocket, CONNECT, or a request of HTTP.

use tidegate_face_http::{self as face_http, HttpHello};
use tidegate_wire_mqtt::{ReasonCode, Version};

use super::shown::{PagesHere, credentials, refuse_request, request_credentials};
use super::{Checking, ConnectTerms, Handshake, HandshakeStage, HandshakeStep, first_stage};
use crate::first_packet::{First, first_packet, refusal};
use crate::limits::READ_BYTES_MAX;
use crate::link::SourceState;
use crate::listener_counts::ListenerRefusal;
use crate::proxy_header::{PROXY_HEADER_BYTES_MAX, ProxyHeader, proxy_header};
use crate::websocket::{Upgrade, upgrade};

impl Handshake {
    pub(super) fn read(
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
    pub(super) fn hear_proxy(&mut self, scratch: &mut [u8]) -> HandshakeStep {
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

    pub(super) fn parse(&mut self, terms: &ConnectTerms<'_>, make_id: impl FnOnce() -> String) -> HandshakeStep {
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
}
