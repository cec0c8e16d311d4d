//! `stripewise check`: what does not fit together on servers, in the table and in the applications' directories, and its repair.
//!
//! A repair restores names and removes what no record needs; it never removes an object that a record names, and never puts a stub where another
//! file stands. A file is looked at under its lock, so what is just being made is not taken for an orphan.

mod logs;
mod restoring;
mod sound;
mod stubs;

use crate::context::Context;
use crate::files::Files;
use crate::fragments::FragmentLogs;
use crate::guard;
use crate::identities::Identities;
use crate::inodes::StubInodes;
use crate::lifecycle::Lifecycle;
use crate::managed::{Inner, Managed, Removal, Work, log_object};
use crate::name_notes::NameNotes;
use crate::quiescing::Quiescing;
use crate::rechecks::Rechecks;
use crate::replicas::Replicas;
use crate::rmt::{FileRecord, FileState};
use crate::search::StubSearch;
use crate::truncation::Truncation;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};
use stripewise_layout::{FileId, RegionIndex, ServerId};
use stripewise_store::protocol::{Finding, MAX_PACKET_BYTES, Refusal};
use stripewise_store::server::{ObjectName, ObjectStore};

/// How long a file is waited for that a request holds.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Waits until no request holds the file; false if one still does.
fn is_free_within(managed: &Managed, patience: Duration) -> bool {
    let begun = Instant::now();
    loop {
        match managed.inner.try_lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() > patience => return false,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            _ => return true,
        }
    }
}

/// What one server holds, or nothing if it cannot be listed.
struct Inventory<'a> {
    number: ServerId,
    server: &'a dyn ObjectStore,
    objects: Option<HashMap<FileId, HashSet<ObjectName>>>,
}

impl Inventory<'_> {
    /// Whether the server was listed and the object was not there.
    fn lacks(&self, object: &ObjectName) -> bool {
        let of_file =
            |objects: &HashMap<_, HashSet<_>>| objects.get(&object.file).is_some_and(|of| of.contains(object));
        self.objects.as_ref().is_some_and(|objects| !of_file(objects))
    }

    fn of(&self, file: FileId) -> impl Iterator<Item = &ObjectName> {
        self.objects.iter().filter_map(move |objects| objects.get(&file)).flatten()
    }

    fn files(&self) -> impl Iterator<Item = FileId> {
        self.objects.iter().flat_map(|objects| objects.keys().copied())
    }
}

/// Findings so far, cut where they would no longer fit a packet.
struct Report {
    findings: Vec<Finding>,
    bytes: usize,
    left_out: usize,
    repair: bool,
}

impl Report {
    pub(crate) fn add(&mut self, what: String, remedy: impl Into<String>, repaired: bool) {
        let remedy = remedy.into();
        self.bytes += what.len() + remedy.len() + 16;
        if self.bytes < MAX_PACKET_BYTES - 4096 {
            self.findings.push(Finding { what, remedy, repaired });
        } else {
            self.left_out += 1;
        }
    }

    /// A finding and, if asked for, its repair.
    pub(crate) fn add_repair(&mut self, what: String, remedy: &str, act: impl FnOnce() -> Result<(), Refusal>) {
        if !self.repair {
            return self.add(what, remedy, false);
        }
        match act() {
            Ok(()) => self.add(what, remedy, true),
            Err(refusal) => self.add(what, format!("{remedy}; that failed: {refusal}"), false),
        }
    }
}

/// Looks at everything, and repairs.
pub(crate) struct Checks {
    context: Arc<Context>,
    rechecks: Arc<Rechecks>,
    quiescing: Arc<Quiescing>,
    inodes: Arc<StubInodes>,
    files: Arc<Files>,
    replicas: Arc<Replicas>,
    logs: Arc<FragmentLogs>,
    truncation: Arc<Truncation>,
    search: Arc<StubSearch>,
    identities: Arc<Identities>,
    notes: Arc<NameNotes>,
    lifecycle: Arc<Lifecycle>,
}

