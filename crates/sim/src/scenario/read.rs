//! From the text of a scenario to a [`Scenario`]: every problem at once, each with its line.

use tidegate_settings::{ConfigEntry, ConfigProblem, ConfigValue, Document, Origin};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{COAP_KEYS, POLLING_KEYS, PUBLISHER_KEYS, hint, unknown};
use super::{Assert, Axis, Relation, Scenario, WorldKind};
use crate::polling::Own;

const TOP: &[&str] = &[
    "version",
    "title",
    "question",
    "notes",
    "world",
    "primary",
    "replications",
    "precision",
    "seed",
    "assert",
    "vary",
    "variant",
    "plot",
    "plot_only",
    "plot_levels",
];

pub(super) fn read(name: &str, text: &str, own: Option<Own>) -> Result<Scenario, Vec<ConfigProblem>> {
    let document = Document::of_text(text);
    let (root, problems) = document.parse();
    let mut reader = Reader { document, problems, scenario: Scenario { own, ..Scenario::empty(name) } };
    // The world decides which keys there are.
    for (key, value) in root.get_ref() {
        if key.get_ref() == "world" {
            reader.top(key.get_ref(), value);
        }
    }
    for (key, value) in root.get_ref() {
        reader.entry(key, value);
    }
    reader.problems.sort_by_key(|problem| problem.origin.as_ref().map(Origin::position));
    reader.scenario.settings.sort_by_key(|setting| setting.origin.position());
    // The parser sorts by name; tables read better with the algorithms side by side.
    reader.scenario.axes.sort_by_key(|axis| axis.name == "variant");
    if reader.problems.is_empty() {
        reader.problems = reader.scenario.check();
    }
    if reader.problems.is_empty() { Ok(reader.scenario) } else { Err(reader.problems) }
}

struct Reader<'a> {
    document: Document<'a>,
    problems: Vec<ConfigProblem>,
    scenario: Scenario,
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;
type Item<'a> = Spanned<DeValue<'a>>;

