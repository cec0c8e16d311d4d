//! Making a cluster: its file, and the directories that it names.
//!
//! Everything is checked first; then the state directory and the servers' markers are made, and the
//! cluster file appears last and whole, so that an interrupted [`init`] leaves no cluster that looks
//! complete.

mod ceph;
mod places;
mod server;

pub use ceph::{CephError, CephFindings, CephOptions, NamedClass};
pub use server::{NamedServer, ParseServerError, Place};

use crate::emulated::{self, EmulatedServers, RootTaken};
use crate::limits::{self, LimitError};
use crate::messages::shown;
use crate::paths::{OnPath as _, PathError, PlaceError, absolute};
use crate::session::Session;
use serde::Serialize;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use stripewise_broker::by_agent as agent_servers;
use stripewise_broker::hosts::{ClusterKey, KeyError};
use stripewise_broker::rados::{RadosCoordinator, RadosOptions, RadosTableError};
use stripewise_device::UnknownName;
use stripewise_layout::cluster::DEFAULT_REGION_BYTES;
use stripewise_layout::{ByteCount, Cluster, Coordinator, Server, output};
use stripewise_store::server::directory::Prepared;
use stripewise_store::server::emulated::is_emulated;
use stripewise_store::server::{ServerError, directory, is_by_agent};
use stripewise_store::state::{StateDirectory, StateError};
use thiserror::Error;

/// Where the state directory is by default, beside the cluster file.
pub const DEFAULT_STATE: &str = "stripewise-state";

/// Of each host alone, whatever else hosts share.
const MEMORY: &str = "/dev/shm";

/// Why no cluster was made.
#[derive(Debug, Error)]
pub enum InitError {
    /// A server cannot do what is asked.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A path could not be made absolute.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The system refused to make or write something.
    #[error(transparent)]
    Path(#[from] PathError),
    /// No device or link has that name.
    #[error(transparent)]
    Device(#[from] UnknownName),
    /// The place of emulated servers is taken.
    #[error(transparent)]
    Root(#[from] RootTaken),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The key pair of a cluster of many hosts cannot be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The directory of a server cannot be prepared.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A Ceph has no servers for a cluster.
    #[error(transparent)]
    Ceph(#[from] CephError),
    /// The pool cannot have the mapping table.
    #[error("the mapping table cannot be in that pool: {0}")]
    Table(#[from] RadosTableError),
    /// A cluster file is there.
    #[error(
        "{} exists already and is the way to its cluster's files; name another with -C for another cluster",
        shown(path)
    )]
    Exists {
        /// The cluster file.
        path: PathBuf,
    },
    /// The cluster file would have no directory.
    #[error("there is no directory {}; make it first", shown(path))]
    NoDirectory {
        /// Directory of the cluster file.
        path: PathBuf,
    },
    /// A cluster has at least one server.
    #[error("no servers; name at least one with --server or --emulated, or give --ceph")]
    NoServers,
    /// Servers, sizes or names make no cluster.
    #[error("{what}")]
    Cluster {
        /// Name, value and remedy.
        what: String,
    },
    /// The directory of a server is missing.
    #[error("server `{server}`: there is no directory {}; mount or make it first", shown(directory))]
    NoServerDirectory {
        /// Name of the server.
        server: String,
        /// Its directory.
        directory: PathBuf,
    },
    /// Two servers are one directory, by whatever paths.
    #[error("servers `{first}` and `{second}` share {}, by different paths; give each a directory of its own", directory.display())]
    OneDirectory {
        /// Name of the one server.
        first: String,
        /// Name of the other.
        second: String,
        /// Its directory.
        directory: PathBuf,
    },
    /// A server lies in the directory of something else.
    #[error("server `{server}`: {} lies in {outer}, {}; name a directory next to it", directory.display(), outside.display())]
    Inside {
        /// Name of the server.
        server: String,
        /// Its directory.
        directory: PathBuf,
        /// What it lies in, with its article.
        outer: String,
        /// The directory of that.
        outside: PathBuf,
    },
    /// The directory of a server takes nothing.
    #[error("server `{server}`: {} is not writable ({source}); change its mode or owner", shown(directory))]
    NotWritable {
        /// Name of the server.
        server: String,
        /// Its directory.
        directory: PathBuf,
        /// What the system says.
        source: rustix::io::Errno,
    },
    /// The state directory is another cluster's.
    #[error(
        "the state directory {} is not empty: it belongs to another cluster; choose another with --state",
        shown(state)
    )]
    StateTaken {
        /// The state directory.
        state: PathBuf,
    },
    /// The system has no random bits for the cluster's id.
    #[error("cannot get random bits")]
    Random(#[source] rustix::io::Errno),
}

type Result<T> = std::result::Result<T, InitError>;

/// What a new cluster consists of.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// Directories on mounts of this host, and servers that the broker reaches.
    pub servers: Vec<NamedServer>,
    /// A Ceph whose OSDs become servers.
    pub ceph: Option<CephOptions>,
    /// Emulated servers: real bytes in directories, the time of named devices.
    pub emulated: Vec<EmulatedServers>,
    /// Name of the link in front of each emulated server.
    pub link: Option<String>,
    /// Where the directories of emulated servers go. `None`: in `/dev/shm` where they fit, else
    /// beside the cluster file.
    pub emulated_directory: Option<PathBuf>,
    /// Size of a region, the unit of placement.
    pub region: ByteCount,
    /// The state directory, on a file system of each host; a relative path starts beside the cluster file. `None`: beside the cluster file, and in
    /// `/dev/shm` for a cluster of many hosts.
    pub state: Option<PathBuf>,
    /// Where hosts have the table that they share; `None` for a cluster of one host.
    pub engine: Option<EngineOptions>,
    /// Where each host listens for the others; see [`Coordinator::listen`].
    pub listen: Option<String>,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            ceph: None,
            emulated: Vec::new(),
            link: None,
            emulated_directory: None,
            region: ByteCount(DEFAULT_REGION_BYTES),
            state: None,
            engine: None,
            listen: None,
        }
    }
}

