//! Looks at all clients every few seconds, says what is wrong, and raises alarms. The thin part: `situation` and `alarms`
//! decide.
//!
//! A walk over all clients costs shards some of their time. While the counters say that nothing is lost, refused or held, and
//! nobody listens, one in ten seconds is enough; else one in two; and no more than a fiftieth of the time, but for one in ten seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_broker::{Ban, Banned, WatchReport};
use tidegate_control::Timestamp;
use tidegate_control::pressure::Cause;
use tidegate_core::event::{LedgerSide, Stats};
use tidegate_core::report::ClientReport;

use crate::alarms::{ALARMS_MAX, Alarm, AlarmBoard, AlarmKind};
use crate::ask::walk;
use crate::clients::find;
use crate::limits::{CALM_TICKS, FRESH_FOR, LOOK_REST_MAX, TOP_ROWS, TOP_SHARE, TOP_TICKS};
use crate::live::unix_seconds;
use crate::problem::{Answered, json_of};
use crate::situation::{Mood, TroubleReport};
use crate::state::{AdminState, lock};
use crate::{status, view};

/// What was found at the last look, for whoever asks.
#[derive(Debug, Default)]
pub(crate) struct LastLook {
    pub(crate) situation: Arc<TroubleReport>,
    /// When that look began; none before the first.
    pub(crate) looked_at: Option<Timestamp>,
    /// How long it took.
    cost: Duration,
    /// When one was begun for somebody who asked; it may have been given up.
    asked_at: Option<Timestamp>,
    alarms: AlarmBoard,
    /// What the log said last.
    said: Mood,
}

/// When to look next.
#[derive(Debug)]
pub(crate) struct WatchPace {
    /// Ticks since the last look, and those that have to pass for what the last one cost.
    since: u32,
    rest: u32,
}

impl Default for WatchPace {
    /// The first look is at once: before it nobody knows whether all is well.
    fn default() -> Self {
        Self { since: CALM_TICKS, rest: 0 }
    }
}

impl WatchPace {
    /// Another tick. Whether it is time to look.
    pub(crate) fn is_due(&mut self, is_urgent: bool) -> bool {
        self.since = self.since.saturating_add(1);
        let wanted = if is_urgent { TOP_TICKS } else { CALM_TICKS };
        self.since >= wanted.max(self.rest)
    }

    /// A look took so long.
    pub(crate) fn note(&mut self, began: Instant) {
        let rest = rest_after(began.elapsed());
        (self.since, self.rest) = (0, u32::try_from(rest.as_secs()).unwrap_or(u32::MAX));
    }
}

/// How long nobody looks after a look that took so long.
fn rest_after(cost: Duration) -> Duration {
    cost.saturating_mul(TOP_SHARE).min(LOOK_REST_MAX)
}

/// Whether the counters speak of trouble, or an alarm is being followed.
pub(crate) fn is_urgent(state: &AdminState, stats: &Stats, before: &Stats) -> bool {
    let lost = |stats: &Stats| {
        status::refused(stats) + status::lost(stats, LedgerSide::In) + status::lost(stats, LedgerSide::Out)
    };
    let watch = lock(&state.watch);
    lost(stats) != lost(before)
        || stats.clients_held > 0
        || state.handle.pressure().level.number() > 0
        || watch.situation.sentence().mood != Mood::Calm
        || watch.alarms.is_busy()
}

/// One look: everybody hears of it. The top lists are the answer; none if others are walking.
pub(crate) async fn look(state: &AdminState) -> Option<Value> {
    let began = state.handle.now();
    let mut situation = beside_clients(state);
    let (mut talkers, mut queues, at) = (Vec::new(), Vec::new(), unix_seconds());
    walk(state, |client| {
        let mut histories = lock(&state.live.clients);
        if histories.is_wanted(&client.client_id) {
            histories.note(&client, at);
        }
        drop(histories);
        situation.note(&client, |client| view::limit_of(state, client).map(|(_, rate)| rate));
        let (rate, queue, receiver) = (client.rate.unwrap_or(0.0), client.queued.0 as f64, &client.receiver);
        // Who is slowed, paused or loses is in sight, however little is heard of it.
        if rate > 0.0 || client.state.is_held_back() {
            insert(&mut talkers, (client.state.is_held_back(), rate), &client);
        }
        if queue > 0.0 || receiver.is_losing || receiver.is_slow {
            insert(&mut queues, (receiver.is_losing, receiver.loss_rate + queue), &client);
        }
    })
    .await
    .ok()?;
    for receiver in situation.to_look_into() {
        // Without an answer only what was lost says who is to blame.
        if let Ok(Some(detail)) = find(state, &receiver).await {
            situation.note_waiting(&detail.client);
        }
    }
    let blamed = situation.blamed();
    if !blamed.is_empty() {
        let name = |client: ClientReport| {
            if let Some(blame) = blamed.get(&client.origin) {
                let limit = view::limit_of(state, &client).map(|(_, rate)| rate);
                situation.note_blamed(&client, limit, blame);
            }
        };
        // Others may have taken the place for walks meanwhile. What the first walk has found is true without a culprit.
        let is_incomplete = walk(state, name).await.is_err();
        situation.is_blame_missing = is_incomplete;
    }
    situation.note_newcomer();
    for (_, client) in talkers.iter().chain(&queues) {
        lock(&state.live.clients).note(client, at);
    }
    let rows = |list: Vec<((bool, f64), ClientReport)>| -> Vec<Value> {
        list.iter().map(|(_, client)| view::client(state, client)).collect()
    };
    let top = json!({ "talkers": rows(talkers), "queues": rows(queues), "slowed": situation.held_back });
    tell(state, situation, began);
    Some(top)
}

