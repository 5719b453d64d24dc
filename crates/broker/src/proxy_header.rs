//! The PROXY protocol, versions 1 and 2: what a proxy says first about whom it speaks for. Pure: told the first bytes of a
//! connection, says how many of them are the header and where the client is.
//!
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>. Whether a peer may say it is not known here; what else a
//! header has (TLVs, the name in a certificate that the proxy has seen) is passed over.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of a header. Version 1 has 107 at most; version 2 needs 52 for addresses, and what proxies add (a TLS session, a
/// cloud's endpoint) has stayed below a kilobyte.
pub(crate) const PROXY_HEADER_BYTES_MAX: usize = 2048;

/// A line of version 1 with its end, as the specification has it.
const LINE_BYTES_MAX: usize = 107;
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length.
const FIXED_BYTES: usize = 16;

/// What the first bytes of a connection come to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeader {
    /// Nothing wrong so far; more is needed.
    Incomplete,
    /// So many bytes of header. The client's address; none if the proxy speaks for itself, or for one without any.
    Complete { bytes: usize, client: Option<SocketAddr> },
    /// It is no header, for this reason.
    Malformed(&'static str),
}

/// Looks at the first bytes.
pub(crate) fn proxy_header(input: &[u8]) -> ProxyHeader {
    let is_second = input.starts_with(SIGNATURE) || SIGNATURE.starts_with(input);
    let is_first = input.starts_with(b"PROXY ") || b"PROXY ".starts_with(input);
    match () {
        () if is_second && input.len() >= SIGNATURE.len() => binary(input),
        () if is_first && input.len() >= 6 => line(input),
        () if is_first || is_second => ProxyHeader::Incomplete,
        () => ProxyHeader::Malformed("no PROXY header, which a proxy has to send first"),
    }
}

/// Version 1: `PROXY TCP4 192.0.2.1 198.51.100.1 56324 1883\r\n`.
fn line(input: &[u8]) -> ProxyHeader {
    let seen = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(end) = seen.windows(2).position(|pair| pair == b"\r\n") else {
        return if input.len() < LINE_BYTES_MAX {
            ProxyHeader::Incomplete
        } else {
            ProxyHeader::Malformed("a PROXY line without end")
        };
    };
    let bytes = end + 2;
    let Ok(text) = std::str::from_utf8(&seen[..end]) else {
        return ProxyHeader::Malformed("a PROXY line that is no text");
    };
    let words: Vec<&str> = text.split(' ').collect();
    if words.get(1) == Some(&"UNKNOWN") {
        return ProxyHeader::Complete { bytes, client: None };
    }
    match client_of(&words) {
        Some(client) => ProxyHeader::Complete { bytes, client: Some(client) },
        None => ProxyHeader::Malformed("a PROXY line without two addresses and two ports"),
    }
}

fn client_of(words: &[&str]) -> Option<SocketAddr> {
    let &[_, family, from, to, from_port, to_port] = words else { return None };
    let (from, to): (IpAddr, IpAddr) = (from.parse().ok()?, to.parse().ok()?);
    let is_meant = match family {
        "TCP4" => from.is_ipv4() && to.is_ipv4(),
        "TCP6" => from.is_ipv6() && to.is_ipv6(),
        _ => false,
    };
    port(to_port)?;
    is_meant.then_some(SocketAddr::new(from, port(from_port)?))
}

