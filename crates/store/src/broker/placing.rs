//! Placing regions: objects on every server of the layout, then the durable record, then the control block.
//!
//! All regions of one request are placed together or none is. Requests on one file are served one at a time, so of many clients that reach
//! a new region at once the first has it placed and the others find it done. Order against crashes: generation numbers are reserved durably before objects are
//! made, and objects exist before the record names them; a crash in between leaves objects that no record names, which `check`
//! finds, and numbers that are never used.

use super::files::{Inner, Managed, RESERVE_FIRST, memory_fault};
use super::room::{Full, NoRoom, Reservation};
use super::{Core, guard};
use crate::protocol::Refusal;
use crate::rmt::{Changes, FileRecord, RegionRecord};
use crate::server::{MAX_ORDINAL, ObjectName};
use crate::shared::control::{ControlError, MAX_REGIONS};
use std::collections::BTreeSet;
use stripewise_layout::{ByteCount, Generation, Layout, RegionIndex, ServerId};

/// Servers, one after the other, that replicas may have to leave for one request.
const MOST_TAKEN_BACK: usize = 64;

impl Core {
    /// Gives every region of `first ..= last` that has none objects.
    pub(super) fn place(&self, managed: &Managed, first: RegionIndex, last: RegionIndex) -> Result<(), Refusal> {
        if last.0 >= MAX_REGIONS {
            return Err(ControlError::TooManyRegions { file: managed.file, region: last }.into());
        }
        // Replicas leave before a region is placed elsewhere than planned, or not at all.
        for _ in 0..MOST_TAKEN_BACK {
            match self.full_for(managed, first, last)? {
                Some(full) if self.take_back(&full) => {}
                _ => break,
            }
        }
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(Refusal::UnknownFile { file: managed.file });
        }
        let missing: Vec<RegionIndex> =
            (first.0..=last.0).map(RegionIndex).filter(|region| !inner.regions.contains_key(region)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let generation = self.reserve_generations(managed, &mut inner, missing.len() as u32)?;
        // The room stays locked until its promises are made, or another file could be promised the same bytes.
        let mut room = guard(&self.room);
        let mut reservation = room.reserve(&self.servers);
        let mut placed = Vec::with_capacity(missing.len());
        for (region, generation) in missing.into_iter().zip(generation + 1..) {
            let (layout, fell_back) = self.choose(&mut reservation, &inner, region)?;
            // Now, since what is published cannot be taken back: whoever sees it may write there at once.
            managed.control.learn(managed.file, region, &layout)?;
            managed.extent.reserve(region).map_err(memory_fault(managed.file))?;
            placed.push((region, RegionRecord { generation: Generation(generation), layout, fell_back }));
        }
        reservation.promise();
        drop(room);
        let made = self.make_objects(managed, &inner, &placed).and_then(|()| self.record(managed, &mut inner, &placed));
        if made.is_err() {
            let mut room = guard(&self.room);
            for (_, record) in &placed {
                room.give_back(&record.layout, inner.record.region_bytes);
            }
        }
        made
    }

    /// Reserves `count` generations and returns the one before the first.
    pub(super) fn reserve_generations(&self, managed: &Managed, inner: &mut Inner, count: u32) -> Result<u32, Refusal> {
        let before = inner.generation;
        let end = before.checked_add(count).filter(|end| *end <= MAX_ORDINAL).ok_or_else(|| Refusal::TooLarge {
            what: format!("file {} has used up its generation numbers; copy it to a new file", managed.file),
        })?;
        if end > inner.record.generations_reserved {
            let generations_reserved = end.saturating_add(RESERVE_FIRST);
            let record = FileRecord { generations_reserved, ..inner.record.clone() };
            let mut changes = Changes::default();
            changes.put_file(managed.file, &record);
            self.table.commit(&changes)?;
            inner.record = record;
        }
        self.step("place: generations reserved");
        inner.generation = end;
        Ok(before)
    }

