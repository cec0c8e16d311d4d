//! Stubs that were edited, replaced, renamed, copied or removed by programs that know nothing of Stripewise.
//!
//! The recorded path is reached without following links ([`DirectoryEntry`]), and what is created or renamed there is created or
//! renamed as the file's owner ([`User`]), who may have put anything in the place of the directory.

use super::Report;
use crate::broker::files::{Inner, Managed, write_stub};
use crate::broker::proof::Facts;
use crate::broker::{Core, guard};
use crate::entry::{DirectoryEntry, User};
use crate::protocol::Refusal;
use crate::rmt::{Changes, FileRecord, Inode};
use crate::stub::{STUB_BYTES, Stub};
use rustix::fd::OwnedFd;
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use stripewise_layout::FileId;

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

fn unreachable_entry(path: &Path) -> impl Fn(Errno) -> Refusal + use<> {
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

/// What stands where a stub should.
enum Standing {
    /// The stub, with its text.
    Stub,
    /// The stub's inode with another text.
    Edited,
    /// Another file with the stub's text.
    Copy(Inode),
    /// Another file.
    Other,
    Nothing,
}

impl Core {
    pub(super) fn check_stub(&self, managed: &Managed, inner: &mut Inner, report: &mut Report) -> Result<(), Refusal> {
        let path = PathBuf::from(&inner.record.path);
        let shown = path.display();
        // Held by a user and still named: it stands somewhere, whatever stands here.
        let lives_elsewhere = inner.is_nameless() == Some(false);
        match self.standing(managed.file, &path, inner.record.stub)? {
            Standing::Stub => self.check_ownership(managed, inner, &path, report),
            Standing::Edited => {
                let what = format!("the stub {shown} was overwritten; the data of the managed file is whole");
                let remedy = "the stub's text is restored, what was written over it is kept beside as .before-check";
                report.add_repair(what, remedy, || self.restore_text(managed.file, inner, &path));
                Ok(())
            }
            Standing::Copy(_) | Standing::Other | Standing::Nothing if lives_elsewhere => Ok(()),
            Standing::Copy(inode) => {
                let what = format!(
                    "the stub {shown} was replaced by a copy of itself, as a restored backup does; it opens nothing"
                );
                report.add_repair(what, "the copy becomes the stub", || self.adopt_stub(managed, inner, inode, &path));
                Ok(())
            }
            Standing::Other => {
                if self.follow_rename(managed, inner, &path, report)? {
                    return Ok(());
                }
                let what = format!(
                    "another file stands in the place of the stub {shown}; the data of the managed file is whole"
                );
                let remedy = "the other file is kept beside as .before-check and the stub restored";
                report.add_repair(what, remedy, || {
                    set_aside(inner, &path)?;
                    self.new_stub(managed, inner, &path)
                });
                Ok(())
            }
            Standing::Nothing => {
                if self.follow_rename(managed, inner, &path, report)? {
                    return Ok(());
                }
                let what = format!(
                    "the stub {shown} is gone: removed, or moved to where it was not seen; the data of the managed file is whole"
                );
                let remedy = "the stub is restored there (to remove the file, use `stripewise rm`)";
                report.add_repair(what, remedy, || self.new_stub(managed, inner, &path));
                Ok(())
            }
        }
    }

    fn standing(&self, file: FileId, path: &Path, stub: Inode) -> Result<Standing, Refusal> {
        let Some(facts) = Facts::at_path(path).map_err(unreachable_entry(path))? else {
            return Ok(Standing::Nothing);
        };
        let says_so = facts.is_regular && self.names_file(path, file);
        Ok(match (stub.is(&facts.inode), says_so) {
            (true, true) => Standing::Stub,
            (true, false) => Standing::Edited,
            (false, true) => Standing::Copy(facts.inode),
            (false, false) => Standing::Other,
        })
    }

    /// Whether the file at `path` has the text of this file's stub.
    fn names_file(&self, path: &Path, file: FileId) -> bool {
        let Ok(opened) = DirectoryEntry::at(path).and_then(|entry| entry.open_regular(OFlags::RDONLY)) else {
            return false;
        };
        let mut bytes = [0; STUB_BYTES + 1];
        let Ok(length) = rustix::io::pread(&opened, &mut bytes[..], 0) else { return false };
        matches!(Stub::parse(&bytes[..length]), Ok(Some(stub)) if stub.file == file && stub.cluster == self.cluster.id)
    }

    /// The stub may have another name in the same directory, or be a copy that somebody tried to open (moved between file systems).
    fn follow_rename(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        path: &Path,
        report: &mut Report,
    ) -> Result<bool, Refusal> {
        let siblings = DirectoryEntry::at(path).and_then(|entry| entry.siblings()).unwrap_or_default();
        let renamed = siblings.into_iter().find(|sibling| {
            // One that a crash kept from appearing is made anew.
            sibling.name() != unborn(managed.file)
                && Facts::at_entry(sibling).ok().flatten().is_some_and(|facts| inner.record.stub.is(&facts.inode))
        });
        if let Some(renamed) = renamed.as_ref().map(DirectoryEntry::path) {
            let record = FileRecord { path: renamed.to_string_lossy().into_owned(), ..inner.record.clone() };
            self.put_record(managed, inner, record)?;
            report.add(
                format!("the stub {} was renamed to {}", path.display(), renamed.display()),
                "noted; nothing is to be done",
                true,
            );
            return Ok(true);
        }
        let copies: Vec<String> =
            guard(&self.copies).iter().filter(|(_, of)| **of == managed.file).map(|(copy, _)| copy.clone()).collect();
        for copy in copies.iter().map(Path::new) {
            if let Standing::Copy(inode) = self.standing(managed.file, copy, inner.record.stub)? {
                let what = format!("the stub {} is gone, and {} is a copy of it", path.display(), copy.display());
                report.add_repair(what, "the copy becomes the stub", || self.adopt_stub(managed, inner, inode, copy));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Copies of stubs that somebody tried to open, while the stubs themselves stand.
    pub(super) fn check_copies(&self, report: &mut Report) {
        let copies = guard(&self.copies).clone();
        for (copy, file) in copies {
            let Ok(Some(record)) = self.table.file(file) else { continue };
            let path = Path::new(&copy);
            if matches!(self.standing(file, path, record.stub), Ok(Standing::Copy(_))) {
                let original = Path::new(&record.path);
                if !matches!(self.standing(file, original, record.stub), Ok(Standing::Stub | Standing::Edited)) {
                    // Told with the stub that does not stand.
                    continue;
                }
                report.add(
                    format!("{copy} is a copy of the stub {}, not of its data; it opens nothing", record.path),
                    "remove it; to copy the data use `stripewise cp`",
                    false,
                );
            } else {
                guard(&self.copies).remove(&copy);
            }
        }
    }

    fn check_ownership(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        path: &Path,
        report: &mut Report,
    ) -> Result<(), Refusal> {
        let Some(facts) = Facts::at_path(path).map_err(unreachable_entry(path))? else { return Ok(()) };
        if facts.ownership != inner.ownership() {
            let what = format!("mode or owner of {} changed, and its objects have not followed", path.display());
            report.add_repair(what, "they take them over", || self.follow_ownership(managed, inner, facts.ownership));
        }
        Ok(())
    }

    fn put_record(&self, managed: &Managed, inner: &mut Inner, record: FileRecord) -> Result<(), Refusal> {
        let mut changes = Changes::default();
        if record.stub != inner.record.stub {
            if self.table.file_of(inner.record.stub)? == Some(managed.file) {
                changes.remove_inode(inner.record.stub);
            }
            changes.put_inode(record.stub, managed.file);
            self.publish_inode(record.stub)?;
        }
        changes.put_file(managed.file, &record);
        self.table.commit(&changes)?;
        inner.record = record;
        Ok(())
    }

    fn adopt_stub(&self, managed: &Managed, inner: &mut Inner, stub: Inode, path: &Path) -> Result<(), Refusal> {
        let record =
            FileRecord { stub, boot: self.boot, path: path.to_string_lossy().into_owned(), ..inner.record.clone() };
        inner.stub = None;
        self.put_record(managed, inner, record)
    }

    fn text(&self, file: FileId) -> Result<[u8; STUB_BYTES], Refusal> {
        let stub = Stub { file, cluster: self.cluster.id.clone(), state: self.state.path().to_owned() };
        stub.to_bytes().map_err(|error| Refusal::Invalid { what: error.to_string() })
    }

    /// Copies what stands in the stub's inode to a new file beside and writes the text back.
    fn restore_text(&self, file: FileId, inner: &Inner, path: &Path) -> Result<(), Refusal> {
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
            .map_err(refuse_owner(path, "create a file beside it", owner))?;
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

    /// A new stub, complete and recorded before it appears.
    fn new_stub(&self, managed: &Managed, inner: &mut Inner, path: &Path) -> Result<(), Refusal> {
        let text = self.text(managed.file)?;
        let entry = entry_at(path)?;
        let unborn = entry.sibling(OsStr::new(&unborn(managed.file)));
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
        self.adopt_stub(managed, inner, inode, path)?;
        // Replaces nothing: what appeared there meanwhile is left for the next check.
        user.act(|| unborn.rename(&entry)).and_then(|renamed| renamed).map_err(refuse_owner(
            path,
            "put the stub there",
            owner,
        ))
    }
}

/// The temporary name of a restored stub.
fn unborn(file: FileId) -> OsString {
    format!(".stripewise-stub-{file}").into()
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

fn set_aside(inner: &Inner, path: &Path) -> Result<(), Refusal> {
    let entry = entry_at(path)?;
    let owner = inner.record.uid;
    User::of(owner)
        .act(|| create_aside(&entry, |aside| entry.rename(aside)))
        .and_then(|moved| moved)
        .map_err(refuse_owner(path, "move the other file aside", owner))
}
