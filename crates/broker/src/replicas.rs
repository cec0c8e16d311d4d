//! Replicas: further copies of regions in other layouts, which reads may use.
//!
//! A replica that has a record equals its region's place. The first write to such a region has its replicas forgotten (`Request::Pin`): one durable batch
//! turns their records into discards, the control block stops showing them, then the writer goes on in the place; their objects are freed when the last
//! reader has left them. They are rebuilt, from the whole of the place, by a *sync* (`moves::moving`): on request, when the last
//! writer closes the file, and when nobody has written it for a while.
//!
//! Where we left the design:
//! - The primary that all writes go to until the next sync is always the place. The design pins the cheapest layout at the first write; here the plan
//!   has chosen the place for the writes already, and a region's word need not change to be written.
//! - A stale replica is not kept to be brought up to date: it goes, and a sync makes a new generation. That needs no record of what differs, and a
//!   crash at any step leaves either a whole replica or a discard. The price is copying all of a region of which little changed.
//! - All replicas of a region are made by one sync. One made while others are there would have writers of the moving region ask for them.
//!
//! Replicas only get room that places and moves do not need: who finds no space takes it back from them and tries again.
//!
//! A place that cannot be reached any more, while a replica can, is given up for the replica before anything is forgotten.

use crate::capacity::{Capacity, Full, shares};
use crate::context::Context;
use crate::describing::Describing;
use crate::discards::Discards;
use crate::drained::Drained;
use crate::files::Files;
use crate::guard;
use crate::idleness::Idle;
use crate::log::note;
use crate::managed::{Inner, Managed};
use crate::move_queue::{Class, Entry, MoveQueue, pairs};
use crate::objects::stripe_servers;
use crate::quiescing::Quiescing;
use crate::rmt::{Changes, RegionRecord};
use crate::standing::Standings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::{Direction, FileId, Generation, Layout, RegionIndex, ServerId};
use stripewise_store::protocol::{Refusal, ReplicaInfo, Reply, WantedReplicas};
use stripewise_store::server::{ObjectName, Operation, Ownership};
use stripewise_store::shared::control::{MAX_REGIONS, MAX_REPLICAS};

/// How long readers of replicas are waited for by who needs the room.
const PATIENCE: Duration = Duration::from_secs(2);
/// Layouts wanted for one file, as many as a packet surely holds.
const MAX_WANTED_STRIPES: usize = 8192;

/// Further copies of regions.
pub(crate) struct Replicas {
    context: Arc<Context>,
    capacity: Arc<Capacity>,
    drained: Arc<Drained>,
    quiescing: Arc<Quiescing>,
    files: Arc<Files>,
    describing: Arc<Describing>,
    discards: Arc<Discards>,
    idle: Arc<Idle>,
    queue: Arc<MoveQueue>,
}

