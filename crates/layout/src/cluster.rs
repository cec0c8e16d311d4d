//! The cluster file: which servers there are, of which class, where, and how much room each has.
//!
//! `cluster.toml` is read strictly: an unknown key, a server named twice or a capacity that its reserve exceeds is an error that
//! names the line. Relative paths in it are relative to the directory of the file.

mod coordinator;
mod fragments;
mod url;

pub use coordinator::Coordinator;
pub use fragments::{
    DEFAULT_FRAGMENT_CAPACITY_BYTES, DEFAULT_FRAGMENT_THRESHOLD_BYTES, FragmentLog, MAX_FRAGMENT_THRESHOLD_BYTES,
};
pub use url::{ServerUrl, UrlNames};

use crate::{ByteCount, Layout, ServerId, input};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// The version written to and accepted from `cluster.toml`.
pub const CLUSTER_VERSION: u32 = 1;

/// 64 MiB, as H2DP section 3.3.
pub const DEFAULT_REGION_BYTES: u64 = 64 << 20;

/// What stores a server's bytes, and so which of the papers' two kinds of server it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ServerClass {
    /// HServer in the papers.
    Hdd,
    /// SServer in the papers.
    Ssd,
}

impl fmt::Display for ServerClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ServerClass::Hdd => "hdd",
            ServerClass::Ssd => "ssd",
        })
    }
}

/// One `[[server]]` of the cluster file. Its number, a [`ServerId`], is its position in the file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Unique in the cluster: ASCII letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Decides which of a layout's stripe sizes the server takes: h of an HServer, s of an SServer.
    pub class: ServerClass,
    /// No two servers share a directory.
    pub url: ServerUrl,
    /// Most bytes that managed files may occupy here; without it, what the file system has free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ByteCount>,
    /// Bytes of the capacity that planning and placement leave free.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserve: ByteCount,
    /// Bytes set aside on an SServer for fragments of this HServer, instead of what the cluster says of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragment_room: Option<ByteCount>,
    /// Name of the SServer that fragments of this HServer go to; without it, the SServers in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragments_on: Option<String>,
}

fn is_zero(bytes: &ByteCount) -> bool {
    bytes.0 == 0
}

impl Server {
    /// A server without a capacity of its own, with nothing to be left free.
    #[must_use]
    pub fn new(name: impl Into<String>, class: ServerClass, url: ServerUrl) -> Self {
        let name = name.into();
        Self { name, class, url, capacity: None, reserve: ByteCount(0), fragment_room: None, fragments_on: None }
    }
}

/// The cluster file, checked. Everything that names a server by number means a position in
/// `servers`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// [`CLUSTER_VERSION`]; files of any other version are refused.
    #[cfg_attr(feature = "schemas", schemars(extend("const" = CLUSTER_VERSION)))]
    pub version: u32,
    /// Random name given by `init`; server directories, stubs, profiles and plans carry it.
    pub id: String,
    /// Where the mapping table, control blocks and the broker's socket live.
    pub state: PathBuf,
    /// Bytes of a region of every file, a multiple of 4 KiB; 64 MiB where the file does not say.
    #[serde(default = "default_region", rename = "region")]
    pub region_size: ByteCount,
    /// Whether fragments of files that are not switched themselves go to SServers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fragments: bool,
    /// Sub-requests shorter than this may be fragments; 20 KiB without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragment_threshold: Option<ByteCount>,
    /// Bytes set aside on an SServer for fragments of every HServer that does not say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragment_room: Option<ByteCount>,
    /// What the hosts of the cluster share; `None`: it is of one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<Coordinator>,
    /// 1 to [`crate::MAX_SERVERS_PER_LAYOUT`] servers, in file order.
    #[serde(rename = "server")]
    pub servers: Vec<Server>,
}

fn default_region() -> ByteCount {
    ByteCount(DEFAULT_REGION_BYTES)
}

