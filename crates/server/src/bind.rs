//! Before the broker starts: can it listen where it should? If not, say which listener, why, who holds the port, and
//! which flag moves it.
//!
//! Each address is bound once and let go at once. The broker binds again and reports its own errors; between the two
//! somebody could take the port, which costs only the better message. Those that nobody asked for are bound by the broker alone: it
//! says which it left out.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use tidegate_broker::LeftOut;
use tidegate_broker::config::{Listener, ListenerKind};

use crate::config::{ConfigProblem, Problems};
use crate::plan::is_block;

/// Some listener cannot be opened now. Not a mistake of the configuration: the port may be free tomorrow.
#[derive(Debug)]
pub struct CannotListen(Problems);

impl std::fmt::Display for CannotListen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for CannotListen {}

/// Why a listener that nobody asked for was left out, and what to type about it: no reason not to serve.
pub fn left_out_words(LeftOut { name, kind, address: at, error }: &LeftOut) -> String {
    let (what, port) = match kind {
        ListenerKind::Coap => ("CoAP", "UDP"),
        ListenerKind::Coaps => ("CoAP over DTLS", "UDP"),
        ListenerKind::Sn => ("MQTT-SN", "UDP"),
        ListenerKind::Amqp | ListenerKind::Amqps => ("AMQP", "TCP"),
        _ => ("topics over HTTP", "TCP"),
    };
    let why = match error.kind() {
        ErrorKind::AddrInUse => format!("{} has the port", holder_words(*at, kind.is_datagrams())),
        _ => error.to_string(),
    };
    let flag = name.replace('_', "-");
    format!("no {what}: {at} ({port}) cannot be opened, {why}; choose another with --{flag} ADDR, or say --{flag} off")
}

fn try_to_bind(listener: &Listener) -> Option<std::io::Error> {
    if listener.kind.is_datagrams() {
        UdpSocket::bind(listener.bind).err()
    } else {
        TcpListener::bind(listener.bind).err()
    }
}

/// Tries every listener that somebody asked for; all failures at once.
pub fn check(listeners: &[Listener]) -> Result<(), CannotListen> {
    let failed = |listener: &Listener| {
        let error = try_to_bind(listener)?;
        let elsewhere = is_block(listener).then(|| format!("change its address ([[listener]] {})", listener.name));
        let problem = explain(listener.name, listener.bind, &error);
        Some(if elsewhere.is_some() { problem.with_hint(elsewhere) } else { problem })
    };
    let asked = listeners.iter().filter(|listener| !listener.is_optional);
    let problems: Vec<ConfigProblem> = asked.filter_map(failed).collect();
    if problems.is_empty() { Ok(()) } else { Err(CannotListen(Problems(problems))) }
}

/// The same for one that is opened by somebody else, with the error that it met.
pub fn cannot_listen(name: &str, at: SocketAddr, error: &std::io::Error) -> CannotListen {
    CannotListen(Problems(vec![explain(name, at, error)]))
}

fn explain(name: &str, at: SocketAddr, error: &std::io::Error) -> ConfigProblem {
    let flag = name.replace('_', "-");
    let elsewhere = format!("move it with --{flag} ADDR (listeners.{name}), or switch it off with --{flag} off");
    let (why, hint) = match error.kind() {
        ErrorKind::AddrInUse => {
            let holder = holder_words(at, DATAGRAMS.contains(&name));
            (format!("{holder} listens there already"), elsewhere)
        }
        ErrorKind::PermissionDenied => {
            ("the system does not permit it (ports below 1024 need CAP_NET_BIND_SERVICE)".to_owned(), elsewhere)
        }
        ErrorKind::AddrNotAvailable => ("this machine has no such address".to_owned(), elsewhere),
        _ => (error.to_string(), elsewhere),
    };
    ConfigProblem::general(format!("cannot listen for {name} on {at}: {why}")).with_hint(hint)
}

fn holder_words(at: SocketAddr, is_udp: bool) -> String {
    holder(at, is_udp).map_or_else(|| "another program".to_owned(), |holder| format!("\"{holder}\""))
}

