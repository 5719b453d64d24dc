#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access;
mod acl;
mod authenticator;
mod authority;
mod authority_authenticator;
mod fault;
mod filter;
mod graphs;
pub mod limits;
mod mosquitto_acl;
mod secret;
mod text;
mod token;
mod token_authenticator;
mod users;

pub use access::Access;
pub use acl::{Acl, AclEffect, AclRule, AclSubject, Actions, MONITOR};
pub use authenticator::{AnonymousClients, AuthSettings, CertificateUsers, ClientIds, PasswordAuthenticator};
pub use authority::{
    AuthorityGrant, AuthorityMemory, AuthorityStep, AuthorityTimes, AuthorityVerdict, CredentialPrint,
};
pub use authority_authenticator::{Authority, AuthorityAuthenticator};
pub use fault::{FileError, FileFault};
pub use filter::{claims_of, covers};
pub use graphs::{GraphAccess, GraphRule};
pub use text::read;
pub use token::{KeyFault, KeySet, MakeFault, RevokedFull, RevokedTokens, TokenFault, TokenGrant, TokenRules};
pub use token_authenticator::{TokenAuthenticator, TokenSource};
pub use users::{PasswordVerdict, Salt, Users};
