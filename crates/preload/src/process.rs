//! What this process is and what its environment asks for.
//!
//! Everything starts at the first need or at the library's constructor, whichever comes first. What belongs to one
//! process only (its number, its trace) lies in memory that a forked child finds zeroed, so that a child is noticed
//! even when it was made by a raw system call. A child of `vfork` shares all memory with its parent: it is told apart
//! by its process number, and what it does to its own descriptors changes no table.

pub(crate) mod helper;

use crate::{capture, redirect};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Lies at the start of a page that is zero in a forked child.
#[repr(C)]
struct Page {
    /// 0: nothing is known yet; 1: being made; 2: this process has its number and its trace.
    stage: AtomicU32,
    process: AtomicI32,
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());
/// 0: not started; 1: starting; 2: started.
static STARTED: AtomicU32 = AtomicU32::new(0);
static ACTIVE: AtomicBool = AtomicBool::new(false);
static LOG_LEVEL: AtomicU8 = AtomicU8::new(2);
static LOG_DESCRIPTOR: AtomicI32 = AtomicI32::new(2);

thread_local! {
    /// No destructor: a plain value of the thread's static block.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// While one lives, calls of this thread go straight to libc: they are the library's own.
pub(crate) struct Inside;

impl Inside {
    /// `None` when the thread is inside already.
    pub(crate) fn enter() -> Option<Self> {
        INSIDE.with(|inside| {
            if inside.get() > 0 {
                return None;
            }
            inside.set(1);
            Some(Self)
        })
    }

    pub(crate) fn is_set() -> bool {
        INSIDE.with(|inside| inside.get() > 0)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(0));
    }
}

/// No signal reaches the thread while this lives: a handler may use files too, and would wait for a lock of the
/// thread that it interrupted.
pub(crate) struct NoSignals(libc::sigset_t);

impl NoSignals {
    pub(crate) fn begin() -> Self {
        // SAFETY: both sets are plain memory of this frame, which the calls fill in.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            Self(before)
        }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        // SAFETY: the set that `begin` got.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Keeps libc's error number over what the library does in between.
pub(crate) struct Errno(c_int);

impl Errno {
    pub(crate) fn keep() -> Self {
        Self(errno())
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

#[inline]
pub(crate) fn errno() -> c_int {
    // SAFETY: always a valid address of this thread.
    unsafe { *libc::__errno_location() }
}

#[inline]
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Sets `errno` and gives the usual -1.
#[cold]
pub(crate) fn fail(error: rustix::io::Errno) -> c_int {
    set_errno(error.raw_os_error());
    -1
}

/// A variable of the environment, unless empty.
pub(crate) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends in a zero byte; a value lives as long as the program leaves it alone, and it is read at
    // the start.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: getenv answers a string.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }).filter(|value| !value.is_empty())
}

/// Whether anything is to be captured or redirected. Starts the library if need be.
pub(crate) fn is_active() -> bool {
    if STARTED.load(Ordering::Acquire) == 2 { ACTIVE.load(Ordering::Relaxed) } else { start() }
}

/// Runs before `main`, and after the constructors of what the library itself needs.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    is_active();
    if ACTIVE.load(Ordering::Relaxed) {
        crate::posix::stdio::watch_standard_streams();
        redirect::stdio::adopt_standard_streams();
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

/// Flushes what `exit` did not reach; the records that other destructors make afterwards are kept as well.
extern "C" fn destructor() {
    if ACTIVE.load(Ordering::Relaxed) {
        at_end();
    }
}

/// The process is about to end, or to become another program.
pub(crate) fn at_end() {
    capture::finish();
}

#[cold]
fn start() -> bool {
    if STARTED.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // Another thread is at it, or we are below ourselves: this call goes to libc.
        return STARTED.load(Ordering::Acquire) == 2 && ACTIVE.load(Ordering::Relaxed);
    }
    let _errno = Errno::keep();
    let inside = Inside::enter();
    let wanted = variable(c"STRIPEWISE_DISABLE").is_none_or(|value| value == c"0");
    let active = wanted && begin();
    ACTIVE.store(active, Ordering::Relaxed);
    STARTED.store(2, Ordering::Release);
    drop(inside);
    active
}

fn begin() -> bool {
    open_log();
    // SAFETY: a fresh private mapping; zero bytes are a valid `Page`.
    let page = unsafe {
        let bytes = 4096;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        match rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) {
            Ok(memory) if rustix::mm::madvise(memory, bytes, Advice::LinuxWipeOnFork).is_ok() => memory.cast::<Page>(),
            _ => {
                say(&[b"stripewise: no memory that a forked child finds empty (kernel before 4.14?); nothing is done"]);
                return false;
            }
        }
    };
    PAGE.store(page, Ordering::Release);
    // Before the program's own handlers are registered: ours run last before a fork and first after it, so that those
    // may use files. SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child)) };
    let captures = capture::prepare();
    let redirects = redirect::prepare();
    redirect::exec::prepare();
    if captures || redirects {
        begin_process();
    }
    captures || redirects
}

fn page() -> Option<&'static Page> {
    // SAFETY: set once to a mapping that stays.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

/// Takes the number of this process and starts its trace.
#[cold]
fn begin_process() {
    let Some(page) = page() else { return };
    if page.stage.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    page.process.store(own_number(), Ordering::Relaxed);
    capture::start();
    page.stage.store(2, Ordering::Release);
}

extern "C" fn before_fork() {
    redirect::before_fork();
    crate::allocator::before_fork();
}

extern "C" fn after_fork_in_parent() {
    let _errno = Errno::keep();
    crate::allocator::after_fork();
    redirect::after_fork_in_parent();
}

extern "C" fn after_fork_in_child() {
    if ACTIVE.load(Ordering::Relaxed) {
        begin_child();
    } else {
        crate::allocator::after_fork();
    }
}

/// Whether this process has been begun; false in a child that was forked behind our back.
#[inline(always)]
pub(crate) fn is_begun() -> bool {
    let page = PAGE.load(Ordering::Relaxed);
    // SAFETY: set once to a mapping that stays.
    !page.is_null() && unsafe { (*page).stage.load(Ordering::Relaxed) } == 2
}

/// In a new child: its own trace, and descriptors that are looked at anew.
#[cold]
pub(crate) fn begin_child() {
    if is_begun() {
        return;
    }
    let _errno = Errno::keep();
    crate::allocator::after_fork();
    let _inside = Inside::enter();
    crate::descriptors::forget_captured();
    begin_process();
    redirect::after_fork_in_child();
}

fn own_number() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// False in a child of `vfork`, which must leave its parent's tables alone.
pub(crate) fn owns_tables() -> bool {
    if !is_begun() {
        begin_child();
    }
    page().is_none_or(|page| page.process.load(Ordering::Relaxed) == own_number())
}

/// `STRIPEWISE_LOG=error|warn|info|debug[:file]`.
fn open_log() {
    let Some(wish) = variable(c"STRIPEWISE_LOG") else { return };
    let mut parts = wish.to_bytes().splitn(2, |byte| *byte == b':');
    let level = match parts.next() {
        Some(b"error") => 1,
        Some(b"warn") => 2,
        Some(b"info") => 3,
        Some(b"debug") => 4,
        _ => {
            say(&[
                b"stripewise: STRIPEWISE_LOG is error, warn, info or debug, then perhaps :FILE; not ",
                wish.to_bytes(),
            ]);
            return;
        }
    };
    LOG_LEVEL.store(level, Ordering::Relaxed);
    let Some(path) = parts.next() else { return };
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)) {
        Ok(file) => {
            let high = rustix::io::fcntl_dupfd_cloexec(&file, crate::descriptors::FLOOR).unwrap_or(file);
            LOG_DESCRIPTOR.store(std::os::fd::IntoRawFd::into_raw_fd(high), Ordering::Relaxed);
        }
        Err(_) => say(&[b"stripewise: cannot open the log ", path]),
    }
}

