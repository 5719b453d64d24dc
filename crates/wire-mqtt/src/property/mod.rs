//! Properties (section 2.2.2): the named values that MQTT 5 adds to nearly every packet.
//!
//! A list of properties stays what it was on the wire, a slice of bytes, checked once when the packet is read. Reading
//! one out is a walk over a short slice, and most packets have none; in exchange PUBLISH allocates nothing and
//! forwarding is a copy.
//!
//! - `id.rs`: the 27 identifiers, and where each may stand
//! - `value.rs`: one property, read and written
//! - `list.rs`: a checked list, its iterator
//! - `access.rs`: typed accessors

mod access;
mod id;
mod list;
mod value;

pub use id::{PropertyId, PropertySite};
pub use list::{Properties, PropertyIter};
pub use value::{PayloadFormat, Property};

pub(crate) use list::KeptProperties;
