//! Placing regions: objects on every server of the layout, then the durable record, then the control block.
//!
//! All regions of one request are placed together or none is. Requests on one file are served one at a time, so of many clients that reach
//! a new region at once the first has it placed and the others find it done. Order against crashes: generation numbers are reserved durably before objects are
//! made, and objects exist before the record names them; a crash in between leaves objects that no record names, which `check`
//! finds, and numbers that are never used.
//!
//! A file's first region may begin with the object of its first stripe alone ([`narrow`]).
//!
//! A server that cannot be used (gone, read-only, not answering, or failing to make an object) is left out, and the region noted as placed elsewhere than planned.

mod narrow;

use crate::capacity::{Capacity, Full, shares};
use crate::context::Context;
use crate::describing::Describing;
use crate::drained::Drained;
use crate::files::Files;
use crate::guard;
use crate::log::note;
use crate::managed::{Inner, Managed, memory_fault};
use crate::replicas::Replicas;
use crate::rmt::{Changes, FileRecord, FileState, RegionRecord};
use crate::standing::{RecentStandings, Standings};
use narrow::{is_within_first_stripe, narrowed};
use std::collections::BTreeSet;
use std::sync::Arc;
use stripewise_layout::figures::bytes;
use stripewise_layout::{FileId, Generation, Layout, Placement, RegionIndex, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{MAX_ORDINAL, ObjectName, Operation, ServerError};
use stripewise_store::shared::control::{ControlError, MAX_REGIONS};

/// Servers, one after the other, that replicas may have to leave for one request.
const MAX_TAKEN_BACK: usize = 64;

/// Generations reserved with a new file, and at least as many at a time later.
pub(crate) const RESERVE_FIRST: u32 = 64;

/// Gives regions objects.
pub(crate) struct Placer {
    context: Arc<Context>,
    capacity: Arc<Capacity>,
    drained: Arc<Drained>,
    describing: Arc<Describing>,
    files: Arc<Files>,
    replicas: Arc<Replicas>,
    recent: RecentStandings,
}

impl Placer {
    pub(crate) fn new(
        context: &Arc<Context>,
        capacity: &Arc<Capacity>,
        drained: &Arc<Drained>,
        describing: &Arc<Describing>,
        files: &Arc<Files>,
        replicas: &Arc<Replicas>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            capacity: Arc::clone(capacity),
            drained: Arc::clone(drained),
            describing: Arc::clone(describing),
            files: Arc::clone(files),
            replicas: Arc::clone(replicas),
            recent: RecentStandings::default(),
        }
    }

    /// Gives every region of `first ..= last` that has none objects, and those of its other stripes one that is narrow.
    pub(crate) fn place(&self, managed: &Managed, first: RegionIndex, last: RegionIndex) -> Result<(), Refusal> {
        self.place_for(managed, first, last, u64::MAX)
    }

    /// Gives the file's first region the objects that a write of at most its first `bytes` bytes needs, if it has none.
    pub(crate) fn begin(&self, managed: &Managed, bytes: u64) -> Result<(), Refusal> {
        self.place_for(managed, RegionIndex(0), RegionIndex(0), bytes)
    }

    /// Regions that are written up to `bytes` bytes of each at most.
    fn place_for(&self, managed: &Managed, first: RegionIndex, last: RegionIndex, bytes: u64) -> Result<(), Refusal> {
        if last.0 >= MAX_REGIONS {
            return Err(ControlError::TooManyRegions { file: managed.file, region: last }.into());
        }
        // Replicas leave before a region is placed elsewhere than planned, or not at all.
        for _ in 0..MAX_TAKEN_BACK {
            match self.full_for(managed, first, last)? {
                Some(full) if self.replicas.take_back(&full) => {}
                _ => break,
            }
        }
        // Other hosts would go on reading zeros behind the first stripe.
        let bytes = if self.context.is_shared() { u64::MAX } else { bytes };
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(Refusal::UnknownFile { file: managed.file });
        }
        let is_narrow = |placed: &RegionRecord| placed.wide.is_some() && !is_within_first_stripe(&placed.layout, bytes);
        let narrow = inner.regions.range(first..=last).filter(|(_, placed)| is_narrow(placed));
        let narrow: Vec<RegionIndex> = narrow.map(|(region, _)| *region).collect();
        narrow.into_iter().try_for_each(|region| self.widen(managed, &mut inner, region))?;
        let missing: Vec<RegionIndex> =
            (first.0..=last.0).map(RegionIndex).filter(|region| !inner.regions.contains_key(region)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // Each server can fail the making of objects once, and is left out after that.
        let mut standings = Standings::new(self.context.servers());
        loop {
            let generation = self.reserve_generations(managed, &mut inner, missing.len() as u32)?;
            let (placed, made) = match self.choose_narrow(managed, &inner, &missing, bytes, &mut standings)? {
                Some(layout) => {
                    let whole = RegionRecord::placed(Generation(generation + 1), layout);
                    let placed = (missing[0], narrowed(whole, bytes));
                    let made = self.make_narrow(managed, &inner, &placed, &mut standings);
                    (vec![placed], made)
                }
                None => {
                    let layouts = self.choose(managed, &inner, &missing, &mut standings)?;
                    let numbered = missing.iter().zip(generation + 1..).zip(layouts);
                    let placed = placed_records(numbered, bytes);
                    let made = self.make_whole(managed, &inner, &placed, &mut standings);
                    (placed, made)
                }
            };
            let recorded = match made {
                Ok(true) => self.record(managed, &mut inner, &placed).map(|()| true),
                result => result,
            };
            if !matches!(recorded, Ok(true)) {
                let layouts = placed.iter().map(|(_, record)| record.promised());
                self.capacity.give_back(layouts, inner.record.region_bytes);
            }
            if recorded? {
                self.note_left_out(&inner, &placed, &standings);
                return Ok(());
            }
        }
    }

    /// Makes and describes all objects (true), or none: then a server that failed one is left out from now on. It is an error where that cannot be.
    fn make_whole(
        &self,
        managed: &Managed,
        inner: &Inner,
        placed: &[(RegionIndex, RegionRecord)],
        standings: &mut Standings<'_>,
    ) -> Result<bool, Refusal> {
        for (region, record) in placed {
            managed.control.regions().learn(managed.file, *region, &record.layout)?;
        }
        let made = self.make_objects(managed, inner, placed, 0);
        if made.is_ok() {
            self.describing.describe_placed(managed, inner, placed)?;
        }
        made.or_else(|Unmade(faults)| {
            let (mut servers, mut is_new) = (BTreeSet::new(), true);
            for (server, error) in faults {
                // Of several faults of one server the first counts.
                is_new &= !servers.insert(server) || standings.leave_out(server, error);
            }
            match servers.first() {
                Some(first) if is_strict(inner) || !is_new => Err(standings.refusal(*first)),
                _ => Ok(false),
            }
        })
    }

    /// Reserves `count` generations and returns the one before the first.
    pub(crate) fn reserve_generations(&self, managed: &Managed, inner: &mut Inner, count: u32) -> Result<u32, Refusal> {
        let before = inner.generation;
        let end = before.checked_add(count).filter(|end| *end <= MAX_ORDINAL).ok_or_else(|| Refusal::TooLarge {
            what: format!("file {} has used up its generation numbers; copy it to a new file", managed.file),
        })?;
        if end > inner.record.generations_reserved {
            let generations_reserved = end.saturating_add(RESERVE_FIRST);
            let record = FileRecord { generations_reserved, ..inner.record.clone() };
            let mut changes = Changes::default();
            changes.put_file(managed.file, &record);
            self.context.table().commit(&changes)?;
            inner.record = record;
        }
        self.context.step("place: generations reserved");
        inner.generation = end;
        Ok(before)
    }

    /// Layouts for the regions, each with whether it is another than planned, and promises of space for all of them. A region's own layout goes first, then
    /// the fallback; either without the servers that cannot be used.
    fn choose(
        &self,
        managed: &Managed,
        inner: &Inner,
        missing: &[RegionIndex],
        standings: &mut Standings<'_>,
    ) -> Result<Vec<(Layout, bool)>, Refusal> {
        let region_bytes = inner.record.region_bytes;
        let mut own = Vec::with_capacity(missing.len());
        for region in missing {
            let planned = inner.placement.layout_of(*region);
            // The same as of the region before, nearly always.
            match own.last() {
                Some((before, chosen)) if *before == planned => own.push((planned, Clone::clone(chosen))),
                _ => own.push((planned, self.choice(inner, standings, planned, false)?)),
            }
        }
        let mut fallback: Option<(Layout, bool)> = None;
        loop {
            // Held until its promises are made, or another file could be promised the same bytes. No server is asked meanwhile.
            let mut reservation = self.capacity.reserve(standings);
            let mut chosen: Vec<(Layout, bool)> = Vec::with_capacity(missing.len());
            let mut full = None;
            for (region, (_, own)) in missing.iter().zip(&own) {
                let mut candidates = std::iter::once(own).chain(&fallback);
                match candidates.find(|(layout, _)| {
                    reservation
                        .take(layout, region_bytes)
                        .inspect_err(|met| {
                            full = Some((*region, met.clone()));
                        })
                        .is_ok()
                }) {
                    Some(taken) => chosen.push(taken.clone()),
                    None => break,
                }
            }
            if chosen.len() == missing.len() {
                // Now, since what is published cannot be taken back: whoever sees it may write there at once.
                for (region, (layout, _)) in missing.iter().zip(&chosen) {
                    managed.control.regions().learn(managed.file, *region, layout)?;
                    managed.extent.reserve(*region).map_err(memory_fault(managed.file))?;
                }
                reservation.promise();
                return Ok(chosen);
            }
            drop(reservation);
            match (fallback, full) {
                (None, _) => {
                    fallback = Some(self.choice(inner, standings, inner.placement.fallback_layout(), true)?);
                }
                (Some(_), full) => return Err(self.no_space(inner, full)),
            }
        }
    }

    /// `planned` as it can be used now, and whether that is another layout. What is brought in goes where it was planned or not at all.
    fn choice(
        &self,
        inner: &Inner,
        standings: &mut Standings<'_>,
        planned: &Layout,
        is_fallback: bool,
    ) -> Result<(Layout, bool), Refusal> {
        let wanted = self.drained.avoiding(planned);
        if is_strict(inner) {
            standings.check(&wanted)?;
        }
        let usable = self.drained.usable(standings, planned, &BTreeSet::new())?;
        let is_another = usable != wanted || is_fallback;
        Ok((usable, is_another))
    }

    fn no_space(&self, inner: &Inner, full: Option<(RegionIndex, Full)>) -> Refusal {
        let Some((region, full)) = full else {
            return Refusal::NoSpace { what: format!("for another region of {}", inner.record.path) };
        };
        Refusal::NoSpace {
            what: format!(
                "server {} has {} left of the {} that region {region} of {} needs there, and the fallback does not fit either",
                self.context.cluster().servers[usize::from(full.server.0)].name,
                bytes(full.left_bytes),
                bytes(full.asked_bytes),
                inner.record.path
            ),
        }
    }

    /// For who looks into the log: `check` finds the regions.
    fn note_left_out(&self, inner: &Inner, placed: &[(RegionIndex, RegionRecord)], standings: &Standings<'_>) {
        let elsewhere = placed.iter().filter(|(_, record)| record.fell_back).count();
        if elsewhere > 0 {
            for fault in standings.faults() {
                note!(self.context.log(), warn, path = %inner.record.path, regions = elsewhere, error = %fault, "regions were placed elsewhere than planned");
            }
        }
    }

    /// Makes all objects (true), or, when one fails, none. Of each region the first `expected_bytes` will be written soon. That the servers are there was asked before: a server whose directory is gone may still be reached
    /// through a descriptor of it, and nothing new is to land there.
    pub(crate) fn make_objects(
        &self,
        managed: &Managed,
        inner: &Inner,
        placed: &[(RegionIndex, RegionRecord)],
        expected_bytes: u64,
    ) -> Result<bool, Unmade> {
        let objects = || {
            placed.iter().flat_map(|(region, record)| {
                let name = ObjectName { file: managed.file, region: *region, generation: record.generation };
                shares(&record.layout, expected_bytes)
                    .map(move |(server, expected_bytes)| (server, name, expected_bytes))
            })
        };
        let create = |(server, object, expected_bytes)| {
            (server, Operation::Create { object, ownership: inner.ownership(), expected_bytes })
        };
        managed.reach(objects().map(|(server, ..)| server));
        let (mut made, mut unmade) = (Vec::new(), Unmade::default());
        for ((server, object, _), outcome) in objects().zip(self.context.perform_together(objects().map(create))) {
            match outcome {
                Ok(_) => made.push((server, Operation::Remove(object))),
                Err(error) => unmade.0.push((server, error)),
            }
        }
        if !unmade.0.is_empty() {
            // One that stays is an orphan, which `check` finds; its name is not used again.
            self.context.perform_together(made);
            return Err(unmade);
        }
        self.context.step("place: objects made");
        Ok(true)
    }

    pub(crate) fn record(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        placed: &[(RegionIndex, RegionRecord)],
    ) -> Result<(), Refusal> {
        self.context.step("place: described");
        let mut changes = Changes::default();
        for (region, record) in placed {
            changes.put_region(managed.file, *region, record);
        }
        // Durable with the first sync of the file, as the data there is.
        self.context.table().commit_later(&changes)?;
        self.context.step("place: recorded");
        for (region, record) in placed {
            managed.publish(*region, record)?;
            inner.unsynced.extend(record.layout.stripes().iter().map(|stripe| stripe.server));
            inner.regions.insert(*region, record.clone());
        }
        if placed.iter().any(|(region, _)| self.replicas.lacks_replicas(inner, *region)) {
            self.replicas.watch_for_idleness(managed.file);
        }
        Ok(())
    }

    /// The server that has no space for the regions' own layouts, if there are replicas that could leave it.
    fn full_for(&self, managed: &Managed, first: RegionIndex, last: RegionIndex) -> Result<Option<Full>, Refusal> {
        let inner = guard(&managed.inner);
        if !self.capacity.has_replicas() {
            return Ok(None);
        }
        let mut standings = Standings::new(self.context.servers());
        let missing = || (first.0..=last.0).map(RegionIndex).filter(|region| !inner.regions.contains_key(region));
        let own = missing()
            .map(|region| self.drained.usable(&mut standings, inner.placement.layout_of(region), &BTreeSet::new()));
        let own = own.collect::<Result<Vec<Layout>, Refusal>>()?;
        let mut reservation = self.capacity.reserve(&standings);
        Ok(own.iter().find_map(|own| reservation.take(own, inner.record.region_bytes).err()))
    }
}

