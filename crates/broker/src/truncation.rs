//! Truncation: the one change for which a file is held exclusively.
//!
//! The gate is shut, every I/O in flight ends, the intent is made durable, objects are cut, the table forgets what is cut off, and the gate opens:
//! in the order of [`Truncating`], which the model of several hosts goes by too.
//! A crash after the intent is followed by the same cut when the file is next loaded. Regions wholly beyond the new size lose their objects
//! and become absent, so their room is free again; their generation numbers are not used again.
//!
//! Objects may hold bytes beyond the file's size, left by writers that died before they published the size; they are cut before an
//! extension could let them appear. Where a host may have known of a longer file that cannot be asked any more, the size is raised to them first ([`sizes`]).

mod repeated;
mod unknown;

use crate::capacity::Capacity;
use crate::connection::Requester;
use crate::context::Context;
use crate::describing::Describing;
use crate::fencing;
use crate::fragments::WriteBack;
use crate::guard;
use crate::log::note;
use crate::managed::{Inner, Managed, Work};
use crate::objects::stripe_servers;
use crate::quiescing::{Quiescing, ShutGate};
use crate::replicas::Replicas;
use crate::rmt::{Changes, FileRecord, RegionRecord, ReplicaRecord};
use crate::sizes;
use repeated::UnderWay;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, MutexGuard};
use stripewise_coherence::truncating::{Act, Truncating};
use stripewise_layout::{FileId, FileOffset, Generation, Layout, RegionGeometry, RegionIndex, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectName, Operation, ServerError};
use stripewise_store::shared::control::RegionState;

/// How often hosts are asked again that did not answer.
const MAX_TRIES: u32 = 8;

/// Sets sizes, and cuts what lies beyond.
pub(crate) struct Truncation {
    context: Arc<Context>,
    capacity: Arc<Capacity>,
    quiescing: Arc<Quiescing>,
    describing: Arc<Describing>,
    replicas: Arc<Replicas>,
    write_back: Arc<WriteBack>,
}

