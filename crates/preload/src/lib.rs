//! The library under an unmodified program: it takes the place of libc's file calls and of MPI-IO, records what the
//! program does (*capture*) and sends what concerns managed files to their servers (*redirection*).
//!
//! | room | what is in it |
//! |---|---|
//! | `table` | every libc symbol that takes a path or a descriptor: served, refused or harmless; `docs/interposer.md` says the same |
//! | `real` | the functions behind ours, and the macro by which a call is wrapped |
//! | `allocator` | the library's own memory, apart from the program's `malloc` |
//! | `thread`, `log`, `environment`, `mapped`, `borrow` | the calling thread, lines for a person, variables, tables in memory of their own, descriptors as programs pass them |
//! | `process` | start, fork, exit; who takes part in these stands in this file |
//! | `managed` | managed files that this process has open, their stubs, and the client |
//! | `descriptors` | what each descriptor is: one word each |
//! | `capture` | records of calls, through `trace`'s recorder |
//! | `posix` | the wrappers of libc, by kind of call: each decides between libc, record and redirection |
//! | `redirect` | what a call means on a managed file |
//! | `mpi` | MPI-IO, for every MPI at once |
//!
//! To wrap another call: name it in `table`, write its function with `interpose!` in the room of its kind.
//!
//! # Rules on the way of a call
//! A call on a descriptor that does not concern us costs two loads from `descriptors`. Nothing on that way locks,
//! allocates or uses `std::io`. `errno` is what libc would leave. The library's own I/O is raw system calls
//! (`rustix`), so it never meets itself; what the standard library does inside (allocation, an occasional file) finds
//! `process::Inside` set and goes straight to libc. Values of the thread have no destructor, because threads write
//! from key destructors after ours would have run. A panic cannot cross into the program: `extern "C"` aborts.
#![deny(clippy::print_stdout)]

mod allocator;
mod borrow;
mod capture;
mod descriptors;
mod environment;
mod log;
mod managed;
mod mapped;
mod mpi;
mod posix;
mod process;
mod real;
mod redirect;
#[allow(dead_code, unreachable_pub, reason = "the tests and the documentation read it")]
mod table;
mod thread;

/// Who does what in the life of the process, in this order. The modules use `process`, so it cannot name them.
static LIFE: process::Life = process::Life {
    prepare: || {
        // First: what is captured or managed is known by that table alone.
        if !descriptors::prepare() {
            return false;
        }
        let (captures, redirects) = (capture::prepare(), managed::prepare());
        if redirects {
            stripewise_store::copies::expect_calls();
            redirect::limit::refresh();
        }
        redirect::exec::prepare();
        captures || redirects
    },
    begin: capture::start,
    adopt_streams: || {
        posix::stdio::watch_standard_streams();
        redirect::stdio::adopt_standard_streams();
    },
    before_fork: || {
        managed::before_fork();
        allocator::before_fork();
    },
    after_fork_in_parent: |child| {
        allocator::after_fork();
        managed::after_fork_in_parent(child);
    },
    free_memory: allocator::after_fork,
    forget_parent: descriptors::forget_captured,
    after_fork_in_child: managed::after_fork_in_child,
    leave_out: || {
        capture::leave_out();
        descriptors::forget_all();
    },
    end: || {
        redirect::closing::before_end();
        if capture::recorder().is_some() {
            posix::aio::record_pending();
            posix::stdio::settle_all();
            capture::finish();
        }
    },
};

/// Called by another copy of the store's code in this process.
#[unsafe(no_mangle)]
extern "C" fn stripewise_has_other_copy() {
    stripewise_store::copies::note_other();
}
