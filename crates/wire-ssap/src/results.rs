//! SPARQL results as clients of SSAP expect them: XML without prolog, in one line.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::fault::SsapFault;
use crate::limits::{ROWS_MAX, VARIABLES_MAX};
use crate::write;
use crate::xml::{XmlDocument, XmlStep};

/// A value in a result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SsapValue {
    /// A resource.
    Uri(String),
    /// A blank node.
    Blank(String),
    /// A literal.
    Literal {
        /// The characters of the literal.
        text: String,
        /// Its datatype; none if it is a plain string.
        datatype: Option<String>,
        /// The language of the literal.
        language: Option<String>,
    },
}

/// A whole result, as a client holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SsapResults {
    /// The answer to SELECT.
    Rows {
        /// Names.
        variables: Vec<String>,
        /// One value for each of them; none where it is unbound.
        rows: Vec<Vec<Option<SsapValue>>>,
    },
    /// The answer to ASK, or to an update.
    Boolean(bool),
}

/// Writes rows one by one.
#[derive(Debug)]
#[must_use = "a result ends with `finish`"]
pub struct RowWriter<'o, 'v> {
    variables: &'v [String],
    out: &'o mut String,
}

const HEAD: &str = "<sparql xmlns=\"http://www.w3.org/2005/sparql-results#\"><head>";

/// Writes the answer to ASK, or to an update.
pub fn write_boolean(value: bool, out: &mut String) {
    out.push_str(HEAD);
    out.push_str("</head><boolean>");
    out.push_str(if value { "true" } else { "false" });
    out.push_str("</boolean></sparql>");
}

impl<'o, 'v> RowWriter<'o, 'v> {
    /// Begins a result with these variables.
    pub fn new(variables: &'v [String], out: &'o mut String) -> Self {
        out.push_str(HEAD);
        for variable in variables {
            out.push_str("<variable name=\"");
            write::escaped(variable, out);
            out.push_str("\"/>");
        }
        out.push_str("</head><results>");
        Self { variables, out }
    }

    /// Adds a row: one value for each variable, in order.
    pub fn row<'x>(&mut self, values: impl IntoIterator<Item = Option<&'x SsapValue>>) {
        self.out.push_str("<result>");
        for (variable, value) in self.variables.iter().zip(values) {
            let Some(value) = value else { continue };
            self.out.push_str("<binding name=\"");
            write::escaped(variable, self.out);
            self.out.push_str("\">");
            value.write(self.out);
            self.out.push_str("</binding>");
        }
        self.out.push_str("</result>");
    }

    /// Bytes written so far, with everything before the result.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing was written at all; never, because a result has a head.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Ends the result.
    pub fn finish(self) {
        self.out.push_str("</results></sparql>");
    }
}

impl SsapValue {
    fn write(&self, out: &mut String) {
        match self {
            Self::Uri(text) => write::element("uri", text, out),
            Self::Blank(text) => write::element("bnode", text, out),
            Self::Literal { text, datatype, language } => {
                out.push_str("<literal");
                for (name, value) in [("datatype", datatype), ("xml:lang", language)] {
                    let Some(value) = value else { continue };
                    out.push(' ');
                    out.push_str(name);
                    out.push_str("=\"");
                    write::escaped(value, out);
                    out.push('"');
                }
                out.push('>');
                write::escaped(text, out);
                out.push_str("</literal>");
            }
        }
    }
}

impl SsapResults {
    /// Reads a result. An empty text is what some brokers write for no rows.
    pub fn read(inside: &str) -> Result<Self, SsapFault> {
        let (mut variables, mut rows) = (Vec::new(), Vec::new());
        let mut document = XmlDocument::new(inside);
        while let Some(step) = document.next()? {
            let XmlStep::Open(start) = step else { continue };
            if start.is("variable") {
                let name = start.attribute("name")?.ok_or_else(|| SsapFault::syntax("a variable without a name"))?;
                variables.push(name.into_owned());
            } else if start.is("boolean") {
                return Ok(Self::Boolean(document.text()?.trim().eq_ignore_ascii_case("true")));
            } else if start.is("result") {
                rows.push(read_row(&mut document, &mut variables)?);
            }
            if variables.len() > VARIABLES_MAX || rows.len() > ROWS_MAX {
                return Err(SsapFault::syntax("a result with too many variables or rows"));
            }
        }
        // Brokers that leave out the head name variables as they come.
        let columns = variables.len();
        for row in &mut rows {
            row.resize(columns, None);
        }
        Ok(Self::Rows { variables, rows })
    }
}

