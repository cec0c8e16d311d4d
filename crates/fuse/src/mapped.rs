//! Pages that programs have mapped, and writes that come by other ways.
//!
//! Reads and writes of programs come to this process and are never stale. Mapped pages stand in the kernel's page cache: a read without an owner is one that
//! fills it. Files of which pages were read so are watched: when size or time of such a file change, its pages are invalidated, and the next access of a
//! program has them read again. Changed pages are written back before.
//!
//! The time of a file has the resolution of the kernel's tick. A file that was changed within the last ticks before its pages were read may change again without
//! another time, so its pages are invalidated once more when that time is over.
//!
//! Other hosts write below the known size without a message, so pages of a file that they may use are believed for a second only.

use crate::nodes::{Node, lock};
use crate::opens::Open;
use fuser::{INodeNo, Notifier};
use rustix::fs::Stat;
use rustix::time::ClockId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use stripewise_store::file::StripedFile;

const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// More than the kernel's tick.
const TICK_NS: u64 = 20_000_000;
/// Before any time, in ns since 1970.
const EXPIRED_NS: u64 = 0;
/// For how long pages of a file are believed that other hosts may write.
const LIFE_AMONG_HOSTS: Duration = Duration::from_secs(1);

/// What changes with a file's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    size_bytes: u64,
    /// Of a managed file, the time of writes that its stub has not got yet, in ns since 1970.
    modified_ns: Option<u64>,
    /// Of the last change of the ordinary file or of the stub, which gets the time of writes at a close. Programs cannot set it.
    changed_ns: u64,
}

impl State {
    fn of(size_bytes: u64, modified_ns: Option<u64>, found: &Stat) -> Self {
        let changed_ns = found.st_ctime as u64 * 1_000_000_000 + found.st_ctime_nsec;
        Self { size_bytes, modified_ns, changed_ns }
    }

    /// When there was a change last.
    fn last_ns(&self) -> u64 {
        self.changed_ns.max(self.modified_ns.unwrap_or(0))
    }
}

/// What is asked whether a file has changed.
enum Source {
    Striped(Weak<StripedFile>, Weak<Node>),
    Ordinary(Weak<Open>),
}

impl Source {
    /// `None` of a directory.
    fn of(open: &Arc<Open>) -> Option<Self> {
        match &**open {
            Open::Managed(managed) => Some(Self::Striped(Arc::downgrade(&managed.file), Arc::downgrade(&managed.node))),
            Open::Ordinary(_) => Some(Self::Ordinary(Arc::downgrade(open))),
            Open::Directory(_) => None,
        }
    }

    /// `None` of a file that was closed by whom it is watched, and that others may have mapped.
    fn state(&self) -> Option<State> {
        match self {
            Self::Striped(file, node) => {
                let (file, node) = (file.upgrade()?, node.upgrade()?);
                // The stub last: it gets the time before the file loses it.
                let (size_bytes, modified_ns) = (file.size_bytes(), file.modified_ns());
                Some(State::of(size_bytes, modified_ns, &node.stat().ok()?))
            }
            Self::Ordinary(open) => {
                let open = open.upgrade()?;
                let Open::Ordinary(open) = &*open else { return None };
                let found = rustix::fs::fstat(&open.file).ok()?;
                Some(State::of(found.st_size as u64, None, &found))
            }
        }
    }
}

struct Watched {
    source: Source,
    /// Before pages were read.
    state: Option<State>,
    /// When the pages are to be invalidated whatever the state, in ns since 1970.
    settles_ns: Option<u64>,
    /// The same, of a file that other hosts may write.
    expires: Option<Instant>,
}

impl Watched {
    /// From now on; `None` of a directory.
    fn of(open: &Arc<Open>) -> Option<Self> {
        let source = Source::of(open)?;
        let state = source.state();
        let settles_ns = state.map(|state| state.last_ns() + TICK_NS).filter(|settles_ns| *settles_ns > now_ns());
        let is_shared = matches!(&**open, Open::Managed(managed) if managed.file.is_shared());
        let expires = is_shared.then(|| Instant::now() + LIFE_AMONG_HOSTS);
        Some(Self { source, state, settles_ns, expires })
    }
}

/// Files with mapped pages.
#[derive(Default)]
pub(crate) struct Mapped {
    files: Mutex<HashMap<u64, Watched>>,
    changed: Condvar,
    is_over: AtomicBool,
}

impl Mapped {
    /// Pages of the file are about to be read or were written back.
    pub(crate) fn note(&self, open: &Arc<Open>) {
        let number = open.node().number();
        // What is known since an earlier read says more.
        if lock(&self.files).contains_key(&number) {
            return;
        }
        let Some(watched) = Watched::of(open) else { return };
        lock(&self.files).entry(number).or_insert(watched);
        self.changed.notify_one();
    }

    /// Pages of the file show what it does not have: they are invalidated at the next look.
    pub(crate) fn expire(&self, open: &Arc<Open>) {
        let Some(mut watched) = Watched::of(open) else { return };
        watched.settles_ns = Some(EXPIRED_NS);
        lock(&self.files).insert(open.node().number(), watched);
        self.changed.notify_one();
    }

    /// Watches until [`Self::end`].
    pub(crate) fn watch(&self, notifier: &Notifier) {
        while !self.is_over.load(Ordering::Acquire) {
            for number in self.take_changed() {
                // An inode that the kernel has forgotten has no pages.
                let _ = notifier.inval_inode(INodeNo(number), 0, 0);
            }
            let files = lock(&self.files);
            if files.is_empty() {
                drop(self.changed.wait_while(files, |files| files.is_empty() && !self.is_over.load(Ordering::Acquire)));
            } else {
                drop(files);
                std::thread::sleep(CHECK_INTERVAL);
            }
        }
    }

    /// Files whose pages are stale; they are watched again when pages are read.
    fn take_changed(&self) -> Vec<u64> {
        let (now_ns, now) = (now_ns(), Instant::now());
        let mut stale = Vec::new();
        // Without the lock: an ordinary file's file system may not answer.
        let mut watched = std::mem::take(&mut *lock(&self.files));
        watched.retain(|number, watched| {
            let state = watched.source.state();
            let has_changed = state.is_none() || state != watched.state;
            let is_over = watched.settles_ns.is_some_and(|settles_ns| settles_ns <= now_ns)
                || watched.expires.is_some_and(|expires| expires <= now);
            let is_stale = has_changed || is_over;
            if is_stale {
                stale.push(*number);
            }
            !is_stale
        });
        // What was known before says more than what was noted meanwhile, unless that has expired.
        let mut files = lock(&self.files);
        watched.retain(|number, _| files.get(number).is_none_or(|noted| noted.settles_ns != Some(EXPIRED_NS)));
        files.extend(watched);
        stale
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let _files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
    }
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
