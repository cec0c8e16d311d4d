//! What is found out about programs.

use serde::Serialize;
use std::path::{Path, PathBuf};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The program or a part of its I/O cannot be redirected.
    Obstacle,
    /// Worth knowing; it may work or not.
    Warning,
    /// Good to know.
    Note,
}

/// One thing found out about one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// The program or library.
    pub path: PathBuf,
    /// What was found, to follow its name.
    pub what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    pub(super) fn obstacle(path: &Path, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Obstacle, path: path.to_owned(), what: what.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn warning(path: &Path, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Warning, path: path.to_owned(), what: what.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn note(path: &Path, what: impl Into<String>) -> Self {
        Self { level: Level::Note, path: path.to_owned(), what: what.into(), remedy: None }
    }
}
