//! What a scenario of the zoo is: data. Who publishes what, who reads how, who is innocent, when the trouble is.
//!
//! Every scenario has three parts: a *lead* in which everybody does what is usual, the *trouble*, and what comes *after*
//! it, as usual again. Knows neither time nor sockets: `crate::zoo::world` runs scenarios in virtual time, `tidegate
//! bench harm` on sockets, with the same clients (`crate::zoo::crowd`).

/// Who a cohort is when on and off are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CohortSide {
    /// Sends what is usual for it, at most about twice of it, or less than its fair share: must not fare worse than with
    /// control off.
    Innocent,
    /// Takes what others need: all that is asked is what it gets.
    Guilty,
    /// Neither: more than a fair share of what is scarce, and usual. Somebody has to wait, and these may.
    Heavy,
}

/// Where clients come from: what a broker can know of them besides their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Each from a network of its own.
    Own,
    /// All from one address of this network.
    Network(u8),
    /// All are this user, each from a network of its own.
    User(&'static str),
}

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// MQTT 3.1.1.
    V311,
    /// MQTT 5.
    V5,
}

/// How messages are spread in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Style {
    /// Intervals that differ by a tenth.
    Even,
    /// As if by chance.
    Poisson,
    /// So many at once, and then a pause.
    Batches(u32),
}

/// What a publisher does during the trouble.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum During {
    /// What it always does.
    Same,
    /// So many messages a second instead.
    PerSecond(f64),
    /// More and more, up to so many a second at its end.
    RampTo(f64),
    /// At its beginning so many messages that had to wait elsewhere; besides what is usual.
    Backlog(u32),
    /// As much as the socket takes.
    Full,
    /// Nothing.
    Silent,
}

/// What a publisher makes of the broker's hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// Nothing. What is refused is gone.
    Ignores,
    /// Nothing, and it sends what was refused again at once.
    Insists,
    /// It waits as it is told, and sends what was refused again.
    Obeys,
}

/// Whether clients come and go during the trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Churn {
    /// They stay.
    Stay,
    /// After so many messages each comes back under another name.
    NewName(u32),
    /// All vanish at its beginning, and come back at once.
    Return,
    /// Each vanishes and comes back again and again, after so many milliseconds; what it leaves is its will.
    Wills(u32),
}

/// Publishers that are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cohort {
    /// Its name, and the second level of its topics.
    pub name: &'static str,
    /// Who it is in the comparison.
    pub side: CohortSide,
    pub count: u32,
    /// Where they come from.
    pub home: Home,
    /// The protocol.
    pub speaks: Speaks,
    pub qos: u8,
    /// Bytes of a payload.
    pub bytes: u32,
    /// Topics of each publisher.
    pub topics: u32,
    /// Whether its messages are retained.
    pub retain: bool,
    /// Messages a second of each, in the lead and after the trouble.
    pub per_s: f64,
    /// How they are spread.
    pub style: Style,
    /// What it does meanwhile.
    pub during: During,
    /// What it makes of hints.
    pub manners: Manners,
    /// Whether it comes and goes.
    pub churn: Churn,
}

/// A device as there are many: one message at a time, QoS 0, MQTT 3.1.1.
pub const DEVICE: Cohort = Cohort {
    name: "device",
    side: CohortSide::Innocent,
    count: 20,
    home: Home::Own,
    speaks: Speaks::V311,
    qos: 0,
    bytes: 64,
    topics: 1,
    retain: false,
    per_s: 5.0,
    style: Style::Even,
    during: During::Same,
    manners: Manners::Ignores,
    churn: Churn::Stay,
};

/// One publisher that breaks its rhythm.
pub const FLOODER: Cohort = Cohort {
    name: "flooder",
    side: CohortSide::Guilty,
    count: 1,
    speaks: Speaks::V5,
    qos: 1,
    during: During::PerSecond(2000.0),
    ..DEVICE
};

/// How a subscriber takes its messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReadPace {
    /// As they come.
    Fast,
    /// So many a second, each acknowledged when it is done.
    PerSecond(f64),
    /// The same during the trouble; else as they come.
    Slows(f64),
    /// As they come, but for so many pauses of so many seconds, the first at the beginning of the trouble.
    Pauses {
        /// Seconds of a pause.
        secs: f64,
        /// How often.
        times: u32,
    },
    /// It reads and never acknowledges.
    NoAcks,
    /// It does not read at all.
    Dead,
}

/// When subscribers are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attendance {
    /// All the time.
    Always,
    /// From the beginning of the trouble to its end.
    Trouble,
}

