//! Who came to a listener, and why some were turned away there. Counted on any thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why somebody was turned away before it became a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerRefusal {
    /// As many are connected at this listener as may be.
    Full,
    /// As many are connected to the broker as may be.
    BrokerFull,
    /// Only proxies may connect here, and its address is none of theirs.
    NoProxy,
    /// A proxy did not say whom it speaks for, or not in words that can be read.
    ProxyHeader,
    /// User name or password is wrong, or its token is not valid.
    Password,
    /// Known, or without a name, and not let in.
    NotAuthorized,
    Banned,
    /// Too many wrong passwords before it.
    Paused,
    /// Too many passwords wait to be looked at.
    Busy,
    /// Whoever knows was not there: no keys for tokens, no answer of an authority.
    Unavailable,
    /// TLS did not come about: no certificate, one that is not trusted, was taken back or is not on the list.
    Tls,
}

impl ListenerRefusal {
    pub(crate) const ALL: [Self; 11] = [
        Self::Full,
        Self::BrokerFull,
        Self::NoProxy,
        Self::ProxyHeader,
        Self::Password,
        Self::NotAuthorized,
        Self::Banned,
        Self::Paused,
        Self::Busy,
        Self::Unavailable,
        Self::Tls,
    ];

    /// In metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::BrokerFull => "broker_full",
            Self::NoProxy => "no_proxy",
            Self::ProxyHeader => "proxy_header",
            Self::Password => "password",
            Self::NotAuthorized => "not_authorized",
            Self::Banned => "banned",
            Self::Paused => "paused",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::Tls => "tls",
        }
    }
}

/// The counters of one listener.
#[derive(Debug, Default)]
pub(crate) struct ListenerCounts {
    accepted: AtomicU64,
    refused: [AtomicU64; ListenerRefusal::ALL.len()],
}

impl ListenerCounts {
    pub(crate) fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refuse(&self, why: ListenerRefusal) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub(crate) fn refused(&self, why: ListenerRefusal) -> u64 {
        self.refused[why as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter_and_a_name_of_its_own() {
        let counts = ListenerCounts::default();
        for (place, why) in ListenerRefusal::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, place);
            counts.refuse(why);
            assert_eq!(counts.refused(why), 1);
        }
        let names: std::collections::BTreeSet<_> = ListenerRefusal::ALL.iter().map(|why| why.name()).collect();
        assert_eq!(names.len(), ListenerRefusal::ALL.len());
    }
}
