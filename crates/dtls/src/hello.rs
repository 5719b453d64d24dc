//! A client's first message, read far enough to ask for its proof (RFC 6347, section 4.2.1); and the datagrams that are written
//! without a session.
//!
//! It has to come in one piece: what comes in several would have to be remembered before anything is proved.

/// What a datagram begins with.
#[derive(Debug)]
pub(crate) enum Opening<'a> {
    Hello(Hello<'a>),
    /// Some other record.
    Record,
    /// Nothing that can be a record.
    Nothing,
}

/// The first message of a client.
#[derive(Debug)]
pub(crate) struct Hello<'a> {
    /// Its record, without what may be behind it.
    pub(crate) record: &'a [u8],
    /// Random bytes that tell one try of a client from another.
    pub(crate) random: &'a [u8; 32],
    pub(crate) cookie: &'a [u8],
    /// Cipher suites, two bytes each, best first.
    pub(crate) suites: &'a [u8],
    /// Where the cookie's length is in the message.
    cookie_at: usize,
    /// Where suites and compression end: what is repeated as it is with the cookie.
    parameters_end: usize,
}

const RECORD_HEAD: usize = 13;
const MESSAGE_HEAD: usize = 12;
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
const CLIENT_HELLO: u8 = 1;
const VERIFY_REQUEST: u8 = 3;
/// As DTLS 1.0 has it, which is how a version is said before there is one.
const FIRST_VERSION: [u8; 2] = [254, 255];
/// A cookie of ours.
pub(crate) const COOKIE_BYTES: usize = 32;

/// Why somebody is not spoken with any further (RFC 5246, section 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alert {
    HandshakeFailure = 40,
    BadCertificate = 42,
}

/// What this datagram begins with.
pub(crate) fn read(datagram: &[u8]) -> Opening<'_> {
    let Some((head, rest)) = datagram.split_first_chunk::<RECORD_HEAD>() else { return Opening::Nothing };
    // Records of later versions may be shorter; none of those is ours.
    if !(20..=23).contains(&head[0]) || head[1] != 254 {
        return Opening::Nothing;
    }
    let length = usize::from(u16::from_be_bytes([head[11], head[12]]));
    let Some(body) = rest.get(..length) else { return Opening::Nothing };
    let is_hello = head[0] == HANDSHAKE && head[3..5] == [0, 0] && body.first() == Some(&CLIENT_HELLO);
    if !is_hello {
        return Opening::Record;
    }
    Hello::read(&datagram[..RECORD_HEAD + length]).map_or(Opening::Nothing, Opening::Hello)
}

impl<'a> Hello<'a> {
    fn read(record: &'a [u8]) -> Option<Self> {
        let (head, message) = record.get(RECORD_HEAD..)?.split_first_chunk::<MESSAGE_HEAD>()?;
        let number = |at: usize| u32::from_be_bytes([0, head[at], head[at + 1], head[at + 2]]) as usize;
        let (length, offset, part) = (number(1), number(6), number(9));
        if offset != 0 || part != length || message.len() != length {
            return None;
        }
        let random: &[u8; 32] = message.get(2..34)?.first_chunk()?;
        let cookie_at = 35 + usize::from(*message.get(34)?);
        let suites_at = cookie_at + 1 + usize::from(*message.get(cookie_at)?);
        let cookie = message.get(cookie_at + 1..suites_at)?;
        let suites_length = usize::from(u16::from_be_bytes(*message.get(suites_at..)?.first_chunk()?));
        let suites = message.get(suites_at + 2..suites_at + 2 + suites_length)?;
        let compression_at = suites_at + 2 + suites_length;
        let parameters_end = compression_at + 1 + usize::from(*message.get(compression_at)?);
        message.get(..parameters_end)?;
        Some(Self { record, random, cookie, suites, cookie_at, parameters_end })
    }

    fn message(&self) -> &'a [u8] {
        &self.record[RECORD_HEAD + MESSAGE_HEAD..]
    }

    /// What a client says in the same words when it repeats its hello with a cookie, in two parts.
    pub(crate) fn parameters(&self) -> [&'a [u8]; 2] {
        let message = self.message();
        [&message[..self.cookie_at], &message[self.cookie_at + 1 + self.cookie.len()..self.parameters_end]]
    }

    /// The number of its record.
    pub(crate) fn number(&self) -> u64 {
        number(self.record)
    }

    /// The hello that this one repeats: the same without a cookie, as the first message of all.
    pub(crate) fn before_cookie(&self) -> Vec<u8> {
        let message = self.message();
        let mut body = message[..self.cookie_at].to_vec();
        body.push(0);
        body.extend_from_slice(&message[self.cookie_at + 1 + self.cookie.len()..]);
        handshake(CLIENT_HELLO, [self.record[1], self.record[2]], 0, &body)
    }

    /// The request to repeat it with this cookie. Shorter than any hello, and with the number of its record, as it has to be.
    pub(crate) fn verify_request(&self, cookie: &[u8; COOKIE_BYTES]) -> Vec<u8> {
        let mut body = FIRST_VERSION.to_vec();
        body.push(COOKIE_BYTES as u8);
        body.extend_from_slice(cookie);
        handshake(VERIFY_REQUEST, FIRST_VERSION, self.number(), &body)
    }
}