/// Another look for somebody who asks, unless the last one is fresh; as seldom as `WatchPace` allows.
pub(crate) async fn look_if_old(state: &AdminState) {
    let now = state.handle.now();
    let is_due = {
        let mut watch = lock(&state.watch);
        let rest = FRESH_FOR.max(rest_after(watch.cost));
        let is_due = [watch.looked_at, watch.asked_at].into_iter().flatten().all(|at| now.since(at) > rest);
        // Noted before it begins: whoever asks meanwhile, or hangs up and asks again, does not begin another.
        if is_due {
            watch.asked_at = Some(now);
        }
        is_due
    };
    if is_due {
        look(state).await;
    }
}

/// What is wrong: of clients as it was at the last look, all else as it is now.
pub(crate) fn situation(state: &AdminState) -> TroubleReport {
    let last = Arc::clone(&lock(&state.watch).situation);
    let TroubleReport {
        banned,
        bans,
        ban_tries,
        bridges,
        bridges_down,
        upstream,
        is_gate_off,
        level,
        cause,
        memory,
        disk,
        ..
    } = beside_clients(state);
    let clients = (*last).clone();
    TroubleReport {
        banned,
        bans,
        ban_tries,
        bridges,
        bridges_down,
        upstream,
        is_gate_off,
        level,
        cause,
        memory,
        disk,
        ..clients
    }
}

/// What is known without asking clients.
fn beside_clients(state: &AdminState) -> TroubleReport {
    let (pressure, bans) = (state.handle.pressure(), state.handle.bans());
    let (bridges, bridges_down) = crate::bridges::troubled(&state.process.bridges());
    let health = state.handle.store().map(|report| report.health);
    TroubleReport {
        level: (pressure.level.number(), pressure.level.name()),
        cause: pressure.cause.map(Cause::name),
        memory: pressure.memory_used as f64 / pressure.memory_max.max(1) as f64,
        disk: health.as_ref().and_then(|health| health.why()).map(str::to_owned),
        bridges,
        bridges_down,
        upstream: state.handle.guard().filter(|guard| guard.is_reached == Some(false)).map(|guard| {
            let why = guard.trouble.map(|why| format!(": {why}")).unwrap_or_default();
            let text = format!("the broker behind, {}, cannot be reached{why}", guard.upstream);
            (guard.upstream, text)
        }),
        is_gate_off: state.process.is_gate_off(),
        bans: bans.len(),
        ban_tries: bans.iter().fold(0, |tries, ban| tries.saturating_add(ban.tries)),
        banned: bans
            .iter()
            .take(ALARMS_MAX)
            .map(|ban| (banned(ban, &|name| name.to_owned()), banned(ban, &|name| format!("{name:?}"))))
            .collect(),
        ..TroubleReport::default()
    }
}

/// Whom a ban is for; names as they are, or so that one sees where they end.
fn banned(ban: &Ban, name: &dyn Fn(&str) -> String) -> String {
    match &ban.whom {
        Banned::Client(id) => name(id),
        Banned::User(user) => format!("user {}", name(user)),
        Banned::Network(ip, bits) => format!("{ip}/{bits}"),
        Banned::ClientAt(id, ip, bits) => format!("{} from {ip}/{bits}", name(id)),
        Banned::ClientOf(id, user) => format!("{} of user {}", name(id), name(user)),
    }
}