impl Truncation {
    pub(crate) fn new(
        context: &Arc<Context>,
        capacity: &Arc<Capacity>,
        quiescing: &Arc<Quiescing>,
        describing: &Arc<Describing>,
        replicas: &Arc<Replicas>,
        write_back: &Arc<WriteBack>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            capacity: Arc::clone(capacity),
            quiescing: Arc::clone(quiescing),
            describing: Arc::clone(describing),
            replicas: Arc::clone(replicas),
            write_back: Arc::clone(write_back),
        }
    }

    /// Sets the file's size, once for each truncation that a client asks for, and only for a client that is still there. `number`: see [`Request::Truncate`].
    ///
    /// [`Request::Truncate`]: stripewise_store::protocol::Request::Truncate
    pub(crate) fn truncate(
        &self,
        managed: &Managed,
        size_bytes: u64,
        number: u64,
        by: &Requester<'_>,
    ) -> Result<(), Refusal> {
        self.context.step("truncate: asked");
        let mut work = managed.fragments.hold();
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(Refusal::UnknownFile { file: managed.file });
        }
        if self.is_truncation_done(by) {
            return Ok(());
        }
        self.settle_record(managed, &mut inner)?;
        let number = Some(number).filter(|number| *number != 0 && self.context.is_shared());
        if number.is_some_and(|number| inner.record.truncation_numbers.contains(&number)) {
            // A master before, whose host may have stood still, is not in the midst of it any more once all hosts have answered.
            let (gate, _inner) = self.shut(managed, inner)?;
            drop(gate);
            return Ok(());
        }
        let geometry = inner.geometry();
        let most = geometry.region_bytes().saturating_mul(u64::from(stripewise_store::shared::control::MAX_REGIONS));
        if size_bytes > most {
            return Err(Refusal::TooLarge {
                what: format!(
                    "{size_bytes} bytes; a file with regions of {} bytes ends at {most}",
                    geometry.region_bytes()
                ),
            });
        }
        let before = managed.extent.size_bytes();
        let may_have_leftovers = inner
            .regions
            .last_key_value()
            .is_some_and(|(last, _)| geometry.start_of(RegionIndex(last.0 + 1)).0 > before.min(size_bytes));
        // Another host may know of a longer file than this one.
        let is_elsewhere = self.context.is_elsewhere(managed.file);
        if size_bytes >= before && !may_have_leftovers && !inner.record.has_leftovers && !is_elsewhere {
            let under_way = UnderWay::begin(&self.context, managed, by, size_bytes, true);
            self.record_extension(managed, &mut inner, size_bytes, number)?;
            managed.extent.extend_to(size_bytes);
            self.context.step("truncate: extended");
            under_way.note_done();
            return Ok(());
        }
        let (gate, again) = self.shut(managed, inner)?;
        inner = again;
        let _gate = gate;
        self.context.step("truncate: drained");
        self.must_be_there(by, managed.file)?;
        let under_way = UnderWay::begin(&self.context, managed, by, size_bytes, false);
        // Writers that were in flight may have raised it.
        let before = managed.extent.size_bytes();
        if size_bytes >= before {
            self.truncate_leftovers(managed, &mut inner, &mut work)?;
            self.record_extension(managed, &mut inner, size_bytes, number)?;
            under_way.note_done();
            managed.extent.extend_to(size_bytes);
            return Ok(());
        }
        // Before anything is changed: an absent server is an error with no effect.
        self.probe_truncation(&inner, size_bytes)?;
        self.write_back.write_back_across(managed, &inner, &mut work, size_bytes)?;
        let note_done = || under_way.note_done();
        self.carry_out(Truncating::new(), managed, (&mut inner, &mut work), (size_bytes, number), note_done)
    }

    /// Stops all I/O on the file, under its lock. A host that is just coming back has its turn before it is asked again. One whose link ended in the middle
    /// of this is back or shut out the next time.
    fn shut<'a>(
        &'a self,
        managed: &'a Managed,
        mut inner: MutexGuard<'a, Inner>,
    ) -> Result<(ShutGate<'a>, MutexGuard<'a, Inner>), Refusal> {
        let mut tries = 0;
        loop {
            let shut = self.quiescing.shut(managed).and_then(|gate| {
                gate.drain()?;
                sizes::take_owed(&self.context, managed, &inner)?;
                Ok(gate)
            });
            let refusal = match shut {
                Ok(gate) => return Ok((gate, inner)),
                Err(refusal) => refusal,
            };
            drop(inner);
            tries += 1;
            let is_coming = self.context.others().is_some_and(|others| others.wait_for_coming(managed.file));
            let settles_soon = || matches!(refusal, Refusal::Busy { .. }) && fencing::settles_soon(&self.context);
            if !(is_coming || settles_soon()) || tries == MAX_TRIES {
                return Err(refusal);
            }
            inner = guard(&managed.inner);
            if inner.freed {
                return Err(Refusal::UnknownFile { file: managed.file });
            }
        }
    }

    /// Cuts what a failed write or a failed cut left beyond the size.
    pub(crate) fn tidy(&self, managed: &Managed) -> Result<(), Refusal> {
        let mut work = managed.fragments.hold();
        self.tidy_locked(managed, &mut guard(&managed.inner), &mut work)
    }

    pub(crate) fn tidy_locked(&self, managed: &Managed, inner: &mut Inner, work: &mut Work) -> Result<(), Refusal> {
        if inner.freed {
            return Err(Refusal::UnknownFile { file: managed.file });
        }
        self.settle_record(managed, inner)?;
        let gate = self.quiescing.shut(managed)?;
        gate.drain()?;
        sizes::take_owed(&self.context, managed, inner)?;
        self.truncate_leftovers(managed, inner, work)
    }

    fn probe_truncation(&self, inner: &Inner, size_bytes: u64) -> Result<(), Refusal> {
        let servers: BTreeSet<ServerId> =
            affected(inner, size_bytes).flat_map(|(_, placed)| stripe_servers(&placed.layout)).collect();
        let probed = self.context.perform_together(servers.into_iter().map(|server| (server, Operation::Probe)));
        Ok(probed.into_iter().try_for_each(|outcome| outcome.map(drop))?)
    }

    /// Does what a recorded intent says; the gate is shut and nothing in flight. Objects that cannot be removed become orphans; when one
    /// cannot be cut, the file has its new size, what is left over is noted for a later try, and the fault is returned. `note_done` is called right
    /// before the size is set.
    pub(crate) fn finish_truncation(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        work: &mut Work,
        size_bytes: u64,
        note_done: impl FnOnce(),
    ) -> Result<(), Refusal> {
        let number = inner.record.truncating_number;
        self.carry_out(Truncating::recorded(), managed, (inner, work), (size_bytes, number), note_done)
    }

    /// Does what is left of a truncation.
    fn carry_out(
        &self,
        left: Truncating,
        managed: &Managed,
        (inner, work): (&mut Inner, &mut Work),
        (size_bytes, number): (u64, Option<u64>),
        note_done: impl FnOnce(),
    ) -> Result<(), Refusal> {
        let (mut removed, mut note_done) = (Removed::default(), Some(note_done));
        for act in left {
            match act {
                Act::EndMoves => {
                    self.quiescing.end_moves(managed, inner, "the file was truncated");
                    // A replica's server that is away must not fail the cut.
                    let first = inner.geometry().locate(FileOffset(size_bytes)).0;
                    self.replicas.forget_replicas(managed, inner, &[first])?;
                }
                Act::Record => self.record_intent(managed, inner, size_bytes, number)?,
                Act::Remove => removed = self.remove_beyond(managed, inner, work, size_bytes)?,
                Act::SetSize => {
                    if let Some(note_done) = note_done.take() {
                        note_done();
                    }
                    self.context.step("truncate: noted");
                    // Before the intent goes: after a crash the shared size counts.
                    managed.truncations.fetch_add(1, SeqCst);
                    managed.extent.truncate_to(size_bytes);
                    managed.note_truncations();
                    managed.control.set_durable_size_bytes(Some(size_bytes));
                    self.context.step("truncate: size set");
                    managed.control.notices().set_leftovers(removed.fault.is_some());
                }
                Act::Forget => self.forget_intent(managed, inner, (size_bytes, number), &removed)?,
            }
        }
        removed.fault.map_or(Ok(()), Err)
    }

    /// What the table is to say of the truncation under way, `ahead` of those that the file's master has counted.
    fn truncations_of(&self, managed: &Managed, inner: &Inner, ahead: u64) -> u64 {
        match self.context.is_shared() {
            true => managed.truncations.load(SeqCst) + ahead,
            false => inner.record.truncations,
        }
    }

    /// Where hosts share the file: the next master is not to do it again, when others have made the file longer still. It knows the size with it.
    fn record_extension(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        size_bytes: u64,
        number: Option<u64>,
    ) -> Result<(), Refusal> {
        if number.is_none() {
            return Ok(());
        }
        let record = FileRecord { size_bytes, is_size_untold: true, ..inner.record.clone() }.with_truncation(number);
        let mut changes = Changes::default();
        changes.put_file(managed.file, &record);
        self.context.table().commit(&changes)?;
        inner.record = record;
        Ok(())
    }

    fn record_intent(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        size_bytes: u64,
        number: Option<u64>,
    ) -> Result<(), Refusal> {
        if affected(inner, size_bytes).next().is_some() {
            self.context.step("truncate: before the intent");
            let truncations = self.truncations_of(managed, inner, 1);
            let truncating_to_bytes = Some(size_bytes);
            let record =
                FileRecord { truncating_to_bytes, truncating_number: number, truncations, ..inner.record.clone() };
            let mut changes = Changes::default();
            changes.put_file(managed.file, &record);
            if let Err(error) = self.context.table().commit(&changes) {
                self.read_intent(managed, size_bytes, error)?;
            }
            inner.record = record;
            self.context.step("truncate: intent recorded");
        }
        Ok(())
    }

    fn remove_beyond(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        work: &mut Work,
        size_bytes: u64,
    ) -> Result<Removed, Refusal> {
        let entries_truncated = self.write_back.truncate_entries(managed, inner, work, size_bytes);
        self.context.step("truncate: entries truncated");
        self.describing.describe_truncation(managed, inner, size_bytes).inspect_err(|_| self.keep_shut(managed))?;
        self.context.step("truncate: described");
        let count = inner.geometry().count_for(size_bytes);
        let regions = inner.regions.split_off(&RegionIndex(count));
        let replicas = inner.replicas.split_off(&RegionIndex(count));
        regions.keys().chain(replicas.keys()).for_each(|region| managed.control.regions().retract(*region));
        let places = regions.iter().map(|(region, placed)| (*region, placed.generation, &placed.layout));
        let objects = objects_of(managed.file, places.chain(copies(&replicas)));
        let removal =
            |(server, object, ..): (ServerId, ObjectName, usize, &Layout)| (server, Operation::Remove(object));
        for error in self.context.perform_together(objects.map(removal)).into_iter().filter_map(Result::err) {
            note!(self.context.log(), warn, path = %inner.record.path, %error, "an object beyond the new size stays behind for `check`");
        }
        self.context.step("truncate: regions removed");
        let truncated = entries_truncated.and(self.truncate_leftovers_to(managed, inner, size_bytes));
        self.context.step("truncate: objects truncated");
        Ok(Removed { regions, replicas, fault: truncated.err() })
    }

    fn forget_intent(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        (size_bytes, number): (u64, Option<u64>),
        removed: &Removed,
    ) -> Result<(), Refusal> {
        let has_leftovers = removed.fault.is_some();
        let truncations = self.truncations_of(managed, inner, 0);
        let record =
            FileRecord { truncating_to_bytes: None, has_leftovers, size_bytes, truncations, ..inner.record.clone() };
        let record = record.with_truncation(number);
        let mut changes = Changes::default();
        for region in removed.regions.keys() {
            changes.remove_region(managed.file, *region);
        }
        remove_records(&mut changes, managed.file, &removed.replicas);
        changes.put_file(managed.file, &record);
        let replicas = copies(&removed.replicas).map(|(_, _, layout)| layout);
        let layouts = removed.regions.values().map(RegionRecord::promised).chain(replicas);
        self.capacity.give_back(layouts, inner.geometry().region_bytes());
        if record != inner.record || !removed.regions.is_empty() {
            // If this fails the intent stays, and `note_truncation` drops it before anything is promised to last.
            self.context.table().commit(&changes).inspect_err(|_| self.keep_shut(managed))?;
        }
        self.context.step("truncate: recorded");
        inner.record = record;
        self.describing.describe_size(managed, inner, size_bytes, has_leftovers);
        Ok(())
    }

    /// Notes that the cut of the intent is done: its end could not be recorded then, and what lies beyond it by now was written since.
    pub(crate) fn note_truncation(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        truncated_to_bytes: u64,
    ) -> Result<(), Refusal> {
        // One less if it failed before the size was set: then hosts have gone on as of the one before.
        let truncations = self.truncations_of(managed, inner, 0);
        self.note_truncation_as(managed, inner, (truncated_to_bytes, truncations))
    }

    /// The same of a predecessor, which had let I/O go on: it failed before the size was set.
    pub(crate) fn note_truncation_of_predecessor(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        truncated_to_bytes: u64,
    ) -> Result<(), Refusal> {
        let truncations = inner.record.truncations.saturating_sub(1);
        self.note_truncation_as(managed, inner, (truncated_to_bytes, truncations))
    }

    fn note_truncation_as(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        (truncated_to_bytes, truncations): (u64, u64),
    ) -> Result<(), Refusal> {
        let count = inner.geometry().count_for(truncated_to_bytes);
        let mut changes = Changes::default();
        let mut gone = Vec::new();
        for (region, _) in self.context.table().regions(managed.file)? {
            if region.0 >= count && managed.control.regions().get(region) == RegionState::Absent {
                changes.remove_region(managed.file, region);
                gone.push(region);
            }
        }
        // With their replicas, of which the table may still tell when those of `inner` are gone.
        let mut replicas: ReplicaRecords = BTreeMap::new();
        for (_, region, number, replica) in self.context.table().replicas(Some(managed.file))? {
            if gone.contains(&region) {
                replicas.entry(region).or_default().insert(number, replica);
            }
        }
        remove_records(&mut changes, managed.file, &replicas);
        let size_bytes = managed.extent.size_bytes();
        let is_effective = truncations >= inner.record.truncations;
        let record = FileRecord { truncating_to_bytes: None, size_bytes, truncations, ..inner.record.clone() };
        let record = match is_effective {
            true => record.with_truncation(None),
            false => FileRecord { truncating_number: None, ..record },
        };
        changes.put_file(managed.file, &record);
        self.context.table().commit(&changes)?;
        inner.record = record;
        let placed: Vec<RegionRecord> = gone.iter().filter_map(|region| inner.regions.remove(region)).collect();
        let forgotten: ReplicaRecords =
            gone.iter().filter_map(|region| Some((*region, inner.replicas.remove(region)?))).collect();
        let layouts = placed.iter().map(RegionRecord::promised).chain(copies(&forgotten).map(|(_, _, layout)| layout));
        self.capacity.give_back(layouts, inner.record.region_bytes);
        Ok(())
    }

    /// Cuts what objects hold beyond the present size; nothing is in flight. A fault is noted for a later try.
    pub(crate) fn truncate_leftovers(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        work: &mut Work,
    ) -> Result<(), Refusal> {
        let size_bytes = managed.extent.size_bytes();
        let entries_truncated = self.write_back.truncate_entries(managed, inner, work, size_bytes);
        let truncated = entries_truncated.and(self.truncate_leftovers_to(managed, inner, size_bytes));
        self.quiescing.mark_truncated(managed, inner, size_bytes);
        managed.control.notices().set_leftovers(truncated.is_err());
        if truncated.is_err() != inner.record.has_leftovers {
            let record = FileRecord { has_leftovers: truncated.is_err(), ..inner.record.clone() };
            let mut changes = Changes::default();
            changes.put_file(managed.file, &record);
            self.context.table().commit(&changes)?;
            inner.record = record;
            self.describing.describe_size(managed, inner, size_bytes, truncated.is_err());
        }
        truncated
    }

    /// Counts as a write of every region that is cut: the next `fsync` syncs it, or after a power failure what was cut off might show in a hole.
    fn truncate_leftovers_to(&self, managed: &Managed, inner: &Inner, size_bytes: u64) -> Result<(), Refusal> {
        let geometry = inner.geometry();
        let length = |(server, object, turn, layout): (ServerId, ObjectName, usize, &Layout)| {
            (server, object, layout.view().object_bytes(turn, geometry.used_bytes(object.region, size_bytes)))
        };
        let objects: Vec<_> = objects_of(managed.file, beyond(inner, size_bytes)).map(length).collect();
        affected(inner, size_bytes).for_each(|(region, _)| managed.extent.begin_write(*region));
        let truncated = self.context.truncate_as_owner(&objects, inner.ownership());
        affected(inner, size_bytes).for_each(|(region, _)| managed.extent.end_write(*region));
        Ok(truncated.into_iter().collect::<Result<(), ServerError>>()?)
    }

    /// Makes the cut durable that follows another boot: what is found to be gone then stays gone, even if the size grows and the power goes again
    /// before the next `fsync`.
    pub(crate) fn sync_truncated(&self, managed: &Managed, inner: &Inner) -> Result<(), Refusal> {
        let objects = objects_of(managed.file, beyond(inner, managed.extent.size_bytes()));
        let objects: Vec<_> = objects.map(|(server, object, ..)| (server, object)).collect();
        self.context.sync_as_owner(&objects, inner.ownership())
    }
}

