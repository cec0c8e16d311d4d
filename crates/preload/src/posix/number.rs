//! System calls by number, through libc's `syscall`.
//!
//! A program that makes a call by its number means the call: it is served by the body of the wrapper that has the
//! call's name, with the kernel itself behind it in libc's place. Libraries that patch the first instructions of `mmap`
//! and its relations (UCX, Open MPI's patcher) come this way, too: their hook makes the call by `syscall`, so what they
//! patch, ours or libc's, ends here. For their sake nothing on this way calls the symbol of a wrapper.
//!
//! `table::NUMBERS` names the calls. A program with the instruction itself in its code is out of reach.

use super::kernel::call_kernel;
use super::libaio::io_submit;
use super::{data, descriptor, exec, extent, map, names, open, status};
use crate::process;
use crate::redirect;
use libc::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use libc::{gid_t, iovec, mode_t, off_t, size_t, ssize_t, timespec, uid_t};

/// The arguments of a call, and a zero for what a wrapper takes and the call does not.
type Words = [c_long; 7];
const ZERO: usize = 6;

/// An argument or a result as a register holds it.
trait Word {
    fn of(word: c_long) -> Self;
    fn word(self) -> c_long;
}

macro_rules! words {
    ($($type:ty),*) => {$(
        impl Word for $type {
            fn of(word: c_long) -> Self {
                word as Self
            }
            fn word(self) -> c_long {
                self as c_long
            }
        }
    )*};
}
words!(c_int, c_uint, c_long, c_ulong, isize, usize);

impl<T> Word for *const T {
    fn of(word: c_long) -> Self {
        std::ptr::with_exposed_provenance(word as usize)
    }
    fn word(self) -> c_long {
        self.expose_provenance() as c_long
    }
}

impl<T> Word for *mut T {
    fn of(word: c_long) -> Self {
        std::ptr::with_exposed_provenance_mut(word as usize)
    }
    fn word(self) -> c_long {
        self.expose_provenance() as c_long
    }
}

/// `by_number!(number, words; NUMBER => wrapper(argument: type = place, ...) -> type; ...)` is the wrapper's result for
/// its number, with each argument taken from its place in the words; `None` for other numbers.
macro_rules! by_number {
    ($number:expr, $words:expr; $(
        $(#[$condition:meta])* $call:ident => $module:ident::$wrapper:ident ($($arg:ident: $type:ty = $place:expr),*) -> $result:ty;
    )*) => {
        match $number {
            $($(#[$condition])* libc::$call => {
                unsafe extern "C" fn kernel($($arg: $type),*) -> $result {
                    let mut words: Words = [0; 7];
                    $(words[$place] = Word::word($arg);)*
                    // SAFETY: the promise made to `syscall`.
                    Word::of(unsafe { answer(libc::$call, &words) })
                }
                type Wrapper = $module::$wrapper;
                // SAFETY: the promise made to `syscall`.
                Some(Word::word(unsafe { Wrapper::over(kernel, $(Word::of($words[$place])),*) }))
            })*
            _ => None,
        }
    };
}

/// # Safety
/// As of libc's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    let words = [first, second, third, fourth, fifth, sixth, 0];
    // SAFETY: the caller's promise.
    unsafe {
        if is_rare(number) {
            return answer(number, &words);
        }
        by_name(number, &words)
            .or_else(|| by_descriptor(number, &words))
            .or_else(|| special(number, &words))
            .unwrap_or_else(|| answer(number, &words))
    }
}

/// Whether the call is none of the table's, as nearly all are that come this way (`futex`, `gettid`).
#[inline(always)]
fn is_rare(number: c_long) -> bool {
    matches!(number, libc::SYS_futex | libc::SYS_gettid | libc::SYS_tgkill | libc::SYS_getrandom | libc::SYS_membarrier)
}

