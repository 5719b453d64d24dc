//! What every message begins with, and the words of the protocol.

use alloc::boxed::Box;
use core::fmt;

/// The five elements that every message has. Answers repeat those of their request unchanged: clients compare them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SsapHeader {
    /// `transaction_type`, as it was written; see [`SsapHeader::transaction`].
    pub transaction_type: Box<str>,
    /// `message_type`, as it was written; see [`SsapHeader::kind`].
    pub message_type: Box<str>,
    /// `transaction_id`: chosen by the client.
    pub transaction_id: Box<str>,
    /// `node_id`: who the client says it is.
    pub node_id: Box<str>,
    /// `space_id`: the smart space that is meant.
    pub space_id: Box<str>,
}

impl SsapHeader {
    /// What it is about; none if the word is not known.
    pub fn transaction(&self) -> Option<Transaction> {
        Transaction::ALL.into_iter().find(|it| it.as_str().eq_ignore_ascii_case(&self.transaction_type))
    }

    /// Who speaks; none if the word is not known.
    pub fn kind(&self) -> Option<Kind> {
        Kind::ALL.into_iter().find(|it| it.as_str().eq_ignore_ascii_case(&self.message_type))
    }

    /// Whether there is enough of it to answer to.
    pub fn is_answerable(&self) -> bool {
        !self.transaction_type.is_empty() && !self.transaction_id.is_empty() && !self.node_id.is_empty()
    }
}

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// All of them.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// What a message is about.
    Transaction {
        /// A client begins to take part.
        Join = "JOIN",
        /// It takes part no longer.
        Leave = "LEAVE",
        /// Adds triples.
        Insert = "INSERT",
        /// Removes triples.
        Remove = "REMOVE",
        /// Removes some and adds others, at once.
        Update = "UPDATE",
        /// Asks once.
        Query = "QUERY",
        /// Asks, and wants to hear of changes.
        Subscribe = "SUBSCRIBE",
        /// Wants to hear no longer.
        Unsubscribe = "UNSUBSCRIBE",
        /// A standing update.
        PersistentUpdate = "PERSISTENT_UPDATE",
        /// Ends a standing update.
        CancelPersistentUpdate = "CANCEL_PERSISTENT_UPDATE",
    }
}

words! {
    /// Who speaks, and why.
    Kind {
        /// A client asks.
        Request = "REQUEST",
        /// The broker answers.
        Confirm = "CONFIRM",
        /// The broker tells of a change.
        Indication = "INDICATION",
    }
}

words! {
    /// How a request ended. Clients compare with `m3:Success` and take everything else for a failure.
    Status {
        /// Done.
        Success = "m3:Success",
        /// Something went wrong here.
        SibError = "m3:SIB.Error",
        /// Not allowed.
        AccessDenied = "m3:SIB.Error.AccessDenied",
        /// Too busy: come back later.
        OutOfResources = "m3:SIB.Failure.OutOfResources",
        /// Not known here.
        NotImplemented = "m3:SIB.Failure.NotImplemented",
        /// The state that a subscription saw is gone: ask again.
        Reset = "m3:SIB.Notification.Reset",
        /// The broker ends the subscription.
        Closing = "m3:SIB.Notification.Closing",
        /// The client used the protocol in a wrong way.
        KpError = "m3:KP.Error",
        /// The request makes no sense.
        KpRequest = "m3:KP.Error.Request",
        /// Something is missing in the message.
        Incomplete = "m3:KP.Error.Message.Incomplete",
        /// The message is malformed.
        Syntax = "m3:KP.Error.Message.Syntax",
    }
}

impl Status {
    /// The status of this name; none if it is not known.
    pub fn of(word: &str) -> Option<Self> {
        // One broker spells it so.
        let word = word.trim().replacen("m3:KP:", "m3:KP.", 1);
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}
