//! The section `[cluster]`: what this node is, where the engine is that keeps its log, and what does not go together with it.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_cluster::limits::ADDRESS_BYTES_MAX;
use tidegate_cluster::{ACCESS_FILES, ClusterName, NodeName};
use tidegate_store::Durability;

use super::{guard, space_dir, store_dir, unreadable, usual_password_file};
use crate::config::cluster::{ClusterLabel, EngineWord, NodeLabel};
use crate::config::keys::{KEYS, Options};
use crate::config::setting::WholeNumber;
use crate::config::{ConfigProblem, Loaded, Origin, Problems};
use crate::tokens::revoked_file;

/// Copies that a cluster of three or more has, if nobody says otherwise.
const USUAL_REPLICAS: usize = 3;

/// A node, as its configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPlan {
    pub name: ClusterName,
    pub node: NodeName,
    pub engine: EnginePlan,
    /// Name and password of whom the engine lets in.
    pub user: Option<EngineCredentials>,
    pub ca: Option<PathBuf>,
    pub replicas: usize,
    /// Where clients find this node.
    pub address: String,
    /// The folder of the store.
    pub store: PathBuf,
    /// The folder of the smart space.
    pub space: PathBuf,
    /// Users and rules, by their names in the lineage: taken from the node that served before.
    pub access: Vec<(&'static str, PathBuf)>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct EngineCredentials {
    pub name: String,
    pub password: String,
}

impl std::fmt::Debug for EngineCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineCredentials").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnginePlan {
    Managed(ManagedEngine),
    /// Addresses with commas between.
    At(String),
}

/// A `nats-server` that this process starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedEngine {
    pub program: String,
    /// Where this process finds it.
    pub listen: SocketAddr,
    /// Where the others' engines find it.
    pub routes: SocketAddr,
    pub peers: Vec<String>,
    /// Certificate and key of its routes.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Where it keeps its part.
    pub folder: PathBuf,
}

impl ClusterPlan {
    /// Whether another plan is of the same node and folders; which files say who may come in changes while it runs.
    pub fn is_same_node(&self, other: &Self) -> bool {
        Self { access: other.access.clone(), ..self.clone() } == *other
    }

    /// What a managed engine's server is called.
    pub fn server_name(&self) -> String {
        format!("{}-{}", self.name, self.node)
    }

    /// The addresses of the engine's servers, for clients of it.
    pub fn servers(&self) -> String {
        match &self.engine {
            EnginePlan::Managed(engine) => format!("nats://{}", engine.listen),
            EnginePlan::At(servers) => servers.clone(),
        }
    }
}

/// What the section comes to; none if this broker is alone.
pub fn plan(loaded: &Loaded) -> Result<Option<ClusterPlan>, Problems> {
    let section = &loaded.options.cluster;
    let mut problems = Vec::new();
    let Some(ClusterLabel(name)) = section.name.clone().value() else {
        // A file that has every setting, as `tidegate config show` prints it, speaks of no cluster either.
        let usual = Options::default();
        let lone = KEYS.iter().filter(|key| {
            let is_said = *loaded.origin(key.path) != Origin::Default;
            key.path.starts_with("cluster.") && is_said && (key.show)(&loaded.options) != (key.show)(&usual)
        });
        problems.extend(lone.filter(|key| key.path != "cluster.name").map(|key| {
            ConfigProblem::of_key(loaded.origin(key.path), key.path, "is about a cluster, and cluster.name is not set")
        }));
        return if problems.is_empty() { Ok(None) } else { Err(Problems(problems)) };
    };
    if !cfg!(feature = "cluster") {
        let words = "this program was built without clusters";
        let hint = "use the program of a package, or build it with \"cargo build --release -p tidegate-cli --features cluster\"";
        let problem = ConfigProblem::of_key(loaded.origin("cluster.name"), "cluster.name", words);
        return Err(Problems(vec![problem.with_hint(hint.to_owned())]));
    }
    problems.extend(conflicts(loaded));
    let named = [
        ("cluster.password_file", &section.password_file),
        ("cluster.ca", &section.ca),
        ("cluster.cert", &section.cert),
        ("cluster.key", &section.key),
    ];
    problems.extend(unreadable(loaded, &named));
    let of_key = |key: &str, words: String| ConfigProblem::of_key(loaded.origin(key), key, words);
    let node = section.node.clone().value().map(|NodeLabel(node)| node);
    if node.is_none() {
        let problem = of_key("cluster.node", "a node needs a name that no other of its cluster has".to_owned());
        problems.push(problem.with_hint("for instance node = \"a\"".to_owned()));
    }
    let user = credentials(loaded, &mut problems);
    let (engine, servers) = engine(loaded, user.is_some(), &mut problems);
    let usual = if servers >= USUAL_REPLICAS { USUAL_REPLICAS } else { 1 };
    let replicas = section.replicas.value().map_or(usual, |WholeNumber(replicas)| replicas as usize);
    if matches!(engine, EnginePlan::Managed(_)) && replicas > servers {
        let words = format!("{replicas} copies need as many engines, and there are {servers}");
        let hint = "name those of all nodes in cluster.peers".to_owned();
        problems.push(of_key("cluster.replicas", words).with_hint(hint));
    }
    let address = section.address.0.clone().unwrap_or_else(|| usual_address(&loaded.options));
    if address.len() > ADDRESS_BYTES_MAX || address.chars().any(char::is_control) {
        problems.push(of_key("cluster.address", format!("expected plain text of up to {ADDRESS_BYTES_MAX} bytes")));
    }
    match node {
        Some(node) if problems.is_empty() => {
            let (ca, store, space) = (section.ca.clone(), store_dir(&loaded.options), space_dir(&loaded.options));
            let access = access(&loaded.options);
            Ok(Some(ClusterPlan { name, node, engine, user, ca, replicas, address, store, space, access }))
        }
        _ => Err(Problems(problems)),
    }
}

