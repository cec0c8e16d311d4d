//! The state directory: what a cluster's broker keeps on its host.
//!
//! | name | what |
//! |---|---|
//! | `rmt/` | the mapping table, and `committed`: the number of its last transaction |
//! | `rmt.good/` | the last good copy of the table |
//! | `rmt.damaged-N/` | tables that a repair has replaced |
//! | `rmt.vN/` | the table as it was before it was rewritten from version N |
//! | `run/` | `broker.sock`, and the memory that processes share (see [`crate::shared`]) |
//! | `broker.lock` | lock of the broker; contains its process id |
//! | `host` | identity of the one host that uses this state directory; shared memory and kernel locks exist on one host only |
//! | `drained` | names of servers on which nothing new is placed (`stripewise evacuate`); those of a cluster of several hosts are in its table |
//! | `daemon` | lock of the cluster's daemon; contains its process id |
//! | `plans/` | plans that were applied |
//! | `log` | actions of brokers, one line each |
//!
//! `stripewise init` makes it, and `rmt/` in it is its mark. One that is missing or empty later lies on a file system that is not mounted, or was lost: a
//! cluster that began once more there would know nothing of its files. Only where hosts share the table does each of them make its own at its first use.
//!
//! It belongs to the user who made it, and nobody else becomes a broker there or writes in it, root included: whoever may write a directory
//! can put links in the place of what is to be written, and files of root would lock the owner out. Root that is to act for the owner
//! becomes the owner first (`--as-owner`). Everything in it is opened without following links and must be a regular file of the
//! owner with one name.
//!
//! It is private to its user (0700), unless [`StateDirectory::open_to_others`] lets other users connect; whom the
//! broker then serves a file is decided by the stub's descriptor. `run/` (0711) and the socket (0666) let everybody pass who came
//! through the directory above, or once did: a client keeps a descriptor of `run/`, by which a process that has given up its user's
//! rights since still reaches the broker and its successors. It gains nothing by that but to be asked for the stub's descriptor.

mod error;
mod host;
mod own_files;
mod run_id;
mod socket;

pub use error::StateError;
pub use host::HostIdentity;
pub use own_files::OwnDirectory;
pub use socket::connect;

use crate::entry::{check_own_at, create_own_at, open_own_at};
use crate::log_line::log_line;
use error::fault_of;
use own_files::{DIRECTORY, Found, check_copied_stubs, check_owner, other_owner, own_directory, read_own, replace_at};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stripewise_layout::Cluster;

/// The inodes of all stubs, in `run/` (`crate::shared::inodes`).
pub const INODES: &str = "inodes";
const LOCK: &str = "broker.lock";
const HOST: &str = "host";
/// For all who have reached it.
const PASSABLE: Mode = Mode::from_bits_retain(0o711);
/// The number of the table's last transaction, in `rmt/` (broker, `rmt::witness`).
pub const COMMITTED: &str = "committed";
/// The table's changes that are not durable yet, in `rmt/` (broker, `rmt::journal`).
pub const PENDING: &str = "pending";
const DRAINED: &str = "drained";
const DRAINED_HEAD: &str = "stripewise drained 1\n";

/// An existing state directory.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    root: OwnedFd,
    run: OwnedFd,
    log: OwnedFd,
}

/// The broker's lock; given up when dropped, or with the process.
#[derive(Debug)]
pub struct BrokerLock {
    file: OwnedFd,
}

