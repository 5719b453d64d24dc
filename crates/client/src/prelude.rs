//! What `std` puts before every file, for a build without it.

pub(crate) use alloc::borrow::ToOwned;
pub(crate) use alloc::boxed::Box;
// A processor without atomic operations has one thread, and counts without them.
#[cfg(not(target_has_atomic = "ptr"))]
pub(crate) use alloc::rc::Rc as Arc;
pub(crate) use alloc::string::{String, ToString};
#[cfg(target_has_atomic = "ptr")]
pub(crate) use alloc::sync::Arc;
pub(crate) use alloc::vec::Vec;
pub(crate) use alloc::{format, vec};
