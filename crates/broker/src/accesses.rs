//! What programs of this host do on files, for a daemon that may run on another host of the cluster.
//!
//! While it is asked for, the control block of every file that is open here says that requests are observed, and processes note them in the file's slots
//! (`shared::recent`). Whoever asks gets what is new since the last time; more than one answer may hold counts as missed, as what was overwritten does. When
//! nobody has asked for a while, processes note no more.

use crate::file_memory::FileMemory;
use crate::guard;
use crate::log::note;
use crate::managed::{Managed, memory_fault};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stripewise_layout::FileId;
use stripewise_store::observer::{FileRings, Noted, now_ms};
use stripewise_store::protocol::{Access, AccessStream, AccessedFile, Refusal};

/// Who is not asked for so long is not watched any more.
const LEASE: Duration = Duration::from_secs(10);
/// Requests in one answer.
const MAX_REQUESTS: usize = 4096;
/// Of one thread, once there are more in the answer.
const FEW: usize = 4;
/// Quiet files are looked at for new processes every so many times.
const QUIET_TURN: u64 = 10;

/// Of this host.
pub(crate) struct Accesses {
    memory: Arc<FileMemory>,
    watching: Mutex<Watching>,
}

#[derive(Default)]
struct Watching {
    /// When somebody asked last; `None`: nobody does.
    asked: Option<Instant>,
    turns: u64,
    files: BTreeMap<FileId, Watched>,
}

struct Watched {
    region_bytes: u64,
    rings: FileRings,
    /// Nobody here has it open any more: it is read once more.
    is_closed: bool,
}

impl Accesses {
    pub(crate) fn new(memory: &Arc<FileMemory>) -> Self {
        Self { memory: Arc::clone(memory), watching: Mutex::default() }
    }

    /// A program here opens the file. Returns whether its requests are watched.
    pub(crate) fn see(&self, managed: &Managed) -> bool {
        let mut watching = guard(&self.watching);
        if watching.asked.is_none() {
            return false;
        }
        if let Err(refusal) = self.watch(&mut watching, managed) {
            note!(self.memory.log(), warn, file = %managed.file, error = %refusal, "accesses to a file are not watched");
        }
        true
    }

    fn watch(&self, watching: &mut Watching, managed: &Managed) -> Result<(), Refusal> {
        let file = managed.file;
        if let Some(watched) = watching.files.get_mut(&file).filter(|watched| !watched.is_closed) {
            watched.rings.find_processes();
            return Ok(());
        }
        // What was noted for anybody before is not wanted.
        managed.control.notices().begin_observation();
        let memory = self.memory.memory_for_client(file, false).map_err(memory_fault(file))?;
        let rings = FileRings::map(file, &[memory.control, memory.extent, memory.slots]);
        let rings =
            rings.map_err(|error| Refusal::Table { what: format!("the shared memory of file {file}: {error}") })?;
        let region_bytes = managed.control.region_bytes();
        watching.files.insert(file, Watched { region_bytes, rings, is_closed: false });
        Ok(())
    }

    /// No program here has the file open any more, and its memory goes.
    pub(crate) fn leave(&self, file: FileId) {
        if let Some(watched) = guard(&self.watching).files.get_mut(&file) {
            watched.is_closed = true;
        }
    }

    /// What is new since the last time. From the first time on it is watched; `open` gives the files that are open then.
    pub(crate) fn take(&self, open: impl FnOnce() -> Vec<Arc<Managed>>) -> Vec<AccessedFile> {
        let mut watching = guard(&self.watching);
        if watching.asked.replace(Instant::now()).is_none() {
            for managed in open() {
                if let Err(refusal) = self.watch(&mut watching, &managed) {
                    note!(self.memory.log(), warn, file = %managed.file, error = %refusal, "accesses to a file are not watched");
                }
            }
        }
        watching.turns += 1;
        let is_turn = watching.turns.is_multiple_of(QUIET_TURN);
        let (mut taken, now_ms) = (0, now_ms());
        let read = |(file, watched): (&FileId, &mut Watched)| {
            let mut streams = Vec::new();
            if is_turn || watched.is_closed || !watched.rings.is_quiet() {
                watched.rings.find_processes();
            }
            watched.rings.read(|process, lane, requests, missed| {
                let kept = if taken + requests.len() > MAX_REQUESTS { FEW.min(requests.len()) } else { requests.len() };
                taken += kept;
                let (left_out, kept) = requests.split_at(requests.len() - kept);
                streams.push(AccessStream {
                    process: process.0,
                    lane: lane as u8,
                    missed: missed + left_out.len() as u64,
                    requests: kept.iter().map(|request| access(request, now_ms)).collect(),
                });
            });
            let (region_bytes, size_bytes) = (watched.region_bytes, watched.rings.size_bytes());
            AccessedFile { file: *file, path: String::new(), region_bytes, size_bytes, streams }
        };
        let accessed = watching.files.iter_mut().map(read).collect();
        watching.files.retain(|_, watched| !watched.is_closed && !watched.rings.is_gone());
        accessed
    }

    /// Ends what nobody asks for any more; `open`: the file, if it still is.
    pub(crate) fn tidy(&self, open: impl Fn(FileId) -> Option<Arc<Managed>>) {
        let mut watching = guard(&self.watching);
        if watching.asked.is_none_or(|asked| asked.elapsed() < LEASE) {
            return;
        }
        watching.asked = None;
        for managed in std::mem::take(&mut watching.files).into_keys().filter_map(open) {
            managed.control.notices().end_observation();
        }
    }
}

fn access(request: &Noted, now_ms: u32) -> Access {
    Access {
        kind: request.kind.index() as u8,
        offset: request.offset.0,
        bytes: request.bytes,
        age_ms: now_ms.wrapping_sub(request.time_ms),
    }
}
