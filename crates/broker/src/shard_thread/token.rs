//! What a readiness event is about: two bits for the kind, the rest for the place in that kind's table.
//!
//! Generations are left out: an event for a place that was taken over meanwhile makes the loop try a socket once in
//! vain, nothing worse.

use mio::Token;
use tidegate_core::ConnId;

/// What became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Inbox,
    /// A door of datagrams.
    Datagrams(usize),
    SecureDatagrams,
    /// Where everybody is asked for a gateway.
    Beacon,
    Listener(usize),
    Handshake(usize),
    Connection(usize),
    /// A connection to the broker behind.
    Upstream(usize),
    /// A client whose connection to the broker behind this is, while that asks it for more.
    Asked(usize),
}

/// The inbox's waker.
pub(crate) const INBOX: Token = Token(0);

/// The socket for datagrams inside of DTLS: there is one.
pub(super) const SECURE_DATAGRAMS: Token = Token(1 << 2);

/// Where nodes of MQTT-SN ask everybody for a gateway: there is one.
pub(super) const BEACON: Token = Token(4 << 2);

/// The first place of the other sockets for datagrams, of which there are two...
const FIRST_DATAGRAMS: usize = 2;
/// ...and that of connections to the broker behind.
const FIRST_UPSTREAM: usize = 5;

pub(super) fn datagrams(door: usize) -> Token {
    Token((door + FIRST_DATAGRAMS) << 2)
}

pub(super) fn listener(index: usize) -> Token {
    Token(index << 2 | 1)
}

pub(super) fn handshake(index: usize) -> Token {
    Token(index << 2 | 2)
}

pub(super) fn connection(id: ConnId) -> Token {
    Token((id.index as usize) << 2 | 3)
}

/// The kind of the inbox, which has one place, and of the sockets for datagrams: these come after.
pub(super) fn upstream(index: usize) -> Token {
    Token((2 * index + FIRST_UPSTREAM) << 2)
}

/// Every second place.
pub(super) fn asked(index: usize) -> Token {
    Token((2 * index + 1 + FIRST_UPSTREAM) << 2)
}

pub(super) fn subject(token: Token) -> Subject {
    let index = token.0 >> 2;
    match token.0 & 3 {
        1 => Subject::Listener(index),
        2 => Subject::Handshake(index),
        3 => Subject::Connection(index),
        _ if token == INBOX => Subject::Inbox,
        _ if token == SECURE_DATAGRAMS => Subject::SecureDatagrams,
        _ if token == BEACON => Subject::Beacon,
        _ if index < FIRST_UPSTREAM => Subject::Datagrams(index - FIRST_DATAGRAMS),
        _ if (index - FIRST_UPSTREAM).is_multiple_of(2) => Subject::Upstream((index - FIRST_UPSTREAM) / 2),
        _ => Subject::Asked((index - FIRST_UPSTREAM) / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_say_what_they_were_made_for() {
        assert_eq!(subject(INBOX), Subject::Inbox);
        assert_eq!(subject(SECURE_DATAGRAMS), Subject::SecureDatagrams);
        assert_eq!(subject(BEACON), Subject::Beacon);
        assert_eq!((subject(datagrams(0)), subject(datagrams(1))), (Subject::Datagrams(0), Subject::Datagrams(1)));
        assert_eq!(subject(listener(3)), Subject::Listener(3));
        assert_eq!((subject(upstream(0)), subject(upstream(9))), (Subject::Upstream(0), Subject::Upstream(9)));
        assert_eq!((subject(asked(0)), subject(asked(9))), (Subject::Asked(0), Subject::Asked(9)));
        assert_eq!(subject(handshake(70_000)), Subject::Handshake(70_000));
        assert_eq!(
            subject(connection(ConnId { index: u32::MAX >> 2, generation: 9 })),
            Subject::Connection(0x3fff_ffff)
        );
    }
}
