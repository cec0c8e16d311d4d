//! Minimum sizes of managed directories: which files become ordinary or managed for their size, and the thread that changes them.
//!
//! The broker does this, not the program that closes a file: only the broker knows of a managed file's last close, and no close waits for the change. It uses
//! the operations of a command, [`release`] and [`apply`], over a connection to itself, so what holds after a crash of those holds here. A file is changed
//! some time after its last close, because most files that are opened again, renamed or removed are so at once; and only under a
//! lease by which the kernel vouches that nobody has it open, the broker's clients or not.

use crate::context::Context;
use crate::log::note;
use crate::names::ManagedNames;
use crate::proof::{Facts, Proof};
use crate::rmt::{FileRecord, FileState};
use crate::threads;
use crate::{BrokerError, guard};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stripewise_layout::FileId;
use stripewise_store::client::{Client, ClientError, ClientOptions};
use stripewise_store::executable::stays_ordinary;
use stripewise_store::manage::{ManageError, Moved, Moving, Unattended, apply, release};
use stripewise_store::protocol::Refusal;

/// Time between a file's last close and its change.
const USUAL_DELAY: Duration = Duration::from_secs(2);
/// Most time; a file that is in use is tried again after twice the time, up to this.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// Tries of one file. Whoever has it open causes the next ones when it closes it.
const MAX_TRIES: u32 = 12;
/// How long a broker that stops goes on with files that were closed under it.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// Files of the table looked at in one go.
const FILES_AT_ONCE: usize = 1024;

/// A file that may have to change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Candidate {
    /// Managed, and perhaps too small for it.
    Small(FileId),
    /// Ordinary, and perhaps too large for it.
    Large { path: String, identity: (u64, u64) },
}

#[derive(Clone, Copy)]
struct Waiting {
    due: Instant,
    tries: u32,
    /// Closed while this broker served; the rest was left by an earlier one, and another may take it up.
    is_fresh: bool,
}

/// The files that may have to change, by the time when they are looked at.
pub(crate) struct MinSizes {
    names: Arc<ManagedNames>,
    delay: Duration,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Ends the change under way.
    cancelled: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: BTreeMap<Candidate, Waiting>,
    by_time: BTreeSet<(Instant, Candidate)>,
    /// When the whole table is to be looked through.
    scan: Option<Instant>,
    /// Nothing is begun later than this.
    stop_at: Option<Instant>,
    has_ended: bool,
}

enum Work {
    Scan,
    File(Candidate, Waiting),
}

impl Queue {
    fn add(&mut self, candidate: Candidate, waiting: Waiting) {
        if let Some(before) = self.waiting.insert(candidate.clone(), waiting) {
            self.by_time.remove(&(before.due, candidate.clone()));
        }
        self.by_time.insert((waiting.due, candidate));
    }

    fn take(&mut self, candidate: &Candidate) -> Option<Waiting> {
        let waiting = self.waiting.remove(candidate)?;
        self.by_time.remove(&(waiting.due, candidate.clone()));
        Some(waiting)
    }

    /// What is due at `now`, or when something will be.
    fn next(&mut self, now: Instant) -> Result<Work, Option<Instant>> {
        if let Some(stop_at) = self.stop_at {
            let mut fresh = self.waiting.iter().filter(|(_, waiting)| waiting.is_fresh && waiting.tries == 0);
            let next = fresh.next().map(|(candidate, _)| candidate.clone()).filter(|_| now < stop_at);
            let work = next.and_then(|candidate| Some((self.take(&candidate)?, candidate)));
            return work.map(|(waiting, candidate)| Work::File(candidate, waiting)).ok_or(None);
        }
        if self.scan.is_some_and(|at| at <= now) {
            self.scan = None;
            return Ok(Work::Scan);
        }
        match self.by_time.first().cloned() {
            Some((due, candidate)) if due <= now => {
                self.take(&candidate).map(|waiting| Work::File(candidate, waiting)).ok_or(Some(now))
            }
            first => Err(first.map(|(due, _)| due).into_iter().chain(self.scan).min()),
        }
    }
}

impl MinSizes {
    /// Files are changed `delay` after their last close, 2 s unless given, and a minute at most.
    pub(crate) fn new(names: &Arc<ManagedNames>, delay: Option<Duration>) -> Self {
        let delay = delay.unwrap_or(USUAL_DELAY).min(MAX_DELAY);
        let queue = Mutex::new(Queue { scan: Some(Instant::now() + delay), ..Queue::default() });
        Self { names: Arc::clone(names), delay, queue, changed: Condvar::new(), cancelled: AtomicBool::new(false) }
    }

    fn add(&self, candidate: Candidate, is_fresh: bool) {
        let waiting = Waiting { due: Instant::now() + self.delay, tries: 0, is_fresh };
        guard(&self.queue).add(candidate, waiting);
        self.changed.notify_all();
    }

