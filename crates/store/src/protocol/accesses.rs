//! What programs of a cluster's hosts did on files, as agents and their master hand it on.

use serde::{Deserialize, Serialize};
use stripewise_layout::FileId;

/// Of one host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostAccesses {
    /// Its name.
    pub host: String,
    /// Files that programs there have open, or had since it was asked last.
    pub files: Vec<AccessedFile>,
}

/// Of one file on one host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccessedFile {
    /// Its identity.
    pub file: FileId,
    /// Where its stub was last seen; empty between agents and their master.
    pub path: String,
    /// Bytes of its regions.
    pub region_bytes: u64,
    /// As far as the host knows.
    pub size_bytes: u64,
    /// By process and lane; may be none.
    pub streams: Vec<AccessStream>,
}

/// What one thread did on a file since its host was asked last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccessStream {
    /// Slot of the process in the host's table.
    pub process: u16,
    /// Of the process's rings.
    pub lane: u8,
    /// Requests before the known ones of which nothing is known but that they were.
    pub missed: u64,
    /// In the order in which they ended.
    pub requests: Vec<Access>,
}

/// One read or write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Access {
    /// Number of its [`stripewise_layout::RequestKind`].
    pub kind: u8,
    /// First byte of the file.
    pub offset: u64,
    /// Bytes that it moved.
    pub bytes: u32,
    /// How long ago it ended when the host was asked.
    pub age_ms: u32,
}
