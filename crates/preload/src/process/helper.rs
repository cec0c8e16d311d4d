//! A process that does for a child of `vfork` what needs the client.
//!
//! Such a child shares all memory with its parent but not its descriptors: what it opened would stand in the client's tables under numbers that are
//! something else in the parent. So it makes a helper, a true fork with memory of its own, and waits for it. The helper shares no change with anybody
//! but through descriptors that were open before, and what the client notes of the fork is gone again when the helper has begun.

use super::{NoSignals, before_fork, begin_child, end_fork};
use crate::LIFE;
use libc::iovec;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::{c_int, c_long};
use stripewise_store::client::Child;

/// As [`run`], of work that answers a number and fills these buffers, from the first on.
///
/// # Safety
/// The program's buffers, to be written.
pub(crate) unsafe fn run_into(buffers: &[iovec], work: impl FnOnce() -> Result<i64, Errno>) -> Result<i64, Errno> {
    const ANSWER: usize = size_of::<i64>();
    let bytes: usize = buffers.iter().map(|buffer| buffer.iov_len).sum();
    let length = bytes.checked_add(ANSWER).ok_or(Errno::INVAL)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping, ended below; what is copied lies within it and within the buffers.
    unsafe {
        let shared = rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::SHARED)?;
        let data = shared.cast::<u8>().add(ANSWER);
        let over = |count: usize, each: &dyn Fn(*mut u8, *mut u8, usize)| {
            let mut at = 0;
            for buffer in buffers {
                let part = buffer.iov_len.min(count - at);
                each(buffer.iov_base.cast(), data.add(at), part);
                at += part;
            }
        };
        let result = run(|| {
            let answer = work()?;
            shared.cast::<i64>().write(answer);
            let count = usize::try_from(answer).unwrap_or(0).min(bytes);
            over(count, &|buffer, shared, part| std::ptr::copy_nonoverlapping(buffer, shared, part));
            Ok(())
        })
        .map(|()| {
            let answer = shared.cast::<i64>().read();
            let count = usize::try_from(answer).unwrap_or(0).min(bytes);
            over(count, &|buffer, shared, part| std::ptr::copy_nonoverlapping(shared, buffer, part));
            answer
        });
        let _ = rustix::mm::munmap(shared, length);
        result
    }
}

/// Does `work` in a helper and returns its answer.
pub(crate) fn run(work: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    // A handler of the program's must not run twice, once on each side.
    let _signals = NoSignals::begin();
    before_fork();
    // No exit signal: the program that becomes of the child must not hear of a child that it does not know. Not `fork`: the handlers that the program
    // registered are for children that it asked for.
    // SAFETY: without shared memory and without a stack given this is `fork`; our locks are held, and freed on both sides.
    let child =
        unsafe { libc::syscall(libc::SYS_clone, 0 as c_long, 0 as c_long, 0 as c_long, 0 as c_long, 0 as c_long) };
    if child == 0 {
        (LIFE.leave_out)();
        begin_child();
        let status = work().err().map_or(0, Errno::raw_os_error);
        // SAFETY: ends the helper at once, without what the program registered for its exit.
        unsafe { libc::syscall(libc::SYS_exit_group, c_long::from(status)) };
    }
    let failed = super::errno();
    end_fork(Child::Helper);
    if child < 0 {
        return Err(Errno::from_raw_os_error(failed));
    }
    let mut status: c_int = 0;
    // SAFETY: plain memory of this frame.
    while unsafe { libc::waitpid(child as libc::pid_t, &mut status, libc::__WALL) } < 0 {
        if super::errno() != libc::EINTR {
            return Err(Errno::CHILD);
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, errno) => Err(Errno::from_raw_os_error(errno)),
        (false, _) => Err(Errno::IO),
    }
}
