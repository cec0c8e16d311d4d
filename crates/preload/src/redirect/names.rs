//! Names of managed files going away, and changes of mode, owner and times.

use super::failure::failed;
use super::writing::with_open_for_writing;
use super::{
    Closing, Open, client, find, inodes, is_on, may_be_managed, open_of_inode, reopen_stub, with_file_at,
    with_raised_limit,
};
use crate::borrow::borrow;
use crate::managed::link::descriptor_path;
use crate::process::{self, Level};
use libc::{c_char, c_int, timespec};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use stripewise_layout::FileId;
use stripewise_store::client::{BegunChange, ClientError, Name, NameChange, Standing, rename_to_free};
use stripewise_store::errno::ToErrno;
use stripewise_store::file::StripedFile;
pub(crate) use stripewise_store::protocol::NameCall;

/// What changed of a stub.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Mode or owner: the objects take them over.
    Attributes,
    /// Times, the modification time among them: the stub's holds from now on.
    Times,
    /// Nothing that concerns the data.
    Nothing,
}

/// Whether a `utimensat` sets the modification time.
pub(crate) fn of_times(times: *const timespec) -> Change {
    const UTIME_OMIT: i64 = (1 << 30) - 2;
    // SAFETY: null, or the program's two times.
    let omitted = !times.is_null() && unsafe { (*times.add(1)).tv_nsec } == UTIME_OMIT;
    if omitted { Change::Nothing } else { Change::Times }
}

/// A name as a call gives it.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) directory: c_int,
    pub(crate) path: &'a CStr,
}

impl Named<'_> {
    fn base(&self) -> BorrowedFd<'_> {
        // SAFETY: AT_FDCWD or the program's descriptor; the kernel checks it.
        unsafe { borrow(self.directory) }
    }

    /// Where the last name begins.
    fn split(&self) -> usize {
        self.path.to_bytes().iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)
    }

    fn name(&self) -> &[u8] {
        &self.path.to_bytes()[self.split()..]
    }

    fn open_directory(&self) -> Result<Closing, Errno> {
        let parent = match &self.path.to_bytes()[..self.split()] {
            [] => &b"."[..],
            parent => parent,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Closing(Some(rustix::fs::openat(self.base(), parent, flags, Mode::empty())?)))
    }

    /// What stands at the name, as far as its status tells (links are not followed).
    fn lookup(&self) -> Seen {
        match rustix::fs::statat(self.base(), self.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) if may_be_stub(&status) => Seen::MaybeManaged,
            Err(Errno::NOENT) => Seen::Nothing,
            Err(errno @ (Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG)) => Seen::Nowhere(errno),
            Ok(_) | Err(_) => Seen::Ordinary,
        }
    }

    /// A name in the same directory at which nothing stands.
    fn unused(&self) -> Result<CString, Errno> {
        let mut number = [0; 16];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
        let name = format!(".{:032x}", u128::from_ne_bytes(number));
        CString::new([&self.path.to_bytes()[..self.split()], name.as_bytes()].concat()).map_err(|_| Errno::INVAL)
    }

    /// What stands at the name, and of which managed file it is, or looks like, the stub.
    fn find(&self) -> Result<Found, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let handle = Closing(Some(rustix::fs::openat(self.base(), self.path, flags, Mode::empty())?));
        let managed = file_behind(handle.borrow())?;
        if managed.is_none() && rustix::fs::fstat(handle.borrow())?.st_nlink == 0 {
            // What it was is not known any more, and something else may stand there.
            return Err(Errno::STALE);
        }
        Ok(Found { handle, managed })
    }
}

/// What a look at a name found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    /// The path leads to no name, and this is why.
    Nowhere(Errno),
    /// A file that no stub is, or something that cannot be looked at.
    Ordinary,
    MaybeManaged,
}

fn may_be_stub(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && may_be_managed(status.st_size as u64, (status.st_dev, status.st_ino))
}

