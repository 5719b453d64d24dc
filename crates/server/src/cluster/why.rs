//! `tidegate cluster why`: who owns the log, since when, why it went from one node to another, what lags, and what to type. What is said
//! is decided without a socket.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use tidegate_cluster::{HandOver, Reason, is_one_process};
use tidegate_cluster_nats::ClusterView;

use super::status;
use crate::plan::cluster::ClusterPlan;

/// A hand-over in a sentence without its time.
pub(crate) fn handover_words(handover: &HandOver) -> String {
    let HandOver { epoch, node, from, reason, .. } = handover;
    let from = from.as_ref().map_or("nobody", |(from, _)| from.as_str());
    let why = match reason {
        Reason::First => return format!("{node} began the log (epoch {epoch})"),
        Reason::Again => {
            return format!("{node} took its own log up again after its process had ended (epoch {epoch})");
        }
        Reason::Left => "planned: it ended in good order and handed over".to_owned(),
        Reason::Silent(silence) => {
            format!(
                "its lease ran out: it had said nothing for {:.1} s (killed, asleep or cut off)",
                silence.as_secs_f64()
            )
        }
        Reason::Declined => "it was started again and did not take the log up itself".to_owned(),
    };
    format!("{node} took the log from {from} (epoch {epoch}), {why}")
}

/// What became of whoever had it before, if its lease ran out.
fn afterwards(view: &ClusterView, handover: &HandOver) -> Option<String> {
    let (from, incarnation) = handover.from.as_ref().filter(|_| matches!(handover.reason, Reason::Silent(_)))?;
    let node = view.nodes.iter().find(|node| node.node == *from);
    let is_same = node.is_some_and(|node| is_one_process(node.lease.incarnation, *incarnation));
    Some(match node.map(|node| status::role(view, node)) {
        Some("fenced") => format!(
            "{from} was asleep or cut off and writes as before: it is fenced, acknowledges nothing, and stands by as soon as it notices"
        ),
        Some("standby") if is_same => format!("{from} lives: it was asleep or cut off, was fenced, and stands by now"),
        Some("standby" | "owner") => format!("{from} has been started again since"),
        Some("left") => format!("{from} has ended in good order since"),
        _ => format!("{from} has not come back"),
    })
}

/// All of it.
pub fn text(view: &ClusterView, plan: &ClusterPlan, now: SystemTime) -> String {
    let mut text = String::new();
    let ago = |handover: &HandOver| ago(handover.at_ms, now);
    let last = view.handovers.first().filter(|last| view.owner.as_ref().is_some_and(|(_, epoch)| *epoch == last.epoch));
    let _ = match (&view.owner, last) {
        (None, _) => writeln!(text, "Nobody has ever had the log of {}.", plan.name),
        (Some((owner, epoch)), None) => {
            writeln!(
                text,
                "{owner} has the log of {} (epoch {epoch}); why is not noted: it has just begun, or its program is older.",
                plan.name
            )
        }
        (Some((owner, epoch)), Some(last)) => {
            writeln!(text, "{owner} has the log of {} (epoch {epoch}), taken {}.", plan.name, ago(last))
        }
    };
    if let Some(last) = last {
        let _ = writeln!(text, "Why: {}.", handover_words(last));
        if let Some(words) = afterwards(view, last) {
            let _ = writeln!(text, "     {words}.");
        }
    }
    for before in view.handovers.iter().filter(|handover| last.is_none_or(|last| handover.epoch < last.epoch)) {
        let _ = writeln!(text, "Before, {}: {}.", ago(before), handover_words(before));
    }
    text.push_str(&lagging(view, plan));
    text.push_str(&to_type(view));
    text
}

/// Which copies are behind.
fn lagging(view: &ClusterView, plan: &ClusterPlan) -> String {
    let mut text = String::new();
    for copy in view.copies.iter().filter(|copy| !copy.is_current || copy.lag > 0) {
        let silent = copy.silent_for.map(|time| format!(", heard {:.1} s ago", time.as_secs_f64())).unwrap_or_default();
        let _ = writeln!(text, "Lags: the engine's server {} is {} operations behind{silent}.", copy.server, copy.lag);
    }
    if view.copies.len() < plan.replicas && plan.replicas > 1 {
        let (there, wanted) = (view.copies.len(), plan.replicas);
        let _ = writeln!(text, "Lags: {there} of {wanted} copies are known to the engine.");
    }
    if text.is_empty() { "Nothing lags.\n".to_owned() } else { text }
}

/// The advice of `cluster status`, and nothing else where there is none.
fn to_type(view: &ClusterView) -> String {
    let advice = status::advice(view);
    if advice.is_empty() {
        let owner = view.owner.as_ref().map_or("its owner", |(owner, _)| owner.as_str());
        return format!("To do: nothing. To hand over now, at {owner}: tidegate drain\n");
    }
    advice.iter().fold(String::new(), |mut text, words| {
        let _ = writeln!(text, "To do: {words}.");
        text
    })
}

