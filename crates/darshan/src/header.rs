//! What a log's header says: whether a file is a log, how long it has to be, and why it cannot be opened, since Darshan's library names neither another
//! tool's file nor a way out.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// `DARSHAN_MAGIC_NR`, in the byte order of the machine that wrote the log.
const MAGIC: u64 = 6_567_223;
/// Version as text, then the magic number.
const VERSION_BYTES: usize = 8;

/// Bytes before the map of the names, and entries of maps, of which the first is that of the names: of formats before 3.41, and from it on.
const MAPS: [(usize, usize); 2] = [(24, 17), (32, 65)];
/// Offset and length of one region.
const MAP_BYTES: usize = 16;

/// Whether a file begins as a log of Darshan 3 does.
#[must_use]
pub fn is_log(path: &Path) -> bool {
    // Nothing else is opened: a pipe would wait for its other end.
    path.is_file() && Header::read(path).is_ok_and(|header| header.big_endian().is_some())
}

/// The bytes that all formats have, and the file they are of.
struct Header {
    file: File,
    version: [u8; VERSION_BYTES],
    magic: [u8; 8],
}

impl Header {
    fn read(path: &Path) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        let (mut version, mut magic) = ([0; VERSION_BYTES], [0; 8]);
        file.read_exact(&mut version)?;
        file.read_exact(&mut magic)?;
        Ok(Self { file, version, magic })
    }

    /// Whether the most significant byte is the first; `None` where this is no log.
    fn big_endian(&self) -> Option<bool> {
        match (u64::from_le_bytes(self.magic), u64::from_be_bytes(self.magic)) {
            (MAGIC, _) => Some(false),
            (_, MAGIC) => Some(true),
            _ => None,
        }
    }

    /// Major and minor number of the format.
    fn format(&self) -> Option<(u32, u32)> {
        let (major, minor) =
            self.version_text().split_once('.').map(|(major, minor)| (major.parse(), minor.parse()))?;
        Some((major.ok()?, minor.ok()?))
    }

    fn version_text(&self) -> String {
        self.version.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect()
    }

    /// Bytes that the whole log has, as its maps say; `None` for formats whose maps are not known.
    fn whole_bytes(&mut self) -> std::io::Result<Option<u64>> {
        let (first, maps) = match self.format() {
            Some((3, 0..41)) => MAPS[0],
            Some((3, 41)) => MAPS[1],
            _ => return Ok(None),
        };
        let header_bytes = (first + maps * MAP_BYTES + (maps - 1) * size_of::<u32>()) as u64;
        let mut bytes = vec![0; maps * MAP_BYTES];
        self.file.seek(SeekFrom::Start(first as u64))?;
        match self.file.read_exact(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Some(header_bytes)),
            read => read?,
        }
        let is_big_endian = self.big_endian() == Some(true);
        let words = bytes.as_chunks::<8>().0.iter();
        let words = words.map(|word| if is_big_endian { u64::from_be_bytes(*word) } else { u64::from_le_bytes(*word) });
        let words: Vec<u64> = words.collect();
        let ends = words.as_chunks::<2>().0.iter().map(|[offset, length]| offset.saturating_add(*length));
        Ok(Some(ends.fold(header_bytes, u64::max)))
    }
}

/// One sentence where the file is shorter than its header says.
pub(crate) fn truncation(path: &Path) -> Option<String> {
    let mut header = Header::read(path).ok()?;
    header.big_endian()?;
    let (whole, found) = (header.whole_bytes().ok()??, header.file.metadata().ok()?.len());
    let said = || {
        format!(
            "the file has {found} bytes, but {whole} by its header: it was truncated, or its header is damaged; copy the log again"
        )
    };
    (found < whole).then(said)
}

/// One sentence for a log that the library did not open.
pub(crate) fn why_refused(path: &Path) -> String {
    match Header::read(path) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            "it is shorter than the header of a Darshan log: it is another file, or was truncated".to_owned()
        }
        Err(error) => error.to_string(),
        Ok(header) => truncation(path).unwrap_or_else(|| of_head(&header)),
    }
}

fn of_head(header: &Header) -> String {
    let text = header.version_text();
    let major: Option<u32> = text.split_once('.').and_then(|(major, _)| major.parse().ok());
    match major {
        _ if header.version.starts_with(&[0x1f, 0x8b]) => {
            "it is compressed by gzip, as files of other tools and logs of Darshan 1 and 2 are; logs of Darshan 3 are read".to_owned()
        }
        _ if header.version == [0; VERSION_BYTES] && header.magic == [0; 8] => {
            "its header is empty: Darshan writes it last, so the run was ended before its log was whole, and nothing of it can be read".to_owned()
        }
        Some(1 | 2) => format!("it is a log of format {text}; formats from 3.00 on are read"),
        Some(_) if header.big_endian().is_some() => format!(
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
        assert!(why(&[0; 2000]).contains("its header is empty"));
        assert!(why_refused(&directory.path().join("none")).contains("No such file"));
    }

    /// A log of a format with so many maps, whose names and last module lie behind the header.
    fn log(version: &[u8; 8], maps: usize, before: &[u8], word: fn(u64) -> [u8; 8]) -> Vec<u8> {
        let mut log = [&version[..], &word(MAGIC), before].concat();
        let header = (log.len() + maps * MAP_BYTES + (maps - 1) * 4) as u64;
        let mut words = vec![0u64; maps * 2];
        (words[0], words[1]) = (header + 100, 50);
        (words[maps * 2 - 2], words[maps * 2 - 1]) = (header + 150, 500);
        log.extend(words.into_iter().flat_map(word));
        log.resize(header as usize + 650, 7);
        log
    }

    #[test]
    fn a_log_that_is_shorter_than_its_header_says_was_truncated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        for log in [
            log(b"3.10\0\0\0\0", 17, &[0; 8], u64::to_le_bytes),
            log(b"3.41\0\0\0\0", 65, &[0; 16], u64::to_le_bytes),
            log(b"3.41\0\0\0\0", 65, &[0; 16], u64::to_be_bytes),
        ] {
            std::fs::write(&path, &log).unwrap();
            assert!(is_log(&path) && truncation(&path).is_none(), "{:?}", truncation(&path));
            let whole = log.len();
            for kept in [whole - 1, whole - 600] {
                std::fs::write(&path, &log[..kept]).unwrap();
                let said = truncation(&path).unwrap();
                assert!(said.starts_with(&format!("the file has {kept} bytes, but {whole} by its header")), "{said}");
            }
            // Within the header, only its own length is known.
            std::fs::write(&path, &log[..100]).unwrap();
            assert!(why_refused(&path).contains(&format!("the file has 100 bytes, but {} by its header", whole - 650)));
        }
        std::fs::write(&path, log(b"3.99\0\0\0\0", 65, &[0; 16], u64::to_le_bytes)).unwrap();
        assert!(is_log(&path) && truncation(&path).is_none(), "of a later format nothing is known");
        std::fs::write(&path, b"a text that is long enough").unwrap();
        assert!(!is_log(&path) && !is_log(directory.path()));
    }
}
