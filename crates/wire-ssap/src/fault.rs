//! What is wrong with a message.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use crate::header::{SsapHeader, Status};
use crate::limits::DETAIL_BYTES_MAX;

/// A message that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsapFault {
    /// What the sender is told.
    pub status: Status,
    /// What is wrong, for people.
    pub detail: String,
    /// As much of the header as could be read.
    pub header: Box<SsapHeader>,
    /// It is not even XML: what follows on the connection is not to be trusted.
    pub is_broken: bool,
}

impl SsapFault {
    fn new(status: Status, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if detail.len() > DETAIL_BYTES_MAX {
            let end = (0..=DETAIL_BYTES_MAX).rev().find(|at| detail.is_char_boundary(*at));
            detail.truncate(end.unwrap_or(0));
            detail.push('…');
        }
        Self { status, detail, header: Box::default(), is_broken: false }
    }

    pub(crate) fn broken(detail: impl Into<String>) -> Self {
        Self { is_broken: true, ..Self::new(Status::Syntax, detail) }
    }

    pub(crate) fn syntax(detail: impl Into<String>) -> Self {
        Self::new(Status::Syntax, detail)
    }

    pub(crate) fn incomplete(detail: impl Into<String>) -> Self {
        Self::new(Status::Incomplete, detail)
    }

    pub(crate) fn unknown(detail: impl Into<String>) -> Self {
        Self::new(Status::NotImplemented, detail)
    }

    pub(crate) fn in_message(mut self, header: &SsapHeader) -> Self {
        *self.header = header.clone();
        self
    }
}

impl fmt::Display for SsapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.detail)
    }
}

impl core::error::Error for SsapFault {}
