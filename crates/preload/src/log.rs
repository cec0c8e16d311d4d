//! Lines for the person who runs the program: on standard error, or in the file that `STRIPEWISE_LOG` names.

use crate::environment::variable;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// The library's own descriptors lie from here on, out of the way of programs that count on low numbers.
pub(crate) const FLOOR: c_int = 900;

static LOG_LEVEL: AtomicU8 = AtomicU8::new(2);
static LOG_DESCRIPTOR: AtomicI32 = AtomicI32::new(2);

/// `STRIPEWISE_LOG=error|warn|info|debug[:file]`.
pub(crate) fn open() {
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
            let high = rustix::io::fcntl_dupfd_cloexec(&file, FLOOR).unwrap_or(file);
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
