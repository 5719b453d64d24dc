//! How many files and sockets the process may have open, and how many of them clients may take.
//!
//! A client takes a descriptor, and so do the files of the store, the smart space, and the operator who wants to know why
//! nobody gets in any more. So the limit is raised as far as the system permits, and clients leave a part of it.

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

use crate::config::setting::{Count, Or};
use crate::config::{Loaded, Origin};

/// Left for everything that is no client of MQTT: the operator's door (256 and its reserve), files, and as many requests
/// to the smart space again. Of a small limit a half.
const KEPT_MAX: u64 = 512;

/// As many as the system permits to a process of this user.
pub(crate) fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(event = "limits", %error, "the limit of open files stays as it is");
    }
}

/// Clients that may be connected at the same time, by what the system permits.
pub(crate) fn clients_max() -> usize {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    usize::try_from(left_for_clients(limit)).unwrap_or(usize::MAX)
}

fn left_for_clients(limit: u64) -> u64 {
    limit - KEPT_MAX.min(limit / 2)
}

/// What an operator should know who wants more clients than the system permits.
pub(crate) fn warning(loaded: &Loaded) -> Option<String> {
    let Or::Is(Count(wanted)) = loaded.options.limits.connections_max else { return None };
    let is_said = *loaded.origin("limits.connections_max") != Origin::Default;
    let max = clients_max() as u64;
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
    fn clients_leave_descriptors_to_others() {
        assert_eq!(left_for_clients(64), 32);
        assert_eq!(left_for_clients(1024), 512);
        assert_eq!(left_for_clients(100_000), 99_488);
        assert_eq!(left_for_clients(0), 0);
    }
}
