//! Lines for the person who runs the program: on standard error as `stripewise: MESSAGE`, or in the file that `STRIPEWISE_LOG` names as
//! `SECONDS.MS PROCESS LEVEL MESSAGE`, the form of the broker's log. A program may be anywhere when it meets an error, so a line needs
//! no lock and no memory.

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
            say(&[b"STRIPEWISE_LOG is error, warn, info or debug, then perhaps :FILE; not ", wish.to_bytes()]);
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
        Err(_) => say(&[b"cannot open the log ", path]),
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

impl Level {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Error => b"ERROR",
            Self::Warn => b"WARN",
            Self::Info => b"INFO",
            Self::Debug => b"DEBUG",
        }
    }
}

/// Whether lines of that level are asked for.
pub(crate) fn logs(level: Level) -> bool {
    level as u8 <= LOG_LEVEL.load(Ordering::Relaxed)
}

/// One line for the log, if its level is asked for.
pub(crate) fn log(level: Level, parts: &[&[u8]]) {
    if logs(level) {
        write(level, parts);
    }
}

/// As [`log`], but a line that was said before is not said again: a program may repeat a call that fails without end.
pub(crate) fn log_once(level: Level, parts: &[&[u8]]) {
    if logs(level) && is_news(parts) {
        write(level, parts);
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

/// An error that the program is to hear of whatever level is asked for.
pub(crate) fn say(parts: &[&[u8]]) {
    write(Level::Error, parts);
}

/// Text of libc's own, on standard error as libc writes it.
pub(crate) fn say_as_libc(text: &[u8]) {
    let mut line = Line::default();
    line.add(text);
    line.write(2);
}

fn write(level: Level, parts: &[&[u8]]) {
    let mut line = Line::default();
    if log_descriptor().is_some() {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let mut digits = [0; 20];
        line.add(decimal(now.tv_sec as u64, &mut digits));
        // A thousand more, so that zeros after the point stay.
        line.add(b".");
        line.add(&decimal(1000 + now.tv_nsec as u64 / 1_000_000, &mut digits)[1..]);
        line.add(b" ");
        line.add(decimal(u64::from(std::process::id()), &mut digits));
        line.add(b" ");
        line.add(level.name());
        line.add(b" ");
    } else {
        line.add(b"stripewise: ");
    }
    parts.iter().for_each(|part| line.add(part));
    line.write(LOG_DESCRIPTOR.load(Ordering::Relaxed));
}

/// One line, written by one call, without allocation.
struct Line {
    bytes: [u8; 1024],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 1024], length: 0 }
    }
}

impl Line {
    /// What has no space is left out. Names may hold line feeds and what a terminal obeys: one line stays one line.
    fn add(&mut self, part: &[u8]) {
        for byte in part.iter().take(self.bytes.len() - 1 - self.length) {
            self.bytes[self.length] = if byte.is_ascii_control() { b'?' } else { *byte };
            self.length += 1;
        }
    }

    fn write(mut self, descriptor: c_int) {
        self.bytes[self.length] = b'\n';
        // SAFETY: a descriptor that is closed gives EBADF, which is nobody's concern here.
        let descriptor = unsafe { crate::borrow::borrow(descriptor) };
        let _ = rustix::io::write(descriptor, &self.bytes[..=self.length]);
    }
}

/// In decimal, without allocation.
pub(crate) fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line_and_ends_where_there_is_no_space() {
        let mut line = Line::default();
        line.add(b"a\nb\x1b[1mc ");
        line.add(decimal(1007, &mut [0; 20]));
        assert_eq!(&line.bytes[..line.length], b"a?b?[1mc 1007");
        line.add(&[b'x'; 5000]);
        assert_eq!(line.length, 1023);
        line.add(b"more");
        assert_eq!(line.length, 1023);
    }
}