/// The log's descriptor, if it has one of its own.
pub(crate) fn log_descriptor() -> Option<c_int> {
    Some(LOG_DESCRIPTOR.load(Ordering::Relaxed)).filter(|descriptor| *descriptor > 2)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Error = 1,
    Warn = 2,
    Info = 3,
    Debug = 4,
}

/// Whether lines of that level are asked for.
pub(crate) fn logs(level: Level) -> bool {
    level as u8 <= LOG_LEVEL.load(Ordering::Relaxed)
}

/// One line for the log, if its level is asked for.
pub(crate) fn log(level: Level, parts: &[&[u8]]) {
    if logs(level) {
        say(parts);
    }
}

/// As [`log`], but a line that was said before is not said again: a program may repeat a call that fails without end.
pub(crate) fn log_once(level: Level, parts: &[&[u8]]) {
    if logs(level) && is_news(parts) {
        say(parts);
    }
}

/// Whether none of the last lines that asked was this one. Told apart by a hash (FNV-1a).
fn is_news(parts: &[&[u8]]) -> bool {
    static SAID: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let bytes = parts.iter().flat_map(|part| part.iter());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    if SAID.iter().any(|said| said.load(Ordering::Relaxed) == hash) {
        return false;
    }
    SAID[NEXT.fetch_add(1, Ordering::Relaxed) % SAID.len()].store(hash, Ordering::Relaxed);
    true
}

/// One line, in one write, without allocation.
pub(crate) fn say(parts: &[&[u8]]) {
    let mut line = [0u8; 1024];
    let mut length = 0;
    for byte in parts.iter().flat_map(|part| part.iter()).take(line.len() - 1) {
        line[length] = *byte;
        length += 1;
    }
    line[length] = b'\n';
    // SAFETY: a descriptor that is closed gives EBADF, which is nobody's concern here.
    let descriptor = unsafe { rustix::fd::BorrowedFd::borrow_raw(LOG_DESCRIPTOR.load(Ordering::Relaxed)) };
    let _ = rustix::io::write(descriptor, &line[..=length]);
}
