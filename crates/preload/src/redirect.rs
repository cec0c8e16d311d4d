//! What calls mean on managed files.
//!
//! The program's descriptor is the stub's own. The open behind it ([`Open`]) leads to the [`StripedFile`];
//! descriptors made by `dup` share it, as they share the kernel's open file description, whose offset serves as the
//! file position: so position, `fork` and `exec` need no help. An `Open` lives in memory that is used again but never
//! given back, and counts the descriptors that lead to it and the calls that use it; the last of them closes the
//! file.
//!
//! A stub that cannot be opened (another cluster's, no broker) becomes an `Open` without a file: every use fails with
//! its errno. A program never gets a stub's text for data.

pub(crate) mod aio;
mod cxx;
pub(crate) mod data;
pub(crate) mod exec;
pub(crate) mod extent;
mod inodes;
pub(crate) mod limit;
pub(crate) mod load;
pub(crate) mod map;
pub(crate) mod names;
pub(crate) mod open;
mod record_locks;
pub(crate) mod status;
pub(crate) mod stdio;
pub(crate) mod wide;

use crate::capture;
use crate::descriptors;
use crate::process::{self, Level};
use libc::{c_int, c_ulong, c_void};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stripewise_capture::format::FileKey;
use stripewise_layout::FileId;
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::errno::ToErrno;
use stripewise_store::file::{IoMode, StripedFile};
use stripewise_store::stub::{STUB_BYTES, Stub, size_may_be_stub};

static ON: AtomicBool = AtomicBool::new(false);
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

/// Bytes that a call moved, and where.
pub(crate) struct Moved {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
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

    /// What a write has to do once it is done, as the open asked for.
    pub(crate) fn sync_after_write(&self) -> Result<(), Errno> {
        match self.syncs.load(Ordering::Relaxed) {
            0 => Ok(()),
            by => extent::sync(self, by == 1),
        }
    }

    /// How requests treat the servers' caches.
    pub(crate) fn mode(&self) -> IoMode {
        IoMode { direct: self.direct.load(Ordering::Relaxed), durable: self.syncs.load(Ordering::Relaxed) != 0 }
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

    #[cold]
    fn define_key(&self) -> Option<FileKey> {
        // SAFETY: if it is closed by now, the file stays nameless and unrecorded; opens ask at once.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.first.load(Ordering::Relaxed)) };
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
            process::log(Level::Warn, &[b"stripewise: closing: ", error.to_string().as_bytes()]);
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
        process::say(&[b"stripewise: STRIPEWISE_STATE must be an absolute path, not ", directory.to_bytes()]);
        return false;
    }
    state().directory = Some(path.to_owned());
    limit::refresh();
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
    match Client::connect(&directory, ClientOptions::default()) {
        Ok(client) => {
            process::log(Level::Info, &[b"stripewise: connected to the broker in ", directory.as_os_str().as_bytes()]);
            state.client = Connection::There(client.clone());
            Ok(client)
        }
        Err(error) => {
            process::log(Level::Error, &[b"stripewise: ", error.to_string().as_bytes()]);
            state.client = Connection::Refused(error.errno());
            Err(error.errno())
        }
    }
}

/// Room for a stub's text, aligned as reads through an `O_DIRECT` descriptor must be.
#[repr(align(4096))]
struct Page([u8; 4096]);

const _: () = assert!(STUB_BYTES < 4096);

/// The text of a stub, if that is what an open file holds. The file is known to have a stub's size.
fn read_stub(descriptor: BorrowedFd<'_>) -> Result<Option<Stub>, Errno> {
    let Page(mut bytes) = Page([0; _]);
    let length = match rustix::io::pread(descriptor, &mut bytes[..], 0) {
        // Only writes; or wants more alignment than a page's (`O_DIRECT` on sectors of 16 KiB).
        Err(Errno::BADF | Errno::INVAL) => return read_stub_beside(descriptor),
        result => result?,
    };
    parse_stub(descriptor, &bytes[..length])
}

/// As [`read_stub`], by another open of the file, which may be held by `O_PATH` alone.
fn read_stub_beside(descriptor: BorrowedFd<'_>) -> Result<Option<Stub>, Errno> {
    let mut bytes = [0; STUB_BYTES + 1];
    let link = exec::descriptor_path(None, descriptor.as_raw_fd());
    let inode = rustix::fs::fstat(descriptor)?.st_ino;
    let length = record_locks::read_start(link.as_c_str(), inode, &mut bytes)?;
    parse_stub(descriptor, &bytes[..length])
}

fn parse_stub(descriptor: BorrowedFd<'_>, text: &[u8]) -> Result<Option<Stub>, Errno> {
    Stub::parse(text).map_err(|error| {
        let mut name: capture::PathBuffer = [0; _];
        let name_length = capture::name_of(descriptor, &mut name);
        process::log(Level::Error, &[b"stripewise: ", &name[..name_length], b": ", error.to_string().as_bytes()]);
        Errno::IO
    })
}

/// Closes by system call: the standard library would call our own `close`.
pub(crate) fn close_raw(descriptor: rustix::fd::OwnedFd) {
    // SAFETY: ours, and given up here.
    unsafe { rustix::io::close(std::os::fd::IntoRawFd::into_raw_fd(descriptor)) };
}

/// Before the close of a managed file that may be written: says so if something changed the size of its stub past the
/// library, which nothing but a system call of the program's own can do through this descriptor.
pub(crate) fn look_at_stub(open: &Open, descriptor: c_int) {
    if !open.file().is_ok_and(StripedFile::is_writable) {
        return;
    }
    let _errno = process::Errno::keep();
    // SAFETY: the program's own, which it is about to close.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let is_damaged = |status: Stat| {
        (status.st_dev, status.st_ino) == open.identity()
            && status.st_nlink > 0
            && !size_may_be_stub(status.st_size as u64)
    };
    if rustix::fs::fstat(borrowed).is_ok_and(is_damaged) {
        let mut name: capture::PathBuffer = [0; _];
        let length = capture::name_of(borrowed, &mut name);
        let what = b": something wrote over the stub past the library; the data is whole; \
            `stripewise check --repair` restores the stub";
        process::log_once(Level::Warn, &[b"stripewise: ", &name[..length], what]);
    }
}