/// How long ago, by two clocks that may be apart.
fn ago(at_ms: u64, now: SystemTime) -> String {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at_ms));
    match at.and_then(|at| now.duration_since(at).ok()) {
        Some(time) => format!("{} ago", span(time.as_secs())),
        None => "a time that this clock has not reached (clocks are apart)".to_owned(),
    }
}

fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// For programs.
pub fn json(view: &ClusterView, plan: &ClusterPlan) -> serde_json::Value {
    let handover = |handover: &HandOver| {
        let (word, silent_s) = match handover.reason {
            Reason::First => ("first", None),
            Reason::Again => ("again", None),
            Reason::Left => ("planned", None),
            Reason::Silent(silence) => ("lease", Some(silence.as_secs_f64())),
            Reason::Declined => ("declined", None),
        };
        serde_json::json!({
            "epoch": handover.epoch,
            "node": handover.node.as_str(),
            "from": handover.from.as_ref().map(|(from, _)| from.as_str()),
            "reason": word,
            "silent_s": silent_s,
            "at_ms": handover.at_ms,
            "words": handover_words(handover),
            "afterwards": afterwards(view, handover),
        })
    };
    let mut all = status::json(view, plan);
    all["handovers"] = view.handovers.iter().map(handover).collect();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::status::tests::{node, plan, view};

    fn handover(epoch: u64, node: &str, from: &str, reason: Reason) -> HandOver {
        let from = (!from.is_empty()).then(|| (from.parse().unwrap(), 1));
        HandOver { epoch, node: node.parse().unwrap(), from, reason, at_ms: 1_000_000 }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + seconds)
    }

    #[test]
    fn it_says_who_since_when_and_why() {
        let mut all = view(vec![node("a", 4, Some(1), false), node("b", 0, Some(2), false)]);
        all.handovers = vec![
            handover(4, "a", "b", Reason::Silent(Duration::from_millis(6340))),
            handover(3, "b", "a", Reason::Left),
            handover(2, "a", "a", Reason::Again),
            handover(1, "a", "", Reason::First),
        ];
        let text = text(&all, &plan(), at(65));
        for line in [
            "a has the log of plant (epoch 4), taken 65 s ago.",
            "Why: a took the log from b (epoch 4), its lease ran out: it had said nothing for 6.3 s (killed, asleep or cut off).",
            "     b lives: it was asleep or cut off, was fenced, and stands by now.",
            "Before, 65 s ago: b took the log from a (epoch 3), planned: it ended in good order and handed over.",
            "Before, 65 s ago: a took its own log up again after its process had ended (epoch 2).",
            "Before, 65 s ago: a began the log (epoch 1).",
            "Nothing lags.",
            "To do: nothing. To hand over now, at a: tidegate drain",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let value = json(&all, &plan());
        assert_eq!(
            (&value["handovers"][0]["reason"], &value["handovers"][1]["reason"]),
            (&"lease".into(), &"planned".into())
        );
        assert_eq!(value["owner"], "a");
    }

    #[test]
    fn what_lags_and_what_to_do_are_named() {
        let mut all = view(vec![node("a", 4, Some(1), false)]);
        (all.copies[2].is_current, all.copies[2].lag) = (false, 812);
        all.copies[2].silent_for = Some(Duration::from_millis(9100));
        let text = text(&all, &plan(), at(0));
        assert!(text.contains("(epoch 4); why is not noted"), "{text}");
        assert!(
            text.contains("Lags: the engine's server plant-c is 812 operations behind, heard 9.1 s ago.\n"),
            "{text}"
        );
        assert!(text.contains("To do: no node stands by"), "{text}");
    }

    #[test]
    fn who_was_overtaken_is_told_apart_from_who_died() {
        let with = |nodes| {
            let mut all = view(nodes);
            all.handovers = vec![handover(4, "a", "b", Reason::Silent(Duration::from_secs(6)))];
            text(&all, &plan(), at(0))
        };
        let owner = || node("a", 4, Some(1), false);
        assert!(with(vec![owner(), node("b", 3, Some(1), false)]).contains("it is fenced, acknowledges nothing"));
        assert!(with(vec![owner(), node("b", 3, Some(900), false)]).contains("b has not come back"));
        assert!(with(vec![owner()]).contains("b has not come back"));
        let mut again = node("b", 0, Some(1), false);
        again.lease.incarnation = 2 << 16;
        assert!(with(vec![owner(), again]).contains("b has been started again since"));
        let ahead = ago(9_000_000, at(0));
        assert!(ahead.contains("clocks are apart"), "{ahead}");
    }
}
