//! Words as a shell reads them, for commands that a person may copy.

use std::borrow::Cow;
use std::path::Path;

/// `word` as one word of a shell: as it is, or in single quotes.
pub(crate) fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"%+,-./:=@^_".contains(&byte) || byte >= 0x80;
    if !word.is_empty() && word.bytes().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

/// As [`quoted`].
pub(crate) fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy()).into_owned()
}

/// A command as it could be typed.
pub(crate) fn command_line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_from_a_shell_as_they_were() {
        for word in ["plain-1.0/x", "", "two words", "it's", "a$b", "*", "\u{fc}ber", "~", "line\nbreak", "a=b"] {
            let printed =
                std::process::Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output().unwrap();
            assert_eq!(String::from_utf8(printed.stdout).unwrap(), word);
        }
        assert_eq!(command_line(&["cat".into(), "my file".into()]), "cat 'my file'");
    }
}