/// Why a cluster file cannot be used. Each variant names the file.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The file cannot be opened or read, is no regular file, or exceeds
    /// [`input::MAX_CLUSTER_BYTES`].
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file as the caller named it.
        path: PathBuf,
        /// Cause by the operating system or by [`input`].
        source: std::io::Error,
    },
    /// The text is not UTF-8, not TOML, or has an unknown, missing or mistyped key.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file as the caller named it.
        path: PathBuf,
        /// Cause with line and column, by the TOML parser.
        message: String,
    },
    /// The file was written for another version of the format.
    #[error("{}: version {found} is not supported, this stripewise reads version {CLUSTER_VERSION}: use the stripewise that wrote it. The cluster and its files are as they were", path.display())]
    Version {
        /// The file as the caller named it.
        path: PathBuf,
        /// `version` as it stands in the file.
        found: u32,
    },
    /// A value is out of range or contradicts another one.
    #[error("{}: {message}", path.display())]
    Invalid {
        /// The file as the caller named it.
        path: PathBuf,
        /// Line, value and remedy.
        message: String,
    },
}

/// What is wrong with a value, and where it stands.
struct Fault {
    /// Position of the server whose key it is; `None` at the top.
    server: Option<usize>,
    /// `None`: no single value is to blame.
    key: Option<&'static str>,
    message: String,
}

impl Fault {
    fn at_top(key: &'static str, message: String) -> Self {
        Self { server: None, key: Some(key), message }
    }

    fn of_server(server: usize, key: &'static str, message: String) -> Self {
        Self { server: Some(server), key: Some(key), message }
    }

    fn of_none(message: String) -> Self {
        Self { server: None, key: None, message }
    }

    /// The message, behind the line of `text` where the value stands, if it does.
    fn with_line(self, text: &str) -> String {
        match self.line(text) {
            Some(line) => format!("line {line}: {}", self.message),
            None => self.message,
        }
    }

    fn line(&self, text: &str) -> Option<usize> {
        let document = toml::de::DeTable::parse(text).ok()?;
        let table = match self.server {
            None => document.get_ref(),
            Some(index) => document.get_ref().get("server")?.get_ref().get(index)?.get_ref().as_table()?,
        };
        let (key, _) = table.get_key_value(self.key?)?;
        Some(text.get(..key.span().start)?.matches('\n').count() + 1)
    }
}

impl Cluster {
    /// A cluster of servers whose fragments, if they have any, go to their disks.
    #[must_use]
    pub fn new(id: impl Into<String>, state: impl Into<PathBuf>, region_size: ByteCount, servers: Vec<Server>) -> Self {
        Self {
            version: CLUSTER_VERSION,
            id: id.into(),
            state: state.into(),
            region_size,
            fragments: false,
            fragment_threshold: None,
            fragment_room: None,
            coordinator: None,
            servers,
        }
    }

    /// Reads and checks `path`; relative directories become absolute, from the directory of `path`. Servers may be of any kind: see
    /// [`Self::load_from`].
    ///
    /// # Errors
    ///
    /// Every variant of [`ClusterError`]; the file must be a regular one.
    pub fn load(path: &Path) -> Result<Self, ClusterError> {
        let read = |source| ClusterError::Read { path: path.to_owned(), source };
        Self::load_from(input::open_regular(path).map_err(read)?, path, |_| Ok(UrlNames::Directory))
    }

    /// As [`Self::load`], from the file that was opened at `path`. `check_url` says what the URL of a server names, or what is wrong with it,
    /// which this crate cannot know.
    ///
    /// # Errors
    ///
    /// Every variant of [`ClusterError`].
    pub fn load_from(
        file: std::fs::File,
        path: &Path,
        check_url: fn(&ServerUrl) -> Result<UrlNames, String>,
    ) -> Result<Self, ClusterError> {
        let bytes = input::read_from(file, input::MAX_CLUSTER_BYTES)
            .map_err(|source| ClusterError::Read { path: path.to_owned(), source })?;
        let text = String::from_utf8(bytes)
            .map_err(|_| ClusterError::Syntax { path: path.to_owned(), message: "it is not UTF-8".to_owned() })?;
        Self::parse_with(&text, path, check_url)
    }

