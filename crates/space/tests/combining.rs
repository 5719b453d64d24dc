//! Equal, renamed and contained questions between random changes: whatever is answered without an evaluation is what an
//! evaluation would answer, and nothing of it is old.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use proptest::prelude::*;
use sparesults::{QueryResultsFormat, QueryResultsParser, ReaderQueryResultsParserOutput};
use tidegate_graph::{GraphSpace, Query, QueryAnswer, QueryLimits, Snapshot, SpaceLimits, Update};
use tidegate_space::{
    AnswerDelivery, AnswerSource, Form, Part, Probe, Refused, RequestOrigin, ResponseBody, Service, ServiceOptions,
    SpaceHandle, SpaceRequest, SpaceResponse,
};

/// What is asked, as templates: `?a` to `?d` stand for names, `<urn:1>` and the like for terms.
const TEMPLATES: [&str; 16] = [
    "SELECT ?a ?b { ?a <urn:p0> ?b }",
    "SELECT ?b ?a { ?a <urn:p0> ?b }",
    "SELECT ?b { <urn:1> <urn:p0> ?b }",
    "SELECT ?a { ?a <urn:p0> 1 }",
    "SELECT ?b { <urn:2> <urn:p0> ?b }",
    "SELECT ?a ?b ?c { ?a <urn:p0> ?b . ?a <urn:p1> ?c }",
    "SELECT ?c ?a ?b { ?a <urn:p1> ?c . ?a <urn:p0> ?b }",
    "SELECT ?c { <urn:1> <urn:p1> ?c . <urn:1> <urn:p0> ?b }",
    "SELECT ?a { ?a <urn:p1> 2 . ?a <urn:p0> ?b }",
    "SELECT DISTINCT ?a { ?a <urn:p0> ?b . ?a <urn:p1> ?c }",
    "SELECT ?a (COUNT(*) AS ?d) { ?a <urn:p1> ?c . ?a <urn:p0> ?b } GROUP BY ?a",
    "SELECT ?a ?b { ?a <urn:p0> ?b OPTIONAL { ?a <urn:p1> ?c } FILTER(?b > 0) }",
    "SELECT ?a ?d { GRAPH ?d { ?a <urn:p0> ?b } }",
    "SELECT ?a { GRAPH <urn:1> { ?a <urn:p0> ?b } }",
    "SELECT ?a ?b { ?a <urn:p0>* ?b }",
    "SELECT ?b { ?b <urn:p0> [ <urn:p1> ?a ] }",
];

