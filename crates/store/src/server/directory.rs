//! `file://`: a server that is a directory on any mount.
//!
//! An object is the file `DIR/stripewise-objects/<file id>/<region>.<generation>`. `DIR/stripewise-server` is the marker: it names
//! cluster and server, is written only by [`prepare`], and is looked at whenever something is missing, so that an unmounted or
//! emptied directory is an error and never looks like a file full of zeros.
//!
//! `DIR` is reached as cluster.toml names it, through links too. Below it no link is followed, whoever looks: neither by a broker, which
//! changes owners and modes there, nor by a client of another user's cluster, whose files a link in the place of an object would
//! expose. Root uses a directory of objects only if it belongs to root.
//!
//! The directories that Stripewise makes may be passed through but not listed (mode 0711): an object is reached by those who know its
//! file's random id and whom the object's own mode permits, which is its file's.

mod descriptions;
mod marker;
mod objects;

pub use marker::{MARKER, Prepared, prepare};

use super::calls::perform_in_turn;
use super::{
    Call, Capabilities, Handle, Kind, ObjectHandle, ObjectName, ObjectSize, ObjectStore, OpenMode, Ownership,
    ServerError, Standing, Transfer,
};
use crate::descriptors::{Descriptor, default_base};
use marker::Version;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, Gid, Mode, OFlags, RawDir, ResolveFlags, Uid};
use rustix::io::{Errno, ReadWriteFlags};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use stripewise_layout::{Direction, FileId, Generation, RegionIndex, ServerUrl};

/// To pass through, not to list.
const PASS: Mode = Mode::from_raw_mode(0o711);
const ROOT: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);
/// Below the server's directory.
const DIRECTORY: OFlags = ROOT.union(OFlags::NOFOLLOW);

const SCHEME: &str = "file";

/// `file://`
pub(super) const KIND: Kind = Kind {
    scheme: SCHEME,
    by_agent: None,
    check: |url| match url.parameters().next() {
        Some(parameter) => Err(format!("`{url}`: a file URL takes no parameters, found `{parameter}`")),
        None => Ok(()),
    },
    open: |opening| Ok(Box::new(DirectoryServer::new(opening.cluster, opening.name, opening.url.directory()))),
};

/// Objects in a directory of this host.
#[derive(Debug)]
pub struct DirectoryServer {
    cluster: String,
    name: String,
    directory: PathBuf,
    /// `stripewise-objects`, unless it could not be opened at first; then every call tries again.
    objects: Option<Descriptor>,
    /// `objects` lie in memory.
    is_in_memory: bool,
    /// The marker that was last found right, as it was then.
    marker: Mutex<Option<Version>>,
}

/// The URL of the server that is `directory`.
#[must_use]
pub fn url(directory: impl Into<PathBuf>) -> ServerUrl {
    ServerUrl::new(SCHEME, directory)
}

/// Makes a directory that may exist, of mode [`PASS`] whatever the umask.
fn make_directory(parent: impl AsFd, name: &str) -> rustix::io::Result<()> {
    match rustix::fs::mkdirat(&parent, name, PASS) {
        Ok(()) => {
            // The umask, or an access list of the directory above, may leave no right to pass.
            let found = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if Mode::from_raw_mode(found.st_mode) == PASS {
                return Ok(());
            }
            let made = rustix::fs::openat(&parent, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
            rustix::fs::chmod(format!("/proc/self/fd/{}", made.as_raw_fd()), PASS)
        }
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

impl DirectoryServer {
    /// Opens nothing that is not there: [`ObjectStore::probe`] tells whether the server can be used.
    #[must_use]
    pub fn new(cluster: &str, name: &str, directory: &Path) -> Self {
        let mut server = Self {
            cluster: cluster.to_owned(),
            name: name.to_owned(),
            directory: directory.to_owned(),
            objects: None,
            is_in_memory: false,
            marker: Mutex::default(),
        };
        server.objects = server.open_objects().ok().map(|objects| Descriptor::raise(objects, default_base()));
        server.is_in_memory = server.objects.as_ref().is_some_and(lies_in_memory);
        server
    }

    fn unusable(&self, what: String) -> ServerError {
        ServerError::Unusable { server: self.name.clone(), what }
    }

    fn not_writable(&self, errno: Errno) -> ServerError {
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => self.unusable(format!(
                "{} is not writable ({errno}); give this user write permission or mount it read-write",
                self.directory.display()
            )),
            errno => self.fault("preparing the server directory", errno),
        }
    }

    fn fault(&self, action: &'static str, source: Errno) -> ServerError {
        ServerError::from_errno(self.name.clone(), action, source)
    }

    fn open_flags(&self, object: ObjectName, flags: OFlags) -> Result<rustix::io::Result<OwnedFd>, ServerError> {
        let path = path_of(object);
        self.with_objects(|objects| open_object(objects, &path, flags))
    }

    fn missing_or(&self, object: ObjectName, action: &'static str) -> impl Fn(Errno) -> ServerError {
        move |errno| match errno {
            Errno::NOENT => ServerError::Missing { server: self.name.clone(), object },
            errno => self.fault(action, errno),
        }
    }
}

fn directory_of(file: FileId) -> String {
    file.to_string()
}

fn path_of(object: ObjectName) -> String {
    object.to_string()
}

fn parse_name(file: FileId, name: &str) -> Option<ObjectName> {
    let (region, generation) = name.split_once('.')?;
    Some(ObjectName {
        file,
        region: RegionIndex(region.parse().ok()?),
        generation: Generation(generation.parse().ok()?),
    })
}

/// No link is followed, on the way to the object's directory either.
fn open_object(objects: BorrowedFd<'_>, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    match rustix::fs::openat2(objects, path, flags, Mode::empty(), resolve) {
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let (directory, name) = path.split_once('/').ok_or(Errno::INVAL)?;
            let directory = rustix::fs::openat(objects, directory, DIRECTORY | OFlags::PATH, Mode::empty())?;
            rustix::fs::openat(directory, name, flags, Mode::empty())
        }
        result => result,
    }
}

