//! Why a request was not done. The request's sender is at fault or the limits are; the dataset is unchanged either way.

use std::fmt;

use crate::rights::ForbiddenGraph;

/// What was answered instead of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GraphError {
    /// The text is no SPARQL; the parser's words say where.
    Syntax(String),
    /// It is SPARQL, but not something this broker does.
    Refused(QueryRefusal),
    /// Whoever asks may not do this to a graph.
    Forbidden(Box<ForbiddenGraph>),
    /// A document is no RDF; the parser's words say where.
    NotRdf(String),
    /// A limit was reached.
    Limit(Limit),
    /// A limit of texts was reached, at this place.
    LimitAt(Limit, TextPlace),
    /// The token was cancelled: a deadline passed or the client went away.
    Cancelled,
    /// The evaluator gave up; its words.
    Evaluation(String),
    /// No such subscriber, standing query or rule.
    Unknown,
    /// A delta that does not follow the version that is here, or does not fit the data.
    OutOfStep,
}

/// A place in a text; both numbers begin with one, and columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPlace {
    /// The line.
    pub line: usize,
    /// The character in it.
    pub column: usize,
}

impl TextPlace {
    /// Where this byte of a text is.
    pub(crate) fn of(text: &[u8], byte: usize) -> Self {
        let before = &text[..byte.min(text.len())];
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
        // A character begins at every byte that does not continue one.
        let is_start = |byte: &&u8| **byte & 0xC0 != 0x80;
        Self {
            line: 1 + memchr::memchr_iter(b'\n', before).count(),
            column: 1 + before[line_start..].iter().filter(is_start).count(),
        }
    }
}

/// Things that are not done on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryRefusal {
    /// `LOAD` fetches from elsewhere.
    Load,
    /// `SERVICE` asks another endpoint.
    Service,
    /// `SERVICE` with a variable: nobody knows before whom that is.
    ServiceVariable,
    /// `SERVICE` within `SERVICE`: nobody is asked to ask another.
    ServiceNested,
    /// `DESCRIBE` has no exact delta.
    StandingDescribe,
    /// A rule must have a `WHERE` to wait for.
    RuleWithoutWhere,
    /// An update says its graphs, and the protocol says others.
    GraphsTwice,
}

/// The limits of this crate; [`crate::QueryLimits`] and [`crate::SpaceLimits`] say how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Limit {
    /// Length of the text.
    TextBytes = 1,
    /// Brackets within brackets.
    Depth,
    /// Operators in a row, which the algebra nests.
    Chain,
    /// Quads looked at.
    Steps,
    /// Rows of the result.
    Rows,
    /// Bytes of the result.
    ResultBytes,
    /// Values that the evaluation holds at once.
    Memory,
    /// Bytes of one computed value.
    ValueBytes,
    /// Bytes of one stored term.
    TermBytes,
    /// Quads in the dataset.
    Quads,
    /// Quads in one update.
    ChangeQuads,
    /// Bytes of the quads in one update.
    ChangeBytes,
    /// Distinct standing queries.
    StandingQueries,
    /// Rows that one standing query keeps.
    StandingRows,
    /// Subscribers.
    Subscribers,
    /// Rules.
    Rules,
    /// Numbers for terms.
    Terms,
    /// Runs of rules for one request.
    RuleRuns,
    /// Distinct variables of one query or operation.
    Variables,
    /// Triples `<<` in triples.
    Quoted,
    /// Triples and rows of one operation that is no data.
    Patterns,
    /// Bytes of a word or prefix.
    WordBytes,
    /// Times that a parser would read a piece of the text.
    Reads,
    /// Bytes of names with their prefixes written out.
    Expansion,
    /// Comparisons that could be IRIs.
    Ambiguous,
    /// Names that contexts of JSON-LD define, and how often they are applied.
    Contexts,
    /// Attributes of one element, or namespaces that hold at one place.
    Attributes,
    /// Bytes of a document.
    DocumentBytes,
    /// Bytes of a document's terms.
    DocumentMemory,
    /// Operators within operators.
    AlgebraDepth,
    /// Memory for the data.
    DataBytes,
}

impl Limit {
    const ALL: [Self; 31] = [
        Self::TextBytes,
        Self::Depth,
        Self::Chain,
        Self::Steps,
        Self::Rows,
        Self::ResultBytes,
        Self::Memory,
        Self::ValueBytes,
        Self::TermBytes,
        Self::Quads,
        Self::ChangeQuads,
        Self::ChangeBytes,
        Self::StandingQueries,
        Self::StandingRows,
        Self::Subscribers,
        Self::Rules,
        Self::Terms,
        Self::RuleRuns,
        Self::Variables,
        Self::Quoted,
        Self::Patterns,
        Self::WordBytes,
        Self::Reads,
        Self::Expansion,
        Self::Ambiguous,
        Self::Contexts,
        Self::Attributes,
        Self::DocumentBytes,
        Self::DocumentMemory,
        Self::AlgebraDepth,
        Self::DataBytes,
    ];

    /// The limit of a number that was one (`limit as u8`).
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| *limit as u8 == code)
    }
}

