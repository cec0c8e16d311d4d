//! Putting stubs back: their text, or new ones in the place of those that are gone.

use super::Checks;
use crate::ancestors::Ancestors;
use crate::guard;
use crate::identities::write_stub;
use crate::managed::{Inner, Managed};
use crate::proof::Facts;
use crate::rmt::{Changes, FileRecord, FileState, Inode};
use crate::search::unborn_name;
use rustix::fd::OwnedFd;
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use stripewise_layout::FileId;
use stripewise_store::entry::{DirectoryEntry, User};
use stripewise_store::protocol::Refusal;
use stripewise_store::stub::{STUB_BYTES, Stub};

/// Files kept beside one stub as `NAME.before-check`, `NAME.before-check.2` and so on.
const MAX_ASIDE: u32 = 1000;

fn refuse(path: &Path, action: &'static str) -> impl Fn(Errno) -> Refusal + use<> {
    let path = path.to_owned();
    move |errno| Refusal::Invalid { what: format!("{}: cannot {action}: {errno}", path.display()) }
}

/// As `refuse`, of what is done with the rights of the file's owner.
fn refuse_owner(path: &Path, action: &'static str, owner: u32) -> impl Fn(Errno) -> Refusal + use<> {
    let path = path.to_owned();
    move |errno| Refusal::Invalid {
        what: format!(
            "{}: user {owner}, whose file it is, cannot {action} ({errno}); give that user the right to write the directory, and repeat",
            path.display()
        ),
    }
}

/// The name in its directory, which a symbolic link never leads to.
fn entry_at(path: &Path) -> Result<DirectoryEntry, Refusal> {
    DirectoryEntry::at(path).map_err(unreachable_entry(path))
}

pub(super) fn unreachable_entry(path: &Path) -> impl Fn(Errno) -> Refusal + use<> {
    let path = path.to_owned();
    move |errno| match errno {
        Errno::LOOP => Refusal::Invalid {
            what: format!(
                "{}: a symbolic link stands in the place of one of its directories, and links are not followed; put the directory back there, and repeat",
                path.display()
            ),
        },
        errno => refuse(&path, "look at it")(errno),
    }
}

/// The first free name beside `entry` at which `make` succeeds.
fn create_aside<T>(
    entry: &DirectoryEntry,
    make: impl Fn(&DirectoryEntry) -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    for number in 1..=MAX_ASIDE {
        let mut name = entry.name().to_owned();
        name.push(".before-check");
        if number > 1 {
            name.push(format!(".{number}"));
        }
        match make(&entry.sibling(&name)) {
            Err(Errno::EXIST) => {}
            made => return made,
        }
    }
    Err(Errno::EXIST)
}

impl Checks {
    pub(super) fn put_record(&self, managed: &Managed, inner: &mut Inner, record: FileRecord) -> Result<(), Refusal> {
        let mut changes = Changes::default();
        let record = Ancestors::of_path(&record.path).record(record.path.clone(), &record);
        self.notes.decide_names_of(managed.file, &mut changes);
        changes.put_file(managed.file, &record);
        let was = inner.record.stub;
        match record.stub == was {
            true => self.context.table().commit(&changes)?,
            false => self.inodes.move_inode(was, record.stub, managed.file, changes)?,
        }
        inner.record = record;
        Ok(())
    }

    pub(super) fn adopt_stub(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        stub: Inode,
        path: &Path,
    ) -> Result<(), Refusal> {
        let record = FileRecord {
            stub,
            boot: self.context.boot(),
            path: path.to_string_lossy().into_owned(),
            ..inner.record.clone()
        };
        inner.stub = None;
        self.put_record(managed, inner, record)
    }

    fn text(&self, file: FileId) -> Result<[u8; STUB_BYTES], Refusal> {
        let stub =
            Stub { file, cluster: self.context.cluster().id.clone(), state: self.context.state().path().to_owned() };
        stub.to_bytes().map_err(|error| Refusal::Invalid { what: error.to_string() })
    }

    /// Copies what stands in the stub's inode to a new file beside and writes the text back.
    pub(super) fn restore_text(&self, file: FileId, inner: &Inner, path: &Path) -> Result<(), Refusal> {
        let text = self.text(file)?;
        let entry = entry_at(path)?;
        let stub = entry.open_regular(OFlags::RDWR).map_err(refuse(path, "open it"))?;
        // Another file may have taken the place since it was looked at.
        let is_it = Facts::of(&stub).map_err(refuse(path, "look at it"))?;
        if !inner.record.stub.is(&is_it.inode) {
            return Err(refuse(path, "restore it")(Errno::STALE));
        }
        let owner = inner.record.uid;
        let aside = User::of(owner)
            .act(|| create_aside(&entry, |aside| aside.create()))
            .and_then(|made| made)
            .map_err(refuse_owner(path, "create a file next to it", owner))?;
        let copy = || -> std::io::Result<()> {
            let (mut from, mut to) = (std::fs::File::from(stub.try_clone()?), std::fs::File::from(aside));
            std::io::copy(&mut from, &mut to)?;
            rustix::fs::fchmod(&to, Mode::from_raw_mode(is_it.ownership.mode))?;
            to.sync_all()
        };
        copy().map_err(|error| Refusal::Invalid { what: format!("{}: cannot copy it: {error}", path.display()) })?;
        let write = || {
            entry.sync_directory()?;
            write_stub(&stub, &text)?;
            rustix::fs::ftruncate(&stub, STUB_BYTES as u64)?;
            rustix::fs::fsync(&stub)
        };
        write().map_err(refuse(path, "write it"))
    }

