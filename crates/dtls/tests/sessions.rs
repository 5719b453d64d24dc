//! Sessions from hello to the last word, with a client of dimpl's own at the other end, in time that is an argument.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod world;

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_dtls::{DtlsEvent, DtlsPeer, SESSION_BYTES};
use world::{KEY, TestClient, TestWorld, address};

#[test]
fn somebody_with_a_key_is_known_by_its_name_and_leaves_nothing() {
    let mut world = TestWorld::new();
    let mut client = TestClient::with_key("pump-7", KEY);
    world.meet(&mut client);
    assert_eq!(world.endpoint.peer(client.at), Some(&DtlsPeer::Key("pump-7".into())));
    client.say(b"up");
    world.run(&mut client);
    assert_eq!(world.heard, [(client.at, b"up".to_vec())]);
    world.endpoint.send(client.at, b"down", world.now);
    world.run(&mut client);
    assert_eq!(client.heard, [b"down"]);
    client.close();
    world.run(&mut client);
    assert_eq!((world.ended.as_slice(), world.endpoint.len()), (&[client.at][..], 0));
    assert_eq!(world.endpoint.poll_timeout(), None);
    let stats = world.endpoint.stats();
    assert_eq!((stats.begun, stats.opened, stats.ended, stats.failed, stats.handshakes), (1, 1, 1, 0, 0));
}

#[test]
fn somebody_with_a_certificate_is_known_by_its_name_and_others_are_not_let_in() {
    let mut world = TestWorld::new();
    let mut client = TestClient::with_certificate("pump-8");
    world.meet(&mut client);
    assert_eq!(world.endpoint.peer(client.at), Some(&DtlsPeer::Certificate("pump-8".into())));
    let mut stranger = TestClient::with_certificate("mallory");
    stranger.at = address(2);
    world.run(&mut stranger);
    assert_eq!((world.endpoint.peer(stranger.at), world.endpoint.len()), (None, 1));
    assert_eq!((world.endpoint.stats().not_trusted, world.refused.as_slice()), (1, &[stranger.at][..]));
}

#[test]
fn a_stranger_proves_its_address_first_and_costs_nothing_until_then() {
    let mut world = TestWorld::new();
    let hello = TestClient::with_key("pump-7", KEY).next().unwrap();
    for port in 0..10_000 {
        let from = address(port);
        world.endpoint.handle_datagram(from, &hello, world.now);
        let sent = world.endpoint.poll_event().map(|event| world::sent(event).1.len());
        assert!(sent.is_some_and(|size| size < hello.len()), "{sent:?}");
        assert_eq!(world.endpoint.poll_event(), None);
    }
    assert_eq!((world.endpoint.len(), world.endpoint.poll_timeout()), (0, None));
    // A cookie is good for the address that it was given to.
    let mut client = TestClient::with_key("pump-7", KEY);
    let first = client.next().unwrap();
    world.endpoint.handle_datagram(client.at, &first, world.now);
    let (_, request) = world::sent(world.endpoint.poll_event().unwrap());
    client.hear(&request);
    let second = client.next().unwrap();
    world.endpoint.handle_datagram(address(77), &second, world.now);
    assert_eq!(world.endpoint.len(), 0);
    world.endpoint.handle_datagram(client.at, &second, world.now + Duration::from_secs(130));
    assert_eq!(world.endpoint.len(), 0, "too late");
    world.endpoint.handle_datagram(client.at, &second, world.now);
    assert_eq!(world.endpoint.len(), 1);
}

#[test]
fn a_wrong_key_and_an_unknown_name_come_to_nothing_in_time() {
    for (name, key) in [("pump-7", b"another key of 16".as_slice()), ("nobody", KEY)] {
        let mut world = TestWorld::new();
        let mut client = TestClient::with_key(name, key);
        world.run(&mut client);
        assert_eq!(world.endpoint.peer(client.at), None);
        world.pass(Duration::from_secs(11));
        assert_eq!((world.endpoint.len(), world.endpoint.poll_timeout()), (0, None), "{name}");
        assert_eq!(world.refused, [client.at]);
        assert_eq!(world.endpoint.stats().failed, 1);
    }
}