#[derive(Clone, Debug)]
enum Step {
    Change(bool, u8, u8, u8, u8),
    Ask(usize, usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (any::<bool>(), 0..3u8, 0..3u8, 0..4u8, 0..3u8);
    let change = change.prop_map(|(is_insert, graph, s, p, o)| Step::Change(is_insert, graph, s, p, o));
    let ask =
        (0..TEMPLATES.len(), 0..3usize, any::<bool>()).prop_map(|(which, names, form)| Step::Ask(which, names, form));
    prop::collection::vec(prop_oneof![1 => change, 3 => ask], 1..60)
}

/// The same question under other names.
fn renamed(template: &str, names: usize) -> String {
    let sets = [["a", "b", "c", "d"], ["b", "a", "x", "c"], ["longer", "c", "b", "a"]];
    let text = template.replace('?', "?_");
    ["a", "b", "c", "d"]
        .iter()
        .zip(sets[names])
        .fold(text, |text, (from, to)| text.replace(&format!("?_{from}"), &format!("?{to}")))
}

type Rows = Vec<BTreeMap<String, String>>;

/// What a plain evaluation gives, sorted.
fn evaluated(space: &GraphSpace, query: &Query) -> Rows {
    evaluated_on(&space.snapshot(), query)
}

fn evaluated_on(snapshot: &Snapshot, query: &Query) -> Rows {
    let QueryAnswer::Rows(rows) = query.run(snapshot, &QueryLimits::default()).unwrap() else { panic!("no rows") };
    let names = rows.variables().to_vec();
    let row = |row: tidegate_graph::Row| {
        let fields = names.iter().zip(row.iter());
        fields.filter_map(|(name, term)| Some((name.as_str().to_owned(), term.as_ref()?.to_string()))).collect()
    };
    sorted(rows.map(|found| row(found.unwrap())).collect())
}

/// What was answered, sorted, with the names of its columns.
fn answered(bytes: &[u8], format: QueryResultsFormat) -> (Vec<String>, Rows) {
    let parser = QueryResultsParser::from_format(format);
    let ReaderQueryResultsParserOutput::Solutions(rows) = parser.for_reader(bytes).unwrap() else { panic!("no rows") };
    let names = rows.variables().iter().map(|name| name.as_str().to_owned()).collect();
    let row = |row: sparesults::QuerySolution| {
        row.iter().map(|(name, term)| (name.as_str().to_owned(), term.to_string())).collect()
    };
    (names, sorted(rows.map(|found| row(found.unwrap())).collect()))
}

fn sorted(mut rows: Rows) -> Rows {
    rows.sort();
    rows
}

fn ask(handle: &SpaceHandle, request: SpaceRequest) -> SpaceResponse {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(handle.ask(request, RequestOrigin::new(0, None))).unwrap()
}

fn question(text: &str, format: QueryResultsFormat) -> SpaceRequest {
    let query = Box::new(Query::parse(text, &QueryLimits::default()).unwrap());
    SpaceRequest::Query { query, form: Form::Results(format) }
}

fn bytes(response: &SpaceResponse) -> &[u8] {
    let ResponseBody::Bytes(bytes) = &response.answer else { panic!("{response:?}") };
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_is_combined_is_what_an_evaluation_gives(steps in steps()) {
        let (service, limits) = (Service::start(SpaceLimits::default()).unwrap(), QueryLimits::default());
        let (handle, mut model) = (service.handle(), GraphSpace::new(1, SpaceLimits::default()));
        for step in steps {
            match step {
                Step::Change(is_insert, graph, s, p, o) => {
                    let object = if o == 0 { "<urn:1>".to_owned() } else { o.to_string() };
                    let triple = format!("<urn:{s}> <urn:p{}> {object}", p.min(2));
                    let quad = if graph == 0 { triple } else { format!("GRAPH <urn:{graph}> {{ {triple} }}") };
                    let verb = if is_insert { "INSERT" } else { "DELETE" };
                    let update = Update::parse(&format!("{verb} DATA {{ {quad} }}"), &limits).unwrap();
                    model.update(&update, &limits).unwrap();
                    ask(&handle, SpaceRequest::Update(Box::new(update)));
                }
                Step::Ask(which, names, is_xml) => {
                    let text = renamed(TEMPLATES[which], names);
                    let format = if is_xml { QueryResultsFormat::Xml } else { QueryResultsFormat::Json };
                    let query = Query::parse(&text, &limits).unwrap();
                    let response = ask(&handle, question(&text, format));
                    let (columns, rows) = answered(bytes(&response), format);
                    let own: Vec<String> = query.variables().unwrap().iter().map(|name| name.as_str().to_owned()).collect();
                    prop_assert_eq!(columns, own, "{}", &text);
                    prop_assert_eq!(rows, evaluated(&model, &query), "{} {:?}", &text, response.source);
                }
            }
        }
    }
}

#[test]
fn renamed_contained_and_untouched_questions_are_answered_without_an_evaluation() {
    let service = Service::start(SpaceLimits::default()).unwrap();
    let handle = service.handle();
    let update = |text: &str| {
        let update = Update::parse(text, &QueryLimits::default()).unwrap();
        ask(&handle, SpaceRequest::Update(Box::new(update)));
    };
    let source = |text: &str, format| ask(&handle, question(text, format)).source;
    let json = QueryResultsFormat::Json;
    update("INSERT DATA { <urn:1> <urn:p> 1 , 2 . <urn:2> <urn:p> 1 }");
    assert_eq!(source("SELECT ?s ?o { ?s <urn:p> ?o }", json), AnswerSource::Fresh);
    for (text, format) in [
        ("SELECT ?s ?o { ?s <urn:p> ?o }", json),
        ("SELECT ?o ?s { ?s <urn:p> ?o }", json),
        ("SELECT ?x ?y { ?y <urn:p> ?x }", json),
        ("SELECT ?s ?o { ?s <urn:p> ?o }", QueryResultsFormat::Csv),
        ("SELECT ?v { <urn:1> <urn:p> ?v }", json),
        ("SELECT ?v { ?v <urn:p> 1 }", json),
    ] {
        assert_eq!(source(text, format), AnswerSource::Remembered, "{text}");
    }
    update("INSERT DATA { <urn:1> <urn:q> 1 }");
    assert_eq!(source("SELECT ?s ?o { ?s <urn:p> ?o }", json), AnswerSource::Remembered, "it does not read that");
    update("INSERT DATA { <urn:3> <urn:p> 1 }");
    assert_eq!(
        source("SELECT ?v { <urn:1> <urn:p> ?v }", json),
        AnswerSource::Remembered,
        "it does not read that, either"
    );
    assert_eq!(source("SELECT ?v { ?v <urn:p> 1 }", json), AnswerSource::Fresh);
    assert_eq!(source("SELECT ?s ?o { ?s <urn:p> ?o }", json), AnswerSource::Fresh);
}

#[test]
fn those_who_wait_together_each_get_their_own_columns() {
    let service = Service::start(SpaceLimits::default()).unwrap();
    let handle = service.handle();
    let mut model = GraphSpace::new(1, SpaceLimits::default());
    let triples = (0..300).fold(String::new(), |text, n| format!("{text} <urn:{}> <urn:p> {n} .", n % 7));
    let update = Update::parse(&format!("INSERT DATA {{ {triples} }}"), &QueryLimits::default()).unwrap();
    model.update(&update, &QueryLimits::default()).unwrap();
    ask(&handle, SpaceRequest::Update(Box::new(update)));
    let texts = [
        "SELECT ?s ?o { ?s <urn:p> ?o FILTER(?o > 10) }",
        "SELECT ?o ?s { ?s <urn:p> ?o FILTER(?o > 10) }",
        "SELECT ?s ?o { ?o <urn:p> ?s FILTER(?s > 10) }",
        "SELECT ?x ?y { ?x <urn:p> ?y FILTER(?y > 10) }",
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut sources = BTreeMap::new();
    for round in 0..10 {
        // Nobody remembers what is worked out in this round.
        let change =
            Update::parse(&format!("INSERT DATA {{ <urn:x> <urn:p> {round} }}"), &QueryLimits::default()).unwrap();
        model.update(&change, &QueryLimits::default()).unwrap();
        ask(&handle, SpaceRequest::Update(Box::new(change)));
        let formats = [QueryResultsFormat::Json, QueryResultsFormat::Xml, QueryResultsFormat::Tsv];
        let asked: Vec<_> = (0..24).map(|n| (texts[n % 4], formats[n % 3])).collect();
        let waiting: Vec<_> = asked
            .iter()
            .map(|(text, format)| handle.start(question(text, *format), RequestOrigin::new(0, None)))
            .collect();
        for ((text, format), waiting) in asked.into_iter().zip(waiting) {
            let response = runtime.block_on(waiting.answer()).unwrap();
            *sources.entry(format!("{:?}", response.source)).or_insert(0) += 1;
            let query = Query::parse(text, &QueryLimits::default()).unwrap();
            let (columns, rows) = answered(bytes(&response), format);
            let own: Vec<String> = query.variables().unwrap().iter().map(|name| name.as_str().to_owned()).collect();
            assert_eq!(columns, own, "{text}");
            assert_eq!(rows, evaluated(&model, &query), "{text}");
        }
    }
    assert!(sources["Fresh"] < 10 * 24 / 2, "{sources:?}");
}

/// Lets an evaluation go on when it is told to.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<(usize, usize)>,
    moved: Condvar,
}

impl Gate {
    /// So many more may go on.
    fn open(&self, more: usize) {
        self.state.lock().unwrap().0 += more;
        self.moved.notify_all();
    }