fn read_row(document: &mut XmlDocument<'_>, variables: &mut Vec<String>) -> Result<Vec<Option<SsapValue>>, SsapFault> {
    let mut row = vec![None; variables.len()];
    loop {
        match document.next()? {
            Some(XmlStep::Open(start)) if start.is("binding") => {
                let name = start.attribute("name")?.ok_or_else(|| SsapFault::syntax("a binding without a name"))?;
                let column = variables.iter().position(|variable| *variable == name).unwrap_or_else(|| {
                    variables.push(name.into_owned());
                    variables.len() - 1
                });
                if variables.len() > VARIABLES_MAX {
                    return Err(SsapFault::syntax("a result with too many variables"));
                }
                row.resize(variables.len(), None);
                row[column] = read_binding(document)?;
            }
            Some(XmlStep::Text(text)) if text.trim().is_empty() => {}
            Some(XmlStep::Close) => return Ok(row),
            _ => return Err(SsapFault::syntax("something else than bindings in a result")),
        }
    }
}

/// The value inside a binding, and goes behind its end.
fn read_binding(document: &mut XmlDocument<'_>) -> Result<Option<SsapValue>, SsapFault> {
    let mut value = None;
    loop {
        match document.next()? {
            Some(XmlStep::Open(start)) => {
                let datatype = start.attribute("datatype")?.map(Cow::into_owned);
                let language = start.attribute("xml:lang")?.map(Cow::into_owned);
                let text = document.text()?.into_owned();
                value = match start.local_name() {
                    "uri" => Some(SsapValue::Uri(text)),
                    "bnode" => Some(SsapValue::Blank(text)),
                    "literal" => Some(SsapValue::Literal { text, datatype, language }),
                    "unbound" => None,
                    _ => return Err(SsapFault::syntax("a binding of unknown kind")),
                };
            }
            Some(XmlStep::Text(text)) if text.trim().is_empty() => {}
            Some(XmlStep::Close) => return Ok(value),
            _ => return Err(SsapFault::syntax("text in a binding")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_written_as_clients_expect_it_and_read_back() {
        let literal = |text: &str| SsapValue::Literal { text: text.into(), datatype: None, language: None };
        let variables = vec!["s".to_owned(), "o".to_owned()];
        let rows = vec![
            vec![Some(SsapValue::Uri("http://ex.org/a&b".into())), Some(literal("off"))],
            vec![Some(SsapValue::Blank("x".into())), None],
            vec![
                Some(SsapValue::Literal { text: "é".into(), datatype: None, language: Some("fr".into()) }),
                Some(SsapValue::Literal {
                    text: "5".into(),
                    datatype: Some("http://ex.org/int".into()),
                    language: None,
                }),
            ],
        ];
        let mut out = String::new();
        let mut writer = RowWriter::new(&variables, &mut out);
        for row in &rows {
            writer.row(row.iter().map(Option::as_ref));
        }
        writer.finish();
        assert_eq!(
            out,
            "<sparql xmlns=\"http://www.w3.org/2005/sparql-results#\"><head><variable name=\"s\"/><variable \
             name=\"o\"/></head><results><result><binding name=\"s\"><uri>http://ex.org/a&amp;b</uri></binding><binding \
             name=\"o\"><literal>off</literal></binding></result><result><binding \
             name=\"s\"><bnode>x</bnode></binding></result><result><binding name=\"s\"><literal \
             xml:lang=\"fr\">&#233;</literal></binding><binding name=\"o\"><literal \
             datatype=\"http://ex.org/int\">5</literal></binding></result></results></sparql>"
        );
        assert_eq!(SsapResults::read(&out), Ok(SsapResults::Rows { variables, rows }));
    }

    #[test]
    fn other_brokers_dialects_are_read() {
        let unbound = "<sparql><head><variable name='x'/></head><results><result><binding \
                       name='x'><unbound/></binding></result></results></sparql>";
        let rows = SsapResults::Rows { variables: vec!["x".into()], rows: vec![vec![None]] };
        assert_eq!(SsapResults::read(unbound), Ok(rows));
        assert_eq!(SsapResults::read(""), Ok(SsapResults::Rows { variables: vec![], rows: vec![] }));
        let mut out = String::new();
        write_boolean(true, &mut out);
        assert_eq!(SsapResults::read(&out), Ok(SsapResults::Boolean(true)));
        assert!(SsapResults::read("<sparql><results><result>x</result></results></sparql>").is_err());
    }
}