    /// A new stub, complete and recorded before it appears. Nothing may stand at `path`.
    pub(super) fn new_stub(&self, managed: &Managed, inner: &mut Inner, path: &Path) -> Result<(), Refusal> {
        let text = self.text(managed.file)?;
        let entry = entry_at(path)?;
        let unborn = entry.sibling(OsStr::new(&unborn_name(managed.file)));
        let (owner, user) = (inner.record.uid, User::of(inner.record.uid));
        let create = || {
            // What a crash left, or whatever somebody put there: the name is ours. A directory stays, and is told.
            match unborn.unlink() {
                Ok(()) | Err(Errno::NOENT) => unborn.create(),
                Err(errno) => Err(errno),
            }
        };
        let stub =
            user.act(create).and_then(|made| made).map_err(refuse_owner(unborn.path(), "create the stub", owner))?;
        let finish = |stub: &OwnedFd| -> rustix::io::Result<()> {
            let record = &inner.record;
            if rustix::process::geteuid().is_root() {
                rustix::fs::fchown(stub, Some(Uid::from_raw(record.uid)), Some(Gid::from_raw(record.gid)))?;
            }
            rustix::fs::fchmod(stub, Mode::from_raw_mode(record.mode))?;
            write_stub(stub, &text)?;
            rustix::fs::fsync(stub)
        };
        finish(&stub).map_err(refuse(unborn.path(), "make the stub"))?;
        let inode = Facts::of(&stub).map_err(refuse(unborn.path(), "look at it"))?.inode;
        let before = inner.record.clone();
        self.adopt_stub(managed, inner, inode, path)?;
        self.context.step("check: stub recorded");
        // Replaces nothing: what appeared there meanwhile is left alone.
        let named = user.act(|| unborn.rename(&entry)).and_then(|renamed| renamed);
        named.map_err(|errno| {
            // What is not there is rebuilt by the next one who wants it.
            let _ = user.act(|| unborn.unlink());
            match self.put_record(managed, inner, before) {
                Ok(()) => refuse_owner(path, "put the stub there", owner)(errno),
                Err(refusal) => refusal,
            }
        })
    }

    /// A file with a stub is used through it.
    pub(crate) fn refuse_if_it_stands(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        remedy: &str,
    ) -> Result<(), Refusal> {
        if !matches!(inner.record.state, FileState::Live) {
            let what = format!("{} is being made, moved or removed", inner.record.path);
            return Err(Refusal::Invalid { what });
        }
        if self.notes.flux_of(managed.file) == crate::name_notes::Flux::Changing {
            return Err(Refusal::NameInUse { path: inner.record.path.clone() });
        }
        let record = inner.record.clone();
        let stands = if self.search.stands_at_its_path(&record)? {
            Some(PathBuf::from(&record.path))
        } else {
            let watched = inner.stub.as_ref().and_then(crate::proof::path_of).map(PathBuf::from);
            let is_it =
                |path: &PathBuf| Facts::at_path(path).ok().flatten().is_some_and(|facts| record.stub.is(&facts.inode));
            watched
                .filter(is_it)
                .or_else(|| self.search.search_one(managed.file, &record).found(managed.file).map(Path::to_owned))
        };
        match stands {
            Some(path) => {
                let what = format!("the stub of file {} stands at {}; {remedy}", managed.file, path.display());
                Err(Refusal::Invalid { what })
            }
            None => Ok(()),
        }
    }

    /// Gives a file whose stub is gone a new one, where nothing stands.
    pub(crate) fn rescue(&self, managed: &Managed, path: &str) -> Result<(), Refusal> {
        if !Path::new(path).is_absolute() || Path::new(path).file_name().is_none() {
            return Err(Refusal::Invalid { what: format!("{path} is no absolute path of a file") });
        }
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(Refusal::UnknownFile { file: managed.file });
        }
        self.refuse_if_it_stands(managed, &mut inner, "it needs no new one")?;
        if Facts::at_path(Path::new(path)).map_err(unreachable_entry(Path::new(path)))?.is_some() {
            return Err(Refusal::Invalid { what: format!("{path} exists; name a path where nothing stands") });
        }
        self.new_stub(managed, &mut inner, Path::new(path))
    }

    /// A file whose stub is gone is freed, by a person's word.
    pub(crate) fn remove_lost(&self, managed: &Managed) -> Result<(), Refusal> {
        {
            let mut inner = guard(&managed.inner);
            if inner.freed {
                return Ok(());
            }
            self.refuse_if_it_stands(managed, &mut inner, "remove that with `stripewise rm`")?;
            let mut changes = Changes::default();
            self.notes.decide_names_of(managed.file, &mut changes);
            let record = FileRecord { state: FileState::Unlinked, ..inner.record.clone() };
            changes.put_file(managed.file, &record);
            self.context.table().commit(&changes)?;
            inner.record = record;
            self.quiescing.end_moves(managed, &inner, "the file was removed");
        }
        if !self.lifecycle.after_close(managed)? {
            self.rechecks.recheck(managed.file);
        }
        Ok(())
    }
}