struct Found {
    handle: Closing,
    managed: Option<FileId>,
}

impl Found {
    fn standing(&self) -> Standing<'_> {
        Standing { file: self.handle.borrow(), managed: self.managed }
    }
}

/// The managed file of which an `O_PATH` descriptor's file has the stub's text. Its data is left alone.
fn file_behind(handle: BorrowedFd<'_>) -> Result<Option<FileId>, Errno> {
    let status = rustix::fs::fstat(handle)?;
    if !may_be_stub(&status) {
        return Ok(None);
    }
    let identity = (status.st_dev, status.st_ino);
    if let Some(open) = open_of_inode(identity) {
        return Ok(open.file().ok().map(StripedFile::id));
    }
    // The broker's word, without a look at the text beside record locks of this process.
    if let Some(closed) = super::status::closed(handle, c"", AtFlags::EMPTY_PATH, identity) {
        return Ok(Some(closed.file));
    }
    match reopen_stub(handle) {
        Ok(Some(stub)) => Ok((stub.cluster == client()?.cluster()).then_some(stub.file)),
        Err(Errno::ACCESS) => find(handle),
        // Written over: the broker knows the inode.
        Ok(None) | Err(_) if inodes::holds(identity) => find(handle),
        Ok(None) | Err(_) => Ok(None),
    }
}

/// A call that changes names, and what it does.
#[derive(Clone, Copy)]
pub(crate) struct Changing<'a> {
    pub(crate) call: NameCall,
    /// None of a removal.
    pub(crate) source: Option<Named<'a>>,
    pub(crate) target: Named<'a>,
    /// Those of `renameat2`.
    pub(crate) flags: RenameFlags,
}

/// A change of names that the broker has noted.
struct Noted(BegunChange);