impl Drop for BrokerLock {
    fn drop(&mut self) {
        // A child that is just being started may still have a copy of the descriptor: closing ours would not be enough.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// In `run/` of a host of a cluster that has many: for how many seconds its broker's place may be empty while a master is elected.
pub const AGENT: &str = "agent";
/// In `run/`: the term in which an agent of this host was last elected master.
const MASTERSHIP: &str = "mastership";
/// In `run/`: see [`StateDirectory::note_leaving`].
const LEAVING: &str = "leaving";

impl StateDirectory {
    /// Opens the cluster's state directory on this host. Of a cluster of many hosts it is made where it is missing, as each host has its own.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open`], or of [`Self::make`].
    pub fn of(cluster: &Cluster) -> Result<Self, StateError> {
        if cluster.coordinator.is_some() { Self::make(&cluster.state) } else { Self::open(&cluster.state) }
    }

    /// Opens this user's state directory, or makes it (0700).
    ///
    /// # Errors
    ///
    /// Those of [`Self::open`] but [`StateError::Lost`].
    pub fn make(path: &Path) -> Result<Self, StateError> {
        let fault = |errno| fault_of(path.to_owned(), "create", errno);
        let root = match Self::open_root(path)? {
            Some(root) => root,
            None => {
                std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))
                    .map_err(|error| fault(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
                own_directory(rustix::fs::CWD, path).map_err(fault)?
            }
        };
        check_owner(&root, path)?;
        Self::open_in(path, root)
    }

    /// Opens this user's state directory.
    ///
    /// # Errors
    ///
    /// [`StateError::Lost`], [`StateError::OtherOwner`], [`StateError::OpenToWriters`] or
    /// [`StateError::NotState`], in which cases nothing was touched; [`StateError::Foreign`] if
    /// something else stands in the place of a file; [`StateError::Os`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let lost = |how| StateError::Lost { path: path.to_owned(), how };
        let root = Self::open_root(path)?.ok_or_else(|| lost("missing"))?;
        match check_owner(&root, path)? {
            Found::State => Self::open_in(path, root),
            Found::Empty => Err(lost("empty")),
        }
    }

    /// `None`: there is none.
    fn open_root(path: &Path) -> Result<Option<OwnedFd>, StateError> {
        let fault = |errno| fault_of(path.to_owned(), "open", errno);
        match rustix::fs::open(path, DIRECTORY, Mode::empty()) {
            Ok(root) => Ok(Some(root)),
            Err(Errno::NOENT) => Ok(None),
            // Closed to this user: whose it is can be seen all the same.
            Err(Errno::ACCESS) => Err(other_owner(path).unwrap_or_else(|| fault(Errno::ACCESS))),
            Err(errno) => Err(fault(errno)),
        }
    }

    fn open_in(path: &Path, root: OwnedFd) -> Result<Self, StateError> {
        let fault = |name: &str, action| {
            let path = path.join(name);
            move |source| fault_of(path, action, source)
        };
        let table = own_directory(&root, Path::new("rmt")).map_err(fault("rmt", "open"))?;
        // LMDB opens them by their path, and follows links. Not opened here: a close would drop the locks that LMDB holds in this process.
        for name in ["data.mdb", "lock.mdb", COMMITTED, PENDING] {
            match check_own_at(&table, name.as_ref()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(fault(&format!("rmt/{name}"), "open")(errno)),
            }
        }
        check_copied_stubs(&root).map_err(|(name, errno)| fault(&name, "open")(errno))?;
        let run = own_directory(&root, Path::new("run")).map_err(fault("run", "open"))?;
        rustix::fs::fchmod(&run, PASSABLE).map_err(fault("run", "change the mode"))?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let log = open_own_at(&root, "log".as_ref(), flags).map_err(fault("log", "open"))?;
        Ok(Self { path: path.to_owned(), root, run, log })
    }

    /// Opens this user's own file `name`, or creates it (0600) if `access` says so.
    ///
    /// # Errors
    ///
    /// [`StateError::Foreign`] if what stands there is no regular file of this user with one name,
    /// otherwise [`StateError::Os`].
    pub fn open_file(&self, name: &str, access: OFlags) -> Result<OwnedFd, StateError> {
        open_own_at(&self.root, name.as_ref(), access).map_err(self.fault(name, "open"))
    }

    /// This user's own directory `name`, made (0700) if it is missing.
    ///
    /// # Errors
    ///
    /// [`StateError::Foreign`] if what stands there is no directory of this user, otherwise
    /// [`StateError::Os`].
    pub fn directory(&self, name: &str) -> Result<OwnDirectory, StateError> {
        let directory = own_directory(&self.root, Path::new(name)).map_err(self.fault(name, "open"))?;
        Ok(OwnDirectory { path: self.path.join(name), directory })
    }

    /// Lets `name` hold `bytes`, durably and at once.
    fn replace_file(&self, name: &str, bytes: &[u8]) -> rustix::io::Result<()> {
        replace_at(&self.root, name, bytes)
    }

    /// Says to programs that this host has an agent, and for how long its place may be empty.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open_shared`], and of writing.
    pub fn note_agent(&self, patience: Duration) -> rustix::io::Result<()> {
        let file = self.open_shared(AGENT, OFlags::RDWR | OFlags::CREATE)?;
        rustix::io::pwrite(&file, &patience.as_secs().to_le_bytes(), 0).map(drop)
    }

    /// Notes for the next agent of this host that this one is the cluster's master in `term`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open_shared`], and of writing.
    pub fn note_mastership(&self, term: u64) -> rustix::io::Result<()> {
        let file = self.open_shared(MASTERSHIP, OFlags::RDWR | OFlags::CREATE)?;
        rustix::io::pwrite(&file, &term.to_le_bytes(), 0).map(drop)
    }

    /// The last term in which an agent of this host was the cluster's master, as far as the state directory knows.
    #[must_use]
    pub fn noted_mastership(&self) -> Option<u64> {
        let file = self.open_shared(MASTERSHIP, OFlags::RDONLY).ok()?;
        let mut term = [0; 8];
        (rustix::io::pread(&file, &mut term, 0).ok()? == term.len()).then(|| u64::from_le_bytes(term))
    }

    /// Notes that an agent of this host ends while other hosts may take a file for open here, or that this has been settled since: by an agent that
    /// has left, or that serves.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open_shared`], and of removing the file.
    pub fn note_leaving(&self, is_leaving: bool) -> rustix::io::Result<()> {
        if is_leaving {
            return self.open_shared(LEAVING, OFlags::RDWR | OFlags::CREATE).map(drop);
        }
        match rustix::fs::unlinkat(&self.run, LEAVING, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }

    /// Whether an agent has ended, or is just ending, that may have left this to somebody else.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.open_shared(LEAVING, OFlags::RDONLY).is_ok()
    }

    /// Opens a file of shared memory in `run/`.
    ///
    /// # Errors
    ///
    /// `LOOP`, `ISDIR`, `NXIO`, `PERM` or `MLINK` if what stands there is no regular file of this
    /// user with one name, otherwise the error of opening it.
    pub fn open_shared(&self, name: &str, access: OFlags) -> rustix::io::Result<OwnedFd> {
        open_own_at(&self.run, name.as_ref(), access)
    }

    /// A new file of shared memory in `run/`; what an earlier boot left is unlinked, never written.
    ///
    /// # Errors
    ///
    /// The error of unlinking or creating it; `NOSPC` when the file system is full.
    pub fn create_shared(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        create_own_at(&self.run, name.as_ref())
    }

    /// As it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of shared memory.
    #[must_use]
    pub fn run(&self) -> rustix::fd::BorrowedFd<'_> {
        self.run.as_fd()
    }

