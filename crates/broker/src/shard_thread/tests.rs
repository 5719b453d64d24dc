//! A shard's thread without its thread: turned by hand, so that what happens between two turns is no accident.

mod pause;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mio::{Events, Poll, Waker};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tidegate_core::access::Open;
use tidegate_core::shard_of;

use super::{INBOX, ShardThread};
use crate::authenticate::{Anonymous, Authenticator, Credentials, LoginRefusal};
use crate::bans::Banned;
use crate::clock::Clock;
use crate::config::{Config, Listener, ListenerKind, TlsFiles};
use crate::inbox::{Inbox, lock};
use crate::limits::{PASSWORD_PATIENCE, TLS_STEPS_PER_TURN_MAX};
use crate::link::SocketLink;
use crate::listener::OpenListener;
use crate::password::Questions;
use crate::permit::SocketPlaces;
use crate::shared_state::SharedState;
use crate::thread_message::{AcceptedSocket, Rules};

/// Asks on a password thread, and knows everybody.
#[derive(Debug)]
struct Slow;

impl Authenticator for Slow {
    fn is_slow(&self, _: &Credentials) -> bool {
        true
    }

    fn authenticate(&self, _: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        Ok(Some("ann".into()))
    }
}

/// Knows nobody any more.
#[derive(Debug)]
struct Nobody;

impl Authenticator for Nobody {
    fn is_slow(&self, _: &Credentials) -> bool {
        false
    }

    fn authenticate(&self, _: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        Err(LoginRefusal::NotAuthorized)
    }
}

/// Knows by the certificate, say, that everybody is ann; and who else is still there.
#[derive(Debug)]
struct Ann {
    is_known: bool,
}

impl Authenticator for Ann {
    fn is_slow(&self, _: &Credentials) -> bool {
        false
    }

    fn authenticate(&self, _: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        Ok(Some("ann".into()))
    }

    fn admits(&self, user: Option<&str>, _: &str) -> bool {
        user != Some("ann") || self.is_known
    }
}

fn rules(authenticator: Arc<dyn Authenticator>, generation: u64) -> Rules {
    Rules::new(&Config::default(), authenticator, Arc::new(Open), generation)
}

fn threads(count: usize, authenticator: &Arc<dyn Authenticator>) -> Vec<ShardThread> {
    threads_at(&Clock::start(), count, authenticator)
}

fn threads_at(clock: &Clock, count: usize, authenticator: &Arc<dyn Authenticator>) -> Vec<ShardThread> {
    let polls: Vec<Poll> = (0..count).map(|_| Poll::new().unwrap()).collect();
    let inbox = |poll: &Poll| Inbox::new(Waker::new(poll.registry(), INBOX).unwrap());
    let (inboxes, questions) = (polls.iter().map(inbox).collect(), Arc::new(Questions::new(1)));
    let shared = Arc::new(SharedState::new(clock.clone(), inboxes, questions, u64::MAX, None, None));
    let thread = |(index, poll)| {
        let rules = rules(Arc::clone(authenticator), 0);
        let (settings, policy) = (Arc::clone(&rules.settings), Arc::clone(&rules.policy));
        let shard = tidegate_core::Shard::new(index, count, settings, policy, 1);
        ShardThread::new(index, Arc::clone(&shared), rules, poll, (shard, None))
    };
    polls.into_iter().enumerate().map(thread).collect()
}

/// A client's socket, and what the broker gets of it.
fn arrival(thread: &ShardThread, open: &Arc<OpenListener>) -> (TcpStream, AcceptedSocket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let (stream, peer) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let places = SocketPlaces::new(thread.shared.connections.take(usize::MAX).unwrap(), open.take_place().unwrap());
    let permit = thread.shared.handshakes.take(usize::MAX).unwrap();
    let link = SocketLink::new(mio::net::TcpStream::from_std(stream), open.tls_session().unwrap(), places);
    (client, AcceptedSocket { link, peer, listener: Arc::clone(open), permit })
}

fn plain_door() -> Arc<OpenListener> {
    let listener = Listener::new(ListenerKind::Mqtt, "127.0.0.1:0".parse().unwrap());
    OpenListener::open(&listener).unwrap().0
}

