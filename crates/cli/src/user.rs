//! `tidegate user`: add, remove and list users.

use anyhow::{Result, bail};

use crate::arguments::UserArgs;

/// Does what was asked.
pub(crate) fn run(_: &UserArgs) -> Result<()> {
    bail!("users are not in this build yet")
}
