//! A cluster in use by this command: its broker, if no other process is it, and a client of it.

use crate::interrupt::Interrupt;
use crate::messages::shown;
use crate::paths::{OnPath as _, PathError};
use crate::session::{Session, SessionError};
use crate::silent_servers::Waiting;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_broker::{Broker, BrokerError, BrokerOptions, Standby};
use stripewise_layout::{Cluster, Direction, FileId, Order, ServerId};
use stripewise_model::{Line, Profile, ServerProfile};
use stripewise_store::client::{Client, ClientError, ClientOptions};
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::{Admin, FileInfo, RegionInfo, Reply, Request, RequestCost, ServerUsage};
use stripewise_store::server::stations::Pace;
use stripewise_store::stub::{STUB_BYTES, Stub, StubError, size_may_be_stub};
use thiserror::Error;

/// Why a cluster could not be used, or a file of it.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Which cluster is meant is not known.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// This process could not become its broker.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The broker refused, or is not there.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The state directory is another cluster's.
    #[error(
        "the state directory {} belongs to cluster {found}, but {} names cluster {named}; correct its `state` or `id`",
        shown(state),
        shown(path)
    )]
    OtherCluster {
        /// The state directory.
        state: PathBuf,
        /// Id of the cluster that it belongs to.
        found: String,
        /// The cluster file.
        path: PathBuf,
        /// Id in the cluster file.
        named: String,
    },
    /// The cluster file changed since the broker read it.
    #[error(
        "the process that serves the cluster knows {known} servers, the cluster file {named}; repeat once that process has ended: the next one reads the file again"
    )]
    Servers {
        /// Servers that the broker knows.
        known: usize,
        /// Servers in the cluster file.
        named: usize,
    },
    /// The broker is of another version.
    #[error("the broker answered {question} with something else; use one version of stripewise")]
    Answer {
        /// What was asked, with its article.
        question: &'static str,
    },
    /// An ordinary file.
    #[error("{} is not a managed file", shown(path))]
    NotManaged {
        /// As it was named.
        path: PathBuf,
    },
    /// The system refused.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A managed file that the broker does not open.
    #[error("{}", shown(path))]
    Open {
        /// As it was named.
        path: PathBuf,
        /// Its cause.
        source: ClientError,
    },
    /// What is no stub's text may be a stub's inode; the broker does not say.
    #[error("{}", shown(path))]
    Find {
        /// As it was named.
        path: PathBuf,
        /// Its cause.
        source: ClientError,
    },
    /// A damaged stub.
    #[error("{}", shown(path))]
    Stub {
        /// As it was named.
        path: PathBuf,
        /// What is wrong with its text.
        source: StubError,
    },
    /// The stub of another cluster.
    #[error(
        "{} belongs to cluster {cluster} with state directory {}, this is cluster {this}; name its cluster file with --cluster",
        shown(path),
        shown(state)
    )]
    OfAnotherCluster {
        /// As it was named.
        path: PathBuf,
        /// Id of the stub's cluster.
        cluster: String,
        /// State directory of the stub's cluster.
        state: PathBuf,
        /// Id of this cluster.
        this: String,
    },
}

type Result<T> = std::result::Result<T, StoreError>;

/// A cluster in use.
// The client goes before the broker that it may be talking to: fields are dropped in this order.
pub struct Store {
    _waiting: Option<Waiting>,
    /// For requests to the broker.
    pub client: Client,
    /// As its file says.
    pub cluster: Cluster,
    /// None: held by whoever made this store.
    broker: Option<Standby>,
}

/// Becomes the broker of `cluster` now, or when the present one ends; says what a killed command had left behind.
///
/// # Errors
/// When the state directory, the table or a server cannot be used.
pub fn serve(session: &Session, cluster: &Cluster) -> std::result::Result<Standby, BrokerError> {
    let [read_costs, write_costs] = request_costs(cluster, &session.profile_path());
    let options = BrokerOptions { read_costs, write_costs, ..BrokerOptions::default() };
    stripewise_store::descriptors::raise_limit();
    let broker = Broker::serve_or_wait(cluster, options)?;
    for line in broker.cleaned() {
        session.say(line);
    }
    Ok(broker)
}

