//! Regions that begin with the object of their first stripe alone.
//!
//! A file's first region may begin *narrow*: with no object but that of its first stripe, where that takes the write for which it is placed. All of its layout is
//! promised, and what lies in the first stripe lies at the same place of the same object under both layouts. So when more is written, the other
//! objects are made and the whole layout is published, and nothing is moved and nobody waited for.

use super::{Placer, Unmade, is_strict};
use crate::describing::servers_of;
use crate::managed::{Inner, Managed, memory_fault};
use crate::objects::stripe_servers;
use crate::rmt::{Changes, RegionRecord};
use crate::standing::Standings;
use std::collections::BTreeSet;
use stripewise_layout::{Generation, Layout, RegionIndex, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectName, Operation, Outcome, ServerError};

impl Placer {
    /// The planned layout of a region that can begin with one object, with promises of space for all of it, going by what its first server said
    /// of itself a moment ago. [`Self::make_narrow`] asks it again; the others are asked when the region gets their objects. None of what is brought in, which
    /// goes where it was planned or not at all: for that all servers are asked.
    pub(super) fn choose_narrow(
        &self,
        managed: &Managed,
        inner: &Inner,
        missing: &[RegionIndex],
        bytes: u64,
        standings: &mut Standings<'_>,
    ) -> Result<Option<Layout>, Refusal> {
        let [region] = missing else { return Ok(None) };
        let layout = self.drained.avoiding(inner.placement.layout_of(*region));
        let whole = RegionRecord::placed(Generation(0), layout.clone());
        let narrow = narrowed(whole, bytes);
        let [first] = narrow.layout.stripes() else { return Ok(None) };
        if let Some(standing) = self.recent.of(first.server) {
            standings.know(first.server, standing);
        }
        if is_strict(inner) || standings.first_unusable(&narrow.layout).is_some() {
            return Ok(None);
        }
        let mut reservation = self.capacity.reserve(standings);
        if reservation.take_for_first(&layout, inner.record.region_bytes).is_err() {
            return Ok(None);
        }
        managed.control.regions().learn(managed.file, *region, &layout)?;
        managed.extent.reserve(*region).map_err(memory_fault(managed.file))?;
        reservation.promise();
        Ok(Some(layout))
    }

    /// Asks the one server of the region's objects once more whether it can be used, makes the object there and describes it, all by one call. False: the
    /// server failed and is left out from now on.
    pub(super) fn make_narrow(
        &self,
        managed: &Managed,
        inner: &Inner,
        (region, record): &(RegionIndex, RegionRecord),
        standings: &mut Standings<'_>,
    ) -> Result<bool, Refusal> {
        managed.control.regions().learn(managed.file, *region, &record.layout)?;
        let Some(server) = stripe_servers(&record.layout).next() else { return Ok(false) };
        let object = ObjectName { file: managed.file, region: *region, generation: record.generation };
        let describe = self.describing.begin_description(managed, inner, *region, record)?;
        managed.reach([server]);
        let calls = vec![Operation::Standing, Operation::create(object, inner.ownership()), describe];
        let performed = self.context.perform_together([(server, Operation::InTurn(calls))]);
        let outcome = performed.into_iter().next().expect("one call, one outcome");
        match outcome.and_then(|outcome| outcome.into_turns(&self.context.server_name(server))) {
            Ok(outcomes) => {
                if let Some(Outcome::Standing(standing)) = outcomes.into_iter().next() {
                    self.recent.note(server, standing);
                }
                Ok(true)
            }
            Err(error) => {
                self.recent.forget(server);
                // One that stays is an orphan, which `check` finds; its name is not used again. What was there before is not this call's.
                if !matches!(error, ServerError::Exists { .. }) {
                    let _ = self.context.server(server)?.remove(object);
                }
                match standings.leave_out(server, error) {
                    true => Ok(false),
                    false => Err(standings.refusal(server)),
                }
            }
        }
    }

