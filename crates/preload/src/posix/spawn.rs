//! New processes and the end of this one.
//!
//! `posix_spawn`, `system`, `popen` and the variadic `execl` need no wrapper: the new program loads this library itself and finds its
//! descriptors at their first use. The other `exec`s only cut the trace to its length first. A child made by `clone` or `_Fork` finds the page of `process` zeroed. A child of `vfork` is told apart by its number.

use crate::process;
use crate::real::interpose;
use crate::redirect;
use libc::{c_char, c_int, pid_t};

/// Before this process becomes another program; if that fails, the trace goes on.
fn leave() {
    if process::is_active() {
        process::at_end();
    }
}

type Strings = *const *const c_char;

interpose! {
    fn fork[__fork] () -> pid_t |real| {
        if !process::is_active() {
            return real();
        }
        redirect::before_fork();
        let child = real();
        let _errno = process::Errno::keep();
        if child == 0 {
            process::begin_child();
        } else {
            redirect::after_fork_in_parent();
        }
        child
    }

    fn _exit[_Exit] (status: c_int) -> ! |real| {
        leave();
        real(status)
    }

    fn execve[] (path: *const c_char, arguments: Strings, environment: Strings) -> c_int |real| {
        leave();
        real(path, arguments, environment)
    }

    fn execv[] (path: *const c_char, arguments: Strings) -> c_int |real| {
        leave();
        real(path, arguments)
    }

    fn execvp[] (name: *const c_char, arguments: Strings) -> c_int |real| {
        leave();
        real(name, arguments)
    }

    fn execvpe[] (name: *const c_char, arguments: Strings, environment: Strings) -> c_int |real| {
        leave();
        real(name, arguments, environment)
    }

    fn fexecve[] (fd: c_int, arguments: Strings, environment: Strings) -> c_int |real| {
        leave();
        real(fd, arguments, environment)
    }

    fn execveat[] (
        directory: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int,
    ) -> c_int |real| {
        leave();
        real(directory, path, arguments, environment, flags)
    }
}