/// A client that has said hello.
fn connecting(thread: &mut ShardThread, level: u8, client_id: &str) -> TcpStream {
    let (mut client, arrival) = arrival(thread, &plain_door());
    let properties: &[u8] = if level == 5 { &[0] } else { &[] };
    let head = [&b"\x00\x04MQTT"[..], &[level, 2, 0, 60], properties].concat();
    let body = [&head[..], &[0, client_id.len() as u8], client_id.as_bytes()].concat();
    client.write_all(&[&[0x10, body.len() as u8], &body[..]].concat()).unwrap();
    thread.welcome(arrival);
    turn(thread);
    client
}

fn turn(thread: &mut ShardThread) {
    thread.turn(&Events::with_capacity(1));
}

fn answer(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = [0; 256];
    let count = client.read(&mut bytes).unwrap();
    bytes[..count].to_vec()
}

const NOT_AUTHORIZED: &[u8] = b"\x20\x02\x00\x05";

#[test]
fn f072_who_was_removed_while_its_password_was_checked_is_not_let_in() {
    let slow: Arc<dyn Authenticator> = Arc::new(Slow);
    let mut thread = threads(1, &slow).remove(0);
    let mut client = connecting(&mut thread, 4, "x");
    let question = thread.shared.questions.next().unwrap();
    thread.reload(rules(Arc::new(Nobody), 1));
    let verdict = question.authenticator.login(&question.credentials);
    assert!(verdict.is_ok(), "by the rules of then");
    thread.on_checked(question, verdict);
    assert_eq!(answer(&mut client), NOT_AUTHORIZED);
}

#[test]
fn f072_who_was_removed_on_the_way_to_its_shard_is_not_let_in() {
    let everybody: Arc<dyn Authenticator> = Arc::new(Anonymous);
    for (now, expected) in
        [(Arc::new(Nobody) as Arc<dyn Authenticator>, NOT_AUTHORIZED), (everybody.clone(), b"\x20\x02\0\0")]
    {
        let mut threads = threads(2, &everybody);
        let client_id = (0..100).map(|n| format!("c{n}")).find(|id| shard_of(id, 2) == 1).unwrap();
        let mut client = connecting(&mut threads[0], 4, &client_id);
        threads[1].reload(rules(now, 1));
        turn(&mut threads[1]);
        assert_eq!(answer(&mut client), expected);
        assert_eq!(threads[1].shared.handshakes.taken(), 0, "its place among the handshakes is free again");
    }
}

#[test]
fn f136_a_ban_is_for_who_somebody_is_and_not_for_who_it_says_it_is() {
    let ann: Arc<dyn Authenticator> = Arc::new(Ann { is_known: true });
    let mut thread = threads(1, &ann).remove(0);
    let minute = std::time::Duration::from_secs(60);
    for (whom, client_id, is_banned) in [
        (Banned::ClientOf("x".into(), "ann".into()), "x", true),
        (Banned::ClientOf("x".into(), "ann".into()), "y", false),
        (Banned::User("ann".into()), "z", true),
    ] {
        assert!(lock(&thread.shared.bans).add(whom.clone(), minute, "a test", thread.now));
        let mut client = connecting(&mut thread, 5, client_id);
        turn(&mut thread);
        assert_eq!(answer(&mut client)[3] == 0x8A, is_banned, "{whom:?} {client_id}");
    }
}

#[test]
fn f072_who_is_no_user_any_more_has_to_go_and_others_stay() {
    let ann: Arc<dyn Authenticator> = Arc::new(Ann { is_known: true });
    let mut thread = threads(1, &ann).remove(0);
    let mut client = connecting(&mut thread, 5, "x");
    turn(&mut thread);
    assert_eq!(answer(&mut client)[3], 0);
    thread.reload(rules(Arc::new(Ann { is_known: true }), 1));
    turn(&mut thread);
    assert_eq!(thread.shard.stats().connections, 1);
    thread.reload(rules(Arc::new(Ann { is_known: false }), 2));
    turn(&mut thread);
    let said = answer(&mut client);
    assert_eq!((said[0], said[2]), (0xE0, 0x87), "DISCONNECT, not authorized");
    assert_eq!(thread.shard.stats().connections, 0);
}

