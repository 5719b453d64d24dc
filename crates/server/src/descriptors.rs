//! How many files and sockets the process may have open, and how many of them clients may take.
//!
//! A client takes a descriptor, and so do the files of the store, the smart space, and the operator who wants to know why
//! nobody gets in any more. So the limit is raised as far as the system permits, a part of it is kept, and the rest is divided
//! between MQTT and the smart space: whoever fills the doors of one does not shut those of the other.

use rustix::process::{Resource, getrlimit, setrlimit};
use tidegate_space::limits::DOORS_CONNECTIONS_MAX;
use tracing::warn;

use crate::config::setting::{Or, WholeNumber};
use crate::config::{Loaded, Origin};

/// Left for the operator (256 connections, 128 that listen, a reserve of 8) and for files, which are few: segments of two
/// logs, pages that are read, a poll and its waker for each of 64 shards. Of a small limit a half.
const KEPT_MAX: u64 = 640;

/// As many as the system permits to a process of this user.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(event = "limits", %error, "the limit of open files stays as it is");
    }
}

/// Connections that may be open at the same time, by who comes in. Together they leave what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorShares {
    /// Clients of MQTT.
    pub clients: usize,
    /// All doors of the smart space.
    pub space: usize,
}

/// What the system permits, divided. The same whenever it is asked: shares are given at the start, and a reload that wants
/// more clients does not take them from the space.
pub fn shares(has_space: bool) -> DescriptorShares {
    raise();
    shares_of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), has_space)
}

/// The space has a quarter of what is not kept, and no more than it can use; nothing if all its doors are off.
fn shares_of(limit: u64, has_space: bool) -> DescriptorShares {
    let open = limit - KEPT_MAX.min(limit / 2);
    let space = if has_space { (open / 4).min(DOORS_CONNECTIONS_MAX as u64) } else { 0 };
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    DescriptorShares { clients: count(open - space), space: count(space) }
}

/// What an operator should know who wants more clients than the system permits.
pub fn warning(loaded: &Loaded, has_space: bool) -> Option<String> {
    let Or::Is(WholeNumber(wanted)) = loaded.options.limits.connections_max else { return None };
    let is_said = *loaded.origin("limits.connections_max") != Origin::Default;
    let max = shares(has_space).clients as u64;
    (is_said && wanted > max).then(|| {
        format!(
            "limits.connections_max is {wanted}, and the system permits {max} clients: raise the limit of open files \
             (ulimit -n, LimitNOFILE=)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_leave_descriptors_to_each_other_and_to_the_operator() {
        let shares = |limit| {
            let DescriptorShares { clients, space } = shares_of(limit, true);
            (clients, space)
        };
        assert_eq!(shares(64), (24, 8));
        assert_eq!(shares(1024), (384, 128));
        assert_eq!(shares(100_000), (100_000 - 640 - DOORS_CONNECTIONS_MAX, DOORS_CONNECTIONS_MAX));
        assert_eq!(shares(0), (0, 0));
        assert_eq!(shares_of(1024, false).clients, 512, "nothing is kept for doors that are off");
        for limit in (0..100_000_u64).step_by(37) {
            let (clients, space) = shares(limit);
            assert!(clients as u64 + space as u64 + KEPT_MAX.min(limit / 2) <= limit);
        }
    }
}