impl Reader<'_> {
    fn problem(&mut self, offset: usize, key: &str, text: impl Into<String>) {
        self.problems.push(ConfigProblem::of_key(&self.document.origin(offset), key, text));
    }

    fn keys(&self) -> &'static [&'static str] {
        match self.scenario.world {
            WorldKind::Polling => POLLING_KEYS,
            WorldKind::Broker => PUBLISHER_KEYS,
            WorldKind::Coap => COAP_KEYS,
        }
    }

    fn entry(&mut self, key: &Key<'_>, value: &Item<'_>) {
        let name = key.get_ref().as_ref();
        match (name, value.get_ref()) {
            ("vary" | "variant" | "assert", DeValue::Array(list)) => {
                for item in list {
                    match (name, item.get_ref()) {
                        ("vary", DeValue::Table(table)) => self.vary(item, table),
                        ("variant", DeValue::Table(table)) => self.variant(item, table),
                        (_, DeValue::Table(table)) => self.assertion(item, table),
                        _ => self.problem(item.span().start, name, "expected a table"),
                    }
                }
            }
            ("world", _) => {}
            (_, DeValue::Table(table)) if !TOP.contains(&name) => {
                for (inner, value) in table {
                    self.setting(self.document.entry(format!("{name}.{}", inner.get_ref()), inner, value));
                }
            }
            _ if TOP.contains(&name) => self.top(name, value),
            _ => {
                let sections = self.keys().iter().filter_map(|key| key.split('.').next());
                let text = format!("unknown key{}", hint(name, TOP.iter().copied().chain(sections)));
                self.problem(key.span().start, name, text);
            }
        }
    }

    fn top(&mut self, name: &str, value: &Item<'_>) {
        let at = value.span().start;
        let read = ConfigValue::of_toml(value.get_ref());
        let scenario = &mut self.scenario;
        let result = match (name, &read) {
            ("title", ConfigValue::Text(text)) => {
                scenario.title.clone_from(text);
                Ok(())
            }
            ("question", ConfigValue::Text(text)) => {
                scenario.question.clone_from(text);
                Ok(())
            }
            ("notes", ConfigValue::Text(text)) => {
                scenario.notes.clone_from(text);
                Ok(())
            }
            ("primary", ConfigValue::Text(text)) => {
                scenario.primary.clone_from(text);
                Ok(())
            }
            ("plot", value) => value
                .one_of(&[("timeline", "timeline"), ("trace", "trace"), ("price", "price"), ("bars", "bars")])
                .map(|plot| scenario.plot = Some(plot.to_owned())),
            ("plot_only", ConfigValue::Text(text)) => {
                scenario.plot_only = Some(text.clone());
                Ok(())
            }
            ("plot_levels", ConfigValue::Text(text)) => {
                scenario.plot_levels = Some(text.clone());
                Ok(())
            }
            ("world", value) => value
                .one_of(&[("polling", WorldKind::Polling), ("broker", WorldKind::Broker), ("coap", WorldKind::Coap)])
                .map(|world| scenario.world = world),
            ("version", value) => value.count(1, 1).map(|_| ()),
            ("replications", value) => value.count(1, 10_000).map(|count| scenario.replications = count),
            ("precision", value) => value.share(1e-4, 0.5).map(|share| scenario.precision = Some(share)),
            ("seed", value) => value.count(0, u32::MAX).map(|seed| scenario.seed = seed.into()),
            _ => Err("expected another kind of value".to_owned()),
        };
        if let Err(text) = result {
            self.problem(at, name, text);
        }
    }

    fn setting(&mut self, entry: ConfigEntry) {
        let problem = if !self.keys().contains(&entry.path.as_str()) {
            unknown(&entry.path, self.keys())
        } else if entry.value.plain().is_none() {
            "expected a text, a number, true or false".to_owned()
        } else {
            return self.scenario.settings.push(entry);
        };
        self.problems.push(ConfigProblem::of_key(&entry.origin, &entry.path, problem));
    }

    /// `key` and `values`: one axis.
    fn vary(&mut self, item: &Item<'_>, table: &DeTable<'_>) {
        let at = item.span().start;
        let (mut name, mut points) = (String::new(), Vec::new());
        let before = self.problems.len();
        for (key, value) in table {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("key", DeValue::String(text)) if self.keys().contains(&text.as_ref()) => name = text.to_string(),
                ("key", DeValue::String(text)) => self.problem(value.span().start, text, unknown(text, self.keys())),
                ("values", DeValue::Array(list)) => {
                    points = list.iter().map(|value| ConfigValue::of_toml(value.get_ref())).collect::<Vec<_>>();
                }
                (other, _) => self.problem(key.span().start, other, "expected key and values"),
            }
        }
        if self.problems.len() > before {
            return;
        }
        if name.is_empty() || points.is_empty() {
            return self.problem(at, "vary", "expected a key and a list of values");
        }
        let origin = self.document.origin(at);
        let entry = |value| ConfigEntry { path: name.clone(), value, origin: origin.clone() };
        let points = points.into_iter().filter_map(|value| Some((value.plain()?, vec![entry(value)]))).collect();
        self.scenario.axes.push(Axis { name, points });
    }

    /// A name and settings: one point of the axis `variant`.
    fn variant(&mut self, item: &Item<'_>, table: &DeTable<'_>) {
        let (mut name, mut settings) = (String::new(), Vec::new());
        for entry in self.document.fields(table) {
            match (entry.path.as_str(), entry.value.text()) {
                ("name", Some(text)) => text.clone_into(&mut name),
                (path, _) if self.keys().contains(&path) && entry.value.plain().is_some() => settings.push(entry),
                (path, _) => {
                    let text = unknown(path, self.keys());
                    self.problems.push(ConfigProblem::of_key(&entry.origin, path, text));
                }
            }
        }
        if name.is_empty() {
            return self.problem(item.span().start, "variant", "expected a name");
        }
        match self.scenario.axes.iter_mut().find(|axis| axis.name == "variant") {
            Some(axis) => axis.points.push((name, settings)),
            None => self.scenario.axes.push(Axis { name: "variant".to_owned(), points: vec![(name, settings)] }),
        }
    }

    fn assertion(&mut self, item: &Item<'_>, table: &DeTable<'_>) {
        let mut assert = Assert { origin: Some(self.document.origin(item.span().start)), ..Assert::default() };
        for (key, value) in table {
            let at = key.span().start;
            match (key.get_ref().as_ref(), value.get_ref(), ConfigValue::of_toml(value.get_ref())) {
                ("says", _, ConfigValue::Text(text)) => assert.says = text,
                ("metric", _, ConfigValue::Text(text)) => assert.metric = text,
                ("min", _, value) if value.as_number().is_some() => {
                    assert.relation = value.as_number().map(Relation::AtLeast);
                }
                ("max", _, value) if value.as_number().is_some() => {
                    assert.relation = value.as_number().map(Relation::AtMost);
                }
                ("less_than", DeValue::Table(place), _) => assert.relation = Some(Relation::LessThan(labels(place))),
                ("more_than", DeValue::Table(place), _) => assert.relation = Some(Relation::MoreThan(labels(place))),
                ("where", DeValue::Table(place), _) => assert.place = labels(place),
                (other, ..) => {
                    let names = ["says", "metric", "min", "max", "less_than", "more_than", "where"];
                    let text = format!("unknown key, or not its kind of value{}", hint(other, names));
                    self.problem(at, other, text);
                }
            }
        }
        if assert.relation.is_none() {
            self.problem(item.span().start, "assert", "expected min, max, less_than or more_than");
        }
        self.scenario.asserts.push(assert);
    }
}

fn labels(table: &DeTable<'_>) -> Vec<(String, String)> {
    let text = |value: &Item<'_>| ConfigValue::of_toml(value.get_ref()).plain().unwrap_or_default();
    table.iter().map(|(key, value)| (key.get_ref().to_string(), text(value))).collect()
}