impl Checks {
    #[allow(clippy::too_many_arguments, reason = "one for each part that it uses")]
    pub(crate) fn new(
        context: &Arc<Context>,
        rechecks: &Arc<Rechecks>,
        quiescing: &Arc<Quiescing>,
        inodes: &Arc<StubInodes>,
        files: &Arc<Files>,
        replicas: &Arc<Replicas>,
        logs: &Arc<FragmentLogs>,
        truncation: &Arc<Truncation>,
        search: &Arc<StubSearch>,
        identities: &Arc<Identities>,
        notes: &Arc<NameNotes>,
        lifecycle: &Arc<Lifecycle>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            rechecks: Arc::clone(rechecks),
            quiescing: Arc::clone(quiescing),
            inodes: Arc::clone(inodes),
            files: Arc::clone(files),
            replicas: Arc::clone(replicas),
            logs: Arc::clone(logs),
            truncation: Arc::clone(truncation),
            search: Arc::clone(search),
            identities: Arc::clone(identities),
            notes: Arc::clone(notes),
            lifecycle: Arc::clone(lifecycle),
        }
    }

    /// Looks at everything; with `repair`, puts right what can be.
    pub(crate) fn check(&self, repair: bool) -> Result<Vec<Finding>, Refusal> {
        let mut report = Report { findings: Vec::new(), bytes: 0, left_out: 0, repair };
        self.lifecycle.finish_removals();
        let inventories = self.take_inventory(&mut report);
        let records: BTreeMap<FileId, FileRecord> = self.context.table().all_files()?.into_iter().collect();
        let is_live = |record: &FileRecord| matches!(record.state, FileState::Live);
        let live = records.iter().filter(|(_, record)| is_live(record));
        let search = self.search.search(&live.map(|(file, record)| (*file, record.clone())).collect());
        for (file, record) in &records {
            if self.is_sound(*file, record, &inventories).unwrap_or(false) {
                continue;
            }
            let managed = match self.files.managed(*file) {
                Ok(managed) => managed,
                // Freed since it was listed.
                Err(Refusal::UnknownFile { .. }) => continue,
                Err(refusal) => {
                    report.add(format!("{} cannot be loaded: {refusal}", record.path), "see the fault named", false);
                    continue;
                }
            };
            if !is_free_within(&managed, LOCK_PATIENCE) {
                let what = format!("{} could not be looked at: a request on it does not end", record.path);
                report.add(what, "see to the servers and processes named, then check again", false);
                continue;
            }
            let mut work = managed.fragments.hold();
            let mut inner = guard(&managed.inner);
            if inner.freed {
                continue;
            }
            self.check_unfinished(&managed, &mut inner, &mut work, &mut report);
            self.check_objects(&managed, &inner, &inventories, &mut report);
            self.check_replicas(&managed, &mut inner, &inventories, &mut report);
            self.check_logs(&managed, &mut inner, &inventories, &mut report);
            if matches!(inner.record.state, FileState::Live) {
                self.check_fallbacks(&inner, &mut report);
                // One path that cannot be looked at keeps nothing from the other files.
                if let Err(refusal) = self.check_stub(&managed, &mut inner, &search, &mut report) {
                    let what = format!("the stub {} cannot be checked: {refusal}", inner.record.path);
                    report.add(what, "see the fault named; the data of the managed file is whole", false);
                }
            }
        }
        self.check_unknown_files(&inventories, &mut report);
        self.check_copied_stubs(&mut report);
        if report.left_out > 0 {
            let what = format!("{} more findings", report.left_out);
            report.findings.push(Finding { what, remedy: "repair these and check again".to_owned(), repaired: false });
        }
        Ok(report.findings)
    }

    fn take_inventory(&self, report: &mut Report) -> Vec<Inventory<'_>> {
        let inventories = (0..).map(ServerId).zip(self.context.servers()).map(|(number, server)| {
            let objects = server.probe().and_then(|()| server.objects());
            let objects = match objects {
                Ok(objects) => {
                    let mut by_file = HashMap::<FileId, HashSet<ObjectName>>::new();
                    for object in objects {
                        by_file.entry(object.file).or_default().insert(object);
                    }
                    Some(by_file)
                }
                Err(error) => {
                    report.add(error.to_string(), "make the server usable and check again", false);
                    None
                }
            };
            Inventory { number, server: server.as_ref(), objects }
        });
        inventories.collect()
    }

    fn check_unfinished(&self, managed: &Managed, inner: &mut Inner, work: &mut Work, report: &mut Report) {
        let path = inner.record.path.clone();
        // Removed since the check began: its data goes within a second.
        let is_being_freed = matches!(inner.removal, Removal::Noted { is_reported: false } | Removal::Left);
        if matches!(inner.record.state, FileState::Unlinked)
            && !is_being_freed
            && self.quiescing.users(managed).is_empty()
            && inner.openers.is_empty()
            && !inner.is_stub_open()
        {
            report.add_repair(format!("the removed file {path} still occupies servers"), "its data is freed", || {
                self.lifecycle.free(managed, inner)
            });
        } else if inner.record.has_leftovers {
            let what = format!("a server failed when {path} was truncated and holds bytes beyond its size");
            report.add_repair(what, "they are truncated", || self.truncation.tidy_locked(managed, inner, work));
        }
    }

    /// Objects that the record names and no server has, and objects of the file that the record does not name.
    fn check_objects(&self, managed: &Managed, inner: &Inner, inventories: &[Inventory<'_>], report: &mut Report) {
        if inner.freed {
            return;
        }
        let mut named: Vec<HashSet<ObjectName>> = inventories.iter().map(|_| HashSet::new()).collect();
        for (region, placed) in &inner.regions {
            let object = ObjectName { file: managed.file, region: *region, generation: placed.generation };
            for stripe in placed.layout.stripes() {
                if let Some(named) = named.get_mut(usize::from(stripe.server.0)) {
                    named.insert(object);
                }
            }
        }
        let is_replica = |object: &ObjectName| {
            inner.replicas_of(object.region).any(|replica| replica.generation == object.generation)
        };
        for (inventory, named) in inventories.iter().zip(named) {
            if inventory.objects.is_none() {
                continue;
            }
            // Asked again one by one: the list may be older than the record.
            let missing = named.iter().filter(|object| inventory.lacks(object)).filter(|object| {
                matches!(inventory.server.size(**object), Err(stripewise_store::server::ServerError::Missing { .. }))
            });
            let missing: BTreeSet<_> = missing.map(|object| object.region).collect();
            // Of a removed file some objects may be freed already, while a server that holds others is away.
            let rescued = missing.iter().filter(|region| inner.replicas.contains_key(region)).count();
            if let Some(first) = missing.first().filter(|_| !matches!(inner.record.state, FileState::Unlinked)) {
                report.add(
                    format!(
                        "{} of the regions of {} lack their object on server {} (the first is region {first}): {}",
                        missing.len(),
                        inner.record.path,
                        inventory.server.name(),
                        match rescued {
                            0 => "reading them fails".to_owned(),
                            _ if rescued == missing.len() => "they are read from replicas".to_owned(),
                            _ => format!("{rescued} are read from replicas, reading the others fails"),
                        }
                    ),
                    "restore the server's directory from a backup; what cannot be restored is lost",
                    false,
                );
            }
            // Those of moves under way, or waiting for their last reader, are known.
            let is_known = |object: &ObjectName| {
                named.contains(object)
                    || is_replica(object)
                    || inner.discards.contains_key(&(object.region, object.generation))
                    || inner.logs.iter().any(|(disk, log)| {
                        log.on == inventory.number && log_object(managed.file, *disk, *log) == *object
                    })
            };
            let is_gone = |object: &ObjectName| {
                matches!(inventory.server.size(*object), Err(stripewise_store::server::ServerError::Missing { .. }))
            };
            let unknown = inventory.of(managed.file).filter(|object| !is_known(object));
            let orphans: Vec<_> = unknown.filter(|object| !is_gone(object)).collect();
            if !orphans.is_empty() {
                let what = format!(
                    "{} objects on server {} are left over from {}",
                    orphans.len(),
                    inventory.server.name(),
                    inner.record.path
                );
                report.add_repair(what, "they are removed", || {
                    orphans.iter().try_for_each(|object| Ok(inventory.server.remove(**object)?))
                });
            }
        }
    }

    /// Replicas that lack an object: reads pass them over, and the first write would forget them.
    fn check_replicas(&self, managed: &Managed, inner: &mut Inner, inventories: &[Inventory<'_>], report: &mut Report) {
        let mut lacking: BTreeMap<ServerId, Vec<RegionIndex>> = BTreeMap::new();
        for (region, replicas) in &inner.replicas {
            for replica in replicas.values() {
                let object = ObjectName { file: managed.file, region: *region, generation: replica.generation };
                for stripe in replica.layout.stripes() {
                    let Some(inventory) = inventories.get(usize::from(stripe.server.0)) else { continue };
                    // Asked again: the list may be older than the record.
                    if inventory.lacks(&object)
                        && matches!(
                            inventory.server.size(object),
                            Err(stripewise_store::server::ServerError::Missing { .. })
                        )
                    {
                        lacking.entry(inventory.number).or_default().push(*region);
                    }
                }
            }
        }
        for (server, mut regions) in lacking {
            regions.dedup();
            let what = format!(
                "{} of the regions of {} lack the object of a replica on server {} (the first is region {}): they are read from other replicas",
                regions.len(),
                inner.record.path,
                inventories[usize::from(server.0)].server.name(),
                regions[0]
            );
            let remedy = "their replicas are forgotten; `stripewise sync` makes new ones";
            report.add_repair(what, remedy, || self.replicas.forget_replicas(managed, inner, &regions));
        }
    }

    fn check_fallbacks(&self, inner: &Inner, report: &mut Report) {
        let count = inner.regions.values().filter(|placed| placed.fell_back).count();
        if count > 0 {
            report.add(
                format!(
                    "{count} of {} regions of {} lie in the fallback layout, because their own had no free space or servers that could not be used",
                    inner.regions.len(),
                    inner.record.path
                ),
                "free some space, or see to the servers; then move them with `stripewise restripe`",
                false,
            );
        }
    }

    /// Objects of files that the table does not know. Ids are random and never used again, and a file is recorded before its first object.
    fn check_unknown_files(&self, inventories: &[Inventory<'_>], report: &mut Report) {
        for inventory in inventories {
            let files: BTreeSet<FileId> = inventory.files().collect();
            // Asked again: of a file that was freed meanwhile the list still has the objects.
            let remains = |file: FileId| {
                inventory.of(file).any(|object| {
                    !matches!(
                        inventory.server.size(*object),
                        Err(stripewise_store::server::ServerError::Missing { .. })
                    )
                })
            };
            let unknown = files.into_iter().filter(|file| matches!(self.context.table().file(*file), Ok(None)));
            let unknown: Vec<FileId> = unknown.filter(|file| remains(*file)).collect();
            if !unknown.is_empty() {
                let (count, number) = (unknown.len(), inventory.number);
                let what = format!(
                    "server {} (number {number}) holds objects of {count} files that are not in the mapping table",
                    inventory.server.name()
                );
                let remedy = "they are removed (not if the state directory is an old backup: then stubs of these files may exist)";
                report.add_repair(what, remedy, || {
                    unknown.iter().try_for_each(|file| Ok(inventory.server.remove_file(*file)?))
                });
            }
        }
    }
}
