//! Stubs that were edited, replaced, renamed, copied or removed by programs that know nothing of Stripewise.
//!
//! The stub's inode is the file's identity and the recorded path a hint: the inode is looked for first, and where it stands the record follows. A
//! path at which any other file stands is not the file's any more.

use super::restoring::unreachable_entry;
use super::{Checks, Report};
use crate::managed::{Inner, Managed};
use crate::name_notes::Flux;
use crate::proof::{Facts, path_of};
use crate::rmt::{FileRecord, Inode};
use crate::search::{MAX_SEARCHED_NAMES, Search};
use rustix::fs::OFlags;
use std::path::{Path, PathBuf};
use stripewise_layout::FileId;
use stripewise_store::entry::DirectoryEntry;
use stripewise_store::protocol::Refusal;
use stripewise_store::stub::{STUB_BYTES, Stub};

/// What stands where a stub should.
pub(super) enum Standing {
    /// The stub, with its text.
    Stub,
    /// The stub's inode with another text.
    Edited,
    /// Another file with the stub's text.
    Copy(Inode),
    /// Another file: of this inode.
    Other(Inode),
    Nothing,
}

impl Checks {
    pub(super) fn check_stub(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        search: &Search,
        report: &mut Report,
    ) -> Result<(), Refusal> {
        let flux = self.notes.flux_of(managed.file);
        if flux == Flux::Changing {
            // Whose names are just being changed is judged when the call has returned.
            return Ok(());
        }
        let path = PathBuf::from(&inner.record.path);
        let shown = path.display();
        let standing = self.standing(managed.file, &path, inner.record.stub)?;
        if self.notes.flux_of(managed.file) == Flux::Changing {
            // Begun meanwhile. It cannot have ended: its record follows under the file's lock.
            return Ok(());
        }
        match standing {
            Standing::Stub => {
                if flux == Flux::Undecided {
                    self.put_record(managed, inner, inner.record.clone())?;
                }
                return self.check_ownership(managed, inner, &path, report);
            }
            Standing::Edited => {
                let what = format!("the stub {shown} was overwritten; the data of the managed file is whole");
                let remedy =
                    "the stub's text is restored, what was written over it is kept next to it as .before-check";
                report.add_repair(what, remedy, || self.restore_text(managed.file, inner, &path));
                return Ok(());
            }
            Standing::Copy(_) | Standing::Other(_) | Standing::Nothing => {}
        }
        if let Some(found) = self.stands_elsewhere(managed, inner, search) {
            let record = FileRecord { path: found.to_string_lossy().into_owned(), ..inner.record.clone() };
            self.put_record(managed, inner, record)?;
            let what = format!("the stub {shown} lost that one of its names, or was renamed to {}", found.display());
            report.add(what, "noted; nothing is to be done", true);
            return Ok(());
        }
        // Named somewhere, though nobody saw where; or it moved since others were looked for, and is for the next check.
        if inner.is_nameless() == Some(false) || !search.is_for(managed.file) {
            return Ok(());
        }
        if !search.is_complete() {
            let what = format!("the stub {shown} is gone, and not all directories could be searched for it");
            let remedy = format!(
                "check again when they can be read and hold less than {MAX_SEARCHED_NAMES} names; {}",
                Self::remedy_for_lost(managed.file)
            );
            report.add(what, remedy, false);
            return Ok(());
        }
        self.check_lost_stub(managed, inner, (standing, flux), report)
    }

    /// The stub is nowhere to be found.
    fn check_lost_stub(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        (standing, flux): (Standing, Flux),
        report: &mut Report,
    ) -> Result<(), Refusal> {
        let path = PathBuf::from(&inner.record.path);
        let shown = path.display();
        if flux == Flux::Undecided {
            let mut what = format!(
                "{shown} was being removed when the program that did so was killed; its stub is gone, the data of file {} is kept",
                managed.file
            );
            if let Standing::Other(inode) = standing {
                what.push_str(&format!(", and {} stands there now", self.named(inode)?));
            }
            report.add(what, Self::remedy_for_lost(managed.file), false);
            return Ok(());
        }
        if let Standing::Copy(inode) = standing {
            let what = format!(
                "the stub {shown} was replaced by a copy of itself, as a restored backup does; it opens nothing"
            );
            report.add_repair(what, "the copy becomes the stub", || self.adopt_stub(managed, inner, inode, &path));
            return Ok(());
        }
        if self.adopt_known_copy(managed, inner, &path, report)? {
            return Ok(());
        }
        if let Standing::Other(inode) = standing {
            let other = self.named(inode)?;
            let what = format!(
                "{other} stands at {shown}, where the stub of file {} stood; the data of file {} is whole and kept",
                managed.file, managed.file
            );
            report.add(what, Self::remedy_for_lost(managed.file), false);
            return Ok(());
        }
        let what = format!(
            "the stub {shown} is gone: removed, or moved to where it was not seen; the data of the managed file is whole"
        );
        let remedy =
            format!("the stub is restored there (to free the data, use `stripewise rm --id {}`)", managed.file);
        report.add_repair(what, &remedy, || self.new_stub(managed, inner, &path));
        Ok(())
    }

