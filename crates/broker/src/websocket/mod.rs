//! WebSocket (RFC 6455), the server's side, as far as MQTT needs it: binary frames as a stream of bytes.
//!
//! MQTT packets may span or share frames [MQTT-6.0.0-2], so frames are not held whole: [`frame::Decoder`] takes the
//! envelope off in place and lets the bytes through as they come. No extensions: there is nothing to decompress.

pub(crate) mod frame;
pub(crate) mod session;
pub(crate) mod upgrade;

pub use frame::{CloseCode, ControlFrame, Decoder};
pub(crate) use session::WebSocket;
pub use upgrade::{AllowedPages, Upgrade, upgrade};