impl Replicas {
    #[allow(clippy::too_many_arguments, reason = "one for each part that it uses")]
    pub(crate) fn new(
        context: &Arc<Context>,
        capacity: &Arc<Capacity>,
        drained: &Arc<Drained>,
        quiescing: &Arc<Quiescing>,
        files: &Arc<Files>,
        describing: &Arc<Describing>,
        discards: &Arc<Discards>,
        idle: &Arc<Idle>,
        queue: &Arc<MoveQueue>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            capacity: Arc::clone(capacity),
            drained: Arc::clone(drained),
            quiescing: Arc::clone(quiescing),
            files: Arc::clone(files),
            describing: Arc::clone(describing),
            discards: Arc::clone(discards),
            idle: Arc::clone(idle),
            queue: Arc::clone(queue),
        }
    }

    /// See [`stripewise_store::protocol::Admin::SetReplicas`].
    pub(crate) fn set_wanted(&self, file: FileId, wanted: Vec<WantedReplicas>) -> Result<(), Refusal> {
        self.check_wanted(&wanted)?;
        let managed = self.files.managed(file)?;
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(Refusal::UnknownFile { file });
        }
        let mut changes = Changes::default();
        changes.put_wanted(file, &wanted);
        self.context.table().commit(&changes)?;
        inner.wanted = wanted;
        let is_superfluous = |region: &RegionIndex| {
            let wanted = self.wanted_of(&inner, *region);
            inner.replicas_of(*region).any(|replica| !wanted.contains(&replica.layout))
        };
        let superfluous: Vec<RegionIndex> = inner.replicas.keys().copied().filter(is_superfluous).collect();
        self.forget_replicas(&managed, &mut inner, &superfluous)?;
        drop(inner);
        self.watch_for_idleness(file);
        Ok(())
    }

    pub(crate) fn check_wanted(&self, wanted: &[WantedReplicas]) -> Result<(), Refusal> {
        let stripes = || wanted.iter().flat_map(|replica| replica.layout.stripes());
        let invalid = |what| Err(Refusal::Invalid { what });
        if stripes().count() > MAX_WANTED_STRIPES {
            return Err(Refusal::TooLarge {
                what: format!("replicas with {} stripes; {MAX_WANTED_STRIPES} are taken at most", stripes().count()),
            });
        }
        if let Some(stripe) = stripes().find(|stripe| usize::from(stripe.server.0) >= self.context.servers().len()) {
            let servers = self.context.servers().len();
            return invalid(format!("a replica names server {}, but the cluster has {servers}", stripe.server));
        }
        let beyond =
            |wanted: &&WantedReplicas| u64::from(wanted.first.0) + u64::from(wanted.regions) > u64::from(MAX_REGIONS);
        match wanted.iter().find(|wanted| wanted.regions == 0 || beyond(wanted)) {
            Some(wrong) => invalid(format!(
                "a replica of {} regions from {} on: a file has regions 0 to {}",
                wrong.regions,
                wrong.first,
                MAX_REGIONS - 1
            )),
            None => Ok(()),
        }
    }

    /// The layouts of the replicas that the region is to have: in the order in which they were asked for, without its place's own and without
    /// what needs a drained server.
    pub(crate) fn wanted_of(&self, inner: &Inner, region: RegionIndex) -> Vec<Layout> {
        let place = inner.regions.get(&region).map(|placed| &placed.layout);
        let mut layouts: Vec<Layout> = Vec::new();
        for wanted in &inner.wanted {
            let is_inside = region.0.checked_sub(wanted.first.0).is_some_and(|number| number < wanted.regions);
            if is_inside
                && Some(&wanted.layout) != place
                && !layouts.contains(&wanted.layout)
                && layouts.len() < MAX_REPLICAS
                && self.drained.check_drained(&wanted.layout).is_ok()
            {
                layouts.push(wanted.layout.clone());
            }
        }
        layouts
    }

    pub(crate) fn lacks_replicas(&self, inner: &Inner, region: RegionIndex) -> bool {
        !inner.wanted.is_empty()
            && inner.regions.contains_key(&region)
            && self
                .wanted_of(inner, region)
                .iter()
                .any(|layout| inner.replicas_of(region).all(|had| had.layout != *layout))
    }

    pub(crate) fn replica_infos(&self, inner: &Inner, region: RegionIndex) -> Vec<ReplicaInfo> {
        let fresh: Vec<&Layout> = inner.replicas_of(region).map(|replica| &replica.layout).collect();
        let wanted = self.wanted_of(inner, region);
        let info = |layout: &Layout, fresh| ReplicaInfo { stripes: pairs(layout), fresh };
        let missing = wanted.iter().filter(|layout| !fresh.contains(layout)).map(|layout| info(layout, false));
        fresh.iter().map(|layout| info(layout, true)).chain(missing).collect()
    }

    /// See [`Reply::Replicas`].
    pub(crate) fn replica_totals(&self, file: FileId) -> Result<Reply, Refusal> {
        let managed = self.files.managed(file)?;
        // Before the regions are looked at: what ends in between is seen there.
        let syncing = self.queue.syncs_of(file);
        let inner = guard(&managed.inner);
        let (mut wanted, mut fresh) = (0, 0);
        if !inner.wanted.is_empty() {
            for region in inner.regions.keys() {
                let infos = self.replica_infos(&inner, *region);
                wanted += infos.len() as u64;
                fresh += infos.iter().filter(|info| info.fresh).count() as u64;
            }
        }
        let lacking = inner.lacking.iter().find(|(region, _)| self.lacks_replicas(&inner, **region));
        let why = lacking.map(|(region, why)| format!("region {region}: {why}"));
        Ok(Reply::Replicas { wanted, fresh, syncing, why })
    }

    /// Queues syncs of all regions that lack replicas.
    pub(crate) fn queue_syncs(&self, managed: &Managed) -> Result<(), Refusal> {
        let mut inner = guard(&managed.inner);
        if inner.freed || inner.wanted.is_empty() {
            return Ok(());
        }
        let lacking: Vec<RegionIndex> =
            inner.regions.keys().copied().filter(|region| self.lacks_replicas(&inner, *region)).collect();
        inner.lacking.clear();
        self.queue_sync_of(managed, &inner, &lacking)
    }

    /// Before the first write to these regions: see [`stripewise_store::protocol::Request::Pin`].
    pub(crate) fn pin(&self, managed: &Managed, first: RegionIndex, last: RegionIndex) -> Result<(), Refusal> {
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(Refusal::UnknownFile { file: managed.file });
        }
        if first > last {
            return Err(Refusal::Invalid { what: format!("regions {first} to {last}: there are none") });
        }
        let regions: Vec<RegionIndex> = inner.replicas.range(first..=last).map(|(region, _)| *region).collect();
        self.forget_replicas(managed, &mut inner, &regions)
    }

    /// From now on these regions lie at their places only, durably. Where a place cannot be reached, a replica that can takes its part; where
    /// none can be reached, nothing is forgotten and that is the error.
    pub(crate) fn forget_replicas(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        regions: &[RegionIndex],
    ) -> Result<(), Refusal> {
        let file = managed.file;
        if inner.freed {
            return Ok(());
        }
        let mut changes = Changes::default();
        let mut promoted: BTreeMap<RegionIndex, RegionRecord> = BTreeMap::new();
        let mut discards: Vec<((RegionIndex, Generation), Layout)> = Vec::new();
        for region in regions {
            let Some(replicas) = inner.replicas.get(region) else { continue };
            let place = &inner.regions[region];
            let mut kept = place.generation;
            if let Err(refusal) = self.reach(file, *region, place.generation, &place.layout) {
                let is_whole = |(_, replica): &(&u8, &crate::rmt::ReplicaRecord)| {
                    self.reach(file, *region, replica.generation, &replica.layout).is_ok()
                };
                let Some((_, replica)) = replicas.iter().find(is_whole) else { return Err(refusal) };
                kept = replica.generation;
                let layout = replica.layout.clone();
                promoted.insert(*region, RegionRecord::placed(kept, layout));
            }
            for number in replicas.keys() {
                changes.remove_replica(file, *region, *number);
            }
            let copies = replicas.values().map(|replica| (replica.generation, &replica.layout));
            for (generation, layout) in copies.chain([(place.generation, &place.layout)]) {
                if generation != kept {
                    changes.put_discard(file, *region, generation, layout);
                    discards.push(((*region, generation), layout.clone()));
                }
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        for (region, record) in &promoted {
            changes.put_region(file, *region, record);
        }
        for (region, record) in &promoted {
            let former = crate::describing::servers_of([&inner.regions[region].layout]);
            self.describing.describe_instead(managed, inner, (*region, record), &former)?;
        }
        self.context.step("replicas: before the mark");
        self.context.table().commit(&changes)?;
        self.context.step("replicas: marked stale");
        for (region, record) in promoted {
            note!(self.context.log(), info, path = %inner.record.path, %region, "a region now lies where its replica did");
            managed.control.regions().publish(file, region, record.generation, &record.layout)?;
            inner.regions.insert(region, record);
        }
        for region in regions {
            inner.replicas.remove(region);
            managed.show_replicas(inner, *region)?;
        }
        self.context.step("replicas: hidden");
        inner.forgotten.extend(discards.iter().map(|(key, _)| *key));
        inner.discards.extend(discards);
        self.discards.check_again(file);
        self.watch_for_idleness(file);
        Ok(())
    }

    /// Whether every object of a copy is there.
    fn reach(&self, file: FileId, region: RegionIndex, generation: Generation, layout: &Layout) -> Result<(), Refusal> {
        let object = ObjectName { file, region, generation };
        let calls =
            stripe_servers(layout).flat_map(|server| [(server, Operation::Probe), (server, Operation::Size(object))]);
        Ok(self.context.perform_together(calls).into_iter().try_for_each(|outcome| outcome.map(drop))?)
    }

    /// Replicas take over mode and owner; those that cannot are forgotten.
    pub(crate) fn own_replicas(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        ownership: Ownership,
    ) -> Result<(), Refusal> {
        let replicas =
            inner.replicas.keys().flat_map(|region| inner.replicas_of(*region).map(|replica| (*region, replica)));
        let objects: Vec<(ServerId, ObjectName)> = replicas
            .flat_map(|(region, replica)| {
                let object = ObjectName { file: managed.file, region, generation: replica.generation };
                stripe_servers(&replica.layout).map(move |server| (server, object))
            })
            .collect();
        let own = |(server, object): &(ServerId, ObjectName)| (*server, Operation::SetOwnership(*object, ownership));
        let owned = self.context.perform_together(objects.iter().map(own));
        let failed = objects.iter().zip(owned).filter(|(_, outcome)| outcome.is_err());
        let failed: BTreeSet<RegionIndex> = failed.map(|((_, object), _)| object.region).collect();
        let failed: Vec<RegionIndex> = failed.into_iter().collect();
        self.forget_replicas(managed, inner, &failed)
    }

    pub(crate) fn has_space(&self, layout: &Layout, region_bytes: u64) -> bool {
        let mut standings = Standings::new(self.context.servers());
        standings.check(layout).is_ok() && self.capacity.reserve(&standings).take(layout, region_bytes).is_ok()
    }

    /// Frees replicas until the server has what it lacked, as far as they go. False: there was nothing to free. No file's lock may be held.
    pub(crate) fn take_back(&self, full: &Full) -> bool {
        let Ok(replicas) = self.context.table().replicas(None) else { return false };
        let mut lacking_bytes = full.asked_bytes.saturating_sub(full.left_bytes);
        let mut chosen: BTreeMap<FileId, Vec<RegionIndex>> = BTreeMap::new();
        // The last regions first: what is read in order is most often read from the start.
        for (file, region, _, replica) in replicas.into_iter().rev() {
            if lacking_bytes == 0 {
                break;
            }
            let Ok(managed) = self.files.managed(file) else { continue };
            let of_server = shares(&replica.layout, managed.control.region_bytes());
            let bytes: u64 = of_server.filter(|(server, _)| *server == full.server).map(|(_, bytes)| bytes).sum();
            if bytes > 0 {
                lacking_bytes = lacking_bytes.saturating_sub(bytes);
                chosen.entry(file).or_default().push(region);
            }
        }
        self.give_up(chosen).is_ok_and(|freed| freed > 0)
    }

    /// Forgets and frees the replicas of these regions, but for such as stand in for a place that is lost; returns of how many regions. The
    /// first fault is an error if none was. No file's lock may be held.
    fn give_up(&self, chosen: BTreeMap<FileId, Vec<RegionIndex>>) -> Result<usize, Refusal> {
        let (mut given_up, mut first_fault) = (0, None);
        for (file, regions) in chosen {
            let Ok(managed) = self.files.managed(file) else { continue };
            for region in regions {
                let mut inner = guard(&managed.inner);
                match self.forget_replicas(&managed, &mut inner, &[region]) {
                    Ok(()) => given_up += 1,
                    Err(refusal) => _ = first_fault.get_or_insert(refusal),
                }
            }
            self.discards.free_forgotten(&managed, PATIENCE);
        }
        match first_fault {
            Some(refusal) if given_up == 0 => Err(refusal),
            _ => Ok(given_up),
        }
    }

    /// No replica lies on the server any more, but for those that cannot be given up; the others of the same regions are rebuilt.
    pub(crate) fn leave_server(&self, server: ServerId) -> Result<(), Refusal> {
        let mut chosen: BTreeMap<FileId, Vec<RegionIndex>> = BTreeMap::new();
        for (file, region, _, replica) in self.context.table().replicas(None)? {
            if replica.layout.stripes().iter().any(|stripe| stripe.server == server) {
                chosen.entry(file).or_default().push(region);
            }
        }
        self.give_up(chosen).map(drop)
    }

    /// The connection has closed the file; if it was the last that could write, the replicas are rebuilt.
    pub(crate) fn left(&self, managed: &Managed, connection: u64) {
        let was_last_writer = {
            let mut inner = guard(&managed.inner);
            inner.openers.remove(&connection);
            inner.writers.remove(&connection) && inner.writers.is_empty()
        };
        if was_last_writer && let Err(refusal) = self.queue_syncs(managed) {
            note!(self.context.log(), warn, file = %managed.file, error = %refusal, "replicas are not made yet");
        }
    }

    /// The file may lack replicas: they are made when nobody has written it for a while.
    pub(crate) fn watch_for_idleness(&self, file: FileId) {
        if self.idle.watch(file) {
            self.queue.wake();
        }
    }

    /// Queues syncs of files that nobody has written for a while.
    pub(crate) fn sync_what_is_idle(&self) {
        for (file, before) in self.idle.files() {
            // An unloaded file is watched again when it is loaded.
            let Some(managed) = self.files.if_loaded(file) else {
                self.idle.forget(file);
                continue;
            };
            let writes = |slot| managed.slots.in_flight(slot).any(|io| io.direction == Direction::Write);
            let mark =
                managed.extent.writes_mark(managed.extent.size_bytes().div_ceil(managed.control.region_bytes()) as u32);
            let is_written = self.quiescing.users(&managed).into_iter().any(|(slot, _)| writes(slot));
            if self.idle.check(file, before, mark, is_written)
                && let Err(refusal) = self.queue_syncs(&managed)
            {
                note!(self.context.log(), warn, %file, error = %refusal, "replicas are not made yet");
            }
        }
    }

    /// Queues syncs of these regions, whose file is `managed`.
    pub(crate) fn queue_sync_of(
        &self,
        managed: &Managed,
        inner: &Inner,
        regions: &[RegionIndex],
    ) -> Result<(), Refusal> {
        let (path, size_bytes): (Arc<str>, _) = (inner.record.path.as_str().into(), managed.extent.size_bytes());
        let entry = |region: &RegionIndex| {
            let total_bytes = inner.geometry().used_bytes(*region, size_bytes);
            Entry::new((managed.file, &path), (*region, Vec::new()), (None, Class::Sync), total_bytes)
        };
        self.queue.add(regions.iter().map(entry).collect()).map(drop)
    }
}
