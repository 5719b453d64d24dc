//! A peer in virtual time: a kernel that acknowledges as Linux does (at once for the first packets, then when all is read or
//! when a timer ends), a window that does not tell of the first KiB, and a program that reads at some rate.

use proptest::prelude::*;

use super::*;

const STEP_US: u64 = 250;
/// 4 MB/s.
const FLOOD: usize = 1024;
/// What a socket takes beyond the peer's window.
const SOCKET_BYTES: u64 = 128 * 1024;

#[derive(Clone, Copy, Debug)]
struct Reader {
    /// Bytes a second.
    rate: f64,
    rtt_us: u64,
    /// Unread bytes that the window does not show.
    hidden: u64,
    buffer: u64,
    timer_us: u64,
    quick_acks: u32,
}

impl Reader {
    const LOCAL: Self =
        Self { rate: 32_000.0, rtt_us: 20, hidden: 8192, buffer: 65_536, timer_us: 40_000, quick_acks: 16 };
}

/// What is on its way: what, and when it arrives.
type Way = std::collections::VecDeque<(u64, u64)>;

struct World {
    reader: Reader,
    unread: Unread,
    now_us: u64,
    /// Bytes, ever: written, sent, arrived, read, acknowledged.
    written: u64,
    sent: u64,
    arrived: u64,
    read: f64,
    acked: u64,
    window: u32,
    /// What was told in the last acknowledgement that was sent.
    told: u64,
    /// The largest packet: while more than that is not acknowledged, every read is a reason to do so.
    largest: u64,
    timer_at: Option<u64>,
    data: Way,
    acks: std::collections::VecDeque<(u64, u64, u32)>,
    looks: u32,
    portioned: u32,
    next_look: Option<Timestamp>,
    /// Bytes that are published in a step.
    flood: usize,
}

impl World {
    fn new(reader: Reader) -> Self {
        let buffer = reader.buffer as u32;
        Self {
            reader,
            unread: Unread::new(at(0)),
            now_us: 0,
            written: 0,
            sent: 0,
            arrived: 0,
            read: 0.0,
            acked: 0,
            window: buffer,
            told: 0,
            largest: 536,
            timer_at: None,
            data: Way::new(),
            acks: std::collections::VecDeque::new(),
            looks: 0,
            portioned: 0,
            next_look: None,
            flood: FLOOD,
        }
    }

    /// Bytes that a message of now would wait for.
    fn before(&self) -> u64 {
        self.written - self.read as u64
    }

    fn acknowledge(&mut self) {
        let shown = (self.arrived - self.read as u64).saturating_sub(self.reader.hidden);
        let window = self.reader.buffer.saturating_sub(shown) as u32;
        self.acks.push_back((self.now_us + self.reader.rtt_us / 2, self.arrived, window));
        (self.told, self.timer_at) = (self.arrived, None);
    }

    /// A step of both kernels and the program.
    fn step(&mut self) {
        self.now_us += STEP_US;
        while self.acks.front().is_some_and(|ack| ack.0 <= self.now_us) {
            let (_, acked, window) = self.acks.pop_front().unwrap();
            (self.acked, self.window) = (acked, window);
        }
        let sendable = (self.acked + u64::from(self.window)).min(self.written);
        if sendable > self.sent {
            self.data.push_back((self.now_us + self.reader.rtt_us / 2, sendable - self.sent));
            self.sent = sendable;
        }
        while self.data.front().is_some_and(|data| data.0 <= self.now_us) {
            let bytes = self.data.pop_front().unwrap().1;
            self.arrived += bytes;
            self.largest = self.largest.max(bytes);
            if self.reader.quick_acks > 0 {
                self.reader.quick_acks -= 1;
                self.acknowledge();
            }
            self.timer_at =
                self.timer_at.or(Some(self.now_us + self.reader.timer_us)).filter(|_| self.told < self.arrived);
        }
        let before = self.read;
        let could = before + self.reader.rate * STEP_US as f64 / 1e6;
        self.read = could.min(self.arrived as f64);
        let is_dry = self.read as u64 == self.arrived;
        let is_due = self.timer_at.is_some_and(|timer| timer <= self.now_us || is_dry);
        // A window that was closed and is open again is told, too.
        let reopened =
            self.window == 0 && self.acks.is_empty() && self.arrived - (self.read as u64) < self.reader.buffer / 2;
        let has_read = could.floor() > before.floor() && self.arrived - self.told > self.largest;
        if is_due || reopened || has_read {
            self.acknowledge();
        }
    }

    /// A broker with more to send than anybody reads, in messages of 64 bytes.
    fn run(&mut self, millis: u64, is_flooded: bool) -> f64 {
        let (end, before) = (self.now_us + millis * 1000, self.read);
        while self.now_us < end {
            self.step();
            let now = at(self.now_us);
            if self.next_look.is_some_and(|next| next <= now) {
                self.look(now);
            }
            let room = (self.acked + u64::from(self.window) + SOCKET_BYTES).saturating_sub(self.written);
            let given = self.unread.left().map_or(self.flood, |left| left.div_ceil(64) * 64).min(room as usize);
            if is_flooded && given > 0 {
                self.written += given as u64;
                self.unread.on_written(given, now);
            }
            if self.next_look.is_none() {
                self.next_look = self.unread.next_look(now);
            }
            self.portioned += u32::from(self.unread.is_portioned());
        }
        (self.read - before) / (millis as f64 / 1000.0)
    }