/// Objects that were not made because of these servers: in the order of the objects, at least one.
#[derive(Default)]
pub(crate) struct Unmade(Vec<(ServerId, ServerError)>);

impl Unmade {
    /// Says the first fault.
    pub(crate) fn into_refusal(self) -> Refusal {
        let first = self.0.into_iter().next();
        first.map_or_else(|| Refusal::Invalid { what: "no object was made".to_owned() }, |(_, error)| error.into())
    }
}

/// The records of regions that are placed with these layouts, of which each says whether it is another than planned, for writes of at most the first
/// `bytes` bytes of each.
fn placed_records<'r>(
    numbered: impl Iterator<Item = ((&'r RegionIndex, u32), (Layout, bool))>,
    bytes: u64,
) -> Vec<(RegionIndex, RegionRecord)> {
    numbered
        .map(|((region, generation), (layout, fell_back))| {
            let whole = RegionRecord { fell_back, ..RegionRecord::placed(Generation(generation), layout) };
            (*region, narrowed(whole, bytes))
        })
        .collect()
}

/// Whether regions go where they were planned or nowhere: `apply` tells of a server that is away instead of leaving it out.
fn is_strict(inner: &Inner) -> bool {
    matches!(inner.record.state, FileState::Importing { .. })
}

impl Placer {
    /// See [`stripewise_store::protocol::Admin::Placement`].
    pub(crate) fn placement_of(&self, file: FileId) -> Result<Placement, Refusal> {
        Ok(guard(&self.files.managed(file)?.inner).placement.clone())
    }

    /// The placement by which regions to come are placed; see [`stripewise_store::protocol::Admin::SetPlacement`].
    pub(crate) fn set_placement(&self, file: FileId, placement: Placement) -> Result<(), Refusal> {
        let managed = self.files.managed(file)?;
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(Refusal::UnknownFile { file });
        }
        placement.check(self.context.servers().len()).map_err(|what| Refusal::Invalid { what })?;
        if placement.region_size.0 != inner.record.region_bytes {
            return Err(Refusal::Invalid {
                what: format!(
                    "{} has regions of {} bytes, the placement of {}; release the file and apply the new plan to change that",
                    inner.record.path, inner.record.region_bytes, placement.region_size.0
                ),
            });
        }
        self.put_placement(&managed, &mut inner, placement)
    }

    pub(crate) fn put_placement(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        placement: Placement,
    ) -> Result<(), Refusal> {
        if placement != inner.placement {
            let mut changes = Changes::default();
            changes.put_placement(managed.file, &placement);
            self.context.table().commit(&changes)?;
            inner.placement = placement;
        }
        Ok(())
    }
}