    /// Waits until so many evaluations have begun.
    fn until_begun(&self, count: usize) {
        let state = self.state.lock().unwrap();
        drop(self.moved.wait_while(state, |(_, begun)| *begun < count).unwrap());
    }

    fn begun(&self) -> usize {
        self.state.lock().unwrap().1
    }
}

impl Probe for Gate {
    fn at(&self, _: Part) {}

    fn at_rendering(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.moved.notify_all();
        let mut state = self.moved.wait_while(state, |(free, _)| *free == 0).unwrap();
        state.0 -= 1;
    }
}

fn gated() -> (Arc<Gate>, Service) {
    let gate = Arc::new(Gate::default());
    let probe: Arc<dyn Probe> = Arc::<Gate>::clone(&gate);
    let service = Service::start_by(&ServiceOptions { probe: Some(probe), ..ServiceOptions::default() }).unwrap();
    (gate, service)
}

fn changed(handle: &SpaceHandle, text: &str) {
    let update = Update::parse(text, &QueryLimits::default()).unwrap();
    ask(handle, SpaceRequest::Update(Box::new(update)));
}

#[test]
fn who_asks_what_is_being_evaluated_joins_it_unless_something_was_changed_since() {
    let (gate, service) = gated();
    let (handle, json) = (service.handle(), QueryResultsFormat::Json);
    let start = |text: &str| handle.start(question(text, json), RequestOrigin::new(0, None));
    let text = "SELECT ?s ?o { ?s <urn:p0> ?o }";
    changed(&handle, "INSERT DATA { <urn:1> <urn:p0> 1 }");
    let first = start(text);
    gate.until_begun(1);
    changed(&handle, "INSERT DATA { <urn:1> <urn:p1> 1 }");
    // It does not read that: whoever asks the same has its answer.
    let joined: Vec<_> = (0..5).map(|_| start(text)).collect();
    changed(&handle, "INSERT DATA { <urn:2> <urn:p0> 2 }");
    let late = start(text);
    gate.until_begun(2);
    gate.open(2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut rows = |waiting: tidegate_space::PendingReply| {
        let response = runtime.block_on(waiting.answer()).unwrap();
        (answered(bytes(&response), json).1.len(), response.source, response.version)
    };
    let (first, joined, late) = (rows(first), joined.into_iter().map(&mut rows).collect::<Vec<_>>(), rows(late));
    assert_eq!((first.0, first.1), (1, AnswerSource::Fresh));
    assert!(joined.iter().all(|it| (it.0, it.1) == (1, AnswerSource::Shared) && it.2 > first.2), "{joined:?}");
    assert_eq!((late.0, late.1), (2, AnswerSource::Fresh), "a change that was confirmed before is seen");
    assert_eq!(gate.begun(), 2);
}

#[test]
fn who_asks_the_same_under_other_names_joins_it_too_and_is_asked_anew_where_rows_are_not_kept() {
    for (values, evaluations) in [(3, 1), (2000, 2)] {
        let (gate, service) = gated();
        let (handle, csv) = (service.handle(), QueryResultsFormat::Csv);
        let triples = (0..values)
            .map(|n| format!("<urn:{n}> <urn:p0> \"{n}-{}\" . ", "x".repeat(64)))
            .collect::<Vec<_>>()
            .concat();
        changed(&handle, &format!("INSERT DATA {{ {triples} }}"));
        let start = |text: &str| handle.start(question(text, csv), RequestOrigin::new(0, None));
        let first = start("SELECT ?s ?o { ?s <urn:p0> ?o }");
        gate.until_begun(1);
        let renamed = start("SELECT ?value ?lamp { ?lamp <urn:p0> ?value }");
        gate.open(evaluations);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (first, renamed) = (runtime.block_on(first.answer()).unwrap(), runtime.block_on(renamed.answer()).unwrap());
        let lines = |response: &SpaceResponse| -> Vec<String> {
            let mut lines: Vec<String> = String::from_utf8_lossy(bytes(response)).lines().map(str::to_owned).collect();
            lines[1..].sort();
            lines
        };
        let swapped = |line: &String| line.split_once(',').map(|(a, b)| format!("{b},{a}")).unwrap();
        let (own, mut other) = (lines(&first), lines(&renamed).iter().map(swapped).collect::<Vec<_>>());
        other[1..].sort();
        assert_eq!((own[0].as_str(), other[0].as_str()), ("s,o", "lamp,value"));
        assert_eq!(own[1..], other[1..]);
        assert_eq!((own.len(), gate.begun()), (values + 1, evaluations));
        let expected = if evaluations == 1 { AnswerSource::Shared } else { AnswerSource::Fresh };
        assert_eq!((first.source, renamed.source), (AnswerSource::Fresh, expected));
    }
}

/// Whoever has joined something that is too long to be held is sent it while it is made, or told so, as if it had asked alone.
#[test]
fn an_answer_that_is_too_long_is_nobodys_alone() {
    let (gate, service) = gated();
    let (handle, csv) = (service.handle(), QueryResultsFormat::Csv);
    let (bytes_each, values) = (512 << 10, tidegate_space::limits::ANSWER_BYTES_MAX / (512 << 10) + 2);
    for n in 0..values {
        changed(&handle, &format!("INSERT DATA {{ <urn:{n}> <urn:p0> \"{n}-{}\" }}", "x".repeat(bytes_each)));
    }
    let start = |delivery| {
        let origin = RequestOrigin { delivery, ..RequestOrigin::new(0, None) };
        handle.start(question("SELECT ?s ?o { ?s <urn:p0> ?o }", csv), origin)
    };
    let first = start(AnswerDelivery::Whole);
    gate.until_begun(1);
    let joined = [start(AnswerDelivery::Streamed), start(AnswerDelivery::Whole), start(AnswerDelivery::Streamed)];
    gate.open(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(runtime.block_on(first.answer()).unwrap_err(), Refused::TooLong);
    let mut outcomes = Vec::new();
    for waiting in joined {
        outcomes.push(match runtime.block_on(waiting.answer()) {
            Ok(SpaceResponse { answer: ResponseBody::Stream(_), source, .. }) => Ok(source),
            Ok(other) => panic!("{other:?}"),
            Err(refused) => Err(refused),
        });
    }
    assert_eq!(outcomes, [Ok(AnswerSource::Streamed), Err(Refused::TooLong), Ok(AnswerSource::Streamed)]);
    assert_eq!(gate.begun(), 1, "evaluated once to find out");
}

#[test]
fn an_evaluation_goes_on_for_whoever_has_joined_it() {
    let (gate, service) = gated();
    let (handle, json) = (service.handle(), QueryResultsFormat::Json);
    changed(&handle, "INSERT DATA { <urn:1> <urn:p0> 1 }");
    let hasty = RequestOrigin::new(0, Some(std::time::Duration::from_millis(50)));
    let first = handle.start(question(TEMPLATES[0], json), hasty);
    gate.until_begun(1);
    let joined = handle.start(question(TEMPLATES[0], json), RequestOrigin::new(0, None));
    drop(first);
    // Long after the first one's time is over, and it has gone.
    std::thread::sleep(std::time::Duration::from_millis(200));
    gate.open(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let response = runtime.block_on(joined.answer()).unwrap();
    assert_eq!((response.source, gate.begun()), (AnswerSource::Shared, 1));
}

#[derive(Clone, Debug)]
enum Moment {
    Change(bool, u8, u8),
    Ask(usize, usize),
    Open,
}

fn moments() -> impl Strategy<Value = Vec<Moment>> {
    let change = (any::<bool>(), 0..3u8, 0..2u8).prop_map(|(is_insert, s, p)| Moment::Change(is_insert, s, p));
    let ask = (0..6usize, 0..2usize).prop_map(|(which, names)| Moment::Ask(which, names));
    prop::collection::vec(prop_oneof![2 => change, 5 => ask, 2 => Just(Moment::Open)], 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Questions are evaluated slowly, changes are confirmed meanwhile, others ask the same, under other names, or a part.
    #[test]
    fn nobody_is_answered_with_data_from_before_it_asked(moments in moments()) {
        let (gate, service) = gated();
        let (handle, limits) = (service.handle(), QueryLimits::default());
        let mut model = GraphSpace::new(1, SpaceLimits::default());
        let mut states = vec![model.snapshot()];
        let mut asked = Vec::new();
        for moment in moments {
            match moment {
                Moment::Change(is_insert, s, p) => {
                    let verb = if is_insert { "INSERT" } else { "DELETE" };
                    let text = format!("{verb} DATA {{ <urn:{s}> <urn:p{p}> {s} }}");
                    model.update(&Update::parse(&text, &limits).unwrap(), &limits).unwrap();
                    changed(&handle, &text);
                    states.push(model.snapshot());
                }
                Moment::Ask(which, names) => {
                    let text = renamed(TEMPLATES[which], names);
                    let query = question(&text, QueryResultsFormat::Json);
                    asked.push((text, states.len() - 1, handle.start(query, RequestOrigin::new(0, None))));
                }
                Moment::Open => gate.open(1),
            }
        }
        gate.open(asked.len());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for (text, since, waiting) in asked {
            let response = runtime.block_on(waiting.answer()).unwrap();
            let (_, rows) = answered(bytes(&response), QueryResultsFormat::Json);
            let query = Query::parse(&text, &limits).unwrap();
            let is_right = states[since..].iter().any(|state| evaluated_on(state, &query) == rows);
            prop_assert!(is_right, "{} {:?}: {:?}", text, response.source, rows);
        }
    }
}
