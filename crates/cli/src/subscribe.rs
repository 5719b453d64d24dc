//! `tidegate sub`: prints messages until told otherwise, and comes back when the connection breaks.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_wire_mqtt::{
    Limits, QoS, ReasonCode, RetainHandling, Subscription, SubscriptionOptions, TopicFilter, Version,
};

use crate::arguments::SubArgs;
use crate::client::again::come_back;
use crate::client::{BlockingClient, ClientError, Happened, ReceivedMessage};
use crate::format::Format;
use crate::show::Show;
use crate::target::{self, ConnectTarget};
use tidegate_program::{Stop, Usage};

/// mosquitto's `MOSQ_ERR_TIMEOUT`.
const TIMED_OUT: u8 = 27;

/// What to subscribe to, how messages are shown, and when it is over.
struct Subscribing {
    filters: Vec<String>,
    unsubscribe: Vec<String>,
    options: SubscriptionOptions,
    hidden: Vec<String>,
    which: RetainedChoice,
    show: Show,
    /// Delete what is retained.
    removes: bool,
    /// Of a hundred messages, so many are shown.
    percent: f64,
    /// Messages to print before the end.
    left: Option<u64>,
    until: Option<Instant>,
    exit_after_subscribe: bool,
    debug: bool,
}

/// Messages that were retained when we subscribed carry the retain flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetainedChoice {
    All,
    OnlyRetained,
    OnlyFresh,
}

/// Why a connection is over, if it was not an error.
enum SubscribeEnd {
    Done(u8),
    Signal,
}

impl SubscribeEnd {
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
            (true, _) => RetainedChoice::OnlyRetained,
            (_, true) => RetainedChoice::OnlyFresh,
            _ => RetainedChoice::All,
        };
        let retain_handling =
            if which == RetainedChoice::OnlyFresh { RetainHandling::DoNotSend } else { RetainHandling::Send };
        let options = SubscriptionOptions {
            retain_as_published: args.retain_as_published,
            retain_handling,
            ..SubscriptionOptions::with_qos(target::qos(args.qos))
        };
        let end = if args.no_eol || args.watch { "" } else { "\n" };
        let usual = if args.verbose || args.watch { "%t %p" } else { "%p" };
        let format = Format::parse(args.format.as_deref().unwrap_or(usual), end)?.pretty(args.pretty);
        // As mosquitto_sub has it.
        let format = if args.verbose { format.with_empty("(null)") } else { format };
        let show = match (args.message_rate, args.watch) {
            (true, _) => Show::rate(Instant::now()),
            (_, true) => Show::table(format),
            _ => Show::Lines(format),
        };
        let timeout = args.timeout.map(Duration::try_from_secs_f64).transpose().context("-W")?;
        Ok(Self {
            filters,
            unsubscribe: args.unsubscribe.clone(),
            options,
            hidden: args.filter_out.clone(),
            which,
            show,
            removes: args.remove_retained,
            percent: args.random_filter.unwrap_or(100.0),
            left: args.count,
            until: timeout.map(|timeout| Instant::now() + timeout),
            exit_after_subscribe: args.exit_after_subscribe,
            debug: args.connect.debug,
        })
    }

    fn is_hidden(&self, topic: &str) -> bool {
        self.hidden.iter().any(|hidden| parse(hidden).is_ok_and(|hidden| hidden.matches(topic)))
    }

    fn is_wanted(&self, message: &ReceivedMessage) -> bool {
        let fits = match self.which {
            RetainedChoice::All => true,
            RetainedChoice::OnlyRetained => message.retain,
            RetainedChoice::OnlyFresh => !message.retain,
        };
        fits && !self.is_hidden(&message.topic)
    }

    /// That was all of it, if the time is over or somebody says so.
    fn is_over(&self, stop: &Stop) -> Option<SubscribeEnd> {
        if stop.is_wanted() {
            return Some(SubscribeEnd::Signal);
        }
        self.until.is_some_and(|until| until <= Instant::now()).then_some(SubscribeEnd::Done(TIMED_OUT))
    }
}

/// The broker has the last word on depth; ours is not the limit.
fn parse(filter: &str) -> Result<TopicFilter<'_>> {
    let limits = Limits { topic_levels_max: usize::MAX, ..Limits::default() };
    TopicFilter::parse(filter, &limits).map_err(|violation| anyhow::anyhow!("{filter:?}: {}", violation.detail))
}

/// Prints messages; the exit code.
pub(crate) fn run(args: &SubArgs) -> Result<u8> {
    let ConnectTarget { target, hello, topic } = ConnectTarget::of(&args.connect)?;
    let mut subscribing = Subscribing::of(args, topic).context(Usage)?;
    let stop = Stop::on_signals()?;
    let mut client = BlockingClient::connect(&target, hello.clone())?;
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
        let connect = || BlockingClient::connect(&target, hello.clone());
        let is_over = || subscribing.is_over(&stop);
        client = match come_back(&error, connect, is_over, args.connect.quiet)? {
            Ok(client) => client,
            Err(outcome) => return Ok(outcome.end(args.connect.quiet)),
        };
    }
}