/// Where hosts of a cluster have the table that they share, and elect their master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EngineOptions {
    /// Endpoints of one etcd, at least one.
    Etcd(Vec<String>),
    /// A replicated pool of a Ceph.
    Pool {
        /// Its name.
        pool: String,
        /// Path of `ceph.conf`; `None`: Ceph's usual places.
        conf: Option<PathBuf>,
        /// As in `client.NAME`; `None`: `admin`.
        user: Option<String>,
    },
}

impl EngineOptions {
    fn to_coordinator(&self, listen: Option<&String>) -> std::result::Result<Coordinator, PlaceError> {
        let coordinator = match self {
            Self::Etcd(endpoints) => Coordinator::in_etcd(endpoints.clone()),
            Self::Pool { pool, conf, user } => {
                let conf = conf.as_deref().map(absolute).transpose()?;
                Coordinator::in_pool(pool.clone(), conf, user.clone())
            }
        };
        Ok(Coordinator { listen: listen.cloned(), ..coordinator })
    }
}

/// A cluster that was made.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Initialized {
    /// Absolute path of the cluster file.
    pub path: PathBuf,
    /// As in the file.
    pub cluster: Cluster,
}

/// Writes the cluster file that `session` means and prepares the directories of its servers.
///
/// # Errors
///
/// [`InitError`]; nothing is left behind then.
pub fn init(session: &Session, options: &InitOptions) -> Result<Initialized> {
    let path = absolute(&session.cluster_path())?;
    let base = path.parent().unwrap_or(Path::new("/"));
    if path.symlink_metadata().is_ok() {
        return Err(InitError::Exists { path });
    }
    if !base.is_dir() {
        return Err(InitError::NoDirectory { path: base.to_owned() });
    }
    if options.servers.is_empty() && options.emulated.is_empty() && options.ceph.is_none() {
        return Err(InitError::NoServers);
    }
    let id = new_id()?;
    let mut servers =
        options.servers.iter().map(NamedServer::to_server).collect::<std::result::Result<Vec<Server>, _>>()?;
    if let Some(ceph) = &options.ceph {
        servers.extend(ceph::find(ceph, options.region)?);
    }
    let emulated = emulated::servers(&options.emulated, options.link.as_deref(), servers.len())?;
    if !emulated.is_empty() {
        let root = match &options.emulated_directory {
            Some(directory) => absolute(directory)?,
            None => emulated::choose_root(base, &id, &emulated)?,
        };
        servers.extend(emulated.iter().map(|server| server.at(&root)));
    }
    let state = match &options.state {
        Some(state) => base.join(state),
        // The directory of the cluster file may be on a mount that hosts share.
        None if options.engine.is_some() => Path::new(MEMORY).join(format!("stripewise-{id}")),
        None => base.join(DEFAULT_STATE),
    };
    let mut cluster = Cluster::new(id, state, options.region, servers);
    limits::check_region(&cluster, options.region)?;
    if let Some(engine) = &options.engine {
        if let Some(emulated) = cluster.servers.iter().find(|server| is_emulated(&server.url)) {
            let what = format!(
                "server {} is emulated, which only one host can be; leave --emulated out, or --etcd and --rados",
                emulated.name
            );
            return Err(InitError::Cluster { what });
        }
        cluster.coordinator = Some(engine.to_coordinator(options.listen.as_ref())?);
    }
    cluster.check().map_err(|what| InitError::Cluster { what })?;
    agent_servers::probe(&cluster.servers, options.region)?;
    if let Some(pool) = cluster.coordinator.as_ref().and_then(RadosOptions::of) {
        RadosCoordinator::probe(&pool, &cluster.id)?;
    }
    let mut made = Made::default();
    prepare(&cluster, &mut made)?;
    if let Some(coordinator) = &cluster.coordinator {
        let key = base.join(&coordinator.key);
        ClusterKey::make(&key)?;
        made.files.push(key);
    }
    output::create(&path, cluster.to_toml()).on("write", &path)?;
    made.keep();
    Ok(Initialized { path, cluster })
}

