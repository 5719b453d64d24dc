//! `/api/v1/mqtt`: MQTT for a page, to try what it is like to publish and subscribe here. A WebSocket whose bytes go to the
//! broker's own listener and back, and nothing more: who one is and what one may do is decided there, as for every client.
//!
//! A page may not speak to another port (its policy forbids it), so the listener for WebSockets is of no use to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use tidegate_broker::config::ListenerKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::guard::Principal;
use crate::limits::{ANSWER_TIMEOUT, PAGE_MQTT_BYTES, PAGE_MQTT_MAX, PAGE_MQTT_TIME};
use crate::problem::{Answered, Problem};
use crate::state::AdminState;

/// As MQTT calls itself over WebSocket.
const PROTOCOL: &str = "mqtt";

pub(crate) async fn upgrade(
    State(state): State<Arc<AdminState>>,
    who: Option<Extension<Principal>>,
    socket: WebSocketUpgrade,
) -> Answered {
    let seat = Arc::clone(&state.mqtt_pages).try_acquire_owned().map_err(|_| {
        Problem::busy(format!("{PAGE_MQTT_MAX} pages speak MQTT already, and there are no more places"))
    })?;
    let address = plain_listener(&state).ok_or_else(|| {
        let detail = "listeners.mqtt is off, and this way leads to no other listener: \
                      each block has rules of its own for whom it lets in from this machine";
        Problem::new(StatusCode::NOT_FOUND, "no-plain-listener", detail)
    })?;
    let broker = timeout(ANSWER_TIMEOUT, TcpStream::connect(address)).await;
    let broker = broker.ok().and_then(Result::ok).ok_or_else(|| Problem::busy("the MQTT listener does not answer"))?;
    let user = who.and_then(|Extension(who)| who.user);
    tracing::info!(event = "page_mqtt", user = user.as_deref(), "a page speaks MQTT");
    let socket = socket.protocols([PROTOCOL]).max_message_size(PAGE_MQTT_BYTES).max_frame_size(PAGE_MQTT_BYTES);
    Ok(socket.on_upgrade(move |page| async move {
        // However it ends, and at the latest after its time: both sides see that it has ended.
        let _ = timeout(PAGE_MQTT_TIME, carry(page, broker)).await;
        drop(seat);
    }))
}

/// Where plain MQTT is, as this machine reaches it.
fn plain_listener(state: &AdminState) -> Option<SocketAddr> {
    usual_listener(state.handle.listeners().into_iter().map(|listener| (listener.name, listener.address)))
}

/// The listener of the section `listeners`, and no block: a block may believe this machine about where clients are from, or
/// let in without a name whoever comes from this machine, and the page's user is neither.
fn usual_listener(mut listeners: impl Iterator<Item = (&'static str, SocketAddr)>) -> Option<SocketAddr> {
    let (_, address) = listeners.find(|(name, _)| *name == ListenerKind::Mqtt.name())?;
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Some(SocketAddr::new(ip, address.port()))
}

/// Bytes there and back until one side has enough. Nothing is kept here: a page that does not read is one that the broker
/// finds slow.
async fn carry(mut page: WebSocket, mut broker: TcpStream) {
    let mut buffer = vec![0; PAGE_MQTT_BYTES];
    loop {
        tokio::select! {
            message = page.recv() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    if broker.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return,
            },
            read = broker.read(&mut buffer) => match read {
                Ok(count) if count > 0 => {
                    let bytes = Bytes::copy_from_slice(&buffer[..count]);
                    if page.send(Message::Binary(bytes)).await.is_err() {
                        return;
                    }
                }
                _ => {
                    let _ = page.send(Message::Close(None)).await;
                    return;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_to_the_usual_listener_and_never_to_a_block() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let block = ("behind-proxy", at("127.0.0.1:1884"));
        let inside = ("bridge", at("127.0.0.1:1885"));
        assert_eq!(usual_listener([block, inside].into_iter()), None);
        let usual = ("mqtt", at("0.0.0.0:1883"));
        assert_eq!(usual_listener([block, inside, usual].into_iter()), Some(at("127.0.0.1:1883")));
        assert_eq!(usual_listener([block, ("mqtt", at("[::]:1883"))].into_iter()), Some(at("[::1]:1883")));
    }
}