#[test]
fn handshakes_of_one_address_have_an_end_and_end_in_time() {
    let mut world = TestWorld::new();
    for port in 0..100 {
        let mut client = TestClient::with_key("pump-7", KEY);
        client.at = address(port);
        for _ in 0..2 {
            let datagram = client.next().unwrap();
            world.endpoint.handle_datagram(client.at, &datagram, world.now);
            world.take(&mut client);
        }
    }
    let stats = world.endpoint.stats();
    assert_eq!((stats.handshakes, stats.crowded), (32, 68));
    world.pass(Duration::from_secs(11));
    assert_eq!((world.endpoint.len(), world.endpoint.stats().failed, world.endpoint.poll_timeout()), (0, 32, None));
}

/// A client whose next datagram begins a handshake: its address is proved.
fn proved(world: &mut TestWorld, port: u16) -> TestClient {
    let mut client = TestClient::with_key("pump-7", KEY);
    client.at = SocketAddr::from(([192, 0, 2, port as u8], 10_000));
    let datagram = client.next().unwrap();
    world.endpoint.handle_datagram(client.at, &datagram, world.now);
    world.take(&mut client);
    client
}

#[test]
fn a_turn_has_time_for_some_handshakes_and_the_others_wait_for_theirs() {
    let mut world = TestWorld::new();
    let mut clients: Vec<TestClient> = (1..=20).map(|port| proved(&mut world, port)).collect();
    let mut open = TestClient::with_key("pump-8", KEY);
    world.meet(&mut open);
    for client in &mut clients {
        let datagram = client.next().unwrap();
        world.endpoint.handle_datagram(client.at, &datagram, world.now);
    }
    let begun = |world: &TestWorld| world.endpoint.stats().begun - 1;
    assert_eq!((begun(&world), world.endpoint.poll_timeout()), (8, Some(Timestamp::ZERO)));
    // Who has a session is heard meanwhile.
    open.say(b"data");
    let datagram = open.next().unwrap();
    world.endpoint.handle_datagram(open.at, &datagram, world.now);
    let heard = std::iter::from_fn(|| world.endpoint.poll_event()).any(|event| matches!(event, DtlsEvent::Data(..)));
    assert!(heard);
    for expected in [16, 20] {
        world.endpoint.turn(world.now);
        assert_eq!(begun(&world), expected);
    }
    assert!(world.endpoint.poll_timeout().is_some_and(|at| at > world.now));
}

#[test]
fn one_address_does_not_take_the_time_of_all() {
    let mut world = TestWorld::new();
    let mut flooder = proved(&mut world, 1);
    let datagram = flooder.next().unwrap();
    for _ in 0..1000 {
        world.endpoint.handle_datagram(flooder.at, &datagram, world.now);
    }
    let mut other = proved(&mut world, 2);
    world.run(&mut other);
    assert!(other.is_connected);
    assert!(world.endpoint.stats().crowded > 900, "{:?}", world.endpoint.stats());
}

#[test]
fn a_session_takes_the_memory_that_is_accounted_for_it() {
    let mut world = TestWorld::new();
    let sessions = 64;
    for by_key in [true, false] {
        let mut bytes = 0;
        for port in 0..sessions {
            let mut client =
                if by_key { TestClient::with_key("pump-7", KEY) } else { TestClient::with_certificate("pump-8") };
            client.at = address(port + if by_key { 0 } else { sessions });
            // What the endpoint takes, and not the client.
            while let Some(datagram) = client.next() {
                let counted = allocation_counter::measure(|| {
                    world.endpoint.handle_datagram(client.at, &datagram, world.now);
                    world.endpoint.turn(world.now);
                });
                bytes += counted.bytes_current;
                while let Some(event) = world.endpoint.poll_event() {
                    if let DtlsEvent::Send(_, datagram) = event {
                        // On its way, and nothing of the session's.
                        bytes -= i64::try_from(datagram.capacity()).unwrap();
                        client.hear(&datagram);
                    }
                }
            }
            assert!(client.is_connected);
        }
        let each = bytes / i64::from(sessions);
        println!("{each} bytes of a session, by key: {by_key}");
        let accounted = i64::try_from(SESSION_BYTES).unwrap();
        assert!((accounted / 2..=accounted).contains(&each), "{each} bytes, by key: {by_key}");
    }
}

