//! Giving regions of a managed file another layout while programs use it.

use crate::daemon::socket;
use crate::interrupt::Interrupt;
use crate::layouts::ParseLayoutError;
use crate::messages::shown;
use crate::moves::capacity::{self, CapacityError};
use crate::moves::{Batch, MoveError, Stayed, check_moved, orders, placement_of, totals};
use crate::named_plan::{NamedPlan, NamedPlanError};
use crate::paths::{PlaceError, real};
use crate::progress::Voice;
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use stripewise_layout::figures::bytes;
use stripewise_layout::{ByteCount, FileId, Layout, Placement, RegionIndex};
use stripewise_planner::nearest;
use stripewise_store::protocol::{Admin, MoveOrder};
use stripewise_store::shared::control::MAX_REGIONS;
use thiserror::Error;

/// Why a file was not laid out as asked.
#[derive(Debug, Error)]
pub enum RestripeError {
    /// The cluster or the file cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Moves could not be ordered, or not all regions were moved.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// The servers have no space for the new layout.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    /// The text of a layout is wrong.
    #[error(transparent)]
    Layout(#[from] ParseLayoutError),
    /// The plan cannot be read, is for other servers, or not worth its moves.
    #[error(transparent)]
    Plan(#[from] NamedPlanError),
    /// The path could not be made absolute.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Moves in the background need a process that outlives this one.
    #[error(
        "no daemon serves the cluster, so the moves would end with this command; start `stripewise daemon`, or leave out --background"
    )]
    NoDaemon,
    /// A plan names files in UTF-8 only.
    #[error("{} is not UTF-8", shown(path))]
    NotUtf8 {
        /// The file.
        path: PathBuf,
    },
    /// The plan has no file of a like name.
    #[error("{} plans nothing for {name}; it is for {}", shown(plan), planned.join(", "))]
    NotPlanned {
        /// The plan's file.
        plan: PathBuf,
        /// Absolute path of the file.
        name: String,
        /// Up to three files that the plan has.
        planned: Vec<String>,
    },
    /// Regions keep their size for as long as the file is managed.
    #[error(
        "{} plans regions of {}, {name} has regions of {}; release the file and apply the plan to change that",
        shown(plan),
        bytes(planned.0),
        bytes(present.0)
    )]
    RegionSize {
        /// The plan's file.
        plan: PathBuf,
        /// Size of a region in the plan.
        planned: ByteCount,
        /// Absolute path of the file.
        name: String,
        /// Size of a region of the file.
        present: ByteCount,
    },
}

type Result<T> = std::result::Result<T, RestripeError>;

/// Regions by their numbers, the last one included. As text `7` or `0..15`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Regions {
    /// The first region.
    pub first: RegionIndex,
    /// The last region, at least `first`.
    pub last: RegionIndex,
}

impl Regions {
    fn contains(self, region: RegionIndex) -> bool {
        (self.first..=self.last).contains(&region)
    }
}

/// A text that names no regions.
#[derive(Debug, Error)]
#[error("`{text}` names no regions; write 7, or 0..15 (the last included, numbers below {MAX_REGIONS})")]
pub struct ParseRegionsError {
    text: String,
}

impl FromStr for Regions {
    type Err = ParseRegionsError;

    fn from_str(text: &str) -> std::result::Result<Self, ParseRegionsError> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number < MAX_REGIONS);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => {
                Ok(Self { first: RegionIndex(first), last: RegionIndex(last) })
            }
            _ => Err(ParseRegionsError { text: text.to_owned() }),
        }
    }
}

/// Where regions are to go.
#[derive(Clone, Debug)]
pub enum NewLayout {
    /// Every region into this layout.
    Layout(Layout),
    /// As this plan begins for the managed file, or for one of a like name.
    Plan(NamedPlan),
}

/// Which regions of which file are to be moved, and where to.
#[derive(Clone, Debug)]
pub struct RestripeOptions {
    /// A managed file.
    pub path: PathBuf,
    /// `None`: all regions, those that the file gets later included.
    pub regions: Option<Regions>,
    /// Their layout.
    pub to: NewLayout,
    /// Return once the moves are ordered. The daemon of the cluster carries them out.
    pub background: bool,
}