    fn look(&mut self, now: Timestamp) {
        let tcp = TcpState {
            acked: self.acked,
            outstanding: self.written - self.acked,
            window: self.window,
            rtt_min: Duration::from_micros(self.reader.rtt_us),
        };
        self.looks += 1;
        self.unread.on_look(&tcp, true, true, now);
        self.next_look = self.unread.next_look(now);
    }
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000 + micros * 1000)
}

#[test]
fn a_slow_reader_has_little_before_it_and_never_runs_dry() {
    let mut world = World::new(Reader::LOCAL);
    world.run(2_000, true);
    assert!(world.unread.is_portioned());
    let (mut most, before) = (0, world.looks);
    for _ in 0..300 {
        let rate = world.run(10, true);
        most = most.max(world.before());
        assert!(rate > 0.0, "it ran dry");
    }
    // 3.2 kB are a tenth of a second.
    assert!(most <= 2_500, "{most} bytes before it");
    let rate = world.run(3_000, true);
    assert!(rate > 0.94 * 32_000.0, "{rate} bytes a second");
    assert!(world.looks - before < 6 * 300, "{} looks in six seconds", world.looks - before);
}

#[test]
fn what_the_first_flood_leaves_there_is_bounded() {
    let mut world = World::new(Reader::LOCAL);
    let mut most = 0;
    for _ in 0..200 {
        world.run(10, true);
        most = most.max(world.before());
    }
    assert!(most <= 64 * 1024, "{most}");
}

#[test]
fn a_fast_reader_is_as_fast_near_and_far() {
    for rtt_us in [20, 50_000] {
        let mut world = World::new(Reader { rate: 50e6, rtt_us, hidden: 0, ..Reader::LOCAL });
        let mut free = World::new(world.reader);
        free.unread.look_after = u32::MAX;
        (world.flood, free.flood) = (16 * FLOOD, 16 * FLOOD);
        let (with, without) = (world.run(1_000, true), free.run(1_000, true));
        assert!(u64::from(world.portioned) * STEP_US < 20_000, "for {} steps", world.portioned);
        assert!(with >= 0.98 * without, "{with} of {without}");
    }
}

#[test]
fn a_reader_that_becomes_fast_is_let_go() {
    let mut world = World::new(Reader::LOCAL);
    world.run(3_000, true);
    assert!(world.unread.is_portioned());
    world.reader.rate = 20e6;
    world.run(150, true);
    assert!(!world.unread.is_portioned());
}

#[test]
fn a_stuck_reader_is_left_to_its_socket() {
    let mut world = World::new(Reader { rate: 0.0, ..Reader::LOCAL });
    world.run(100, true);
    assert!(world.unread.is_portioned() && world.unread.is_draining());
    world.run(2_500, true);
    assert!(!world.unread.is_portioned());
    let full = SOCKET_BYTES + Reader::LOCAL.buffer;
    assert!(world.written >= full, "{} of {full}", world.written);
}

#[test]
fn nobody_gets_portions_for_whom_nothing_waits() {
    let mut world = World::new(Reader::LOCAL);
    world.run(3_000, true);
    world.run(500, false);
    let now = at(world.now_us);
    let tcp = TcpState { acked: world.acked, outstanding: 0, window: world.window, rtt_min: Duration::ZERO };
    assert_eq!(world.unread.on_look(&tcp, false, true, now), Change::None);
    assert_eq!(world.unread.on_look(&tcp, false, true, now + PRESSED_FOR), Change::Ended);
    assert_eq!(world.unread.left(), None);
}

#[test]
fn a_kernel_that_says_nothing_bounds_nothing() {
    let mut world = World::new(Reader::LOCAL);
    world.run(1_000, true);
    assert_eq!(world.unread.on_unseen(at(world.now_us)), Change::Ended);
    assert_eq!(world.unread.left(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_reader_gets_less_for_it(
        rate in 2_000.0_f64..3e6,
        rtt_us in prop_oneof![Just(20_u64), 100_u64..100_000],
        hidden in 0_u64..16_384,
        buffer in 16_384_u64..262_144,
        timer_us in prop_oneof![Just(40_000_u64), 40_000_u64..250_000],
        quick_acks in 0_u32..20,
    ) {
        let reader = Reader { rate, rtt_us, hidden, buffer, timer_us, quick_acks };
        let (mut world, mut free) = (World::new(reader), World::new(reader));
        free.unread.look_after = u32::MAX;
        let (with, without) = (world.run(6_000, true), free.run(6_000, true));
        prop_assert!(with >= 0.9 * without, "{with} of {without} bytes a second: {reader:?}");
    }
}
