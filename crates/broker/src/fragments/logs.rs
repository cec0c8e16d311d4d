//! Making a file's logs, taking them over, and removing them.
//!
//! Order against crashes: the logs' records are durable before their objects are made; the hints are made before the table, whose first word is stored
//! last; then the control block says that there is a table. Whoever loads the file later keeps a table that is whole and of this boot, since processes may be
//! using it, and what it holds is newer than the disks. Without one nobody can be: then objects and records are removed.

use crate::context::Context;
use crate::drained::Drained;
use crate::files::Files;
use crate::fragments::{Keeping, LogCapacity};
use crate::log::note;
use crate::managed::{FileFragments, HINTS, Inner, LogMemory, Managed, TABLE, drop_entry, log_object, memory_fault};
use crate::placing::Placer;
use crate::quiescing::Quiescing;
use crate::rmt::{Changes, LogRecord};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stripewise_layout::{FileId, Generation, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectName, Operation, ServerError};
use stripewise_store::shared::control::FragmentMode;
use stripewise_store::shared::fragments::hints::Hints;
use stripewise_store::shared::fragments::table::{FragmentTable, NewLog};

/// A file gets slots by this part of a disk's room at a time, within limits.
const CHUNK_PART: u32 = 8;
const MAX_CHUNK: u32 = 1024;

/// The logs of files: making them, taking them over, granting slots, removing them.
pub(crate) struct FragmentLogs {
    context: Arc<Context>,
    drained: Arc<Drained>,
    quiescing: Arc<Quiescing>,
    files: Arc<Files>,
    placer: Arc<Placer>,
    log_capacity: Arc<LogCapacity>,
    keeping: Arc<Keeping>,
}

