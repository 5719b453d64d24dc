//! Why nothing came of a message or of a solution. Each reason has a counter by this name.

macro_rules! losses {
    ($($(#[$meta:meta])* $variant:ident = $name:literal,)+) => {
        /// Why nothing came of it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Loss { $($(#[$meta])* $variant,)+ }

        impl Loss {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its name in counters.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Its place in [`Self::ALL`].
            pub fn index(self) -> usize {
                self as usize
            }
        }
    };
}

losses! {
    /// The payload is no JSON, and the rule looks into it.
    PayloadNotJson = "map_payload_not_json",
    /// The payload is longer than what is looked into.
    PayloadTooLong = "map_payload_too_long",
    /// The document has no value where the rule looks.
    PathMissing = "map_path_missing",
    /// A value is there and does not fit: an object where a literal is wanted, a word where a number is.
    ValueInvalid = "map_value_invalid",
    /// A message of a map came round, more often than the rule allows.
    ChainTooLong = "map_chain_too_long",
    /// More messages came than could be mapped.
    QueueFull = "map_queue_full",
    /// The smart space had too much to do.
    SpaceBusy = "map_space_busy",
    /// The smart space refused the change.
    SpaceFailed = "map_space_failed",
    /// A triple that should have been removed stays: the smart space refused too many changes in a row.
    OwedTooMany = "map_owed_too_many",
    /// No topic can be made of a solution.
    TopicInvalid = "map_topic_invalid",
    /// The broker had too much to do to publish it.
    PublishBusy = "map_publish_busy",
    /// The rules of access forbid the map to publish it.
    PublishDenied = "map_publish_denied",
    /// Changes of a standing query were missed.
    EmitMissed = "map_emit_missed",
}