/// Subscribers that are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Readers {
    /// Their name.
    pub name: &'static str,
    pub count: u32,
    /// The cohorts whose messages they want; everything if none is named.
    pub of: &'static [&'static str],
    /// Whether each reads one publisher only: the first reader that of the first.
    pub is_paired: bool,
    /// Whether they share a subscription: each message goes to one of them.
    pub is_group: bool,
    /// Whether what arrives here is what is measured.
    pub counts: bool,
    /// The protocol.
    pub speaks: Speaks,
    /// Quality of service of the subscription.
    pub qos: u8,
    /// Messages that it takes at a time; as many as the broker wants if none is said.
    pub window: Option<u16>,
    /// How they take them.
    pub pace: ReadPace,
    /// When they are there.
    pub stay: Attendance,
}

/// A healthy application that wants everything.
pub const APP: Readers = Readers {
    name: "app",
    count: 1,
    of: &[],
    is_paired: false,
    is_group: false,
    counts: true,
    speaks: Speaks::V311,
    qos: 1,
    window: None,
    pace: ReadPace::Fast,
    stay: Attendance::Always,
};

/// The seven rules that overload control has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Calm is free: without standing congestion every client sees what it would see with control off.
    Calm = 1,
    /// Never worse than off.
    NotWorse = 2,
    /// Who is slowed uses too much of what is scarce; a slow, idle or dead receiver slows no publisher.
    Scarce = 3,
    /// One or many: k flooders together get no more than what is left.
    OneOrMany = 4,
    /// Obedience pays.
    Obedience = 5,
    /// Nobody is locked out; when the trigger is gone, refusals end within five seconds.
    NotLockedOut = 6,
    /// The rare come first, at every quality of service.
    Rare = 7,
}

/// One animal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZooScenario {
    pub name: &'static str,
    /// What happens, in a line.
    pub about: &'static str,
    /// The rule that it is there for. That of not being worse holds for all.
    pub rule: Rule,
    /// Threads of the broker.
    pub shards: u8,
    /// In virtual time: units of work a second that each of them can do. A message in is one unit, a copy an eighth.
    pub capacity: f64,
    /// In virtual time rates are so many times those on sockets, the subscribers' too; capacity is not.
    pub scale: f64,
    /// Whether everybody's usual rate is known before it begins: a fleet that has been there for long.
    pub is_known: bool,
    /// Who publishes.
    pub cohorts: &'static [Cohort],
    pub readers: &'static [Readers],
}

/// A broker that has more than enough for everybody.
pub const CALM: ZooScenario = ZooScenario {
    name: "",
    about: "",
    rule: Rule::NotWorse,
    shards: 1,
    capacity: 20_000.0,
    scale: 1.0,
    is_known: true,
    cohorts: &[],
    readers: &[APP],
};

impl ZooScenario {
    /// Copies that one message of this cohort has at subscribers that count; who reads one publisher only counts once.
    pub fn copies(&self, cohort: &Cohort) -> u32 {
        let wanting = self.readers.iter().filter(|readers| readers.counts && readers.wants(cohort));
        let (groups, others): (Vec<_>, Vec<_>) = wanting.partition(|readers| readers.is_group);
        let copies = |readers: &&Readers| if readers.is_paired { 1 } else { readers.count };
        // There is one group only, whatever its members are like.
        u32::from(!groups.is_empty()) + others.iter().map(copies).sum::<u32>()
    }
}

impl Readers {
    /// Whether they have subscribed to this cohort's topics.
    pub fn wants(&self, cohort: &Cohort) -> bool {
        self.of.is_empty() || self.of.contains(&cohort.name)
    }

    /// Their filters; `number` is that of a reader among those alike.
    pub fn filters(&self, number: u32) -> Vec<String> {
        let prefix = if self.is_group { "$share/group/" } else { "" };
        if self.of.is_empty() {
            return vec![format!("{prefix}#")];
        }
        let last = if self.is_paired { format!("{number}/#") } else { "#".to_owned() };
        self.of.iter().map(|cohort| format!("{prefix}zoo/{cohort}/{last}")).collect()
    }
}

/// Lengths of the three parts, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phases {
    /// Until the trouble begins.
    pub lead: f64,
    pub trouble: f64,
    /// As usual again.
    pub after: f64,
}

impl Phases {
    /// When the trouble ends.
    pub fn trouble_end(&self) -> f64 {
        self.lead + self.trouble
    }

    /// When all ends.
    pub fn end(&self) -> f64 {
        self.trouble_end() + self.after
    }
}

impl ZooScenario {
    /// Whether its clients have users.
    pub fn has_users(&self) -> bool {
        self.cohorts.iter().any(|cohort| matches!(cohort.home, Home::User(_)))
    }

    /// The user of its readers, where clients have users.
    pub fn reader_user(&self) -> Option<&'static str> {
        self.has_users().then_some("app")
    }
}