impl FragmentLogs {
    pub(crate) fn new(
        context: &Arc<Context>,
        drained: &Arc<Drained>,
        quiescing: &Arc<Quiescing>,
        files: &Arc<Files>,
        placer: &Arc<Placer>,
        log_capacity: &Arc<LogCapacity>,
        keeping: &Arc<Keeping>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            drained: Arc::clone(drained),
            quiescing: Arc::clone(quiescing),
            files: Arc::clone(files),
            placer: Arc::clone(placer),
            log_capacity: Arc::clone(log_capacity),
            keeping: Arc::clone(keeping),
        }
    }

    /// Whether the file is to have fragments; `switched`: what was said of it alone.
    pub(crate) fn wants_fragments(&self, switched: Option<bool>) -> bool {
        self.context.cluster().has_fragment_capacity() && switched.unwrap_or(self.context.cluster().fragments)
    }

    /// What the control block of a file without logs says.
    pub(crate) fn show_fragments_without_logs(&self, managed: &Managed, switched: Option<bool>) {
        let mode = if self.wants_fragments(switched) { FragmentMode::Wanted } else { FragmentMode::Off };
        self.show_mode(managed, mode);
    }

    /// Gives the file logs. An error: it has none.
    pub(crate) fn set_up_logs(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        let file = managed.file;
        self.remove_logs(file, inner)?;
        let generation = Generation(self.placer.reserve_generations(managed, inner, 1)? + 1);
        let mut logs = BTreeMap::new();
        for disk in (0..self.context.servers().len()).map(|number| ServerId(number as u16)) {
            if let Some(log) = self.context.cluster().fragment_log(disk).filter(|log| !self.drained.is_drained(log.on))
            {
                logs.insert(disk, LogRecord { on: log.on, generation });
            }
        }
        if logs.is_empty() {
            let what = "every server that could hold them is being emptied (`stripewise evacuate`)".to_owned();
            return Err(Refusal::NoSpace { what });
        }
        let mut changes = Changes::default();
        logs.iter().for_each(|(disk, record)| changes.put_log(file, *disk, *record));
        self.context.step("fragments: before the records");
        self.context.table().commit(&changes)?;
        inner.logs = logs;
        self.context.step("fragments: recorded");
        managed.reach(inner.logs.values().map(|record| record.on));
        let made = self.make_logs(file, inner).and_then(|()| self.build_memory(file, &inner.logs));
        let made = made.inspect_err(|_| {
            // What cannot be removed now is removed when it is tried again or the file is loaded again.
            let _ = self.remove_logs(file, inner);
        })?;
        self.context.step("fragments: memory made");
        self.grant_first(file, &made);
        managed.fragments.set(Some(Arc::new(made)));
        self.show_mode(managed, FragmentMode::On);
        self.context.step("fragments: set up");
        Ok(())
    }

    fn make_logs(&self, file: FileId, inner: &Inner) -> Result<(), Refusal> {
        let servers: BTreeSet<ServerId> = inner.logs.values().map(|record| record.on).collect();
        let probe = servers.into_iter().map(|server| (server, Operation::Probe));
        self.context.perform_together(probe).into_iter().try_for_each(|outcome| outcome.map(drop))?;
        let create = |(disk, record): (&ServerId, &LogRecord)| {
            (record.on, Operation::create(log_object(file, *disk, *record), inner.ownership()))
        };
        let created = self.context.perform_together(inner.logs.iter().map(create));
        created.into_iter().try_for_each(|outcome| outcome.map(drop))?;
        self.context.step("fragments: objects made");
        Ok(())
    }

    fn build_memory(&self, file: FileId, logs: &BTreeMap<ServerId, LogRecord>) -> Result<LogMemory, Refusal> {
        let fault = memory_fault(file);
        let slot_bytes = self.context.cluster().fragment_slot().0;
        let of_disk = |number: usize| {
            let disk = ServerId(number as u16);
            let record = logs.get(&disk)?;
            let set_aside_bytes = self.log_capacity.total_bytes(disk);
            let slots = u32::try_from(set_aside_bytes / slot_bytes).unwrap_or(u32::MAX / 64 * 32);
            Some(NewLog { on: record.on, generation: record.generation, slots })
        };
        let new: Vec<_> = (0..self.context.servers().len()).map(of_disk).collect();
        let hints = self.make_memory(file, HINTS).map_err(&fault)?;
        let table = self.make_memory(file, TABLE).map_err(&fault)?;
        let table = FragmentTable::build(&table, file, self.context.boot(), slot_bytes, &new).map_err(&fault)?;
        let hints = Hints::build(&hints, new.len(), &table).map_err(&fault)?;
        Ok(LogMemory { table, hints })
    }

    fn make_memory(&self, file: FileId, kind: &str) -> rustix::io::Result<OwnedFd> {
        self.context.state().create_shared(&format!("{file}.{kind}"))
    }

    fn grant_first(&self, file: FileId, logs: &LogMemory) {
        for disk in logs.table.disks() {
            self.grant(file, logs, disk);
        }
    }

    /// Slots that a log gets at a time.
    pub(crate) fn chunk_slots(&self, logs: &LogMemory, disk: ServerId) -> u32 {
        let slots = logs.table.log(disk).map_or(0, |log| log.slots);
        (slots / CHUNK_PART).clamp(1, MAX_CHUNK)
    }

    /// Grants a log further slots, as far as there is room. Returns how many.
    pub(crate) fn grant(&self, file: FileId, logs: &LogMemory, disk: ServerId) -> u32 {
        let slot_bytes = logs.table.slot_bytes();
        let mut granted = 0;
        self.log_capacity.set(file, disk, |left_bytes| {
            let left = u32::try_from(left_bytes / slot_bytes).unwrap_or(u32::MAX);
            granted = logs.table.grant(disk, self.chunk_slots(logs, disk).min(left));
            u64::from(logs.table.granted(disk)) * slot_bytes
        });
        granted
    }

    /// Of a file that is being loaded: its logs are taken over, or removed if they are of another boot.
    pub(crate) fn load_logs(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        let file = managed.file;
        let switched = self.context.table().fragments_switch(file)?;
        let wants = self.wants_fragments(switched);
        if let Some(logs) = self.adopt_logs(file)? {
            let slot_bytes = logs.table.slot_bytes();
            for disk in logs.table.disks() {
                self.log_capacity.set(file, disk, |_| u64::from(logs.table.granted(disk)) * slot_bytes);
            }
            // Its note may have been taken by a broker that did not come to its end.
            logs.table.note_dirtied();
            managed.fragments.set(Some(Arc::new(logs)));
            self.show_mode(managed, if wants { FragmentMode::On } else { FragmentMode::Leaving });
            self.keeping.watch(file);
            return Ok(());
        }
        let had_logs = matches!(managed.control.notices().fragments(), FragmentMode::On | FragmentMode::Leaving);
        if let Some((slot, _)) = self.quiescing.users(managed).first().filter(|_| had_logs) {
            return Err(Refusal::Table {
                what: format!(
                    "{} in the state directory's `run` is gone or damaged, while process {} uses it, which alone knows where what it wrote since its last fsync lies; let it copy the file elsewhere, then end it",
                    format_args!("{file}.{TABLE}"),
                    self.context.processes().process_id(*slot)
                ),
            });
        }
        if let Err(refusal) = self.remove_logs(file, inner) {
            note!(self.context.log(), warn, path = %inner.record.path, error = %refusal, "former logs of fragments are not removed yet");
        }
        self.show_fragments_without_logs(managed, switched);
        Ok(())
    }

    /// The shared memory of the file's logs if it is whole and of this boot.
    fn adopt_logs(&self, file: FileId) -> Result<Option<LogMemory>, Refusal> {
        let fault = memory_fault(file);
        let open = |kind: &str| self.context.state().open_shared(&format!("{file}.{kind}"), OFlags::RDWR);
        let table = match open(TABLE) {
            Err(Errno::NOENT) => return Ok(None),
            result => result.map_err(&fault)?,
        };
        let table = match FragmentTable::open(&table, file, true) {
            Err(Errno::INVAL) => return Ok(None),
            result => result.map_err(&fault)?,
        };
        let servers = self.context.servers().len();
        let is_known = |server: ServerId| usize::from(server.0) < servers;
        let has_unknown =
            table.disks().any(|disk| !is_known(disk) || table.log(disk).is_none_or(|log| !is_known(log.on)));
        if table.boot_id() != self.context.boot() || has_unknown {
            return Ok(None);
        }
        let hints = match open(HINTS).and_then(|hints| Hints::open(hints, servers, &table)) {
            // They decide nothing that matters.
            Err(Errno::NOENT | Errno::INVAL) => {
                self.make_memory(file, HINTS).and_then(|hints| Hints::build(&hints, servers, &table))
            }
            result => result,
        };
        Ok(Some(LogMemory { table, hints: hints.map_err(&fault)? }))
    }

    /// Removes objects and records of the file's logs, which nobody uses. What cannot be removed keeps its record, and is the error.
    pub(crate) fn remove_logs(&self, file: FileId, inner: &mut Inner) -> Result<(), Refusal> {
        self.remove_log_memory(file);
        let (mut changes, mut first_fault) = (Changes::default(), None);
        let objects: Vec<(ServerId, ObjectName)> =
            inner.logs.iter().map(|(disk, record)| (record.on, log_object(file, *disk, *record))).collect();
        // Processes may keep descriptors of them, which keep the space of what is not truncated.
        let mut removed = self.context.remove_objects(&objects).into_iter();
        inner.logs.retain(|disk, _| match removed.next() {
            Some(Ok(())) => {
                changes.remove_log(file, *disk);
                false
            }
            Some(Err(error)) => {
                first_fault.get_or_insert(Refusal::from(error));
                true
            }
            None => true,
        });
        self.context.step("fragments: objects removed");
        self.context.table().commit(&changes)?;
        self.log_capacity.forget(file);
        first_fault.map_or(Ok(()), Err)
    }

    pub(crate) fn remove_log_memory(&self, file: FileId) {
        for kind in [TABLE, HINTS] {
            // What stays is of no use to anybody and rebuilt.
            let _ = rustix::fs::unlinkat(self.context.state().run(), format!("{file}.{kind}"), AtFlags::empty());
        }
    }

    /// Entries of a disk's log that are newer than the disk.
    pub(crate) fn newer_in_log(&self, managed: &Managed, disk: ServerId) -> usize {
        let logs = managed.fragments.logs();
        let log = logs.as_ref().and_then(|logs| logs.table.log(disk));
        log.map_or(0, |log| log.sets.all().filter(|seen| seen.state().is_newer()).count())
    }

    /// A log whose object is lost gets a new one, without entries. The caller holds the fragments too.
    pub(crate) fn replace_log(
        &self,
        managed: &Managed,
        inner: &Inner,
        disk: ServerId,
        record: LogRecord,
    ) -> Result<(), Refusal> {
        let gate = self.quiescing.shut(managed)?;
        gate.drain()?;
        let logs = managed.fragments.logs();
        if let Some(log) = logs.as_ref().and_then(|logs| logs.table.log(disk)) {
            log.sets.all().for_each(|seen| drop_entry(&log, &seen));
        }
        Ok(self.context.server(record.on)?.create(log_object(managed.file, disk, record), inner.ownership())?)
    }

    /// The log objects take over mode and owner.
    pub(crate) fn own_logs(
        &self,
        file: FileId,
        inner: &Inner,
        ownership: stripewise_store::server::Ownership,
    ) -> Result<(), Refusal> {
        let own = |(disk, record): (&ServerId, &LogRecord)| {
            (record.on, Operation::SetOwnership(log_object(file, *disk, *record), ownership))
        };
        let owned = self.context.perform_together(inner.logs.iter().map(own));
        let fault =
            owned.into_iter().filter_map(Result::err).find(|error| !matches!(error, ServerError::Missing { .. }));
        fault.map_or(Ok(()), |error| Err(error.into()))
    }

    /// After the file's objects and records are gone.
    pub(crate) fn forget_logs(&self, file: FileId, fragments: &FileFragments, inner: &Inner) {
        if !inner.logs.is_empty() || fragments.logs().is_some() {
            fragments.set(None);
            self.remove_log_memory(file);
        }
        self.log_capacity.forget(file);
    }

    /// At the start: logs are taken over or removed; those of files that are no more are removed.
    pub(crate) fn recover_logs(&self) -> Result<Vec<String>, crate::BrokerError> {
        let (mut said, mut seen) = (Vec::new(), None);
        for (file, disk, record) in self.context.table().logs(None)? {
            if self.context.table().file(file)?.is_none() {
                let removed = self.context.remove_objects(&[(record.on, log_object(file, disk, record))]);
                if removed.iter().all(Result::is_ok) {
                    let mut changes = Changes::default();
                    changes.remove_log(file, disk);
                    self.context.table().commit(&changes)?;
                }
                continue;
            }
            if seen.replace(file) == Some(file) {
                continue;
            }
            if let Err(refusal) = self.files.managed(file) {
                said.push(format!("not taken over yet: the fragments of file {file}: {refusal}"));
            }
        }
        Ok(said)
    }

    pub(crate) fn show_mode(&self, managed: &Managed, mode: FragmentMode) {
        managed.control.notices().set_fragments(mode, self.context.cluster().fragment_threshold().0 as u32);
    }

    /// LogMemory on the server are looked at, since it is to be emptied.
    pub(crate) fn leave_logs(&self) {
        let files: Vec<FileId> = self.files.ids();
        for managed in files.into_iter().filter_map(|file| self.files.if_loaded(file)) {
            if managed.fragments.logs().is_some() {
                self.keeping.watch(managed.file);
            }
        }
    }
}
