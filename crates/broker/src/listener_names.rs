//! Names of listeners that live as long as the process: every identity has one, and every message is judged by it, so it is
//! compared and copied, never allocated. A configuration names a few dozen at most; one that was named is not forgotten.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::inbox::lock;

static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The one copy of this name.
pub fn listener_name(name: &str) -> &'static str {
    let mut names = lock(&NAMES);
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.into());
    names.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let (first, second) = (listener_name("factory"), listener_name(&String::from("factory")));
        assert!(std::ptr::eq(first, second));
        assert_ne!(first, listener_name("office"));
    }
}