/// Whether a regular file may be managed: by a stub's size, or by its inode, which a stub keeps whatever is written over it.
pub(crate) fn may_be_managed(size_bytes: u64, identity: (u64, u64)) -> bool {
    size_may_be_stub(size_bytes) || inodes::holds(identity)
}

/// The managed file that an open regular file is the stub of: by its text if it has one, else by the broker's word on its inode. Better an error than a
/// stub's text for data, or a stub written over.
fn stub_file(descriptor: BorrowedFd<'_>, status: &Stat) -> Result<Option<FileId>, Errno> {
    let text = match size_may_be_stub(status.st_size as u64) {
        true => read_stub(descriptor),
        false => Ok(None),
    };
    match text {
        Ok(Some(stub)) => check_cluster(&stub).map(|()| Some(stub.file)),
        Ok(None) if !inodes::holds((status.st_dev, status.st_ino)) => Ok(None),
        // Damaged, or not to be read by this process.
        Ok(None) | Err(Errno::ACCESS | Errno::IO) => find(descriptor),
        Err(errno) => Err(errno),
    }
}

/// Whether an open regular file is a stub, of this cluster or another. Also for a child of `vfork`.
pub(crate) fn is_stub(descriptor: BorrowedFd<'_>, status: &Stat) -> bool {
    let identity = (status.st_dev, status.st_ino);
    if !is_on() || !may_be_managed(status.st_size as u64, identity) {
        return false;
    }
    let has_text = size_may_be_stub(status.st_size as u64) && read_stub(descriptor).is_ok_and(|stub| stub.is_some());
    has_text || inodes::holds(identity) && is_known(descriptor).unwrap_or(true)
}

/// Whether the broker knows what a descriptor leads to for a managed file. A child of `vfork` asks by a helper.
fn is_known(descriptor: BorrowedFd<'_>) -> Result<bool, Errno> {
    if process::owns_tables() {
        return Ok(find(descriptor)?.is_some());
    }
    match process::helper::run(|| find(descriptor)?.map(|_| ()).ok_or(Errno::NODATA)) {
        Err(Errno::NODATA) => Ok(false),
        result => result.map(|()| true),
    }
}

