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
//! | `drained` | names of servers on which nothing new is placed (`stripewise evacuate`) |
//! | `daemon` | lock of the cluster's daemon; contains its process id |
//! | `plans/` | plans that were applied |
//! | `log` | actions of brokers, one line each |
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

use crate::entry::{check_own_at, create_own_at, open_own_at, what_stands};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The inodes of all stubs, in `run/` (`crate::shared::inodes`).
pub const INODES: &str = "inodes";
const SOCKET: &str = "broker.sock";
const LOCK: &str = "broker.lock";
const HOST: &str = "host";
/// For all who have reached it.
const PASSABLE: Mode = Mode::from_bits_retain(0o711);
/// The number of the table's last transaction, in `rmt/` (broker, `rmt::witness`).
pub const COMMITTED: &str = "committed";
const DRAINED: &str = "drained";
const DRAINED_HEAD: &str = "stripewise drained 1\n";
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

/// Why a state directory cannot be used. Messages name the path and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Os {
        /// The file or directory concerned.
        path: PathBuf,
        /// What was tried, to follow "cannot".
        action: &'static str,
        /// Its cause.
        source: Errno,
    },
    /// Another host has used the directory; shared memory and locks would not reach it.
    #[error(
        "the cluster with state directory {} is in use by host {first} (machine {machine}); this is host {this}. Stripewise keeps shared memory and locks on one host: run on {first}, \
         or, if {first} will never use this cluster again and nothing of it runs there, rename {} to host.old and repeat",
        path.display(),
        path.join(HOST).display()
    )]
    OtherHost {
        /// The state directory.
        path: PathBuf,
        /// Name of that host.
        first: String,
        /// Its machine id.
        machine: String,
        /// Name of this host.
        this: String,
    },
    /// `host` is of another version, or damaged.
    #[error("{}: not a host file of this version (`{text}`); use the stripewise that wrote it, or, if no other host uses this cluster, rename it to host.old and repeat", path.display())]
    HostFile {
        /// That file.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// `drained` is of another version, or damaged.
    #[error("{}: not a list of drained servers of this version (`{text}`); use the stripewise that wrote it, or correct it: `stripewise drained 1`, then one server's name a line", path.display())]
    DrainedFile {
        /// That file.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// The directory belongs to another user.
    #[error(
        "the state directory {} belongs to user {owner}, this is user {caller}; nothing in it was touched. Only its owner runs commands on a cluster: be that user, or, as root, repeat with --as-owner",
        path.display()
    )]
    OtherOwner {
        /// The state directory.
        path: PathBuf,
        /// Its owner's uid.
        owner: u32,
        /// The effective uid of this process.
        caller: u32,
    },
    /// Other users could put links in the place of files.
    #[error(
        "the state directory {} can be written by other users (mode {mode:o}); nothing in it was touched. Look whether all in it is yours, then take that right away: chmod go-w",
        path.display()
    )]
    OpenToWriters {
        /// The state directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The directory holds other things; probably `state` in cluster.toml is wrong.
    #[error("{} is no state directory: it holds other things; correct `state` in cluster.toml, or name an empty directory", path.display())]
    NotState {
        /// The directory.
        path: PathBuf,
    },
    /// A link, a directory or somebody else's file stands where a file of the state directory
    /// belongs.
    #[error(
        "{}: {what} stands in the place of a file of the state directory; it was not touched. Find out who put it there, and move it elsewhere",
        path.display()
    )]
    Foreign {
        /// Where it stands.
        path: PathBuf,
        /// What it is, with its article.
        what: &'static str,
    },
    /// Nobody listens on the broker's socket.
    #[error("{}: no broker answers there; start one with `stripewise run`, or any other stripewise command", path.display())]
    NoBroker {
        /// The state directory.
        path: PathBuf,
    },
}

impl StateError {
    /// Whether an error is for want of space on the state directory's file system.
    #[must_use]
    pub fn is_full(errno: Errno) -> bool {
        matches!(errno, Errno::NOSPC | Errno::DQUOT)
    }
}