type ReplicaRecords = BTreeMap<RegionIndex, BTreeMap<u8, ReplicaRecord>>;

/// What lay beyond the size.
#[derive(Default)]
struct Removed {
    regions: BTreeMap<RegionIndex, RegionRecord>,
    replicas: ReplicaRecords,
    /// Something could not be cut.
    fault: Option<Refusal>,
}

fn copies(replicas: &ReplicaRecords) -> impl Iterator<Item = (RegionIndex, Generation, &Layout)> {
    let of_region = |(region, numbered): (&RegionIndex, _)| (*region, numbered);
    let all = replicas.iter().map(of_region);
    all.flat_map(|(region, numbered): (_, &BTreeMap<u8, ReplicaRecord>)| {
        numbered.values().map(move |replica| (region, replica.generation, &replica.layout))
    })
}

fn remove_records(changes: &mut Changes, file: FileId, replicas: &ReplicaRecords) {
    for (region, numbered) in replicas {
        numbered.keys().for_each(|number| changes.remove_replica(file, *region, *number));
    }
}

/// The objects of regions' places and replicas: each with its server, its turn in the layout, and the layout.
fn objects_of<'a>(
    file: FileId,
    regions: impl Iterator<Item = (RegionIndex, Generation, &'a Layout)>,
) -> impl Iterator<Item = (ServerId, ObjectName, usize, &'a Layout)> {
    regions.flat_map(move |(region, generation, layout)| {
        let object = ObjectName { file, region, generation };
        stripe_servers(layout).enumerate().map(move |(turn, server)| (server, object, turn, layout))
    })
}

/// Placed regions that reach beyond `size_bytes`.
fn affected(inner: &Inner, size_bytes: u64) -> impl Iterator<Item = (&RegionIndex, &RegionRecord)> {
    let geometry: RegionGeometry = inner.geometry();
    let first = u32::try_from(size_bytes / geometry.region_bytes()).unwrap_or(u32::MAX);
    inner.regions.range(RegionIndex(first)..)
}

/// Places and replicas of these regions.
fn beyond(inner: &Inner, size_bytes: u64) -> impl Iterator<Item = (RegionIndex, Generation, &Layout)> {
    let geometry = inner.geometry();
    let places = affected(inner, size_bytes).map(|(region, placed)| (*region, placed.generation, &placed.layout));
    let replicas =
        copies(&inner.replicas).filter(move |(region, ..)| geometry.start_of(RegionIndex(region.0 + 1)).0 > size_bytes);
    places.chain(replicas)
}