    /// A live managed file has no user left.
    pub(crate) fn closed(&self, file: FileId, record: &FileRecord) {
        if self.is_too_small(record) {
            self.add(Candidate::Small(file), true);
        }
    }

    fn is_too_small(&self, record: &FileRecord) -> bool {
        let names = self.names.read();
        names.has_min_size() && names.min_size_at(&record.path).is_some_and(|min_bytes| record.size_bytes < min_bytes)
    }

    /// A client is about to close the ordinary file behind `proof`.
    pub(crate) fn closing(&self, proof: &Proof) -> Result<(), Refusal> {
        proof.permits_io()?;
        if !proof.writable {
            return Err(Refusal::NotPermitted);
        }
        let Some(path) = proof.path().filter(|path| !stays_ordinary(path.as_bytes())) else { return Ok(()) };
        let min_bytes = self.names.read().min_size_at(&path);
        if min_bytes.is_some_and(|min_bytes| proof.facts.size_bytes > min_bytes) {
            let identity = (proof.facts.inode.device, proof.facts.inode.inode);
            self.add(Candidate::Large { path, identity }, true);
        }
        Ok(())
    }

    /// A directory has another minimum size: managed files that are smaller are found.
    pub(crate) fn scan_again(&self) {
        guard(&self.queue).scan = Some(Instant::now() + self.delay);
        self.changed.notify_all();
    }

    /// What is to be done next, waited for; `None`: it is over.
    fn next(&self) -> Option<Work> {
        let mut queue = guard(&self.queue);
        loop {
            let now = Instant::now();
            let until = match queue.next(now) {
                Ok(work) => return Some(work),
                Err(None) if queue.stop_at.is_some() => return None,
                Err(until) => until,
            };
            queue = match until {
                Some(at) => {
                    let waited = self.changed.wait_timeout(queue, at.saturating_duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The file is in use. Returns false when it has been tried often enough.
    fn retry(&self, candidate: Candidate, waiting: Waiting) -> bool {
        let tries = waiting.tries + 1;
        let mut queue = guard(&self.queue);
        if tries < MAX_TRIES && !queue.waiting.contains_key(&candidate) {
            let delay = self.delay.saturating_mul(1 << tries).min(MAX_DELAY);
            queue.add(candidate, Waiting { due: Instant::now() + delay, tries, ..waiting });
        }
        tries < MAX_TRIES
    }
}

/// The thread that changes files, until dropped.
pub(crate) struct Converter {
    sizes: Arc<MinSizes>,
    thread: Option<JoinHandle<()>>,
}

impl Converter {
    /// To be started when clients can connect.
    pub(crate) fn start(context: &Arc<Context>, sizes: &Arc<MinSizes>) -> Result<Self, BrokerError> {
        let converting = Converting { context: Arc::clone(context), sizes: Arc::clone(sizes), client: None };
        let thread = threads::spawn("stripewise-sizes", move || converting.run())?;
        Ok(Self { sizes: Arc::clone(sizes), thread: Some(thread) })
    }
}

impl Drop for Converter {
    /// Goes on for a while with files that were closed under this broker. Then the change under way undoes itself.
    fn drop(&mut self) {
        let mut queue = guard(&self.sizes.queue);
        queue.stop_at = Some(Instant::now() + STOP_PATIENCE);
        self.sizes.changed.notify_all();
        let goes_on = |queue: &mut Queue| !queue.has_ended;
        let waited = self.sizes.changed.wait_timeout_while(queue, STOP_PATIENCE, goes_on);
        drop(waited);
        self.sizes.cancelled.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Ends the wait of a stop, whatever becomes of the thread.
struct Ended<'a>(&'a MinSizes);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        guard(&self.0.queue).has_ended = true;
        self.0.changed.notify_all();
    }
}

/// What the thread works with.
struct Converting {
    context: Arc<Context>,
    sizes: Arc<MinSizes>,
    client: Option<Client>,
}

impl Converting {
    fn run(mut self) {
        let sizes = Arc::clone(&self.sizes);
        let _ended = Ended(&sizes);
        while let Some(work) = sizes.next() {
            match work {
                Work::Scan => self.scan(),
                Work::File(candidate, waiting) => self.convert(candidate, waiting),
            }
        }
    }

    /// Finds managed files that are too small: an earlier broker may have left them so, or the minimum size is another.
    fn scan(&self) {
        if !self.sizes.names.read().has_min_size() {
            return;
        }
        let mut after = None;
        loop {
            let files = match self.context.table().files(after, FILES_AT_ONCE) {
                Ok(files) => files,
                Err(error) => {
                    note!(self.context.log(), warn, %error, "files below their minimum size are not looked for");
                    return;
                }
            };
            let Some((last, _)) = files.last() else { return };
            after = Some(*last);
            for (file, record) in files {
                if record.state == FileState::Live && self.sizes.is_too_small(&record) {
                    self.sizes.add(Candidate::Small(file), false);
                }
            }
        }
    }

    fn convert(&mut self, candidate: Candidate, waiting: Waiting) {
        let changed = match &candidate {
            Candidate::Small(file) => self.make_ordinary(*file),
            Candidate::Large { path, identity } => self.make_managed(path, *identity),
        };
        match changed {
            Ok(None) => {}
            Ok(Some((what, moved))) => {
                note!(self.context.log(), debug, file = %moved.file, bytes = moved.size_bytes, "{what}");
                if let Some(note) = moved.note {
                    note!(self.context.log(), warn, file = %moved.file, "{note}");
                }
            }
            Err(error) if is_passing(&error) => {
                let text = error.to_string();
                if !self.sizes.retry(candidate, waiting) {
                    note!(self.context.log(), info, error = %text, "a file keeps the kind that its size does not fit");
                }
            }
            Err(error) => {
                note!(self.context.log(), warn, %error, "a file keeps the kind that its size does not fit");
            }
        }
    }

    /// Over a connection of its own to this broker.
    fn client(&mut self) -> Result<Client, ClientError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let options = ClientOptions { patience: STOP_PATIENCE, ..ClientOptions::default() };
        let client = Client::connect(self.context.state().path(), options)?;
        Ok(self.client.insert(client).clone())
    }

    fn moving<'a>(&'a self, steps: &'a dyn Fn(&'static str), unattended: Unattended) -> Moving<'a> {
        let cancelled = Some(&self.sizes.cancelled);
        Moving { cancelled, steps: Some(steps), unattended: Some(unattended), ..Moving::default() }
    }

