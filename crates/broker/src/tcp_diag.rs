//! What the kernel knows of a TCP connection: by a question over netlink on Linux (`sock_diag(7)`, as `ss -i` asks), and not
//! at all elsewhere. An answer costs two system calls and never waits. Whoever is not told goes on without: a kernel before
//! 5.4, one without `INET_DIAG`, or a sandbox without netlink.

use std::net::SocketAddr;

use tidegate_core::TcpState;

#[cfg(not(target_os = "linux"))]
#[derive(Debug, Default)]
pub(crate) struct TcpDiag;

#[cfg(not(target_os = "linux"))]
impl TcpDiag {
    pub(crate) fn state(&mut self, _local: SocketAddr, _peer: SocketAddr) -> Option<TcpState> {
        None
    }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::TcpDiag;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::time::Duration;

    use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
    use netlink_packet_sock_diag::SockDiagMessage;
    use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
    use netlink_packet_sock_diag::inet::nlas::{Nla, TcpInfo};
    use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
    use netlink_sys::protocols::NETLINK_SOCK_DIAG;
    use netlink_sys::{Socket, SocketAddr as KernelAddress};
    use tracing::info;

    use super::{SocketAddr, TcpState};

    /// Room for one answer: a header and a few hundred bytes of attributes.
    const ANSWER_BYTES: usize = 4096;
    /// Answers to questions that were given up, at most, before the one that is asked for.
    const STALE_MAX: usize = 8;
    /// Any socket with these addresses is meant.
    const NO_COOKIE: [u8; 8] = [0xff; 8];

    /// One thread's way to ask.
    #[derive(Debug, Default)]
    pub(crate) enum TcpDiag {
        #[default]
        Unopened,
        Open {
            socket: Socket,
            question: u32,
        },
        /// It cannot be had here.
        Unavailable,
    }

    impl TcpDiag {
        pub(crate) fn state(&mut self, local: SocketAddr, peer: SocketAddr) -> Option<TcpState> {
            if matches!(self, Self::Unopened) {
                *self = match open() {
                    Ok(socket) => Self::Open { socket, question: 0 },
                    Err(error) => {
                        info!(event = "tcp_diag_unavailable", %error, "slow receivers are known by their sockets only");
                        Self::Unavailable
                    }
                };
            }
            let Self::Open { socket, question } = self else { return None };
            *question = question.wrapping_add(1);
            match ask(socket, *question, local, peer) {
                Ok(info) => info.map(|info| state_of(&info)),
                Err(error) => {
                    info!(event = "tcp_diag_unavailable", %error, "slow receivers are known by their sockets only");
                    *self = Self::Unavailable;
                    None
                }
            }
        }
    }

    fn open() -> io::Result<Socket> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        socket.connect(&KernelAddress::new(0, 0))?;
        // The kernel has answered when the question is sent.
        socket.set_non_blocking(true)?;
        Ok(socket)
    }

    /// None if the kernel knows of no such connection (any more).
    fn ask(socket: &Socket, question: u32, local: SocketAddr, peer: SocketAddr) -> io::Result<Option<TcpInfo>> {
        let (source_address, destination_address) = (local.ip().to_canonical(), peer.ip().to_canonical());
        let interface_id = match peer {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(peer) => peer.scope_id(),
        };
        let request = InetRequest {
            family: if destination_address.is_ipv4() { AF_INET } else { AF_INET6 },
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::INFO,
            states: StateFlags::all(),
            socket_id: SocketId {
                source_port: local.port(),
                destination_port: peer.port(),
                source_address,
                destination_address,
                interface_id,
                cookie: NO_COOKIE,
            },
        };
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (NLM_F_REQUEST, question);
        let mut packet = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
        packet.finalize();
        let mut bytes = [0; ANSWER_BYTES];
        let length = packet.buffer_len();
        packet.serialize(&mut bytes[..length]);
        socket.send(&bytes[..length], 0)?;
        for _ in 0..STALE_MAX {
            let length = match socket.recv(&mut &mut bytes[..], 0) {
                Ok(length) => length.min(ANSWER_BYTES),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            let answer = NetlinkMessage::<SockDiagMessage>::deserialize(&bytes[..length]).map_err(io::Error::other)?;
            if answer.header.sequence_number != question {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                    let info = |nla| if let Nla::TcpInfo(info) = nla { Some(info) } else { None };
                    response.nlas.into_iter().find_map(info).map(Some).ok_or_else(|| io::Error::other("no tcp_info"))
                }
                NetlinkPayload::Error(error) if error.to_io().kind() == io::ErrorKind::NotFound => Ok(None),
                NetlinkPayload::Error(error) => Err(error.to_io()),
                _ => Ok(None),
            };
        }
        Ok(None)
    }

    fn state_of(info: &TcpInfo) -> TcpState {
        let sent = info.bytes_sent.saturating_sub(info.bytes_retrans);
        TcpState {
            acked: info.bytes_acked,
            outstanding: sent.saturating_sub(info.bytes_acked) + u64::from(info.notsent_bytes),
            window: info.snd_wnd,
            rtt_min: Duration::from_micros(u64::from(info.min_rtt)),
        }
    }

    #[cfg(test)]
    mod tests {
        use std::io::{Read, Write};
        use std::net::{TcpListener, TcpStream};

        use super::*;

        #[test]
        fn what_a_peer_has_not_read_is_missing_from_its_window() {
            let mut diag = TcpDiag::default();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut writer, _) = listener.accept().unwrap();
            let addresses = (writer.local_addr().unwrap(), writer.peer_addr().unwrap());
            let mut look = || diag.state(addresses.0, addresses.1);
            let Some(before) = look() else {
                eprintln!("SKIPPED: this kernel tells nothing of TCP connections");
                return;
            };
            assert_eq!((before.acked, before.outstanding), (0, 0));
            writer.write_all(&vec![0; 40_000]).unwrap();
            let after = loop {
                let state = look().unwrap();
                if state.outstanding == 0 {
                    break state;
                }
                std::thread::yield_now();
            };
            assert_eq!(after.acked, 40_000);
            reader.read_exact(&mut vec![0; 40_000]).unwrap();
            writer.write_all(&[0; 1]).unwrap();
            let mut state = look().unwrap();
            while state.outstanding > 0 || state.window <= after.window {
                std::thread::yield_now();
                state = look().unwrap();
            }
            drop((writer, reader));
        }
    }
}