/// Calls on descriptors.
///
/// # Safety
/// As of `syscall`.
unsafe fn by_descriptor(number: c_long, words: &Words) -> Option<c_long> {
    by_number! { number, words;
        SYS_read => data::read(fd: c_int = 0, buffer: *mut c_void = 1, count: size_t = 2) -> ssize_t;
        SYS_write => data::write(fd: c_int = 0, buffer: *const c_void = 1, count: size_t = 2) -> ssize_t;
        SYS_pread64 =>
            data::pread(fd: c_int = 0, buffer: *mut c_void = 1, count: size_t = 2, offset: off_t = 3) -> ssize_t;
        SYS_pwrite64 =>
            data::pwrite(fd: c_int = 0, buffer: *const c_void = 1, count: size_t = 2, offset: off_t = 3) -> ssize_t;
        SYS_readv => data::readv(fd: c_int = 0, vector: *const iovec = 1, count: c_int = 2) -> ssize_t;
        SYS_writev => data::writev(fd: c_int = 0, vector: *const iovec = 1, count: c_int = 2) -> ssize_t;
        // The offset's upper half, the fifth word, is for 32 bits.
        SYS_preadv =>
            data::preadv(fd: c_int = 0, vector: *const iovec = 1, count: c_int = 2, offset: off_t = 3) -> ssize_t;
        SYS_pwritev =>
            data::pwritev(fd: c_int = 0, vector: *const iovec = 1, count: c_int = 2, offset: off_t = 3) -> ssize_t;
        SYS_preadv2 => data::preadv2(
            fd: c_int = 0, vector: *const iovec = 1, count: c_int = 2, offset: off_t = 3, flags: c_int = 5) -> ssize_t;
        SYS_pwritev2 => data::pwritev2(
            fd: c_int = 0, vector: *const iovec = 1, count: c_int = 2, offset: off_t = 3, flags: c_int = 5) -> ssize_t;
        SYS_lseek => data::lseek(fd: c_int = 0, offset: off_t = 1, whence: c_int = 2) -> off_t;
        SYS_fsync => extent::fsync(fd: c_int = 0) -> c_int;
        SYS_fdatasync => extent::fdatasync(fd: c_int = 0) -> c_int;
        SYS_sync_file_range => extent::sync_file_range(
            fd: c_int = 0, offset: off_t = 1, bytes: off_t = 2, flags: c_uint = 3) -> c_int;
        SYS_syncfs => extent::syncfs(fd: c_int = 0) -> c_int;
        SYS_ftruncate => extent::ftruncate(fd: c_int = 0, length: off_t = 1) -> c_int;
        SYS_fallocate =>
            extent::fallocate(fd: c_int = 0, mode: c_int = 1, offset: off_t = 2, bytes: off_t = 3) -> c_int;
        SYS_readahead => extent::readahead(fd: c_int = 0, offset: off_t = 1, bytes: size_t = 2) -> ssize_t;
        SYS_copy_file_range => extent::copy_file_range(from: c_int = 0, from_at: *mut off_t = 1, to: c_int = 2,
            to_at: *mut off_t = 3, bytes: size_t = 4, flags: c_uint = 5) -> ssize_t;
        SYS_sendfile => extent::sendfile(
            to: c_int = 0, from: c_int = 1, from_at: *mut off_t = 2, bytes: size_t = 3) -> ssize_t;
        SYS_splice => extent::splice(from: c_int = 0, from_at: *mut off_t = 1, to: c_int = 2, to_at: *mut off_t = 3,
            bytes: size_t = 4, flags: c_uint = 5) -> ssize_t;
        SYS_close => descriptor::close(fd: c_int = 0) -> c_int;
        SYS_close_range => descriptor::close_range(first: c_uint = 0, last: c_uint = 1, flags: c_int = 2) -> c_int;
        SYS_dup => descriptor::dup(from: c_int = 0) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_dup2 => descriptor::dup2(from: c_int = 0, to: c_int = 1) -> c_int;
        SYS_dup3 => descriptor::dup3(from: c_int = 0, to: c_int = 1, flags: c_int = 2) -> c_int;
        SYS_fcntl => descriptor::fcntl(fd: c_int = 0, command: c_int = 1, argument: usize = 2) -> c_int;
        SYS_ioctl => descriptor::ioctl(fd: c_int = 0, request: c_ulong = 1, argument: *mut c_void = 2) -> c_int;
        SYS_fstat => status::fstat(fd: c_int = 0, answer: *mut libc::stat = 1) -> c_int;
        SYS_fstatfs => status::fstatfs(fd: c_int = 0, answer: *mut libc::statfs = 1) -> c_int;
        SYS_fchmod => names::fchmod(fd: c_int = 0, mode: mode_t = 1) -> c_int;
        SYS_fchown => names::fchown(fd: c_int = 0, user: uid_t = 1, group: gid_t = 2) -> c_int;
        SYS_mmap => map::mmap(address: *mut c_void = 0, length: size_t = 1, protection: c_int = 2, flags: c_int = 3,
            fd: c_int = 4, offset: off_t = 5) -> *mut c_void;
        SYS_mremap => map::mremap(address: *mut c_void = 0, length: size_t = 1, wanted: size_t = 2, flags: c_int = 3,
            to: *mut c_void = 4) -> *mut c_void;
        SYS_setrlimit => extent::setrlimit(resource: c_int = 0, limit: *const libc::rlimit = 1) -> c_int;
        SYS_prlimit64 => extent::prlimit(process: libc::pid_t = 0, resource: c_int = 1,
            limit: *const libc::rlimit = 2, before: *mut libc::rlimit = 3) -> c_int;
    }
}

