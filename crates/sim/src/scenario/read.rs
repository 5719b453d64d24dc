//! From the text of a scenario to a [`Scenario`]: every problem at once, each with its line.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{POLLING_KEYS, PUBLISHER_KEYS, unknown};
use super::suggest::did_you_mean;
use super::value::Value;
use super::{Assert, Axis, Problem, Relation, Scenario, Setting, WorldKind};

const TOP: &[&str] = &[
    "version",
    "title",
    "question",
    "world",
    "primary",
    "replications",
    "seed",
    "assert",
    "vary",
    "variant",
    "plot",
    "plot_only",
];

pub(super) fn read(name: &str, text: &str) -> Result<Scenario, Vec<Problem>> {
    let mut reader = Reader { text, problems: Vec::new(), scenario: Scenario::empty(name) };
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let line = reader.line(error.span().map_or(0, |span| span.start));
        reader.problems.push(Problem { line, key: String::new(), text: error.message().trim().to_owned() });
    }
    // The world decides which keys there are.
    for (key, value) in root.get_ref() {
        if key.get_ref() == "world" {
            reader.top(key.get_ref(), value);
        }
    }
    for (key, value) in root.get_ref() {
        reader.entry(key, value);
    }
    reader.problems.sort_by_key(|problem| problem.line);
    reader.scenario.settings.sort_by_key(|setting| setting.line);
    // The parser sorts by name; tables read better with the algorithms side by side.
    reader.scenario.axes.sort_by_key(|axis| axis.name == "variant");
    if reader.problems.is_empty() {
        reader.problems = reader.scenario.check();
    }
    if reader.problems.is_empty() { Ok(reader.scenario) } else { Err(reader.problems) }
}

struct Reader<'a> {
    text: &'a str,
    problems: Vec<Problem>,
    scenario: Scenario,
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;
type Item<'a> = Spanned<DeValue<'a>>;

impl Reader<'_> {
    fn line(&self, offset: usize) -> usize {
        self.text.get(..offset).unwrap_or(self.text).matches('\n').count() + 1
    }

    fn problem(&mut self, offset: usize, key: &str, text: impl Into<String>) {
        let line = self.line(offset);
        self.problems.push(Problem { line, key: key.to_owned(), text: text.into() });
    }

    fn keys(&self) -> &'static [&'static str] {
        match self.scenario.world {
            WorldKind::Polling => POLLING_KEYS,
            WorldKind::Broker => PUBLISHER_KEYS,
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
                    self.setting(&format!("{name}.{}", inner.get_ref()), inner.span().start, value);
                }
            }
            _ if TOP.contains(&name) => self.top(name, value),
            _ => {
                let sections = self.keys().iter().filter_map(|key| key.split('.').next());
                let hint = did_you_mean(name, TOP.iter().copied().chain(sections)).unwrap_or_default();
                self.problem(key.span().start, name, format!("unknown key{hint}"));
            }
        }
    }

    fn top(&mut self, name: &str, value: &Item<'_>) {
        let at = value.span().start;
        let read = value_of(value.get_ref());
        let scenario = &mut self.scenario;
        let result = match (name, &read) {
            ("title", Some(Value::Text(text))) => {
                scenario.title.clone_from(text);
                Ok(())
            }
            ("question", Some(Value::Text(text))) => {
                scenario.question.clone_from(text);
                Ok(())
            }
            ("primary", Some(Value::Text(text))) => {
                scenario.primary.clone_from(text);
                Ok(())
            }
            ("plot", Some(value)) => value
                .one_of(&[("timeline", "timeline"), ("trace", "trace")])
                .map(|plot| scenario.plot = Some(plot.to_owned())),
            ("plot_only", Some(Value::Text(text))) => {
                scenario.plot_only = Some(text.clone());
                Ok(())
            }
            ("world", Some(value)) => value
                .one_of(&[("polling", WorldKind::Polling), ("broker", WorldKind::Broker)])
                .map(|world| scenario.world = world),
            ("version", Some(value)) => value.count(1, 1).map(|_| ()),
            ("replications", Some(value)) => value.count(1, 10_000).map(|count| scenario.replications = count),
            ("seed", Some(value)) => value.count(0, u32::MAX).map(|seed| scenario.seed = seed.into()),
            _ => Err("expected another kind of value".to_owned()),
        };
        if let Err(text) = result {
            self.problem(at, name, text);
        }
    }

    fn setting(&mut self, path: &str, at: usize, value: &Item<'_>) {
        if !self.keys().contains(&path) {
            return self.problem(at, path, unknown(path, self.keys()));
        }
        match value_of(value.get_ref()) {
            Some(value) => {
                let line = self.line(at);
                self.scenario.settings.push(Setting { path: path.to_owned(), value, line });
            }
            None => self.problem(at, path, "expected a text, a number, true or false"),
        }
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
                    points = list.iter().filter_map(|value| value_of(value.get_ref())).collect();
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
        let line = self.line(at);
        let points =
            points.into_iter().map(|value| (value.to_string(), vec![Setting { path: name.clone(), value, line }]));
        self.scenario.axes.push(Axis { name: name.clone(), points: points.collect() });
    }

    /// A name and settings: one point of the axis `variant`.
    fn variant(&mut self, item: &Item<'_>, table: &DeTable<'_>) {
        let (mut name, mut settings) = (String::new(), Vec::new());
        for (key, value) in table {
            let path = key.get_ref().as_ref();
            let line = self.line(key.span().start);
            match (path, value_of(value.get_ref())) {
                ("name", Some(Value::Text(text))) => name = text,
                (_, Some(value)) if self.keys().contains(&path) => {
                    settings.push(Setting { path: path.to_owned(), value, line });
                }
                _ => self.problem(key.span().start, path, unknown(path, self.keys())),
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
        let mut assert = Assert { line: self.line(item.span().start), ..Assert::default() };
        for (key, value) in table {
            let at = key.span().start;
            match (key.get_ref().as_ref(), value.get_ref(), value_of(value.get_ref())) {
                ("says", _, Some(Value::Text(text))) => assert.says = text,
                ("metric", _, Some(Value::Text(text))) => assert.metric = text,
                ("min", _, Some(Value::Number(number))) => assert.relation = Some(Relation::AtLeast(number)),
                ("max", _, Some(Value::Number(number))) => assert.relation = Some(Relation::AtMost(number)),
                ("less_than", DeValue::Table(place), _) => assert.relation = Some(Relation::LessThan(labels(place))),
                ("more_than", DeValue::Table(place), _) => assert.relation = Some(Relation::MoreThan(labels(place))),
                ("where", DeValue::Table(place), _) => assert.place = labels(place),
                (other, ..) => {
                    let names = ["says", "metric", "min", "max", "less_than", "more_than", "where"];
                    let hint = did_you_mean(other, names).unwrap_or_default();
                    self.problem(at, other, format!("unknown key, or not its kind of value{hint}"));
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
    let text = |value: &Item<'_>| value_of(value.get_ref()).map(|value| value.to_string()).unwrap_or_default();
    table.iter().map(|(key, value)| (key.get_ref().to_string(), text(value))).collect()
}

fn value_of(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Integer(number) => Value::Number(i64::from_str_radix(number.as_str(), number.radix()).ok()? as f64),
        DeValue::Float(number) => Value::Number(number.as_str().parse().ok()?),
        _ => return None,
    })
}