/// Where users, rules of access and what was taken back of tokens are, here or as soon as there are any.
fn access(options: &Options) -> Vec<(&'static str, PathBuf)> {
    let security = &options.security;
    let users = security.password_file.clone().unwrap_or_else(|| usual_password_file(options));
    let files = [Some(users), security.acl_file.clone(), Some(revoked_file(options))];
    ACCESS_FILES.into_iter().zip(files).filter_map(|(name, path)| Some((name, path?))).collect()
}

fn usual_address(options: &Options) -> String {
    let door = options.listeners.mqtt.value().map(|at| at.0);
    door.map_or_else(|| "unknown".to_owned(), |at| at.to_string())
}

/// What a cluster does not keep, or could not promise with.
fn conflicts(loaded: &Loaded) -> Vec<ConfigProblem> {
    let options = &loaded.options;
    let mut problems = Vec::new();
    let mut problem = |key: &str, words: &str| {
        problems.push(ConfigProblem::of_key(loaded.origin(key), key, words));
    };
    if guard(options).is_some() {
        problem("guard.upstream", "a guard keeps no messages, so it is no node of a cluster");
    }
    if !options.store.keep {
        problem("store.keep", "a cluster keeps the store: it cannot be switched off (cluster.name is set)");
    }
    if options.store.durability.0 != Durability::Always {
        problem("store.durability", "a cluster acknowledges only what is synced: \"always\" (cluster.name is set)");
    }
    problems
}

/// The password is read here: the engine is asked by name or not at all.
fn credentials(loaded: &Loaded, problems: &mut Vec<ConfigProblem>) -> Option<EngineCredentials> {
    let section = &loaded.options.cluster;
    let file = match (&section.user.0, &section.password_file) {
        (None, None) => return None,
        (Some(_), None) => {
            let words = "a user of the engine needs a password: cluster.password_file";
            problems.push(ConfigProblem::of_key(loaded.origin("cluster.user"), "cluster.user", words));
            return None;
        }
        (_, Some(file)) => file,
    };
    // One that cannot be read is a problem already.
    let text = std::fs::read_to_string(file).ok()?;
    let password = text.lines().next().unwrap_or_default().trim();
    let is_plain = |c: char| c.is_ascii_graphic() && !"\"'\\$".contains(c);
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX || !password.chars().all(is_plain) {
        let words = format!(
            "{}: expected a password of up to {PASSWORD_BYTES_MAX} letters, digits and signs (no quotes, $ or \\) in its first line",
            file.display()
        );
        problems.push(ConfigProblem::of_key(loaded.origin("cluster.password_file"), "cluster.password_file", words));
        return None;
    }
    let name = section.user.0.clone().unwrap_or_else(|| USUAL_USER.to_owned());
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        let words = "expected letters, digits, - _ and . only";
        problems.push(ConfigProblem::of_key(loaded.origin("cluster.user"), "cluster.user", words));
    }
    Some(EngineCredentials { name, password: password.to_owned() })
}

/// As whom nodes come to a managed engine.
const USUAL_USER: &str = "tidegate";
const PASSWORD_BYTES_MAX: usize = 128;

