//! What is simulated: clients, broker, host, links and updates. Every field has the value of EVAL §3 by default.

use tidegate_control::pacer::{DetectorRule, InitialRule, Parameter, Preset};

use super::own::Own;

/// A polling world. Times are in seconds, rates per second, shares in 0 ..= 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Polling {
    /// Measured from here on.
    pub warm_up: f64,
    /// The end.
    pub duration: f64,
    /// Who asks.
    pub clients: Clients,
    /// Who answers.
    pub broker: Broker,
    /// What the broker runs on.
    pub host: Host,
    /// What lies between.
    pub link: Link,
    /// What they ask for.
    pub updates: Updates,
}

/// How the clients behave.
#[expect(clippy::struct_excessive_bools, reason = "an experiment switches one thing at a time")]
#[derive(Clone, Debug, PartialEq)]
pub struct Clients {
    /// How many; see [`Polling::clients_count`].
    pub count: Count,
    /// The algorithm of most of them.
    pub algorithm: Algorithm,
    /// The share that has another one, and which.
    pub others: f64,
    /// Their algorithm.
    pub others_algorithm: Algorithm,
    /// t0: mean interval of the basic levels, first value of AST.
    pub interval: f64,
    /// Patience.
    pub request_timeout: f64,
    /// α of AST.
    pub alpha: f64,
    /// δ of AST.
    pub step: StepChoice,
    /// β of the back-off.
    pub beta: f64,
    /// g of the stretch.
    pub recovery: f64,
    /// j of the practical pacer.
    pub jitter: f64,
    /// The detector; none leaves the one of the preset.
    pub detector: Option<DetectorRule>,
    /// The first back-off; none leaves the one of the preset.
    pub initial: Option<InitialRule>,
    /// The congestion gate of the practical AST.
    pub gate: bool,
    /// Exposure normalisation of the practical AST.
    pub thinning: bool,
    /// While everybody has to wait longer, the mean of the practical AST is stretched.
    pub smoothing: bool,
    /// Whether hints are obeyed; none leaves it to the preset (the papers' do not).
    pub hints: Option<bool>,
    /// All ask at time zero, and somebody waits for the answer.
    pub together: bool,
    /// A client is done after its first answer: a burst.
    pub once: bool,
    /// Share of the promised slots that nobody comes for.
    pub no_show: f64,
    /// Other parameters of the pacer, as they are written.
    pub parameters: Vec<(Parameter, String)>,
}

/// How many clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Count {
    /// So many.
    Clients(u32),
    /// As many as make this multiple of the capacity at the nominal interval: X = m/(μ·t0).
    Load(f64),
}

/// δ of AST.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepChoice {
    /// So that the mean timeout is t0 with radio losses alone, as in EVAL §3.
    Matched,
    /// What ships: a tenth of the first interval; a constant of the papers' presets.
    Shipped,
    /// So many seconds.
    Fixed(f64),
}

/// An algorithm of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A real pacer, and nothing around it.
    Pacer(Preset),
    /// The session of the client library with its pacer, as it ships.
    Session,
    /// The same session with another pacer.
    SessionOf(Preset),
    /// One of the literature.
    Baseline(Baseline),
    /// One of your own.
    Own(Own),
}

impl Algorithm {
    /// Whether there is a session of the client library around its pacer.
    pub(super) const fn is_session(self) -> bool {
        matches!(self, Self::Session | Self::SessionOf(_))
    }
}

/// Algorithms of the literature that keep a fixed interval, and what they do about failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// Retry after U(0, min(cap, b·2^n)).
    FullJitter,
    /// Retry after half of that and a random half.
    EqualJitter,
    /// Retry after min(cap, U(b, 3·previous)).
    DecorrelatedJitter,
    /// Retry after b·2^n without any randomness.
    ExponentialBackOff,
    /// Ask less by the share of refusals in the last two minutes (SRE book, K = 2).
    AdaptiveThrottling,
    /// The rate is halved by a failure and grows by a twentieth of the nominal one with an answer.
    Aimd,
    /// AST by equation (3), and failures retried with full jitter.
    AstFullJitter,
    /// The rate follows the ratio of the usual latency to the last one (Netflix's Gradient2).
    Gradient,
    /// Retry after CoAP's advanced timeout: by measured round trips, with a variable back-off (CoCoA).
    Cocoa,
}

