//! What an operator sees when the disk or what is on it is not as it should be: the real binary, one clear line each, with
//! the name of the file. F111 to F119.
//!
//! A full and a read-only disk are small file systems in memory, in a name space of their own (`unshare`): no rights are
//! needed for that where the kernel lets users have name spaces. Elsewhere these two are skipped and counted.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Broker, Launch, PATIENCE, tidegate};
use tidegate_wire_mqtt::{
    Ack, AckKind, Connect, Decoded, Delivery, Encode, Limits, Packet, PacketId, Peer, Properties, Property, Publish,
    QoS, ReasonCode, Sender, Subscribe, Subscription, SubscriptionList, SubscriptionOptions, TopicFilter, Version,
    decode,
};

/// How the broker is started on this folder, whose log lies beside it.
fn launch(data: &Path) -> Launch {
    Launch::at(data.parent().unwrap()).data(data)
}

fn on(data: &Path) -> Broker {
    launch(data).start()
}

fn serve(data: &Path) -> Command {
    launch(data).command("serve")
}

fn address(broker: &Broker) -> SocketAddr {
    broker.address("mqtt").parse().unwrap()
}

/// Tries to start it; what it says when it does not, which is one line.
fn refused(data: &Path) -> String {
    let Output { status, stderr, .. } = serve(data).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(1), "{said}");
    one_line(&said)
}

/// The one line in which it says why it does not start, besides what it logs about other things.
fn one_line(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.contains(" level=")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    lines[0].to_owned()
}

/// A client of MQTT 5 with a session that lasts.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    next_id: u16,
}

impl Client {
    fn connect(address: SocketAddr, client_id: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self { stream, buffer: Vec::new(), next_id: 0 };
        let properties = [Property::SessionExpiry(3600)];
        client.send(&Connect {
            version: Version::V5,
            is_bridge: false,
            clean_start: false,
            keep_alive: 0,
            properties: Properties::new(&properties),
            client_id,
            will: None,
            user_name: None,
            password: None,
        });
        client.next(|packet| assert!(matches!(packet, Packet::ConnAck(answer) if !answer.reason.is_failure())));
        client
    }

    fn send(&mut self, packet: &impl Encode) {
        let mut bytes = Vec::new();
        let _ = packet.encode(Peer::new(Version::V5), &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    fn next<T>(&mut self, read: impl FnOnce(&Packet<'_>) -> T) -> T {
        let limits = Limits::default().with_sender(Sender::Server);
        loop {
            if let Decoded::Packet { packet, consumed } = decode(&self.buffer, Version::V5, &limits).unwrap() {
                let answer = read(&packet);
                self.buffer.drain(..consumed);
                return answer;
            }
            let mut more = [0; 4096];
            let count = self.stream.read(&mut more).unwrap();
            assert!(count > 0, "closed");
            self.buffer.extend_from_slice(&more[..count]);
        }
    }

    fn subscribe(&mut self, filter: &str) {
        let options = SubscriptionOptions::with_qos(QoS::AtLeastOnce);
        let filter = TopicFilter::parse(filter, &Limits::default()).unwrap();
        let wanted = [Subscription { filter, options }];
        let subscriptions = SubscriptionList::new(&wanted);
        self.send(&Subscribe { packet_id: PacketId::MIN, properties: Properties::EMPTY, subscriptions });
        self.next(|packet| assert!(matches!(packet, Packet::SubAck(_))));
    }

    /// Publishes at QoS 1; the answer.
    fn publish(&mut self, payload: &[u8]) -> ReasonCode {
        self.next_id += 1;
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::new(self.next_id).unwrap(), dup: false };
        self.send(&Publish { delivery, retain: false, topic: "t", properties: Properties::EMPTY, payload });
        self.next(|packet| if let Packet::Ack(ack) = packet { ack.reason } else { panic!("{packet:?}") })
    }
}

/// A store with a session and ten messages that wait for it, whose broker was killed.
fn filled(folder: &Path) -> PathBuf {
    let data = folder.join("data");
    let broker = on(&data);
    Client::connect(address(&broker), "reader").subscribe("t");
    let mut sender = Client::connect(address(&broker), "sender");
    for number in 0..10 {
        assert_eq!(sender.publish(format!("message {number}").as_bytes()), ReasonCode::Success);
    }
    data
}

/// The files of the log that have records, in order.
fn logs(data: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(data.join("store")).unwrap().map(|it| it.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == "tide") && file.metadata().unwrap().len() > 200);
    files.sort();
    files
}

fn name(file: &Path) -> String {
    file.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn f111_a_truncated_file_is_named_and_what_was_before_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let data = filled(folder.path());
    let file = logs(&data).pop().unwrap();
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 5]).unwrap();
    let broker = on(&data);
    let line = broker.await_log("event=store_repaired");
    // All of it was acknowledged: it is not called an end that was never written.
    assert!(line.contains(&name(&file)) && line.contains("missing; they had been synced"), "{line}");
    let line = broker.await_log("event=store_opened");
    assert!(line.contains("sessions=2") && line.contains("messages=9"), "{line}");
}