#[test]
fn a_record_that_comes_again_is_heard_once() {
    let mut world = TestWorld::new();
    let mut client = TestClient::with_key("pump-7", KEY);
    world.meet(&mut client);
    client.say(b"once");
    let datagram = client.next().unwrap();
    for _ in 0..3 {
        world.endpoint.handle_datagram(client.at, &datagram, world.now);
        world.take(&mut client);
    }
    // Nor from elsewhere, or changed.
    world.endpoint.handle_datagram(address(9), &datagram, world.now);
    let mut changed = datagram.clone();
    *changed.last_mut().unwrap() ^= 1;
    changed[10] += 1;
    world.endpoint.handle_datagram(client.at, &changed, world.now);
    world.take(&mut client);
    assert_eq!(world.heard, [(client.at, b"once".to_vec())]);
    assert!(world.endpoint.peer(client.at).is_some());
    assert_eq!(world.endpoint.stats().stray, 1);
}

#[test]
fn a_lost_datagram_is_made_up_for() {
    for lost in 0..8 {
        let mut world = TestWorld::new();
        let mut client = TestClient::with_certificate("pump-8");
        world.lose = Some(lost);
        world.run(&mut client);
        for _ in 0..8 {
            world.pass(Duration::from_secs(1));
            client.pass(Duration::from_secs(1));
            world.run(&mut client);
        }
        assert!(world.endpoint.peer(client.at).is_some() && client.is_connected, "without datagram {lost}");
    }
}

#[test]
fn who_proves_its_address_begins_anew_and_a_made_up_hello_ends_nothing() {
    let mut world = TestWorld::new();
    let mut client = TestClient::with_key("pump-7", KEY);
    world.meet(&mut client);
    // As somebody who writes that address on its datagrams would.
    let hello = TestClient::with_key("pump-7", KEY).next().unwrap();
    world.endpoint.handle_datagram(client.at, &hello, world.now);
    while world.endpoint.poll_event().is_some() {}
    assert!(world.endpoint.peer(client.at).is_some());
    let mut again = TestClient::with_key("pump-8", KEY);
    world.meet(&mut again);
    assert_eq!(world.endpoint.peer(client.at), Some(&DtlsPeer::Key("pump-8".into())));
    assert_eq!((world.ended.as_slice(), world.endpoint.len()), (&[client.at][..], 1));
}

#[test]
fn a_key_that_is_taken_back_ends_its_sessions_and_no_others() {
    let mut world = TestWorld::new();
    let mut clients = [TestClient::with_key("pump-7", KEY), TestClient::with_key("pump-8", KEY)];
    for (port, client) in clients.iter_mut().enumerate() {
        client.at = address(port as u16);
        world.meet(client);
    }
    world.endpoint.set_plan(&world::plan(&["pump-8"]));
    world.run(&mut clients[0]);
    assert_eq!((world.ended.as_slice(), clients[0].is_closed), (&[clients[0].at][..], true));
    assert!(world.endpoint.peer(clients[1].at).is_some());
}

#[test]
fn a_key_that_is_taken_back_in_the_middle_of_a_handshake_opens_no_session() {
    let mut world = TestWorld::new();
    let mut client = TestClient::with_key("pump-7", KEY);
    for _ in 0..2 {
        let hello = client.next().unwrap();
        world.endpoint.handle_datagram(client.at, &hello, world.now);
        world.take(&mut client);
    }
    assert!(world.endpoint.len() == 1 && world.endpoint.peer(client.at).is_none(), "it is the client's turn");
    world.endpoint.set_plan(&world::plan(&["pump-8"]));
    world.take(&mut client);
    assert_eq!((world.endpoint.len(), world.refused.as_slice()), (0, &[client.at][..]));
    world.run(&mut client);
    assert!(world.endpoint.peer(client.at).is_none() && world.endpoint.stats().opened == 0);
}

#[test]
fn what_comes_in_one_datagram_with_the_last_word_is_heard() {
    let mut world = TestWorld::new();
    let mut client = TestClient::with_key("pump-7", KEY);
    world.meet(&mut client);
    client.say(b"last");
    client.close();
    let mut datagram = Vec::new();
    while let Some(next) = client.next() {
        datagram.extend_from_slice(&next);
    }
    world.endpoint.handle_datagram(client.at, &datagram, world.now);
    let mut heard = Vec::new();
    while let Some(event) = world.endpoint.poll_event() {
        // As a driver does, which asks who it is when it hears something.
        match event {
            DtlsEvent::Data(from, data) => heard.push((data, world.endpoint.peer(from).cloned())),
            DtlsEvent::Ended(from) => assert!(world.endpoint.peer(from).is_none(), "that is told now"),
            _ => {}
        }
    }
    assert_eq!(heard, [(b"last".to_vec(), Some(DtlsPeer::Key("pump-7".into())))]);
    assert!(world.endpoint.is_empty());
}