/// Owner before mode: the new owner's bits never apply to the old one. A group that this user may not give gets nothing.
fn apply(file: &OwnedFd, ownership: Ownership) -> rustix::io::Result<()> {
    let mut mode = ownership.mode & 0o666;
    let found = rustix::fs::fstat(file)?;
    if (found.st_uid, found.st_gid) != (ownership.uid, ownership.gid) {
        let uid = (found.st_uid != ownership.uid).then(|| Uid::from_raw(ownership.uid));
        match rustix::fs::fchown(file, uid, Some(Gid::from_raw(ownership.gid))) {
            Err(Errno::PERM) if uid.is_none() => mode &= !0o060,
            result => result?,
        }
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
}

/// File systems that place a file's bytes when they are written out, each file in an area of its own. Others compress, copy on write or have no devices.
const EXTENT_FILE_SYSTEMS: [u64; 2] = [0xef53, 0x5846_5342]; // ext4, XFS

/// Objects there are never waited for.
const MEMORY_FILE_SYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6]; // tmpfs, ramfs

fn lies_in_memory(directory: impl AsFd) -> bool {
    rustix::fs::fstatfs(directory).is_ok_and(|found| MEMORY_FILE_SYSTEMS.contains(&(found.f_type as u64)))
}

/// Allocates the begin of a new object in one piece, right behind what was allocated last where that is free. Objects of one file that are made in order
/// then lie in order, and a disk that goes through the file does not seek from each to the next. It is advice: what fails is met by the writes.
fn set_space_aside(object: &OwnedFd, bytes: u64) {
    let is_of_extents =
        rustix::fs::fstatfs(object).is_ok_and(|found| EXTENT_FILE_SYSTEMS.contains(&(found.f_type as u64)));
    if is_of_extents {
        let _ = rustix::fs::fallocate(object, FallocateFlags::KEEP_SIZE, 0, bytes);
    }
}

impl DirectoryServer {
    #[inline]
    fn read(&self, handle: BorrowedFd<'_>, transfer: &mut Transfer<'_>) -> Result<usize, ServerError> {
        let offset = transfer.offset.0;
        // One buffer, the most frequent case, is a little cheaper without the kernel's copy of the vector.
        let read = rustix::io::retry_on_intr(|| match transfer.memory.slices_to_fill() {
            [only] => rustix::io::pread(handle, &mut **only, offset),
            several => rustix::io::preadv(handle, several, offset),
        });
        read.map_err(|errno| self.fault("reading an object", errno))
    }

    #[inline]
    fn write(&self, handle: BorrowedFd<'_>, transfer: &Transfer<'_>) -> Result<usize, ServerError> {
        let offset = transfer.offset.0;
        let written = rustix::io::retry_on_intr(|| match transfer.memory.slices_to_take() {
            several if transfer.how.durable => rustix::io::pwritev2(handle, several, offset, ReadWriteFlags::DSYNC),
            [only] => rustix::io::pwrite(handle, only, offset),
            several => rustix::io::pwritev(handle, several, offset),
        });
        written.map_err(|errno| match errno {
            // Opened while the mount was read-only.
            Errno::BADF | Errno::ROFS => self.not_writable(Errno::ROFS),
            errno => self.fault("writing an object", errno),
        })
    }
}