    /// The directory of the mapping table.
    #[must_use]
    pub fn table_path(&self) -> PathBuf {
        self.path.join("rmt")
    }

    /// Lets other users of the host connect to the broker.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`].
    pub fn open_to_others(&self) -> Result<(), StateError> {
        rustix::fs::fchmod(&self.root, PASSABLE).map_err(self.fault("", "change the mode"))
    }

    /// Names of servers that take nothing new.
    ///
    /// # Errors
    ///
    /// [`StateError::DrainedFile`] if the file is of another version, otherwise [`StateError::Os`].
    pub fn drained(&self) -> Result<Vec<String>, StateError> {
        let text = match read_own(&self.root, DRAINED) {
            Ok(text) => text,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(source) => return Err(self.fault(DRAINED, "read")(source)),
        };
        match text.strip_prefix(DRAINED_HEAD) {
            Some(names) => Ok(names.lines().map(str::to_owned).collect()),
            None => Err(StateError::DrainedFile { path: self.path.join(DRAINED), text: text.trim().to_owned() }),
        }
    }

    /// Notes, durably, the names of servers that take nothing new.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`]; the list is then as it was.
    pub fn keep_drained(&self, names: &[&str]) -> Result<(), StateError> {
        let text = names.iter().fold(DRAINED_HEAD.to_owned(), |text, name| text + name + "\n");
        self.replace_file(DRAINED, text.as_bytes()).map_err(self.fault(DRAINED, "write"))
    }

    /// Takes the broker's lock if it is free.
    ///
    /// # Errors
    ///
    /// [`StateError::Foreign`] or [`StateError::Os`]; `None` is no error: another process has the
    /// lock.
    pub fn try_lock(&self) -> Result<Option<BrokerLock>, StateError> {
        self.lock(FlockOperation::NonBlockingLockExclusive)
    }

