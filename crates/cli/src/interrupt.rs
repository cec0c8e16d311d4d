//! Ctrl-C and its like, noted rather than obeyed at once: the signals are blocked in every thread and one thread waits for them.
#![allow(unsafe_code, reason = "signals are blocked and waited for by system calls")]

use anyhow::{Context as _, Result};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use stripewise::Interrupt;

/// Signals by which a person or the system asks us to end.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// By which signal.
static INTERRUPTED_BY: AtomicI32 = AtomicI32::new(0);

/// From here on the signals are noted: the operation looks at the interrupt between steps and undoes what is half done. A second one ends
/// the process where it is, which the store survives as any crash. Call before other threads are started.
pub(crate) fn watch() -> Result<Interrupt> {
    let set = set_of(&ENDING);
    block(&set)?;
    let wait = move || {
        loop {
            let mut signal = 0;
            // SAFETY: the set is initialised, and the number is written to a local.
            if unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {
                continue;
            }
            INTERRUPTED_BY.store(signal, Ordering::SeqCst);
            if INTERRUPTED.swap(true, Ordering::SeqCst) {
                std::process::exit(128 + signal);
            }
        }
    };
    // Not joined: it ends with the process.
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("cannot start a thread")?;
    Ok(Interrupt::on(&INTERRUPTED))
}

/// The exit status of a command that a signal kept from its work, as a shell gives it to one that the signal killed.
pub(crate) fn status() -> Option<u8> {
    let signal = INTERRUPTED_BY.load(Ordering::SeqCst);
    u8::try_from(signal).ok().filter(|signal| *signal != 0).map(|signal| 128 + signal)
}

/// Blocks the signals in this thread and those it starts.
fn block(set: &libc::sigset_t) -> Result<()> {
    // SAFETY: the set lives through the call, and the former mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        failed => Err(std::io::Error::from_raw_os_error(failed)).context("cannot block signals"),
    }
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