impl Baseline {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 9] = [
        ("full-jitter", Self::FullJitter),
        ("equal-jitter", Self::EqualJitter),
        ("decorrelated-jitter", Self::DecorrelatedJitter),
        ("exponential-backoff", Self::ExponentialBackOff),
        ("adaptive-throttling", Self::AdaptiveThrottling),
        ("aimd", Self::Aimd),
        ("ast-full-jitter", Self::AstFullJitter),
        ("gradient", Self::Gradient),
        ("cocoa", Self::Cocoa),
    ];
}

/// Rules of the literature for a broker: how others keep a server within its capacity. `rules` says where they are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerRule {
    /// Refusals at the head by the time waited (RFC 8289).
    Codel,
    /// The same for each flow, by turns (RFC 8290).
    FqCodel,
    /// Levels of users, moved by the mean wait.
    Dagor,
    /// Credits, as many as keep the wait at its target.
    Breakwater,
    /// A price that follows the wait.
    Rajomon,
    /// As many at a time as the latency allows.
    Gradient2,
}

impl BrokerRule {
    /// All of them, by the names of their presets.
    pub const ALL: [(&'static str, Self); 6] = [
        ("codel", Self::Codel),
        ("fq-codel", Self::FqCodel),
        ("dagor", Self::Dagor),
        ("breakwater", Self::Breakwater),
        ("rajomon", Self::Rajomon),
        ("gradient2", Self::Gradient2),
    ];
}

/// What the broker does with requests.
#[expect(clippy::struct_excessive_bools, reason = "an experiment switches one thing at a time")]
#[derive(Clone, Debug, PartialEq)]
pub struct Broker {
    /// The request queue of the smart space, as it ships, or the papers' pool.
    pub is_product: bool,
    /// In place of either: a rule of the literature.
    pub rule: Option<BrokerRule>,
    /// Seconds of estimated work that may wait. None for no bound in the pool, and for the shipped one in the product.
    pub queue_delay: Option<f64>,
    /// Pool: seconds of nominal work that may wait, as a number of items; none for no bound.
    pub queue_items: Option<f64>,
    /// Pool: refuse with a word, or drop without one.
    pub denies: bool,
    /// Pool: whether deadlines count.
    pub deadlines: bool,
    /// Pool: tell each client how long its request waited.
    pub reports_queue: bool,
    /// Pool: D_br of the papers, the response time that the broker announces as permitted; none for no word.
    pub permitted: Option<f64>,
    /// Product: what clients ask is equal where it can be, and equal queries are executed once.
    pub coalescing: bool,
    /// Announce with a notification within which time to fetch.
    pub spread: bool,
    /// Notifications are shed while more than this waits; infinite for never.
    pub shed_above: f64,
}

impl Broker {
    /// The brokers of EVAL §3, by name: what ships is `product`, the last six are [`BrokerRule`]s, and all others the papers'
    /// pool with one bound or another.
    pub const PRESETS: [&'static str; 14] = [
        "bloat-5s",
        "tail-500ms",
        "deny-500ms",
        "deny-100ms",
        "bloat-5s-deadline",
        "paper",
        "product",
        "unbounded",
        BrokerRule::ALL[0].0,
        BrokerRule::ALL[1].0,
        BrokerRule::ALL[2].0,
        BrokerRule::ALL[3].0,
        BrokerRule::ALL[4].0,
        BrokerRule::ALL[5].0,
    ];

