//! The limit on the size of files (`RLIMIT_FSIZE`), where it is held against files that are the library's own.
//!
//! The kernel counts it for each file and sends SIGXFSZ, which kills a program that is far below its limit: memory that is shared with the broker and logs of
//! many files' fragments are longer than the program's files. What needs such a file asks first ([`allows`]), or has the limit out of the way for the time of
//! one call ([`with_size`]).

use crate::lock::Lock;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// Guards the moment in which the soft limit is raised; taken across `fork`, so that no child inherits a raised one.
static RAISING: Lock<()> = Lock::new(());
/// Odd while it is raised.
static RAISES: AtomicU32 = AtomicU32::new(0);

/// Whether the soft limit lets a file reach to `end_bytes`. False as well while another thread has raised it: it may be lowered before the caller writes.
#[must_use]
pub fn allows(end_bytes: u64) -> bool {
    let before = RAISES.load(SeqCst);
    let is_allowed = reaches(getrlimit(Resource::Fsize).current, end_bytes);
    is_allowed && before & 1 == 0 && RAISES.load(SeqCst) == before
}

fn reaches(limit: Option<u64>, end_bytes: u64) -> bool {
    limit.is_none_or(|most| end_bytes <= most)
}

/// Does `action`, which makes or writes a file of the library's own up to `end_bytes`, with the soft limit raised where it is lower.
///
/// # Errors
///
/// `FBIG` without a try where the hard limit is lower, otherwise the error of `action`.
pub fn with_size<T>(end_bytes: u64, action: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    // Also where the limit is high enough: another thread may have raised it, and lower it in the midst of this.
    let _raising = RAISING.lock();
    let limits = getrlimit(Resource::Fsize);
    if reaches(limits.current, end_bytes) {
        return action();
    }
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    if !reaches(limits.maximum, end_bytes) {
        return Err(Errno::FBIG);
    }
    RAISES.fetch_or(1, SeqCst);
    let result = match setrlimit(Resource::Fsize, raised) {
        Ok(()) => {
            let result = action();
            // The program may have set another one meanwhile.
            if getrlimit(Resource::Fsize) == raised {
                let _ = setrlimit(Resource::Fsize, limits);
            }
            result
        }
        Err(_) => Err(Errno::FBIG),
    };
    RAISES.fetch_add(1, SeqCst);
    result
}

pub(crate) fn take_for_fork() {
    RAISING.take_for_fork();
}

pub(crate) fn free_after_fork() {
    RAISING.free_after_fork();
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::shared::agent_lane::AgentLane;

    /// Runs the test of this name in a process of its own: the limit is the process's, and its end may be a signal.
    pub(crate) fn in_child(name: &str, act: impl FnOnce()) {
        const CHILD: &str = "STRIPEWISE_TEST_OF_SIZE_LIMIT";
        if std::env::var_os(CHILD).is_some() {
            return act();
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
        let output = child.output().unwrap();
        assert!(output.status.success(), "{:?}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "it ran");
    }

    fn limit(current: u64, maximum: Option<u64>) -> Rlimit {
        let limits = Rlimit { current: Some(current), maximum };
        setrlimit(Resource::Fsize, limits).unwrap();
        limits
    }

    #[test]
    fn memory_that_is_shared_with_the_agent_is_no_file_of_the_program() {
        in_child("size_limit::tests::memory_that_is_shared_with_the_agent_is_no_file_of_the_program", || {
            let hard = getrlimit(Resource::Fsize).maximum;
            // Not even the one page that is written.
            for soft in [1 << 20, 0] {
                let limits = limit(soft, hard);
                AgentLane::make().expect("a limit far below the lane's length");
                assert_eq!(getrlimit(Resource::Fsize), limits);
            }
            let limits = limit(1 << 20, Some(AgentLane::BYTES as u64 - 1));
            assert_eq!(AgentLane::make().err(), Some(Errno::FBIG), "and no signal");
            assert_eq!(getrlimit(Resource::Fsize), limits);
        });
    }

    #[test]
    fn the_soft_limit_is_out_of_the_way_for_one_call_only() {
        in_child("size_limit::tests::the_soft_limit_is_out_of_the_way_for_one_call_only", || {
            let hard = getrlimit(Resource::Fsize).maximum;
            let limits = limit(1 << 20, hard);
            assert!(allows(1 << 20) && !allows((1 << 20) + 1));
            let file = tempfile::tempfile().unwrap();
            let write = || rustix::io::pwrite(&file, &[1; 16], 2 << 20);
            let looked = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                let looking = scope.spawn(|| {
                    looked.wait();
                    let is_allowed = allows(1);
                    looked.wait();
                    is_allowed
                });
                let written = with_size((2 << 20) + 16, || {
                    looked.wait();
                    looked.wait();
                    write()
                });
                assert_eq!(written, Ok(16));
                assert!(!looking.join().unwrap(), "the limit that it sees is not the program's");
            });
            assert_eq!(getrlimit(Resource::Fsize), limits);
            assert!(allows(1 << 20) && !allows(2 << 20));
            // The program's own change is kept.
            let others = Rlimit { current: Some(3 << 20), maximum: hard };
            let set = with_size(2 << 20, || setrlimit(Resource::Fsize, others));
            assert_eq!((set, getrlimit(Resource::Fsize)), (Ok(()), others));
        });
    }
}