/// Name and process id of who listens on this port, where the system tells (Linux, and only as far as we may look).
fn holder(at: SocketAddr, is_udp: bool) -> Option<String> {
    // A socket for datagrams does not listen: it is one that is connected to nobody.
    const UNCONNECTED: &str = "07";
    let (tables, state) = if is_udp {
        (["/proc/net/udp", "/proc/net/udp6"], UNCONNECTED)
    } else {
        (["/proc/net/tcp", "/proc/net/tcp6"], LISTENS)
    };
    let inode_in = |table: &&str| inode_of(&std::fs::read_to_string(table).ok()?, at.port(), state);
    let inode = tables.iter().find_map(inode_in)?;
    let socket = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    // Not `self` and its like, which are somebody's second name.
    let is_process = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit());
    let mut processes = processes.filter(|path| is_process(path));
    let owner = processes.find(|process| has_open(&process.join("fd"), &socket))?;
    let name = std::fs::read_to_string(owner.join("comm")).ok()?;
    Some(format!("{} (pid {})", name.trim(), owner.file_name()?.to_string_lossy()))
}

/// Names of listeners for datagrams.
const DATAGRAMS: [&str; 3] = ["coap", "coaps", "sn"];

/// The state of a stream's socket that listens.
const LISTENS: &str = "0A";

/// The inode of the socket with this port and state. Columns: `sl local_address rem_address st … inode` at the tenth.
fn inode_of(table: &str, port: u16, state: &str) -> Option<u64> {
    let local = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let is_it = columns.get(1)?.ends_with(&local) && *columns.get(3)? == state;
        if is_it { columns.get(9)?.parse().ok() } else { None }
    })
}

fn has_open(folder: &Path, target: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f147_a_taken_port_names_listener_holder_and_flag() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let bind = taken.local_addr().unwrap();
        let refused = check(&[Listener::new(ListenerKind::Ws, bind)]).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("error: cannot listen for ws on {bind}: ")), "{refused}");
        assert!(refused.contains("listens there already; move it with --ws ADDR"), "{refused}");
        if cfg!(target_os = "linux") {
            assert!(refused.contains(&format!("(pid {})", std::process::id())), "{refused}");
        }
    }

    #[test]
    fn coap_that_nobody_asked_for_is_left_out_where_its_port_is_taken_and_given_one_is_refused() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let bind = taken.local_addr().unwrap();
        let asked = Listener::new(ListenerKind::Coap, bind);
        let refused = check(std::slice::from_ref(&asked)).unwrap_err().to_string();
        assert!(refused.contains("listens there already; move it with --coap ADDR"), "{refused}");
        let unasked = Listener { is_optional: true, ..asked };
        assert!(check(std::slice::from_ref(&unasked)).is_ok(), "the broker itself sees that");
        let error = ErrorKind::AddrInUse.into();
        let why = left_out_words(&LeftOut { name: "coap", kind: ListenerKind::Coap, address: bind, error });
        assert!(why.contains("--coap off"), "{why}");
        if cfg!(target_os = "linux") {
            let me = format!("(pid {})", std::process::id());
            assert!(why.contains(&me) && refused.contains(&me), "{why} {refused}");
        }
    }

    #[test]
    fn f147_an_address_of_another_machine_is_named() {
        let bind = "192.0.2.1:1883".parse().unwrap();
        let refused = check(&[Listener::new(ListenerKind::Mqtt, bind)]).unwrap_err().to_string();
        assert!(refused.contains("this machine has no such address"), "{refused}");
    }

    #[test]
    fn f147_a_privileged_port_names_what_it_needs_and_the_setting() {
        let at = "127.0.0.1:883".parse().unwrap();
        let text = cannot_listen("mqtt", at, &ErrorKind::PermissionDenied.into()).to_string();
        assert!(text.contains("cannot listen for mqtt on 127.0.0.1:883: the system does not permit it"), "{text}");
        assert!(text.contains("CAP_NET_BIND_SERVICE") && text.contains("(listeners.mqtt)"), "{text}");
    }

    #[test]
    fn the_table_of_sockets_is_read_by_column() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     0: 0100007F:075B 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 11 1\n\
                     1: 0100007F:075B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 22 1\n";
        assert_eq!(inode_of(table, 1883, LISTENS), Some(22));
        assert_eq!(inode_of(table, 1884, LISTENS), None);
    }
}
