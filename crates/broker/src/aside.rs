//! Taking away the temporary file of an import or export, whose command may still live and let it take its place at any moment.

use crate::proof::Facts;
use crate::rmt::Inode;
use rustix::io::Errno;
use std::path::Path;
use stripewise_store::entry::DirectoryEntry;
use stripewise_store::protocol::Refusal;

/// Unlinks `path` if it is the file `expected`; says whether it was and is gone.
pub(crate) fn take_away(path: &str, expected: Inode) -> Result<bool, Refusal> {
    take_away_after(path, expected, || {})
}

/// It is given another name before it is looked at for the last time: what the command put at `path` since is not unlinked in its stead. `before_renaming`
/// is the moment at which the command may come between.
fn take_away_after(path: &str, expected: Inode, before_renaming: impl FnOnce()) -> Result<bool, Refusal> {
    let fault = |errno| Refusal::Invalid { what: format!("the temporary file {path}: {errno}") };
    let entry = match DirectoryEntry::at(Path::new(path)) {
        Ok(entry) => entry,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        Err(errno) => return Err(fault(errno)),
    };
    let mut name = entry.name().to_owned();
    name.push(".aside");
    let aside = entry.sibling(&name);
    let is_at = |entry: &DirectoryEntry| {
        let found = Facts::at_entry(entry).map_err(fault)?;
        Ok::<_, Refusal>(found.is_some_and(|facts| expected.is(&facts.inode)))
    };
    if is_at(&entry)? {
        before_renaming();
        match entry.rename(&aside) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(fault(errno)),
        }
        if !is_at(&aside)? {
            return match aside.rename(&entry) {
                Ok(()) | Err(Errno::NOENT) => Ok(false),
                Err(errno) => Err(fault(errno)),
            };
        }
    } else if !is_at(&aside)? {
        return Ok(false);
    }
    // Perhaps as a broker left it that was killed here.
    match aside.unlink() {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(fault(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, RenameFlags};

    #[test]
    fn a_temporary_file_is_taken_away_and_what_took_its_place_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (target, temporary) = (path("f"), path("temporary"));
        let inode_of = |path: &str| Facts::at_path(Path::new(path)).unwrap().unwrap().inode;
        let read = |path: &str| std::fs::read(path).unwrap();
        std::fs::write(&target, "old").unwrap();
        std::fs::write(&temporary, "new").unwrap();
        let new = inode_of(&temporary);
        // The command is faster by a hair.
        let exchange = || rustix::fs::renameat_with(CWD, &temporary, CWD, &target, RenameFlags::EXCHANGE).unwrap();
        assert!(!take_away_after(&temporary, new, exchange).unwrap());
        assert_eq!((read(&target), read(&temporary)), (b"new".to_vec(), b"old".to_vec()));
        let old = inode_of(&temporary);
        assert!(!take_away(&temporary, new).unwrap());
        // A broker was killed between renaming and unlinking.
        std::fs::rename(&temporary, format!("{temporary}.aside")).unwrap();
        assert!(take_away(&temporary, old).unwrap() && !take_away(&temporary, old).unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        std::fs::write(&temporary, "again").unwrap();
        assert!(take_away(&temporary, inode_of(&temporary)).unwrap());
        assert_eq!((read(&target), std::fs::read_dir(directory.path()).unwrap().count()), (b"new".to_vec(), 1));
    }
}
