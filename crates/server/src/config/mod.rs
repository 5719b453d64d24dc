//! The configuration: flags over environment over files over defaults, every value with its origin.
//!
//! Sources are turned into entries (`path`, value, origin) in the order of their weight and applied one after the other
//! to [`Options`] by the table of keys. All problems of all sources are collected; what the values mean together is
//! judged in `plan.rs`.

pub mod backoff;
pub mod block;
pub mod bridge;
pub mod class;
pub mod cluster;
mod environment;
mod file;
pub mod kafka;
pub mod keys;
pub mod listener;
pub mod map;
pub mod proofs;
pub mod rule;
mod search;
pub mod sink;
pub mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bridge::BridgeSettings;
use keys::{KEYS, Options, SettingKey};
use listener::ListenerSetting;
use map::Maps;
use rule::RuleSetting;
use sink::SinkSettings;
use tidegate_core::classes::Class;
pub use tidegate_settings::suggest::did_you_mean;
pub use tidegate_settings::{ConfigEntry, ConfigProblem, ConfigValue, Fields, Origin, Problems, setting, units};
use tidegate_settings::{read_fields, suggest};

/// Where to look for values.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file named on the command line.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// The command line.
    pub flags: Vec<ConfigEntry>,
}

impl Sources {
    /// The environment of this process and what the command line says.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<ConfigEntry>) -> Self {
        // A variable that is not Unicode cannot be one of ours.
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { file, environment: std::env::vars_os().filter_map(text).collect(), flags }
    }
}

/// A configuration whose every value fits its key.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The values.
    pub options: Options,
    /// Where those come from that are not defaults.
    origins: BTreeMap<&'static str, Origin>,
    /// Rules of access, in order.
    pub rules: Vec<RuleSetting>,
    /// Classes of messages, in order, with where they stand.
    pub classes: Vec<(Class, Origin)>,
    /// Listeners with rules of their own, in order.
    pub listeners: Vec<ListenerSetting>,
    /// Maps between MQTT and the smart space.
    pub maps: Maps,
    /// Bridges to other brokers.
    pub bridges: Vec<BridgeSettings>,
    /// Sinks.
    pub sinks: Vec<SinkSettings>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

impl Loaded {
    /// Where the value of this key comes from.
    pub fn origin(&self, path: &str) -> &Origin {
        self.origins.get(path).unwrap_or(&Origin::Default)
    }

    /// What rules and classes have become, in words, where they differ from another configuration's.
    pub fn changed_lists(&self, before: &Self) -> Vec<String> {
        // Where a rule stands is no part of what it says.
        let same_rule =
            |(a, b): (&RuleSetting, &RuleSetting)| a == &RuleSetting { origin: a.origin.clone(), ..b.clone() };
        let rules = (self.rules.len(), before.rules.len());
        let classes = (self.classes.len(), before.classes.len());
        let same_rules = rules.0 == rules.1 && self.rules.iter().zip(&before.rules).all(same_rule);
        let same_classes =
            classes.0 == classes.1 && self.classes.iter().zip(&before.classes).all(|((a, _), (b, _))| a == b);
        let listeners = (self.listeners.len(), before.listeners.len());
        let pairs = || self.listeners.iter().zip(&before.listeners);
        let same_listeners = listeners.0 == listeners.1 && pairs().all(|(a, b)| a.says_the_same_as(b));
        let lists = [
            ("security.rules", same_rules, rules),
            ("classes", same_classes, classes),
            ("listener", same_listeners, listeners),
        ];
        let words = |(name, _, (now, before))| {
            if now == before { format!("{name} (still {now})") } else { format!("{name} {before} → {now}") }
        };
        lists.into_iter().filter(|(_, is_same, _)| !is_same).map(words).collect()
    }

    /// Keys whose values differ from another configuration's.
    pub fn changed_from(&self, before: &Self) -> impl Iterator<Item = &'static SettingKey> {
        KEYS.iter().filter(|key| (key.show)(&self.options) != (key.show)(&before.options))
    }
}

/// Reads all sources; every problem of every source at once.
pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
    let (loaded, problems) = read(sources);
    if problems.is_empty() { Ok(loaded) } else { Err(Problems(problems)) }
}