    /// The region's own layout, or the fallback if that has no room.
    fn choose(
        &self,
        reservation: &mut Reservation<'_>,
        inner: &Inner,
        region: RegionIndex,
    ) -> Result<(Layout, bool), Refusal> {
        let region_bytes = inner.record.region_bytes;
        let own = self.avoiding(inner.placement.layout_of(region));
        let full = match reservation.take(&own, region_bytes) {
            Ok(()) => return Ok((own, false)),
            Err(NoRoom::Server(error)) => return Err(error.into()),
            Err(NoRoom::Full(full)) => full,
        };
        let fallback = self.avoiding(inner.placement.fallback_layout());
        let full = match reservation.take(&fallback, region_bytes) {
            Ok(()) => return Ok((fallback, true)),
            Err(NoRoom::Server(error)) => return Err(error.into()),
            Err(NoRoom::Full(_)) if fallback == own => full,
            Err(NoRoom::Full(full)) => full,
        };
        Err(Refusal::NoSpace {
            what: format!(
                "server {} has {} left of the {} that region {region} of {} needs there, and the fallback does not fit either",
                self.cluster.servers[usize::from(full.server.0)].name,
                ByteCount(full.left_bytes),
                ByteCount(full.asked_bytes),
                inner.record.path
            ),
        })
    }

    /// Makes all objects, or, when one fails, none.
    pub(super) fn make_objects(
        &self,
        managed: &Managed,
        inner: &Inner,
        placed: &[(RegionIndex, RegionRecord)],
    ) -> Result<(), Refusal> {
        // A server whose directory is gone may still be reached through a descriptor of it; nothing new is to land there.
        let servers: BTreeSet<ServerId> =
            placed.iter().flat_map(|(_, record)| record.layout.stripes().iter().map(|stripe| stripe.server)).collect();
        for server in servers {
            self.server(server)?.probe()?;
        }
        let objects = || {
            placed.iter().flat_map(|(region, record)| {
                let name = ObjectName { file: managed.file, region: *region, generation: record.generation };
                record.layout.stripes().iter().map(move |stripe| (stripe.server, name))
            })
        };
        for (count, (server, object)) in objects().enumerate() {
            let made = self.server(server).and_then(|s| s.create(object, inner.ownership()).map_err(Refusal::from));
            if let Err(refusal) = made {
                for (server, object) in objects().take(count) {
                    // One that stays is an orphan, which `check` finds; its name is not used again.
                    let _ = self.server(server).map(|s| s.remove(object));
                }
                return Err(refusal);
            }
        }
        self.step("place: objects made");
        Ok(())
    }

    fn record(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        placed: &[(RegionIndex, RegionRecord)],
    ) -> Result<(), Refusal> {
        self.describe_placed(managed, inner, placed)?;
        self.step("place: described");
        let mut changes = Changes::default();
        for (region, record) in placed {
            changes.put_region(managed.file, *region, record);
        }
        self.table.commit(&changes)?;
        self.step("place: recorded");
        for (region, record) in placed {
            managed.control.publish(managed.file, *region, record.generation, &record.layout)?;
            inner.unsynced.extend(record.layout.stripes().iter().map(|stripe| stripe.server));
            inner.regions.insert(*region, record.clone());
        }
        if placed.iter().any(|(region, _)| self.lacks_replicas(inner, *region)) {
            self.watch_for_idleness(managed.file);
        }
        Ok(())
    }

    /// The server that has no room for the regions' own layouts, if there are replicas that could leave it.
    fn full_for(&self, managed: &Managed, first: RegionIndex, last: RegionIndex) -> Result<Option<Full>, Refusal> {
        let inner = guard(&managed.inner);
        let mut room = guard(&self.room);
        if !room.has_replicas() {
            return Ok(None);
        }
        let mut reservation = room.reserve(&self.servers);
        for region in (first.0..=last.0).map(RegionIndex).filter(|region| !inner.regions.contains_key(region)) {
            let own = self.avoiding(inner.placement.layout_of(region));
            match reservation.take(&own, inner.record.region_bytes) {
                Ok(()) => {}
                Err(NoRoom::Server(error)) => return Err(error.into()),
                Err(NoRoom::Full(full)) => return Ok(Some(full)),
            }
        }
        Ok(None)
    }
}
