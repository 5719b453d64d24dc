//! Answers as bytes: complete before the first is sent, so that nobody takes half of one for the whole. Those that are too long
//! to be held go into a stream, which says how it ends.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use oxrdf::{Quad, Term, Triple, TripleRef, Variable};
use oxrdfio::{RdfFormat, RdfSerializer, WriterQuadSerializer};
use sparesults::{QueryResultsFormat, QueryResultsSerializer};
use tidegate_graph::{GraphError, Mask, Query, QueryAnswer, QueryLimits, Row, Snapshot};
use tidegate_wire_ssap::{RowWriter, SsapValue, write_boolean, write_triples};

use crate::combining::RowKeeper;
use crate::limits::ANSWER_BYTES_MAX;
use crate::machine::request::{DeclinedBy, Form, Refused};
use crate::memory::{AnswerBytes, AnswerCharge};
use crate::notifications::SpaceRequest;
use crate::ssap::terms::triple_of;

/// A growing answer with an end to it.
#[derive(Default)]
struct BoundedBuffer(Vec<u8>);

impl Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > ANSWER_BYTES_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that are charged as long as somebody has them.
struct HeldBytes {
    bytes: Vec<u8>,
    _charge: AnswerCharge,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Charges bytes until the last copy of them is gone.
pub(crate) fn held(mut bytes: Vec<u8>, answers: &Arc<AnswerBytes>) -> Bytes {
    bytes.shrink_to_fit();
    let charge = answers.hold(bytes.capacity());
    Bytes::from_owner(HeldBytes { bytes, _charge: charge })
}

/// The answer to a query. Its rows are kept, too, as far as the keeper takes them.
pub(crate) fn query(
    query: &Query,
    form: Form,
    snapshot: &Snapshot,
    limits: &QueryLimits,
    keeper: &mut RowKeeper,
) -> Result<Vec<u8>, Refused> {
    match (query.run(snapshot, limits)?, form) {
        (QueryAnswer::Rows(found), form @ (Form::Results(_) | Form::Ssap)) => {
            let variables = found.variables().to_vec();
            rows(&variables, found, form, keeper)
        }
        (QueryAnswer::Boolean(answer), Form::Results(format)) => {
            let serializer = QueryResultsSerializer::from_format(format);
            Ok(serializer.serialize_boolean_to_writer(BoundedBuffer::default(), answer)?.0)
        }
        (QueryAnswer::Triples(triples), Form::Graph(format)) => {
            Ok(write_graph(BoundedBuffer::default(), triples, format)?.0)
        }
        (QueryAnswer::Boolean(answer), Form::Ssap) => {
            let mut out = String::new();
            write_boolean(answer, &mut out);
            Ok(out.into_bytes())
        }
        (QueryAnswer::Triples(triples), Form::Ssap) => {
            Ok(without_prolog(write_graph(BoundedBuffer::default(), triples, RdfFormat::RdfXml)?.0))
        }
        // Doors choose the form by the kind of query.
        _ => Err(Refused::TooLong),
    }
}

/// The rows of a `SELECT` that can be found within the limits, and whether those are not all: when its time is over or a
/// limit is reached, what was found is the answer. Each row belongs to the whole answer; what needs all of it (an order,
/// an aggregate) gives none before that.
pub(crate) fn part(
    query: &Query,
    form: Form,
    snapshot: &Snapshot,
    limits: &QueryLimits,
) -> Result<(Vec<u8>, bool), Refused> {
    let Some(variables) = query.variables() else { return Err(Refused::Declined(DeclinedBy::Mistake)) };
    let is_end =
        |error: &GraphError| matches!(error, GraphError::Cancelled | GraphError::Limit(_) | GraphError::LimitAt(..));
    let mut found = match query.run(snapshot, limits) {
        Ok(QueryAnswer::Rows(found)) => Some(found),
        Ok(_) => return Err(Refused::Declined(DeclinedBy::Mistake)),
        Err(error) if is_end(&error) => None,
        Err(error) => return Err(error.into()),
    };
    let (mut is_cut, mut kept) = (found.is_none(), RowKeeper::new(PART_BYTES_MAX));
    let next = std::iter::from_fn(|| match found.as_mut()?.next()? {
        Err(error) if is_end(&error) => {
            is_cut = true;
            None
        }
        Ok(row) if !kept.push(&row) => {
            is_cut = true;
            None
        }
        row => Some(row),
    });
    let bytes = rows(&variables, next, form, &mut RowKeeper::new(0))?;
    Ok((bytes, is_cut))
}

/// Bytes of the rows of a part: written, they are fewer than an answer may have.
const PART_BYTES_MAX: usize = ANSWER_BYTES_MAX / 8;

/// Rows as bytes.
pub(crate) fn rows(
    variables: &[Variable],
    rows: impl Iterator<Item = Result<Row, GraphError>>,
    form: Form,
    keeper: &mut RowKeeper,
) -> Result<Vec<u8>, Refused> {
    match form {
        Form::Results(format) => Ok(write_rows(BoundedBuffer::default(), variables, rows, format, keeper)?.0),
        Form::Ssap => {
            let names: Vec<String> = variables.iter().map(|name| name.as_str().to_owned()).collect();
            let mut out = String::new();
            let mut writer = RowWriter::new(&names, &mut out);
            for row in rows {
                let row = row?;
                write_row(&mut writer, &row);
                keeper.push(&row);
                if writer.len() > ANSWER_BYTES_MAX {
                    return Err(Refused::TooLong);
                }
            }
            writer.finish();
            Ok(out.into_bytes())
        }
        // Doors choose the form by the kind of query.
        Form::Graph(_) => Err(Refused::TooLong),
    }
}

/// Writes rows, and gives back where to.
fn write_rows<W: Write>(
    out: W,
    variables: &[Variable],
    rows: impl Iterator<Item = Result<Row, GraphError>>,
    format: QueryResultsFormat,
    keeper: &mut RowKeeper,
) -> Result<W, Refused> {
    let serializer = QueryResultsSerializer::from_format(format);
    let mut writer = serializer.serialize_solutions_to_writer(out, variables.to_vec())?;
    for row in rows {
        let row = row?;
        writer.serialize(bound(variables, &row))?;
        keeper.push(&row);
    }
    Ok(writer.finish()?)
}

/// Writes triples, and gives back where to.
fn write_graph<W: Write>(
    out: W,
    triples: impl Iterator<Item = Result<Triple, GraphError>>,
    format: RdfFormat,
) -> Result<W, Refused> {
    let mut writer = RdfSerializer::from_format(format).for_writer(out);
    for triple in triples {
        writer.serialize_triple(&triple?)?;
    }
    Ok(writer.finish()?)
}

/// Writes the answer to a question while it is found: nothing of it is held but what the evaluation itself needs.
pub(crate) fn stream(
    ask: &SpaceRequest,
    snapshot: &Snapshot,
    limits: &QueryLimits,
    out: &mut impl Write,
) -> Result<(), Refused> {
    match ask {
        SpaceRequest::Query { query, form } => match (query.run(snapshot, limits)?, *form) {
            (QueryAnswer::Rows(found), Form::Results(format)) => {
                let variables = found.variables().to_vec();
                write_rows(out, &variables, found, format, &mut RowKeeper::new(0))?;
            }
            (QueryAnswer::Triples(triples), Form::Graph(format)) => drop(write_graph(out, triples, format)?),
            _ => return Err(Refused::TooLong),
        },
        SpaceRequest::Match { masks, form: Form::Graph(format) } => {
            let mut writer = RdfSerializer::from_format(*format).for_writer(out);
            snapshot.each_matching(masks, limits, |quad| Ok::<_, Refused>(write_quad(&mut writer, &quad, *format)?))?;
            writer.finish()?;
        }
        // As it is held, or not at all.
        _ => return Err(Refused::TooLong),
    }
    Ok(())
}

fn write_quad<W: Write>(writer: &mut WriterQuadSerializer<W>, quad: &Quad, format: RdfFormat) -> io::Result<()> {
    if format.supports_datasets() {
        writer.serialize_quad(quad)
    } else {
        writer.serialize_triple(TripleRef::from(quad.as_ref()))
    }
}

/// What matches, as triples or quads.
pub(crate) fn matches(
    masks: &[Mask],
    form: Form,
    snapshot: &Snapshot,
    limits: &QueryLimits,
) -> Result<Vec<u8>, Refused> {
    let quads = snapshot.matching(masks, limits)?;
    match form {
        Form::Graph(format) => {
            let mut writer = RdfSerializer::from_format(format).for_writer(BoundedBuffer::default());
            for quad in &quads {
                write_quad(&mut writer, quad, format)?;
            }
            Ok(writer.finish()?.0)
        }
        Form::Ssap | Form::Results(_) => {
            let mut out = String::new();
            let triples: Vec<_> = quads.iter().map(of_quad).collect();
            write_triples(&triples, &mut out);
            if out.len() > ANSWER_BYTES_MAX { Err(Refused::TooLong) } else { Ok(out.into_bytes()) }
        }
    }
}

fn of_quad(quad: &Quad) -> tidegate_wire_ssap::Triple<'_> {
    triple_of(&quad.subject.clone().into(), &quad.predicate.clone().into(), &quad.object)
}