    /// A file that stands in another's place, in words.
    fn named(&self, inode: Inode) -> Result<String, Refusal> {
        Ok(match self.identities.stub_of(inode)? {
            Some(other) => format!("the managed file {other}"),
            None => "another file".to_owned(),
        })
    }

    fn remedy_for_lost(file: FileId) -> String {
        format!("`stripewise rescue {file} NEW-PATH` gives it a name, `stripewise rm --id {file}` frees it")
    }

    /// Where the stub stands now, if not at its path.
    fn stands_elsewhere(&self, managed: &Managed, inner: &Inner, search: &Search) -> Option<PathBuf> {
        let is_it =
            |path: &Path| Facts::at_path(path).ok().flatten().is_some_and(|facts| inner.record.stub.is(&facts.inode));
        // Held by a user: the kernel knows.
        let watched = inner.stub.as_ref().and_then(path_of).map(PathBuf::from).filter(|path| is_it(path));
        watched.or_else(|| search.found(managed.file).filter(|path| is_it(path)).map(Path::to_owned))
    }

    pub(super) fn standing(&self, file: FileId, path: &Path, stub: Inode) -> Result<Standing, Refusal> {
        let Some(facts) = Facts::at_path(path).map_err(unreachable_entry(path))? else {
            return Ok(Standing::Nothing);
        };
        let says_so = facts.is_regular && self.names_file(path, file);
        Ok(match (stub.is(&facts.inode), says_so) {
            (true, true) => Standing::Stub,
            (true, false) => Standing::Edited,
            (false, true) => Standing::Copy(facts.inode),
            (false, false) => Standing::Other(facts.inode),
        })
    }

    /// Whether the file at `path` has the text of this file's stub.
    fn names_file(&self, path: &Path, file: FileId) -> bool {
        let Ok(opened) = DirectoryEntry::at(path).and_then(|entry| entry.open_regular(OFlags::RDONLY)) else {
            return false;
        };
        let mut bytes = [0; STUB_BYTES + 1];
        let Ok(length) = rustix::io::pread(&opened, &mut bytes[..], 0) else { return false };
        matches!(Stub::parse(&bytes[..length]), Ok(Some(stub)) if stub.file == file && stub.cluster == self.context.cluster().id)
    }

    /// The stub may have gone and left a copy that somebody tried to open (moved between file systems).
    fn adopt_known_copy(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        path: &Path,
        report: &mut Report,
    ) -> Result<bool, Refusal> {
        let copies: Vec<String> = self
            .identities
            .copies()
            .iter()
            .filter(|(_, of)| **of == managed.file)
            .map(|(copy, _)| copy.clone())
            .collect();
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
    pub(super) fn check_copied_stubs(&self, report: &mut Report) {
        let copies = self.identities.copies();
        for (copy, file) in copies {
            let Ok(Some(record)) = self.context.table().file(file) else { continue };
            let path = Path::new(&copy);
            if matches!(self.standing(file, path, record.stub), Ok(Standing::Copy(_))) {
                let original = Path::new(&record.path);
                if !matches!(self.standing(file, original, record.stub), Ok(Standing::Stub | Standing::Edited)) {
                    // Told with the stub that does not stand.
                    continue;
                }
                report.add(
                    format!("{copy} is a copy of the stub {}, not of its data; it opens nothing", record.path),
                    "it holds no data; to copy that use `stripewise cp`",
                    false,
                );
            } else {
                self.identities.forget_copy(&copy);
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
            report.add_repair(what, "they take them over", || {
                self.lifecycle.follow_ownership(managed, inner, facts.ownership)
            });
        }
        Ok(())
    }
}