/// What makes a host the same host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostIdentity {
    /// `/etc/machine-id`, or empty.
    pub machine: String,
    /// The kernel's node name.
    pub name: String,
    /// The kernel's random name of this boot.
    pub boot: [u8; 16],
}

impl HostIdentity {
    /// The host that this process runs on.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`] when the boot's name cannot be read.
    pub fn of_this_host() -> Result<Self, StateError> {
        let boot_path = "/proc/sys/kernel/random/boot_id";
        let text = read_all(rustix::fs::CWD, Path::new(boot_path)).map_err(|source| StateError::Os {
            path: boot_path.into(),
            action: "read",
            source,
        })?;
        let machine = read_all(rustix::fs::CWD, Path::new("/etc/machine-id")).unwrap_or_default();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(Self { machine: machine.trim().to_owned(), name, boot: boot_number(&text) })
    }

    /// The same boot of one kernel, or the same machine. Cloned images share a machine id, so the name must agree as well; a
    /// host that was renamed is told so and gives the remedy itself.
    fn is_same_host(&self, other: &HostIdentity) -> bool {
        self.boot == other.boot || (self.machine == other.machine && self.name == other.name)
    }

    fn to_text(&self) -> String {
        let boot = u128::from_be_bytes(self.boot);
        format!("stripewise host 1\nmachine {}\nname {}\nboot {boot:032x}\n", self.machine, self.name)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        (lines.next()? == "stripewise host 1").then_some(())?;
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned);
        let (machine, name, boot) = (value("machine")?, value("name")?, value("boot")?);
        Some(Self { machine, name, boot: u128::from_str_radix(&boot, 16).ok()?.to_be_bytes() })
    }
}

fn boot_number(text: &str) -> [u8; 16] {
    let digits = text.chars().filter_map(|c| c.to_digit(16));
    digits.fold(0u128, |number, digit| number << 4 | u128::from(digit)).to_be_bytes()
}

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

impl StateDirectory {
    /// Opens this user's state directory, making what is missing of it (0700).
    ///
    /// # Errors
    ///
    /// [`StateError::OtherOwner`], [`StateError::OpenToWriters`] or [`StateError::NotState`], in
    /// which cases nothing was touched; [`StateError::Foreign`] if something else stands in the
    /// place of a file; [`StateError::Os`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let fault = |name: &str, action| {
            let path = path.join(name);
            move |source| fault_of(path, action, source)
        };
        let root = match rustix::fs::open(path, DIRECTORY, Mode::empty()) {
            Ok(root) => root,
            Err(Errno::NOENT) => {
                std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))
                    .map_err(|error| fault("", "create")(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
                own_directory(rustix::fs::CWD, path).map_err(fault("", "create"))?
            }
            // Closed to this user: whose it is can be seen all the same.
            Err(Errno::ACCESS) => return Err(other_owner(path).unwrap_or_else(|| fault("", "open")(Errno::ACCESS))),
            Err(errno) => return Err(fault("", "open")(errno)),
        };
        check_owner(&root, path)?;
        let table = own_directory(&root, Path::new("rmt")).map_err(fault("rmt", "open"))?;
        // LMDB opens them by their path, and follows links. Not opened here: a close would drop the locks that LMDB holds in this process.
        for name in ["data.mdb", "lock.mdb", COMMITTED] {
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

    /// Refuses when another host has used this directory, else notes this one.
    ///
    /// # Errors
    ///
    /// [`StateError::OtherHost`], [`StateError::HostFile`] if the file is of another version,
    /// otherwise [`StateError::Os`] or [`StateError::Foreign`].
    pub fn claim_for(&self, host: &HostIdentity) -> Result<(), StateError> {
        match read_own(&self.root, HOST) {
            Ok(text) => {
                let first = HostIdentity::parse(&text)
                    .ok_or_else(|| StateError::HostFile { path: self.path.join(HOST), text: text.trim().to_owned() })?;
                if !first.is_same_host(host) {
                    return Err(StateError::OtherHost {
                        path: self.path.clone(),
                        first: first.name,
                        machine: first.machine,
                        this: host.name.clone(),
                    });
                }
                if first == *host {
                    return Ok(());
                }
            }
            Err(Errno::NOENT) => {}
            Err(source) => return Err(self.fault(HOST, "read")(source)),
        }
        self.replace_file(HOST, host.to_text().as_bytes()).map_err(self.fault(HOST, "write"))
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

    /// The broker's listening socket. What a predecessor left is replaced: call with the lock held.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`].
    pub fn listen(&self) -> Result<OwnedFd, StateError> {
        match rustix::fs::unlinkat(&self.run, SOCKET, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(source) => return Err(self.fault("run", "remove the old socket")(source)),
        }
        let make = || {
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            rustix::net::bind(&socket, &socket_address(&self.run)?)?;
            rustix::fs::chmodat(&self.run, SOCKET, Mode::from_raw_mode(0o666), AtFlags::empty())?;
            rustix::net::listen(&socket, 1024)?;
            Ok(socket)
        };
        make().map_err(self.fault("run", "listen"))
    }

    /// Notes one line in the log.
    pub fn note(&self, text: &str) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        // One line, whatever name it speaks of.
        let text = text.replace(|c: char| c.is_control(), "\u{fffd}");
        let line = format!("{}.{:03} {} {text}\n", now.tv_sec, now.tv_nsec / 1_000_000, std::process::id());
        // The log is for people; a full disk must not stop the broker.
        let _ = std::fs::File::from(match rustix::io::fcntl_dupfd_cloexec(&self.log, 0) {
            Ok(log) => log,
            Err(_) => return,
        })
        .write_all(line.as_bytes());
    }

    fn fault(&self, name: &str, action: &'static str) -> impl FnOnce(Errno) -> StateError + use<> {
        let path = self.path.join(name);
        move |source| fault_of(path, action, source)
    }
}

