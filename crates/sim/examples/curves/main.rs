//! Draws the curves of `docs/control/` into `docs/control/img/`, one SVG each.
//!
//! What is behaviour is measured on the real thing: pacers, rhythms, pools and books of `tidegate-control`, driven in
//! virtual time with fixed seeds. What is theory comes from its `analysis`. The same bytes on every run.
//!
//! ```text
//! cargo run -p tidegate-sim --example curves [NAME...]
//! ```

mod broker;
mod chance;
mod client;
mod episodes;
mod plot;
mod publisher;
mod service;
mod theory;

use std::error::Error;
use std::path::Path;

use plot::Figure;

/// Whatever keeps a figure from being drawn.
type Drawn<T> = Result<T, Box<dyn Error>>;

/// Makes one figure.
type Draw = fn() -> Drawn<Figure>;

/// The largest file that may be committed.
const BYTES_MAX: usize = 60_000;

fn main() -> Drawn<()> {
    let figures: [(&str, Draw); 22] = [
        ("ast", client::ast),
        ("ast-exposure", client::exposure),
        ("ast-rbt", client::ast_and_rbt),
        ("rbt", episodes::caps),
        ("stretch", episodes::stretch),
        ("detection", episodes::detection),
        ("initial-back-off", episodes::first_back_offs),
        ("control-levels", client::levels),
        ("hints", episodes::hints),
        ("constants", || Ok(theory::constants())),
        ("estimates", theory::estimates),
        ("overload-probability", || Ok(theory::overload())),
        ("overload-inverse", || Ok(theory::inverse())),
        ("rhythm-delay", publisher::delay),
        ("rhythm-flood", publisher::flood),
        ("claim-and-order", || Ok(service::flood())),
        ("schedule", || Ok(publisher::losses())),
        ("admission", broker::goodput),
        ("admission-delay", broker::delay),
        ("appointments", broker::slots),
        ("appointments-burst", broker::burst),
        ("advice", broker::advice),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control/img");
    std::fs::create_dir_all(&folder)?;
    // Those that are named, or all.
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for (name, figure) in
        figures.into_iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|it| it == name))
    {
        let svg = figure()?.svg();
        if svg.len() > BYTES_MAX {
            return Err(format!("{name}.svg has {} bytes: thin its points", svg.len()).into());
        }
        std::fs::write(folder.join(format!("{name}.svg")), &svg)?;
        println!("docs/control/img/{name}.svg  {} bytes", svg.len());
    }
    Ok(())
}
