//! The stub: the small readable file that stands in an application's directory for a managed file.
//!
//! It is text of exactly [`STUB_BYTES`] bytes, an unusual size on purpose: `stat` and `open` ask whether a file is a stub only
//! when its size matches, so unmanaged files cost one comparison. The stub's inode, not its text, is its identity: the mapping
//! table records device and inode, so that a bare copy of a stub opens nothing.

use std::path::{Path, PathBuf};
use stripewise_layout::FileId;

/// Exact size of every stub.
pub const STUB_BYTES: usize = 1021;

const FIRST_LINE: &str = "stripewise stub 1";

/// What a stub says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stub {
    /// The managed file.
    pub file: FileId,
    /// Id of the cluster that holds the data.
    pub cluster: String,
    /// The cluster's state directory, for the reader's orientation.
    pub state: PathBuf,
}

/// Why a stub is not written or not believed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StubError {
    /// No stub could name this state directory.
    #[error("the state directory's path is too long for a stub ({} bytes); move the state directory", path.as_os_str().len())]
    PathTooLong {
        /// The state directory.
        path: PathBuf,
    },
    /// Another version of stripewise wrote the text.
    #[error("a stripewise stub of another version: `{first_line}`; this stripewise reads `{FIRST_LINE}`")]
    Version {
        /// Its first line.
        first_line: String,
    },
    /// The text was edited or cut.
    #[error("a damaged stripewise stub (line `{line}`); `stripewise check` restores it")]
    Damaged {
        /// The first line that is wrong.
        line: String,
    },
}

impl Stub {
    /// The stub's bytes.
    ///
    /// # Errors
    ///
    /// [`StubError::PathTooLong`].
    pub fn to_bytes(&self) -> Result<[u8; STUB_BYTES], StubError> {
        let text = format!(
            "{FIRST_LINE}\nfile {}\ncluster {}\nstate {}\n\n\
             This file is managed by Stripewise: its bytes lie in stripes on several servers,\n\
             and this text only stands in for it. Its size and times are not those of the data.\n\n\
             See it:       stripewise stat FILE\n\
             Read it:      stripewise cat FILE\n\
             Run with it:  stripewise run -- PROGRAM ...\n\
             Turn it back into an ordinary file:  stripewise release FILE\n\n\
             Do not edit, copy or restore this text in its place.\n",
            self.file,
            self.cluster,
            self.state.display()
        );
        let mut bytes = [b' '; STUB_BYTES];
        if text.len() >= STUB_BYTES {
            return Err(StubError::PathTooLong { path: self.state.clone() });
        }
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes[STUB_BYTES - 1] = b'\n';
        Ok(bytes)
    }

    /// `Ok(None)` when `bytes` are no stub at all.
    ///
    /// # Errors
    ///
    /// [`StubError::Version`] or [`StubError::Damaged`] for a text that begins as a stub does.
    pub fn parse(bytes: &[u8]) -> Result<Option<Stub>, StubError> {
        if bytes.len() != STUB_BYTES || !bytes.starts_with(b"stripewise stub ") {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines();
        let first_line = lines.next().unwrap_or_default();
        if first_line != FIRST_LINE {
            return Err(StubError::Version { first_line: first_line.to_owned() });
        }
        let mut value_of = |key: &str| {
            let line = lines.next().unwrap_or_default();
            match line.split_once(' ') {
                Some((found, value)) if found == key && !value.is_empty() => Ok(value.to_owned()),
                _ => Err(StubError::Damaged { line: line.to_owned() }),
            }
        };
        let file = value_of("file")?;
        let file = file.parse().map_err(|_| StubError::Damaged { line: format!("file {file}") })?;
        let cluster = value_of("cluster")?;
        let state = PathBuf::from(value_of("state")?);
        Ok(Some(Stub { file, cluster, state }))
    }
}

/// Whether a file of this size could be a stub at all.
#[must_use]
pub fn size_may_be_stub(size_bytes: u64) -> bool {
    size_bytes == STUB_BYTES as u64
}

/// Path of the server directory that holds objects, below a server's own directory.
#[must_use]
pub fn objects_directory(server_directory: &Path) -> PathBuf {
    server_directory.join("stripewise-objects")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_reads_back_and_other_files_are_none() {
        let stub = Stub { file: FileId(0xfeed), cluster: "c0ffee".into(), state: "/a dir/state".into() };
        let bytes = stub.to_bytes().unwrap();
        assert_eq!(Stub::parse(&bytes), Ok(Some(stub.clone())));
        assert_eq!(Stub::parse(&bytes[1..]), Ok(None));
        assert_eq!(Stub::parse(&[b'x'; STUB_BYTES]), Ok(None));
        let mut other = bytes;
        other[16] = b'9';
        assert!(matches!(Stub::parse(&other), Err(StubError::Version { .. })));
        let mut damaged = bytes;
        damaged[20] = b'#';
        assert!(matches!(Stub::parse(&damaged), Err(StubError::Damaged { .. })));
        let long = Stub { state: format!("/{}", "x".repeat(900)).into(), ..stub };
        assert!(matches!(long.to_bytes(), Err(StubError::PathTooLong { .. })));
    }
}
