//! Where stubs stand that are not where their records say: found by their inodes.

mod renamed;

use crate::files::Files;
use crate::names::ManagedNames;
use crate::proof::{Facts, path_of};
use crate::rmt::{FileRecord, Inode};
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use stripewise_layout::FileId;
use stripewise_store::protocol::Refusal;

/// Names looked at, below managed directories and beside directories that were renamed, before a search gives up.
pub(crate) const MAX_SEARCHED_NAMES: usize = 1_000_000;

/// The stubs that a search looks for, and what it has found.
#[derive(Default)]
pub(crate) struct Search {
    wanted: HashMap<FileId, Inode>,
    by_number: HashMap<u64, Vec<FileId>>,
    found: HashMap<FileId, PathBuf>,
    examined: usize,
    /// Names were left out, for their number or because a directory could not be read.
    is_incomplete: bool,
    seen: HashSet<(u64, u64)>,
}

impl Search {
    pub(crate) fn found(&self, file: FileId) -> Option<&Path> {
        self.found.get(&file).map(PathBuf::as_path)
    }

    /// Whether the file was looked for.
    pub(crate) fn is_for(&self, file: FileId) -> bool {
        self.wanted.contains_key(&file)
    }

    /// Whether it was looked for in every directory.
    pub(crate) fn is_complete(&self) -> bool {
        !self.is_incomplete
    }

    /// Whether another name may be looked at.
    pub(crate) fn has_space(&mut self) -> bool {
        let has_space = self.examined < MAX_SEARCHED_NAMES;
        self.is_incomplete |= !has_space;
        has_space
    }

    fn is_done(&self) -> bool {
        self.found.len() == self.wanted.len()
    }

    /// Looks at the names in one directory; returns the directories in it.
    pub(crate) fn search_in(&mut self, directory: &OwnedFd, path: &Path) -> Vec<(u64, Vec<u8>)> {
        let mut below = Vec::new();
        let Ok(entries) = Dir::read_from(directory) else {
            self.is_incomplete = true;
            return below;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                self.is_incomplete = true;
                break;
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            self.examined += 1;
            let kind = entry.file_type();
            if matches!(kind, FileType::Directory | FileType::Unknown) {
                below.push((entry.ino(), name.to_vec()));
            }
            if !matches!(kind, FileType::RegularFile | FileType::Unknown) {
                continue;
            }
            let Some(files) = self.by_number.get(&entry.ino()) else { continue };
            let Ok(Some(facts)) = Facts::at_name(directory, OsStr::from_bytes(name)) else { continue };
            for file in files {
                // A stub that a crash kept from appearing does not stand anywhere.
                let is_unborn = name == unborn_name(*file).as_bytes();
                if !is_unborn && facts.is_regular && self.wanted[file].is(&facts.inode) {
                    self.found.entry(*file).or_insert_with(|| path.join(OsStr::from_bytes(name)));
                }
            }
        }
        below
    }

    /// All names below a directory, within its file system and without following links.
    fn search_below(&mut self, root: &Path) {
        let Some(directory) = open(rustix::fs::CWD, root.as_os_str(), OFlags::empty()) else { return };
        let Ok(facts) = Facts::of(&directory) else { return };
        let device = facts.inode.device;
        self.seen.insert((device, facts.inode.inode));
        let directory = Rc::new(directory);
        // By the directory that they are in: held open, so that a directory above that is renamed is no trouble.
        let mut left: Vec<(Rc<OwnedFd>, PathBuf, Vec<u8>)> = Vec::new();
        self.queue_below(&directory, root, &mut left);
        while let Some((parent, path, name)) = left.pop() {
            if self.is_done() {
                return;
            }
            if !self.has_space() {
                return;
            }
            let name = OsStr::from_bytes(&name);
            let directory = match rustix::fs::openat(&*parent, name, FLAGS | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(directory) => Rc::new(directory),
                Err(Errno::NOTDIR | Errno::LOOP) => continue,
                // Renamed or forbidden: what is in it has not been seen.
                Err(_) => {
                    self.is_incomplete = true;
                    continue;
                }
            };
            let Ok(facts) = Facts::of(&*directory) else { continue };
            if facts.inode.device == device && self.seen.insert((device, facts.inode.inode)) {
                self.queue_below(&directory, &path.join(name), &mut left);
            }
        }
    }

