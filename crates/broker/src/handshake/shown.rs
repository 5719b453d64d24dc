//! What a client shows of itself, in each protocol, and how it is told no.

use std::net::IpAddr;
use std::time::Duration;

use tidegate_face_amqp as face_amqp;
use tidegate_face_http::{self as face_http, HttpHello};
use tidegate_wire_mqtt::{Connect, ReasonCode};

use crate::authenticate::Credentials;
use crate::websocket::AllowedPages;
use crate::websocket::upgrade::judge_request_origin;

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
