//! What this process is and what its environment asks for.
//!
//! Everything starts at the first need or at the library's constructor, whichever comes first. What belongs to one
//! process only (its number, its trace) lies in memory that a forked child finds zeroed, so that a child is noticed
//! even when it was made by a raw system call. A child of `vfork` shares all memory with its parent: it is told apart
//! by its process number, and what it does to its own descriptors changes no table.

pub(crate) mod children;
pub(crate) mod helper;

pub(crate) use crate::environment::variable;
pub(crate) use crate::log::{Level, decimal, log, log_descriptor, log_once, logs, say, say_as_libc};
pub(crate) use crate::thread::{Errno, Inside, errno, fail, set_errno};
pub(crate) use stripewise_store::signals::NoSignals;

use crate::LIFE;
use libc::{c_char, c_int};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use stripewise_store::client::Child;

/// What other modules do in the life of the process. The library's root lists it, because they all use this one.
pub(crate) struct Life {
    /// Reads the environment; true when something is to be done in this process.
    pub(crate) prepare: fn() -> bool,
    /// The process is numbered: its trace begins.
    pub(crate) begin: fn(),
    /// At load, once the library is active.
    pub(crate) adopt_streams: fn(),
    pub(crate) before_fork: fn(),
    pub(crate) after_fork_in_parent: fn(Child),
    /// In a child, first of all, however it was made: the library may allocate again.
    pub(crate) free_memory: fn(),
    /// In a child that has no trace yet.
    pub(crate) forget_parent: fn(),
    /// In a child that is numbered.
    pub(crate) after_fork_in_child: fn(),
    /// This process, a helper of ours, leaves no trace, and has the descriptors of a child of `vfork`.
    pub(crate) leave_out: fn(),
    /// The process is about to end, or to become another program.
    pub(crate) end: fn(),
}

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
/// Whether anything is to be captured or redirected. Starts the library if need be.
pub(crate) fn is_active() -> bool {
    if STARTED.load(Ordering::Acquire) == 2 { ACTIVE.load(Ordering::Relaxed) } else { start() }
}

/// Runs before all other constructors (`-z initfirst`): a library may keep the address of a standard stream since its own. Of several such
/// libraries the one loaded last is begun first, which is libpthread before glibc 2.34.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

extern "C" fn constructor(_count: c_int, _arguments: *const *const c_char, environment: *const *const c_char) {
    crate::environment::begin(environment);
    is_active();
    if ACTIVE.load(Ordering::Relaxed) {
        (LIFE.adopt_streams)();
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
    (LIFE.end)();
}

/// Before this process becomes another program, or ends without libc's help; if that fails, the trace goes on.
pub(crate) fn leave() {
    if is_active() {
        at_end();
    }
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
    crate::log::open();
    // SAFETY: a fresh private mapping; zero bytes are a valid `Page`.
    let page = unsafe {
        let bytes = 4096;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        match rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) {
            Ok(memory) if rustix::mm::madvise(memory, bytes, Advice::LinuxWipeOnFork).is_ok() => memory.cast::<Page>(),
            _ => {
                say(&[b"no memory that a forked child finds empty (kernel before 4.14?); nothing is done"]);
                return false;
            }
        }
    };
    PAGE.store(page, Ordering::Release);
    // Before the program's own handlers are registered: ours run last before a fork and first after it, so that those
    // may use files. SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child)) };
    let wanted = (LIFE.prepare)();
    if wanted {
        begin_process();
    }
    wanted
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
    (LIFE.begin)();
    page.stage.store(2, Ordering::Release);
}

extern "C" fn before_fork() {
    (LIFE.before_fork)();
}

extern "C" fn after_fork_in_parent() {
    end_fork(Child::OfProgram);
}

fn end_fork(child: Child) {
    let _errno = Errno::keep();
    (LIFE.after_fork_in_parent)(child);
}

extern "C" fn after_fork_in_child() {
    if ACTIVE.load(Ordering::Relaxed) {
        begin_child();
    } else {
        (LIFE.free_memory)();
    }
}

/// Whether this process has been begun; false in a child that was forked behind our back.
#[inline(always)]
pub(crate) fn is_begun() -> bool {
    let page = PAGE.load(Ordering::Relaxed);
    // SAFETY: set once to a mapping that stays.
    !page.is_null() && unsafe { (*page).stage.load(Ordering::Relaxed) } == 2
}

/// In a new child: its own trace, and descriptors that are looked at again.
#[cold]
pub(crate) fn begin_child() {
    if is_begun() {
        return;
    }
    let _errno = Errno::keep();
    children::forget_all();
    (LIFE.free_memory)();
    let _inside = Inside::enter();
    (LIFE.forget_parent)();
    begin_process();
    (LIFE.after_fork_in_child)();
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
