//! What the broker says: answers and indications, in the very order and without the space that clients expect.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};

use crate::fault::SsapFault;
use crate::header::{Kind, SsapHeader, Status, Transaction};
use crate::message::SsapMessage;
use crate::write;

/// The number after which indications begin at 1 again.
pub const SEQUENCE_MAX: u32 = 9999;

/// Writes an answer or indication.
#[derive(Debug)]
#[must_use = "a message ends with `finish`"]
pub struct AnswerWriter<'o> {
    out: &'o mut String,
}

pub(crate) fn begin(header: &SsapHeader, kind: Kind, out: &mut String) {
    out.push_str("<SSAP_message>");
    write::element("message_type", kind.as_str(), out);
    write::element("transaction_type", &header.transaction_type, out);
    write::element("transaction_id", &header.transaction_id, out);
    write::element("space_id", &header.space_id, out);
    write::element("node_id", &header.node_id, out);
}

pub(crate) fn parameter(name: &str, value: impl FnOnce(&mut String), out: &mut String) {
    out.push_str("<parameter name=\"");
    write::escaped(name, out);
    out.push_str("\">");
    value(out);
    out.push_str("</parameter>");
}

impl<'o> AnswerWriter<'o> {
    /// Begins the answer to a request.
    pub fn confirm(request: &SsapHeader, status: Status, out: &'o mut String) -> Self {
        begin(request, Kind::Confirm, out);
        Self { out }.text("status", status.as_str())
    }

    /// Begins to tell of a change: `subscribe` is the header of the request that it answers.
    pub fn indication(subscribe: &SsapHeader, sequence: u32, subscription_id: &str, out: &'o mut String) -> Self {
        begin(subscribe, Kind::Indication, out);
        Self { out }.text("ind_sequence", &sequence.to_string()).text("subscription_id", subscription_id)
    }

    /// The broker ends a subscription: the one way to say so that clients understand.
    pub fn ended(subscribe: &SsapHeader, status: Status, subscription_id: &str, out: &'o mut String) -> Self {
        let header = SsapHeader { transaction_type: Transaction::Unsubscribe.as_str().into(), ..subscribe.clone() };
        begin(&header, Kind::Indication, out);
        Self { out }.text("status", status.as_str()).text("subscription_id", subscription_id)
    }

    /// A parameter with a text.
    pub fn text(self, name: &str, value: &str) -> Self {
        self.with(name, |out| write::escaped(value, out))
    }

    /// A parameter whose value is XML that the caller writes.
    pub fn with(self, name: &str, value: impl FnOnce(&mut String)) -> Self {
        parameter(name, value, self.out);
        self
    }

    /// The names that blank nodes were given. Clients expect the parameter after every INSERT and UPDATE.
    pub fn blank_nodes<'n>(self, names: impl IntoIterator<Item = (&'n str, &'n str)>) -> Self {
        self.with("bnodes", |out| {
            out.push_str("<urilist>");
            for (label, uri) in names {
                out.push_str("<uri tag=\"");
                write::escaped(label, out);
                out.push_str("\">");
                write::escaped(uri, out);
                out.push_str("</uri>");
            }
            out.push_str("</urilist>");
        })
    }

    /// Ends the message.
    pub fn finish(self) {
        self.out.push_str("</SSAP_message>");
    }
}

/// What a client reads: an answer or an indication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedReply<'a> {
    message: SsapMessage<'a>,
}

impl<'a> ReceivedReply<'a> {
    /// A message from a broker.
    pub fn read(message: SsapMessage<'a>) -> Result<Self, SsapFault> {
        match message.header.kind() {
            Some(Kind::Confirm | Kind::Indication) => Ok(Self { message }),
            _ => Err(SsapFault::syntax("neither an answer nor an indication").in_message(&message.header)),
        }
    }

    /// Which request it belongs to.
    pub fn header(&self) -> &SsapHeader {
        &self.message.header
    }

    /// How the request ended; none in an indication of a change.
    pub fn status(&self) -> Result<Option<Cow<'a, str>>, SsapFault> {
        self.message.text("status")
    }

    /// Any other parameter, as text.
    pub fn text(&self, name: &str) -> Result<Option<Cow<'a, str>>, SsapFault> {
        self.message.text(name)
    }

    /// A parameter with XML inside, as it is written.
    pub fn inside(&self, name: &str) -> Option<&'a str> {
        self.message.parameter(name).map(|parameter| parameter.inside)
    }

    /// The number of an indication.
    pub fn sequence(&self) -> Result<Option<u32>, SsapFault> {
        let text = self.message.text("ind_sequence")?;
        text.map(|text| text.trim().parse().map_err(|_| SsapFault::syntax(format!("ind_sequence is {text:?}"))))
            .transpose()
    }
}
