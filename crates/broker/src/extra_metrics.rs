//! Numbers of what runs beside the broker in the same process, so that `$SYS` and metrics show one picture.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use tidegate_dtls::DtlsStats;
use tidegate_face_amqp::AmqpStats;
use tidegate_face_coap::CoapStats;
use tidegate_face_http::HttpStats;
use tidegate_face_sn::SnStats;

use crate::handle::Handle;
use crate::inbox::lock;

/// One number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraMetric {
    /// What is counted: `space_requests`.
    pub family: &'static str,
    /// What that means, in a sentence.
    pub help: &'static str,
    /// Whether it only ever grows.
    pub is_counter: bool,
    /// Names and values that tell it from others of its family; each from a closed set.
    pub labels: Vec<(&'static str, &'static str)>,
    pub value: u64,
}

/// Says what the numbers are now. Called on threads of the broker: it must not wait.
pub type Source = Box<dyn Fn() -> Vec<ExtraMetric> + Send + Sync>;

/// The source, once there is one, and what the doors of CoAP, MQTT-SN, HTTP and AMQP have counted, by shard.
#[derive(Default)]
pub(crate) struct ExtraMetrics {
    source: Mutex<Option<Source>>,
    coap: Mutex<BTreeMap<(usize, &'static str), CoapStats>>,
    dtls: Mutex<BTreeMap<usize, DtlsStats>>,
    sn: Mutex<BTreeMap<usize, SnStats>>,
    http: Mutex<BTreeMap<usize, HttpStats>>,
    amqp: Mutex<BTreeMap<usize, AmqpStats>>,
}

impl fmt::Debug for ExtraMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Besides")
    }
}

impl ExtraMetrics {
    pub(crate) fn set(&self, source: Source) {
        *lock(&self.source) = Some(source);
    }

    pub(crate) fn all(&self) -> Vec<ExtraMetric> {
        let mut all = lock(&self.source).as_ref().map(|source| source()).unwrap_or_default();
        all.extend(coap_metrics(&lock(&self.coap)));
        all.extend(dtls_metrics(&lock(&self.dtls)));
        all.extend(sn_metrics(&lock(&self.sn)));
        all.extend(http_metrics(&lock(&self.http)));
        all.extend(amqp_metrics(&lock(&self.amqp)));
        all
    }

