//! Servers: independent places that store objects.
//!
//! [`ObjectStore`] is the seam for every kind of server (`store`), [`Decorator`] for what stands before one (`decorator`). A kind of server is added by
//! one module below this one and one row of [`KINDS`]. An object is created before its first data; a missing object is an error, never zeros; an object
//! shorter than a read is zeros beyond its end, which the caller fills in.

pub mod by_agent;
pub mod calls;
pub mod clock;
pub mod deadline;
pub mod decorator;
pub mod directory;
pub mod emulated;
pub mod memory;
pub mod operation;
pub mod orangefs;
pub mod pace;
pub mod rados;
pub mod stations;
pub mod store;
pub mod submission;
pub mod throttle;
pub mod transfer;
pub mod watched;

pub use calls::perform_together;
pub use decorator::Decorator;
pub use operation::{Call, OpenMode, Operation, Outcome, Standing};
pub use store::{Capabilities, DeviceTime, FreeSpace, ObjectStore, Predicted, Syncing};
pub use submission::{Submission, submit_all};
pub use transfer::{Handle, How, LentTransfer, Memory, ObjectHandle, Then, Transfer};

use rustix::io::Errno;
use std::sync::Arc;
use stripewise_layout::{FileId, Generation, RegionIndex, ServerId, ServerUrl, UrlNames};

/// What a kind of server is made from.
#[derive(Clone, Copy)]
pub struct Opening<'a> {
    /// Id of the cluster.
    pub cluster: &'a str,
    /// Position in the cluster's list of servers.
    pub number: ServerId,
    /// As in the cluster file.
    pub name: &'a str,
    /// As in the cluster file, absolute.
    pub url: &'a ServerUrl,
    /// With these an emulated server takes its device's time; without (the broker, the command) it is as fast as the host.
    pub stations: Option<&'a Arc<stations::Stations>>,
}

/// A kind of server.
pub struct Kind {
    /// What its URLs begin with, before `://`.
    pub scheme: &'static str,
    /// Says what is wrong with a URL of this scheme, if anything is; asked when a cluster file is read, before any server is opened.
    pub check: fn(&ServerUrl) -> Result<(), String>,
    /// I/O runs in the agent of the host: a client reaches it by its lane ([`by_agent`]) and knows this of it; the broker opens it by a row of its own.
    pub by_agent: Option<Capabilities>,
    /// Opens one. A server that is not there now opens all the same: [`ObjectStore::probe`] and every call say what is wrong.
    pub open: fn(&Opening<'_>) -> Result<Box<dyn ObjectStore>, ServerError>,
}

/// Every kind of server.
pub static KINDS: [Kind; 4] = [directory::KIND, emulated::KIND, rados::KIND, orangefs::KIND];

/// Whether the I/O of a server runs in the agent.
#[must_use]
pub fn is_by_agent(url: &ServerUrl) -> bool {
    capabilities_by_agent(url).is_some()
}

/// What a client knows of a server whose I/O runs in the agent; `None` of any other server.
#[must_use]
pub fn capabilities_by_agent(url: &ServerUrl) -> Option<Capabilities> {
    kind_among(&KINDS, url).ok()?.by_agent
}

/// The kind among `kinds` that has the scheme of `url`.
fn kind_among<'a>(kinds: &'a [Kind], url: &ServerUrl) -> Result<&'a Kind, String> {
    kinds.iter().find(|kind| kind.scheme == url.scheme()).ok_or_else(|| {
        let known: Vec<&str> = kinds.iter().map(|kind| kind.scheme).collect();
        format!("`{url}`: unknown kind of server `{}`; known: {}", url.scheme(), known.join(", "))
    })
}

/// What the URL of a server names: for [`stripewise_layout::Cluster::load_from`].
///
/// # Errors
/// The URL, what is wrong with it, and what is known instead.
pub fn check_url(url: &ServerUrl) -> Result<UrlNames, String> {
    let kind = kind_among(&KINDS, url)?;
    (kind.check)(url)?;
    Ok(if kind.by_agent.is_some() { UrlNames::Elsewhere } else { UrlNames::Directory })
}

/// Opens a server of any kind in `kinds`, [`KINDS`] outside of tests.
///
/// # Errors
/// [`ServerError::Unusable`] if its scheme is none of these, or its URL names what its kind does not know.
pub fn open_among(kinds: &[Kind], opening: &Opening<'_>) -> Result<Box<dyn ObjectStore>, ServerError> {
    match kind_among(kinds, opening.url) {
        Ok(kind) => (kind.open)(opening),
        Err(what) => Err(ServerError::Unusable { server: opening.name.to_owned(), what }),
    }
}

/// Opens server `number`, called `name`, of the cluster with id `cluster`; see [`Opening`].
///
/// # Errors
/// As [`open_among`].
pub fn open(
    cluster: &str,
    number: ServerId,
    name: &str,
    url: &ServerUrl,
    stations: Option<&Arc<stations::Stations>>,
) -> Result<Box<dyn ObjectStore>, ServerError> {
    open_among(&KINDS, &Opening { cluster, number, name, url, stations })
}

/// One generation of one region on one server. Names are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectName {
    /// The managed file.
    pub file: FileId,
    /// Region of the file.
    pub region: RegionIndex,
    /// Of the region's place or replica that the object belongs to.
    pub generation: Generation,
}

impl std::fmt::Display for ObjectName {
    /// As the object's path below the directory of objects.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}.{}", self.file, self.region, self.generation)
    }
}

/// Set in the generation of a region that was moved: its objects were durable before the table named them, and an emulated disk lays them apart.
const MOVED: u32 = 1 << 31;
/// First line of the text that describes a file's layout ([`ObjectStore::descriptions`]).
pub const FIRST_LINE_OF_DESCRIPTIONS: &str = "stripewise description 1";

