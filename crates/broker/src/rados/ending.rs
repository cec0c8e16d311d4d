//! How a process ends that has connected.
//!
//! librados has threads as long as a connection is open, and a process may end with one. Its own data are destroyed then by what C++ has registered for
//! the exit, and a thread that still reads them aborts the process: whatever it did, its status is lost. So it ends before that.

use libc::{c_int, c_void};
use std::sync::Once;

unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn end(status: c_int, _: *mut c_void) {
    // SAFETY: writes what C's streams hold, and ends the process as it is.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(status)
    }
}

/// Called after the first connection: functions for the exit run in reverse order, so this one comes before those of all that librados has made by then.
pub(super) fn skip_destructors() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function and its null argument are there as long as the process is. Without memory it is as before.
        let _ = unsafe { on_exit(end, std::ptr::null_mut()) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// In the child.
    const CHILD: &str = "STRIPEWISE_TEST_ENDING";

    extern "C" fn destructor() {
        // SAFETY: ends the process with a status that the test does not expect.
        unsafe { libc::_exit(99) }
    }

    #[test]
    fn ending_child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        // SAFETY: the function stays.
        assert_eq!(unsafe { libc::atexit(destructor) }, 0);
        skip_destructors();
        std::process::exit(7);
    }

    #[test]
    fn a_process_ends_with_its_status_and_without_destructors() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "rados::ending::tests::ending_child"]).env(CHILD, "1");
        assert_eq!(child.output().unwrap().status.code(), Some(7));
    }
}