impl ObjectStore for DirectoryServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { plain_descriptors: true, ..Capabilities::UNKNOWN }
    }

    fn answers_at_once(&self) -> bool {
        self.is_in_memory
    }

    #[inline]
    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        for transfer in batch {
            let done = match (transfer.handle.to_descriptor(&self.name), transfer.memory.direction()) {
                (Ok(handle), Direction::Read) => self.read(handle, transfer),
                (Ok(handle), Direction::Write) => self.write(handle, transfer),
                (Err(error), _) => Err(error),
            };
            transfer.completion = Some(done);
        }
        others();
    }

    fn perform_batch(&self, batch: &mut [Call<'_>], others: &mut dyn FnMut()) {
        perform_in_turn(self, batch, others);
    }

    fn probe(&self) -> Result<(), ServerError> {
        self.probe_objects().map(drop)
    }

    fn standing(&self) -> Result<Standing, ServerError> {
        let objects = self.probe_objects()?;
        let device = rustix::fs::fstat(&objects).map(|found| found.st_dev);
        let (free_bytes, total_bytes) = self.space_of(&objects)?;
        Ok(Standing { free_bytes, total_bytes, file_system: device.ok() })
    }

    fn create_expecting(
        &self,
        object: ObjectName,
        ownership: Ownership,
        expected_bytes: u64,
    ) -> Result<(), ServerError> {
        let path = path_of(object);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let make = |objects: BorrowedFd<'_>| {
            let make_object = || rustix::fs::openat(objects, &path, flags, Mode::from_raw_mode(0o600));
            // Of a directory that was removed nothing can be made in: that stays "no such file".
            let make_both = || make_directory(objects, &directory_of(object.file)).and_then(|()| make_object());
            // Of a new file there is nothing here yet.
            if object.generation == Generation(1) {
                return make_both();
            }
            match make_object() {
                Err(Errno::NOENT) => make_both(),
                result => result,
            }
        };
        let file = self.with_objects(make)?.map_err(|errno| match errno {
            Errno::EXIST => ServerError::Exists { server: self.name.clone(), object },
            errno @ (Errno::ACCESS | Errno::PERM | Errno::ROFS) => self.not_writable(errno),
            errno => self.fault("creating an object", errno),
        })?;
        apply(&file, ownership).map_err(|errno| {
            // The name was never told to anybody; a second failure leaves an orphan for `check`.
            let _ = self.remove(object);
            self.fault("giving an object its owner and mode", errno)
        })?;
        if expected_bytes > 0 && !self.is_in_memory {
            set_space_aside(&file, expected_bytes);
        }
        Ok(())
    }

    fn open_as(&self, object: ObjectName, mode: OpenMode) -> Result<ObjectHandle, ServerError> {
        let open = |access: OFlags| {
            if mode.direct {
                match self.open_flags(object, access | OFlags::DIRECT)? {
                    // A file system that goes through its cache, or has none to go past.
                    Err(Errno::INVAL) => {}
                    result => return Ok(result),
                }
            }
            self.open_flags(object, access)
        };
        let opened = if mode.writable {
            match open(OFlags::RDWR)? {
                // A file that may be written but not read.
                Err(Errno::ACCESS) => open(OFlags::WRONLY)?,
                // Who may write may go on reading when the mount has become read-only; writes fail one by one.
                Err(Errno::ROFS) => open(OFlags::RDONLY)?,
                result => result,
            }
        } else {
            open(OFlags::RDONLY)?
        };
        opened.map(ObjectHandle::Descriptor).map_err(self.missing_or(object, "opening an object"))
    }

    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError> {
        let path = path_of(object);
        let found = self
            .with_objects(|objects| rustix::fs::statat(objects, &path, AtFlags::SYMLINK_NOFOLLOW))?
            .map_err(self.missing_or(object, "looking at an object"))?;
        Ok(ObjectSize { end_bytes: found.st_size as u64, occupied_bytes: found.st_blocks as u64 * 512 })
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), ServerError> {
        if self.size(object)?.end_bytes <= length {
            return Ok(());
        }
        let file = self
            .open_flags(object, OFlags::WRONLY)?
            .map_err(self.missing_or(object, "opening an object to truncate it"))?;
        rustix::fs::ftruncate(&file, length).map_err(|errno| self.fault("truncating an object", errno))
    }

    fn sync(&self, handle: Handle<'_>) -> Result<(), ServerError> {
        rustix::fs::fdatasync(handle.to_descriptor(&self.name)?).map_err(|errno| self.fault("syncing an object", errno))
    }

    fn sync_names(&self, file: FileId) -> Result<(), ServerError> {
        let directory = directory_of(file);
        let sync = |objects: BorrowedFd<'_>| {
            match rustix::fs::openat(objects, &directory, DIRECTORY, Mode::empty()) {
                Ok(directory) => rustix::fs::fsync(&directory)?,
                // Nothing of this file here, or no more.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
            rustix::fs::fsync(objects)?;
            descriptions::sync(objects, file)
        };
        sync(self.open_objects()?.as_fd()).map_err(|errno| self.fault("syncing the names of objects", errno))
    }

    fn set_ownership(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        let path = path_of(object);
        let set = |objects: BorrowedFd<'_>| {
            let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
            match rustix::fs::openat(objects, &path, flags | OFlags::RDONLY, Mode::empty()) {
                Err(Errno::ACCESS) => {
                    // The owner may change what the owner may not read.
                    rustix::fs::chmodat(objects, &path, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
                    rustix::fs::openat(objects, &path, flags | OFlags::RDONLY, Mode::empty())
                }
                result => result,
            }
            .and_then(|file| apply(&file, ownership))
        };
        self.with_objects(set)?.map_err(self.missing_or(object, "changing an object's owner and mode"))
    }

    fn remove(&self, object: ObjectName) -> Result<(), ServerError> {
        let path = path_of(object);
        match self.with_objects(|objects| rustix::fs::unlinkat(objects, &path, AtFlags::empty()))? {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.fault("removing an object", errno)),
        }
    }

    fn remove_file(&self, file: FileId) -> Result<(), ServerError> {
        let name = directory_of(file);
        let remove = |objects: BorrowedFd<'_>| {
            // First: what is described and has no objects would look lost.
            descriptions::remove(objects, file)?;
            let directory = match rustix::fs::openat(objects, &name, DIRECTORY, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(()),
                result => result?,
            };
            for entry in entries(&directory)? {
                match rustix::fs::unlinkat(&directory, &entry, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
            match rustix::fs::unlinkat(objects, &name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno),
            }
        };
        remove(self.present_objects()?.as_fd()).map_err(|errno| self.fault("removing the objects of a file", errno))
    }

    fn describe(&self, file: FileId, head: &str, lines: &str) -> Result<u64, ServerError> {
        let append = |objects: BorrowedFd<'_>| descriptions::append(objects, file, head, lines);
        self.with_objects(append)?.map_err(|errno| self.fault("describing a file", errno))
    }

    fn describe_again(&self, file: FileId, text: &str) -> Result<(), ServerError> {
        let replace = |objects: BorrowedFd<'_>| descriptions::replace(objects, file, text);
        self.with_objects(replace)?.map_err(|errno| self.fault("describing a file", errno))
    }

    fn sync_description(&self, file: FileId) -> Result<(), ServerError> {
        let sync = |objects: BorrowedFd<'_>| descriptions::sync(objects, file);
        self.with_objects(sync)?.map_err(|errno| self.fault("syncing the description of a file", errno))
    }

    fn descriptions(&self) -> Result<Vec<(FileId, String)>, ServerError> {
        descriptions::all(self.open_objects()?.as_fd())
            .map_err(|errno| self.fault("reading descriptions of files", errno))
    }

    fn objects(&self) -> Result<Vec<ObjectName>, ServerError> {
        let list = |objects: BorrowedFd<'_>| {
            let mut found = Vec::new();
            // The server's own descriptor is used by others too.
            for directory in entries(&rustix::fs::openat(objects, ".", DIRECTORY, Mode::empty())?)? {
                let Some(file) = directory.to_str().ok().and_then(|name| name.parse::<FileId>().ok()) else { continue };
                let opened = match rustix::fs::openat(objects, &directory, DIRECTORY, Mode::empty()) {
                    // Freed meanwhile.
                    Err(Errno::NOENT) => continue,
                    result => result?,
                };
                found.extend(
                    entries(&opened)?.iter().filter_map(|name| name.to_str().ok().and_then(|n| parse_name(file, n))),
                );
            }
            Ok(found)
        };
        list(self.open_objects()?.as_fd()).map_err(|errno| self.fault("listing objects", errno))
    }

    fn free_bytes(&self) -> Result<u64, ServerError> {
        self.space_of(&self.open_objects()?).map(|(free_bytes, _)| free_bytes)
    }
}

/// Names in a directory that was just opened for this; the descriptor is at its end afterwards.
fn entries(directory: &OwnedFd) -> rustix::io::Result<Vec<std::ffi::CString>> {
    let (mut names, mut buffer) = (Vec::new(), [MaybeUninit::<u8>::uninit(); 2048]);
    let mut found = RawDir::new(directory, &mut buffer);
    while let Some(entry) = found.next() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
