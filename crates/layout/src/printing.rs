//! Texts of others in messages: names of files may hold any bytes, and a terminal obeys some of them.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// `text` for a terminal: characters that a terminal obeys rather than shows are written as escapes. Names of files, and what others wrote,
/// may hold any. Line feeds stay where `is_lines` says that the text is of several lines.
#[must_use]
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

/// A path for a message: as [`printable`] on one line, and bytes that are not UTF-8 stand as `\xNN`, so that different names stay different.
#[must_use]
pub fn shown(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&printable(chunk.valid(), false));
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name could write over what stood on the terminal, or look like a message of its own.
    #[test]
    fn names_with_escapes_and_lines_are_shown_and_not_obeyed() {
        let name = "a\u{1b}[2Jb\nstripewise rm: done\u{202e}\u{9b}\tc\u{7f}";
        let expected = "a\\x1b[2Jb\\nstripewise rm: done\\u{202e}\\u{9b}\\tc\\x7f";
        assert_eq!(printable(name, false), expected);
        assert_eq!(printable("größe 数据", false), "größe 数据");
        let path = |bytes: &[u8]| shown(Path::new(std::ffi::OsStr::from_bytes(bytes)));
        assert_eq!(path(name.as_bytes()), expected);
        assert_eq!(
            (path(b"a\xff\xfe/\xc3\xa9"), path(b"a\xef\xbf\xbd")),
            ("a\\xff\\xfe/\u{e9}".into(), "a\u{fffd}".into())
        );
    }
}
