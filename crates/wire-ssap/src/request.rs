//! What a client asks for.

use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::answer::begin;
use crate::fault::SsapFault;
use crate::header::{Kind, SsapHeader, Transaction};
use crate::message::{Parameter, SsapMessage};
use crate::triple::{Triple, read_triples, write_triples};
use crate::write;

/// A request, without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SsapRequest<'a> {
    /// Takes part.
    Join {
        /// Free text; ignored by most brokers.
        credentials: Option<Cow<'a, str>>,
    },
    /// Takes part no longer.
    Leave,
    /// Adds.
    Insert {
        /// The triples to insert.
        graph: Graph<'a>,
        /// Whether an answer is wanted.
        confirm: bool,
    },
    /// Removes.
    Remove {
        /// What; wildcards are allowed.
        graph: Graph<'a>,
        /// Whether an answer is wanted.
        confirm: bool,
    },
    /// Removes, then adds, at once.
    Update {
        /// The triples to insert.
        insert: Graph<'a>,
        /// What to remove before; none in the SPARQL form.
        remove: Option<Graph<'a>>,
        /// Whether an answer is wanted.
        confirm: bool,
    },
    /// Asks once.
    Query(SsapQuery<'a>),
    /// Asks, and wants to hear of changes.
    Subscribe(SsapQuery<'a>),
    /// Wants to hear no longer.
    Unsubscribe {
        /// The identifier of the subscription.
        subscription_id: Cow<'a, str>,
    },
    /// A standing SPARQL update.
    PersistentUpdate {
        /// The update.
        update: Cow<'a, str>,
        /// Whether an answer is wanted.
        confirm: bool,
    },
    /// Ends it.
    CancelPersistentUpdate {
        /// The identifier of the rule.
        update_id: Cow<'a, str>,
    },
}

/// Triples to add or to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Graph<'a> {
    /// As a list.
    Triples(Vec<Triple<'a>>),
    /// As an RDF/XML document.
    RdfXml(Cow<'a, str>),
    /// A SPARQL update in place of a graph.
    Sparql(Cow<'a, str>),
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SsapQuery<'a> {
    /// Everything that matches one of these patterns.
    Patterns(Vec<Triple<'a>>),
    /// A SPARQL query; or, from old clients, an update.
    Sparql(Cow<'a, str>),
}

impl<'a> SsapRequest<'a> {
    /// What a message asks for.
    pub fn read(message: &SsapMessage<'a>) -> Result<Self, SsapFault> {
        Self::of(message).map_err(|fault| fault.in_message(&message.header))
    }

    fn of(message: &SsapMessage<'a>) -> Result<Self, SsapFault> {
        let header = &message.header;
        if header.kind() != Some(Kind::Request) {
            return Err(SsapFault::unknown(format!("the message type {:?} is not REQUEST", header.message_type)));
        }
        let Some(transaction) = header.transaction() else {
            return Err(SsapFault::unknown(format!("the transaction type {:?} is not known", header.transaction_type)));
        };
        Ok(match transaction {
            Transaction::Join => Self::Join { credentials: message.text("credentials")? },
            Transaction::Leave => Self::Leave,
            Transaction::Insert => Self::Insert { graph: graph(message, "insert_graph")?, confirm: confirm(message)? },
            Transaction::Remove => Self::Remove { graph: graph(message, "remove_graph")?, confirm: confirm(message)? },
            Transaction::Update => {
                let insert = graph(message, "insert_graph")?;
                let remove = match (&insert, message.parameter("remove_graph")) {
                    (Graph::Sparql(_), None) => None,
                    _ => Some(graph(message, "remove_graph")?),
                };
                Self::Update { insert, remove, confirm: confirm(message)? }
            }
            Transaction::Query => Self::Query(question(message)?),
            Transaction::Subscribe => Self::Subscribe(question(message)?),
            Transaction::Unsubscribe => Self::Unsubscribe { subscription_id: identifier(message, "subscription_id")? },
            Transaction::PersistentUpdate => {
                Self::PersistentUpdate { update: message.required("query")?.text()?, confirm: confirm(message)? }
            }
            Transaction::CancelPersistentUpdate => {
                Self::CancelPersistentUpdate { update_id: identifier(message, "update_id")? }
            }
        })
    }

    /// Its word on the wire.
    pub fn transaction(&self) -> Transaction {
        match self {
            Self::Join { .. } => Transaction::Join,
            Self::Leave => Transaction::Leave,
            Self::Insert { .. } => Transaction::Insert,
            Self::Remove { .. } => Transaction::Remove,
            Self::Update { .. } => Transaction::Update,
            Self::Query(_) => Transaction::Query,
            Self::Subscribe(_) => Transaction::Subscribe,
            Self::Unsubscribe { .. } => Transaction::Unsubscribe,
            Self::PersistentUpdate { .. } => Transaction::PersistentUpdate,
            Self::CancelPersistentUpdate { .. } => Transaction::CancelPersistentUpdate,
        }
    }

    /// Appends the message, with additional parameters for brokers that know them.
    pub fn write(&self, transaction_id: u64, node_id: &str, space_id: &str, extra: &[(&str, &str)], out: &mut String) {
        let header = SsapHeader {
            transaction_type: self.transaction().as_str().into(),
            message_type: Kind::Request.as_str().into(),
            transaction_id: transaction_id.to_string().into(),
            node_id: node_id.into(),
            space_id: space_id.into(),
        };
        begin(&header, Kind::Request, out);
        match self {
            Self::Join { credentials } => {
                if let Some(credentials) = credentials {
                    parameter("credentials", credentials, out);
                }
            }
            Self::Leave => {}
            Self::Insert { graph, confirm } => {
                graph.write("insert_graph", out);
                write_confirm(*confirm, out);
            }
            Self::Remove { graph, confirm } => {
                graph.write("remove_graph", out);
                write_confirm(*confirm, out);
            }
            Self::Update { insert, remove, confirm } => {
                insert.write("insert_graph", out);
                if let Some(remove) = remove {
                    remove.write("remove_graph", out);
                }
                write_confirm(*confirm, out);
            }
            Self::Query(question) | Self::Subscribe(question) => question.write(out),
            Self::Unsubscribe { subscription_id } => parameter("subscription_id", subscription_id, out),
            Self::PersistentUpdate { update, confirm } => {
                write::open("parameter", " name=\"query\" encoding=\"SPARQL-UPDATE\"", out);
                write::escaped(update, out);
                write::close("parameter", out);
                write_confirm(*confirm, out);
            }
            Self::CancelPersistentUpdate { update_id } => parameter("update_id", update_id, out),
        }
        for (name, value) in extra {
            parameter(name, value, out);
        }
        out.push_str("</SSAP_message>");
    }
}

fn graph<'a>(message: &SsapMessage<'a>, name: &str) -> Result<Graph<'a>, SsapFault> {
    let parameter = message.required(name)?;
    let encoding = parameter.encoding.as_deref().unwrap_or("RDF-M3");
    if encoding.eq_ignore_ascii_case("RDF-M3") {
        Ok(Graph::Triples(read_triples(parameter.inside)?))
    } else if encoding.eq_ignore_ascii_case("RDF-XML") {
        Ok(Graph::RdfXml(parameter.text()?))
    } else if encoding.eq_ignore_ascii_case("SPARQL-UPDATE") {
        Ok(Graph::Sparql(parameter.text()?))
    } else {
        Err(SsapFault::unknown(format!("the encoding {encoding:?} is not known")))
    }
}

fn question<'a>(message: &SsapMessage<'a>) -> Result<SsapQuery<'a>, SsapFault> {
    let kind = message.required("type")?.text()?;
    let query = message.required("query")?;
    if kind.trim().eq_ignore_ascii_case("RDF-M3") {
        Ok(SsapQuery::Patterns(read_triples(query.inside)?))
    } else if kind.trim().eq_ignore_ascii_case("sparql") {
        Ok(SsapQuery::Sparql(query.text()?))
    } else {
        Err(SsapFault::unknown(format!("the query type {:?} is not known", kind.trim())))
    }
}

fn identifier<'a>(message: &SsapMessage<'a>, name: &str) -> Result<Cow<'a, str>, SsapFault> {
    let text = message.required(name).and_then(Parameter::text)?;
    Ok(match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    })
}

