//! Executing managed files, and programs that this library cannot go with.
//!
//! The kernel would execute the stub. So a managed script is executed as the kernel executes scripts: its interpreter gets the script's own path, and
//! reads it through this library. A managed program is executed from an [`Image`] of its bytes, by the path of a descriptor. Neither changes anything
//! in the process if the `exec` fails.
//!
//! All of it may happen in a child of `vfork`, in its parent's memory: lines and arguments lie on the stack, and what needs the client is done by a
//! helper process. What is allocated and lost when such a child becomes another program stays with its parent.

mod chain;
mod environment;
pub(crate) mod image;
mod obstacle;

use crate::managed::link::{DescriptorPath, descriptor_path};
use crate::process;
use chain::Chain;
use libc::{c_char, c_int};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ffi::CStr;

pub(crate) use chain::is_managed_path;
pub(crate) use obstacle::is_managed;

/// A list of strings that ends with a null pointer, as `argv` is.
pub(crate) type Strings = *const *const c_char;

/// What to execute.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    /// None: what the program named.
    pub(crate) instead: Option<Instead<'a>>,
    pub(crate) environment: Strings,
}

/// What to execute instead of what the program named.
#[derive(Clone, Copy)]
pub(crate) struct Instead<'a> {
    pub(crate) path: &'a CStr,
    pub(crate) arguments: Strings,
}

/// Reads the environment.
pub(crate) fn prepare() {
    obstacle::prepare();
    environment::prepare();
}

/// Who becomes the new program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The calling process.
    Caller,
    /// A child that libc makes, which may close descriptors of ours before; `leads` says whether its own will lead to managed files.
    Child { leads: bool },
}

/// What a program is started with.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) path: &'a CStr,
    pub(crate) arguments: Strings,
    pub(crate) environment: Strings,
}

/// Starts a program: `then` does it and returns the errno, 0 for success. Returns that errno, or why the program is not to be started.
///
/// # Safety
/// The lists are lists of strings.
pub(crate) unsafe fn start(given: Given<'_>, who: Who, mut then: impl FnMut(Start<'_>) -> c_int) -> c_int {
    let errno = process::Errno::keep();
    let Some(inside) = process::Inside::enter() else {
        return then(Start { instead: None, environment: given.environment });
    };
    let mut chain = Chain::new();
    let followed = chain.follow(given.path);
    // SAFETY: the caller's promise.
    let allowed = followed.and_then(|()| unsafe { obstacle::check(&chain, given, who) });
    // A child of `vfork` that becomes another program leaves no thread inside.
    drop(inside);
    drop(errno);
    if let Err(refused) = allowed {
        return refused.raw_os_error();
    }
    // SAFETY: the caller's promise.
    unsafe {
        environment::with_library(given.environment, |environment| {
            let mut then = |instead: Option<Instead<'_>>| then(Start { instead, environment });
            if chain.is_managed() {
                chain.with_arguments(given, |arguments| execute(&chain, given, who, arguments, &mut then))
            } else {
                then(None)
            }
        })
    }
}

fn execute(
    chain: &Chain,
    given: Given<'_>,
    who: Who,
    arguments: Strings,
    then: &mut impl FnMut(Option<Instead<'_>>) -> c_int,
) -> c_int {
    let Some(image) = chain.image() else {
        let path = chain.last_interpreter().unwrap_or(given.path);
        return then(Some(Instead { path, arguments }));
    };
    let mut failed = 0;
    for descriptor in image.descriptors() {
        let path = match who {
            Who::Caller => descriptor_path(None, descriptor.as_raw_fd()),
            Who::Child { .. } => of_parent(descriptor),
        };
        failed = then(Some(Instead { path: path.as_c_str(), arguments }));
        // A child forked by another thread just then holds the copy open for writing until its own `exec`.
        if failed != libc::ETXTBSY {
            break;
        }
    }
    failed
}

/// A path of a descriptor of this process that its child can use even when it has closed its own duplicate.
fn of_parent(descriptor: BorrowedFd<'_>) -> DescriptorPath {
    // SAFETY: only asks.
    let is_open_to_children = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) } == 1;
    let process = is_open_to_children.then(|| rustix::process::getpid().as_raw_nonzero().get());
    descriptor_path(process, descriptor.as_raw_fd())
}

/// How many strings a list has.
///
/// # Safety
/// `list` is null or a list of strings.
pub(crate) unsafe fn count(list: Strings) -> usize {
    if list.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise: read up to the null pointer.
    (0..).take_while(|index| unsafe { !(*list.add(*index)).is_null() }).count()
}

/// Room for `count` pointers, all null; on the stack unless there are uncommonly many.
pub(crate) fn with_pointers<T>(count: usize, then: impl FnOnce(&mut [*const c_char]) -> T) -> T {
    const ON_STACK: usize = 512;
    if count <= ON_STACK {
        then(&mut [std::ptr::null(); ON_STACK][..count])
    } else {
        then(&mut vec![std::ptr::null(); count])
    }
}
