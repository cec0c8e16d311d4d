//! Signals: passed on to the program that runs on our behalf, or remembered so that work under way is undone.
//!
//! [`Relay`]: the signals are blocked in every thread and one thread waits for them. Those that a process sent (kill, a batch system) go on to
//! the program; those of the terminal (Ctrl-C) the kernel sent to the program too, and a second one would make launchers such as
//! mpiexec give up at once. Either way this command stays until the program has ended.
#![allow(unsafe_code)]

use anyhow::{Context as _, Result};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

const PASSED_ON: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Ends the waiting thread; sent by [`Relay::stop`] to this process only.
const STOP: libc::c_int = libc::SIGURG;

/// The program to pass signals on to; 0 while there is none.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

pub(crate) struct Relay {
    before: libc::sigset_t,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Signals by which a person or the system asks us to end.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Ctrl-C, noted rather than obeyed at once: the command looks at it between steps and undoes what is half done. A second one ends
/// the process where it is, which the store survives as any crash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupt;

impl Interrupt {
    /// From here on the signals are noted. Call before other threads are started.
    pub(crate) fn watch() -> Result<Self> {
        let set = set_of(&ENDING);
        block(&set)?;
        let wait = move || {
            loop {
                let mut signal = 0;
                // SAFETY: the set is initialised, and the number is written to a local.
                if unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {
                    continue;
                }
                if INTERRUPTED.swap(true, Ordering::SeqCst) {
                    std::process::exit(128 + signal);
                }
            }
        };
        // Not joined: it ends with the process.
        std::thread::Builder::new().name("signals".into()).spawn(wait).context("cannot start a thread")?;
        Ok(Self)
    }

    pub(crate) fn came(self) -> bool {
        INTERRUPTED.load(Ordering::SeqCst)
    }

    pub(crate) fn flag(self) -> &'static AtomicBool {
        &INTERRUPTED
    }

    /// Waits until one comes.
    pub(crate) fn wait(self) {
        while !self.came() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// Blocks the signals in this thread and those it starts; returns what was blocked before.
fn block(set: &libc::sigset_t) -> Result<libc::sigset_t> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: both pointers are to sets that live through the call; the second is written by it.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, before.as_mut_ptr()) };
    if failed != 0 {
        return Err(std::io::Error::from_raw_os_error(failed)).context("cannot block signals");
    }
    // SAFETY: the call succeeded and wrote the former mask.
    Ok(unsafe { before.assume_init() })
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the whole set; `sigaddset` gets that set and valid signal numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

impl Relay {
    /// Blocks the signals. Call before other threads and the program are started. A child would have them blocked too: see [`Self::unblock_in`].
    pub(crate) fn start() -> Result<Self> {
        let set = set_of(&[&PASSED_ON[..], &[STOP]].concat());
        let before = block(&set)?;
        let thread = std::thread::Builder::new().name("signals".into()).spawn(move || pass_on(&set));
        Ok(Self { before, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// The program starts with the signals blocked that were so before this relay.
    pub(crate) fn unblock_in(&self, command: &mut Command) {
        let before = self.before;
        let restore = move || {
            // SAFETY: the mask is a copy of one that the kernel gave.
            match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) } {
                0 => Ok(()),
                failed => Err(std::io::Error::from_raw_os_error(failed)),
            }
        };
        // SAFETY: the closure makes one system call, which is allowed between fork and exec, and owns what it uses.
        unsafe {
            command.pre_exec(restore);
        }
    }

    /// Signals that arrived before go to the program now.
    pub(crate) fn forward_to(&self, program: u32) {
        PROGRAM.store(program as i32, Ordering::Release);
    }

    /// Passes on nothing more. Call once the program has ended: its process id may be another's soon.
    pub(crate) fn stop(mut self) {
        PROGRAM.store(0, Ordering::Release);
        self.end();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // SAFETY: plain system calls; the mask is the one that `start` found.
        unsafe {
            libc::kill(libc::getpid(), STOP);
        }
        let _ = thread.join();
        // SAFETY: as above.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        PROGRAM.store(0, Ordering::Release);
        self.end();
    }
}

fn pass_on(set: &libc::sigset_t) {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `set` is initialised and `info` is writable.
        let signal = unsafe { libc::sigwaitinfo(set, info.as_mut_ptr()) };
        if signal < 0 {
            continue;
        }
        // SAFETY: zeroed bytes are a valid siginfo_t, and the call filled it.
        let info = unsafe { info.assume_init() };
        if signal == STOP {
            // SAFETY: a signal sent by kill carries the sender's process id.
            if info.si_code == libc::SI_USER && unsafe { info.si_pid() } == std::process::id() as i32 {
                return;
            }
            continue;
        }
        if info.si_code != libc::SI_KERNEL {
            send(signal);
        }
    }
}

fn send(signal: libc::c_int) {
    // The program may be on its way still; nothing else is to be done meanwhile.
    for _ in 0..500 {
        let program = PROGRAM.load(Ordering::Acquire);
        if program > 0 {
            // SAFETY: a plain system call; the process is our child and not waited for while PROGRAM names it.
            unsafe {
                libc::kill(program, signal);
            }
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