/// What could be read of all sources, and every problem.
pub fn read(sources: &Sources) -> (Loaded, Vec<ConfigProblem>) {
    let mut loaded = Loaded::default();
    let mut problems = Vec::new();
    let (mut entries, mut maps, mut bridges, mut sinks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let named = sources.environment.iter().find(|(name, _)| name == environment::CONFIG);
    let named = sources.file.clone().or_else(|| named.map(|(_, path)| PathBuf::from(path)));
    for path in search::files(named) {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                problems.push(ConfigProblem::of_file(&path, format_args!("cannot be read: {error}")));
                continue;
            }
        };
        let contents = file::parse(&path, &text);
        if !contents.problems.is_empty() && file::looks_like_mosquitto(&text) {
            let problem = ConfigProblem::of_file(&path, "this looks like a mosquitto.conf, and Tidegate reads TOML");
            let command = format!("tidegate import {} > tidegate.toml", path.display());
            problems.push(problem.with_hint(format!("translate it:  {command}")));
            continue;
        }
        problems.extend(contents.problems);
        entries.extend(contents.entries);
        maps.extend(contents.maps);
        bridges.extend(contents.bridges);
        sinks.extend(contents.sinks);
        loaded.rules.extend(contents.rules.iter().filter_map(|fields| RuleSetting::read(fields, &mut problems)));
        loaded.classes.extend(contents.classes.iter().filter_map(|(head, fields)| {
            class::read(&head.path, &head.origin, fields, &mut problems).map(|class| (class, head.origin.clone()))
        }));
        let listeners = contents.listeners.iter();
        loaded.listeners.extend(listeners.filter_map(|(at, fields)| ListenerSetting::read(at, fields, &mut problems)));
        loaded.files.push(path);
    }
    listener::check_names(&loaded.listeners, &mut problems);
    let (from_environment, misnamed) = environment::parse(&sources.environment);
    problems.extend(misnamed);
    entries.extend(from_environment);
    entries.extend(sources.flags.iter().cloned());
    for entry in &entries {
        problems.extend(loaded.apply(entry));
    }
    // Prefixes may come from anywhere, so the maps are last.
    loaded.maps = map::compile(&maps, &loaded.options.map.prefixes, &mut problems);
    loaded.bridges = bridge::compile(&bridges, &mut problems);
    loaded.sinks = sink::compile(&sinks, &mut problems);
    loaded.options.make_absolute();
    (loaded, problems)
}

/// The same path, whatever the working directory will be.
pub fn absolute(path: &Path) -> PathBuf {
    // It fails only without a working directory.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

impl Options {
    /// What is shown and said should mean the same file to everybody.
    fn make_absolute(&mut self) {
        let Self { server, cluster, tls, security, jwt, http_auth, .. } = self;
        let of_tls = [&mut tls.cert, &mut tls.key, &mut tls.client_ca, &mut tls.crl];
        let others =
            [&mut security.password_file, &mut security.acl_file, &mut jwt.secret_file, &mut jwt.ca, &mut http_auth.ca];
        let of_cluster = [&mut cluster.password_file, &mut cluster.ca, &mut cluster.cert, &mut cluster.key];
        let keys = match &mut jwt.keys {
            setting::Or::Is(proofs::KeyPlace::File(path)) => Some(path),
            _ => None,
        };
        for path in of_tls.into_iter().chain(others).chain(of_cluster).flatten().chain(keys).chain([&mut server.data]) {
            *path = absolute(path);
        }
    }
}

impl Loaded {
    fn apply(&mut self, entry: &ConfigEntry) -> Option<ConfigProblem> {
        let ConfigEntry { path, value, origin } = entry;
        let Some(key) = SettingKey::find(path) else {
            return Some(ConfigProblem::of_key(origin, path, "unknown key").with_hint(file::hint_for_key(path)));
        };
        if (key.set)(&mut self.options, value, origin.folder()).is_none() {
            return Some(ConfigProblem::of_key(origin, path, value.unfit(&(key.expected)())));
        }
        self.origins.insert(key.path, origin.clone());
        None
    }
}

#[cfg(test)]
mod tests;
