//! Clients and their ledgers as JSON. Field names do not change; what is not known is null.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use tidegate_broker::OperatorSetting;
use tidegate_broker::ask::Closed;
use tidegate_core::Whom;
use tidegate_core::event::LedgerSide;
use tidegate_core::ledger::{Ledger, Loss};
use tidegate_core::report::{ClientDetail, ClientReport};

use crate::state::AdminState;

pub(crate) fn client(state: &AdminState, client: &ClientReport) -> Value {
    let publisher = client.publisher.as_ref();
    let link = client.link.as_ref();
    json!({
        "client_id": &*client.client_id,
        "user": client.identity.user.as_deref(),
        "address": &*client.identity.peer,
        "listener": client.identity.listener,
        "protocol": link.map(|link| link.protocol),
        "connected_since": link.map(|link| rfc3339(state.wall(link.since))),
        "state": client.state.name(),
        "class": client.class.as_deref(),
        "rate": client.rate.map(rounded),
        "learned_rate": usual_rate(state, client).map(rounded),
        "limit_rate": limit_of(state, client).map(|(_, rate)| rounded(rate)),
        "delay_ms": millis(client.delay),
        "held": publisher.map_or(0, |publisher| publisher.held),
        "queue_messages": client.queued.0,
        "queue_bytes": client.queued.1,
        "outbox_bytes": link.map_or(0, |link| link.outbox_bytes),
        "inflight": client.inflight,
        "reads_rate": reads_rate(client).map(rounded),
        "subscriptions": client.subscriptions,
        "received": client.ledger.received,
        "passed": client.ledger.passed,
        "delivered": client.ledger.delivered,
        "refused": client.ledger.refused(),
        "lost_in": lost_in(&client.ledger),
        "lost_out": client.ledger.lost_on(LedgerSide::Out),
        "drops": drops(&client.ledger),
        "bytes_received": client.ledger.bytes_received,
        "bytes_sent": client.ledger.bytes_sent,
    })
}

pub(crate) fn detail(state: &AdminState, detail: &ClientDetail) -> Value {
    let mut value = client(state, &detail.client);
    let filters: Vec<Value> =
        detail.filters.iter().map(|(filter, qos)| json!({ "filter": filter, "qos": qos.bits() })).collect();
    let publisher = detail.client.publisher.as_ref();
    let since = publisher.and_then(|publisher| publisher.slowed_since);
    let expires = detail.expires_at.map(|at| SystemTime::now() + at.since(state.handle.now()));
    let more = json!({
        "ledger": ledger(&detail.client),
        "filters": filters,
        "batch": publisher.map(|publisher| publisher.batch),
        "slowed_since": since.map(|since| rfc3339(state.wall(since))),
        "session_expiry_s": (detail.session_expiry != Duration::MAX).then_some(detail.session_expiry.as_secs()),
        "session_ends": expires.map(rfc3339),
    });
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}

/// Both sides of a client's ledger, each a sum.
fn ledger(client: &ClientReport) -> Value {
    let Ledger { received, passed, deliveries, delivered, .. } = client.ledger;
    let held = client.publisher.map_or(0, |publisher| publisher.held);
    json!({
        "in": {
            "received": received,
            "passed": passed,
            "held": held,
            "lost": losses(&client.ledger, LedgerSide::In),
        },
        "out": {
            "deliveries": deliveries,
            "delivered": delivered,
            "queued": client.queued.0,
            "inflight": client.inflight,
            "lost": losses(&client.ledger, LedgerSide::Out),
        },
    })
}

/// Reasons that occurred, with their numbers.
pub(crate) fn losses(ledger: &Ledger, side: LedgerSide) -> Map<String, Value> {
    let counted = Loss::ALL.into_iter().filter(|loss| loss.side() == side && ledger.lost(*loss) > 0);
    counted.map(|loss| (loss.name().to_owned(), json!(ledger.lost(loss)))).collect()
}

pub(crate) fn closed(state: &AdminState, closed: &Closed) -> Value {
    let parting = &closed.parting;
    json!({
        "client_id": &*closed.client_id,
        "user": parting.identity.user.as_deref(),
        "address": &*parting.identity.peer,
        "listener": parting.identity.listener,
        "protocol": parting.protocol,
        "state": "closed",
        "connected_since": rfc3339(state.wall(parting.since)),
        "closed_at": rfc3339(state.wall(parting.at)),
        "reason": &*closed.why,
        "received": parting.ledger.received,
        "delivered": parting.ledger.delivered,
        "refused": parting.ledger.refused(),
        "lost_in": lost_in(&parting.ledger),
        "lost_out": parting.ledger.lost_on(LedgerSide::Out),
        "drops": drops(&parting.ledger),
        "bytes_received": parting.ledger.bytes_received,
        "bytes_sent": parting.ledger.bytes_sent,
    })
}

/// Messages a second that a receiver takes which takes too little; none of one that takes all there is.
fn reads_rate(client: &ClientReport) -> Option<f64> {
    let receiver = &client.receiver;
    (client.link.is_some() && (receiver.is_slow || receiver.is_losing)).then_some(receiver.takes)
}

/// Messages that it sent and that were lost: nobody was told.
fn lost_in(ledger: &Ledger) -> u64 {
    ledger.lost_on(LedgerSide::In) - ledger.refused()
}

/// Messages of this client that were lost, on whichever side. What was refused is not lost: its sender has it.
pub(crate) fn drops(ledger: &Ledger) -> u64 {
    lost_in(ledger) + ledger.lost_on(LedgerSide::Out)
}

/// Messages per second that are usual for it, whatever an operator has set: by its claim, else by its rhythm where no limit
/// stands in for that.
fn usual_rate(state: &AdminState, client: &ClientReport) -> Option<f64> {
    let by_claim = client.publisher.and_then(|publisher| publisher.usual);
    by_claim.or_else(|| learned_rate(client).filter(|_| limit_of(state, client).is_none()))
}

/// What an operator has set for it or its user, in messages a second.
pub(crate) fn limit_of(state: &AdminState, client: &ClientReport) -> Option<(Whom, f64)> {
    let user = client.identity.user.clone().map(Whom::User);
    [Some(Whom::Client(std::sync::Arc::clone(&client.client_id))), user].into_iter().flatten().find_map(|whom| {
        let rate = state.handle.rate_of(OperatorSetting::Limit, &whom)?;
        Some((whom, 1.0 / rate.interval().as_secs_f64().max(1e-9)))
    })
}

/// Messages per second that it is held to: what is usual for it, or what an operator has set in its place.
pub(crate) fn learned_rate(client: &ClientReport) -> Option<f64> {
    let interval = client.publisher.as_ref()?.learned_interval?;
    Some(1.0 / interval.as_secs_f64().max(1e-9))
}

/// Three places are more than a rate is worth.
pub(crate) fn rounded(rate: f64) -> f64 {
    (rate * 1000.0).round() / 1000.0
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// RFC 3339 in UTC, to the second.
pub(crate) fn rfc3339(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the odd day is the last; eras have 400 years, that is 146 097 days.
    let from_march = days + 719_468;
    let (era, day_of_era) = (from_march / 146_097, from_march % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