/// What became of the regions.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Restriped {
    /// The file as it was named.
    pub path: PathBuf,
    /// Its id.
    pub file: FileId,
    /// Regions that had another layout.
    pub regions: usize,
    /// Those of them that have the new layout now.
    pub moved: usize,
    /// The others, with reasons.
    pub stayed: Vec<Stayed>,
    /// The moves were only ordered.
    pub background: bool,
    /// An interrupt came before all was moved.
    #[serde(skip)]
    pub interrupted: bool,
    /// Size of a region in bytes.
    #[serde(skip)]
    pub region_bytes: u64,
}

impl Restriped {
    /// An error when not every region was moved.
    ///
    /// # Errors
    ///
    /// [`MoveError::Stopped`] or [`MoveError::Stayed`].
    pub fn check(&self) -> std::result::Result<(), MoveError> {
        check_moved(self.regions, self.moved, &self.stayed, self.interrupted)
    }
}

/// The moves that lead to the new layout, and the placement of regions to come.
struct Change {
    orders: Vec<MoveOrder>,
    placement: Option<Placement>,
}

/// Moves the regions that `options` names and waits for them, unless they are to be moved in the
/// background.
///
/// Programs read and write the file meanwhile. An interrupt cancels what is not committed and gives
/// regions to come their old placement back; every region then lies whole in its old layout or in
/// the new one. Regions that could not be moved are no error here, see [`Restriped::check`].
///
/// # Errors
///
/// [`RestripeError`], when nothing or only a part was ordered.
pub fn restripe(store: &Store, voice: &Voice, options: RestripeOptions, interrupt: Interrupt) -> Result<Restriped> {
    if options.background && socket::daemon_of(&store.cluster.state).is_none() && totals(store)?.guide.is_none() {
        return Err(RestripeError::NoDaemon);
    }
    let managed = store.managed(&options.path, false)?;
    let (file, region_bytes) = (managed.striped.id(), managed.striped.region_bytes());
    drop(managed);
    let change = match &options.to {
        NewLayout::Layout(layout) => uniform(store, file, region_bytes, options.regions, layout)?,
        NewLayout::Plan(plan) => as_planned(store, voice, (file, region_bytes), &options, plan)?,
    };
    let present = HashMap::from([(file, store.regions(file)?)]);
    capacity::check(store, &store.files()?, &present, &change.orders)?;
    let before = placement_of(store, file)?;
    if let Some(placement) = change.placement {
        store.done(Admin::SetPlacement { file, placement })?;
    }
    let mut batch = Batch::order(store, change.orders)?;
    let RestripeOptions { path, background, .. } = options;
    if background {
        let regions = batch.count();
        // Should another process have the queue, the daemon orders again what is left when that one
        // ends.
        let adopted = socket::ask(&store.cluster.state, "POST", "/adopt");
        if adopted.is_none_or(|response| response.status != 200) {
            voice.say("the daemon did not answer; see with `stripewise migrate status` whether the moves go on");
        }
        let (moved, stayed, interrupted) = (0, Vec::new(), false);
        return Ok(Restriped { path, file, regions, moved, stayed, background, interrupted, region_bytes });
    }
    let outcome = batch.wait(store, voice, &format!("moving {}", shown(&path)), interrupt)?;
    if outcome.was_stopped() {
        store.done(Admin::SetPlacement { file, placement: before })?;
    }
    let interrupted = outcome.was_stopped();
    let (regions, moved, stayed) = (outcome.regions, outcome.moved, outcome.stayed);
    Ok(Restriped { path, file, regions, moved, stayed, background, interrupted, region_bytes })
}

