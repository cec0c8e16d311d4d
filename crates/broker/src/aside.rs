//! Taking away the temporary file of an import or export, whose command may still live and let it take its place at any moment; and putting back what
//! it displaced.

use crate::proof::Facts;
use crate::rmt::Inode;
use rustix::io::Errno;
use std::path::Path;
use stripewise_store::entry::DirectoryEntry;
use stripewise_store::manage::second_name;
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
    let aside = aside_of(&entry);
    let is_at = |entry: &DirectoryEntry| is_at(entry, expected).map_err(fault);
    if is_at(&entry)? {
        before_renaming();
        match entry.rename_aside(&aside) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(fault(errno)),
        }
        if !is_at(&aside)? {
            return match aside.rename_aside(&entry) {
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

fn aside_of(entry: &DirectoryEntry) -> DirectoryEntry {
    let mut name = entry.name().to_owned();
    name.push(".aside");
    entry.sibling(&name)
}

fn is_at(entry: &DirectoryEntry, expected: Inode) -> rustix::io::Result<bool> {
    Ok(Facts::at_entry(entry)?.is_some_and(|facts| expected.is(&facts.inode)))
}

/// Takes away what a command displaced, whichever of its names it has; says whether it was there and is gone.
pub(crate) fn take_away_displaced(temporary: &str, displaced: Inode) -> Result<bool, Refusal> {
    Ok(take_away(&second_name(temporary), displaced)? | take_away(temporary, displaced)?)
}

/// What a command displaced may have got a second name and kept its first: the second goes.
pub(crate) fn drop_second_name(path: &str, temporary: &str) -> Result<(), Refusal> {
    let found = Facts::at_path(Path::new(path));
    let found = found.map_err(|errno| Refusal::Invalid { what: format!("{path}: cannot look at it: {errno}") })?;
    found.map_or(Ok(()), |facts| take_away(&second_name(temporary), facts.inode).map(drop))
}

/// What stands at the temporary name, if it is none of these: a file that turned up at the path before the command changed names there.
pub(crate) fn turned_up(temporary: &str, known: &[Inode]) -> Result<Option<Inode>, Refusal> {
    let found = Facts::at_path(Path::new(temporary));
    let found = found.map_err(|errno| Refusal::Invalid { what: format!("{temporary}: cannot look at it: {errno}") })?;
    Ok(found.map(|facts| facts.inode).filter(|found| !known.iter().any(|known| known.is(found))))
}

/// What became of a file that is to stand at its path again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PutBack {
    /// It stands there.
    Stands,
    /// It has none of the names under which it could be.
    Nowhere,
    /// Another file stands there; it is kept at this path.
    Kept(String),
}

/// Puts back a file that the one of inode `new` displaced at `path`. The command that did so may live and do the rest of what it was about: it no longer finds
/// the file by the name that it gave. A file that turned up at `path` since stays.
pub(crate) fn put_back(path: &str, temporary: &str, displaced: Inode, new: Inode) -> Result<PutBack, Refusal> {
    let fault = |errno| Refusal::Invalid { what: format!("putting back {path}: {errno}") };
    let entry = match DirectoryEntry::at(Path::new(path)) {
        Ok(entry) => entry,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(PutBack::Nowhere),
        Err(errno) => return Err(fault(errno)),
    };
    let Some(name) = Path::new(temporary).file_name() else { return Ok(PutBack::Nowhere) };
    let first = entry.sibling(name);
    let second = entry.sibling(second_name(&name.to_string_lossy()).as_ref());
    let aside = aside_of(&first);
    for from in [&first, &second] {
        if is_at(from, displaced).map_err(fault)? {
            match from.rename_aside(&aside) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(fault(errno)),
            }
            break;
        }
    }
    if !is_at(&aside, displaced).map_err(fault)? {
        return Ok(if is_at(&entry, displaced).map_err(fault)? { PutBack::Stands } else { PutBack::Nowhere });
    }
    let put = match Facts::at_entry(&entry).map_err(fault)? {
        // It had a second name, and did not lose its first.
        Some(facts) if displaced.is(&facts.inode) => aside.unlink(),
        Some(facts) if new.is(&facts.inode) => take_place_of(&aside, &entry, new),
        None => aside.rename(&entry),
        Some(_) => return Ok(PutBack::Kept(aside.path().to_string_lossy().into_owned())),
    };
    match put {
        Ok(()) | Err(Errno::NOENT) => {}
        // Another file came between.
        Err(Errno::EXIST) => return Ok(PutBack::Kept(aside.path().to_string_lossy().into_owned())),
        Err(errno) => return Err(fault(errno)),
    }
    entry.sync_directory().map_err(fault)?;
    Ok(PutBack::Stands)
}

/// [`Errno::EXIST`]: another file than that of inode `new` stood at `entry`, and does again.
fn take_place_of(aside: &DirectoryEntry, entry: &DirectoryEntry, new: Inode) -> rustix::io::Result<()> {
    match aside.exchange(entry) {
        Ok(()) if is_at(aside, new)? => aside.unlink(),
        Ok(()) => aside.exchange(entry).and(Err(Errno::EXIST)),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => aside.replace(entry),
        Err(errno) => Err(errno),
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
    #[test]
    fn a_displaced_file_is_put_back_wherever_it_is_and_never_over_another_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (target, temporary) = (path("f"), path("temporary"));
        let second = second_name(&temporary);
        let aside = format!("{temporary}.aside");
        let inode_of = |path: &str| Facts::at_path(Path::new(path)).unwrap().unwrap().inode;
        let names = || {
            let entries = std::fs::read_dir(directory.path()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        for (at, standing) in
            [(&temporary, "stub"), (&second, "stub"), (&aside, "stub"), (&second, "nothing"), (&second, "itself")]
        {
            std::fs::write(at, "original").unwrap();
            let original = inode_of(at);
            match standing {
                "stub" => std::fs::write(&target, "stub").unwrap(),
                "itself" => std::fs::hard_link(at, &target).unwrap(),
                _ => {}
            }
            let stub = if standing == "stub" { inode_of(&target) } else { Inode { inode: 0, ..original } };
            assert_eq!(put_back(&target, &temporary, original, stub).unwrap(), PutBack::Stands, "{at} {standing}");
            assert_eq!((names(), std::fs::read(&target).unwrap()), (vec!["f".to_owned()], b"original".to_vec()));
            // Once more changes nothing.
            assert_eq!(put_back(&target, &temporary, original, stub).unwrap(), PutBack::Stands);
            std::fs::remove_file(&target).unwrap();
        }
        std::fs::write(&temporary, "original").unwrap();
        std::fs::write(&target, "saved by an editor").unwrap();
        let original = inode_of(&temporary);
        let stub = Inode { inode: 0, ..original };
        assert_eq!(put_back(&target, &temporary, original, stub).unwrap(), PutBack::Kept(aside.clone()));
        assert_eq!(std::fs::read(&target).unwrap(), b"saved by an editor");
        assert_eq!(std::fs::read(&aside).unwrap(), b"original");
        std::fs::remove_file(&aside).unwrap();
        assert_eq!(put_back(&target, &temporary, original, stub).unwrap(), PutBack::Nowhere);
    }
}
