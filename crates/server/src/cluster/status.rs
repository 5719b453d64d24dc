//! `tidegate cluster status`: a cluster as its engine knows it, in words that say what to do. What is said is decided without a socket.

use std::fmt::Write as _;
use std::time::Duration;

use tidegate_cluster::NodeName;
use tidegate_cluster::limits::LEASE;
use tidegate_cluster_nats::{ClusterView, NodeView};

use crate::plan::cluster::ClusterPlan;

/// Beyond that, a node is thought of as gone for good.
const LONG_GONE: Duration = Duration::from_secs(300);

/// What a node is to who looks from outside.
pub(super) fn role(view: &ClusterView, node: &NodeView) -> &'static str {
    let is_owner = view.owner.as_ref().is_some_and(|(owner, epoch)| *owner == node.node && *epoch == node.lease.epoch);
    match (node.lease.has_left, is_alive(node), is_owner) {
        (true, ..) => "left",
        (false, false, _) => "silent",
        (false, true, true) => "owner",
        (false, true, false) if node.lease.epoch > 0 => "fenced",
        (false, true, false) => "standby",
    }
}

/// Three of its signs of life are missing, with a look's time to spare; clocks that are apart count for it.
pub(super) fn is_alive(node: &NodeView) -> bool {
    !node.lease.has_left && node.age.is_none_or(|age| age < LEASE + Duration::from_secs(1))
}

/// Whether a node is there: it may not be taken out.
pub fn is_here(view: &ClusterView, node: &NodeName) -> bool {
    view.nodes.iter().any(|known| known.node == *node && is_alive(known))
}

/// Whether somebody has to do something.
pub fn is_well(view: &ClusterView) -> bool {
    advice(view).is_empty()
}

/// The table, and what to do.
pub fn text(view: &ClusterView, plan: &ClusterPlan) -> String {
    let mut text = String::new();
    let epoch = view.owner.as_ref().map_or(0, |(_, epoch)| *epoch);
    let copies = view.copies.iter().filter(|copy| copy.is_current).count();
    let of_copies = if view.copies.is_empty() {
        "1 copy".to_owned()
    } else {
        format!("{copies} of {} copies current", plan.replicas)
    };
    let of_space = view.space_messages.map(|count| format!(" ({count} of the smart space)")).unwrap_or_default();
    let _ = writeln!(
        text,
        "cluster {}  epoch {epoch}  log {} messages{of_space}, {} KiB, {of_copies}",
        plan.name,
        view.messages,
        view.bytes / 1024
    );
    let _ = writeln!(text, "{:<16} {:<8} {:>6} {:>10}  ADDRESS", "NODE", "ROLE", "EPOCH", "SAID");
    for node in &view.nodes {
        let age = node.age.map_or_else(|| "?".to_owned(), |age| format!("{:.1} s ago", age.as_secs_f64()));
        let epoch = if node.lease.epoch > 0 { node.lease.epoch.to_string() } else { "-".to_owned() };
        let _ = writeln!(
            text,
            "{:<16} {:<8} {epoch:>6} {age:>10}  {}",
            node.node.as_str(),
            role(view, node),
            node.lease.address
        );
    }
    for words in advice(view) {
        let _ = writeln!(text, "! {words}");
    }
    text
}

/// For programs.
pub fn json(view: &ClusterView, plan: &ClusterPlan) -> serde_json::Value {
    let node = |node: &NodeView| {
        serde_json::json!({
            "node": node.node.as_str(),
            "role": role(view, node),
            "epoch": node.lease.epoch,
            "age_s": node.age.map(|age| age.as_secs_f64()),
            "address": node.lease.address,
        })
    };
    let copy = |copy: &tidegate_cluster_nats::CopyView| serde_json::json!({ "server": copy.server, "is_leader": copy.is_leader, "is_current": copy.is_current });
    serde_json::json!({
        "cluster": plan.name.as_str(),
        "owner": view.owner.as_ref().map(|(owner, _)| owner.as_str()),
        "epoch": view.owner.as_ref().map(|(_, epoch)| epoch),
        "nodes": view.nodes.iter().map(node).collect::<Vec<_>>(),
        "copies": view.copies.iter().map(copy).collect::<Vec<_>>(),
        "messages": view.messages,
        "space_messages": view.space_messages,
        "bytes": view.bytes,
        "advice": advice(view),
    })
}