/// For how long [`wait_until_idle`] waits for the first program.
const FIRST_PROGRAM: Duration = Duration::from_secs(20);
/// For how long for the next one, when the last has ended.
const NEXT_PROGRAM: Duration = Duration::from_secs(2);
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Returns when no program of this host has used the cluster that `broker` serves for a while, or an interrupt comes.
pub fn wait_until_idle(broker: &Standby, interrupt: Interrupt) {
    let (mut patience, mut used) = (FIRST_PROGRAM, Instant::now());
    while used.elapsed() < patience && !interrupt.came() {
        if broker.is_used() {
            (patience, used) = (NEXT_PROGRAM, Instant::now());
        }
        std::thread::sleep(IDLE_CHECK_INTERVAL);
    }
}

/// What reads and writes were measured to take: between sequential and random ones, since nobody knows the next one's kind. Nothing where there is
/// no profile of this cluster.
fn request_costs(cluster: &Cluster, profile: &Path) -> [Vec<Option<RequestCost>>; 2] {
    let loaded = Profile::load(profile).ok().filter(|loaded| loaded.check(cluster, profile).is_ok());
    [Direction::Read, Direction::Write].map(|direction| {
        let servers = loaded.iter().flat_map(|loaded| &loaded.servers);
        servers.map(|server| Some(request_cost(server, direction))).collect()
    })
}

fn request_cost(server: &ServerProfile, direction: Direction) -> RequestCost {
    let line = |order| server.line(direction, order);
    let mean_ns =
        |of: fn(&Line) -> f64| ((of(line(Order::Sequential)) + of(line(Order::Random))) / 2.0 * 1e9).round() as u64;
    RequestCost { startup_ns: mean_ns(|line| line.alpha_s), kib_ns: mean_ns(|line| line.beta_s_per_byte * 1024.0) }
}

impl Store {
    /// The cluster that the session means, served by this process unless another one does.
    ///
    /// # Errors
    /// When its file is missing or wrong, or it cannot be served.
    pub fn open(session: &Session) -> Result<Self> {
        let cluster = session.cluster()?;
        let waiting = Waiting::begin(session.voice().clone(), &cluster);
        let broker = serve(session, &cluster)?;
        let client = Client::connect(&cluster.state, ClientOptions::default())?;
        if client.cluster() != cluster.id {
            return Err(StoreError::OtherCluster {
                found: client.cluster().to_owned(),
                path: session.cluster_path(),
                state: cluster.state,
                named: cluster.id,
            });
        }
        // Commands copy and check data; the time of emulated devices is the programs' that are measured.
        if let Some(stations) = client.stations() {
            stations.set_pace(Pace::Host);
        }
        Ok(Self { _waiting: Some(waiting), client, cluster, broker: Some(broker) })
    }

    /// A store beside a broker that the caller keeps, here or in another process.
    ///
    /// # Errors
    ///
    /// [`StoreError::Client`] if no broker answers.
    pub fn connect(cluster: Cluster) -> Result<Self> {
        let client = Client::connect(&cluster.state, ClientOptions::default())?;
        Ok(Self { _waiting: None, client, cluster, broker: None })
    }

    /// Whether this store's own broker serves, which ends with it.
    pub fn is_broker(&self) -> bool {
        self.broker.as_ref().is_some_and(Standby::is_serving)
    }

    /// Whether moves that are under way end with this store. Of a cluster of many hosts the master has them, and another may be master next.
    pub fn keeps_moves(&self) -> bool {
        self.is_broker() && self.cluster.coordinator.is_none()
    }

