//! What whoever looks at all clients has found: how many are in trouble, and which alarms are raised. The broker shows it in
//! `$SYS` and metrics, and decides nothing by it.

use crate::handle::Handle;
use crate::inbox::lock;

/// What was found at the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchReport {
    /// Publishers that are refused, not read, or have to wait.
    pub publishers_throttled: u64,
    /// Receivers that lose messages, and those that are slow and do not.
    pub clients_losing: u64,
    /// Receivers that take less than comes for them, and do not lose yet.
    pub clients_slow: u64,
    /// Alarms that are raised, by kind; kinds without any are there, too.
    pub alarms: Vec<(&'static str, u64)>,
    /// The same in JSON, for `$SYS/broker/alarms`.
    pub alarms_text: String,
}

/// The last one.
#[derive(Debug, Default)]
pub(crate) struct LastWatch(std::sync::Mutex<WatchReport>);

impl LastWatch {
    pub(crate) fn alarms_text(&self) -> String {
        lock(&self.0).alarms_text.clone()
    }
}

impl Handle {
    /// Shows this from now on.
    pub fn show_watch(&self, report: WatchReport) {
        *lock(&self.shared().watch.0) = report;
    }

    /// What was found last; nothing wrong before the first look.
    pub fn watch(&self) -> WatchReport {
        lock(&self.shared().watch.0).clone()
    }
}
