//! Gathers the calls of other formats, process by process, into slots.

use crate::slots::SlotBuffer;
use crate::trace::{ClockFacts, ProcessSource, Slots};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use stripewise_capture::clock::Ticks;
use stripewise_capture::format::{CommunicatorKey, FileKey, RawEvent};
use stripewise_layout::text::bytes_of;

/// Latest time in nanoseconds that a text may tell, in the year 2262 if since 1970: differences of times have a sign.
pub(super) const MAX_TIME_NS: u64 = i64::MAX as u64;

/// Who a process is, as far as text formats tell.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ProcessName {
    pub(super) node: String,
    pub(super) pid: u32,
    pub(super) rank: Option<u32>,
}

#[derive(Default)]
struct Gathered {
    mpi_size: u32,
    slots: SlotBuffer,
    files: HashMap<String, FileKey>,
    communicators: HashMap<u64, CommunicatorKey>,
}

/// One call with its times in nanoseconds since some origin common to all processes.
pub(super) struct Row<'a> {
    /// File, communicator and times are set from the fields below.
    pub(super) event: RawEvent,
    /// Empty: none.
    pub(super) path: &'a str,
    /// The new name of a rename; empty: none.
    pub(super) renamed_to: &'a str,
    /// The hash.
    pub(super) communicator: Option<u64>,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// 0 when unknown.
    pub(super) mpi_size: u32,
}

#[derive(Default)]
pub(super) struct Gatherer {
    processes: BTreeMap<ProcessName, Gathered>,
}

impl Gathered {
    fn file(&mut self, path: &str) -> FileKey {
        if path.is_empty() {
            return FileKey(0);
        }
        if let Some(key) = self.files.get(path) {
            return *key;
        }
        let key = self.slots.define_file(&bytes_of(path));
        self.files.insert(path.to_owned(), key);
        key
    }
}

impl Gatherer {
    pub(super) fn add(&mut self, name: &ProcessName, row: &Row<'_>) {
        if !self.processes.contains_key(name) {
            self.processes.insert(name.clone(), Gathered::default());
        }
        let Some(process) = self.processes.get_mut(name) else { return };
        process.mpi_size = process.mpi_size.max(row.mpi_size);
        let mut event = row.event;
        event.file = process.file(row.path);
        if !row.renamed_to.is_empty() {
            event.offset.0 = u64::from(process.file(row.renamed_to).0);
        }
        if let Some(hash) = row.communicator {
            let next = process.communicators.len();
            let key = process.communicators.entry(hash).or_insert_with(|| {
                let key = CommunicatorKey(u16::try_from(next + 1).unwrap_or(0));
                process.slots.define_communicator(key, hash);
                key
            });
            event.communicator = *key;
        }
        (event.start, event.end) = (Ticks(row.start_ns), Ticks(row.end_ns));
        process.slots.push_event(&event);
    }

    /// Times become those since 1970 as they are.
    pub(super) fn finish(self, source: &Path) -> Vec<ProcessSource> {
        let sources = self.processes.into_iter().map(|(name, process)| ProcessSource {
            path: source.to_owned(),
            pid: name.pid,
            parent_pid: 0,
            node: name.node,
            program: String::new(),
            mpi_rank: name.rank,
            mpi_size: process.mpi_size,
            lost: 0,
            finished: true,
            clock: ClockFacts::nanoseconds(),
            slots: Slots::owned(process.slots.into_bytes()),
        });
        sources.collect()
    }
}
