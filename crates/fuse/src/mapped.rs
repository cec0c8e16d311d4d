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

use crate::nodes::lock;
use fuser::{INodeNo, Notifier};
use rustix::time::ClockId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use stripewise_store::file::StripedFile;

const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// More than the kernel's tick.
const TICK_NS: u64 = 20_000_000;
/// For how long pages of a file are believed that other hosts may write.
const LIFE_AMONG_HOSTS: Duration = Duration::from_secs(1);

type State = (u64, Option<u64>);

#[derive(Debug)]
struct Watched {
    file: Weak<StripedFile>,
    /// Size and time before pages were read.
    state: State,
    /// When the pages are to be invalidated whatever the state, in ns since 1970.
    settles_ns: Option<u64>,
    /// The same, of a file that other hosts may write.
    expires: Option<Instant>,
}

/// Files with mapped pages.
#[derive(Default, Debug)]
pub(crate) struct Mapped {
    files: Mutex<HashMap<u64, Watched>>,
    changed: Condvar,
    is_over: AtomicBool,
}

impl Mapped {
    /// Pages of the file are about to be read or were written back.
    pub(crate) fn note(&self, number: u64, file: &Arc<StripedFile>) {
        let state = state_of(file);
        let mut files = lock(&self.files);
        // What is known since an earlier read says more.
        if files.contains_key(&number) {
            return;
        }
        let settles_ns = state.1.map(|modified_ns| modified_ns + TICK_NS).filter(|settles_ns| *settles_ns > now_ns());
        let expires = file.is_shared().then(|| Instant::now() + LIFE_AMONG_HOSTS);
        files.insert(number, Watched { file: Arc::downgrade(file), state, settles_ns, expires });
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
        lock(&self.files).retain(|number, watched| {
            // Of a file that was closed by whom it was watched, and that others may have mapped.
            let has_changed = watched.file.upgrade().is_none_or(|file| state_of(&file) != watched.state);
            let is_over = watched.settles_ns.is_some_and(|settles_ns| settles_ns <= now_ns)
                || watched.expires.is_some_and(|expires| expires <= now);
            let is_stale = has_changed || is_over;
            if is_stale {
                stale.push(*number);
            }
            !is_stale
        });
        stale
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let _files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
    }
}

fn state_of(file: &StripedFile) -> State {
    (file.size_bytes(), file.modified_ns())
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
