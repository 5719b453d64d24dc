//! `tidegate sub`: prints messages until told otherwise, and comes back when the connection breaks.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_wire_mqtt::{Limits, ReasonCode, RetainHandling, Subscription, SubscriptionOptions, TopicFilter, Version};

use crate::arguments::SubArgs;
use crate::client::{Client, ClientError, Happened, Message};
use crate::format::Format;
use crate::stop::Stop;
use crate::target::{self, Connection, Usage};

/// mosquitto's `MOSQ_ERR_TIMEOUT`.
const TIMED_OUT: u8 = 27;

/// What is wanted.
struct Subscribing {
    filters: Vec<String>,
    unsubscribe: Vec<String>,
    options: SubscriptionOptions,
    hidden: Vec<String>,
    which: Which,
    format: Format,
    /// Messages to print before the end.
    left: Option<u64>,
    until: Option<Instant>,
    exit_after_subscribe: bool,
    debug: bool,
}

/// Messages that were retained when we subscribed carry the retain flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    OnlyRetained,
    OnlyFresh,
}

/// Why a connection is over, if it was not an error.
enum Outcome {
    Done(u8),
    Signal,
}

impl Outcome {
    /// The exit code. That the time was over is said, as by mosquitto_sub.
    fn end(self, is_quiet: bool) -> u8 {
        match self {
            Self::Done(code) => {
                if code == TIMED_OUT && !is_quiet {
                    eprintln!("Timed out");
                }
                code
            }
            Self::Signal => 0,
        }
    }
}

impl Subscribing {
    fn of(args: &SubArgs, topic_of_url: Option<String>) -> Result<Self> {
        let filters: Vec<String> = args.topic.iter().cloned().chain(topic_of_url).collect();
        for filter in filters.iter().chain(&args.unsubscribe).chain(&args.filter_out) {
            parse(filter)?;
        }
        let which = match (args.retained_only, args.no_retained) {
            (true, _) => Which::OnlyRetained,
            (_, true) => Which::OnlyFresh,
            _ => Which::All,
        };
        let retain_handling = if which == Which::OnlyFresh { RetainHandling::DoNotSend } else { RetainHandling::Send };
        let options = SubscriptionOptions {
            retain_as_published: args.retain_as_published,
            retain_handling,
            ..SubscriptionOptions::with_qos(target::qos(args.qos))
        };
        let end = if args.no_eol { "" } else { "\n" };
        let format = match (&args.format, args.verbose) {
            (Some(text), _) => Format::parse(text, end)?,
            (None, true) => Format::parse("%t %p", end)?,
            (None, false) => Format::parse("%p", end)?,
        };
        let timeout = args.timeout.map(Duration::try_from_secs_f64).transpose().context("-W")?;
        Ok(Self {
            filters,
            unsubscribe: args.unsubscribe.clone(),
            options,
            hidden: args.filter_out.clone(),
            which,
            format,
            left: args.count,
            until: timeout.map(|timeout| Instant::now() + timeout),
            exit_after_subscribe: args.exit_after_subscribe,
            debug: args.connect.debug,
        })
    }

    fn is_wanted(&self, message: &Message) -> bool {
        let is_hidden =
            self.hidden.iter().any(|hidden| parse(hidden).is_ok_and(|hidden| hidden.matches(&message.topic)));
        let fits = match self.which {
            Which::All => true,
            Which::OnlyRetained => message.retain,
            Which::OnlyFresh => !message.retain,
        };
        fits && !is_hidden
    }
}

/// The broker has the last word on depth; ours is not the limit.
fn parse(filter: &str) -> Result<TopicFilter<'_>> {
    let limits = Limits { topic_levels_max: usize::MAX, ..Limits::default() };
    TopicFilter::parse(filter, &limits).map_err(|violation| anyhow::anyhow!("{filter:?}: {}", violation.detail))
}