impl GraphError {
    /// The limit that was reached, if one was.
    pub fn limit(&self) -> Option<Limit> {
        match self {
            Self::Limit(limit) | Self::LimitAt(limit, _) => Some(*limit),
            _ => None,
        }
    }
}

impl From<Limit> for GraphError {
    fn from(limit: Limit) -> Self {
        Self::Limit(limit)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TextBytes => "the text is too long",
            Self::Depth => "brackets are nested too deeply",
            Self::Chain => "too many operators in one query",
            Self::Steps => "the query looked at too many quads",
            Self::Rows => "the result has too many rows",
            Self::ResultBytes => "the result has too many bytes",
            Self::Memory => "the query needs too much memory",
            Self::ValueBytes => "a computed value is too long",
            Self::TermBytes => "a term is too long",
            Self::Quads => "the dataset is full",
            Self::ChangeQuads => "the update changes too many quads",
            Self::ChangeBytes => "the update changes too many bytes",
            Self::StandingQueries => "too many standing queries",
            Self::StandingRows => "the standing query keeps too many rows",
            Self::Subscribers => "too many subscribers",
            Self::Rules => "too many rules",
            Self::Terms => "too many distinct terms",
            Self::RuleRuns => "the rules do not come to rest",
            Self::Variables => "too many different variables in one query",
            Self::Quoted => "too many quoted triples",
            Self::Patterns => "too many triples in one operation; INSERT DATA and DELETE DATA take more",
            Self::WordBytes => "a word or prefix is too long",
            Self::Reads => "functions with optional arguments, or negations, are nested too deeply",
            Self::Expansion => "prefixes and base make the names too long",
            Self::Ambiguous => "too many \"<\" that could begin an IRI; write a space after them",
            Self::Contexts => "contexts define too many names, or are used too often",
            Self::Attributes => "too many attributes or namespaces",
            Self::DocumentBytes => "the document is too long for its format",
            Self::DocumentMemory => "the document needs too much memory",
            Self::AlgebraDepth => "operators are nested too deeply",
            Self::DataBytes => "there is no memory for more data (limits.memory); nothing was changed; what removes goes on, and what replaces by as many bytes",
        })
    }
}

impl fmt::Display for GraphError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(words) => write!(formatter, "not SPARQL: {words}"),
            Self::Refused(QueryRefusal::Load) => formatter.write_str("LOAD is not allowed"),
            Self::Refused(QueryRefusal::Service) => {
                formatter.write_str(
                    "SERVICE is not allowed: it is for queries over HTTP, and for endpoints that the setting space.services \
                     names; not for updates, rules and standing queries",
                )
            }
            Self::Refused(QueryRefusal::ServiceVariable) => {
                formatter.write_str("SERVICE with a variable is not allowed: its endpoint has to be named")
            }
            Self::Refused(QueryRefusal::ServiceNested) => {
                formatter.write_str("SERVICE within SERVICE is not allowed: an endpoint is not asked to ask another")
            }
            Self::Refused(QueryRefusal::StandingDescribe) => formatter.write_str("DESCRIBE cannot be subscribed to"),
            Self::Refused(QueryRefusal::RuleWithoutWhere) => formatter.write_str("a rule needs a WHERE"),
            Self::Refused(QueryRefusal::GraphsTwice) => formatter
                .write_str("using-graph-uri and using-named-graph-uri do not go with USING, USING NAMED or WITH"),
            Self::Forbidden(forbidden) => forbidden.fmt(formatter),
            Self::NotRdf(words) => formatter.write_str(words),
            Self::Limit(limit) => limit.fmt(formatter),
            Self::LimitAt(limit, place) => write!(formatter, "line {}, column {}: {limit}", place.line, place.column),
            Self::Cancelled => formatter.write_str("cancelled"),
            Self::Evaluation(words) => write!(formatter, "cannot be evaluated: {words}"),
            Self::Unknown => formatter.write_str("not known here"),
            Self::OutOfStep => formatter.write_str("the delta does not fit this dataset"),
        }
    }
}

impl std::error::Error for GraphError {}

impl From<ForbiddenGraph> for GraphError {
    fn from(forbidden: ForbiddenGraph) -> Self {
        Self::Forbidden(Box::new(forbidden))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_numbers_of_their_own() {
        for limit in Limit::ALL {
            assert_eq!(Limit::of_code(limit as u8), Some(limit));
        }
        assert_eq!(Limit::of_code(0), None);
    }

    #[test]
    fn places_count_lines_and_characters() {
        let text = "a\né{".as_bytes();
        assert_eq!(TextPlace::of(text, 0), TextPlace { line: 1, column: 1 });
        assert_eq!(TextPlace::of(text, 4), TextPlace { line: 2, column: 2 });
        assert_eq!(TextPlace::of(text, 99), TextPlace { line: 2, column: 3 });
        let error = GraphError::LimitAt(Limit::Depth, TextPlace::of(text, 4));
        assert_eq!(error.to_string(), "line 2, column 2: brackets are nested too deeply");
        assert_eq!((error.limit(), GraphError::Cancelled.limit()), (Some(Limit::Depth), None));
    }
}