/// One layout for `regions`, or for all that are and will be.
fn uniform(
    store: &Store,
    file: FileId,
    region_bytes: u64,
    regions: Option<Regions>,
    layout: &Layout,
) -> Result<Change> {
    let placed = store.regions(file)?;
    let Some(range) = regions else {
        let orders = orders(&store.cluster, file, &placed, |_, _| Some(layout.clone()))?;
        let fallback = placement_of(store, file)?.fallback_layout().clone();
        let placement = Placement::uniform(ByteCount(region_bytes), layout.clone(), fallback);
        return Ok(Change { orders, placement: Some(placement) });
    };
    let placed = placed.iter().filter(|info| range.contains(info.region));
    let mut orders = orders(&store.cluster, file, placed.clone(), |_, _| Some(layout.clone()))?;
    // The broker notes the layout of regions without objects for later.
    let without_objects = gaps(range, placed.map(|info| info.region));
    orders.extend(without_objects.map(|(first, last)| MoveOrder { file, first, last, layout: layout.clone() }));
    Ok(Change { orders, placement: None })
}

fn as_planned(
    store: &Store,
    voice: &Voice,
    (file, region_bytes): (FileId, u64),
    options: &RestripeOptions,
    plan: &NamedPlan,
) -> Result<Change> {
    let placement = planned(store, voice, plan, &options.path, region_bytes)?;
    let placed = store.regions(file)?;
    let placed = placed.iter().filter(|info| options.regions.is_none_or(|range| range.contains(info.region)));
    let orders = orders(&store.cluster, file, placed, |info, _| Some(placement.layout_of(info.region).clone()))?;
    Ok(Change { orders, placement: options.regions.is_none().then_some(placement) })
}

/// What of `range` is not in `placed`, which ascends and lies within.
fn gaps(range: Regions, placed: impl Iterator<Item = RegionIndex>) -> impl Iterator<Item = (RegionIndex, RegionIndex)> {
    let ends = placed.map(|region| region.0).chain([range.last.0 + 1]);
    let gaps = ends.scan(range.first.0, |from, end| {
        let gap = (*from, end);
        *from = end + 1;
        Some(gap)
    });
    gaps.filter(|(from, end)| from < end).map(|(from, end)| (RegionIndex(from), RegionIndex(end - 1)))
}

/// The placement with which the plan begins for the file at `path`, or for one of a like name.
fn planned(store: &Store, voice: &Voice, named: &NamedPlan, path: &Path, region_bytes: u64) -> Result<Placement> {
    let (plan, plan_path) = (named.load(&store.cluster, voice)?, &named.path);
    let path = real(path)?;
    let Some(name) = path.to_str() else { return Err(RestripeError::NotUtf8 { path }) };
    let (application, processes) = (plan.key.application.clone(), plan.key.processes);
    let plans = [plan];
    let Some(found) = nearest(&plans, name, &application, processes) else {
        let planned = plans[0].files.iter().map(|file| file.path.clone()).take(3).collect();
        return Err(RestripeError::NotPlanned { plan: plan_path.to_owned(), name: name.to_owned(), planned });
    };
    let placement = found.file.initial().clone();
    if placement.region_size.0 != region_bytes {
        return Err(RestripeError::RegionSize {
            plan: plan_path.to_owned(),
            planned: placement.region_size,
            name: name.to_owned(),
            present: ByteCount(region_bytes),
        });
    }
    Ok(placement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_is_between() {
        let gaps = |first, last, placed: &[u32]| {
            let range = Regions { first: RegionIndex(first), last: RegionIndex(last) };
            let found = super::gaps(range, placed.iter().copied().map(RegionIndex));
            found.map(|(first, last)| (first.0, last.0)).collect::<Vec<_>>()
        };
        assert_eq!(gaps(0, 9, &[]), [(0, 9)]);
        assert_eq!(gaps(0, 9, &[0, 1, 4, 9]), [(2, 3), (5, 8)]);
        assert_eq!(gaps(3, 3, &[3]), []);
        assert_eq!(gaps(3, 5, &[4]), [(3, 3), (5, 5)]);
    }

    #[test]
    fn regions_are_numbers_or_ranges_with_both_ends() {
        let range = |first, last| Regions { first: RegionIndex(first), last: RegionIndex(last) };
        assert_eq!("7".parse::<Regions>().unwrap(), range(7, 7));
        assert_eq!("0..15".parse::<Regions>().unwrap(), range(0, 15));
        for text in ["", "..", "3..", "5..4", "-1", "0..99999999999", "a..b"] {
            let said = text.parse::<Regions>().unwrap_err().to_string();
            assert!(said.contains("write 7, or 0..15"), "{said}");
        }
    }
}