/// The log, `$SYS`, metrics, and whoever asks from now on.
fn tell(state: &AdminState, situation: TroubleReport, began: Timestamp) {
    let mut watch = lock(&state.watch);
    for alarm in watch.alarms.observe(situation.conditions(), &situation.cut_kinds(), state.handle.now()) {
        let (kind, subject, text) = (alarm.kind.name(), &alarm.subject, &alarm.text);
        if let Some(webhook) = &state.webhook {
            let mut letter = shown(state, &alarm);
            letter["host"] = json!(webhook.host);
            webhook.tell(letter);
        }
        if alarm.cleared_at.is_none() {
            tracing::warn!(event = "alarm_raised", kind, subject, "{text}");
        } else {
            tracing::info!(event = "alarm_cleared", kind, subject, "over: {text}");
        }
    }
    let sentence = situation.sentence();
    // Alarms tell who; the sentence is told when it becomes better or worse.
    if sentence.mood != watch.said {
        watch.said = sentence.mood;
        let (mood, next) = (sentence.mood.name(), &sentence.next);
        tracing::info!(event = "situation", mood, next, "{}", sentence.text);
    }
    let counted = |kind: AlarmKind| watch.alarms.raised().filter(|alarm| alarm.kind == kind).count() as u64;
    let raised: Vec<Value> = watch.alarms.raised().map(|alarm| shown(state, alarm)).collect();
    state.handle.show_watch(WatchReport {
        publishers_throttled: situation.held_back as u64,
        clients_losing: situation.losing as u64,
        clients_slow: situation.slow as u64,
        alarms: AlarmKind::ALL.map(|kind| (kind.name(), counted(kind))).to_vec(),
        alarms_text: Value::Array(raised).to_string(),
    });
    watch.cost = state.handle.now().since(began);
    (watch.situation, watch.looked_at) = (Arc::new(situation), Some(began));
}

/// `/api/v1/alarms`.
pub(crate) async fn show(axum::extract::State(state): axum::extract::State<Arc<AdminState>>) -> Answered {
    // As fresh as the sentence of the status, or the two would contradict each other.
    look_if_old(&state).await;
    Ok(json_of(&alarms(&state)))
}

/// Those that are raised, what is seen and not raised yet, and the last that are over.
pub(crate) fn alarms(state: &AdminState) -> Value {
    let watch = lock(&state.watch);
    let now = state.handle.now();
    let raised = |alarm: &Alarm| {
        let fades = watch.looked_at.and_then(|at| alarm.fading(at));
        let mut letter = shown(state, alarm);
        if let Some(after) = fades {
            letter["gone_s"] = now.since(alarm.seen_at).as_secs().into();
            letter["cleared_after_s"] = after.as_secs().into();
        }
        letter
    };
    let pending = |(alarm, after): (&Alarm, Duration)| {
        let mut letter = shown(state, alarm);
        letter["lasts_s"] = now.since(alarm.since).as_secs().into();
        letter["raised_after_s"] = after.as_secs().into();
        letter
    };
    let cleared = |alarm: &Alarm| shown(state, alarm);
    json!({
        "alarms": watch.alarms.raised().map(raised).collect::<Vec<Value>>(),
        "pending": watch.alarms.pending().map(pending).collect::<Vec<Value>>(),
        "cleared": watch.alarms.cleared().map(cleared).collect::<Vec<Value>>(),
    })
}

fn shown(state: &AdminState, alarm: &Alarm) -> Value {
    let at = |at| view::rfc3339(state.wall(at));
    json!({
        "kind": alarm.kind.name(),
        "subject": alarm.subject,
        "text": alarm.text,
        "worst": alarm.worst_text,
        "since": at(alarm.since),
        "cleared_at": alarm.cleared_at.map(at),
    })
}

/// Into its place in a short list, the largest first.
fn insert(list: &mut Vec<((bool, f64), ClientReport)>, value: (bool, f64), client: &ClientReport) {
    let place = list.partition_point(|(other, _)| *other >= value);
    if place < TOP_ROWS {
        list.insert(place, (value, client.clone()));
        list.truncate(TOP_ROWS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_took_long_is_not_the_last_for_minutes() {
        assert_eq!(rest_after(Duration::from_millis(10)), Duration::from_millis(500));
        assert_eq!(rest_after(Duration::from_secs(4)), LOOK_REST_MAX);
        assert_eq!(rest_after(Duration::MAX), LOOK_REST_MAX);
        let mut pace = WatchPace::default();
        pace.note(Instant::now().checked_sub(Duration::from_secs(4)).unwrap());
        let ticks = (1..=100).find(|_| pace.is_due(true));
        assert_eq!(ticks, Some(10));
    }
}