#[test]
fn f112_flipped_bits_are_named_and_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let data = filled(folder.path());
    let file = logs(&data).pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(9).position(|window| window == b"message 4").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let broker = on(&data);
    let line = broker.await_log("event=store_repaired");
    assert!(line.contains(&name(&file)) && line.contains("damaged and set aside"), "{line}");
    let line = broker.await_log("event=store_opened");
    assert!(line.contains("messages=9"), "{line}");
    drop(broker);
    let is_bad = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".bad");
    assert!(std::fs::read_dir(data.join("store")).unwrap().any(|entry| is_bad(entry.unwrap())));
}

#[test]
fn f113_another_version_is_refused_by_name_and_nothing_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let data = filled(folder.path());
    let file = logs(&data).pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    for copy in [0, 48] {
        bytes[copy + 8] = 77;
    }
    std::fs::write(&file, &bytes).unwrap();
    let line = refused(&data);
    assert!(line.contains(&name(&file)) && line.contains("format 77"), "{line}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
}

#[test]
fn f113_garbage_is_set_aside_by_name_and_the_broker_starts() {
    let folder = tempfile::tempdir().unwrap();
    let data = filled(folder.path());
    let file = logs(&data).pop().unwrap();
    std::fs::write(&file, vec![0xa5; 5000]).unwrap();
    let broker = on(&data);
    let line = broker.await_log("event=store_repaired");
    assert!(line.contains(&name(&file)) && line.contains("set aside"), "{line}");
    assert!(broker.await_log("event=store_opened").contains("messages=0"));
}

#[test]
fn f119_a_second_broker_is_told_who_has_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let broker = on(&data);
    let line = refused(&data);
    let who = format!("in use by process {}", broker.child.id());
    assert!(line.contains(&who) && line.contains(&*data.join("store").to_string_lossy()), "{line}");
}

/// Runs a script in a name space of its own; none if there is no such thing here.
fn apart(script: &str, data: &Path) -> Option<Command> {
    let unshare = ["unshare", "--user", "--map-root-user", "--mount"];
    let mut probe = Command::new(unshare[0]);
    probe.args(&unshare[1..]).args(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(data);
    let probed = probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !probed.is_ok_and(|status| status.success()) {
        let why = "this system lets nobody mount a file system in a name space of his own (unshare)";
        skip("name spaces", why, Remedy::Owner("allow users to have name spaces"));
        return None;
    }
    let mut command = Command::new(unshare[0]);
    let serve = serve(data);
    command
        .args(&unshare[1..])
        .args(["sh", "-c", script, "sh"])
        .arg(data)
        .arg(serve.get_program())
        .args(serve.get_args());
    command.stdin(Stdio::piped());
    Some(command)
}

#[test]
fn f114_a_full_disk_is_named_refuses_what_needs_it_and_recovers_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    // The ballast goes when a line comes in.
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1\" && head -c 500000 /dev/zero > \"$1/ballast\" && exec 3<&0 && \
                  { (read line <&3; rm \"$1/ballast\") & } && shift && exec \"$@\" </dev/null";
    let Some(command) = apart(script, &data) else { return };
    let mut broker = Broker::start(command, &folder.path().join("log"), None).unwrap();
    Client::connect(address(&broker), "reader").subscribe("t");
    let mut sender = Client::connect(address(&broker), "sender");
    let mut kept = 0;
    // What was taken before the disk was full waits for it, so the refusal is seen by somebody else.
    let large = vec![b'x'; 60_000];
    // They are there before: a new session needs the disk, too.
    let others: Vec<Client> =
        (0..20).map(|number| Client::connect(address(&broker), &format!("sender{number}"))).collect();
    let mut others = others.into_iter();
    let refusal = loop {
        let mut other = others.next().expect("the disk is never full");
        other.stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        other.next_id += 1;
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
        let properties = Properties::EMPTY;
        other.send(&Publish { delivery, retain: false, topic: "t", properties, payload: &large });
        let mut answer = [0; 64];
        match other.stream.read(&mut answer) {
            Ok(count) if count > 4 && answer[4] == 0x97 => break answer[..count].to_vec(),
            Ok(_) => kept += 1,
            // It waits for the disk.
            Err(_) => {}
        }
    };
    assert!(kept > 0);
    assert!(String::from_utf8_lossy(&refusal).contains("store is full"), "{refusal:?}");
    let line = broker.await_log("event=store_full");
    assert!(line.contains("are free") && line.contains(&*data.join("store").to_string_lossy()), "{line}");
    broker.child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    broker.await_log("event=store_recovered");
    assert_eq!(sender.publish(b"after"), ReasonCode::Success);
    let said = broker.log();
    let times = |event: &str| said.lines().filter(|line| line.contains(event)).count();
    assert!(times("event=store_full") == 1 && times("event=store_error") <= 1, "once for each trouble: {said}");
}

