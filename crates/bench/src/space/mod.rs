//! What the smart space does in a second. The service and its doors run in this process, on ports of their own; clients
//! reach them through sockets where a case says so, and through the service's own handle where only the space is meant.

mod apart;
mod beside;
mod chatty;
mod combine;
mod delegate;
mod host;
mod insert;
mod notify;
pub(crate) mod socket;
mod writers;

use anyhow::Result;
use serde_json::Value;

use super::measure::RunSettings;

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpaceCase {
    /// Single-triple inserts over SSAP, each confirmed, pipelined on so many connections.
    Insert { connections: usize, is_durable: bool },
    /// Single-triple SPARQL updates, parsed and confirmed, without a socket.
    Update { is_durable: bool },
    /// One change at a time, told to so many subscribers on so many WebSockets.
    Notify { subscribers: usize, sockets: usize },
    /// Changes beside more and more subscriptions that do not match.
    Beside,
    /// Four writers and a hundred subscribers: who missed what.
    Writers,
    /// The same question ten thousand times in a second, while the data change.
    Same,
    /// One chatty customer beside a hundred services.
    Chatty,
    /// A client beside a large load, and beside an update whose `WHERE` takes long.
    Apart,
    /// A client beside more subscribers than can be told, who may be asked to check by themselves.
    Delegate { is_overload: bool },
    /// Questions that are alike, and changes that do not concern most of them.
    Combine,
}

/// A figure by its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NamedFigure {
    pub(super) name: &'static str,
    pub(super) value: f64,
}

/// What a case brought.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SpaceFigures(pub(super) Vec<NamedFigure>);

/// Runs a case.
pub(super) fn run(scenario: SpaceCase, setting: &RunSettings) -> Result<SpaceFigures> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let figures = match scenario {
        SpaceCase::Insert { connections, is_durable } => insert::run(connections, is_durable, setting)?,
        SpaceCase::Update { is_durable } => runtime.block_on(beside::updates(is_durable, setting))?,
        SpaceCase::Notify { subscribers, sockets } => {
            let (subscribers, sockets) = (setting.scaled(subscribers), setting.scaled(sockets));
            runtime.block_on(notify::run(subscribers, sockets, setting))?
        }
        SpaceCase::Beside => runtime.block_on(beside::run(setting))?,
        SpaceCase::Writers => runtime.block_on(writers::run(setting))?,
        SpaceCase::Same => runtime.block_on(beside::same(setting))?,
        SpaceCase::Chatty => runtime.block_on(chatty::run(setting))?,
        SpaceCase::Apart => runtime.block_on(apart::run(setting))?,
        SpaceCase::Delegate { is_overload } => runtime.block_on(delegate::run(is_overload, setting))?,
        SpaceCase::Combine => runtime.block_on(combine::run(setting))?,
    };
    Ok(SpaceFigures(figures.into_iter().map(|(name, value)| NamedFigure { name, value }).collect()))
}

/// Figures as a case gives them.
type Named = Vec<(&'static str, f64)>;

impl SpaceFigures {
    /// The figure of this name.
    pub(super) fn find(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// The words of the table.
    pub(super) fn words(&self) -> String {
        let word = |figure: &NamedFigure| format!("{} {}", shown(figure.value), figure.name);
        self.0.iter().map(word).collect::<Vec<_>>().join(", ")
    }

    /// The figures as JSON.
    pub(super) fn json(&self) -> Value {
        let pairs = self.0.iter().map(|figure| (figure.name.replace([' ', '/'], "_"), figure.value.into()));
        Value::Object(pairs.collect())
    }
}

/// Large numbers whole, small ones with what matters of them.
pub(super) fn shown(value: f64) -> String {
    if value == value.trunc() || value >= 1000.0 { super::report::grouped(value) } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_name_and_shown() {
        let figure = |name, value| NamedFigure { name, value };
        let figures = SpaceFigures(vec![figure("inserts/s", 34_567.8), figure("p50 ms", 0.1234), figure("lost", 0.0)]);
        assert_eq!(figures.find("lost"), Some(0.0));
        assert_eq!(figures.find("other"), None);
        assert_eq!(figures.json()["p50_ms"], 0.1234);
        assert!(figures.words().ends_with("0.123 p50 ms, 0 lost"), "{}", figures.words());
    }
}
