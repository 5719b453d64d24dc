//! What the driver and an operator may ask a shard, between two turns. Changes nothing but what was taken.

use alloc::vec::Vec;

use foldhash::quality::FixedState;
use tidegate_control::Timestamp;
use tidegate_control::pressure::Level;
use tidegate_wire_mqtt::{Limits, ReasonCode};

use super::{ConnId, Shard};
use crate::activity::{ActivityFilter, LogsFull, RecordedActivities};
use crate::event::Imbalance;
use crate::event::Stats;
use crate::gate::{ClassReport, Memory, PublisherReport, Reading, Whom};
use crate::measures::Measures;
use crate::persist::SavedRhythm;
use crate::recording::{RecordedArrivals, RecordedGroups};
use crate::report::{ClientDetail, ClientReport};
use crate::retained::{RetainedReport, RetainedState};
use crate::sample::TopicsReport;
use crate::settings::{Rate, Settings};

impl Shard {
    /// The settings that hold.
    pub fn settings(&self) -> &Settings {
        &self.state.settings
    }

    /// What packets and topics of clients may be, by the settings.
    pub fn packet_limits(&self) -> &Limits {
        &self.state.limits
    }

    /// The memory that faces charge what they remember to.
    pub fn memory(&self) -> &Memory {
        &self.state.memory
    }

    /// How faces hash what clients choose.
    pub fn hasher(&self) -> FixedState {
        FixedState::with_seed(self.state.seed)
    }

    /// The time of day, in milliseconds since 1970.
    pub fn wall_millis(&self, now: Timestamp) -> u64 {
        self.state.links.wall().nanos(Some(now)) / 1_000_000
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        self.state.stats()
    }

    /// What was measured so far.
    pub fn measures(&self) -> &Measures {
        self.state.measures()
    }

    /// Whether every session's ledger balances, and all of them together are the shard's counters. Walks over every
    /// session: for tests and checkers.
    pub fn audit(&self) -> Result<(), Imbalance> {
        self.state.audit()
    }

    /// Timers that are set, those that mean nothing any more included.
    pub fn timers(&self) -> usize {
        self.state.timers()
    }

    /// As it was last told.
    pub fn level(&self) -> Level {
        self.state.level()
    }

    /// Bytes that are charged to this shard now.
    pub fn memory_used(&self) -> usize {
        self.state.memory_used()
    }

    /// How a connection stands that was read dry at `dry_at`, or waits since then.
    pub fn reading(&self, conn: ConnId, dry_at: Timestamp, now: Timestamp) -> Reading {
        self.state.reading(conn, dry_at, now)
    }

    /// How many packets of this connection are entitled now.
    pub fn entitled(&self, conn: ConnId, dry_at: Timestamp, now: Timestamp) -> u32 {
        self.state.entitled(conn, dry_at, now)
    }

    /// All limits, in order.
    pub fn limits(&self) -> Vec<(Whom, Rate)> {
        self.state.limits()
    }

    /// All grants, in order.
    pub fn grants(&self) -> Vec<(Whom, Rate)> {
        self.state.grants()
    }

    /// Some of the clients, from a place on, and the place to go on from. The work is bounded: whoever wants to see all
    /// asks again. Clients that come and go in between may be seen twice or not at all.
    pub fn clients(&self, from: u32, now: Timestamp) -> (Vec<ClientReport>, Option<u32>) {
        self.state.clients(from, now)
    }

    /// One client, with all that is known of it.
    pub fn client(&self, client_id: &str, now: Timestamp) -> Option<ClientDetail> {
        self.state.client(client_id, now)
    }

    /// What is known of a client as a publisher; none if it has no session here, or never published of late.
    pub fn publisher(&self, client_id: &str, now: Timestamp) -> Option<PublisherReport> {
        self.state.publisher(client_id, now)
    }

    /// The class of a client's messages; none if it has no session here.
    pub fn class_of(&self, client_id: &str) -> Option<ClassReport> {
        self.state.class_of(client_id)
    }

    /// Some of the retained messages that match a filter, from a place on (none: the first), and the place to go on from.
    /// The work is bounded. The filter should be one that a client could subscribe to; others match nothing.
    pub fn retained(
        &self,
        filter: &str,
        from: Option<Vec<u8>>,
        now: Timestamp,
    ) -> (Vec<RetainedReport>, Option<Vec<u8>>) {
        self.state.retained(filter, from, now)
    }

    /// The retained message of a topic, as this client may read it: none if there is none. The rules are those of a
    /// subscription to it.
    pub fn read_retained(
        &mut self,
        conn: ConnId,
        topic: &str,
        now: Timestamp,
    ) -> Result<Option<RetainedState>, ReasonCode> {
        self.state.read_retained(conn, topic, now)
    }

    /// Whether a topic has a retained message, for a client that may read it. One that may not is no event: it did not ask.
    pub fn has_retained(&mut self, conn: ConnId, topic: &str, now: Timestamp) -> Result<bool, ReasonCode> {
        self.state.has_retained(conn, topic, now)
    }

    /// What was published to of late.
    pub fn topics(&self, now: Timestamp) -> TopicsReport {
        self.state.topics(now)
    }

    /// Takes what was written down, and goes on writing for some seconds. The seed changes the numbers of publishers and
    /// topics; another than before begins anew, with these groups of clients.
    pub fn take_arrivals(&mut self, seed: u64, groups: &RecordedGroups, now: Timestamp) -> RecordedArrivals {
        self.state.take_arrivals(seed, groups, now)
    }

    /// Takes what was written down for the log of this key, and goes on writing for some seconds. A key that is new begins
    /// one, of what this filter says; there are few at the same time.
    pub fn take_activities(
        &mut self,
        key: u64,
        filter: &ActivityFilter,
        now: Timestamp,
    ) -> Result<RecordedActivities, LogsFull> {
        self.state.take_activities(key, filter, now)
    }

    /// Rhythms of publishers that are connected and published at `since` or later, from the place `from` on, looking at
    /// `places_max` of them; and where to go on, if there are more.
    pub fn rhythms(
        &self,
        from: u32,
        places_max: u32,
        since: Timestamp,
        now: Timestamp,
    ) -> (Vec<SavedRhythm>, Option<u32>) {
        self.state.rhythms(from, places_max, since, now)
    }

    /// Those of publishers that have left since this was last asked.
    pub fn take_left_rhythms(&mut self) -> Vec<SavedRhythm> {
        self.state.take_left_rhythms()
    }
}
