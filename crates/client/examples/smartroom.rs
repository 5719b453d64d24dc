//! A SmartRoom: one presenter, 200 listeners, and slides that change. Each level of control in turn; what it does to the
//! broker, and how soon listeners see a slide.
//!
//! `cargo run --release -p tidegate-client --example smartroom`
//!
//! Everything is in this process: the broker's space on a free port of the loopback, the presenter over HTTP, and the
//! listeners over HTTP and WebSocket. The listeners of the level `none` are notified; those of the other levels
//! have no notifications at all, the worst case of a network that loses them, and find slides by their own checks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_client::{Error, Level, PacerConfig, Space};
use tidegate_graph::SpaceLimits;
use tidegate_space::{Binds, Bound, Doors, Everybody, Service};

const LISTENERS: usize = 200;
const SLIDES: u32 = 10;
const SLIDE_TIME: Duration = Duration::from_secs(1);
const SLIDE: &str = "SELECT ?slide { <urn:room> <urn:slide> ?slide }";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{LISTENERS} listeners, {SLIDES} slides, one each {SLIDE_TIME:?}; checks begin at 1 s\n");
    println!("{:<14}{:>10}{:>14}{:>14}{:>16}", "level", "queries", "seen slides", "seen after", "slowest");
    for level in [Level::None, Level::Fixed, Level::Random, Level::Adaptive, Level::Active] {
        let room = Room::open()?;
        let (queries, seen) = present(&room, level).await?;
        let mean = seen.iter().sum::<Duration>() / u32::try_from(seen.len().max(1))?;
        let worst = seen.iter().max().copied().unwrap_or_default();
        let share = 100.0 * seen.len() as f64 / (LISTENERS as f64 * f64::from(SLIDES));
        println!(
            "{:<14}{queries:>10}{share:>12.1} %{:>11} ms{:>13} ms",
            level.name(),
            mean.as_millis(),
            worst.as_millis()
        );
    }
    println!("\n`none` has notifications; the others have only their checks.");
    Ok(())
}

/// The broker's space.
struct Room {
    doors: Doors,
    service: Service,
}

impl Room {
    fn open() -> std::io::Result<Self> {
        let service = Service::start(SpaceLimits::default())?;
        let http = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        let bound = Bound::open(Binds { http, ..Binds::default() })?;
        let doors = Doors::start(bound, &service.handle(), Arc::new(Everybody))?;
        Ok(Self { doors, service })
    }

    fn url(&self) -> String {
        self.doors.addresses().http.map(|at| format!("http://{at}")).unwrap_or_default()
    }

    /// Queries that the broker was asked.
    fn queries(&self) -> u64 {
        let counts = self.service.handle().counts();
        counts.iter().filter(|(class, ..)| class.contains("query")).map(|(_, _, number)| number).sum()
    }
}

/// The number of queries, and when each listener saw each slide.
async fn present(room: &Room, level: Level) -> Result<(u64, Vec<Duration>), Error> {
    let presenter = Space::connect(&room.url()).await?;
    let began = Instant::now();
    let mut listeners = Vec::new();
    for _ in 0..LISTENERS {
        let space = Space::connect(&room.url()).await?;
        let pacer = PacerConfig { level, interval: Duration::from_secs(1), ..PacerConfig::default() };
        let query = space.persistent_query(SLIDE).pacer(pacer);
        let query = if level == Level::None { query } else { query.poll() };
        let mut query = query.open().await?;
        listeners.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(change) = query.next().await {
                for row in &change.added {
                    // A slide says when it was shown.
                    let Some(shown) = row.text("slide").and_then(|text| text.parse().ok()) else { continue };
                    seen.push(began.elapsed().saturating_sub(Duration::from_micros(shown)));
                    if row.text("slide").is_some_and(|text| text == "0") {
                        return seen;
                    }
                }
            }
            seen
        }));
    }
    for _ in 0..SLIDES {
        let shown = began.elapsed().as_micros();
        let show = format!(
            "DELETE WHERE {{ <urn:room> <urn:slide> ?old }}; INSERT DATA {{ <urn:room> <urn:slide> '{shown}' }}"
        );
        presenter.update(&show).await?;
        tokio::time::sleep(SLIDE_TIME).await;
    }
    let queries = room.queries();
    let mut all = Vec::new();
    presenter
        .update("DELETE WHERE { <urn:room> <urn:slide> ?old }; INSERT DATA { <urn:room> <urn:slide> '0' }")
        .await?;
    for listener in listeners {
        // The end is a slide, too; who has not seen it in time is not waited for.
        if let Ok(Ok(mut seen)) = tokio::time::timeout(Duration::from_secs(20), listener).await {
            seen.pop();
            all.extend(seen);
        }
    }
    Ok((queries, all))
}