/// What is wrong, with what to do.
pub(super) fn advice(view: &ClusterView) -> Vec<String> {
    let mut advice = Vec::new();
    let with = |wanted: &str| view.nodes.iter().filter(|node| role(view, node) == wanted).collect::<Vec<_>>();
    let (owners, standbys) = (with("owner"), with("standby"));
    if owners.is_empty() {
        advice.push(match (standbys.is_empty(), &view.owner) {
            (true, Some((owner, _))) => {
                format!("nobody serves: start a node, {owner} first if its machine is there (it served last)")
            }
            (true, None) => "nobody serves: start a node".to_owned(),
            (false, _) => {
                "nobody serves yet: a node that stands by takes over within 15 s; if not, see its log".to_owned()
            }
        });
    } else if standbys.is_empty() {
        advice.push("no node stands by: if the owner dies, nobody carries on; start another".to_owned());
    }
    for node in with("silent") {
        let name = &node.node;
        advice.push(match node.age {
            Some(age) if age > LONG_GONE => format!(
                "{name} has said nothing for {} min: start it, or take it out with \"tidegate cluster leave --node {name}\"",
                age.as_secs() / 60
            ),
            _ => format!("{name} says nothing: is its process there, and does it reach the engine?"),
        });
    }
    for node in with("fenced") {
        advice.push(format!(
            "{} was asleep or cut off, and another serves: it stands by as soon as it notices",
            node.node
        ));
    }
    for node in view.nodes.iter().filter(|node| node.age.is_none()) {
        advice.push(format!("the clocks of this machine and of {}'s engine are apart: ages are not known", node.node));
    }
    if !view.copies.is_empty() {
        for copy in view.copies.iter().filter(|copy| !copy.is_current) {
            advice.push(format!("the engine's server {} lacks a part of the log, or is down", copy.server));
        }
    }
    advice
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::plan::cluster::EnginePlan;
    use tidegate_cluster::Lease;
    use tidegate_cluster_nats::CopyView;

    pub(in crate::cluster) fn plan() -> ClusterPlan {
        ClusterPlan {
            name: "plant".parse().unwrap(),
            node: "a".parse().unwrap(),
            engine: EnginePlan::At("nats://x:4222".to_owned()),
            user: None,
            ca: None,
            replicas: 3,
            address: String::new(),
            store: "store".into(),
            space: "space".into(),
            access: Vec::new(),
        }
    }

    pub(in crate::cluster) fn node(name: &str, epoch: u64, age: Option<u64>, has_left: bool) -> NodeView {
        let lease = Lease { incarnation: 1, epoch, has_left, address: format!("{name}.example:1883") };
        NodeView { node: name.parse().unwrap(), lease, age: age.map(Duration::from_secs) }
    }

    pub(in crate::cluster) fn view(nodes: Vec<NodeView>) -> ClusterView {
        let copies = ["plant-a", "plant-b", "plant-c"];
        let copy = |server: &&str| CopyView {
            server: (*server).to_owned(),
            is_leader: *server == "plant-a",
            is_current: true,
            lag: 0,
            silent_for: None,
        };
        let copies = copies.iter().map(copy).collect();
        ClusterView {
            owner: Some(("a".parse().unwrap(), 4)),
            nodes,
            messages: 7,
            bytes: 4096,
            space_messages: Some(3),
            copies,
            handovers: Vec::new(),
        }
    }

    #[test]
    fn a_cluster_that_is_well_needs_no_advice() {
        let view = view(vec![node("a", 4, Some(1), false), node("b", 0, Some(2), false), node("c", 0, Some(0), false)]);
        assert!(is_well(&view));
        let text = text(&view, &plan());
        assert!(
            text.starts_with(
                "cluster plant  epoch 4  log 7 messages (3 of the smart space), 4 KiB, 3 of 3 copies current\n"
            ),
            "{text}"
        );
        assert!(text.contains("a                owner") && text.contains("b                standby"), "{text}");
    }

    #[test]
    fn what_is_wrong_comes_with_what_to_do() {
        let dead = view(vec![node("a", 4, Some(20), false), node("b", 0, Some(2), false)]);
        let words = advice(&dead);
        assert!(words[0].contains("takes over within 15 s") && words[1].starts_with("a says nothing"), "{words:?}");
        let alone =
            view(vec![node("a", 4, Some(1), false), node("b", 0, Some(900), false), node("c", 0, Some(1), true)]);
        let words = advice(&alone);
        assert!(words[0].starts_with("no node stands by"), "{words:?}");
        assert!(words[1].contains("15 min") && words[1].contains("tidegate cluster leave --node b"), "{words:?}");
        let asleep = view(vec![node("a", 4, Some(1), false), node("b", 3, Some(1), false), node("c", 0, None, false)]);
        let words = advice(&asleep);
        assert!(words[0].starts_with("b was asleep") && words[1].contains("clocks"), "{words:?}");
        let nobody = view(vec![node("a", 4, Some(1), true)]);
        assert!(advice(&nobody)[0].contains("a first if its machine is there"));
    }
}
