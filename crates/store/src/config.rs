//! How a store is asked for, and how it is: the words that the broker and the smart space share.

use std::path::PathBuf;

use crate::{Durability, Health, WriterMetrics};

/// Where and how to keep what is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The directory; nobody else may use it.
    pub dir: PathBuf,
    /// When something counts as kept.
    pub durability: Durability,
    /// Refuse to start when something that was kept is damaged, instead of setting it aside.
    pub strict: bool,
    /// Bytes that its files may take; None is as many as the disk has, but for what it takes to empty them.
    pub size_max: Option<u64>,
}

/// The state of a store: where it is, how large, and whether its disk works.
#[derive(Clone, Debug)]
pub struct StoreReport {
    /// The store's directory.
    pub dir: PathBuf,
    /// When something counts as kept.
    pub durability: Durability,
    /// Whether the disk works.
    pub health: Health,
    /// Numbers of the writer.
    pub metrics: WriterMetrics,
    /// Bytes that its files may take, if that is bounded.
    pub size_max: Option<u64>,
}
