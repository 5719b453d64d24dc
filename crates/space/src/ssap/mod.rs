//! The SSAP door: old Smart-M3 clients, unchanged.

mod buffer;
mod connection;
pub(crate) mod plan;
mod read;
pub(crate) mod terms;
mod write;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tidegate_http::{SecureStream, TlsDoor};
use tidegate_wire_ssap::SsapHeader;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tracing::info;

use self::buffer::BufferRoom;
use self::connection::Sides;
use crate::access_policy::{AccessPolicy, Checked};
use crate::counts::ConnectionKind;
use crate::handle::SpaceHandle;
use crate::limits::SSAP_BUFFERS_BYTES_MAX;
use crate::places::{AcceptTrouble, Places};
use crate::service::random;
use crate::shared_state::lock;

/// What the connections of this door share.
#[derive(Debug)]
pub(crate) struct SsapState {
    pub(crate) handle: SpaceHandle,
    /// For messages that are not whole yet.
    pub(crate) room: BufferRoom,
    places: Arc<Places>,
    pub(crate) policy: Arc<dyn AccessPolicy>,
    /// Which connection has which subscription: the end of one may be asked for on another. As many as the space has
    /// subscribers, at most.
    subscriptions: Mutex<HashMap<String, mpsc::Sender<SubscriptionEnd>>>,
}

/// The end of a subscription, asked for by this request.
#[derive(Debug)]
pub(crate) struct SubscriptionEnd {
    pub(crate) name: String,
    pub(crate) request: SsapHeader,
}

impl SsapState {
    pub(crate) fn new(handle: SpaceHandle, places: Arc<Places>, policy: Arc<dyn AccessPolicy>) -> Self {
        Self::with_room(handle, places, policy, SSAP_BUFFERS_BYTES_MAX)
    }

    fn with_room(handle: SpaceHandle, places: Arc<Places>, policy: Arc<dyn AccessPolicy>, bytes: usize) -> Self {
        Self { handle, room: BufferRoom::new(bytes), places, policy, subscriptions: Mutex::default() }
    }

    /// Tells the connection that has this subscription; false if there is none.
    pub(crate) fn end(&self, name: &str, request: &SsapHeader) -> bool {
        let connection = lock(&self.subscriptions).get(name).cloned();
        let farewell = SubscriptionEnd { name: name.to_owned(), request: request.clone() };
        connection.is_some_and(|connection| connection.try_send(farewell).is_ok())
    }

    pub(crate) fn register(&self, name: &str, connection: &mpsc::Sender<SubscriptionEnd>) {
        lock(&self.subscriptions).insert(name.to_owned(), connection.clone());
    }

    /// This connection does not have it any more; another one may.
    pub(crate) fn forget(&self, name: &str, connection: &mpsc::Sender<SubscriptionEnd>) {
        let mut subscriptions = lock(&self.subscriptions);
        if subscriptions.get(name).is_some_and(|other| other.same_channel(connection)) {
            subscriptions.remove(name);
        }
    }
}

/// A new name for a subscription. Whoever knows it can end it or go on with it, so it is not to be guessed.
pub(crate) fn subscription_name() -> String {
    format!("http://subscribe_graph#{}", uuid())
}

/// A random UUID: 36 characters, which a widespread client counts.
pub(crate) fn uuid() -> String {
    use std::fmt::Write;
    let mut bytes: [u8; 16] = random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub(crate) async fn serve(listener: &TcpListener, door: &Arc<SsapState>, tls: Option<&Arc<TlsDoor>>) {
    let mut trouble = AcceptTrouble::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                trouble.over();
                // Without a place it is closed at once: there is nothing to answer yet.
                if let Some(place) = door.places.take(ConnectionKind::Ssap, &door.handle.shared.counts) {
                    let (door, tls) = (Arc::clone(door), tls.cloned());
                    tokio::spawn(async move {
                        attend(stream, peer, door, tls).await;
                        drop(place);
                    });
                }
            }
            Err(error) => trouble.failed("ssap", &error).await,
        }
    }
}

async fn attend(stream: TcpStream, peer: SocketAddr, door: Arc<SsapState>, tls: Option<Arc<TlsDoor>>) {
    let Some(tls) = tls else {
        let _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        let sides = Sides { reader: Box::new(reader), writer: Box::new(writer) };
        return connection::attend(sides, peer, door, None).await;
    };
    // Whoever speaks no TLS has words for nothing else, either.
    let Ok(SecureStream { stream, user }) = tls.enter(stream).await else { return };
    if let Some(name) = &user
        && let Err(why) = check_user(&door, name.clone(), peer).await
    {
        return info!(event = "ssap_refused", %peer, user = name, why, "an SSAP client with a certificate is refused");
    }
    let (reader, writer) = tokio::io::split(stream);
    let sides = Sides { reader: Box::new(reader), writer: Box::new(writer) };
    connection::attend(sides, peer, door, user.map(Arc::from)).await;
}

