//! Watching what programs do, in a thread of its own: counts by file, for whoever plans by them.
//!
//! The rings that requests are noted in are short, so they are read often; and whatever the daemon is busy with, planning above all, must not
//! keep them from being read.

use super::error::{DaemonError, Result};
use crate::progress::Voice;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stripewise_layout::{ByteCount, FileId};
use stripewise_store::client::{Client, ClientError};
use stripewise_store::observer::{HostsObserver, Noted, Observer, Watched};
use stripewise_trace::{FileAccess, LiveFile, LiveOptions, LiveProcess, LiveRequest};

/// How often the rings are read: one of them holds what a thread does in this time at 3,000 requests per second.
const READ: Duration = Duration::from_millis(20);
/// How often the rings of all hosts are read, each by its agent.
const ASK: Duration = Duration::from_millis(100);
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
    /// Between two reads.
    interval: Duration,
}

/// Who reads the rings.
enum Source {
    /// This process, of the one host.
    Host(Observer),
    /// The agents of all hosts.
    Hosts(HostsObserver),
}

struct State {
    source: Option<Source>,
    files: BTreeMap<FileId, LiveFile>,
    stopping: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    pub(super) fn start(client: Client, has_many_hosts: bool, voice: Voice) -> Result<Self> {
        let source = match has_many_hosts {
            false => Observer::start(client).map(Source::Host),
            true => HostsObserver::start(client).map(Source::Hosts),
        };
        let source = source.map_err(|source| DaemonError::Watch { source })?;
        let state = State { source: Some(source), files: BTreeMap::new(), stopping: false };
        let interval = if has_many_hosts { ASK } else { READ };
        let shared = Arc::new(Shared { state: Mutex::new(state), stop: Condvar::new(), interval });
        let reading = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("stripewise-watch".into()).spawn(move || read(&reading, voice));
        Ok(Self { shared, thread: Some(thread.map_err(|source| DaemonError::Thread { source })?) })
    }

    /// Ends the window: what was seen of every file that is still there, in the order of their numbers. `span_s` is when the window began and ended.
    pub(super) fn finish(&self, span_s: (f64, f64)) -> Vec<Seen> {
        let mut state = self.shared.lock();
        // What cannot be read now is of the next window.
        let _ = state.read().and_then(|()| state.forget_gone());
        let State { source, files, .. } = &mut *state;
        let watched: Vec<Watched> = match source {
            Some(Source::Host(observer)) => observer.files().collect(),
            Some(Source::Hosts(observer)) => observer.files().collect(),
            None => Vec::new(),
        };
        let watched: BTreeMap<FileId, Watched> = watched.into_iter().map(|watched| (watched.file, watched)).collect();
        files.retain(|file, _| watched.contains_key(file));
        let run = LiveProcess::count(&files.values().flat_map(LiveFile::processes).collect());
        let seen = files.iter_mut().map(|(file, live)| {
            let ((requests, known), watched) = (live.requests(), &watched[file]);
            let access = live.finish(watched.path.clone(), watched.size_bytes, span_s, run);
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
        self.shared.lock().source = None;
    }
}

impl State {
    fn read(&mut self) -> std::result::Result<(), ClientError> {
        let Self { source, files, .. } = self;
        let mut add = |file: FileId, region_bytes, process: LiveProcess, lane: u32, noted: &[Noted], missed| {
            let options = LiveOptions { region_size: ByteCount(region_bytes), ..LiveOptions::default() };
            let file = files.entry(file).or_insert_with(|| LiveFile::new(options));
            let requests: Vec<LiveRequest> = noted.iter().map(request).collect();
            file.add(process, lane, &requests, missed);
        };
        let read = match source {
            None => Ok(()),
            Some(Source::Host(observer)) => {
                observer.drain(|stream| {
                    let process = LiveProcess { node: 0, process: u32::from(stream.process.0) };
                    add(stream.file, stream.region_bytes, process, stream.lane as u32, stream.requests, stream.missed);
                });
                Ok(())
            }
            Some(Source::Hosts(observer)) => observer.read(|stream| {
                let process = LiveProcess { node: stream.host, process: u32::from(stream.process) };
                add(stream.file, stream.region_bytes, process, u32::from(stream.lane), &stream.requests, stream.missed);
            }),
        };
        let now_ms = stripewise_store::observer::now_ms();
        files.values_mut().for_each(|file| file.sample(now_ms));
        read
    }

    /// Takes in files that were opened meanwhile.
    fn meet(&mut self) -> std::result::Result<(), ClientError> {
        match &mut self.source {
            Some(Source::Host(observer)) => observer.meet().map(drop),
            Some(Source::Hosts(_)) | None => Ok(()),
        }
    }

    fn forget_gone(&mut self) -> std::result::Result<(), ClientError> {
        match &mut self.source {
            Some(Source::Hosts(observer)) => observer.forget_gone(),
            Some(Source::Host(_)) | None => Ok(()),
        }
    }
}

pub(super) fn request(noted: &Noted) -> LiveRequest {
    LiveRequest { kind: noted.kind, offset: noted.offset, bytes: u64::from(noted.bytes), time_ms: noted.time_ms }
}

fn read(shared: &Shared, voice: Voice) {
    let (mut met, mut complaint) = (Instant::now(), String::new());
    let mut state = shared.lock();
    while !state.stopping {
        let mut read = state.read();
        if met.elapsed() >= MEET {
            read = read.and_then(|()| state.meet());
            met = Instant::now();
        }
        if let Err(error) = read {
            // Said once: while no broker answers, nothing can be moved either.
            let text = error.to_string();
            if complaint != text {
                voice.say(format_args!("what programs access now is not watched: {text}"));
                complaint = text;
            }
        }
        state = shared.stop.wait_timeout(state, shared.interval).unwrap_or_else(PoisonError::into_inner).0;
    }
}
