//! What this node knows of itself, for whoever asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_admin::{ClusterReport, ClusterRole};
use tidegate_cluster_nats::{Carrier, Lag, News};
use tracing::{info, warn};

use super::why;
use crate::plan::cluster::ClusterPlan;
use crate::serve::CUT_OFF;

/// Shared by the thread that waits or serves and the doors that are asked.
#[derive(Debug)]
pub(crate) struct ClusterBoard {
    report: Mutex<ClusterReport>,
    address: String,
    /// Its role, and since when.
    since: Mutex<(ClusterRole, Instant)>,
    /// While this node carries the log.
    lag: Mutex<Option<Lag>>,
}

impl ClusterBoard {
    pub(crate) fn new(plan: &ClusterPlan) -> Arc<Self> {
        let report = ClusterReport {
            cluster: plan.name.to_string(),
            node: plan.node.to_string(),
            role: ClusterRole::Waiting,
            epoch: 0,
            owner: None,
            owner_address: None,
            lag: 0,
            takeovers: 0,
            fenced: 0,
            trouble: None,
            since_s: None,
            handover: None,
        };
        let since = Mutex::new((report.role, Instant::now()));
        Arc::new(Self { report: Mutex::new(report), address: plan.address.clone(), since, lag: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, ClusterReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report(&self) -> ClusterReport {
        let mut report = self.lock().clone();
        if let Some(lag) = &*self.lag.lock().unwrap_or_else(PoisonError::into_inner) {
            report.lag = lag.waiting();
            report.trouble = (!lag.holds()).then(|| CUT_OFF.to_owned());
        }
        report.since_s = Some(self.since().elapsed().as_secs());
        report
    }

    /// What was heard while this node stands by; what an operator has to know is logged, too.
    pub(crate) fn hear(&self, news: News) {
        let mut report = self.lock();
        match news {
            News::Unreachable(words) => {
                if report.trouble.as_ref() != Some(&words) {
                    warn!(event = "cluster_waits", "{words}; it is asked until it answers");
                }
                (report.role, report.trouble) = (ClusterRole::Waiting, Some(words));
            }
            News::StandsBy { owner, address, epoch } => {
                let where_it_is = address.as_deref().unwrap_or("an address that it does not say");
                info!(event = "cluster_standby", %owner, epoch, "node {owner} serves at {where_it_is}; this node stands by");
                (report.role, report.epoch, report.trouble) = (ClusterRole::Standby, epoch, None);
                (report.owner, report.owner_address) = (Some(owner.to_string()), address);
            }
            News::Follows { behind } => {
                report.lag = behind;
                if report.role == ClusterRole::Waiting && report.owner.is_some() {
                    (report.role, report.trouble) = (ClusterRole::Standby, None);
                }
            }
            News::AccessStays(words) => warn!(event = "access_stays", "{words}"),
            News::TakesOver { epoch } => {
                info!(event = "cluster_takeover", epoch, "the log is this node's; what is there is being read");
                (report.role, report.epoch, report.trouble) = (ClusterRole::TakingOver, epoch, None);
                (report.owner, report.owner_address) = (Some(report.node.clone()), Some(self.address.clone()));
            }
        }
        self.note_role(&report);
    }

    pub(crate) fn serves(&self, carrier: &Carrier) {
        let mut report = self.lock();
        (report.role, report.epoch, report.lag) = (ClusterRole::Owner, carrier.epoch(), 0);
        report.handover = Some(why::handover_words(carrier.handover()));
        report.takeovers += 1;
        self.note_role(&report);
        *self.lag.lock().unwrap_or_else(PoisonError::into_inner) = Some(carrier.lag());
    }

    /// From now on it is what the report says.
    fn note_role(&self, report: &ClusterReport) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.0 != report.role {
            *since = (report.role, Instant::now());
        }
    }

    fn since(&self) -> Instant {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    pub(crate) fn is_fenced(&self) {
        let mut report = self.lock();
        (report.role, report.owner, report.owner_address) = (ClusterRole::Waiting, None, None);
        report.fenced += 1;
        report.handover = None;
        self.note_role(&report);
        *self.lag.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