/// A directory of plain files below the state directory.
#[derive(Debug)]
pub struct OwnDirectory {
    path: PathBuf,
    directory: OwnedFd,
}

impl OwnDirectory {
    /// Absolute if the state directory's is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names in it, in order; those that are not UTF-8 are nobody's here.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`].
    pub fn names(&self) -> Result<Vec<String>, StateError> {
        let list = || {
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::read_from(&self.directory)? {
                names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
            }
            names.sort_unstable();
            Ok(names)
        };
        list().map_err(|source| StateError::Os { path: self.path.clone(), action: "list", source })
    }

    /// Opens this user's own file `name` for reading.
    ///
    /// # Errors
    ///
    /// [`StateError::Foreign`] if what stands there is no regular file of this user with one name,
    /// otherwise [`StateError::Os`].
    pub fn open(&self, name: &str) -> Result<std::fs::File, StateError> {
        let opened = open_own_at(&self.directory, name.as_ref(), OFlags::RDONLY);
        opened.map(Into::into).map_err(|source| fault_of(self.path.join(name), "open", source))
    }

    /// Lets `name` hold `bytes`, durably and at once.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`]; the file is then as it was.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        replace_at(&self.directory, name, bytes).map_err(|source| fault_of(self.path.join(name), "write", source))
    }

    /// Removes `name`, if it is there.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`].
    pub fn remove(&self, name: &str) -> Result<(), StateError> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(source) => Err(fault_of(self.path.join(name), "remove", source)),
        }
    }
}

/// Replaces a small file, durably and as a whole; one that cannot be written leaves the old one and nothing beside it.
fn replace_at(directory: &OwnedFd, name: &str, bytes: &[u8]) -> rustix::io::Result<()> {
    let temporary = format!(".{name}.{}", std::process::id());
    let file = create_own_at(directory, temporary.as_ref())?;
    let replace = || {
        std::fs::File::from(rustix::io::fcntl_dupfd_cloexec(&file, 0)?)
            .write_all(bytes)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        rustix::fs::fsync(&file)?;
        rustix::fs::renameat(directory, &temporary, directory, name)?;
        rustix::fs::fsync(directory)
    };
    replace().inspect_err(|_| {
        let _ = rustix::fs::unlinkat(directory, &temporary, AtFlags::empty());
    })
}

