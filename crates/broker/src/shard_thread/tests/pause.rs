//! A process that was stopped, or a machine that was: time jumps, and what clients said meanwhile waits in sockets.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use mio::Events;

use super::super::ShardThread;
use super::{answer, connecting, threads_at, turn};
use crate::authenticate::{Anonymous, Authenticator};
use crate::clock::Clock;
use crate::limits::CATCH_UP_MAX;

const PINGREQ: &[u8] = b"\xc0\x00";

/// Time of one and a half keep-alives of the clients of these tests, and more.
const PAUSE: Duration = Duration::from_secs(100);

fn wait_and_turn(thread: &mut ShardThread, events: &mut Events) {
    thread.wait(events);
    thread.turn(events);
}

fn connected(thread: &mut ShardThread, clock: &Clock, count: usize) -> Vec<TcpStream> {
    let names: Vec<String> = (0..count).map(|number| format!("c{number}")).collect();
    let mut clients: Vec<TcpStream> = names.iter().map(|name| connecting(thread, 4, name)).collect();
    for _ in 0..count {
        turn(thread);
    }
    for client in &mut clients {
        assert_eq!(answer(client), b"\x20\x02\0\0");
    }
    // Timers are a minute ahead at most: one that has been set again is due when the patience ends.
    clock.advance(Duration::from_secs(60));
    turn(thread);
    clients
}

#[test]
fn f122_whoever_pinged_during_a_pause_stays_and_the_silent_go() {
    let (everybody, clock): (Arc<dyn Authenticator>, _) = (Arc::new(Anonymous), Clock::by_hand());
    let mut thread = threads_at(&clock, 1, &everybody).remove(0);
    let mut clients = connected(&mut thread, &clock, 12);
    // Fewer than are ready: the rest is told in later turns.
    let mut events = Events::with_capacity(3);
    for client in &mut clients[..8] {
        client.write_all(PINGREQ).unwrap();
    }
    clock.advance(PAUSE);
    wait_and_turn(&mut thread, &mut events);
    assert_eq!(thread.shard.stats().connections, 12, "not all are read, so nobody is judged");
    while thread.shard.stats().connections > 8 {
        wait_and_turn(&mut thread, &mut events);
    }
    for client in &mut clients[..8] {
        assert_eq!(answer(client), b"\xd0\x00");
    }
    for client in &mut clients[8..] {
        assert_eq!(answer(client), b"", "closed");
    }
    turn(&mut thread);
    assert_eq!(thread.shard.stats().connections, 8);
}

#[test]
fn f122_a_flood_does_not_keep_the_silent_for_ever() {
    let (everybody, clock): (Arc<dyn Authenticator>, _) = (Arc::new(Anonymous), Clock::by_hand());
    let mut thread = threads_at(&clock, 1, &everybody).remove(0);
    let mut clients = connected(&mut thread, &clock, 3);
    let mut events = Events::with_capacity(1);
    clock.advance(PAUSE);
    for rounds in 0.. {
        clients[0].write_all(PINGREQ).unwrap();
        wait_and_turn(&mut thread, &mut events);
        if thread.shard.stats().connections < 3 {
            break;
        }
        assert!(CATCH_UP_MAX / 10 * rounds <= CATCH_UP_MAX, "they should be gone");
        clock.advance(CATCH_UP_MAX / 10);
    }
    assert_eq!(thread.shard.stats().connections, 1);
}
