//! Which pages may use this door through a browser. The rules are the rim's, the same as those of WebSockets.

use core::net::IpAddr;

/// Judges where a request comes from.
pub trait Pages {
    /// Whether a request to this host, sent by a page of this origin if it says so, may be answered; else why not.
    fn judge(&self, peer: IpAddr, host: &str, origin: Option<&str>) -> Result<(), &'static str>;
}