    /// Whether nobody but this command serves the cluster, so that nothing moves but what it orders itself.
    ///
    /// # Errors
    /// Those of [`Self::admin`].
    pub fn serves_alone(&self) -> Result<bool> {
        if !self.is_broker() || self.cluster.coordinator.is_none() {
            return Ok(self.is_broker());
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        match self.admin(Admin::Hosts)? {
            Reply::Hosts { hosts, .. } => Ok(hosts.iter().any(|found| found.is_master && found.name == host)),
            _ => Err(StoreError::Answer { question: "a question about hosts" }),
        }
    }

    /// A request that the broker answers with `Done`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::admin`].
    pub fn done(&self, admin: Admin) -> Result<()> {
        self.admin(admin).map(drop)
    }

    /// Asks the broker what only its own user or root may ask.
    ///
    /// # Errors
    ///
    /// [`StoreError::Client`] if it refuses or cannot be reached.
    pub fn admin(&self, admin: Admin) -> Result<Reply> {
        Ok(self.client.request(&Request::Admin(admin), &[])?.0)
    }

    /// What each server holds, in cluster order.
    ///
    /// # Errors
    /// When the broker cannot be asked, or knows other servers than the cluster file.
    pub fn usage(&self) -> Result<Vec<ServerUsage>> {
        match self.admin(Admin::Usage)? {
            Reply::Usage { servers } if servers.len() == self.cluster.servers.len() => Ok(servers),
            Reply::Usage { servers } => {
                Err(StoreError::Servers { known: servers.len(), named: self.cluster.servers.len() })
            }
            _ => Err(StoreError::Answer { question: "a question about free space" }),
        }
    }

    /// Servers on which nothing new is placed.
    ///
    /// # Errors
    ///
    /// Those of [`Self::usage`].
    pub fn drained(&self) -> Result<BTreeSet<ServerId>> {
        let drained = (0..).map(ServerId).zip(self.usage()?).filter(|(_, usage)| usage.drained);
        Ok(drained.map(|(id, _)| id).collect())
    }

    /// Every managed file, in order of path.
    ///
    /// # Errors
    ///
    /// [`StoreError::Client`] or [`StoreError::Answer`].
    pub fn files(&self) -> Result<Vec<FileInfo>> {
        let mut all: Vec<FileInfo> = Vec::new();
        loop {
            let after = all.last().map(|file| file.file);
            let Reply::Files { files, more } = self.admin(Admin::List { after })? else {
                return Err(StoreError::Answer { question: "a list" });
            };
            let end = !more || files.is_empty();
            all.extend(files);
            if end {
                all.sort_by(|a, b| a.path.cmp(&b.path));
                return Ok(all);
            }
        }
    }

    /// What a file's objects occupy on each server, in cluster order; `None` of a server that cannot be asked.
    ///
    /// # Errors
    ///
    /// [`StoreError::Client`], also where there is no such file, or [`StoreError::Answer`].
    pub fn held_bytes(&self, file: FileId) -> Result<Vec<Option<u64>>> {
        match self.admin(Admin::HeldBytes { file })? {
            Reply::HeldBytes { servers } => Ok(servers),
            _ => Err(StoreError::Answer { question: "a question about held bytes" }),
        }
    }

    /// The size in bytes below which the managed file at the absolute `path` becomes an ordinary one; `None`: it is managed whatever its size, as one
    /// that a plan expects is.
    ///
    /// # Errors
    ///
    /// [`StoreError::Client`].
    pub fn min_size_of(&self, path: &Path) -> Result<Option<u64>> {
        let (Some((_, min_bytes)), Some(name)) = (self.client.min_size_above(path), path.to_str()) else {
            return Ok(None);
        };
        Ok(if self.client.expects(name)? { None } else { Some(min_bytes) })
    }

    /// As [`Self::held_bytes`], of all files together.
    ///
    /// # Errors
    ///
    /// [`StoreError::Client`] or [`StoreError::Answer`].
    pub fn held_by_files(&self) -> Result<Vec<Option<u64>>> {
        let (mut all, mut after) = (vec![Some(0u64); self.cluster.servers.len()], None);
        loop {
            let Reply::HeldByFiles { servers, last } = self.admin(Admin::HeldByFiles { after })? else {
                return Err(StoreError::Answer { question: "a question about held bytes" });
            };
            for (sum, bytes) in all.iter_mut().zip(servers) {
                *sum = sum.zip(bytes).map(|(sum, bytes)| sum + bytes);
            }
            match last {
                Some(_) => after = last,
                None => return Ok(all),
            }
        }
    }

    /// Every placed region of a file, ascending.
    ///
    /// # Errors
    ///
    /// [`StoreError::Client`], also where there is no such file, or [`StoreError::Answer`].
    pub fn regions(&self, file: FileId) -> Result<Vec<RegionInfo>> {
        let mut all: Vec<RegionInfo> = Vec::new();
        loop {
            let first = stripewise_layout::RegionIndex(all.last().map_or(0, |last| last.region.0 + 1));
            let Reply::Regions { regions, more } = self.admin(Admin::Regions { file, first })? else {
                return Err(StoreError::Answer { question: "a list" });
            };
            let end = !more || regions.is_empty();
            all.extend(regions);
            if end {
                return Ok(all);
            }
        }
    }

    /// Opens the managed file at `path`, for writing too if asked.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotManaged`] of an ordinary file, otherwise those of [`Self::managed_if`].
    pub fn managed(&self, path: &Path, writable: bool) -> Result<Managed> {
        match self.managed_if(path, writable)? {
            Ok(managed) => Ok(managed),
            Err(_) => Err(StoreError::NotManaged { path: path.to_owned() }),
        }
    }

    /// Opens the managed file at `path`; an ordinary file is handed back as it is.
    ///
    /// # Errors
    ///
    /// [`StoreError::Path`] if it cannot be opened, those of [`Self::file_of`], and
    /// [`StoreError::Open`] if the broker refuses the file.
    pub fn managed_if(&self, path: &Path, writable: bool) -> Result<std::result::Result<Managed, File>> {
        let file = File::options().read(true).write(writable).open(path).on("open", path)?;
        let Some(id) = self.file_of(&file, path)? else { return Ok(Err(file)) };
        let striped =
            self.client.open(file.as_fd(), id).map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
        Ok(Ok(Managed { path: path.to_owned(), stub: file, striped }))
    }

    /// The managed file that `stub`, open on `path`, is the stub of, if it is one: by its text, or, where that was cut or written over, by its inode.
    ///
    /// # Errors
    ///
    /// [`StoreError::OfAnotherCluster`]; [`StoreError::Stub`] of a text that is damaged and an
    /// inode that is no stub's; [`StoreError::Find`] or [`StoreError::Path`].
    pub fn file_of(&self, stub: &File, path: &Path) -> Result<Option<FileId>> {
        let by_inode = || {
            let found = self.client.find(stub.as_fd());
            found.map_err(|source| StoreError::Find { path: path.to_owned(), source })
        };
        match read_stub(stub, path) {
            Ok(Some(text)) if text.cluster != self.cluster.id => Err(StoreError::OfAnotherCluster {
                path: path.to_owned(),
                cluster: text.cluster,
                state: text.state,
                this: self.cluster.id.clone(),
            }),
            Ok(Some(text)) => Ok(Some(text.file)),
            Ok(None) => by_inode(),
            Err(damaged) => by_inode()?.map_or(Err(damaged), |file| Ok(Some(file))),
        }
    }
}

/// An open managed file beside its stub.
pub struct Managed {
    /// As it was named.
    pub path: PathBuf,
    /// Open as asked; to be kept as long as the file is used.
    pub stub: File,
    /// Its data.
    pub striped: Arc<StripedFile>,
}

/// What the file says, if it is a stub.
///
/// # Errors
///
/// [`StoreError::Stub`] of a damaged text, [`StoreError::Path`] if the file cannot be looked at.
pub fn read_stub(file: &File, path: &Path) -> Result<Option<Stub>> {
    use std::os::unix::fs::FileExt;
    let metadata = file.metadata().on("look at", path)?;
    if !metadata.is_file() || !size_may_be_stub(metadata.len()) {
        return Ok(None);
    }
    let mut bytes = [0; STUB_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        // It was truncated meanwhile.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        // Nobody may take it for an ordinary file whose text could not be read.
        result => result.on("read", path)?,
    }
    Stub::parse(&bytes).map_err(|source| StoreError::Stub { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ServerClass;

    #[test]
    fn requests_take_what_lies_between_sequential_and_random_ones() {
        let line = |alpha_s, beta_s_per_byte| Line { alpha_s, beta_s_per_byte, r2: 1.0, spread: 0.0, samples: 9 };
        let (sequential, random) = (line(1e-4, 7e-9), line(9e-3, 9e-9));
        let profile = ServerProfile {
            name: "h0".to_owned(),
            class: ServerClass::Hdd,
            read_sequential: sequential,
            read_random: random,
            write_sequential: line(1e-3, 7e-8),
            write_random: line(9e-3, 9e-8),
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        };
        let costs = [Direction::Read, Direction::Write].map(|direction| request_cost(&profile, direction));
        let cost = |startup_ns, kib_ns| RequestCost { startup_ns, kib_ns };
        assert_eq!(costs, [cost(4_550_000, 8192), cost(5_000_000, 81_920)]);
    }
}
