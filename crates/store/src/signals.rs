//! Times in which a thread takes no signals.
//!
//! A program's handler may itself use files, and would wait for a lock of the thread that it interrupted. So the thread blocks
//! signals while it holds one. Such times nest: the outermost alone blocks and restores, which spares the inner ones two system
//! calls each.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

thread_local! {
    // No destructors: plain values of the thread's static block.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// What was blocked before the outermost; initialised while there is one.
    static BEFORE: Cell<MaybeUninit<libc::sigset_t>> = const { Cell::new(MaybeUninit::uninit()) };
}

/// What a thread's own instruction raises, at once: blocked, it would end the process past the program's handler, such as one that
/// reports a crash or does what a seccomp filter does not allow.
const OWN: [libc::c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// No signal from outside reaches the thread that made it while this lives. A child that is forked meanwhile has it too.
#[derive(Debug)]
pub struct NoSignals {
    /// Stays with its thread.
    _thread: PhantomData<*const ()>,
}

impl NoSignals {
    /// Blocks every signal of the calling thread but those that its own instructions raise.
    #[must_use]
    pub fn begin() -> Self {
        let depth = DEPTH.get();
        if depth == 0 {
            // SAFETY: both sets are plain memory of this frame, which the calls fill in.
            let before = unsafe {
                let (mut all, mut before) = (std::mem::zeroed(), MaybeUninit::zeroed());
                libc::sigfillset(&mut all);
                for signal in OWN {
                    libc::sigdelset(&mut all, signal);
                }
                libc::pthread_sigmask(libc::SIG_BLOCK, &all, before.as_mut_ptr());
                before
            };
            BEFORE.set(before);
        }
        DEPTH.set(depth + 1);
        Self { _thread: PhantomData }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            // SAFETY: the set that the outermost got.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, BEFORE.get().as_ptr(), std::ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        // SAFETY: the set is plain memory of this frame, which the call fills in.
        unsafe {
            let mut now = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut now);
            libc::sigismember(&now, signal) == 1
        }
    }

    #[test]
    fn the_outermost_restores_what_was_blocked_before_in_whatever_order_they_end() {
        let block = |how, signal| {
            // SAFETY: the set is plain memory of this frame.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, signal);
                libc::pthread_sigmask(how, &set, std::ptr::null_mut());
            }
        };
        block(libc::SIG_BLOCK, libc::SIGUSR2);
        let outer = NoSignals::begin();
        assert!(is_blocked(libc::SIGUSR1) && is_blocked(libc::SIGUSR2));
        assert!(!OWN.into_iter().any(is_blocked), "a crash reaches the program's handler");
        let inner = NoSignals::begin();
        drop(outer);
        assert!(is_blocked(libc::SIGUSR1), "an inner one still lives");
        drop(inner);
        assert!(!is_blocked(libc::SIGUSR1) && is_blocked(libc::SIGUSR2));
        block(libc::SIG_UNBLOCK, libc::SIGUSR2);
    }
}