/// A message of a handshake in a record of its own, before there are keys.
fn handshake(kind: u8, version: [u8; 2], number: u64, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    let mut message = vec![kind];
    message.extend_from_slice(&length[1..]);
    // The first message, from its beginning.
    message.extend_from_slice(&[0; 5]);
    message.extend_from_slice(&length[1..]);
    message.extend_from_slice(body);
    record(HANDSHAKE, version, number, &message)
}

/// The word that there will be no session, before there are keys.
pub(crate) fn alert(why: Alert, number: u64) -> Vec<u8> {
    const FATAL: u8 = 2;
    record(ALERT, [254, 253], number, &[FATAL, why as u8])
}

fn record(kind: u8, version: [u8; 2], number: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, version[0], version[1], 0, 0];
    bytes.extend_from_slice(&number.to_be_bytes()[2..]);
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn number(record: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    if let Some(digits) = record.get(5..11) {
        bytes[2..].copy_from_slice(digits);
    }
    u64::from_be_bytes(bytes)
}

/// Moves the numbers of records that are not protected, so that they go on where those before the session ended: a client
/// that has seen a number takes it for a repetition.
pub(crate) fn shift_numbers(datagram: &mut [u8], by: u64) {
    let mut rest = datagram;
    while rest.len() >= RECORD_HEAD {
        let end = RECORD_HEAD + usize::from(u16::from_be_bytes([rest[11], rest[12]]));
        if rest[3..5] == [0, 0] {
            let moved = number(rest).wrapping_add(by);
            rest[5..11].copy_from_slice(&moved.to_be_bytes()[2..]);
        }
        let Some(behind) = rest.get_mut(end..) else { return };
        rest = behind;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A hello with this cookie, in the record of this number.
    pub(crate) fn hello(cookie: &[u8], number: u64) -> Vec<u8> {
        let mut body = vec![254, 253];
        body.extend_from_slice(&[7; 32]);
        body.extend_from_slice(&[0, cookie.len() as u8]);
        body.extend_from_slice(cookie);
        body.extend_from_slice(&[0, 2, 0xc0, 0xa8, 1, 0]);
        handshake(CLIENT_HELLO, FIRST_VERSION, number, &body)
    }

    fn read_hello(bytes: &[u8]) -> Hello<'_> {
        match read(bytes) {
            Opening::Hello(hello) => hello,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_hello_is_read_and_written_as_it_was_before_its_cookie() {
        let (first, second) = (hello(&[], 0), hello(&[9; 32], 5));
        let (was, is) = (read_hello(&first), read_hello(&second));
        assert_eq!((is.cookie, is.suites, is.random, is.number()), (&[9; 32][..], &[0xc0, 0xa8][..], &[7; 32], 5));
        assert_eq!(is.parameters(), was.parameters());
        assert_eq!(is.before_cookie(), first);
        let request = was.verify_request(&[1; 32]);
        assert!(request.len() < first.len(), "what a stranger is sent is smaller than what it sent");
        assert_eq!(number(&request), 0);
    }

    #[test]
    fn pieces_and_other_records_are_no_hello() {
        let whole = hello(&[], 0);
        for length in 0..whole.len() {
            assert!(matches!(read(&whole[..length]), Opening::Nothing), "{length}");
        }
        let mut piece = whole.clone();
        piece[24] -= 1;
        assert!(matches!(read(&piece), Opening::Nothing), "a part of a message");
        let mut data = whole.clone();
        data[0] = 23;
        assert!(matches!(read(&data), Opening::Record));
        assert!(matches!(read(b"\x40\x01\x00\x01coap is no record"), Opening::Nothing));
        for at in 25..whole.len() {
            for value in [0, 1, 63, 127, 255] {
                let mut odd = whole.clone();
                odd[at] = value;
                let _ = read(&odd);
            }
        }
    }

    #[test]
    fn numbers_are_moved_where_records_are_not_protected() {
        let mut both = alert(Alert::HandshakeFailure, 1);
        let mut protected = alert(Alert::BadCertificate, 1);
        protected[4] = 1;
        both.extend_from_slice(&protected);
        shift_numbers(&mut both, 4);
        assert_eq!((number(&both), number(&both[15..])), (5, 1));
        shift_numbers(&mut both[..14], 4);
        assert_eq!(number(&both), 9);
    }
}
