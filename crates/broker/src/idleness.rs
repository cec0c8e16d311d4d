//! Files that lack replicas: how long nobody has written them.

use crate::guard;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use stripewise_layout::FileId;

const USUAL_IDLENESS: Duration = Duration::from_secs(2);
/// How often files are looked at whether they are written.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Files that lack replicas and are looked at for whether they are written.
pub(crate) struct Idle {
    after: Duration,
    watched: Mutex<BTreeMap<FileId, Watched>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Watched {
    /// What the count of writes was, once it was looked at.
    mark: Option<u64>,
    since: Instant,
}

impl Idle {
    pub(crate) fn new(after: Option<Duration>) -> Self {
        Self { after: after.unwrap_or(USUAL_IDLENESS), watched: Mutex::default() }
    }

    /// How long movers without work may sleep; `None`: as long as they like.
    pub(crate) fn next_check(&self) -> Option<Duration> {
        (!guard(&self.watched).is_empty()).then(|| CHECK_INTERVAL.min(self.after).max(Duration::from_millis(1)))
    }

    /// The file is looked at from now on. Returns whether it was not before.
    pub(crate) fn watch(&self, file: FileId) -> bool {
        let watched = Watched { mark: None, since: Instant::now() };
        guard(&self.watched).insert(file, watched).is_none()
    }

    pub(crate) fn forget(&self, file: FileId) {
        guard(&self.watched).remove(&file);
    }

    pub(crate) fn files(&self) -> Vec<(FileId, Watched)> {
        guard(&self.watched).iter().map(|(file, watched)| (*file, *watched)).collect()
    }

    /// The file was looked at, unless it is watched again since. Returns whether nobody has written it for long enough; then it is watched no longer.
    pub(crate) fn check(&self, file: FileId, before: Watched, mark: u64, is_written: bool) -> bool {
        let mut watched = guard(&self.watched);
        let Some(now) = watched.get_mut(&file).filter(|now| now.since == before.since) else { return false };
        if is_written || now.mark != Some(mark) {
            *now = Watched { mark: Some(mark), since: Instant::now() };
            return false;
        }
        let is_idle = now.since.elapsed() >= self.after;
        if is_idle {
            watched.remove(&file);
        }
        is_idle
    }
}
