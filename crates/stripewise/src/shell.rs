//! Words as a shell reads them, for commands that a person may copy.

use crate::messages::printable;
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// `word` as one word of a shell: as it is, in single quotes, or, where a terminal would not show it as it is, in those of `$'…'`.
pub fn quoted(word: &str) -> Cow<'_, str> {
    if printable(word, false) != word {
        return Cow::Owned(escaped(word.as_bytes()));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"%+,-./:=@^_".contains(&byte) || byte >= 0x80;
    if !word.is_empty() && word.bytes().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

/// As [`quoted`].
pub fn quoted_path(path: &Path) -> String {
    path.to_str().map_or_else(|| escaped(path.as_os_str().as_bytes()), |path| quoted(path).into_owned())
}

/// In the quotes of bash, zsh, ksh and POSIX since 2024; every other byte than printable ASCII as an octal number.
fn escaped(word: &[u8]) -> String {
    let mut text = "$'".to_owned();
    for byte in word {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text + "'"
}

/// A command as it could be typed.
pub fn command_line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_from_a_shell_as_they_were() {
        for word in [
            "plain-1.0/x",
            "",
            "two words",
            "it's",
            "a$b",
            "*",
            "\u{fc}ber",
            "~",
            "line\nbreak",
            "a=b",
            "\u{1b}[2J'\\\u{e9}1",
        ] {
            let printed = std::process::Command::new("bash")
                .args(["-c", &format!("printf %s {}", quoted(word))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(printed.stdout).unwrap(), word);
        }
        let name = std::ffi::OsStr::from_bytes(b"a\xff0\n");
        let printf = format!("printf %s {}", quoted_path(Path::new(name)));
        let printed = std::process::Command::new("bash").args(["-c", &printf]).output().unwrap();
        assert_eq!(printed.stdout, name.as_bytes());
        assert_eq!(command_line(&["cat".into(), "my file".into()]), "cat 'my file'");
    }
}