    /// Waits until the present broker is gone and takes its lock.
    ///
    /// # Errors
    ///
    /// [`StateError::Foreign`] or [`StateError::Os`].
    pub fn wait_for_lock(&self) -> Result<BrokerLock, StateError> {
        loop {
            if let Some(lock) = self.lock(FlockOperation::LockExclusive)? {
                return Ok(lock);
            }
        }
    }

    fn lock(&self, operation: FlockOperation) -> Result<Option<BrokerLock>, StateError> {
        let file = self.open_file(LOCK, OFlags::RDWR | OFlags::CREATE)?;
        match rustix::io::retry_on_intr(|| rustix::fs::flock(&file, operation)) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(source) => return Err(self.fault(LOCK, "lock")(source)),
        }
        // For the reader's orientation only.
        let holder = format!("{}\n", std::process::id());
        let _ = rustix::fs::ftruncate(&file, 0).and_then(|()| rustix::io::pwrite(&file, holder.as_bytes(), 0));
        Ok(Some(BrokerLock { file }))
    }

    /// Process id of the broker, if one has noted it.
    #[must_use]
    pub fn holder(&self) -> Option<u32> {
        read_own(&self.root, LOCK).ok()?.trim().parse().ok()
    }

    /// Notes one line in the log.
    pub fn note(&self, text: &str) {
        // The log is for people; a full disk must not stop the broker.
        let _ = std::fs::File::from(match rustix::io::fcntl_dupfd_cloexec(&self.log, 0) {
            Ok(log) => log,
            Err(_) => return,
        })
        .write_all(log_line(text).as_bytes());
    }

    fn fault(&self, name: &str, action: &'static str) -> impl FnOnce(Errno) -> StateError + use<> {
        let path = self.path.join(name);
        move |source| fault_of(path, action, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drained_servers_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::make(directory.path()).unwrap();
        assert_eq!(state.drained().unwrap(), [""; 0]);
        state.keep_drained(&["s0", "h1"]).unwrap();
        assert_eq!(StateDirectory::open(directory.path()).unwrap().drained().unwrap(), ["s0", "h1"]);
        state.keep_drained(&[]).unwrap();
        assert_eq!(state.drained().unwrap(), [""; 0]);
        std::fs::write(directory.path().join("drained"), "s0\n").unwrap();
        let said = state.drained().unwrap_err().to_string();
        assert!(
            said.contains("/drained: not a list of drained servers")
                && said.contains("correct it: `stripewise drained 1`"),
            "{said}"
        );
    }

    /// Beside a mount point that nothing is mounted on, a cluster without its files began.
    #[test]
    fn a_state_directory_that_is_missing_or_empty_is_refused_and_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mount/state");
        for how in ["missing", "empty"] {
            let said = StateDirectory::open(&path).unwrap_err().to_string();
            assert!(said.contains(&format!("{} is {how}", path.display())) && said.contains("not mounted"), "{said}");
            assert!(said.contains("`stripewise check --repair`"), "{said}");
            assert_eq!(path.parent().unwrap().exists(), how == "empty");
            std::fs::create_dir_all(&path).unwrap();
        }
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        StateDirectory::make(&path).unwrap();
        StateDirectory::open(&path).unwrap();
        let hosts = Cluster {
            coordinator: Some(stripewise_layout::Coordinator::in_etcd(vec!["http://localhost:2379".to_owned()])),
            ..Cluster::new("c", directory.path().join("host"), stripewise_layout::ByteCount(4096), Vec::new())
        };
        StateDirectory::of(&hosts).unwrap();
        assert!(hosts.state.join("rmt").is_dir(), "each host makes its own");
    }

    #[test]
    fn one_holds_the_lock_and_the_next_gets_it() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::make(directory.path()).unwrap();
        let lock = state.try_lock().unwrap().unwrap();
        let other = StateDirectory::open(directory.path()).unwrap();
        assert!(other.try_lock().unwrap().is_none());
        assert_eq!(other.holder(), Some(std::process::id()));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| other.wait_for_lock().map(|_| ()));
            drop(lock);
            waiting.join().unwrap().unwrap();
        });
    }
}
