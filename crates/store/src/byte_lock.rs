//! Record locks of one byte.

#![allow(unsafe_code, reason = "locks are set by system calls")]

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// Sets a lock of the `kind` on the byte `at`, or asks for one, as `command` says; the lock as the kernel answers.
pub(crate) fn byte_lock(file: BorrowedFd<'_>, at: i64, command: i32, kind: i32) -> Result<libc::flock, Errno> {
    // SAFETY: all-zero is a valid flock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = at;
    lock.l_len = 1;
    // SAFETY: the descriptor is open and `lock` is a valid flock for the time of the call.
    let result = unsafe { raw_fcntl(file.as_raw_fd(), command, &mut lock) };
    if result == 0 { Ok(lock) } else { Err(Errno::from_raw_os_error(-result as i32)) }
}

/// `fcntl` by raw system call: the libc symbol is one that the preload library defines itself.
#[cfg(target_arch = "x86_64")]
unsafe fn raw_fcntl(descriptor: i32, command: i32, lock: *mut libc::flock) -> isize {
    let result: isize;
    // SAFETY: the system call's own contract; rcx and r11 are clobbered by the instruction.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") libc::SYS_fcntl as isize => result, in("rdi") descriptor as isize,
            in("rsi") command as isize, in("rdx") lock, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

#[cfg(target_arch = "aarch64")]
unsafe fn raw_fcntl(descriptor: i32, command: i32, lock: *mut libc::flock) -> isize {
    let result: isize;
    // SAFETY: the system call's own contract.
    unsafe {
        std::arch::asm!("svc 0", in("x8") libc::SYS_fcntl as isize, inlateout("x0") descriptor as isize => result,
            in("x1") command as isize, in("x2") lock, options(nostack));
    }
    result
}
