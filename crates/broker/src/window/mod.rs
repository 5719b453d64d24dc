//! What a client has not read yet lies in its own machine, where nothing can be overtaken: TCP's window tells of it.
//!
//! [`gauge`] decides what may still be sent in excess, by numbers that [`sock_diag`] asks the kernel for.

pub(crate) mod gauge;
pub(crate) mod sock_diag;