    /// One of [`Broker::PRESETS`].
    pub fn preset(name: &str) -> Option<Self> {
        let items = |seconds, denies| Self { queue_items: Some(seconds), queue_delay: None, denies, ..Self::plain() };
        Some(match name {
            "bloat-5s" | "paper" => items(5.0, false),
            "tail-500ms" => items(0.5, false),
            "deny-500ms" => items(0.5, true),
            "deny-100ms" => Self { deadlines: true, ..Self::plain() },
            "bloat-5s-deadline" => Self { deadlines: true, ..items(5.0, false) },
            "product" => Self { is_product: true, queue_delay: None, spread: true, ..Self::plain() },
            "unbounded" => Self { queue_items: None, queue_delay: None, shed_above: f64::INFINITY, ..Self::plain() },
            _ => {
                let (_, rule) = BrokerRule::ALL.into_iter().find(|(known, _)| *known == name)?;
                Self { rule: Some(rule), ..Self::plain() }
            }
        })
    }

    fn plain() -> Self {
        Self {
            is_product: false,
            rule: None,
            queue_items: None,
            queue_delay: Some(0.1),
            denies: true,
            deadlines: false,
            reports_queue: true,
            permitted: None,
            coalescing: false,
            spread: false,
            shed_above: 0.2,
        }
    }
}

/// The machine below the broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// μ: requests per second that all servers together can serve.
    pub capacity: f64,
    /// Servers.
    pub servers: u32,
    /// The law of the service times.
    pub service: Service,
    /// What a denial costs, as a share of a service.
    pub denial_cost: f64,
    /// What a silent drop costs.
    pub drop_cost: f64,
    /// What a notification costs.
    pub notification_cost: f64,
    /// What one more recipient of a shared answer costs.
    pub answer_cost: f64,
    /// When the capacity is another.
    pub change: Change,
}

/// The law of the service times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// Exponential.
    Exponential,
    /// Always the same.
    Fixed,
    /// Log-normal with this coefficient of variation.
    LogNormal(f64),
}

/// When and how the capacity changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Never.
    None,
    /// Once: multiplied by `factor` for `length` seconds.
    Dip {
        /// When it begins.
        from: f64,
        /// How long it lasts.
        length: f64,
        /// What is left of the capacity.
        factor: f64,
    },
    /// Again and again: full for half of the period, then `factor` of it.
    Flap {
        /// A high and a low phase.
        period: f64,
        /// What is left in the low phase.
        factor: f64,
    },
}

/// The network.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// There and back.
    pub rtt: f64,
    /// Share of the notifications that are lost on the way.
    pub loss: f64,
    /// Mean length of a burst of losses (Gilbert and Elliott); 1 for independent ones.
    pub loss_burst: f64,
    /// Share of the requests that are lost on the way.
    pub request_loss: f64,
}

/// What changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Updates {
    /// Per client.
    pub rate: f64,
    /// σ of the logarithm of the clients' rates; 0 if all are equal.
    pub spread: f64,
    /// One item for all, changed in this period; none for an item each.
    pub slides: Option<f64>,
    /// Every lost notification counts (events), or only what none after it has repaired (state).
    pub events: bool,
}

impl Default for Polling {
    fn default() -> Self {
        Self {
            warm_up: 300.0,
            duration: 600.0,
            clients: Clients {
                count: Count::Load(1.5),
                algorithm: Algorithm::Pacer(Preset::Active),
                others: 0.0,
                others_algorithm: Algorithm::Pacer(Preset::Fixed),
                interval: 10.0,
                request_timeout: 2.0,
                alpha: 2.0,
                step: StepChoice::Matched,
                beta: 2.0,
                recovery: 0.02,
                jitter: 0.2,
                detector: None,
                initial: None,
                gate: true,
                thinning: true,
                smoothing: true,
                hints: None,
                together: false,
                once: false,
                no_show: 0.0,
                parameters: Vec::new(),
            },
            broker: Broker::plain(),
            host: Host {
                capacity: 200.0,
                servers: 1,
                service: Service::Exponential,
                denial_cost: 0.05,
                drop_cost: 0.02,
                notification_cost: 0.0,
                answer_cost: 0.02,
                change: Change::None,
            },
            link: Link { rtt: 0.02, loss: 0.2, loss_burst: 1.0, request_loss: 0.0 },
            updates: Updates { rate: 0.1, spread: 0.0, slides: None, events: true },
        }
    }
}
