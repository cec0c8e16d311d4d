//! Texts of others in messages: names of files may hold any bytes, and a terminal obeys some of them.

use std::error::Error;
/// Events of `tracing` as text.
pub use stripewise_broker::log::{EventsOnly, Line, Sink};
pub use stripewise_layout::printing::{printable, shown};

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

    #[test]
    fn a_line_of_a_name_is_no_message_of_its_own() {
        assert_eq!(message("one\ntwo\u{1b}"), "one\n  two\\x1b");
    }
}
