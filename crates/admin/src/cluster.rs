//! `/api/v1/cluster`: this node of a cluster, as its operator sees it, and its numbers. A node that stands by says the same at a
//! smaller door, which is not this crate's.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Value, json};

use crate::exposition::MetricsPage;
use crate::problem::{Answered, json_of};
use crate::state::AdminState;

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterRole {
    /// It waits for the engine.
    Waiting,
    /// Another node serves; this one follows.
    Standby,
    /// The log is this node's; what is there is being read.
    TakingOver,
    /// It serves.
    Owner,
}

impl ClusterRole {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Standby => "standby",
            Self::TakingOver => "taking over",
            Self::Owner => "owner",
        }
    }
}

/// A node, as it knows itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterReport {
    /// The cluster.
    pub cluster: String,
    /// The node.
    pub node: String,
    /// What it does.
    pub role: ClusterRole,
    /// The epoch that it carries, or has seen last; 0 if none.
    pub epoch: u64,
    /// Who carries the log, if that is known.
    pub owner: Option<String>,
    /// Where clients find that one.
    pub owner_address: Option<String>,
    /// What is not kept elsewhere yet (an owner), or not copied here yet (others): messages of the engine's stream.
    pub lag: u64,
    /// How often this process has taken the log over.
    pub takeovers: u64,
    /// How often another has taken it from this process.
    pub fenced: u64,
    /// What is wrong, in words.
    pub trouble: Option<String>,
    /// How long it has had its role.
    pub since_s: Option<u64>,
    /// Why this node has the log, in words, if it has.
    pub handover: Option<String>,
}

impl ClusterReport {
    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "cluster": self.cluster,
            "node": self.node,
            "role": self.role.word(),
            "epoch": self.epoch,
            "owner": self.owner,
            "owner_address": self.owner_address,
            "lag": self.lag,
            "takeovers": self.takeovers,
            "fenced": self.fenced,
            "trouble": self.trouble,
            "since_s": self.since_s,
            "handover": self.handover,
        })
    }

    /// The numbers alone, as OpenMetrics text: for a node that has no broker at the moment.
    pub fn exposition(&self) -> String {
        let mut page = MetricsPage::default();
        metrics(&mut page, self);
        page.text()
    }
}

pub(crate) async fn show(State(state): State<Arc<AdminState>>) -> Answered {
    Ok(json_of(&json!({ "cluster": state.process.cluster().map(|report| report.json()) })))
}

pub(crate) fn metrics(page: &mut MetricsPage, report: &ClusterReport) {
    use crate::exposition::MetricKind::{Counter, Gauge};
    let is_owner = u64::from(report.role == ClusterRole::Owner);
    let is_up = u64::from(report.role != ClusterRole::Waiting && report.trouble.is_none());
    for (name, kind, help, value) in [
        ("cluster_is_owner", Gauge, "1 while this node has the cluster's log, and serves.", is_owner),
        ("cluster_engine_up", Gauge, "0 while the cluster's engine does not answer.", is_up),
        ("cluster_epoch", Gauge, "The epoch that this node carries, or has seen last.", report.epoch),
        (
            "cluster_lag",
            Gauge,
            "Messages that the engine does not keep yet, or that are not copied here yet.",
            report.lag,
        ),
        ("cluster_takeovers", Counter, "Times that this process has taken the log over.", report.takeovers),
        ("cluster_fenced", Counter, "Times that another node has taken the log from this process.", report.fenced),
    ] {
        page.family(name, kind, help).put([], value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_stands_by_says_so_in_words_and_numbers() {
        let report = ClusterReport {
            cluster: "plant".into(),
            node: "b".into(),
            role: ClusterRole::Standby,
            epoch: 3,
            owner: Some("a".into()),
            owner_address: Some("a.example:1883".into()),
            lag: 2,
            takeovers: 0,
            fenced: 1,
            trouble: None,
            since_s: Some(7),
            handover: None,
        };
        assert_eq!((&report.json()["role"], &report.json()["since_s"]), (&json!("standby"), &json!(7)));
        let text = report.exposition();
        assert!(
            text.contains("tidegate_cluster_is_owner 0\n") && text.contains("tidegate_cluster_fenced_total 1\n"),
            "{text}"
        );
        assert!(text.contains("tidegate_cluster_engine_up 1\n"), "{text}");
        let cut_off = ClusterReport { role: ClusterRole::Owner, trouble: Some("no answer".into()), ..report };
        let text = cut_off.exposition();
        assert!(
            text.contains("tidegate_cluster_engine_up 0\n") && text.contains("tidegate_cluster_is_owner 1\n"),
            "{text}"
        );
    }
}