/// Asks whether the name in a certificate is a user's; why it is not let in, if it is not.
async fn check_user(door: &SsapState, name: String, peer: SocketAddr) -> Result<(), &'static str> {
    let (reply, verdict) = oneshot::channel();
    let told = Box::new(move |is_user| {
        let _ = reply.send(is_user);
    });
    match door.policy.check_certificate(name, peer.ip(), told) {
        Checked::Asked => match verdict.await {
            Ok(true) => Ok(()),
            Ok(false) => Err("its certificate names no user"),
            Err(_) => Err("nobody has said whether its certificate names a user"),
        },
        Checked::Busy => Err("too many are being checked"),
        Checked::Wait(_) => Err("it was refused of late, and has to wait"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_have_the_36_characters_of_a_uuid() {
        let (a, b) = (super::uuid(), super::uuid());
        assert_eq!((a.len(), a.matches('-').count(), &a[14..15]), (36, 4, "4"));
        assert_ne!(a, b);
    }

    /// Says this to every certificate, and about the user that it names, if it is asked.
    #[derive(Debug)]
    struct Says(super::Checked, bool);

    impl super::AccessPolicy for Says {
        fn rule(&self) -> crate::AccessMode {
            crate::Everybody.rule()
        }

        fn generation(&self) -> u64 {
            0
        }

        fn check(&self, _: String, _: Vec<u8>, _: std::net::IpAddr, _: Box<dyn FnOnce(bool) + Send>) -> super::Checked {
            self.0
        }

        fn check_certificate(
            &self,
            _: String,
            _: std::net::IpAddr,
            verdict: Box<dyn FnOnce(bool) + Send>,
        ) -> super::Checked {
            if self.0 == super::Checked::Asked {
                verdict(self.1);
            }
            self.0
        }
    }

    #[tokio::test]
    async fn whoever_is_not_let_in_is_not_said_to_be_nobody_unless_it_is() {
        use super::Checked;

        let service = crate::Service::start(tidegate_graph::SpaceLimits::default()).unwrap();
        let asked = async |says: Says| {
            let places = std::sync::Arc::new(super::Places::new(8));
            let door = super::SsapState::new(service.handle(), places, std::sync::Arc::new(says));
            super::check_user(&door, "ann".to_owned(), "127.0.0.1:1".parse().unwrap()).await
        };
        assert_eq!(asked(Says(Checked::Asked, true)).await, Ok(()));
        assert_eq!(asked(Says(Checked::Asked, false)).await, Err("its certificate names no user"));
        assert_eq!(asked(Says(Checked::Busy, false)).await, Err("too many are being checked"));
        let wait = Checked::Wait(std::time::Duration::from_secs(1));
        assert_eq!(asked(Says(wait, false)).await, Err("it was refused of late, and has to wait"));
    }

    #[tokio::test]
    async fn f097_half_messages_do_not_keep_the_room_from_others() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        use tokio::net::{TcpListener, TcpStream};

        let service = crate::Service::start(tidegate_graph::SpaceLimits::default()).unwrap();
        let places = std::sync::Arc::new(super::Places::new(8));
        // Room for one long message beside what is each connection's own.
        let door = std::sync::Arc::new(super::SsapState::with_room(
            service.handle(),
            places,
            std::sync::Arc::new(crate::Everybody),
            6 * super::buffer::READ_BYTES,
        ));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let own = std::sync::Arc::clone(&door);
        let serving = tokio::spawn(async move { super::serve(&listener, &own, None).await });
        let long = format!(
            "<SSAP_message><node_id>kp</node_id><space_id>X</space_id><transaction_type>JOIN</transaction_type>\
             <message_type>REQUEST</message_type><transaction_id>1</transaction_id><parameter name=\"credentials\">{}</parameter></SSAP_message>",
            "x".repeat(6 * super::buffer::READ_BYTES)
        );
        let mut half = TcpStream::connect(at).await.unwrap();
        half.write_all(&long.as_bytes()[..5 * super::buffer::READ_BYTES]).await.unwrap();
        while door.room.has(1) {
            tokio::task::yield_now().await;
        }
        let mut whole = TcpStream::connect(at).await.unwrap();
        whole.write_all(long.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let length = whole.read(&mut answer).await.unwrap();
        let text = String::from_utf8_lossy(&answer[..length]);
        assert!(text.contains("m3:Success"), "{text}");
        assert_eq!(half.read(&mut answer).await.unwrap_or(0), 0, "the half one was cut");
        serving.abort();
    }
}
