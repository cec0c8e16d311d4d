//! URLs of servers. This crate knows their form; the kind of server that has the scheme knows which parameters it takes.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// Where a server keeps its objects, and what kind of server it is: `SCHEME://DIRECTORY[?KEY=VALUE[&KEY=VALUE]...]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerUrl {
    scheme: String,
    directory: PathBuf,
    /// What stands behind `?`, as it was written.
    query: String,
}

/// What stands between a URL's `://` and its `?`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UrlNames {
    /// A directory of this host; a relative one begins where the cluster file lies.
    Directory,
    /// Something that has no place on this host, such as a pool.
    Elsewhere,
}

impl ServerUrl {
    /// A URL without parameters.
    #[must_use]
    pub fn new(scheme: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self { scheme: scheme.into(), directory: directory.into(), query: String::new() }
    }

    /// The same URL with these parameters instead of its own: `KEY=VALUE`, separated by `&`.
    #[must_use]
    pub fn with_query(self, query: impl Into<String>) -> Self {
        Self { query: query.into(), ..self }
    }

    /// What the URL begins with, before `://`: the kind of server.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The directory that holds the server's objects, absolute once the cluster is loaded; of a URL that names none what it names instead
    /// ([`UrlNames`]).
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The parameters, as they are written: `KEY=VALUE` if they are well-formed.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.query.split('&').filter(|parameter| !parameter.is_empty())
    }

    /// Makes a relative directory one below `base`.
    pub(super) fn make_absolute(&mut self, base: &Path) {
        self.directory = base.join(&self.directory);
    }
}

impl std::str::FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            format!("`{text}` is not a server URL; write KIND://DIRECTORY, for a mounted directory file:///DIRECTORY")
        })?;
        let (directory, query) = rest.split_once('?').unwrap_or((rest, ""));
        if directory.is_empty() {
            return Err(format!("`{text}` names no directory"));
        }
        Ok(Self::new(scheme, directory).with_query(query))
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.directory.display())?;
        if self.query.is_empty() { Ok(()) } else { write!(f, "?{}", self.query) }
    }
}

impl Serialize for ServerUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for ServerUrl {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ServerUrl".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "`KIND:///DIRECTORY[?NAME=VALUE&NAME=VALUE]`; docs/formats.md lists the kinds."
        })
    }
}

impl<'de> Deserialize<'de> for ServerUrl {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_any_kind_is_read_and_written_as_it_stands() {
        for text in ["file:///a", "file://a/b", "emulated:///b?device=nvme&link=gigabit", "other:///c?x&&y=1"] {
            let url: ServerUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), text);
        }
        let url: ServerUrl = "other://c?x&&y=1".parse().unwrap();
        assert_eq!((url.scheme(), url.directory()), ("other", Path::new("c")));
        assert_eq!(url.parameters().collect::<Vec<_>>(), ["x", "y=1"]);
        assert_eq!("other://c?".parse(), Ok(ServerUrl::new("other", "c")));
        for (text, expected) in [("/mnt/a", "write KIND://DIRECTORY"), ("file://?x=1", "names no directory")] {
            let error = text.parse::<ServerUrl>().unwrap_err();
            assert!(error.contains(text) && error.contains(expected), "{error}");
        }
    }
}