    /// What one of a shard's doors of CoAP has counted by now.
    pub(crate) fn show_coap(&self, door: (usize, &'static str), stats: CoapStats) {
        lock(&self.coap).insert(door, stats);
    }

    /// The same of DTLS.
    pub(crate) fn show_dtls(&self, shard: usize, stats: DtlsStats) {
        lock(&self.dtls).insert(shard, stats);
    }

    /// The same of MQTT-SN.
    pub(crate) fn show_sn(&self, shard: usize, stats: SnStats) {
        lock(&self.sn).insert(shard, stats);
    }

    /// The same of topics over HTTP.
    pub(crate) fn show_http(&self, shard: usize, stats: HttpStats) {
        lock(&self.http).insert(shard, stats);
    }

    /// The same of AMQP.
    pub(crate) fn show_amqp(&self, shard: usize, stats: AmqpStats) {
        lock(&self.amqp).insert(shard, stats);
    }
}

/// The numbers of all shards together; none without such a door.
fn coap_metrics(shards: &BTreeMap<(usize, &'static str), CoapStats>) -> Vec<ExtraMetric> {
    if shards.is_empty() {
        return Vec::new();
    }
    let sum = |field: fn(&CoapStats) -> u64| shards.values().map(field).sum();
    let events: [(&'static str, u64); 11] = [
        ("received", sum(|stats| stats.datagrams)),
        ("malformed", sum(|stats| stats.malformed)),
        ("stray", sum(|stats| stats.stray)),
        ("repeated", sum(|stats| stats.repeated)),
        ("challenged", sum(|stats| stats.challenged)),
        ("unanswered", sum(|stats| stats.unanswered)),
        ("refused", sum(|stats| stats.refused)),
        ("retransmitted", sum(|stats| stats.retransmitted)),
        ("given_up", sum(|stats| stats.given_up)),
        ("conflated", sum(|stats| stats.conflated)),
        ("dropped", sum(|stats| stats.dropped)),
    ];
    let mut metrics: Vec<ExtraMetric> = Vec::new();
    metrics.extend(events.map(|(event, value)| ExtraMetric {
        family: "coap_datagrams",
        help: "Datagrams of CoAP, and states of observers, by what became of them.",
        is_counter: true,
        labels: vec![("event", event)],
        value,
    }));
    let gauge = |family, help, value| ExtraMetric { family, help, is_counter: false, labels: Vec::new(), value };
    metrics.push(gauge("coap_peers", "Addresses that CoAP is spoken with now.", sum(|stats| stats.peers)));
    metrics.push(gauge("coap_observers", "Observations over CoAP that there are now.", sum(|stats| stats.observers)));
    metrics
}

/// The same of DTLS; none without such a door.
fn dtls_metrics(shards: &BTreeMap<usize, DtlsStats>) -> Vec<ExtraMetric> {
    if shards.is_empty() {
        return Vec::new();
    }
    let sum = |field: fn(&DtlsStats) -> u64| shards.values().map(field).sum();
    let events: [(&'static str, u64); 10] = [
        ("received", sum(|stats| stats.datagrams)),
        ("malformed", sum(|stats| stats.malformed)),
        ("stray", sum(|stats| stats.stray)),
        ("challenged", sum(|stats| stats.challenged)),
        ("crowded", sum(|stats| stats.crowded)),
        ("begun", sum(|stats| stats.begun)),
        ("opened", sum(|stats| stats.opened)),
        ("failed", sum(|stats| stats.failed)),
        ("not_trusted", sum(|stats| stats.not_trusted)),
        ("ended", sum(|stats| stats.ended)),
    ];
    let mut metrics: Vec<ExtraMetric> = Vec::new();
    metrics.extend(events.map(|(event, value)| ExtraMetric {
        family: "dtls_events",
        help: "Datagrams of DTLS, its handshakes and sessions, by what became of them.",
        is_counter: true,
        labels: vec![("event", event)],
        value,
    }));
    let gauge = |family, help, value| ExtraMetric { family, help, is_counter: false, labels: Vec::new(), value };
    metrics.push(gauge("dtls_sessions", "Sessions of DTLS that are open now.", sum(|stats| stats.sessions)));
    metrics.push(gauge("dtls_handshakes", "Handshakes of DTLS under way now.", sum(|stats| stats.handshakes)));
    metrics
}

/// The same of MQTT-SN; none without such a door.
fn sn_metrics(shards: &BTreeMap<usize, SnStats>) -> Vec<ExtraMetric> {
    if shards.is_empty() {
        return Vec::new();
    }
    let sum = |field: fn(&SnStats) -> u64| shards.values().map(field).sum();
    let events: [(&'static str, u64); 11] = [
        ("received", sum(|stats| stats.datagrams)),
        ("malformed", sum(|stats| stats.malformed)),
        ("stray", sum(|stats| stats.stray)),
        ("unknown", sum(|stats| stats.unknown)),
        ("repeated", sum(|stats| stats.repeated)),
        ("refused", sum(|stats| stats.refused)),
        ("retransmitted", sum(|stats| stats.retransmitted)),
        ("given_up", sum(|stats| stats.given_up)),
        ("dropped", sum(|stats| stats.dropped)),
        ("advertised", sum(|stats| stats.advertised)),
        ("searched", sum(|stats| stats.searched)),
    ];
    let mut metrics: Vec<ExtraMetric> = Vec::new();
    metrics.extend(events.map(|(event, value)| ExtraMetric {
        family: "sn_datagrams",
        help: "Datagrams of MQTT-SN, and messages to its clients, by what became of them.",
        is_counter: true,
        labels: vec![("event", event)],
        value,
    }));
    let gauge = |family, help, value| ExtraMetric { family, help, is_counter: false, labels: Vec::new(), value };
    metrics.push(gauge("sn_peers", "Addresses that MQTT-SN is spoken with now.", sum(|stats| stats.peers)));
    metrics.push(gauge("sn_asleep", "Clients of MQTT-SN that sleep now.", sum(|stats| stats.asleep)));
    metrics
}

/// The same of topics over HTTP; none without such a door.
fn http_metrics(shards: &BTreeMap<usize, HttpStats>) -> Vec<ExtraMetric> {
    if shards.is_empty() {
        return Vec::new();
    }
    let sum = |field: fn(&HttpStats) -> u64| shards.values().map(field).sum();
    let events: [(&'static str, u64); 7] = [
        ("requests", sum(|stats| stats.requests)),
        ("malformed", sum(|stats| stats.malformed)),
        ("streams", sum(|stats| stats.streams_begun)),
        ("resumed", sum(|stats| stats.resumed)),
        ("forgotten", sum(|stats| stats.forgotten)),
        ("replayed", sum(|stats| stats.replayed)),
        ("missed", sum(|stats| stats.missed)),
    ];
    let mut metrics: Vec<ExtraMetric> = Vec::new();
    metrics.extend(events.map(|(event, value)| ExtraMetric {
        family: "topics_http",
        help: "Topics over HTTP: requests, streams, and events that were sent again or that a reader was told are missing.",
        is_counter: true,
        labels: vec![("event", event)],
        value,
    }));
    let gauge = |family, help, value| ExtraMetric { family, help, is_counter: false, labels: Vec::new(), value };
    metrics.push(gauge("topics_streams", "Streams of events that somebody reads now.", sum(|stats| stats.streams)));
    let help = "Streams of events that wait for who comes back.";
    metrics.push(gauge("topics_streams_waiting", help, sum(|stats| stats.waiting)));
    metrics
}

/// The same of AMQP; none without such a door.
fn amqp_metrics(shards: &BTreeMap<usize, AmqpStats>) -> Vec<ExtraMetric> {
    if shards.is_empty() {
        return Vec::new();
    }
    let sum = |field: fn(&AmqpStats) -> u64| shards.values().map(field).sum();
    let events: [(&'static str, u64); 8] = [
        ("frames", sum(|stats| stats.frames)),
        ("faults", sum(|stats| stats.faults)),
        ("links_refused", sum(|stats| stats.links_refused)),
        ("rejected", sum(|stats| stats.rejected)),
        ("modified", sum(|stats| stats.modified)),
        ("declined", sum(|stats| stats.declined)),
        ("returned", sum(|stats| stats.returned)),
        ("given_up", sum(|stats| stats.given_up)),
    ];
    let mut metrics: Vec<ExtraMetric> = Vec::new();
    metrics.extend(events.map(|(event, value)| ExtraMetric {
        family: "amqp_events",
        help: "AMQP: frames, faults that ended something, links and messages that were not taken, messages that a receiver did not want, or gave back, and such as were lost with the link that they waited for.",
        is_counter: true,
        labels: vec![("event", event)],
        value,
    }));
    let gauge = |family, help, labels, value| ExtraMetric { family, help, is_counter: false, labels, value };
    let help = "Connections over AMQP that there are now.";
    metrics.push(gauge("amqp_connections", help, Vec::new(), sum(|stats| stats.connections)));
    let help = "Links over AMQP that there are now, by what the client does there.";
    let links = [("sender", sum(|stats| stats.senders)), ("receiver", sum(|stats| stats.receivers))];
    metrics.extend(links.map(|(role, value)| gauge("amqp_links", help, vec![("role", role)], value)));
    metrics
}

impl ExtraMetric {
    /// Below `$SYS/broker/`: the family's first word is a level, and so is each label's value.
    pub(crate) fn topic(&self) -> String {
        let mut topic = self.family.replacen('_', "/", 1);
        for (_, value) in &self.labels {
            topic.push('/');
            topic.push_str(value);
        }
        topic
    }
}

impl Handle {
    /// Shows these numbers with the broker's own, from now on.
    pub fn show_extra_metrics(&self, source: Source) {
        self.shared().extra_metrics.set(source);
    }

    /// The numbers of now.
    pub fn extra_metrics(&self) -> Vec<ExtraMetric> {
        self.shared().extra_metrics.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_topic_of_its_own() {
        let labels = vec![("class", "update"), ("outcome", "busy")];
        let metric = ExtraMetric { family: "space_requests", help: "", is_counter: true, labels, value: 1 };
        assert_eq!(metric.topic(), "space/requests/update/busy");
    }
}