    fn make_ordinary(&mut self, file: FileId) -> Changed {
        let record = self.context.table().file(file).ok().flatten().filter(|record| record.state == FileState::Live);
        let Some(record) = record else { return Ok(None) };
        let Some(min_bytes) = self.sizes.names.read().min_size_at(&record.path) else { return Ok(None) };
        let path = Path::new(&record.path);
        // A stub with another name, or with several, stays.
        let Ok(Some(facts)) = Facts::at_path(path) else { return Ok(None) };
        if facts.inode.inode != record.stub.inode || facts.links != 1 || min_bytes == 0 {
            return Ok(None);
        }
        let client = self.client().map_err(|source| ManageError::Client { path: path.to_owned(), source })?;
        let steps = |name| self.context.step(name);
        let identity = (facts.inode.device, facts.inode.inode);
        let unattended = Unattended { identity, min_bytes: 0, max_bytes: min_bytes - 1 };
        let moved = suitable(release(&client, path, &self.moving(&steps, unattended)))?;
        Ok(moved
            .map(|moved| (format!("{} is an ordinary file: it is smaller than {min_bytes} bytes", record.path), moved)))
    }

    fn make_managed(&mut self, path: &str, identity: (u64, u64)) -> Changed {
        let (min_bytes, placement) = {
            let names = self.sizes.names.read();
            match (names.min_size_at(path), names.placement_for(path)) {
                (Some(min_bytes), Some(placement)) => (min_bytes, placement.clone()),
                _ => return Ok(None),
            }
        };
        // A file with several names stays ordinary: the others would keep the old data.
        match Facts::at_path(Path::new(path)) {
            Ok(Some(facts)) if facts.links == 1 && (facts.inode.device, facts.inode.inode) == identity => {}
            _ => return Ok(None),
        }
        let path = Path::new(path);
        let client = self.client().map_err(|source| ManageError::Client { path: path.to_owned(), source })?;
        let steps = |name| self.context.step(name);
        let unattended = Unattended { identity, min_bytes: min_bytes.saturating_add(1), max_bytes: u64::MAX };
        let moved = suitable(apply(&client, path, &placement, &self.moving(&steps, unattended)))?;
        Ok(moved.map(|moved| (format!("{} is managed: it is larger than {min_bytes} bytes", path.display()), moved)))
    }
}

/// What was done, if anything.
type Changed = Result<Option<(String, Moved)>, ManageError>;

/// A file that is another, gone, or of another size by now is none of ours.
fn suitable(moved: Result<Moved, ManageError>) -> Result<Option<Moved>, ManageError> {
    match moved {
        Ok(moved) => Ok(Some(moved)),
        Err(ManageError::Unsuitable { .. } | ManageError::AlreadyManaged { .. } | ManageError::NotManaged { .. }) => {
            Ok(None)
        }
        Err(ManageError::Os { source: Errno::NOENT, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the file is only in use.
fn is_passing(error: &ManageError) -> bool {
    let is_busy = |source: &ClientError| {
        matches!(source, ClientError::Refused(Refusal::Busy { .. } | Refusal::Held { .. } | Refusal::NameInUse { .. }))
    };
    match error {
        ManageError::OpenElsewhere { .. } | ManageError::Disturbed { .. } | ManageError::Cancelled { .. } => true,
        ManageError::Client { source, .. } => is_busy(source),
        _ => false,
    }
}