/// Before version 5 there is one code for every refusal.
fn refusal(reason: ReasonCode, version: Version) -> String {
    let code = reason.code();
    if version.is_v5() {
        format!("the broker refused the subscription: {} (0x{code:02x})", reason.name())
    } else {
        let version = version.number();
        format!("the broker refused the subscription (0x{code:02x}); version {version} does not say why")
    }
}

fn session(client: &mut BlockingClient, subscribing: &mut Subscribing, stop: &Stop) -> Result<SubscribeEnd> {
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
        if let Some(outcome) = subscribing.is_over(stop) {
            return Ok(outcome);
        }
        if subscribing.show.tick(Instant::now(), &mut out).is_err() {
            return Ok(SubscribeEnd::Done(0));
        }
        let deadline = subscribing.until.into_iter().chain(subscribing.show.due()).min();
        match client.next(deadline)? {
            Happened::Message(message) => {
                if subscribing.removes && message.retain && !subscribing.is_hidden(&message.topic) {
                    client.publish(&message.topic, b"", QoS::AtLeastOnce, true)?;
                }
                if let Some(outcome) = show(&message, subscribing, &mut out) {
                    await_answers(client, subscribing, stop)?;
                    return Ok(outcome);
                }
            }
            Happened::Subscribed(reasons) => {
                if let Some(worst) = reasons.iter().find(|reason| reason.is_failure()) {
                    eprintln!("error: {}", refusal(*worst, client.version()));
                    if reasons.iter().all(|reason| reason.is_failure()) {
                        return Ok(SubscribeEnd::Done(worst.code()));
                    }
                }
                if subscribing.exit_after_subscribe {
                    return Ok(SubscribeEnd::Done(0));
                }
                if subscribing.debug {
                    eprintln!("subscribed");
                }
            }
            // With nothing but -U that was all.
            Happened::Unsubscribed if subscribing.filters.is_empty() => return Ok(SubscribeEnd::Done(0)),
            Happened::Published(_, reason, _) if reason.is_failure() => {
                eprintln!("error: a retained message was not deleted: {} (0x{:02x})", reason.name(), reason.code());
            }
            Happened::Unsubscribed | Happened::Published(..) | Happened::Nothing => {}
        }
    }
}

/// Prints a message if it is wanted; an outcome if it was the last.
fn show(message: &ReceivedMessage, subscribing: &mut Subscribing, out: &mut impl Write) -> Option<SubscribeEnd> {
    if subscribing.which == RetainedChoice::OnlyRetained && !message.retain {
        // Those that were retained come first: there are no more of them.
        return Some(SubscribeEnd::Done(0));
    }
    if !subscribing.is_wanted(message) || subscribing.percent <= chance() {
        return None;
    }
    if subscribing.show.message(message, out).is_err() {
        // Nobody reads any more (`sub | head -1`): not an error of ours.
        return Some(SubscribeEnd::Done(0));
    }
    let left = subscribing.left.as_mut()?;
    *left = left.saturating_sub(1);
    (*left == 0).then_some(SubscribeEnd::Done(0))
}

/// What was deleted is deleted when the broker says so, not before.
fn await_answers(client: &mut BlockingClient, subscribing: &Subscribing, stop: &Stop) -> Result<()> {
    while client.under_way() > 0 && subscribing.is_over(stop).is_none() {
        client.next(subscribing.until)?;
    }
    Ok(())
}

/// A number from 0 to 100, without 100. The seeds of the hash tables are random enough to choose what is printed.
fn chance() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 11;
    100.0 * bits as f64 / (1_u64 << 53) as f64
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

    fn message(topic: &str, retain: bool) -> ReceivedMessage {
        ReceivedMessage { topic: topic.to_owned(), payload: b"x".to_vec(), retain, ..ReceivedMessage::default() }
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
    fn the_first_fresh_message_ends_what_is_about_retained_ones() {
        let mut wanted = subscribing("-t # --retained-only").unwrap();
        let mut out = Vec::new();
        assert!(show(&message("a", true), &mut wanted, &mut out).is_none());
        assert!(matches!(show(&message("b", false), &mut wanted, &mut out), Some(SubscribeEnd::Done(0))));
        assert_eq!(out, b"x\n");
    }

    #[test]
    fn a_share_of_the_messages_is_chosen_by_chance() {
        let mut wanted = subscribing("-t # --random-filter 50").unwrap();
        let mut out = Vec::new();
        for _ in 0..1000 {
            show(&message("a", false), &mut wanted, &mut out);
        }
        let shown = out.len() / 2;
        assert!((350..650).contains(&shown), "{shown} of 1000");
        assert!(subscribing("-t # --random-filter 0").is_err() && subscribing("-t # --random-filter 101").is_err());
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
        assert!(matches!(show(&message("b", false), &mut wanted, &mut out), Some(SubscribeEnd::Done(0))));
        assert_eq!(out, b"a x\nb x\n");
    }
}
