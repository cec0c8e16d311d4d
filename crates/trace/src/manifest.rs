//! `trace.json`: what the `stripewise trace` command knows of a run, beside the process files in the trace directory.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The name of the manifest within a trace directory.
pub const MANIFEST_NAME: &str = "trace.json";
/// The version written to and accepted from manifests.
pub const MANIFEST_VERSION: u32 = 1;
const FORMAT: &str = "stripewise-trace";

/// The header of a whole trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// `stripewise-trace`.
    format: String,
    /// [`MANIFEST_VERSION`]; traces of any other version are refused.
    version: u32,
    /// The version of Stripewise that captured the trace.
    pub stripewise: String,
    /// The node on which the command was started.
    pub host: String,
    /// The traced command and its arguments.
    pub command: Vec<String>,
    /// Nanoseconds since 1970-01-01 UTC.
    pub start_unix_ns: u64,
    /// Number of MPI processes, where the command knows it.
    pub mpi_size: Option<u32>,
    /// Rate of the trace clock on `host`, where it was measured.
    pub ticks_per_second: Option<u64>,
}

/// Why a manifest is not written or read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The operating system refused, or the file is longer than
    /// [`MAX_LIST_BYTES`](stripewise_layout::input::MAX_LIST_BYTES).
    #[error("{path}: cannot be read or written: {source}")]
    Io {
        /// The manifest.
        path: PathBuf,
        /// Its cause.
        source: std::io::Error,
    },
    /// The text is not JSON, or has an unknown, missing or mistyped key.
    #[error(
        "{path}: not the manifest of a Stripewise trace ({source}); was the directory written by `stripewise trace`?"
    )]
    Syntax {
        /// The manifest.
        path: PathBuf,
        /// Line, column and cause.
        source: serde_json::Error,
    },
    /// The file is some other program's.
    #[error("{path}: format `{found}`, expected `{FORMAT}`")]
    Format {
        /// The manifest.
        path: PathBuf,
        /// `format` as it stands in the file.
        found: String,
    },
    /// The manifest was written for another version.
    #[error(
        "{path}: manifest version {found}; this Stripewise reads version {MANIFEST_VERSION}: trace again, or use the Stripewise that wrote it"
    )]
    Version {
        /// The manifest.
        path: PathBuf,
        /// `version` as it stands in the file.
        found: u32,
    },
}

impl Manifest {
    /// Of a run that `command` began on `host`, outside MPI and with a clock of unknown rate.
    #[must_use]
    pub fn new(host: String, command: Vec<String>, start_unix_ns: u64) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: MANIFEST_VERSION,
            stripewise: env!("CARGO_PKG_VERSION").to_owned(),
            host,
            command,
            start_unix_ns,
            mpi_size: None,
            ticks_per_second: None,
        }
    }

    /// Writes `trace.json` into `directory`; it appears whole or not at all.
    ///
    /// # Errors
    /// When the directory cannot be written to.
    pub fn write(&self, directory: &Path) -> Result<(), ManifestError> {
        let path = directory.join(MANIFEST_NAME);
        let text = serde_json::to_string_pretty(self)
            .map_err(|source| ManifestError::Syntax { path: path.clone(), source })?;
        stripewise_layout::output::write(&path, text + "\n").map_err(|source| ManifestError::Io { path, source })
    }

    /// Reads the manifest of `directory`; none when there is none.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or is of another version.
    pub fn read(directory: &Path) -> Result<Option<Self>, ManifestError> {
        let path = directory.join(MANIFEST_NAME);
        let text = match stripewise_layout::input::read(&path, stripewise_layout::input::MAX_LIST_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ManifestError::Io { path, source }),
        };
        Self::parse(&text, &path).map(Some)
    }

    /// As [`Self::read`], from text that stands at `path`.
    ///
    /// # Errors
    /// When it is damaged, or is of another version.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let syntax = |source| ManifestError::Syntax { path: path.to_owned(), source };
        let head: Head = serde_json::from_slice(text).map_err(syntax)?;
        if head.format != FORMAT {
            return Err(ManifestError::Format { path: path.to_owned(), found: head.format });
        }
        if head.version != MANIFEST_VERSION {
            return Err(ManifestError::Version { path: path.to_owned(), found: head.version });
        }
        serde_json::from_slice(text).map_err(syntax)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_back_and_others_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Manifest::read(directory.path()).unwrap().is_none());
        let mut manifest = Manifest::new("node7".into(), vec!["./app".into(), "-n".into(), "3".into()], 42);
        manifest.mpi_size = Some(32);
        manifest.write(directory.path()).unwrap();
        assert_eq!(Manifest::read(directory.path()).unwrap(), Some(manifest));

        let path = directory.path().join(MANIFEST_NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        for (from, to, message) in [
            ("\"version\": 1", "\"version\": 9", "manifest version 9; this Stripewise reads version 1"),
            ("stripewise-trace", "other", "format `other`"),
            ("\"host\"", "\"hots\"", "hots"),
            ("{", "", "not the manifest"),
        ] {
            std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
            let error = Manifest::read(directory.path()).unwrap_err().to_string();
            assert!(error.contains(message) && error.contains("trace.json"), "{error}");
        }
    }
}