    fn queue_below(&mut self, directory: &Rc<OwnedFd>, path: &Path, left: &mut Vec<(Rc<OwnedFd>, PathBuf, Vec<u8>)>) {
        let below = self.search_in(directory, path);
        left.extend(below.into_iter().map(|(_, name)| (Rc::clone(directory), path.to_owned(), name)));
    }
}

pub(crate) const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

fn open(base: impl rustix::fd::AsFd, name: &OsStr, more: OFlags) -> Option<OwnedFd> {
    rustix::fs::openat(base, name, FLAGS | more, Mode::empty()).ok()
}

/// Looks for stubs.
pub(crate) struct StubSearch {
    files: Arc<Files>,
    names: Arc<ManagedNames>,
}

impl StubSearch {
    pub(crate) fn new(files: &Arc<Files>, names: &Arc<ManagedNames>) -> Self {
        Self { files: Arc::clone(files), names: Arc::clone(names) }
    }

    /// Looks for the stubs of all these files that do not stand at their paths.
    pub(crate) fn search(&self, records: &BTreeMap<FileId, FileRecord>) -> Search {
        let mut search = Search::default();
        for (file, record) in records {
            if !matches!(self.stands_at_its_path(record), Ok(true)) {
                search.wanted.insert(*file, record.stub);
                search.by_number.entry(record.stub.inode).or_default().push(*file);
            }
        }
        self.search_for(&mut search, records);
        search
    }

    /// Looks for the stub of one file.
    pub(crate) fn search_one(&self, file: FileId, record: &FileRecord) -> Search {
        self.search(&BTreeMap::from([(file, record.clone())]))
    }

    fn search_for(&self, search: &mut Search, records: &BTreeMap<FileId, FileRecord>) {
        let wanted: Vec<FileId> = search.wanted.keys().copied().collect();
        let mut parents = BTreeSet::new();
        for file in &wanted {
            // Its users have it open, so the kernel knows its name.
            let watched = self.files.if_loaded(*file).and_then(|managed| {
                // Not waited for: who checks this file holds it.
                let inner = managed.inner.try_lock().ok()?;
                inner.stub.as_ref().and_then(path_of)
            });
            if let Some(path) = watched
                && let Ok(Some(facts)) = Facts::at_path(Path::new(&path))
                && search.wanted[file].is(&facts.inode)
            {
                search.found.insert(*file, path.into());
            }
            parents.extend(Path::new(&records[file].path).parent().map(Path::to_owned));
        }
        for parent in &parents {
            if let Some(directory) = open(rustix::fs::CWD, parent.as_os_str(), OFlags::empty()) {
                search.search_in(&directory, parent);
            }
        }
        let names = self.names.read();
        let managed = names.managed();
        drop(names);
        let mut roots: BTreeSet<PathBuf> = managed.iter().map(PathBuf::from).collect();
        let mut followed = HashSet::new();
        for file in &wanted {
            let record = &records[file];
            let parent = Path::new(&record.path).parent();
            if !search.found.contains_key(file)
                && let Some(parent) = parent
                && followed.insert((parent, record.parent))
            {
                roots.extend(renamed::search(search, parent, record, &managed));
            }
        }
        if !search.is_done() {
            roots.iter().for_each(|root| search.search_below(root));
        }
    }

    /// Whether the stub stands at the path that the record hints at. Where that cannot be seen, nothing is known, and nothing may be freed.
    pub(crate) fn stands_at_its_path(&self, record: &FileRecord) -> Result<bool, Refusal> {
        Ok(self.at_its_path(record)?.is_some_and(|facts| record.stub.is(&facts.inode)))
    }

    /// What stands at the file's path.
    pub(crate) fn at_its_path(&self, record: &FileRecord) -> Result<Option<Facts>, Refusal> {
        match Facts::at_path(Path::new(&record.path)) {
            Ok(facts) => Ok(facts),
            // A link in the place of one of its directories: the stub is not where it was.
            Err(Errno::LOOP) => Ok(None),
            Err(errno) => Err(Refusal::Invalid { what: format!("{}: cannot look at it: {errno}", record.path) }),
        }
    }
}

/// The temporary name of a restored stub.
pub(crate) fn unborn_name(file: FileId) -> String {
    format!(".stripewise-stub-{file}")
}
