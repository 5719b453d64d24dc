#![doc = include_str!("../README.md")]

mod beside;
mod cookie;
mod crowd;
mod endpoint;
mod hello;
mod limits;
mod plan;
mod session;

pub use endpoint::{DtlsEndpoint, DtlsEvent, DtlsStats};
pub use limits::SESSION_BYTES;
pub use plan::{CertificateJudge, DtlsFault, DtlsPlan, DtlsSettings, OwnCertificate};
pub use session::DtlsPeer;