fn bound<'a>(variables: &'a [Variable], row: &'a Row) -> Vec<(&'a Variable, &'a Term)> {
    variables.iter().zip(row.iter()).filter_map(|(name, value)| Some((name, value.as_ref()?))).collect()
}

/// A row as SSAP has it.
pub(crate) fn write_row(writer: &mut RowWriter<'_, '_>, row: &Row) {
    let values: Vec<Option<SsapValue>> = row.iter().map(|term| term.as_ref().map(value_of)).collect();
    writer.row(values.iter().map(Option::as_ref));
}

fn value_of(term: &Term) -> SsapValue {
    match term {
        Term::NamedNode(node) => SsapValue::Uri(node.as_str().to_owned()),
        Term::BlankNode(node) => SsapValue::Blank(node.as_str().to_owned()),
        Term::Literal(literal) => {
            let language = literal.language().map(str::to_owned);
            let datatype = literal.datatype();
            let is_plain = language.is_some() || datatype == oxrdf::vocab::xsd::STRING;
            let datatype = (!is_plain).then(|| datatype.as_str().to_owned());
            SsapValue::Literal { text: literal.value().to_owned(), datatype, language }
        }
    }
}

/// RDF/XML inside a message: a prolog is only allowed at its beginning, and a client reads nothing but ASCII.
fn without_prolog(xml: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8(xml).unwrap_or_default();
    let body = text.find("?>").map_or(text.as_str(), |end| &text[end + 2..]).trim_start();
    let mut out = String::with_capacity(body.len());
    for character in body.chars() {
        if character.is_ascii() {
            out.push(character);
        } else {
            // Only texts and attribute values can have such characters here, where a reference means the same.
            let _ = std::fmt::Write::write_fmt(&mut out, format_args!("&#{};", u32::from(character)));
        }
    }
    out.into_bytes()
}

impl From<io::Error> for Refused {
    /// Serializers fail only because the sheet is full.
    fn from(_: io::Error) -> Self {
        Self::TooLong
    }
}

impl From<GraphError> for Refused {
    fn from(error: GraphError) -> Self {
        match error {
            GraphError::Cancelled => Self::Late,
            error => Self::Failed(error),
        }
    }
}
