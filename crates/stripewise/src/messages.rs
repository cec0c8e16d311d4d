//! Texts of others in messages: names of files may hold any bytes, and a terminal obeys some of them.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
/// Events of `tracing` as text.
pub use stripewise_broker::log::{EventsOnly, Line, Sink};

/// The messages of an error and its causes on one line. Causes that a message repeats already are left out.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in std::iter::successors(Some(error), |error| (*error).source()) {
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
pub fn printable(text: &str, is_lines: bool) -> Cow<'_, str> {
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
pub fn shown(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// A message for the person at the terminal, in which a line that a name holds is never taken for a message of its own: it is indented.
pub fn message(text: &str) -> String {
    printable(text, true).replace('\n', "\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{what}")]
    struct Caused {
        what: &'static str,
        source: Option<Box<Caused>>,
    }

    #[test]
    fn causes_are_named_once() {
        let caused = |what, source| Caused { what, source };
        let root = caused("no such file", None);
        let read = caused("cannot read a.toml: no such file", Some(Box::new(root)));
        let error = caused("cannot start", Some(Box::new(read)));
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
}