/// Whether a path leads to a regular file of a stub's size.
pub(crate) fn may_be_stub(directory: c_int, path: &CStr) -> bool {
    // SAFETY: AT_FDCWD or the program's descriptor; the kernel checks it.
    let base = unsafe { BorrowedFd::borrow_raw(directory) };
    rustix::fs::statat(base, path, rustix::fs::AtFlags::empty()).is_ok_and(|status| {
        FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
            && may_be_managed(status.st_size as u64, (status.st_dev, status.st_ino))
    })
}

/// Enters a descriptor in the table as managed if it is a stub's. Called once for each open file description that appears.
pub(crate) fn adopt(descriptor: BorrowedFd<'_>, status: &Stat) -> bool {
    if !is_on() || !may_be_managed(status.st_size as u64, (status.st_dev, status.st_ino)) {
        return false;
    }
    let identity = (status.st_dev, status.st_ino);
    // Where this process has it open already, without a look at its text.
    let known = open_of_inode(identity).and_then(|open| open.file().ok().map(StripedFile::id));
    if let Some(file) = known {
        enter(descriptor, identity, client().and_then(|client| open_with(&client, descriptor, file)));
        return true;
    }
    let file = match stub_file(descriptor, status) {
        Ok(None) => return false,
        Ok(Some(file)) => open_file(descriptor, file),
        Err(errno) => Err(errno),
    };
    enter(descriptor, identity, file);
    true
}

/// Refuses the stub of another cluster; says so.
fn check_cluster(stub: &Stub) -> Result<(), Errno> {
    let client = client()?;
    if stub.cluster != client.cluster() {
        let text = format!(
            "stripewise: file {} belongs to cluster {} in {}; this program runs on {}",
            stub.file,
            stub.cluster,
            stub.state.display(),
            client.cluster()
        );
        process::log(Level::Error, &[text.as_bytes()]);
        return Err(Errno::IO);
    }
    Ok(())
}

/// The file behind a stub; says why not.
fn open_file(descriptor: BorrowedFd<'_>, file: FileId) -> Result<Arc<StripedFile>, Errno> {
    open_with(&client()?, descriptor, file)
}

/// As [`open_file`], of whatever stub the descriptor is open on.
pub(crate) fn open_stub(descriptor: BorrowedFd<'_>) -> Result<Arc<StripedFile>, Errno> {
    let status = rustix::fs::fstat(descriptor)?;
    open_file(descriptor, stub_file(descriptor, &status)?.ok_or(Errno::IO)?)
}

fn open_with(client: &Client, descriptor: BorrowedFd<'_>, file: FileId) -> Result<Arc<StripedFile>, Errno> {
    with_room(|| client.open(descriptor, file)).map_err(|error| {
        if !was_removed(descriptor, error.errno()) {
            process::log(Level::Error, &[b"stripewise: ", error.to_string().as_bytes()]);
        }
        error.errno()
    })
}

/// Whether the broker does not know the file of a stub, as its error says, because the stub lost its last name after the kernel opened it.
pub(crate) fn was_removed(stub: BorrowedFd<'_>, error: Errno) -> bool {
    error == Errno::STALE && rustix::fs::fstat(stub).is_ok_and(|status| status.st_nlink == 0)
}

/// The managed file that an open file of a stub's size is the stub of, if any, by the broker's word.
fn find(descriptor: BorrowedFd<'_>) -> Result<Option<FileId>, Errno> {
    client()?.find(descriptor).map_err(|error| {
        process::log(Level::Error, &[b"stripewise: ", error.to_string().as_bytes()]);
        error.errno()
    })
}

