//! Watching what programs do, in a thread of its own: counts by file, for whoever plans by them.
//!
//! The rings that requests are noted in are short, so they are read often; and whatever the daemon is busy with, planning above all, must not
//! keep them from being read.

use super::error::{DaemonError, Result};
use crate::progress::Voice;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stripewise_layout::{ByteCount, FileId};
use stripewise_store::client::Client;
use stripewise_store::observer::{Noted, Observer, Watched};
use stripewise_trace::{FileAccess, LiveFile, LiveOptions, LiveRequest};

/// How often the rings are read: one of them holds what a thread does in this time at 3,000 requests per second.
const READ: Duration = Duration::from_millis(20);
/// How often the broker is asked for files that were opened meanwhile.
const MEET: Duration = Duration::from_millis(100);

/// What was seen of one file in a window.
pub(super) struct Seen {
    pub(super) file: FileId,
    /// Of one window.
    pub(super) access: FileAccess,
    pub(super) requests: u64,
    /// How many of them were seen themselves; the others came too fast, and are counted as if they were like these.
    pub(super) known: u64,
}

/// Watches until dropped.
pub(super) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    stop: Condvar,
}

struct State {
    observer: Option<Observer>,
    files: BTreeMap<FileId, LiveFile>,
    stopping: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    pub(super) fn start(client: Client, voice: Voice) -> Result<Self> {
        let observer = Observer::start(client).map_err(|source| DaemonError::Watch { source })?;
        let state = State { observer: Some(observer), files: BTreeMap::new(), stopping: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), stop: Condvar::new() });
        let reading = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("stripewise-watch".into()).spawn(move || read(&reading, voice));
        Ok(Self { shared, thread: Some(thread.map_err(|source| DaemonError::Thread { source })?) })
    }

    /// Ends the window: what was seen of every file that is still there, in the order of their numbers. `span_s` is when the window began and ended.
    pub(super) fn finish(&self, span_s: (f64, f64)) -> Vec<Seen> {
        let mut state = self.shared.lock();
        state.read();
        let State { observer, files, .. } = &mut *state;
        let watched: BTreeMap<FileId, Watched> =
            observer.iter().flat_map(Observer::files).map(|watched| (watched.file, watched)).collect();
        files.retain(|file, _| watched.contains_key(file));
        let processes: BTreeSet<u32> = files.values().flat_map(LiveFile::processes).collect();
        let seen = files.iter_mut().map(|(file, live)| {
            let ((requests, known), watched) = (live.requests(), &watched[file]);
            let access = live.finish(watched.path.clone(), watched.size_bytes, span_s, processes.len() as u32);
            Seen { file: *file, access, requests, known }
        });
        seen.collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.stop.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // The broker ends the watching when the client's last handle goes, of which this is one.
        self.shared.lock().observer = None;
    }
}

impl State {
    fn read(&mut self) {
        let Some(observer) = &mut self.observer else { return };
        let files = &mut self.files;
        observer.drain(|stream| {
            let options = LiveOptions { region_size: ByteCount(stream.region_bytes), ..LiveOptions::default() };
            let file = files.entry(stream.file).or_insert_with(|| LiveFile::new(options));
            let requests: Vec<LiveRequest> = stream.requests.iter().map(request).collect();
            file.add(u32::from(stream.process.0), stream.lane as u32, &requests, stream.missed);
        });
        let now_ms = stripewise_store::observer::now_ms();
        files.values_mut().for_each(|file| file.sample(now_ms));
    }
}

pub(super) fn request(noted: &Noted) -> LiveRequest {
    LiveRequest { kind: noted.kind, offset: noted.offset, bytes: u64::from(noted.bytes), time_ms: noted.time_ms }
}

fn read(shared: &Shared, voice: Voice) {
    let (mut met, mut complaint) = (Instant::now(), String::new());
    let mut state = shared.lock();
    while !state.stopping {
        state.read();
        if met.elapsed() >= MEET {
            if let Some(Err(error)) = state.observer.as_mut().map(Observer::meet) {
                // Said once: while no broker answers, nothing can be moved either.
                let text = error.to_string();
                if complaint != text {
                    voice.say(format_args!("files that are opened now are not watched: {text}"));
                    complaint = text;
                }
            }
            met = Instant::now();
        }
        state = shared.stop.wait_timeout(state, READ).unwrap_or_else(PoisonError::into_inner).0;
    }
}