    /// Gives a narrow region the objects of its other stripes, without servers that cannot be used. Where no others can be had, it stays on the server of its
    /// first stripe. Either is noted as placed elsewhere than planned.
    pub(crate) fn widen(&self, managed: &Managed, inner: &mut Inner, region: RegionIndex) -> Result<(), Refusal> {
        let Some(before) = inner.regions.get(&region).cloned() else { return Ok(()) };
        let Some(wide) = before.wide.clone() else { return Ok(()) };
        let region_bytes = inner.record.region_bytes;
        let mut standings = Standings::new(self.context.servers());
        self.capacity.give_back([&wide], region_bytes);
        let after = loop {
            let Some(layout) = self.promise_wide(&wide, region_bytes, &mut standings) else {
                self.capacity.add(&before.layout, region_bytes);
                break RegionRecord { wide: None, fell_back: true, ..before };
            };
            if let Err(error) = managed.control.regions().learn(managed.file, region, &layout) {
                self.capacity.give_back([&layout], region_bytes);
                self.capacity.add(&wide, region_bytes);
                return Err(error.into());
            }
            let fell_back = layout != wide;
            let whole = RegionRecord { layout, wide: None, fell_back, has_new_names: true, ..before.clone() };
            match self.make_others(managed, inner, region, &whole) {
                Ok(()) => break whole,
                Err(unmade) => {
                    self.capacity.give_back([&whole.layout], region_bytes);
                    for (server, error) in unmade.0 {
                        standings.leave_out(server, error);
                    }
                }
            }
        };
        let described = match after.layout.stripes().len() {
            1 => self.describing.describe_instead(managed, inner, (region, &after), &servers_of([&wide])),
            _ => self.describing.describe_placed(managed, inner, &[(region, after.clone())]),
        };
        self.context.step("widen: described");
        let mut changes = Changes::default();
        changes.put_region(managed.file, region, &after);
        if let Err(refusal) =
            described.and_then(|()| self.context.table().commit_later(&changes).map_err(Refusal::from))
        {
            self.capacity.give_back([&after.layout], region_bytes);
            self.capacity.add(&wide, region_bytes);
            return Err(refusal);
        }
        self.context.step("widen: recorded");
        self.note_left_out(inner, &[(region, after.clone())], &standings);
        inner.unsynced.extend(stripe_servers(&after.layout));
        inner.regions.insert(region, after.clone());
        // Before anybody writes there: who syncs that asks the broker.
        managed.control.set_durable_names(inner.durable_names());
        managed.publish(region, &after)?;
        Ok(())
    }

    /// The layout that a narrow region can get now, with promises of space for it; `None` where it can get none.
    fn promise_wide(&self, wide: &Layout, region_bytes: u64, standings: &mut Standings<'_>) -> Option<Layout> {
        let layout = self.drained.usable(standings, wide, &BTreeSet::new()).ok()?;
        // What lies in the first stripe is to stay where it is.
        if layout.stripes().first() != wide.stripes().first() {
            return None;
        }
        let mut reservation = self.capacity.reserve(standings);
        reservation.take(&layout, region_bytes).ok()?;
        reservation.promise();
        Some(layout)
    }

    /// Makes the objects of all stripes but the first. Nobody has written to these objects: what a broker that died at this, or a power failure, has
    /// left of them is emptied.
    fn make_others(
        &self,
        managed: &Managed,
        inner: &Inner,
        region: RegionIndex,
        whole: &RegionRecord,
    ) -> Result<(), Unmade> {
        let object = ObjectName { file: managed.file, region, generation: whole.generation };
        let others: Vec<ServerId> = stripe_servers(&whole.layout).skip(1).collect();
        managed.reach(others.iter().copied());
        let create = |server: &ServerId| (*server, Operation::create(object, inner.ownership()));
        let created = self.context.perform_together(others.iter().map(create));
        let (mut left, mut unmade) = (Vec::new(), Unmade::default());
        for (server, outcome) in others.into_iter().zip(created) {
            match outcome {
                Ok(_) => {}
                Err(ServerError::Exists { .. }) => left.push((server, object, 0)),
                Err(error) => unmade.0.push((server, error)),
            }
        }
        let emptied = self.context.truncate_as_owner(&left, inner.ownership());
        let faults = left.iter().zip(emptied).filter_map(|((server, ..), emptied)| Some((*server, emptied.err()?)));
        unmade.0.extend(faults);
        self.context.step("widen: objects made");
        if unmade.0.is_empty() { Ok(()) } else { Err(unmade) }
    }
}

pub(super) fn is_within_first_stripe(layout: &Layout, bytes: u64) -> bool {
    layout.stripes().first().is_some_and(|stripe| bytes <= u64::from(stripe.size_bytes))
}

/// The region as it begins for a write of at most its first `bytes` bytes: narrow, if they fit its first stripe and there are others.
pub(super) fn narrowed(whole: RegionRecord, bytes: u64) -> RegionRecord {
    let first = whole.layout.stripes().first().map(|stripe| (stripe.server, stripe.size_bytes));
    match Layout::new(first) {
        Ok(layout)
            if !whole.fell_back && whole.layout.stripes().len() > 1 && is_within_first_stripe(&whole.layout, bytes) =>
        {
            RegionRecord { layout, wide: Some(whole.layout), ..whole }
        }
        _ => whole,
    }
}
