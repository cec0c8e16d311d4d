//! Why a log cannot be opened, as its first bytes say it: Darshan's library names neither another tool's file nor a way out.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// `DARSHAN_MAGIC_NR`, in the byte order of the machine that wrote the log.
const MAGIC: u64 = 6_567_223;
/// Version as text, then the magic number.
const VERSION_BYTES: usize = 8;

/// One sentence for a log that the library did not open.
pub(crate) fn why_refused(path: &Path) -> String {
    let mut version = [0; VERSION_BYTES];
    let mut magic = [0; 8];
    let read = File::open(path).and_then(|mut file| {
        file.read_exact(&mut version)?;
        file.read_exact(&mut magic)
    });
    match read {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            "it is shorter than the header of a Darshan log: it is another file, or was truncated".to_owned()
        }
        Err(error) => error.to_string(),
        Ok(()) => of_head(version, magic),
    }
}

fn of_head(version: [u8; VERSION_BYTES], magic: [u8; 8]) -> String {
    let text: String = version.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
    let is_log = u64::from_le_bytes(magic) == MAGIC || u64::from_be_bytes(magic) == MAGIC;
    let major: Option<u32> = text.split_once('.').and_then(|(major, _)| major.parse().ok());
    match major {
        _ if version.starts_with(&[0x1f, 0x8b]) => {
            "it is compressed by gzip, as files of other tools and logs of Darshan 1 and 2 are; logs of Darshan 3 are read".to_owned()
        }
        Some(1 | 2) => format!("it is a log of format {text}; formats from 3.00 on are read"),
        Some(_) if is_log => format!(
            "Darshan's library here does not open its format {text}; if that is a later one, install a later PyDarshan or darshan-util, otherwise its header is damaged"
        ),
        _ => "it is no log of Darshan 3: its header is of another tool, or damaged".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_say_why() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let why = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            why_refused(&path)
        };
        let head = |version: &[u8], magic: [u8; 8]| [version, &magic].concat();
        assert!(why(b"").contains("shorter than the header"));
        assert!(why(b"a text that is long enough").contains("no log of Darshan 3"));
        assert!(
            why(&head(b"9.99\0\0\0\0", MAGIC.to_le_bytes()))
                .contains("does not open its format 9.99; if that is a later one")
        );
        assert!(why(&head(b"9.99\0\0\0\0", MAGIC.to_be_bytes())).contains("format 9.99"));
        assert!(why(&head(b"2.06\0\0\0\0", [0; 8])).contains("format 2.06; formats from 3.00"));
        assert!(why(&head(b"3.41\0\0\0\0", [0; 8])).contains("another tool, or damaged"));
        assert!(why(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).contains("gzip"));
        assert!(why_refused(&directory.path().join("none")).contains("No such file"));
    }
}