/// Digits only: `parse` would take a sign.
fn port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Version 2.
fn binary(input: &[u8]) -> ProxyHeader {
    let Some((fixed, rest)) = input.split_at_checked(FIXED_BYTES) else { return ProxyHeader::Incomplete };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let bytes = FIXED_BYTES + length;
    if bytes > PROXY_HEADER_BYTES_MAX {
        return ProxyHeader::Malformed("a PROXY header that is too long");
    }
    let is_local = match fixed[12] {
        0x20 => true,
        0x21 => false,
        _ => return ProxyHeader::Malformed("a PROXY header of an unknown version or command"),
    };
    let Some(addresses) = rest.get(..length) else { return ProxyHeader::Incomplete };
    let client = match fixed[13] {
        // A health check of the proxy's own: its address is the connection's, whatever the header says.
        _ if is_local => None,
        0x11 => match addresses.get(..12) {
            Some(found) => Some(SocketAddr::new(
                Ipv4Addr::new(found[0], found[1], found[2], found[3]).into(),
                u16::from_be_bytes([found[8], found[9]]),
            )),
            None => return ProxyHeader::Malformed("a PROXY header too short for its addresses"),
        },
        0x21 => match addresses.get(..36).and_then(|found| Some((found, found.first_chunk::<16>()?))) {
            Some((found, from)) => {
                Some(SocketAddr::new(Ipv6Addr::from(*from).into(), u16::from_be_bytes([found[32], found[33]])))
            }
            None => return ProxyHeader::Malformed("a PROXY header too short for its addresses"),
        },
        // Without an address, or by a socket of the proxy's file system.
        0x00 | 0x31 | 0x32 => None,
        _ => return ProxyHeader::Malformed("a PROXY header for something other than TCP"),
    };
    ProxyHeader::Complete { bytes, client }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn second(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, body].concat()
    }

    fn client(bytes: usize, at: &str) -> ProxyHeader {
        ProxyHeader::Complete { bytes, client: Some(at.parse().unwrap()) }
    }

    const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 1883\r\n";
    const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 0x04, 0x07, 0x5b];

    #[test]
    fn both_versions_name_the_client() {
        assert_eq!(proxy_header(LINE), client(LINE.len(), "192.0.2.1:56324"));
        let six = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n";
        assert_eq!(proxy_header(six), client(six.len(), "[2001:db8::1]:1"));
        let header = second(0x21, 0x11, &[&V4[..], b"\x04\x00\x03xyz"].concat());
        assert_eq!(proxy_header(&header), client(header.len(), "192.0.2.1:56324"), "what follows is passed over");
        let mut body = [0; 36];
        (body[15], body[33]) = (1, 9);
        assert_eq!(proxy_header(&second(0x21, 0x21, &body)), client(52, "[::1]:9"));
    }

    #[test]
    fn a_proxy_that_speaks_for_itself_names_nobody() {
        let nobody = |bytes| ProxyHeader::Complete { bytes, client: None };
        assert_eq!(proxy_header(b"PROXY UNKNOWN\r\n\x10"), nobody(15));
        assert_eq!(proxy_header(b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n"), nobody(35));
        assert_eq!(proxy_header(&second(0x20, 0x11, &V4)), nobody(28), "a health check");
        assert_eq!(proxy_header(&second(0x21, 0x00, b"")), nobody(16));
        assert_eq!(proxy_header(&second(0x21, 0x31, &[7; 216])), nobody(232));
    }

    #[test]
    fn what_is_no_header_is_malformed_and_says_why() {
        for input in [
            &b"\x10\x0e\x00\x04MQTT"[..],
            b"GET / HTTP/1.1\r\n",
            b"\x16\x03\x01",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
            b"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 +5 1883\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 66000 1883\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.1 1 2\r\n",
            b"PROXY  TCP4 192.0.2.1 198.51.100.1 1 2\r\n",
            b"PROXY TCP4 \xff\xff 1 2 3\r\n",
            &[&b"PROXY "[..], &[b'x'; 200]].concat(),
            &second(0x11, 0x11, &V4),
            &second(0x22, 0x11, &V4),
            &second(0x21, 0x12, &V4),
            &second(0x21, 0x11, &V4[..11]),
            &second(0x21, 0x21, &V4),
            &second(0x21, 0x00, &[0; PROXY_HEADER_BYTES_MAX]),
        ] {
            assert!(matches!(proxy_header(input), ProxyHeader::Malformed(_)), "{}", input.escape_ascii());
        }
    }

    #[test]
    fn every_beginning_of_a_header_is_incomplete() {
        for header in [LINE.to_vec(), second(0x21, 0x11, &V4), second(0x20, 0, b"")] {
            for end in 0..header.len() {
                assert_eq!(proxy_header(&header[..end]), ProxyHeader::Incomplete, "{end}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_more_than_there_are(input in prop::collection::vec(any::<u8>(), 0..300), which in 0..3) {
            let input = match which {
                0 => input,
                1 => [b"PROXY ", &input[..]].concat(),
                _ => [&SIGNATURE[..], b"\x21", &input].concat(),
            };
            match proxy_header(&input) {
                ProxyHeader::Complete { bytes, .. } => prop_assert!(bytes <= input.len()),
                ProxyHeader::Incomplete => prop_assert!(input.len() < PROXY_HEADER_BYTES_MAX),
                ProxyHeader::Malformed(why) => prop_assert!(!why.is_empty()),
            }
        }

        #[test]
        fn version_two_says_what_was_written(ip in any::<u32>(), port in any::<u16>(), extra in 0_usize..200) {
            let mut body = [0; 12].to_vec();
            body[..4].copy_from_slice(&ip.to_be_bytes());
            body[8..10].copy_from_slice(&port.to_be_bytes());
            body.resize(12 + extra, 4);
            let at = SocketAddr::new(Ipv4Addr::from(ip).into(), port);
            let header = second(0x21, 0x11, &body);
            prop_assert_eq!(proxy_header(&header), ProxyHeader::Complete { bytes: header.len(), client: Some(at) });
        }
    }
}
