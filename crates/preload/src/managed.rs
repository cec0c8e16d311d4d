//! Managed files that this process has open.
//!
//! The program's descriptor is the stub's own. The open behind it ([`Open`]) leads to the [`StripedFile`];
//! descriptors made by `dup` share it, as they share the kernel's open file description, whose offset serves as the
//! file position: so position, `fork` and `exec` need no help. An `Open` lives in memory that is used again but never
//! given back, and counts the descriptors that lead to it and the calls that use it; the last of them closes the
//! file.
//!
//! A stub that cannot be opened (another cluster's, no broker) becomes an `Open` without a file: every use fails with
//! its errno. A program never gets a stub's text for data.

mod agent;
pub(crate) mod inodes;
pub(crate) mod link;
pub(crate) mod record_locks;
pub(crate) mod stub;

use crate::borrow::borrow;
use crate::capture::{self, Captured};
use crate::process::{self, Level};
use libc::c_int;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::cell::{Cell, UnsafeCell};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stripewise_capture::format::FileKey;
use stripewise_store::client::{Child, Client, ClientError, ClientOptions};
use stripewise_store::errno::ToErrno;
use stripewise_store::file::{FileError, IoMode, StripedFile};

/// For how long a state directory is waited for that an agent makes.
const AGENT_PATIENCE: Duration = Duration::from_secs(20);

static ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Of the last open that this thread has ended. No destructor: a plain value of the thread's static block.
    static CLOSE_FAILURE: Cell<Option<Errno>> = const { Cell::new(None) };
}

/// Why what was written by the open that this thread has just ended may be lost.
pub(crate) fn take_close_failure() -> Option<Errno> {
    CLOSE_FAILURE.take()
}

static STATE: Mutex<State> =
    Mutex::new(State { directory: None, client: Connection::Unasked, opens: Vec::new(), free: Vec::new() });

struct State {
    directory: Option<PathBuf>,
    client: Connection,
    /// Every open in use.
    opens: Vec<&'static Open>,
    free: Vec<&'static Open>,
}

enum Connection {
    Unasked,
    There(Client),
    Refused(Errno),
}

/// A managed file, open: what the kernel calls an open file description.
pub(crate) struct Open {
    /// Descriptors that lead here and calls under way. At 0 the rest is free for another open.
    uses: AtomicU64,
    file: UnsafeCell<Option<Arc<StripedFile>>>,
    /// Why there is no file.
    refusal: AtomicI32,
    readable: AtomicBool,
    appends: AtomicBool,
    /// Every write is synced: 1 by `O_DSYNC`, 2 by `O_SYNC`.
    syncs: AtomicU8,
    /// `O_DIRECT`, as of the open or of the last `F_SETFL` of this process.
    direct: AtomicBool,
    device: AtomicU64,
    inode: AtomicU64,
    /// Number in the trace plus 2; 0: not asked for; 1: none.
    key: AtomicU64,
    /// A descriptor that led here when it was made.
    first: AtomicI32,
    /// Made by `O_TMPFILE` and not linked yet.
    unnamed: AtomicBool,
    /// Flags of the open that made the file which the kernel's open of the stub had not.
    asked: AtomicI32,
}

// SAFETY: `file` is written only while `uses` is 0 and the open is on no list, or by the last user.
unsafe impl Sync for Open {}

impl Open {
    const fn new() -> Self {
        Self {
            uses: AtomicU64::new(0),
            file: UnsafeCell::new(None),
            refusal: AtomicI32::new(0),
            readable: AtomicBool::new(false),
            appends: AtomicBool::new(false),
            syncs: AtomicU8::new(0),
            direct: AtomicBool::new(false),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            key: AtomicU64::new(0),
            first: AtomicI32::new(-1),
            unnamed: AtomicBool::new(false),
            asked: AtomicI32::new(0),
        }
    }

    /// The data, or why it is out of reach.
    #[inline]
    pub(crate) fn file(&self) -> Result<&StripedFile, Errno> {
        // SAFETY: the caller counts as a use, so nobody writes the field.
        match unsafe { &*self.file.get() } {
            Some(file) => Ok(file),
            None => Err(Errno::from_raw_os_error(self.refusal.load(Ordering::Relaxed).max(1))),
        }
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.readable.load(Ordering::Relaxed)
    }

    /// How requests treat the servers' caches.
    pub(crate) fn mode(&self) -> IoMode {
        IoMode { direct: self.direct.load(Ordering::Relaxed), durable: self.syncs.load(Ordering::Relaxed) != 0 }
    }