    /// As [`Self::load`], from text that stands at `path`.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Syntax`], [`ClusterError::Version`] or [`ClusterError::Invalid`], which name
    /// `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ClusterError> {
        Self::parse_with(text, path, |_| Ok(UrlNames::Directory))
    }

    fn parse_with(
        text: &str,
        path: &Path,
        check_url: fn(&ServerUrl) -> Result<UrlNames, String>,
    ) -> Result<Self, ClusterError> {
        let mut cluster: Cluster = toml::from_str(text)
            .map_err(|error| ClusterError::Syntax { path: path.to_owned(), message: error.to_string() })?;
        if cluster.version != CLUSTER_VERSION {
            return Err(ClusterError::Version { path: path.to_owned(), found: cluster.version });
        }
        let check_urls = || -> Result<Vec<UrlNames>, Fault> {
            let urls = cluster.servers.iter().map(|server| &server.url).enumerate();
            let check = |(index, url)| check_url(url).map_err(|message| Fault::of_server(index, "url", message));
            urls.map(check).collect()
        };
        let named = check_urls()
            .and_then(|named| cluster.find_fault().map(|()| named))
            .map_err(|fault| ClusterError::Invalid { path: path.to_owned(), message: fault.with_line(text) })?;
        let base = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let base = base.parent().unwrap_or(Path::new("/"));
        cluster.state = base.join(&cluster.state);
        if let Some(coordinator) = &mut cluster.coordinator {
            coordinator.make_absolute(base);
        }
        let servers = cluster.servers.iter_mut().zip(named);
        for (server, _) in servers.filter(|(_, named)| *named == UrlNames::Directory) {
            server.url.make_absolute(base);
        }
        Ok(cluster)
    }

    /// The text of `cluster.toml`.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a cluster has only plain values")
    }

    /// What is wrong with the values, in words, with the remedy.
    ///
    /// # Errors
    ///
    /// The first fault found, without the line: name, value and remedy.
    pub fn check(&self) -> Result<(), String> {
        self.find_fault().map_err(|fault| fault.message)
    }

    fn find_fault(&self) -> Result<(), Fault> {
        // Stubs, markers and descriptions have it as one word of a line.
        if self.id.is_empty() || self.id.contains(|c: char| c.is_whitespace() || c.is_control()) {
            let message = format!("id = {:?} must be one word without spaces, as `stripewise init` writes it", self.id);
            return Err(Fault::at_top("id", message));
        }
        if self.servers.is_empty() {
            return Err(Fault::of_none("no servers; add at least one [[server]]".to_owned()));
        }
        if self.servers.len() > crate::MAX_SERVERS_PER_LAYOUT {
            let most = crate::MAX_SERVERS_PER_LAYOUT;
            return Err(Fault::of_none(format!("{} servers; at most {most} are supported", self.servers.len())));
        }
        if self.region_size.0 < 4096 || !self.region_size.0.is_multiple_of(4096) {
            let message = format!("region = \"{}\" must be a multiple of 4KiB and at least 4KiB", self.region_size);
            return Err(Fault::at_top("region", message));
        }
        for index in 0..self.servers.len() {
            self.check_server(index)?;
        }
        self.check_coordinator()?;
        self.check_fragments()
    }

    /// Name, place and room of one server, the names and places of those before it.
    fn check_server(&self, index: usize) -> Result<(), Fault> {
        let server = &self.servers[index];
        let fault = |key, message| Err(Fault::of_server(index, key, message));
        let bad_name = server.name.is_empty()
            || !server.name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if bad_name {
            return fault("name", format!("server name `{}`: use letters, digits, `-`, `_` and `.`", server.name));
        }
        if let Some(other) = self.servers[..index].iter().find(|other| other.name == server.name) {
            return fault("name", format!("two servers are named `{}`; give one another name", other.name));
        }
        let directory = server.url.directory();
        if let Some(other) = self.servers[..index].iter().find(|other| other.url.directory() == directory) {
            let message = format!("servers `{}` and `{}` share {}", other.name, server.name, directory.display());
            return fault("url", message);
        }
        match server.capacity {
            Some(ByteCount(0)) => {
                fault("capacity", format!("server `{}`: capacity 0 leaves no space; leave the server out", server.name))
            }
            Some(capacity) if capacity <= server.reserve => {
                let (name, reserve) = (&server.name, server.reserve);
                fault("reserve", format!("server `{name}`: reserve {reserve} is not smaller than capacity {capacity}"))
            }
            _ => Ok(()),
        }
    }

    /// Bytes of `server` that regions may fill, if its capacity is known: capacity less [`Self::kept_free_bytes`].
    #[must_use]
    pub fn room_bytes(&self, server: ServerId) -> Option<u64> {
        let capacity = self.server(server)?.capacity?;
        Some(capacity.0.saturating_sub(self.kept_free_bytes(server)))
    }

    /// Bytes of `server` that regions must not take: its reserve, and what is set aside for fragments. Held against the free space of a file
    /// system, this counts logs that are filled already twice, which errs on the side of too much left free.
    #[must_use]
    pub fn kept_free_bytes(&self, server: ServerId) -> u64 {
        let reserve_bytes = self.server(server).map_or(0, |server| server.reserve.0);
        reserve_bytes.saturating_add(self.set_aside_bytes(server))
    }

    /// Servers of one class with their numbers, in file order.
    pub fn of_class(&self, class: ServerClass) -> impl Iterator<Item = (ServerId, &Server)> {
        self.servers
            .iter()
            .enumerate()
            .filter(move |(_, server)| server.class == class)
            .map(|(index, server)| (ServerId(index as u16), server))
    }

    /// Numbers of the servers of one class, in file order.
    #[must_use]
    pub fn ids_of_class(&self, class: ServerClass) -> Vec<ServerId> {
        self.of_class(class).map(|(id, _)| id).collect()
    }

    /// `layout` without the servers in `avoided`, its other stripes as they are. Where none is left, its largest stripe on each other server of
    /// the class that held it, or on every other server if the class has none; `None` if there is no other server at all.
    #[must_use]
    pub fn layout_without(&self, layout: &Layout, avoided: &BTreeSet<ServerId>) -> Option<Layout> {
        let kept = layout.stripes().iter().filter(|stripe| !avoided.contains(&stripe.server));
        if let Ok(layout) = Layout::new(kept.map(|stripe| (stripe.server, stripe.size_bytes))) {
            return Some(layout);
        }
        let largest = layout.stripes().iter().max_by_key(|stripe| stripe.size_bytes)?;
        let class = self.server(largest.server).map(|server| server.class);
        let others = || self.ids().filter(|id| !avoided.contains(id));
        let of_class = others().filter(|id| self.server(*id).map(|server| server.class) == class);
        let over = |ids: Vec<ServerId>| Layout::new(ids.into_iter().map(|id| (id, largest.size_bytes))).ok();
        over(of_class.collect()).or_else(|| over(others().collect()))
    }

    /// Numbers of all servers, in file order.
    pub fn ids(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.servers.len()).map(|number| ServerId(number as u16))
    }

    /// The server with number `id`; `None` past the last one.
    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<&Server> {
        self.servers.get(usize::from(id.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
version = 1
id = "c0ffee"
state = "state"
region = "4MiB"

[[server]]
name = "hdd0"
class = "hdd"
url = "file://a"

[[server]]
name = "ssd0"
class = "ssd"
url = "emulated:///b?device=sata-ssd-2012&link=gigabit"
capacity = "100GiB"
reserve = "1GiB"
"#;

    #[test]
    fn reading_and_writing_agree() {
        let cluster = Cluster::parse(GOOD, Path::new("/x/cluster.toml")).unwrap();
        assert_eq!(cluster.state, Path::new("/x/state"));
        assert_eq!(cluster.servers[0].url, ServerUrl::new("file", "/x/a"));
        assert_eq!(cluster.room_bytes(ServerId(1)), Some(99 << 30));
        assert_eq!(Cluster::parse(&cluster.to_toml(), Path::new("/y/c.toml")).unwrap(), cluster);
    }

    /// What a kind of server says of its URLs is said with the file and the line.
    #[test]
    fn a_url_that_its_kind_refuses_is_named_with_its_line() {
        let check: fn(&ServerUrl) -> Result<UrlNames, String> = |url| match url.scheme() {
            "file" => Ok(UrlNames::Directory),
            _ => Err(format!("`{url}`: no")),
        };
        let path = Path::new("/x/cluster.toml");
        let error = Cluster::parse_with(GOOD, path, check).unwrap_err().to_string();
        assert_eq!(error, "/x/cluster.toml: line 15: `emulated:///b?device=sata-ssd-2012&link=gigabit`: no");
        let without = &GOOD[..GOOD.rfind("[[server]]").unwrap()];
        assert_eq!(Cluster::parse_with(without, path, check).unwrap(), Cluster::parse(without, path).unwrap());
    }

    /// Only directories begin where the cluster file lies.
    #[test]
    fn a_url_that_names_no_directory_stays_as_it_was_written() {
        let path = Path::new("/x/cluster.toml");
        let text = GOOD.replace("emulated:///b?device=sata-ssd-2012&link=gigabit", "rados://b?user=u");
        let check: fn(&ServerUrl) -> Result<UrlNames, String> = |url| match url.scheme() {
            "file" => Ok(UrlNames::Directory),
            _ => Ok(UrlNames::Elsewhere),
        };
        let cluster = Cluster::parse_with(&text, path, check).unwrap();
        let urls: Vec<String> = cluster.servers.iter().map(|server| server.url.to_string()).collect();
        assert_eq!(urls, ["file:///x/a", "rados://b?user=u"]);
    }

    #[test]
    fn layouts_do_without_servers_as_long_as_there_are_others() {
        let third = "[[server]]\nname = \"hdd1\"\nclass = \"hdd\"\nurl = \"file://c\"\n";
        let cluster = Cluster::parse(&format!("{GOOD}{third}"), Path::new("/x/cluster.toml")).unwrap();
        let without = |pairs: &[(u16, u32)], avoided: &[u16]| {
            let layout = Layout::new(pairs.iter().map(|(id, size)| (ServerId(*id), *size))).unwrap();
            let found = cluster.layout_without(&layout, &avoided.iter().copied().map(ServerId).collect());
            found.map(|layout| layout.stripes().iter().map(|s| (s.server.0, s.size_bytes)).collect::<Vec<_>>())
        };
        assert_eq!(without(&[(0, 64), (1, 128)], &[]), Some(vec![(0, 64), (1, 128)]));
        assert_eq!(without(&[(0, 64), (1, 128), (2, 64)], &[0]), Some(vec![(1, 128), (2, 64)]));
        assert_eq!(without(&[(0, 64)], &[0]), Some(vec![(2, 64)]), "the other disk");
        assert_eq!(without(&[(1, 128)], &[1]), Some(vec![(0, 128), (2, 128)]), "there is no other SSD");
        assert_eq!(without(&[(0, 64), (1, 128)], &[0, 1]), Some(vec![(2, 128)]));
        assert_eq!(without(&[(0, 64)], &[0, 1, 2]), None);
    }

    #[test]
    fn faults_are_named() {
        for (from, to, expected) in [
            ("region = ", "regoin = ", "line 5"),
            ("\"4MiB\"", "\"1000\"", "line 5: region"),
            ("reserve = \"1GiB\"", "reserve = \"200GiB\"", "line 17: server `ssd0`"),
            ("version = 1", "version = 7", "version 7 is not supported"),
            ("name = \"ssd0\"", "name = \"hdd0\"", "two servers are named `hdd0`"),
            ("reserve = \"1GiB\"", "reserve = \"200GiB\"", "reserve 200GiB is not smaller than capacity 100GiB"),
            ("\"100GiB\"", "\"-3\"", "is not a size"),
            ("\"4MiB\"", "\"1000\"", "multiple of 4KiB"),
            ("file://a", "/a", "`/a` is not a server URL; write KIND://DIRECTORY"),
            ("file://a", "file:///b", "share /b"),
            // Stubs and descriptions of such a cluster could not be read again: their lines are words.
            ("\"c0ffee\"", "\"my cluster\"", "line 3: id = \"my cluster\" must be one word"),
            ("\"c0ffee\"", "\"c0\\nffee\"", "must be one word"),
            ("\"c0ffee\"", "\"\"", "must be one word"),
        ] {
            let error = Cluster::parse(&GOOD.replace(from, to), Path::new("/x/cluster.toml")).unwrap_err().to_string();
            assert!(error.contains(expected), "{from} -> {to}: {error}");
            assert!(error.contains("cluster.toml"), "{error}");
        }
    }
}
