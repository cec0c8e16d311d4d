//! What the command leaves behind: its exit status, and errors as one plain line.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a command that met no error ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Done,
    /// The answer is "no", or something was found that needs attention.
    Finding,
    /// The exit status of the program that was run; 128 + the signal's number if one killed it.
    Program(u8),
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => ExitCode::SUCCESS,
            Verdict::Finding => ExitCode::from(1),
            Verdict::Program(status) => ExitCode::from(status),
        }
    }
}

/// The messages of an error and its causes on one line. Causes that a message repeats already are left out.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let message = cause.to_string();
        let message = message.trim_end();
        if text.is_empty() {
            text.push_str(message);
        } else if !text.contains(message) {
            text.push_str(": ");
            text.push_str(message);
        }
    }
    text
}

/// `text` for a terminal: characters that a terminal obeys rather than shows are written as escapes. Names of files, and what others wrote,
/// may hold any. Line feeds stay where `is_lines` says that the text is of several lines.
pub(crate) fn printable(text: &str, is_lines: bool) -> Cow<'_, str> {
    let is_obeyed = |c: char| {
        let reorders =
            matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        (c.is_control() && !(is_lines && c == '\n')) || reorders
    };
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_obeyed(c) => shown.push(c),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            c if c.is_ascii() => {
                let _ = write!(shown, "\\x{:02x}", c as u32);
            }
            c => shown.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(shown)
}

/// A path for a message: bytes that are not UTF-8 stand as `\xNN`, so that different names stay different.
pub(crate) fn shown(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// A message for the person at the terminal, in which a line that a name holds is never taken for a message of its own: it is indented.
pub(crate) fn message(text: &str) -> String {
    printable(text, true).replace('\n', "\n  ")
}

static PIPE_BROKE: AtomicBool = AtomicBool::new(false);

/// Standard output. Remembers when its reader went away, since libraries do not always hand that error on as it was.
pub(crate) struct Out(std::io::Stdout);

impl Out {
    pub(crate) fn new() -> Self {
        Self(std::io::stdout())
    }
}

fn noting<T>(result: std::io::Result<T>) -> std::io::Result<T> {
    result.inspect_err(|error| {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            PIPE_BROKE.store(true, Ordering::Relaxed);
        }
    })
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        noting(self.0.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        noting(self.0.flush())
    }
}

/// Whether the reader of our output went away, as `head` does: no fault, and nothing to say.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_broken = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
    PIPE_BROKE.load(Ordering::Relaxed)
        || error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>()).any(is_broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn causes_are_named_once() {
        let error = anyhow!("no such file").context("cannot read a.toml: no such file").context("cannot start");
        assert_eq!(chain(&error), "cannot start: cannot read a.toml: no such file");
    }

    /// A name could write over what stood on the terminal, or look like a message of its own.
    #[test]
    fn names_with_escapes_and_lines_are_shown_and_not_obeyed() {
        let name = "a\u{1b}[2Jb\nstripewise rm: done\u{202e}\u{9b}\tc\u{7f}";
        assert_eq!(printable(name, false), "a\\x1b[2Jb\\nstripewise rm: done\\u{202e}\\u{9b}\\tc\\x7f");
        assert_eq!(message("one\ntwo\u{1b}"), "one\n  two\\x1b");
        assert_eq!(printable("größe 数据", false), "größe 数据");
        let path = |bytes: &[u8]| shown(Path::new(std::ffi::OsStr::from_bytes(bytes)));
        assert_eq!(
            (path(b"a\xff\xfe/\xc3\xa9"), path(b"a\xef\xbf\xbd")),
            ("a\\xff\\xfe/\u{e9}".into(), "a\u{fffd}".into())
        );
    }

    #[test]
    fn a_broken_pipe_is_found_below_other_messages() {
        let broken: std::io::Result<()> = Err(std::io::ErrorKind::BrokenPipe.into());
        assert!(is_broken_pipe(&broken.context("writing the table").unwrap_err()));
        assert!(!is_broken_pipe(&anyhow!("broken pipe")));
    }
}
