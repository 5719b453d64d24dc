//! A SmartRoom: one presenter, 200 listeners, and slides that change. Each level of control in turn: what it does to the
//! broker, and what it does to the listeners.
//!
//! `cargo run --release -p tidegate-client --example smartroom`
//!
//! Everything is in this process: the broker's space on a free port of the loopback, the presenter over HTTP, and the
//! listeners over HTTP and WebSocket. The first row has notifications and no checks. All others have checks and no
//! notifications: the worst case of a network that loses every one of them. Each listener shall find a lost slide after
//! 500 ms on average: `fixed` and `random` ask every second for that, the adaptive levels find their interval themselves,
//! from what they lose.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_client::{AstStep, Error, Level, PacerConfig, PersistentQuery, Space, WatchCounts};
use tidegate_graph::SpaceLimits;
use tidegate_space::{BoundSockets, Everybody, Service, SpaceAddresses, SpaceListeners};

const LISTENERS: usize = 200;
const SLIDES: usize = 12;
const SLIDE_TIME: Duration = Duration::from_secs(2);
/// How long a lost slide may stay unseen, on average.
const FIND_AFTER: Duration = Duration::from_millis(500);
const SLIDE: &str = "SELECT ?slide { <urn:room> <urn:slide> ?slide }";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{LISTENERS} listeners, {SLIDES} slides of {SLIDE_TIME:?}; a lost slide is to be found after {FIND_AFTER:?}\n"
    );
    println!("{:<11}{:^34}{:^46}", "", "the broker", "the listeners");
    println!(
        "{:<11}{:>11}{:>10}{:>13}{:>12}{:>12}{:>10}{:>12}",
        "level", "checks/s", "refused", "told/s", "seen after", "slowest", "skipped", "old slide"
    );
    let mut refused = 0;
    for level in [Level::None, Level::Fixed, Level::Random, Level::Adaptive, Level::Active] {
        let room = Room::open()?;
        let show = present(&room, level).await?;
        show.print(level);
        refused += show.refused;
    }
    println!(
        "\nchecks/s, told/s: what listeners ask of the broker and what it tells by itself, each second. refused: checks that\n\
         it was too busy for.\n\
         seen after: from showing a slide to seeing it, mean of those that were seen. skipped: slides that were over\n\
         before a listener looked. old slide: the share of the time in which a listener shows one that is over.\n\
         `none` is cheapest while every notification arrives, and blind when one does not. `fixed` asks as often in a\n\
         room where nothing happens; `adaptive` and `active` ask less there. `random` asks as often as `fixed` and finds\n\
         later: a slide changes in a long pause more likely than in a short one."
    );
    if refused == 0 {
        println!(
            "Nobody was refused, so that `active` (AST + RBT) does what `adaptive` (AST) does: the back-off is for a broker\n\
             that is too busy."
        );
    }
    Ok(())
}

/// The broker's space.
struct Room {
    doors: SpaceListeners,
    /// It ends when this is dropped.
    _service: Service,
}

impl Room {
    fn open() -> std::io::Result<Self> {
        let service = Service::start(SpaceLimits::default())?;
        let http = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        let bound = BoundSockets::open(SpaceAddresses { http, ..SpaceAddresses::default() })?;
        let doors = SpaceListeners::start(bound, &service.handle(), Arc::new(Everybody))?;
        Ok(Self { doors, _service: service })
    }

    fn url(&self) -> String {
        self.doors.addresses().http.map(|at| format!("http://{at}")).unwrap_or_default()
    }
}

/// What one level did.
struct Show {
    /// Counts of all listeners.
    checks: u64,
    refused: u64,
    told: u64,
    time: Duration,
    /// Of each listener and slide: how long after it was shown it was seen.
    seen: Vec<Option<Duration>>,
}

impl Show {
    fn print(&self, level: Level) {
        let seen: Vec<Duration> = self.seen.iter().flatten().copied().collect();
        let mean = seen.iter().sum::<Duration>().as_secs_f64() / seen.len().max(1) as f64;
        let worst = seen.iter().max().map_or(0.0, Duration::as_secs_f64);
        let skipped = 100.0 * (self.seen.len() - seen.len()) as f64 / self.seen.len() as f64;
        // Until a slide is seen, and while it never is, the listener shows an older one.
        let old: f64 = self.seen.iter().map(|seen| seen.unwrap_or(SLIDE_TIME).min(SLIDE_TIME).as_secs_f64()).sum();
        let old = 100.0 * old / (SLIDE_TIME.as_secs_f64() * self.seen.len() as f64);
        let each_second = |number: u64| number as f64 / self.time.as_secs_f64();
        println!(
            "{:<11}{:>11.0}{:>10}{:>13.0}{:>9.0} ms{:>9.0} ms{skipped:>8.1} %{old:>10.1} %",
            level.name(),
            each_second(self.checks),
            self.refused,
            each_second(self.told),
            mean * 1e3,
            worst * 1e3
        );
    }
}

async fn present(room: &Room, level: Level) -> Result<Show, Error> {
    let presenter = Space::connect(&room.url()).await?;
    let began = Instant::now();
    let mut listeners = Vec::new();
    for _ in 0..LISTENERS {
        let space = Space::connect(&room.url()).await?;
        // Asking every 2·D finds what was lost after D.
        let mut pacer = PacerConfig { level, interval: FIND_AFTER * 2, ..PacerConfig::default() };
        pacer.ast.step = AstStep::DetectionDelay(FIND_AFTER);
        let query = space.persistent_query(SLIDE).pacer(pacer);
        let query = if level == Level::None { query } else { query.poll() };
        listeners.push(tokio::spawn(listen(query.open().await?, began)));
    }
    let start = Instant::now();
    let mut shown = Vec::new();
    for number in 0..=SLIDES {
        // The last one is the end of the show.
        let slide = if number < SLIDES { number.to_string() } else { "end".to_owned() };
        let show = format!(
            "DELETE WHERE {{ <urn:room> <urn:slide> ?old }}; INSERT DATA {{ <urn:room> <urn:slide> '{slide}' }}"
        );
        presenter.update(&show).await?;
        if number < SLIDES {
            shown.push(began.elapsed());
            tokio::time::sleep(SLIDE_TIME).await;
        }
    }
    let mut sum = Show { checks: 0, refused: 0, told: 0, time: start.elapsed(), seen: Vec::new() };
    for listener in listeners {
        let Ok((saw, counts)) = listener.await else { continue };
        sum.checks += counts.checks;
        sum.refused += counts.denied;
        sum.told += counts.notifications;
        sum.seen.extend(shown.iter().zip(saw).map(|(shown, saw)| Some(saw?.saturating_sub(*shown))));
    }
    Ok(sum)
}

/// When each slide was seen, and what it took.
async fn listen(mut query: PersistentQuery, began: Instant) -> ([Option<Duration>; SLIDES], WatchCounts) {
    let mut saw = [None; SLIDES];
    loop {
        let change = tokio::time::timeout(Duration::from_secs(20), query.next()).await;
        let Ok(Some(change)) = change else { break };
        let slides = change.added.iter().filter_map(|row| row.text("slide"));
        for slide in slides {
            if let Some(place) = slide.parse::<usize>().ok().and_then(|number| saw.get_mut(number)) {
                place.get_or_insert(began.elapsed());
            }
        }
        if change.added.iter().any(|row| row.text("slide") == Some("end")) {
            break;
        }
    }
    (saw, query.stats().await.map(|stats| stats.counts).unwrap_or_default())
}