/// Calls on paths.
///
/// # Safety
/// As of `syscall`.
unsafe fn by_name(number: c_long, words: &Words) -> Option<c_long> {
    by_number! { number, words;
        #[cfg(target_arch = "x86_64")]
        SYS_open => open::open(path: *const c_char = 0, flags: c_int = 1, mode: mode_t = 2) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_creat => open::creat(path: *const c_char = 0, mode: mode_t = 1) -> c_int;
        SYS_openat => open::openat(
            directory: c_int = 0, path: *const c_char = 1, flags: c_int = 2, mode: mode_t = 3) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_stat => status::stat(path: *const c_char = 0, answer: *mut libc::stat = 1) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_lstat => status::lstat(path: *const c_char = 0, answer: *mut libc::stat = 1) -> c_int;
        SYS_newfstatat => status::fstatat(
            directory: c_int = 0, path: *const c_char = 1, answer: *mut libc::stat = 2, flags: c_int = 3) -> c_int;
        SYS_statx => status::statx(directory: c_int = 0, path: *const c_char = 1, flags: c_int = 2, mask: c_uint = 3,
            answer: *mut libc::statx = 4) -> c_int;
        SYS_statfs => status::statfs(path: *const c_char = 0, answer: *mut libc::statfs = 1) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_unlink => names::unlink(path: *const c_char = 0) -> c_int;
        SYS_unlinkat => names::unlinkat(directory: c_int = 0, path: *const c_char = 1, flags: c_int = 2) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_rename => names::rename(from: *const c_char = 0, to: *const c_char = 1) -> c_int;
        SYS_renameat => names::renameat(from_directory: c_int = 0, from: *const c_char = 1, to_directory: c_int = 2,
            to: *const c_char = 3) -> c_int;
        SYS_renameat2 => names::renameat2(from_directory: c_int = 0, from: *const c_char = 1, to_directory: c_int = 2,
            to: *const c_char = 3, flags: c_uint = 4) -> c_int;
        SYS_linkat => names::linkat(from_directory: c_int = 0, from: *const c_char = 1, to_directory: c_int = 2,
            to: *const c_char = 3, flags: c_int = 4) -> c_int;
        SYS_inotify_add_watch => names::inotify_add_watch(instance: c_int = 0, path: *const c_char = 1, mask: u32 = 2) -> c_int;
        SYS_truncate => names::truncate(path: *const c_char = 0, length: off_t = 1) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_chmod => names::chmod(path: *const c_char = 0, mode: mode_t = 1) -> c_int;
        SYS_fchmodat => names::fchmodat(
            directory: c_int = 0, path: *const c_char = 1, mode: mode_t = 2, flags: c_int = ZERO) -> c_int;
        // The libc crate does not name it for aarch64.
        #[cfg(target_arch = "x86_64")]
        SYS_fchmodat2 => names::fchmodat(
            directory: c_int = 0, path: *const c_char = 1, mode: mode_t = 2, flags: c_int = 3) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_chown => names::chown(path: *const c_char = 0, user: uid_t = 1, group: gid_t = 2) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_lchown => names::lchown(path: *const c_char = 0, user: uid_t = 1, group: gid_t = 2) -> c_int;
        SYS_fchownat => names::fchownat(directory: c_int = 0, path: *const c_char = 1, user: uid_t = 2,
            group: gid_t = 3, flags: c_int = 4) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_utime => names::utime(path: *const c_char = 0, times: *const libc::utimbuf = 1) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_utimes => names::utimes(path: *const c_char = 0, times: *const libc::timeval = 1) -> c_int;
        #[cfg(target_arch = "x86_64")]
        SYS_futimesat =>
            names::futimesat(directory: c_int = 0, path: *const c_char = 1, times: *const libc::timeval = 2) -> c_int;
        SYS_utimensat => names::utimensat(
            directory: c_int = 0, path: *const c_char = 1, times: *const timespec = 2, flags: c_int = 3) -> c_int;
        SYS_execve => exec::execve(path: *const c_char = 0, arguments: *const *const c_char = 1,
            environment: *const *const c_char = 2) -> c_int;
        SYS_execveat => exec::execveat(directory: c_int = 0, path: *const c_char = 1,
            arguments: *const *const c_char = 2, environment: *const *const c_char = 3, flags: c_int = 4) -> c_int;
    }
}