/// Runs a request whose answer brings descriptors. They arrive under the lowest free numbers before they are moved
/// up, and a program at its limit of open files has none: so the soft limit is raised for the time of the request.
pub(crate) fn with_room<T>(request: impl FnOnce() -> T) -> T {
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

/// Makes an [`Open`] and leads the descriptor to it.
fn enter(descriptor: BorrowedFd<'_>, identity: (u64, u64), file: Result<Arc<StripedFile>, Errno>) {
    let flags = rustix::fs::fcntl_getfl(descriptor).unwrap_or(OFlags::RDONLY);
    if process::logs(Level::Debug) {
        let mut name: capture::PathBuffer = [0; _];
        let length = capture::name_of(descriptor, &mut name);
        process::log(Level::Debug, &[b"stripewise: redirected: ", &name[..length]]);
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
    open.direct.store(has(libc::O_DIRECT), Ordering::Relaxed);
    open.syncs.store(u8::from(has(libc::O_DSYNC)) + u8::from(has(libc::O_SYNC)), Ordering::Relaxed);
    open.device.store(identity.0, Ordering::Relaxed);
    open.inode.store(identity.1, Ordering::Relaxed);
    open.first.store(descriptor.as_raw_fd(), Ordering::Relaxed);
    open.asked.store(0, Ordering::Relaxed);
    open.forget_key();
    open.uses.store(1, Ordering::Release);
    state.opens.push(open);
    drop(state);
    descriptors::set_managed(descriptor.as_raw_fd(), open);
}

/// An open of that inode in this process. Asked before a stub is opened for a look: closing it again would drop the
/// record locks that the process holds on the inode.
pub(crate) fn open_of_inode(identity: (u64, u64)) -> Option<Pinned> {
    let state = state();
    let found = state.opens.iter().find(|open| open.identity() == identity && open.try_use());
    found.map(|open| Pinned(open))
}

/// A link was made to what `path` leads to: a file without a name may have got one.
pub(crate) fn linked(directory: c_int, path: &CStr) {
    // SAFETY: AT_FDCWD or the program's descriptor; the kernel checks it.
    let base = unsafe { BorrowedFd::borrow_raw(directory) };
    let Ok(status) = rustix::fs::statat(base, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) else { return };
    if let Some(open) = open_of_inode((status.st_dev, status.st_ino))
        && open.unnamed.swap(false, Ordering::AcqRel)
        && let (Ok(file), Some(client)) = (open.file(), connected())
        && let Err(error) = client.linked(file.id())
    {
        process::log(Level::Error, &[b"stripewise: ", path.to_bytes(), b": ", error.to_string().as_bytes()]);
    }
}

/// The file of a managed path, for calls that only look.
pub(crate) fn with_file_at<T>(
    directory: c_int,
    path: &CStr,
    follow: bool,
    then: impl FnOnce(BorrowedFd<'_>, FileId, Option<&StripedFile>) -> T,
) -> Option<T> {
    with_room(|| look_at(directory, path, follow, then))
}

fn look_at<T>(
    directory: c_int,
    path: &CStr,
    follow: bool,
    then: impl FnOnce(BorrowedFd<'_>, FileId, Option<&StripedFile>) -> T,
) -> Option<T> {
    let handle = hold(directory, path, follow).ok()?;
    let borrowed = handle.borrow();
    let status = rustix::fs::fstat(borrowed).ok()?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile
        || !may_be_managed(status.st_size as u64, (status.st_dev, status.st_ino))
    {
        return None;
    }
    if let Some(open) = open_of_inode((status.st_dev, status.st_ino)) {
        let file = open.file().ok()?;
        return Some(then(borrowed, file.id(), Some(file)));
    }
    if record_locks::are_held_on(status.st_ino) {
        // By a descriptor that came through `exec` and that nobody has looked at yet.
        descriptors::look_at_all();
        if let Some(open) = open_of_inode((status.st_dev, status.st_ino)) {
            let file = open.file().ok()?;
            return Some(then(borrowed, file.id(), Some(file)));
        }
    }
    let opened = match reopen(borrowed) {
        Ok(opened) => opened,
        Err(Errno::ACCESS) => return find(borrowed).ok()?.map(|file| then(borrowed, file, None)),
        Err(_) => return None,
    };
    let file = stub_file(opened.borrow(), &status).ok()??;
    match open_file(opened.borrow(), file) {
        // Released or removed meanwhile: another file is at the path now, or none.
        Err(error) if was_removed(opened.borrow(), error) => None,
        Ok(striped) => Some(then(borrowed, striped.id(), Some(&striped))),
        Err(_) => Some(then(borrowed, file, None)),
    }
}

/// What a path leads to, held without being opened.
fn hold(directory: c_int, path: &CStr, follow: bool) -> Result<Closing, Errno> {
    // SAFETY: AT_FDCWD or the program's descriptor; the kernel checks it.
    let base = unsafe { BorrowedFd::borrow_raw(directory) };
    let no_follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::PATH | OFlags::CLOEXEC | no_follow;
    rustix::fs::openat(base, path, flags, rustix::fs::Mode::empty()).map(|handle| Closing(Some(handle)))
}

/// A reading open of the same inode, which moves no access time where the kernel allows that. Closing it drops the record locks that the
/// process holds on the inode: ask [`open_of_inode`] first.
fn reopen(handle: BorrowedFd<'_>) -> Result<Closing, Errno> {
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let open = |more| rustix::fs::open(&link, OFlags::RDONLY | OFlags::CLOEXEC | more, rustix::fs::Mode::empty());
    open(OFlags::NOATIME).or_else(|_| open(OFlags::empty())).map(|opened| Closing(Some(opened)))
}

/// A descriptor that is closed by system call.
pub(crate) struct Closing(pub(crate) Option<rustix::fd::OwnedFd>);

impl Closing {
    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: open until `self` is dropped, and always there until then.
        unsafe { BorrowedFd::borrow_raw(self.0.as_ref().map_or(-2, AsRawFd::as_raw_fd)) }
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
    is_on() && stripewise_store::client::owns_descriptor(descriptor)
}

/// `F_SETFL` succeeded.
pub(crate) fn flags_changed(open: &Open, flags: c_int) {
    open.appends.store(flags & libc::O_APPEND != 0, Ordering::Relaxed);
    open.direct.store(flags & libc::O_DIRECT != 0, Ordering::Relaxed);
}

pub(crate) const FICLONE: c_ulong = 0x4004_9409;
pub(crate) const FICLONERANGE: c_ulong = 0x4020_940d;
pub(crate) const FIDEDUPERANGE: c_ulong = 0xc018_9436;
pub(crate) const FIONREAD: c_ulong = 0x541b;

/// An `ioctl` that concerns the bytes of a file; none when no managed file is meant.
///
/// # Safety
/// `argument` is what the request asks for.
pub(crate) unsafe fn control(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> Option<Result<(), Errno>> {
    use descriptors::{Known, look};
    let managed = |descriptor| match look(descriptor) {
        Known::Managed(open) => Some(open),
        _ => None,
    };
    match request {
        // The source is the argument itself, or its first field.
        FICLONE => (managed(descriptor).is_some() || managed(argument as usize as c_int).is_some())
            .then_some(Err(Errno::OPNOTSUPP)),
        FICLONERANGE | FIDEDUPERANGE => {
            let source = if request == FICLONERANGE && !argument.is_null() {
                // SAFETY: a `file_clone_range` starts with the source's descriptor, 64 bits wide.
                (unsafe { *argument.cast::<i64>() }) as c_int
            } else {
                -1
            };
            (managed(descriptor).is_some() || managed(source).is_some()).then_some(Err(Errno::OPNOTSUPP))
        }
        _ => managed(descriptor).map(|open| {
            // SAFETY: the program's descriptor.
            let position = rustix::fs::tell(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
            let left = open.file()?.size_bytes().saturating_sub(position);
            // SAFETY: FIONREAD wants an int.
            unsafe { *argument.cast::<c_int>() = c_int::try_from(left).unwrap_or(c_int::MAX) };
            Ok(())
        }),
    }
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

pub(crate) fn after_fork_in_parent() {
    if let Some((Some(client), _signals)) = end_fork() {
        client.after_fork_in_parent();
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

fn connected() -> Option<Client> {
    if !is_on() {
        return None;
    }
    match &state().client {
        Connection::There(client) => Some(client.clone()),
        _ => None,
    }
}
