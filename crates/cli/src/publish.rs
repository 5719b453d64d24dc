//! `tidegate pub`: messages from the command line, a file or standard input, each seen through to its acknowledgement.
//! With several messages (`-l`, `--repeat`) it comes back when the connection breaks, as mosquitto_pub does. What the broker
//! refuses with a time to come back (MQTT 5) is sent again then, a few times.

mod due;

use std::collections::VecDeque;
use std::io::{BufRead, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_wire_mqtt::{PacketId, QoS, ReasonCode};

use crate::arguments::PubArgs;
use crate::client::again::come_back;
use crate::client::{BlockingClient, ClientError, Happened};
use crate::target::{self, ConnectTarget};
use due::{DueTimes, TRIES_MAX};
use tidegate_program::{Stop, Usage};

/// What is to be published.
#[derive(Debug)]
struct Publishing {
    topic: String,
    qos: QoS,
    retain: bool,
    source: PayloadSource,
    /// Between two messages.
    delay: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum PayloadSource {
    /// The same payload, so many times.
    Payload(Vec<u8>, u32),
    /// Each line of standard input.
    Lines,
}

impl Publishing {
    fn of(args: &PubArgs, topic_of_url: Option<&str>) -> Result<Self> {
        let topic = args.topic.as_deref().or(topic_of_url).context("no topic: add -t TOPIC").context(Usage)?;
        target::check_topic(topic).context("-t").context(Usage)?;
        Ok(Self {
            topic: topic.to_owned(),
            qos: target::qos(args.qos),
            retain: args.retain,
            source: PayloadSource::of(args)?,
            delay: Duration::try_from_secs_f64(args.repeat_delay).context("--repeat-delay")?,
        })
    }
}

impl PayloadSource {
    fn of(args: &PubArgs) -> Result<Self> {
        if args.stdin_line {
            return Ok(Self::Lines);
        }
        let payload = if let Some(message) = &args.message {
            message.clone().into_bytes()
        } else if let Some(path) = &args.file {
            std::fs::read(path).with_context(|| format!("-f {}", path.display()))?
        } else if args.stdin_file {
            let mut all = Vec::new();
            std::io::stdin().lock().read_to_end(&mut all).context("-s: standard input")?;
            all
        } else {
            Vec::new()
        };
        Ok(Self::Payload(payload, args.repeat))
    }

    /// Payloads one after the other. Standard input is read on a thread of its own: while it is silent, the connection
    /// must be kept alive.
    fn payloads(self) -> Receiver<Vec<u8>> {
        let (sender, receiver) = sync_channel(AHEAD_MAX);
        std::thread::spawn(move || match self {
            Self::Payload(payload, times) => (0..times).try_for_each(|_| sender.send(payload.clone()).map_err(drop)),
            Self::Lines => {
                let lines = std::io::stdin().lock().split(b'\n').map_while(Result::ok);
                lines.into_iter().try_for_each(|line| sender.send(line).map_err(drop))
            }
        });
        receiver
    }
}

/// Publishes everything; the exit code.
pub(crate) fn run(args: &PubArgs) -> Result<u8> {
    let ConnectTarget { target, hello, topic } = ConnectTarget::of(&args.connect)?;
    let mut work = UnsentWork::new(Publishing::of(args, topic.as_deref())?, args.connect.quiet);
    let stop = Stop::on_signals()?;
    let window = args.max_inflight.unwrap_or(WINDOW_MAX);
    let connect = || {
        let mut client = BlockingClient::connect(&target, hello.clone())?;
        client.limit_window(window);
        Ok(client)
    };
    let mut client = connect()?;
    while let Err(error) = work.advance(&mut client, &stop) {
        if matches!(error.downcast_ref(), Some(ClientError::TooLarge { .. })) {
            // Found before a byte was sent: the connection is well, and our will is not wanted.
            client.disconnect();
            return Err(error);
        }
        drop(client);
        if !work.may_come_back(&error) {
            return Err(error);
        }
        work.start_again();
        let is_over = || stop.is_wanted().then_some(());
        client = match come_back(&error, connect, is_over, args.connect.quiet)? {
            Ok(client) => client,
            Err(()) => return Err(error),
        };
    }
    client.disconnect();
    let (given_up, unsent) = (work.refusals.given_up, work.unsent());
    if given_up > 0 && !args.connect.quiet {
        let what = messages_were(given_up);
        eprintln!("error: {what} refused {TRIES_MAX} times, each with a time to come back, and given up");
    }
    // A signal came before all was done: who sees 0 would believe that the broker has it.
    if unsent > 0 && !args.connect.quiet {
        eprintln!("error: ended by a signal: {} not sent, or not acknowledged", messages_were(unsent));
    }
    if given_up > 0 || unsent > 0 {
        return Ok(1);
    }
    match work.refusals.last {
        None => Ok(0),
        Some(reason) => {
            if !args.connect.quiet {
                eprintln!("error: the message was refused: {} (0x{:02x})", reason.name(), reason.code());
            }
            Ok(reason.code())
        }
    }
}

fn messages_were(count: u64) -> String {
    if count == 1 { "1 message was".to_owned() } else { format!("{count} messages were") }
}

/// Payloads that are made or read ahead of their turn. No more: standard input may be endless.
const AHEAD_MAX: usize = 64;
/// How long to look for the next payload while answers are awaited.
const GLANCE: Duration = Duration::from_millis(1);
/// Messages under way, each kept until it is acknowledged. More would not be faster.
const WINDOW_MAX: u16 = 1024;

/// What is still to be sent, and what was sent and nobody has acknowledged.
struct UnsentWork {
    topic: String,
    qos: QoS,
    retain: bool,
    due: DueTimes,
    /// Where new ones come from, until there are no more.
    payloads: Option<Receiver<Vec<u8>>>,
    /// How many of those are still to come; none if nobody knows, as of standard input.
    to_come: Option<u32>,
    /// There is more than one message: worth coming back for.
    is_long: bool,
    /// To be sent before anything new: their connection broke, or they were refused with a time to come back.
    again: VecDeque<TriedPayload>,
    under_way: VecDeque<(PacketId, TriedPayload)>,
    /// A message was done on this connection, as far as its quality of service can tell.
    has_progress: bool,
    refusals: PublishRefusals,
}

/// What the broker did not take.
#[derive(Debug)]
struct PublishRefusals {
    /// The last one without a time to come back.
    last: Option<ReasonCode>,
    /// Messages that were refused too often.
    given_up: u64,
    is_quiet: bool,
}

/// A payload, and how often it was refused with a time to come back.
#[derive(Debug)]
struct TriedPayload {
    payload: Vec<u8>,
    refusals: u32,
}

impl UnsentWork {
    fn new(publishing: Publishing, is_quiet: bool) -> Self {
        let Publishing { topic, qos, retain, source, delay } = publishing;
        let is_long = !matches!(source, PayloadSource::Payload(_, 0..=1));
        let to_come = match &source {
            PayloadSource::Payload(_, times) => Some(*times),
            PayloadSource::Lines => None,
        };
        Self {
            topic,
            qos,
            retain,
            due: DueTimes::new(delay, Instant::now()),
            payloads: Some(source.payloads()),
            to_come,
            is_long,
            again: VecDeque::new(),
            under_way: VecDeque::new(),
            has_progress: false,
            refusals: PublishRefusals { last: None, given_up: 0, is_quiet },
        }
    }

    fn is_done(&self) -> bool {
        self.payloads.is_none() && self.again.is_empty() && self.under_way.is_empty()
    }

    /// How many are not done: to be sent again, not acknowledged, or not sent at all. Of standard input those count that
    /// were read ahead.
    fn unsent(&self) -> u64 {
        let ahead = self.payloads.as_ref().map_or(0, |payloads| match self.to_come {
            Some(to_come) => u64::from(to_come),
            None => payloads.try_iter().take(AHEAD_MAX).count() as u64,
        });
        (self.again.len() + self.under_way.len()) as u64 + ahead
    }

    /// Sends and waits until all is done, or a signal comes, or the connection breaks.
    fn advance(&mut self, client: &mut BlockingClient, stop: &Stop) -> Result<()> {
        while !self.is_done() && !stop.is_wanted() {
            let now = Instant::now();
            let may_send = (self.payloads.is_some() || !self.again.is_empty()) && client.has_room();
            if may_send && now >= self.due.next() {
                if let Some(next) = self.next_payload() {
                    self.send(client, next)?;
                    self.due.sent(now);
                    continue;
                }
                if self.is_done() {
                    break;
                }
            }
            let deadline = may_send.then(|| now.max(self.due.next()));
            let happened = client.next(deadline).map_err(|error| client.explain(error))?;
            if let Happened::Published(id, reason, retry_after) = happened {
                self.finish(id, reason, retry_after, Instant::now());
            }
        }
        Ok(())
    }

    /// A message has its answer.
    fn finish(&mut self, id: PacketId, reason: ReasonCode, retry_after: Option<Duration>, now: Instant) {
        let place = self.under_way.iter().position(|(other, _)| *other == id);
        let done = place.and_then(|place| self.under_way.remove(place));
        self.has_progress = true;
        if !reason.is_failure() {
            return;
        }
        let (Some((_, mut tried)), Some(wait)) = (done, retry_after) else {
            self.refusals.last = Some(reason);
            return;
        };
        tried.refusals += 1;
        if tried.refusals >= TRIES_MAX {
            self.refusals.given_up += 1;
            return;
        }
        if self.due.wait(wait, now) && !self.refusals.is_quiet {
            let (name, next) = (reason.name(), tried.refusals + 1);
            let left = self.due.next().saturating_duration_since(now);
            eprintln!("refused ({name}): sent again in {:.1} s, try {next} of {TRIES_MAX}", left.as_secs_f64());
        }
        self.again.push_back(tried);
    }

    fn next_payload(&mut self) -> Option<TriedPayload> {
        if let Some(tried) = self.again.pop_front() {
            return Some(tried);
        }
        // Nothing to hear from the broker: wait for input, but not so long that a ping or a signal is missed.
        let patience = if self.under_way.is_empty() { Duration::from_millis(100) } else { GLANCE };
        match self.payloads.as_ref()?.recv_timeout(patience) {
            Ok(payload) => {
                self.to_come = self.to_come.map(|left| left.saturating_sub(1));
                Some(TriedPayload { payload, refusals: 0 })
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.payloads = None;
                None
            }
            Err(RecvTimeoutError::Timeout) => None,
        }
    }

    fn send(&mut self, client: &mut BlockingClient, next: TriedPayload) -> Result<()> {
        match client.publish(&self.topic, &next.payload, self.qos, self.retain) {
            Ok(Some(id)) => self.under_way.push_back((id, next)),
            Ok(None) => self.has_progress = true,
            Err(error) => {
                self.again.push_front(next);
                return Err(client.explain(error).into());
            }
        }
        Ok(())
    }

    /// Whether a broken connection is worth another one. Not if it broke with a message that was its first: that message
    /// may be what the broker does not take, and before version 5 it has no other word for it.
    fn may_come_back(&self, error: &anyhow::Error) -> bool {
        let is_idle = self.under_way.is_empty() && self.again.is_empty();
        let is_passing = match error.downcast_ref() {
            Some(ClientError::LostAfterPublish(_)) => true,
            Some(error) => error.is_passing(),
            None => false,
        };
        self.is_long && is_passing && (is_idle || self.has_progress)
    }

    /// What was under way is sent again on the next connection, first and in order: it may arrive twice, never not at all.
    fn start_again(&mut self) {
        for (_, tried) in self.under_way.drain(..).rev() {
            self.again.push_front(tried);
        }
        self.has_progress = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Cli, Command};
    use clap::Parser;

    fn parsed(words: &[&str]) -> Result<PubArgs, String> {
        let words = ["tidegate", "pub"].iter().chain(words);
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Some(Command::Pub(args)) => Ok(*args),
            _ => Err("not pub".to_owned()),
        }
    }

    fn publishing(words: &[&str]) -> Result<Publishing, String> {
        let args = parsed(words)?;
        let connection = ConnectTarget::of(&args.connect).map_err(|error| format!("{error:#}"))?;
        Publishing::of(&args, connection.topic.as_deref()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_letters_of_mosquitto_are_understood() {
        let source = publishing(&["-t", "a", "-m", "-21.5"]).unwrap().source;
        assert_eq!(source, PayloadSource::Payload(b"-21.5".to_vec(), 1), "a payload may begin with a dash");
        let words = "-h broker -p 1884 -t a -m x -q 1 -r -V 5 -i me -u ann -P pw -k 30 -d \
                     -D publish user-property n v -D connect receive-maximum 5 --will-topic w --will-qos 2";
        let args = parsed(&words.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!(
            (args.connect.host.as_deref(), args.connect.port, args.qos, args.retain),
            (Some("broker"), Some(1884), 1, true)
        );
        assert_eq!(args.connect.property.len(), 7);
        let connection = ConnectTarget::of(&args.connect).unwrap();
        assert_eq!(connection.hello.properties.len(), 2);
        assert_eq!(connection.hello.keep_alive, 30);
    }

    #[test]
    fn one_source_is_needed_and_no_more() {
        assert_eq!(publishing(&["-t", "a", "-n"]).unwrap().source, PayloadSource::Payload(Vec::new(), 1));
        assert_eq!(publishing(&["-t", "a", "-l"]).unwrap().source, PayloadSource::Lines);
        assert!(parsed(&["-t", "a"]).is_err());
        assert!(parsed(&["-t", "a", "-m", "x", "-n"]).is_err());
        assert!(parsed(&["-t", "a", "-m", "x", "-q", "3"]).is_err());
    }

    #[test]
    fn the_topic_may_come_from_the_url_and_has_no_wildcards() {
        assert_eq!(publishing(&["-L", "mqtt://h/a/b", "-m", "x"]).unwrap().topic, "a/b");
        assert_eq!(publishing(&["-L", "mqtt://h", "-m", "x"]).unwrap_err(), "wrong usage: no topic: add -t TOPIC");
        let refused = publishing(&["-t", "a/#", "-m", "x"]).unwrap_err();
        assert_eq!(refused, "wrong usage: -t: \"a/#\": wildcard in a topic name");
    }
}