/// The engine, and how many servers it has as far as this node knows.
fn engine(loaded: &Loaded, has_password: bool, problems: &mut Vec<ConfigProblem>) -> (EnginePlan, usize) {
    let section = &loaded.options.cluster;
    let mut problem = |key: &str, words: &str| {
        problems.push(ConfigProblem::of_key(loaded.origin(key), key, words));
    };
    let servers = match &section.engine {
        EngineWord::Managed => None,
        EngineWord::At(servers) => Some(servers),
    };
    if let Some(servers) = servers {
        for key in ["cluster.peers", "cluster.engine_listen", "cluster.engine_routes", "cluster.cert", "cluster.key"] {
            if *loaded.origin(key) != Origin::Default {
                problem(key, "is about an engine that this process starts, and cluster.engine names another");
            }
        }
        return (EnginePlan::At(servers.join(",")), servers.len());
    }
    let (listen, routes) = (section.engine_listen.0, section.engine_routes.0);
    let peers = section.peers.0.clone();
    if !peers.is_empty() && peers.len() < 3 {
        problem("cluster.peers", "expected three nodes or more: of two, neither knows whether the other is gone");
    }
    if !routes.ip().is_loopback() && !has_password {
        problem("cluster.engine_routes", "beyond this machine the engine needs a password: cluster.password_file");
    }
    if !listen.ip().is_loopback() && !has_password {
        problem("cluster.engine_listen", "beyond this machine the engine needs a password: cluster.password_file");
    }
    if section.cert.is_some() != section.key.is_some() {
        problem("cluster.cert", "cluster.cert and cluster.key belong together");
    }
    if section.cert.is_some() && section.ca.is_none() {
        problem("cluster.ca", "engines know each other by who has signed their certificates: cluster.ca is needed");
    }
    let (program, folder) = (section.engine_program.0.clone(), loaded.options.server.data.join("engine"));
    let tls = section.cert.clone().zip(section.key.clone());
    let servers = peers.len().max(1);
    (EnginePlan::Managed(ManagedEngine { program, listen, routes, peers, tls, folder }), servers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Sources, load};

    fn planned(text: &str) -> Result<Option<ClusterPlan>, Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tidegate.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::write(folder.path().join("secret"), "s3cret\n").unwrap();
        let loaded = load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
        let words = |Problems(problems): Problems| problems.iter().map(ToString::to_string).collect();
        plan(&loaded).map_err(words)
    }

    #[test]
    fn without_a_name_there_is_no_cluster_and_nothing_may_speak_of_one() {
        assert_eq!(planned("").unwrap(), None);
        let problems = planned("[cluster]\nnode = \"a\"\n").unwrap_err();
        assert!(problems[0].ends_with("cluster.node: is about a cluster, and cluster.name is not set"), "{problems:?}");
    }

    #[cfg(not(feature = "cluster"))]
    #[test]
    fn a_program_without_clusters_says_what_to_do() {
        let problems = planned("[cluster]\nname = \"plant\"\nnode = \"a\"\n").unwrap_err();
        assert!(problems[0].contains("built without clusters; use the program of a package"), "{problems:?}");
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn three_managed_engines_keep_three_copies_and_one_keeps_one() {
        let three = "[cluster]\nname = \"plant\"\nnode = \"a\"\npassword_file = \"secret\"\n\
                     engine_routes = \"0.0.0.0:6222\"\npeers = [\"a:6222\", \"b:6222\", \"c:6222\"]\n";
        let plan = planned(three).unwrap().unwrap();
        assert_eq!((plan.replicas, plan.address.as_str()), (3, "127.0.0.1:1883"));
        assert_eq!(plan.servers(), "nats://127.0.0.1:4222");
        assert_eq!(plan.user, Some(EngineCredentials { name: "tidegate".into(), password: "s3cret".into() }));
        assert!(!format!("{plan:?}").contains("s3cret"));
        let one = planned("[cluster]\nname = \"plant\"\nnode = \"a\"\n").unwrap().unwrap();
        assert_eq!(one.replicas, 1);
        let theirs = "[cluster]\nname = \"plant\"\nnode = \"a\"\nengine = [\"nats://x:4222\", \"nats://y:4222\", \"nats://z:4222\"]\n";
        assert_eq!(planned(theirs).unwrap().unwrap().replicas, 3);
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn what_does_not_go_together_is_said_all_at_once() {
        let text = "[cluster]\nname = \"plant\"\nengine_routes = \"0.0.0.0:6222\"\npeers = [\"a:6222\", \"b:6222\"]\nreplicas = 3\n\
                    user = \"me\"\n[store]\ndurability = \"off\"\n";
        let problems = planned(text).unwrap_err();
        for (at, part) in [
            "store.durability: a cluster acknowledges only what is synced",
            "cluster.node: a node needs a name",
            "cluster.user: a user of the engine needs a password",
            "cluster.peers: expected three nodes or more",
            "cluster.engine_routes: beyond this machine the engine needs a password",
            "cluster.replicas: 3 copies need as many engines, and there are 2",
        ]
        .iter()
        .enumerate()
        {
            assert!(problems[at].contains(part), "{at}: {problems:#?}");
        }
        assert_eq!(problems.len(), 6, "{problems:#?}");
    }
}