impl Changing<'_> {
    /// Makes the call by `real`, between its note at the broker and the word of what became of it, if that concerns a managed file. An error fails the call: a
    /// managed file does not lose its name unnoted.
    pub(crate) fn make(&self, real: impl Fn() -> c_int) -> Result<c_int, Errno> {
        // With a slash at its end a path names no file: the call fails.
        let names_none = |named: &Named<'_>| named.name().is_empty();
        if !is_on() || names_none(&self.target) || self.source.as_ref().is_some_and(names_none) {
            return Ok(real());
        }
        // A few rounds: the names may come and go under us.
        for _ in 0..64 {
            match self.try_make(&real) {
                Err(Errno::STALE) => {}
                result => return result,
            }
        }
        Err(Errno::BUSY)
    }

    /// `STALE`: other files stand there by now.
    fn try_make(&self, real: impl Fn() -> c_int) -> Result<c_int, Errno> {
        let target = self.target.lookup();
        let source = self.source.map(|source| source.lookup());
        if let Some(Seen::Nowhere(errno)) =
            [source, Some(target)].into_iter().flatten().find(|seen| matches!(seen, Seen::Nowhere(_)))
        {
            return Err(errno);
        }
        let lacks_its_target = target == Seen::Nothing && self.call != NameCall::Rename;
        if lacks_its_target || source == Some(Seen::Nothing) {
            return Err(self.fail_at_nothing(lacks_its_target, source == Some(Seen::Nothing)));
        }
        let noted = match target == Seen::MaybeManaged || source == Some(Seen::MaybeManaged) {
            true => with_raised_limit(|| self.begin(target))?,
            false => None,
        };
        let result = match self.source {
            Some(source) if target == Seen::Nothing && self.flags.is_empty() => {
                match rename_to_free((source.base(), source.path), (self.target.base(), self.target.path)) {
                    Ok(()) => Ok(0),
                    Err(Errno::EXIST) => Err(Errno::STALE),
                    Err(errno) => Err(errno),
                }
            }
            _ => Ok(real()),
        };
        if let Some(noted) = noted {
            let _errno = process::Errno::keep();
            noted.end(result == Ok(0));
        }
        result
    }

    /// The error of the call where nothing stands at the target or the source, from the kernel, which looks at more than that: the call is made with names that
    /// nobody uses. At its own names a managed file may stand by now, which would lose its name unnoted.
    fn fail_at_nothing(&self, at_target: bool, at_source: bool) -> Errno {
        let fail = || {
            let unused = |named: Named<'_>, is_nothing: bool| match is_nothing {
                true => named.unused(),
                false => Ok(named.path.to_owned()),
            };
            let target = unused(self.target, at_target)?;
            match self.source {
                None => rustix::fs::unlinkat(self.target.base(), target, AtFlags::empty()),
                Some(source) => {
                    let from = unused(source, at_source)?;
                    rustix::fs::renameat_with(source.base(), from, self.target.base(), target, self.flags)
                }
            }
        };
        // The path and the longer name may be too long together.
        fail().err().filter(|errno| *errno != Errno::NAMETOOLONG).unwrap_or(Errno::NOENT)
    }

    /// Says to the broker that the call is about to be made. `STALE`: other files stand there by now.
    fn begin(&self, seen: Seen) -> Result<Option<Noted>, Errno> {
        let at = |named: &Named<'_>| match named.find() {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(None),
            result => result.map(Some),
        };
        let victim = at(&self.target)?;
        let mover = self.source.as_ref().map(at).transpose()?;
        if victim.is_some() == (seen == Seen::Nothing) || matches!(mover, Some(None)) {
            return Err(Errno::STALE);
        }
        let mover = mover.flatten();
        let from = self.source.map(|source| source.open_directory()).transpose();
        let (Ok(to), Ok(from)) = (self.target.open_directory(), from) else {
            return Ok(None);
        };
        // Where this process may not change names, the call fails, with the kernel's own errno.
        let forbids = |directory: &Closing| {
            rustix::fs::accessat(directory.borrow(), ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_err()
        };
        let from_name = self.source.as_ref().zip(from.as_ref()).map(|(source, directory)| {
            let name = Name { directory: directory.borrow(), name: source.name() };
            (name, mover.as_ref().map(Found::standing))
        });
        let to_name = Name { directory: to.borrow(), name: self.target.name() };
        let victim = victim.as_ref().map(Found::standing);
        let Some(change) = NameChange::concerning(self.call, to_name, victim, from_name) else {
            return Ok(None);
        };
        if forbids(&to) || from.as_ref().is_some_and(forbids) {
            return Ok(None);
        }
        let fail = |error: &ClientError| {
            process::log(Level::Error, &[b"changing a managed file's name: ", error.to_string().as_bytes()]);
            error.errno()
        };
        match client() {
            Ok(client) => Ok(change.note(&client, fail)?.map(Noted)),
            Err(errno) if change.must_be_noted() => Err(errno),
            Err(_) => Ok(None),
        }
    }
}

impl Noted {
    /// The call returned.
    fn end(self, done: bool) {
        if let Err(error) = self.0.end(done) {
            process::log(
                Level::Warn,
                &[b"what became of a managed file's name was not noted yet: ", error.to_string().as_bytes()],
            );
        }
    }
}

fn report_change(stub: BorrowedFd<'_>, file: FileId, striped: Option<&StripedFile>, what: Change) {
    match what {
        Change::Nothing => {}
        Change::Attributes => {
            let _ = client().and_then(|client| {
                client.attributes_changed(stub, file).map_err(|error| {
                    process::log(Level::Warn, &[b"objects keep their mode and owner: ", error.to_string().as_bytes()]);
                    error.errno()
                })
            });
        }
        Change::Times => {
            // A file open only for reading cannot say so itself; a second, writing open does.
            if let Some(striped) = striped
                && striped.is_writable()
                && let Err(error) = striped.set_modified_ns(None)
            {
                failed(&error);
            }
        }
    }
}