/// Prints messages; the exit code.
pub(crate) fn run(args: &SubArgs) -> Result<u8> {
    let Connection { target, hello, topic } = Connection::of(&args.connect)?;
    let mut subscribing = Subscribing::of(args, topic).context(Usage)?;
    let stop = Stop::on_signals()?;
    let mut client = Client::connect(&target, hello.clone())?;
    loop {
        let error = match session(&mut client, &mut subscribing, &stop) {
            Ok(outcome) => {
                client.disconnect();
                return Ok(outcome.end(args.connect.quiet));
            }
            Err(error) => error,
        };
        // Closed before the pause: a broker that drains waits for us.
        drop(client);
        if !error.downcast_ref::<ClientError>().is_some_and(ClientError::is_passing) {
            return Err(error);
        }
        let connect = || Client::connect(&target, hello.clone());
        client = match come_back(&error, connect, &subscribing, &stop, args.connect.quiet)? {
            Ok(client) => client,
            Err(outcome) => return Ok(outcome.end(args.connect.quiet)),
        };
    }
}

/// Connects again, with pauses that double up to half a minute: a broker that restarts is found soon, one that is gone is
/// not hammered. `Ok(Err(…))` if the time is over meanwhile.
fn come_back(
    error: &anyhow::Error,
    connect: impl Fn() -> Result<Client, ClientError>,
    subscribing: &Subscribing,
    stop: &Stop,
    is_quiet: bool,
) -> Result<Result<Client, Outcome>> {
    let mut pause = Duration::from_secs(1);
    let mut why = error.to_string();
    loop {
        if !is_quiet {
            eprintln!("{why}; trying again in {} s", pause.as_secs());
        }
        if let Some(outcome) = rest(pause, subscribing, stop) {
            return Ok(Err(outcome));
        }
        pause = (pause * 2).min(Duration::from_secs(30));
        match connect() {
            Ok(client) => return Ok(Ok(client)),
            Err(error) if error.is_passing() => why = error.to_string(),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits; an outcome if that is the end.
fn rest(pause: Duration, subscribing: &Subscribing, stop: &Stop) -> Option<Outcome> {
    let end = Instant::now() + pause;
    while Instant::now() < end {
        if stop.is_wanted() {
            return Some(Outcome::Signal);
        }
        if subscribing.until.is_some_and(|until| until <= Instant::now()) {
            return Some(Outcome::Done(TIMED_OUT));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    None
}

/// Before version 5 there is one code for every refusal.
fn refusal(reason: ReasonCode, version: Version) -> String {
    let code = reason.code();
    if version.is_v5() {
        format!("the broker refused the subscription: {} (0x{code:02x})", reason.name())
    } else {
        let version = if version == Version::V31 { "3.1" } else { "3.1.1" };
        format!("the broker refused the subscription (0x{code:02x}); version {version} does not say why")
    }
}

fn session(client: &mut Client, subscribing: &mut Subscribing, stop: &Stop) -> Result<Outcome> {
    let unsubscribe = subscribing.unsubscribe.iter().map(|filter| parse(filter)).collect::<Result<Vec<_>>>()?;
    if !unsubscribe.is_empty() {
        client.unsubscribe(&unsubscribe)?;
    }
    let options = subscribing.options;
    let parsed = subscribing.filters.iter().map(|filter| parse(filter));
    let filters: Vec<_> = parsed.map(|filter| Ok(Subscription { filter: filter?, options })).collect::<Result<_>>()?;
    if !filters.is_empty() {
        client.subscribe(&filters)?;
    }
    let mut out = std::io::stdout().lock();
    loop {
        if stop.is_wanted() {
            return Ok(Outcome::Signal);
        }
        if subscribing.until.is_some_and(|until| until <= Instant::now()) {
            return Ok(Outcome::Done(TIMED_OUT));
        }
        match client.next(subscribing.until)? {
            Happened::Message(message) => {
                if let Some(outcome) = show(&message, subscribing, &mut out) {
                    return Ok(outcome);
                }
            }
            Happened::Subscribed(reasons) => {
                if let Some(worst) = reasons.iter().find(|reason| reason.is_failure()) {
                    eprintln!("error: {}", refusal(*worst, client.version()));
                    if reasons.iter().all(|reason| reason.is_failure()) {
                        return Ok(Outcome::Done(worst.code()));
                    }
                }
                if subscribing.exit_after_subscribe {
                    return Ok(Outcome::Done(0));
                }
                if subscribing.debug {
                    eprintln!("subscribed");
                }
            }
            // With nothing but -U that was all.
            Happened::Unsubscribed if subscribing.filters.is_empty() => return Ok(Outcome::Done(0)),
            Happened::Unsubscribed | Happened::Published(_) | Happened::Nothing => {}
        }
    }
}

/// Prints a message if it is wanted; an outcome if it was the last.
fn show(message: &Message, subscribing: &mut Subscribing, out: &mut impl Write) -> Option<Outcome> {
    if !subscribing.is_wanted(message) {
        return None;
    }
    let mut line = Vec::new();
    subscribing.format.write(message, &mut line);
    if out.write_all(&line).and_then(|()| out.flush()).is_err() {
        // Nobody reads any more (`sub | head -1`): not an error of ours.
        return Some(Outcome::Done(0));
    }
    let left = subscribing.left.as_mut()?;
    *left = left.saturating_sub(1);
    (*left == 0).then_some(Outcome::Done(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Cli, Command};
    use clap::Parser;

    fn subscribing(words: &str) -> Result<Subscribing, String> {
        let words = format!("tidegate sub {words}");
        match Cli::try_parse_from(words.split_whitespace()).map_err(|error| error.to_string())?.command {
            Some(Command::Sub(args)) => Subscribing::of(&args, None).map_err(|error| format!("{error:#}")),
            _ => Err("not sub".to_owned()),
        }
    }

    fn message(topic: &str, retain: bool) -> Message {
        Message { topic: topic.to_owned(), payload: b"x".to_vec(), retain, ..Message::default() }
    }

    #[test]
    fn the_letters_of_mosquitto_are_understood() {
        let wanted = subscribing("-t a/# -t b -q 2 -v -C 3 -W 5 -N -T a/x -h h -p 1 -i id -k 5 -d").unwrap();
        assert_eq!((wanted.filters.len(), wanted.left, wanted.options.qos.bits()), (2, Some(3), 2));
        assert!(wanted.until.is_some() && wanted.debug);
        assert!(subscribing("").is_err());
        assert!(subscribing("-U a").is_ok());
        assert!(subscribing("-t a -v -F %p").is_err());
        assert_eq!(subscribing("-t a/#/b").err().unwrap(), "\"a/#/b\": # is not the last level");
    }

    #[test]
    fn unwanted_messages_are_left_out() {
        let fresh = subscribing("-t # -R -T a/x").unwrap();
        assert!(fresh.is_wanted(&message("a/y", false)));
        assert!(!fresh.is_wanted(&message("a/y", true)));
        assert!(!fresh.is_wanted(&message("a/x", false)));
        let retained = subscribing("-t # --retained-only").unwrap();
        assert!(retained.is_wanted(&message("a", true)) && !retained.is_wanted(&message("a", false)));
    }

    #[test]
    fn a_refusal_says_what_the_version_knows() {
        assert_eq!(
            refusal(ReasonCode::UnspecifiedError, Version::V311),
            "the broker refused the subscription (0x80); version 3.1.1 does not say why"
        );
        assert!(refusal(ReasonCode::NotAuthorized, Version::V5).ends_with("Not authorized (0x87)"));
    }

    #[test]
    fn the_count_ends_it() {
        let mut wanted = subscribing("-t # -v -C 2").unwrap();
        let mut out = Vec::new();
        assert!(show(&message("a", false), &mut wanted, &mut out).is_none());
        assert!(matches!(show(&message("b", false), &mut wanted, &mut out), Some(Outcome::Done(0))));
        assert_eq!(out, b"a x\nb x\n");
    }
}