/// 64 random bits as 16 hexadecimal digits.
fn new_id() -> Result<String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(InitError::Random)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Directories made so far; removed again, with what was put into them, unless all went well.
#[derive(Default)]
struct Made {
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    servers: Vec<Prepared>,
}

impl Made {
    /// Makes the directory and those above it; none of them if it is there.
    fn directory(&mut self, path: &Path, mode: u32) -> std::result::Result<(), PathError> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.directory(parent, 0o777)?;
        }
        std::fs::DirBuilder::new().mode(mode).create(path).on("create", path)?;
        self.directories.push(path.to_owned());
        Ok(())
    }

    fn keep(mut self) {
        self.files.clear();
        self.directories.clear();
        self.servers.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.servers.drain(..).rev().for_each(Prepared::undo);
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
        for directory in self.directories.iter().rev() {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

fn prepare(cluster: &Cluster, made: &mut Made) -> Result<()> {
    let (by_agent, in_directories): (Vec<&Server>, Vec<&Server>) =
        cluster.servers.iter().partition(|server| is_by_agent(&server.url));
    let (emulated, real): (Vec<&Server>, Vec<&Server>) =
        in_directories.iter().partition(|server| is_emulated(&server.url));
    for server in real {
        server::check_directory(server)?;
    }
    places::check(&in_directories, &cluster.state)?;
    if std::fs::read_dir(&cluster.state).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(InitError::StateTaken { state: cluster.state.clone() });
    }
    // Only this user may pass through it.
    made.directory(&cluster.state, 0o700)?;
    // Where the directory was there, empty.
    made.directories.extend(["rmt", "run"].map(|name| cluster.state.join(name)));
    made.files.push(cluster.state.join("log"));
    StateDirectory::make(&cluster.state)?;
    for server in emulated {
        made.directory(server.url.directory(), 0o777)?;
        server::check_writable(server)?;
    }
    // Markers come last: only they show that a directory belongs to this cluster.
    for server in in_directories {
        made.servers.push(directory::prepare(&cluster.id, &server.name, server.url.directory())?);
    }
    for server in by_agent {
        agent_servers::prepare(&cluster.id, &server.name, &server.url)?;
    }
    Ok(())
}