/// Without the word an answer is wanted.
fn confirm(message: &SsapMessage<'_>) -> Result<bool, SsapFault> {
    Ok(message.text("confirm")?.is_none_or(|word| !word.trim().eq_ignore_ascii_case("FALSE")))
}

fn write_confirm(confirm: bool, out: &mut String) {
    parameter("confirm", if confirm { "TRUE" } else { "FALSE" }, out);
}

fn parameter(name: &str, value: &str, out: &mut String) {
    crate::answer::parameter(name, |out| write::escaped(value, out), out);
}

impl Graph<'_> {
    fn write(&self, name: &str, out: &mut String) {
        let encoding = match self {
            Self::Triples(_) => "RDF-M3",
            Self::RdfXml(_) => "RDF-XML",
            Self::Sparql(_) => "SPARQL-UPDATE",
        };
        write::open("parameter", &format!(" name=\"{name}\" encoding=\"{encoding}\""), out);
        match self {
            Self::Triples(triples) => write_triples(triples, out),
            Self::RdfXml(text) | Self::Sparql(text) => write::escaped(text, out),
        }
        write::close("parameter", out);
    }
}

impl SsapQuery<'_> {
    fn write(&self, out: &mut String) {
        match self {
            Self::Patterns(patterns) => {
                parameter("type", "RDF-M3", out);
                crate::answer::parameter("query", |out| write_triples(patterns, out), out);
            }
            Self::Sparql(text) => {
                parameter("type", "sparql", out);
                parameter("query", text, out);
            }
        }
    }
}
