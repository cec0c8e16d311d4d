//! Letting others watch what programs access.
//!
//! While any connection observes, the control block of every file that is open says so, and processes note their requests in the file's slots
//! (`shared::recent`). Who observes gets descriptors of that memory and reads it itself: no request of a program costs the broker anything. An
//! observer's end is the end of its connection, so one that is killed leaves nobody noting in vain.

mod all_hosts;
mod opens;

use crate::accesses::Accesses;
use crate::connection::{Answer, Carried, Connection};
use crate::context::Context;
use crate::file_memory::FileMemory;
use crate::files::Files;
use crate::guard;
use crate::managed::{Managed, memory_fault};
use crate::quiescing::Quiescing;
use all_hosts::AllHosts;
pub(crate) use opens::Opens;
use rustix::fs::OFlags;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use stripewise_layout::FileId;
use stripewise_store::protocol::{ObservedFile, Refusal, Reply};
use stripewise_store::shared::slots::Slots;

/// Files in one answer; a path has at most 4,096 bytes.
const FILES_AT_ONCE: usize = 24;

#[derive(Default)]
pub(crate) struct Observing {
    /// Connections that observe.
    by: HashSet<u64>,
    /// The first of them was not there before.
    reset: bool,
    /// Files that were open or opened since, by the order in which that was seen.
    seen: BTreeMap<u64, FileId>,
    numbers: HashMap<FileId, u64>,
    last: u64,
}

impl Observing {
    fn see(&mut self, managed: &Managed) {
        if !self.numbers.contains_key(&managed.file) {
            // One that was watched already, by a predecessor's leave, goes on being so.
            if self.reset || managed.control.notices().observation().is_none() {
                managed.control.notices().begin_observation();
            }
            self.last += 1;
            self.numbers.insert(managed.file, self.last);
            self.seen.insert(self.last, managed.file);
        }
    }

    pub(crate) fn forget(&mut self, file: FileId) {
        if let Some(number) = self.numbers.remove(&file) {
            self.seen.remove(&number);
        }
    }
}

/// Who watches, and which files.
pub(crate) struct Observers {
    context: Arc<Context>,
    quiescing: Arc<Quiescing>,
    files: Arc<Files>,
    memory: Arc<FileMemory>,
    /// When the broker began.
    since_ns: u64,
    observing: Mutex<Observing>,
    opens: Opens,
    /// Of a cluster of many hosts, on its master.
    all_hosts: AllHosts,
}

impl Observers {
    pub(crate) fn new(
        context: &Arc<Context>,
        quiescing: &Arc<Quiescing>,
        files: &Arc<Files>,
        memory: &Arc<FileMemory>,
        since_ns: u64,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            quiescing: Arc::clone(quiescing),
            files: Arc::clone(files),
            memory: Arc::clone(memory),
            since_ns,
            observing: Mutex::default(),
            opens: Opens::default(),
            all_hosts: AllHosts::new(Accesses::new(memory)),
        }
    }

    /// The connection observes from here on, until it ends. Tells of the files that were open or opened since the first observer came, from behind
    /// number `after`.
    pub(crate) fn observe(&self, connection: &Connection, after: u64, reset: bool) -> Answer {
        if self.context.others().is_some() {
            return Err(Refusal::Invalid {
                what: "hosts share this cluster; ask for the accesses of all of them".to_owned(),
            });
        }
        let is_first = {
            let mut observing = guard(&self.observing);
            let is_first = observing.by.is_empty();
            if is_first {
                observing.reset = reset;
            }
            observing.by.insert(connection.id);
            is_first
        };
        if is_first {
            self.observe_open_files()?;
        }
        let later: Vec<(u64, FileId)> = {
            let observing = guard(&self.observing);
            observing.seen.range(after.saturating_add(1)..).map(|(number, file)| (*number, *file)).collect()
        };
        let (mut files, mut more) = (Vec::new(), false);
        for (number, file) in later {
            let Some(record) = self.context.table().file(file)? else {
                guard(&self.observing).forget(file);
                continue;
            };
            more = files.len() == FILES_AT_ONCE;
            if more {
                break;
            }
            files.push(ObservedFile { number, file, path: record.path, region_bytes: record.region_bytes });
        }
        let since_ns = self.since_ns;
        Ok((Reply::Observed { since_ns, files, more }, Vec::new()))
    }

    /// Files that processes have open already. Those of a predecessor's time need not be loaded: their users never had to ask.
    fn observe_open_files(&self) -> Result<(), Refusal> {
        let open = self.open_files()?;
        open.iter().for_each(|managed| guard(&self.observing).see(managed));
        Ok(())
    }

    fn open_files(&self) -> Result<Vec<Arc<Managed>>, Refusal> {
        let is_open = |file| match self.files.if_loaded(file) {
            Some(managed) => !self.quiescing.users(&managed).is_empty(),
            None => self.is_open_unloaded(file),
        };
        let files = self.context.table().all_files()?.into_iter().map(|(file, _)| file);
        // One that cannot be loaded, since it is just being removed or a server is away, is seen when it is next opened.
        Ok(files.filter(|file| is_open(*file)).filter_map(|file| self.files.managed(file).ok()).collect())
    }

    fn is_open_unloaded(&self, file: FileId) -> bool {
        let Ok(slots) = self.context.state().open_shared(&format!("{file}.slots"), OFlags::RDWR) else {
            return false;
        };
        let users = Slots::users_of_any_version(&slots).unwrap_or_default();
        users.into_iter().any(|(slot, incarnation)| self.context.is_alive(slot, incarnation))
    }

    /// A client has the file open from now on, or an observer ended: the control block says from here on whether requests are observed.
    pub(crate) fn notify_observers(&self, managed: &Managed) {
        if self.all_hosts.see(managed) {
            return;
        }
        let mut observing = guard(&self.observing);
        if !observing.by.is_empty() {
            observing.see(managed);
        } else if managed.control.notices().observation().is_some() {
            // By one that has ended, perhaps together with the broker of its time.
            managed.control.notices().end_observation();
        }
    }

    pub(crate) fn no_longer_observes(&self, connection: &Connection) {
        self.opens.end(connection);
        let files: Vec<FileId> = {
            let mut observing = guard(&self.observing);
            if !observing.by.remove(&connection.id) || !observing.by.is_empty() {
                return;
            }
            observing.seen.clear();
            observing.numbers.drain().map(|(file, _)| file).collect()
        };
        // Not under the lock: a file's loading may be waited for, and another observer may have come meanwhile.
        for managed in files.into_iter().filter_map(|file| self.files.if_loaded(file)) {
            self.notify_observers(&managed);
        }
    }

    /// See [`stripewise_store::protocol::Admin::OpenedPaths`].
    pub(crate) fn opened_paths(&self, connection: &Connection, after: &str) -> Answer {
        self.opens.since(connection, after)
    }

    /// The connection opens the file whose stub is at `path`.
    pub(crate) fn note_open(&self, connection: &Connection, path: &str) {
        self.opens.note(connection, path);
    }

    /// Descriptors of the memory in which the file's requests are noted: those that a reader of the file gets.
    pub(crate) fn memory_to_observe(&self, file: FileId) -> Answer {
        let memory = self.memory.memory_for_client(file, false).map_err(memory_fault(file))?;
        let along = [memory.control, memory.extent, memory.slots].into_iter().map(Carried::Own).collect();
        Ok((Reply::Opened { file, writable: false }, along))
    }
}