/// Mode, owner or times of what a path leads to were changed.
pub(crate) fn changed_at(directory: c_int, path: *const c_char, follow: bool, what: Change) {
    if what == Change::Nothing {
        return;
    }
    // SAFETY: the program's string.
    let path = unsafe { CStr::from_ptr(path) };
    with_file_at(directory, path, follow, |stub, file, striped| {
        if what == Change::Times && striped.is_none_or(|striped| !striped.is_writable()) {
            return set_time_writing(stub, file);
        }
        report_change(stub, file, striped, what);
    });
}

/// Through an open for writing, which the change of times does not need but the shared size and times do.
fn set_time_writing(stub: BorrowedFd<'_>, file: FileId) {
    // Refused where this process may not write the file: then the change of times fails as well, or concerns its owner alone.
    let _ = with_open_for_writing(stub, file, |striped| {
        report_change(stub, file, Some(striped), Change::Times);
        Ok(())
    });
}

/// As [`changed_at`], of an open file.
pub(crate) fn changed(open: &Open, descriptor: c_int, what: Change) {
    // SAFETY: the program's descriptor, of the call under way.
    let stub = unsafe { borrow(descriptor) };
    let Ok(file) = open.file() else { return };
    if what == Change::Times && !file.is_writable() {
        return set_time_writing(stub, file.id());
    }
    report_change(stub, file.id(), Some(file), what);
}

/// Mode, owner and group of what the descriptor is open on.
pub(crate) fn attributes_of(descriptor: c_int) -> Option<(u32, u32, u32)> {
    // SAFETY: the program's descriptor, of the call under way.
    let status = rustix::fs::fstat(unsafe { borrow(descriptor) }).ok()?;
    Some((status.st_mode, status.st_uid, status.st_gid))
}

/// `truncate` of a path. `real` is libc's own, which gets a path that leads to the very file that was found to be an ordinary one: another may stand at the
/// name by then.
pub(crate) fn truncate(path: &CStr, length: u64, real: impl Fn(&CStr) -> c_int) -> Result<(), Errno> {
    for _ in 0..64 {
        let handle = with_raised_limit(|| super::hold(libc::AT_FDCWD, path, true))?;
        let link = descriptor_path(None, handle.borrow().as_raw_fd());
        match truncate_managed(handle.borrow(), link.as_c_str(), length) {
            Ok(false) => {}
            Ok(true) => return Ok(()),
            // Released or removed meanwhile: another file stands at the path now, or none.
            Err(error) if super::was_removed(handle.borrow(), error) => continue,
            Err(error) => return Err(error),
        }
        if real(link.as_c_str()) != 0 {
            return Err(Errno::from_raw_os_error(process::errno()));
        }
        let status = rustix::fs::fstat(handle.borrow())?;
        // It became managed while libc waited for it.
        if !(status.st_nlink == 0 && super::was_replaced(libc::AT_FDCWD, path, &status)) {
            return Ok(());
        }
    }
    Err(Errno::BUSY)
}

/// Returns false if what is held is an ordinary file.
fn truncate_managed(handle: BorrowedFd<'_>, link: &CStr, length: u64) -> Result<bool, Errno> {
    let status = rustix::fs::fstat(handle)?;
    let open = open_of_inode((status.st_dev, status.st_ino));
    let striped = open.as_ref().map(|open| open.file()).transpose()?;
    let Some(file) = striped.map_or_else(|| file_behind(handle), |striped| Ok(Some(striped.id())))? else {
        return Ok(false);
    };
    // An open of ours that writes is no permission for a call that goes by the name.
    rustix::fs::accessat(CWD, link, Access::WRITE_OK, AtFlags::EACCESS)?;
    super::limit::check_size(length)?;
    let truncate = |striped: &StripedFile| striped.truncate(length).map_err(|error| failed(&error));
    match striped.filter(|striped| striped.is_writable()) {
        Some(striped) => truncate(striped)?,
        None => with_open_for_writing(handle, file, truncate)?,
    }
    Ok(true)
}
