//! Linux tells of TCP's windows over a socket of its own (`NETLINK_SOCK_DIAG`, sock_diag(7)): one question, one answer, both
//! at once.
//!
//! The option `TCP_INFO` would be the same for one call less; no crate that we have reads it without `unsafe`.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::gauge::WindowLook;

// Names of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and linux/tcp.h.
const AF_NETLINK: i32 = 16;
const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const INET_DIAG_INFO: u16 = 2;

const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
/// What comes before the attributes of an answer.
const ANSWER_HEAD_BYTES: usize = HEADER_BYTES + 72;
/// Longer than any answer is today, by a factor of three.
const ANSWER_BYTES_MAX: usize = 2048;

/// Where two numbers stand in `struct tcp_info`; the second since Linux 5.4.
const BYTES_ACKED_AT: usize = 120;
const SND_WND_AT: usize = 228;

/// A question about one connection.
pub(crate) type Question = [u8; REQUEST_BYTES];

/// Who is asked.
#[derive(Debug)]
pub(crate) struct SockDiag(Socket);

impl SockDiag {
    pub(crate) fn open() -> io::Result<Self> {
        if !cfg!(target_os = "linux") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let socket = Socket::new(Domain::from(AF_NETLINK), Type::DGRAM, Some(Protocol::from(NETLINK_SOCK_DIAG)))?;
        // The answer is there before the question's call returns.
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// None: the connection is gone, or this kernel does not tell.
    pub(crate) fn ask(&self, question: &Question) -> Option<WindowLook> {
        let mut answer = [0; ANSWER_BYTES_MAX];
        // A datagram: all of it, or nothing.
        (&self.0).write_all(question).ok()?;
        let length = (&self.0).read(&mut answer).ok()?;
        look_in(&answer[..length])
    }
}

/// What to ask about the connection between these two.
pub(crate) fn question(local: SocketAddr, peer: SocketAddr) -> Option<Question> {
    let family = match (local.ip(), peer.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => AF_INET,
        (IpAddr::V6(_), IpAddr::V6(_)) => AF_INET6,
        _ => return None,
    };
    let mut question = [0; REQUEST_BYTES];
    put(&mut question, 0, &(REQUEST_BYTES as u32).to_ne_bytes());
    put(&mut question, 4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(&mut question, 6, &NLM_F_REQUEST.to_ne_bytes());
    put(&mut question, HEADER_BYTES, &[family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1)]);
    put(&mut question, HEADER_BYTES + 4, &u32::MAX.to_ne_bytes());
    put(&mut question, HEADER_BYTES + 8, &local.port().to_be_bytes());
    put(&mut question, HEADER_BYTES + 10, &peer.port().to_be_bytes());
    put_address(&mut question, HEADER_BYTES + 12, local.ip());
    put_address(&mut question, HEADER_BYTES + 28, peer.ip());
    // Not by the cookie of a socket: whichever has these addresses.
    put(&mut question, HEADER_BYTES + 48, &[0xff; 8]);
    Some(question)
}

fn put(question: &mut Question, at: usize, bytes: &[u8]) {
    question[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put_address(question: &mut Question, at: usize, address: IpAddr) {
    match address {
        IpAddr::V4(address) => put(question, at, &address.octets()),
        IpAddr::V6(address) => put(question, at, &address.octets()),
    }
}

/// The two numbers in an answer, if it has them.
fn look_in(answer: &[u8]) -> Option<WindowLook> {
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    if kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let mut attributes = answer.get(ANSWER_HEAD_BYTES..)?;
    while let Some(head) = attributes.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let (kind, value) = (u16::from_ne_bytes([head[2], head[3]]), attributes.get(4..length)?);
        if kind == INET_DIAG_INFO {
            let acknowledged = u64::from_ne_bytes(*value.get(BYTES_ACKED_AT..)?.first_chunk()?);
            let window = u32::from_ne_bytes(*value.get(SND_WND_AT..)?.first_chunk()?);
            return Some(WindowLook { acknowledged, window });
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use tidegate_test_support::skip::{Remedy, skip};

    use super::*;

    fn pair(address: &str) -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind(address)?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        Ok((listener.accept()?.0, client))
    }

    fn is_told_of_what_is_not_read(address: &str) {
        let (mut sender, mut reader) = pair(address).unwrap();
        let Ok(diag) = SockDiag::open() else {
            let remedy = Remedy::Owner("a Linux kernel that tells of its sockets");
            return skip("sock_diag", "the kernel's socket for it cannot be opened", remedy);
        };
        let question = question(sender.local_addr().unwrap(), sender.peer_addr().unwrap()).unwrap();
        let first = diag.ask(&question).unwrap();
        assert!(first.window > 0);
        sender.write_all(&vec![7; 20_000]).unwrap();
        // Acknowledgements come by themselves, a moment later.
        let mut look = first;
        while look.acknowledged < first.acknowledged + 20_000 {
            look = diag.ask(&question).unwrap();
        }
        reader.read_exact(&mut vec![0; 20_000]).unwrap();
        drop((sender, reader));
    }

    #[test]
    fn a_connection_tells_what_was_acknowledged() {
        is_told_of_what_is_not_read("127.0.0.1:0");
    }

    #[test]
    fn one_of_the_sixth_version_does_too() {
        if TcpListener::bind("[::1]:0").is_ok() {
            is_told_of_what_is_not_read("[::1]:0");
        }
    }

    #[test]
    fn nobody_is_told_of_connections_that_are_not_there() {
        let Ok(diag) = SockDiag::open() else { return };
        let question = question("127.0.0.1:9".parse().unwrap(), "127.0.0.1:9".parse().unwrap()).unwrap();
        assert_eq!(diag.ask(&question), None);
    }

    #[test]
    fn answers_that_end_anywhere_tell_nothing() {
        let mut answer = vec![0; ANSWER_HEAD_BYTES + 4 + 240];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        answer[ANSWER_HEAD_BYTES..][..4].copy_from_slice(&[244, 0, INET_DIAG_INFO as u8, 0]);
        assert!(look_in(&answer).is_some());
        for length in 0..answer.len() {
            assert_eq!(look_in(&answer[..length]), None, "{length} bytes");
        }
        // An attribute of no length would be read for ever.
        answer[ANSWER_HEAD_BYTES..][..4].copy_from_slice(&[0, 0, 9, 0]);
        assert_eq!(look_in(&answer), None);
    }
}
