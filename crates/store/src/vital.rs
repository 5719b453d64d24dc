//! A guard for threads without which the process must not go on. A shard that panicked would leave its clients and its
//! inbox behind, and a store that panicked would never confirm anything again, while everything looks as if it went on
//! (F126). Whoever supervises the process restarts one that has ended; nobody restarts one that merely does nothing.

/// Ends the process if the thread that has it unwinds. The panic hook has said why by then.
#[derive(Debug)]
#[must_use = "it guards for as long as it is kept"]
pub struct VitalThread {
    _only_made_here: (),
}

impl VitalThread {
    /// For the thread that calls this, until it is dropped.
    pub fn guard() -> Self {
        Self { _only_made_here: () }
    }
}

impl Drop for VitalThread {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    /// Runs this test again as a process of its own, which must not live on.
    #[test]
    fn f126_a_vital_thread_that_panics_takes_the_process_with_it() {
        const CHILD: &str = "TIDEGATE_TEST_VITAL_CHILD";
        if std::env::var_os(CHILD).is_some() {
            let thread = std::thread::spawn(|| {
                let _vital = VitalThread::guard();
                panic!("injected");
            });
            let _ = thread.join();
            // Reached by a process that went on without its thread.
            std::process::exit(0);
        }
        let program = std::env::current_exe().unwrap();
        let name = "vital::tests::f126_a_vital_thread_that_panics_takes_the_process_with_it";
        let ended = Command::new(program).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert_eq!(ended.status.signal(), Some(6), "{ended:?}");
    }

    #[test]
    fn whoever_ends_in_good_order_takes_nothing_with_it() {
        std::thread::spawn(|| drop(VitalThread::guard())).join().unwrap();
    }
}