/// Highest number of a generation, without the mark of the moved.
pub const MAX_ORDINAL: u32 = MOVED - 1;

/// The generation number `ordinal` of a file, made by a move.
#[must_use]
pub fn moved_generation(ordinal: u32) -> Generation {
    Generation(ordinal | MOVED)
}

/// Whether the generation has the mark that [`moved_generation`] gives.
#[must_use]
pub fn is_moved(generation: Generation) -> bool {
    generation.0 & MOVED != 0
}

/// The generation's number in its file, whether it was moved or not.
#[must_use]
pub fn ordinal(generation: Generation) -> u32 {
    generation.0 & !MOVED
}

/// Mode and owner that an object takes over from its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// Permission bits, the read and write ones of which count.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Why a call on a server failed. Each variant names the server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No such object, though the server is there.
    #[error("server {server}: object {object} is missing")]
    Missing {
        /// Name of the server.
        server: String,
        /// The object asked for.
        object: ObjectName,
    },
    /// The name is taken; it is never used twice.
    #[error("server {server}: object {object} exists already")]
    Exists {
        /// Name of the server.
        server: String,
        /// The object to be made.
        object: ObjectName,
    },
    /// The server is not what the cluster file says, or cannot do what is asked.
    #[error("server {server}: {what}")]
    Unusable {
        /// Name of the server.
        server: String,
        /// What is wrong, with the remedy.
        what: String,
    },
    /// A call hangs, as on a mount whose server is gone.
    #[error(
        "server {server} has not answered for {waited_s} s; see to its mount: what needs it goes on when it answers"
    )]
    NotAnswering {
        /// Name of the server.
        server: String,
        /// Seconds since the oldest call that hangs.
        waited_s: u64,
    },
    /// Another host has shut this client out.
    #[error(
        "server {server}: this host did not answer the others of its cluster, or another took its place, and was shut out; its agent comes back as a new client"
    )]
    ShutOut {
        /// Name of the server.
        server: String,
    },
    /// The server is full, or its quota is used up.
    #[error("server {server}: no space left")]
    NoSpace {
        /// Name of the server.
        server: String,
    },
    /// This user may not open the object or change it.
    #[error("server {server}: permission denied")]
    Denied {
        /// Name of the server.
        server: String,
    },
    /// The operating system refused.
    #[error("server {server}: {action}: {source}")]
    Os {
        /// Name of the server.
        server: String,
        /// What was tried, as in "opening the server directory".
        action: &'static str,
        /// Its cause.
        source: rustix::io::Errno,
    },
}

impl ServerError {
    /// Of a system call for `server`.
    #[must_use]
    pub fn from_errno(server: String, action: &'static str, source: Errno) -> Self {
        match source {
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace { server },
            Errno::ACCESS | Errno::PERM => Self::Denied { server },
            source => Self::Os { server, action, source },
        }
    }
}

/// When a sub-request is done, in ns of CLOCK_MONOTONIC; `None`: when its system call returns.
pub type Due = Option<u64>;

/// How long an object is, and how much it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectSize {
    /// The first byte behind the object's last one.
    pub end_bytes: u64,
    /// Without holes, as far as the store knows them.
    pub occupied_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new kind of server is one row.
    #[test]
    fn a_server_is_opened_by_the_row_of_its_scheme() {
        let dummy = Kind {
            scheme: "dummy",
            by_agent: None,
            check: |url| match url.parameters().next() {
                Some(parameter) => Err(format!("`{url}`: {parameter}?")),
                None => Ok(()),
            },
            open: |opening| Ok(Box::new(memory::MemoryServer::new(opening.name))),
        };
        let kinds = [directory::KIND, dummy];
        let opened = |kinds: &[Kind], url: &str| {
            let url: ServerUrl = url.parse().unwrap();
            let opening = Opening { cluster: "c", number: ServerId(0), name: "s", url: &url, stations: None };
            open_among(kinds, &opening).map(|store| (store.name().to_owned(), store.capabilities()))
        };
        let (name, dummy) = opened(&kinds, "dummy:///nowhere").unwrap();
        assert!(name == "s" && !dummy.plain_descriptors && dummy.syncing == Syncing::Nothing);
        assert!(opened(&KINDS, "file:///nowhere").unwrap().1.plain_descriptors);
        let error = opened(&kinds, "ftp:///nowhere").unwrap_err().to_string();
        assert_eq!(error, "server s: `ftp:///nowhere`: unknown kind of server `ftp`; known: file, dummy");
        let checked = |text: &str| {
            let url: ServerUrl = text.parse().unwrap();
            kind_among(&kinds, &url).and_then(|kind| (kind.check)(&url))
        };
        assert_eq!(checked("dummy:///nowhere"), Ok(()));
        assert_eq!(checked("dummy:///nowhere?where"), Err("`dummy:///nowhere?where`: where?".to_owned()));
        assert!(checked("ftp:///nowhere").unwrap_err().contains("known: file, dummy"));
        for (url, expected) in [
            ("ftp://a", "unknown kind of server `ftp`; known: file, emulated, rados, orangefs"),
            ("file:///a?b=1", "a file URL takes no parameters, found `b=1`"),
            ("emulated:///a", "needs ?device=NAME"),
        ] {
            let error = check_url(&url.parse().unwrap()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let schemes: std::collections::BTreeSet<&str> = KINDS.iter().map(|kind| kind.scheme).collect();
        assert_eq!(schemes.len(), KINDS.len(), "each scheme once");
    }
}
