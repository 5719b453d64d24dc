//! Which graphs somebody may read, and which it may write.
//!
//! A right is a list of names that are allowed and one of names that are denied, which win. A name is the default graph,
//! every graph, or an IRI in which `*` stands for any characters. Whose rights they are, and where the lists come from, is
//! not known here; `restrict` makes queries and updates keep to them.

use std::fmt;

use oxrdf::{GraphNameRef, NamedNodeRef};

/// Graphs that a rule speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GraphNames {
    /// The default graph.
    Default,
    /// Every graph, the default one and those without an IRI, too.
    Every,
    /// Named graphs whose IRI is this text, in which `*` stands for any characters, or none.
    Matching(Box<str>),
}

impl GraphNames {
    pub(crate) fn has_named(&self, name: &str) -> bool {
        match self {
            Self::Default => false,
            Self::Every => true,
            Self::Matching(pattern) => is_match(pattern, name),
        }
    }
}

/// Whether a text is what a pattern says, in which `*` stands for any characters.
fn is_match(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for piece in middle.split('*') {
        // The earliest place leaves the most for what follows.
        let Some(at) = text.find(piece) else { return false };
        text = &text[at + piece.len()..];
    }
    text.ends_with(last)
}

/// The graphs that are allowed, but for those that are denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GraphList {
    /// What is allowed.
    pub allow: Vec<GraphNames>,
    /// What is not, whatever is allowed.
    pub deny: Vec<GraphNames>,
}

impl GraphList {
    /// Every graph there is or could be.
    pub fn has_all(&self) -> bool {
        self.deny.is_empty() && self.allow.contains(&GraphNames::Every)
    }

    /// Whether the default graph is in it.
    pub fn has_default(&self) -> bool {
        let has =
            |list: &[GraphNames]| list.iter().any(|names| matches!(names, GraphNames::Default | GraphNames::Every));
        has(&self.allow) && !has(&self.deny)
    }

    /// Whether the graph of this IRI is in it.
    pub fn has_named(&self, name: NamedNodeRef<'_>) -> bool {
        let has = |list: &[GraphNames]| list.iter().any(|names| names.has_named(name.as_str()));
        has(&self.allow) && !has(&self.deny)
    }

    /// Whether this graph is in it. One without an IRI is, if every graph is: rules cannot name it.
    pub fn has(&self, graph: GraphNameRef<'_>) -> bool {
        match graph {
            GraphNameRef::DefaultGraph => self.has_default(),
            GraphNameRef::NamedNode(name) => self.has_named(name),
            GraphNameRef::BlankNode(_) => self.has_all(),
        }
    }
}

/// What somebody may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GraphRights {
    /// Graphs that it may read.
    pub read: GraphList,
    /// Graphs that it may change.
    pub write: GraphList,
}

impl GraphRights {
    /// Whether everything is allowed.
    pub fn is_everything(&self) -> bool {
        self.read.has_all() && self.write.has_all()
    }
}

/// What was not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForbiddenGraph {
    /// To write it; else to read it.
    pub is_write: bool,
    /// The graph; none if it would have to be every graph.
    pub graph: Option<oxrdf::GraphName>,
}

impl ForbiddenGraph {
    /// This graph may not be read.
    pub fn reading(graph: GraphNameRef<'_>) -> Self {
        Self { is_write: false, graph: Some(graph.into_owned()) }
    }

    /// This graph may not be changed.
    pub fn writing(graph: GraphNameRef<'_>) -> Self {
        Self { is_write: true, graph: Some(graph.into_owned()) }
    }

    /// It takes the right to change every graph.
    pub fn writing_all() -> Self {
        Self { is_write: true, graph: None }
    }
}

impl fmt::Display for ForbiddenGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_write { "write" } else { "read" };
        match &self.graph {
            Some(oxrdf::GraphName::DefaultGraph) => write!(f, "no right to {what} the default graph"),
            Some(graph) => write!(f, "no right to {what} the graph {graph}"),
            None => write!(f, "no right to {what} every graph, which this needs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same, letter by letter.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|from| naive(rest, &text[from..])),
            ([a, rest @ ..], [b, text @ ..]) => a == b && naive(rest, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_star_stands_for_any_characters(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(is_match(&pattern, &text), naive(pattern.as_bytes(), text.as_bytes()));
        }
    }

    #[test]
    fn what_is_denied_wins_and_what_is_not_named_is_not_allowed() {
        let names = |text: &str| GraphNames::Matching(text.into());
        let list =
            GraphList { allow: vec![names("urn:home/*"), GraphNames::Default], deny: vec![names("urn:home/x*")] };
        let has = |name: &str| list.has_named(NamedNodeRef::new_unchecked(name));
        assert!(has("urn:home/a") && has("urn:home/") && list.has_default() && !list.has_all());
        assert!(!has("urn:home/x") && !has("urn:home/xy") && !has("urn:home") && !has("urn:other"));
        let all = GraphList { allow: vec![GraphNames::Every], deny: vec![] };
        assert!(all.has_all() && all.has_default() && all.has_named(NamedNodeRef::new_unchecked("urn:any")));
        assert!(!GraphList::default().has_default(), "nothing is allowed without a rule");
        let denied = GraphList { allow: vec![GraphNames::Every], deny: vec![GraphNames::Default] };
        assert!(!denied.has_default() && !denied.has_all());
    }

    #[test]
    fn what_is_forbidden_is_named() {
        let graph = NamedNodeRef::new_unchecked("urn:g");
        assert_eq!(ForbiddenGraph::reading(graph.into()).to_string(), "no right to read the graph <urn:g>");
        assert_eq!(
            ForbiddenGraph::writing(GraphNameRef::DefaultGraph).to_string(),
            "no right to write the default graph"
        );
        assert_eq!(ForbiddenGraph::writing_all().to_string(), "no right to write every graph, which this needs");
    }
}