    /// Whether every write is synced, and if so whether that is of the data alone.
    pub(crate) fn syncs_data_only(&self) -> Option<bool> {
        match self.syncs.load(Ordering::Relaxed) {
            0 => None,
            by => Some(by == 1),
        }
    }

    /// `F_SETFL` succeeded.
    pub(crate) fn flags_changed(&self, flags: c_int) {
        self.appends.store(flags & libc::O_APPEND != 0, Ordering::Relaxed);
        self.direct.store(flags & libc::O_DIRECT != 0, Ordering::Relaxed);
    }

    /// Whether the file had no name until now.
    pub(crate) fn take_unnamed(&self) -> bool {
        self.unnamed.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn appends(&self) -> bool {
        self.appends.load(Ordering::Relaxed)
    }

    /// Number of the file in this process's trace, if it is captured.
    pub(crate) fn key(&self) -> Option<FileKey> {
        capture::recorder()?;
        if !process::is_begun() {
            process::begin_child();
        }
        match self.key.load(Ordering::Acquire) {
            0 => self.define_key(),
            1 => None,
            key => Some(FileKey((key - 2) as u32)),
        }
    }

    /// As [`Self::key`], with what writes wait for.
    pub(crate) fn captured(&self) -> Option<Captured> {
        let key = self.key()?;
        Some(Captured { key, write_class: Some(self.mode().write_class()) })
    }

    #[cold]
    fn define_key(&self) -> Option<FileKey> {
        // SAFETY: if it is closed by now, the file stays nameless and unrecorded; opens ask at once.
        let descriptor = unsafe { borrow(self.first.load(Ordering::Relaxed)) };
        let key = rustix::fs::fstat(descriptor)
            .ok()
            .filter(|status| (status.st_dev, status.st_ino) == self.identity())
            .and_then(|status| capture::key_of_open(descriptor, &status));
        self.key.store(key.map_or(1, |key| u64::from(key.0) + 2), Ordering::Release);
        key
    }

    /// The trace is a new one.
    pub(crate) fn forget_key(&self) {
        self.key.store(0, Ordering::Release);
    }

    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed))
    }

    pub(crate) fn set_asked(&self, flags: c_int) {
        self.asked.store(flags, Ordering::Release);
    }

    /// `F_GETFL`, from what the kernel says of the stub: every stub is made by `O_TMPFILE`.
    pub(crate) fn flags_shown(&self, of_stub: c_int) -> c_int {
        of_stub & !libc::O_TMPFILE | self.asked.load(Ordering::Acquire)
    }

    pub(crate) fn set_unnamed(&self) {
        self.unnamed.store(true, Ordering::Release);
    }

    /// Counts one more use, unless the open has ended.
    fn try_use(&self) -> bool {
        let mut uses = self.uses.load(Ordering::Relaxed);
        while uses > 0 {
            match self.uses.compare_exchange_weak(uses, uses + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => uses = now,
            }
        }
        false
    }

    fn end_use(&'static self) {
        if self.uses.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
        }
    }

    #[cold]
    fn close(&'static self) {
        let _errno = process::Errno::keep();
        let inside = process::Inside::enter();
        // SAFETY: the last use has ended and the open is on no table, so nobody else looks.
        let file = unsafe { (*self.file.get()).take() };
        let unnamed = self.unnamed.swap(false, Ordering::AcqRel);
        let id = file.as_ref().map(|file| file.id());
        if let Some(file) = file
            && let Err(error) = file.close()
        {
            process::log(Level::Warn, &[b"closing: ", error.to_string().as_bytes()]);
            // Other faults leave what was written where it is; the program is told of this one as of a disk that failed.
            if matches!(error, FileError::ShutOut { .. }) {
                CLOSE_FAILURE.set(Some(error.errno()));
            }
        }
        if unnamed && let (Some(id), Some(client)) = (id, connected()) {
            let _ = client.abandon(id);
        }
        let mut state = state();
        state.opens.retain(|open| !std::ptr::eq(*open, self));
        state.free.push(self);
        drop(inside);
    }
}