/// Takes messages and acknowledges them until this many came.
fn take(reader: &mut Client, count: usize) {
    for _ in 0..count {
        let id = reader.next(|packet| match packet {
            Packet::Publish(publish) => match publish.delivery {
                Delivery::AtLeastOnce { packet_id, .. } => packet_id,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        });
        reader.send(&Ack::success(AckKind::PubAck, id));
    }
}

#[test]
fn f114_a_disk_filled_by_the_log_itself_heals_when_everything_was_taken() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let script = "mount -t tmpfs -o size=12m tmpfs \"$1\" && shift && exec \"$@\" </dev/null";
    let Some(command) = apart(script, &data) else { return };
    let broker = Broker::start(command, &folder.path().join("log"), None).unwrap();
    Client::connect(address(&broker), "reader").subscribe("t");
    let mut sender = Client::connect(address(&broker), "sender");
    let (mut kept, large) = (0, vec![b'x'; 20_000]);
    // More would not fit: it is refused, and not left waiting for a disk that nobody empties.
    while sender.publish(&large) == ReasonCode::Success {
        kept += 1;
        assert!(kept < 600, "the disk is never full");
    }
    assert!(kept > 100, "{kept}");
    broker.await_log("event=store_full");
    let mut reader = Client::connect(address(&broker), "reader");
    take(&mut reader, kept);
    broker.await_log("event=store_recovered");
    assert_eq!(sender.publish(b"after"), ReasonCode::Success);
    take(&mut reader, 1);
}

#[test]
fn f113_the_newest_file_missing_is_named_and_strict_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let data = filled(folder.path());
    let file = logs(&data).pop().unwrap();
    std::fs::remove_file(&file).unwrap();
    let check = tidegate(&["store", "check"]).arg(&data).output().unwrap();
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.code() == Some(1) && said.contains(&name(&file)), "{said}");
    let Output { status, stderr, .. } =
        serve(&data).args(["--set", "store.strict=true"]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(status.code() == Some(1) && said.contains(&name(&file)) && said.contains("strict"), "{said}");
    let broker = on(&data);
    let line = broker.await_log("event=store_repaired");
    assert!(line.contains(&name(&file)) && line.contains("missing"), "{line}");
    assert!(broker.await_log("event=store_opened").contains("missing=1"));
}

#[test]
fn f119_a_lock_removed_by_hand_does_not_let_a_second_broker_in() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let _broker = on(&data);
    std::fs::remove_file(data.join("store/LOCK")).unwrap();
    assert!(refused(&data).contains("in use by another process"));
}

#[test]
fn f150_what_is_kept_is_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let data = filled(folder.path());
    let mut paths = vec![data.clone(), data.join("store")];
    paths.extend(std::fs::read_dir(data.join("store")).unwrap().map(|entry| entry.unwrap().path()));
    assert!(paths.len() > 4, "{paths:?}");
    for path in paths {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{} is {mode:o}", path.display());
    }
}

#[test]
fn f117_a_read_only_disk_is_named_and_nobody_starts() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let script = "mount -t tmpfs -o size=1m,ro tmpfs \"$1\" && shift && exec \"$@\" </dev/null";
    let Some(command) = apart(script, &data) else { return };
    let said = Broker::start(command, &folder.path().join("log"), None).map(drop).unwrap_err();
    let said = one_line(&said);
    assert!(said.contains(&*data.to_string_lossy()) && said.contains("Read-only file system"), "{said}");
}