/// Calls that have no wrapper of their name, and rings.
///
/// # Safety
/// As of `syscall`.
unsafe fn special(number: c_long, words: &Words) -> Option<c_long> {
    // SAFETY: the caller's promise.
    unsafe {
        match number {
            libc::SYS_openat2 => {
                let (path, how) = (Word::of(words[1]), Word::of(words[2]));
                Some(open::openat2(words[0] as c_int, path, how, words[3] as size_t, openat2_by_kernel).word())
            }
            libc::SYS_io_uring_setup if redirect::is_on() && !stripewise_store::client::is_making_ring() => {
                Some(result_of(-c_long::from(libc::ENOSYS)))
            }
            libc::SYS_io_submit => Some(result_of(io_submit(Word::of(words[0]), words[1], Word::of(words[2])).into())),
            libc::SYS_sync => {
                extent::before_sync();
                None
            }
            libc::SYS_exit_group => {
                process::children::ends();
                process::leave();
                None
            }
            _ => None,
        }
    }
}

/// # Safety
/// As of the call.
unsafe fn openat2_by_kernel(directory: c_int, path: *const c_char, how: *const libc::open_how, bytes: size_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(libc::SYS_openat2, &[directory.word(), path.word(), how.word(), bytes.word(), 0, 0, 0]) as c_int }
}

/// The kernel's answer as libc gives it.
///
/// # Safety
/// As the call asks for.
unsafe fn answer(number: c_long, words: &Words) -> c_long {
    let [first, second, third, fourth, fifth, sixth, _] = *words;
    // SAFETY: the caller's promise.
    result_of(unsafe { call_kernel(number, [first, second, third, fourth, fifth, sixth]) })
}

fn result_of(answer: c_long) -> c_long {
    if (-4095..0).contains(&answer) {
        process::set_errno(-answer as c_int);
        return -1;
    }
    answer
}