/// An open that cannot end while this lives.
pub(crate) struct Pinned(&'static Open);

impl std::ops::Deref for Pinned {
    type Target = Open;
    fn deref(&self) -> &Open {
        self.0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.0.end_use();
    }
}

/// Pins an open found in the table, if `still` says that the table has not changed since.
#[inline]
pub(crate) fn pin(open: &'static Open, still: impl FnOnce() -> bool) -> Option<Pinned> {
    if !open.try_use() {
        return None;
    }
    let pinned = Pinned(open);
    still().then_some(pinned)
}

/// One more descriptor leads to the open; the caller holds one already.
pub(crate) fn add_descriptor(open: &'static Open) {
    open.uses.fetch_add(1, Ordering::AcqRel);
}

/// One less.
pub(crate) fn drop_descriptor(open: &'static Open) {
    open.end_use();
}

/// The state, locked; fields are dropped in order, so signals come back after the lock is free.
struct Locked {
    state: MutexGuard<'static, State>,
    _signals: process::NoSignals,
}

impl std::ops::Deref for Locked {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}

impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

fn state() -> Locked {
    let signals = process::NoSignals::begin();
    Locked { state: STATE.lock().unwrap_or_else(PoisonError::into_inner), _signals: signals }
}

/// Reads the environment; true when the program is to be redirected.
pub(crate) fn prepare() -> bool {
    let Some(directory) = process::variable(c"STRIPEWISE_STATE") else { return false };
    let path = Path::new(OsStr::from_bytes(directory.to_bytes()));
    if !path.is_absolute() {
        process::say(&[b"STRIPEWISE_STATE must be an absolute path, not ", directory.to_bytes()]);
        return false;
    }
    state().directory = Some(path.to_owned());
    ON.store(true, Ordering::Release);
    true
}

/// Whether redirection is on.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The client, connected at the first need. A refusal is said once and holds for the life of the process.
pub(crate) fn client() -> Result<Client, Errno> {
    let mut state = state();
    match &state.client {
        Connection::There(client) => return Ok(client.clone()),
        Connection::Refused(errno) => return Err(*errno),
        // Descriptors and locks of a connection would be the child's, and its memory the parent's.
        Connection::Unasked if !process::owns_tables() => return Err(Errno::IO),
        Connection::Unasked => {}
    }
    let Some(directory) = state.directory.clone() else { return Err(Errno::IO) };
    if agent::is_missing(&directory) {
        // A fork takes the lock.
        drop(state);
        agent::start();
        state = self::state();
        if let Connection::There(client) = &state.client {
            return Ok(client.clone());
        }
    }
    match connect(&directory) {
        Ok(client) => {
            process::log(Level::Info, &[b"connected to the broker in ", directory.as_os_str().as_bytes()]);
            state.client = Connection::There(client.clone());
            Ok(client)
        }
        Err(error) => {
            process::log(Level::Error, &[error.to_string().as_bytes()]);
            state.client = Connection::Refused(error.errno());
            Err(error.errno())
        }
    }
}

/// Connects. What was just started makes the state directory in its own time.
fn connect(directory: &Path) -> Result<Client, ClientError> {
    let usual = ClientOptions::default();
    let connect_patience = if agent::may_start() { usual.patience } else { usual.connect_patience };
    let options = || ClientOptions { waits_for_closes: false, connect_patience, ..ClientOptions::default() };
    let give_up_at = Instant::now() + AGENT_PATIENCE;
    loop {
        match Client::connect(directory, options()) {
            Err(ClientError::StateDirectory { source: Errno::NOENT, .. })
                if agent::is_missing(directory) && Instant::now() < give_up_at =>
            {
                let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 0, tv_nsec: 10_000_000 });
            }
            connected => return connected,
        }
    }
}

/// Closes by system call: the standard library would call our own `close`.
pub(crate) fn close_raw(descriptor: rustix::fd::OwnedFd) {
    // SAFETY: ours, and given up here.
    unsafe { rustix::io::close(std::os::fd::IntoRawFd::into_raw_fd(descriptor)) };
}

/// Runs a request whose answer brings descriptors. They arrive under the lowest free numbers before they are moved
/// up, and a program at its limit of open files has none: so the soft limit is raised for the time of the request.
pub(crate) fn with_raised_limit<T>(request: impl FnOnce() -> T) -> T {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    let raised = limits.current != limits.maximum
        && setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum }).is_ok();
    let result = request();
    if raised {
        let _ = setrlimit(Resource::Nofile, limits);
    }
    result
}