#[test]
fn a_session_that_is_silent_is_ended_and_its_client_told() {
    let mut world = TestWorld::new();
    let mut client = TestClient::with_key("pump-7", KEY);
    world.meet(&mut client);
    world.pass(Duration::from_secs(3000));
    client.say(b"still here");
    world.run(&mut client);
    world.pass(Duration::from_secs(3000));
    assert_eq!(world.endpoint.len(), 1);
    world.pass(Duration::from_secs(601));
    world.run(&mut client);
    assert_eq!((world.endpoint.len(), client.is_closed, world.ended.len()), (0, true, 1));
}

#[test]
fn who_has_no_suite_in_common_is_told_so() {
    let mut world = TestWorld::of(world::plan_without_certificate());
    let mut client = TestClient::with_certificate("pump-8");
    world.run(&mut client);
    assert_eq!((world.endpoint.len(), world.refused.as_slice()), (0, &[client.at][..]));
    assert_eq!(world.endpoint.stats().failed, 1);
}

#[test]
fn what_others_send_in_its_name_ends_no_session() {
    let mut world = TestWorld::new();
    let mut client = TestClient::with_key("pump-7", KEY);
    world.meet(&mut client);
    for kind in 19..=26 {
        for epoch in 0..3 {
            for body in [&[][..], &[1], &[2, 40], &[1, 0], &[20; 60], &[1, 0, 0, 48, 0, 9, 0, 0, 0, 0, 0, 48, 254, 253]]
            {
                for number in 0..8 {
                    let mut datagram = vec![kind, 254, 253, 0, epoch, 0, 0, 0, 0, 1, number, 0, body.len() as u8];
                    datagram.extend_from_slice(body);
                    world.endpoint.handle_datagram(client.at, &datagram, world.now);
                    world.take(&mut client);
                }
            }
        }
    }
    client.say(b"still here");
    world.run(&mut client);
    assert_eq!((world.heard.len(), world.ended.len(), world.refused.len()), (1, 0, 0));
}

mod bad_input {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Harm {
        Flip(u16, u8),
        Cut(u16),
        Twice,
        Before(Vec<u8>),
    }

    fn harm() -> impl Strategy<Value = Harm> {
        prop_oneof![
            (any::<u16>(), 1..=255u8).prop_map(|(at, by)| Harm::Flip(at, by)),
            any::<u16>().prop_map(Harm::Cut),
            Just(Harm::Twice),
            prop::collection::vec(any::<u8>(), 0..80).prop_map(Harm::Before),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Whatever becomes of the datagrams of a client, nothing breaks, and nothing is left when time has passed.
        #[test]
        fn no_datagram_does_harm(harms in prop::collection::vec((0..10usize, harm()), 0..6), by_key in any::<bool>()) {
            let mut world = TestWorld::new();
            let mut client =
                if by_key { TestClient::with_key("pump-7", KEY) } else { TestClient::with_certificate("pump-8") };
            for number in 0..10 {
                if number == 6 {
                    client.say(b"data");
                }
                let Some(mut datagram) = client.next() else {
                    world.pass(Duration::from_millis(400));
                    client.pass(Duration::from_millis(400));
                    continue;
                };
                let mut times = 1;
                for (_, harm) in harms.iter().filter(|(at, _)| *at == number) {
                    let length = datagram.len();
                    match harm {
                        Harm::Flip(at, by) if length > 0 => datagram[usize::from(*at) % length] ^= by,
                        Harm::Cut(at) if length > 0 => datagram.truncate(usize::from(*at) % length),
                        Harm::Flip(..) | Harm::Cut(_) => {}
                        Harm::Twice => times = 2,
                        Harm::Before(bytes) => world.endpoint.handle_datagram(client.at, bytes, world.now),
                    }
                }
                for _ in 0..times {
                    world.endpoint.handle_datagram(client.at, &datagram, world.now);
                    world.take(&mut client);
                }
            }
            world.pass(Duration::from_secs(11));
            world.pass(Duration::from_secs(3700));
            prop_assert_eq!((world.endpoint.len(), world.endpoint.poll_timeout()), (0, None));
        }
    }
}