fn fault_of(path: PathBuf, action: &'static str, source: Errno) -> StateError {
    match what_stands(source).filter(|_| action == "open") {
        Some(what) => StateError::Foreign { path, what },
        None => StateError::Os { path, action, source },
    }
}

fn other_owner(path: &Path) -> Option<StateError> {
    let caller = rustix::process::geteuid().as_raw();
    let owner = rustix::fs::stat(path).ok()?.st_uid;
    (owner != caller).then(|| StateError::OtherOwner { path: path.to_owned(), owner, caller })
}

/// That `root` is this user's alone to write, and a state directory or empty.
fn check_owner(root: &OwnedFd, path: &Path) -> Result<(), StateError> {
    let fault = |source| StateError::Os { path: path.to_owned(), action: "look at it", source };
    let found = rustix::fs::fstat(root).map_err(fault)?;
    let caller = rustix::process::geteuid().as_raw();
    if found.st_uid != caller {
        return Err(StateError::OtherOwner { path: path.to_owned(), owner: found.st_uid, caller });
    }
    if found.st_mode & 0o022 != 0 {
        return Err(StateError::OpenToWriters { path: path.to_owned(), mode: found.st_mode & 0o7777 });
    }
    // A `state` that leads elsewhere, by a link or a slip of the pen, must not fill a directory of other things.
    let known = |name: &str| rustix::fs::statat(root, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    if [LOCK, "rmt", HOST].into_iter().any(known) {
        return Ok(());
    }
    let mut others = rustix::fs::Dir::read_from(root).map_err(fault)?;
    match others
        .find(|entry| entry.as_ref().map_or(true, |entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")))
    {
        None => Ok(()),
        Some(_) => Err(StateError::NotState { path: path.to_owned() }),
    }
}

/// Connects to the broker of the state directory at `path`.
///
/// # Errors
///
/// [`StateError::NoBroker`] if nobody listens, [`StateError::Foreign`] if another user does,
/// otherwise [`StateError::Os`].
pub fn connect(path: &Path) -> Result<OwnedFd, StateError> {
    let fault = |action| move |source| StateError::Os { path: path.to_owned(), action, source };
    // O_PATH: other users may pass through the directory but not read it.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let run = rustix::fs::open(path.join("run"), flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => StateError::NoBroker { path: path.to_owned() },
        source => fault("open")(source),
    })?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(fault("make a socket"))?;
    let address = socket_address(&run).map_err(fault("name the socket"))?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => match check_peer(&socket, &run) {
            Ok(()) => Ok(socket),
            Err(Errno::PERM) => {
                Err(StateError::Foreign { path: path.join("run").join(SOCKET), what: "another user's socket" })
            }
            Err(source) => Err(fault("see whose the broker is")(source)),
        },
        Err(Errno::NOENT | Errno::CONNREFUSED) => Err(StateError::NoBroker { path: path.to_owned() }),
        Err(source) => Err(fault("connect to the broker")(source)),
    }
}

/// Through the descriptor, since a socket's name has at most 107 bytes and a path any number.
fn socket_address(run: &OwnedFd) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/{SOCKET}", run.as_raw_fd()))
}

/// This user's own directory, made if it is missing; no link is followed to it.
fn own_directory(parent: impl AsFd, name: &Path) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let flags = DIRECTORY | OFlags::NOFOLLOW;
    let opened = rustix::fs::openat(&parent, name, flags, Mode::empty()).map_err(|errno| {
        let found = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_link = found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink);
        if is_link { Errno::LOOP } else { errno }
    })?;
    if rustix::fs::fstat(&opened)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    Ok(opened)
}

