//! The form of a line in a log file, whoever writes it.

use rustix::time::{ClockId, clock_gettime};

/// `SECONDS.MS PROCESS TEXT` and a line feed: one line, whatever names the text contains.
#[must_use]
pub fn log_line(text: &str) -> String {
    let now = clock_gettime(ClockId::Realtime);
    let text = text.replace(|c: char| c.is_control(), "\u{fffd}");
    format!("{}.{:03} {} {text}\n", now.tv_sec, now.tv_nsec / 1_000_000, std::process::id())
}