/// Makes an [`Open`] of a file, or of the reason why there is none. The caller leads the descriptor to it.
pub(crate) fn enter(
    descriptor: BorrowedFd<'_>,
    identity: (u64, u64),
    file: Result<Arc<StripedFile>, Errno>,
) -> &'static Open {
    let flags = rustix::fs::fcntl_getfl(descriptor).unwrap_or(OFlags::RDONLY);
    if process::logs(Level::Debug) {
        let mut name: capture::PathBuffer = [0; _];
        let length = capture::name_of(descriptor, &mut name);
        process::log(Level::Debug, &[b"redirected: ", &name[..length]]);
    }
    let mut state = state();
    let open: &'static Open = state.free.pop().unwrap_or_else(|| Box::leak(Box::new(Open::new())));
    let (file, refusal) = match file {
        Ok(file) => (Some(file), 0),
        Err(errno) => (None, errno.raw_os_error()),
    };
    // SAFETY: not in use: on no table and no list.
    unsafe { *open.file.get() = file };
    open.refusal.store(refusal, Ordering::Relaxed);
    open.readable.store(flags & OFlags::RWMODE != OFlags::WRONLY, Ordering::Relaxed);
    open.appends.store(flags.contains(OFlags::APPEND), Ordering::Relaxed);
    // By libc's numbers: rustix gives both flags the same.
    let has = |flag: c_int| flags.bits() & flag as u32 == flag as u32;
    open.syncs.store(u8::from(has(libc::O_DSYNC)) + u8::from(has(libc::O_SYNC)), Ordering::Relaxed);
    open.direct.store(has(libc::O_DIRECT), Ordering::Relaxed);
    open.device.store(identity.0, Ordering::Relaxed);
    open.inode.store(identity.1, Ordering::Relaxed);
    open.first.store(descriptor.as_raw_fd(), Ordering::Relaxed);
    open.asked.store(0, Ordering::Relaxed);
    open.forget_key();
    open.uses.store(1, Ordering::Release);
    state.opens.push(open);
    open
}

/// An open of that inode in this process. Asked before a stub is opened for a look: closing it again would drop the
/// record locks that the process holds on the inode.
pub(crate) fn open_of_inode(identity: (u64, u64)) -> Option<Pinned> {
    let state = state();
    let found = state.opens.iter().find(|open| open.identity() == identity && open.try_use());
    found.map(|open| Pinned(open))
}

/// A descriptor that is closed by system call.
pub(crate) struct Closing(pub(crate) Option<rustix::fd::OwnedFd>);

impl Closing {
    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: open until `self` is dropped, and always there until then.
        unsafe { borrow(self.0.as_ref().map_or(-2, AsRawFd::as_raw_fd)) }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(descriptor) = self.0.take() {
            close_raw(descriptor);
        }
    }
}

/// Whether the descriptor is the client's own.
pub(crate) fn owns_descriptor(descriptor: c_int) -> bool {
    is_on() && stripewise_store::descriptors::owns_descriptor(descriptor)
}

/// The state's lock while a fork is under way: no other thread may be inside it when memory is copied.
struct Held(UnsafeCell<Option<Locked>>);

// SAFETY: only who holds the lock looks.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// The locks in the order in which calls take them: the state's, then the client's.
pub(crate) fn before_fork() {
    let state = state();
    if let Connection::There(client) = &state.client {
        client.before_fork();
    }
    // SAFETY: the lock is held.
    unsafe { *HELD.0.get() = Some(state) };
}

/// Lets go of the state's lock; signals come back when the second value is dropped.
fn end_fork() -> Option<(Option<Client>, process::NoSignals)> {
    // SAFETY: the thread that forked holds the lock, in the parent and in the child; a child made behind libc's back, where
    // no lock was taken, finds nothing unless another thread was forking.
    let Locked { state, _signals: signals } = unsafe { (*HELD.0.get()).take() }?;
    let client = match &state.client {
        Connection::There(client) => Some(client.clone()),
        _ => None,
    };
    drop(state);
    Some((client, signals))
}

pub(crate) fn after_fork_in_parent(child: Child) {
    if let Some((Some(client), _signals)) = end_fork() {
        client.after_fork_in_parent(child);
    }
}

/// In a new child, however it was made.
pub(crate) fn after_fork_in_child() {
    let (client, _signals) = match end_fork() {
        Some((client, signals)) => (client, Some(signals)),
        None => (connected(), None),
    };
    if let Some(client) = client {
        client.after_fork_in_child();
    }
}

pub(crate) fn connected() -> Option<Client> {
    if !is_on() {
        return None;
    }
    match &state().client {
        Connection::There(client) => Some(client.clone()),
        _ => None,
    }
}