/// Copies of the table (`rmt.good/`, `rmt.v3/`) are opened by their paths as well: all in them is this user's own. An error comes with its name.
fn check_copied_stubs(root: &OwnedFd) -> Result<(), (String, Errno)> {
    let names_in = |directory: &OwnedFd| -> rustix::io::Result<Vec<OsString>> {
        let entries = rustix::fs::Dir::read_from(directory)?;
        entries.map(|entry| Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned())).collect()
    };
    let unnamed = |errno| (String::new(), errno);
    for name in names_in(root).map_err(unnamed)?.iter().filter(|name| name.as_bytes().starts_with(b"rmt.")) {
        let shown = name.to_string_lossy().into_owned();
        let copy = own_directory(root, Path::new(name)).map_err(|errno| (shown.clone(), errno))?;
        let inside = names_in(&copy).map_err(|errno| (shown.clone(), errno))?;
        for file in inside.iter().filter(|file| !matches!(file.as_bytes(), b"." | b"..")) {
            match check_own_at(&copy, file) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err((format!("{shown}/{}", file.to_string_lossy()), errno)),
            }
        }
    }
    Ok(())
}

/// Refuses what `socket` is connected to if it is not of the user whose directory `run` is.
fn check_peer(socket: &OwnedFd, run: &OwnedFd) -> rustix::io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    if peer.uid.as_raw() == rustix::fs::fstat(run)?.st_uid { Ok(()) } else { Err(Errno::PERM) }
}

/// A small text file of this user.
fn read_own(parent: impl AsFd, name: &str) -> rustix::io::Result<String> {
    text_of(&open_own_at(parent, name.as_ref(), OFlags::RDONLY)?)
}

/// A small text file of the system.
fn read_all(parent: impl AsFd, path: &Path) -> rustix::io::Result<String> {
    text_of(&rustix::fs::openat(parent, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn text_of(file: &OwnedFd) -> rustix::io::Result<String> {
    let mut bytes = [0; 4096];
    let length = rustix::io::read(file, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, boot: u8) -> HostIdentity {
        HostIdentity { machine: "m1".into(), name: name.into(), boot: [boot; 16] }
    }

    #[test]
    fn a_second_host_is_refused_and_the_first_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&directory.path().join("state")).unwrap();
        state.claim_for(&host("alpha", 1)).unwrap();
        state.claim_for(&host("alpha", 2)).unwrap();
        state.claim_for(&host("renamed-in-the-same-boot", 2)).unwrap();
        state.claim_for(&host("alpha", 2)).unwrap();
        let said = state.claim_for(&host("beta", 3)).unwrap_err().to_string();
        assert!(said.contains("in use by host alpha") && said.contains("this is host beta"), "{said}");
        assert!(said.contains("state/host"), "names the file to delete: {said}");
        std::fs::remove_file(directory.path().join("state/host")).unwrap();
        state.claim_for(&host("beta", 3)).unwrap();
        let own = HostIdentity::of_this_host().unwrap();
        assert_ne!(own.boot, [0; 16]);
        assert_eq!(HostIdentity::parse(&own.to_text()), Some(own));
    }

    #[test]
    fn drained_servers_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(directory.path()).unwrap();
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

    #[test]
    fn one_holds_the_lock_and_the_next_gets_it() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(directory.path()).unwrap();
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

    #[test]
    fn a_path_too_long_for_a_socket_works_and_the_directory_is_private() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d".repeat(120)).join("e".repeat(120));
        let state = StateDirectory::open(&path).unwrap();
        assert!(matches!(connect(&path), Err(StateError::NoBroker { .. })));
        let listener = state.listen().unwrap();
        let client = connect(&path).unwrap();
        let server = rustix::net::accept(&listener).unwrap();
        crate::packet::send(&client, &7u32, &[]).unwrap();
        assert_eq!(crate::packet::receive::<u32>(&server).unwrap().0, 7);
        let mode = |name: &str| std::fs::symlink_metadata(path.join(name)).unwrap().mode() & 0o777;
        assert_eq!((mode(""), mode("run"), mode("run/broker.sock")), (0o700, 0o711, 0o666));
        state.open_to_others().unwrap();
        assert_eq!((mode(""), mode("run"), mode("run/broker.sock"), mode("rmt")), (0o711, 0o711, 0o666, 0o700));
    }
}
