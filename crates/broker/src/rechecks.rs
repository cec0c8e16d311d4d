//! Files to look at again, since nothing may announce that their last user died.

use crate::guard;
use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use stripewise_layout::FileId;

#[derive(Default)]
pub(crate) struct Rechecks {
    files: Mutex<HashSet<FileId>>,
    changed: Condvar,
}

impl Rechecks {
    pub(crate) fn recheck(&self, file: FileId) {
        let mut files = guard(&self.files);
        // With others to look at, the thread waits for their time already.
        let is_first = files.is_empty();
        files.insert(file);
        drop(files);
        if is_first {
            self.changed.notify_all();
        }
    }

    /// The file need not be looked at again.
    pub(crate) fn forget(&self, file: FileId) {
        guard(&self.files).remove(&file);
    }

    /// The files that are to be looked at again.
    pub(crate) fn all(&self) -> Vec<FileId> {
        guard(&self.files).iter().copied().collect()
    }

    /// The files to look at, `after` so long from when there are any; `None`: `is_over` says so.
    pub(crate) fn next(&self, after: Duration, is_over: impl Fn() -> bool) -> Option<Vec<FileId>> {
        let mut files = guard(&self.files);
        while files.is_empty() && !is_over() {
            files = self.changed.wait(files).unwrap_or_else(PoisonError::into_inner);
        }
        let (files, _) =
            self.changed.wait_timeout_while(files, after, |_| !is_over()).unwrap_or_else(PoisonError::into_inner);
        (!is_over()).then(|| files.iter().copied().collect())
    }

    /// For who waits: it may be over. Whoever waits is either before its look at that or already waiting.
    pub(crate) fn wake(&self) {
        drop(guard(&self.files));
        self.changed.notify_all();
    }
}