#[test]
fn nothing_is_hashed_for_a_visitor_whose_time_was_up_and_it_is_told_when_to_come_back() {
    let slow: Arc<dyn Authenticator> = Arc::new(Slow);
    let mut thread = threads(1, &slow).remove(0);
    let mut client = connecting(&mut thread, 5, "x");
    thread.now = thread.now + thread.rules.handshake_timeout;
    thread.dismiss_late();
    assert_eq!(thread.handshakes.keys().len(), 1);
    assert!(!thread.shared.questions.backlog().is_zero(), "it is given more time");
    thread.now = thread.now + PASSWORD_PATIENCE;
    thread.dismiss_late();
    let said = answer(&mut client);
    assert_eq!(said[3], 0x89, "busy");
    assert!(said.windows(19).any(|words| words == b"pace-retry-after-ms"));
    thread.shared.questions.close();
    assert!(thread.shared.questions.next().is_none());
}

#[test]
fn whoever_comes_during_a_drain_is_sent_away() {
    let everybody: Arc<dyn Authenticator> = Arc::new(Anonymous);
    let mut threads = threads(2, &everybody);
    let client_id = (0..100).map(|n| format!("c{n}")).find(|id| shard_of(id, 2) == 1).unwrap();
    for (level, expected) in [(5, &b"\x20\x03\x00\x88\x00"[..]), (4, b"\x20\x02\x00\x03")] {
        // Its shard goes down while it is on its way there.
        let mut client = connecting(&mut threads[0], level, &client_id);
        threads[1].shut_down();
        turn(&mut threads[1]);
        assert_eq!(answer(&mut client), expected);
    }
    // Nothing was read from this one yet, so there is nothing that could be answered.
    let (mut client, arrival) = arrival(&threads[1], &plain_door());
    threads[1].welcome(arrival);
    assert_eq!(answer(&mut client), b"");
    assert!(threads[1].handshakes.keys().iter().all(|&key| !threads[1].handshakes.get(key).unwrap().is_arriving()));
}

/// A TLS listener, and what its clients trust.
fn secure_listener() -> (Arc<OpenListener>, Arc<ClientConfig>, Folder) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = Folder(std::env::temp_dir().join(format!("tidegate-turns-{}-{number}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.0.join("cert.pem"), folder.0.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = Some(TlsFiles { cert, key, ..TlsFiles::default() });
    let listener = Listener { tls, ..Listener::new(ListenerKind::Mqtts, "127.0.0.1:0".parse().unwrap()) };
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (OpenListener::open(&listener).unwrap().0, Arc::new(config), folder)
}

/// Removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn f083_a_storm_of_tls_greetings_is_answered_a_few_in_a_turn_and_in_order() {
    let everybody: Arc<dyn Authenticator> = Arc::new(Anonymous);
    let mut thread = threads(1, &everybody).remove(0);
    let (listener, config, _folder) = secure_listener();
    let mut clients = Vec::new();
    for _ in 0..=2 * TLS_STEPS_PER_TURN_MAX {
        let (mut client, arrival) = arrival(&thread, &listener);
        let mut session =
            ClientConnection::new(Arc::clone(&config), ServerName::try_from("localhost").unwrap()).unwrap();
        session.write_tls(&mut client).unwrap();
        thread.welcome(arrival);
        clients.push(client);
    }
    let answered = |clients: &[TcpStream]| -> Vec<bool> {
        let is_answered = |client: &TcpStream| {
            client.set_nonblocking(true).unwrap();
            client.peek(&mut [0]).is_ok_and(|count| count > 0)
        };
        clients.iter().map(is_answered).collect()
    };
    let first = |count: usize| -> Vec<bool> { (0..clients.len()).map(|place| place < count).collect() };
    assert_eq!(answered(&clients), first(0), "before the first turn there is no budget");
    for count in [TLS_STEPS_PER_TURN_MAX, 2 * TLS_STEPS_PER_TURN_MAX, clients.len()] {
        turn(&mut thread);
        assert_eq!(answered(&clients), first(count));
    }
    assert!(thread.visitors_next.is_empty(), "nobody is tried again before it says something");
}
