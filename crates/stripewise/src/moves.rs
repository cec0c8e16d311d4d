//! Ordering moves of regions from the broker, and following them to their end.
//!
//! The queue is the broker's and ends with it: whoever waits here sees by the totals that another broker answers and orders what is left again.

pub mod capacity;

use crate::interrupt::Interrupt;
use crate::progress::{Task, Voice};
use crate::store::{Store, StoreError};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use stripewise_layout::figures::counted;
use stripewise_layout::{Cluster, FileId, Layout, LayoutError, Placement, RegionIndex, ServerClass, ServerId};
use stripewise_store::protocol::{
    Admin, MAX_PACKET_BYTES, MoveControl, MoveNumber, MoveOrder, MoveState, MoveStatus, MoveTotals, RegionInfo, Reply,
    WhichMoves,
};
use thiserror::Error;

/// Why moves were not done.
#[derive(Debug, Error)]
pub enum MoveError {
    /// The broker cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A region's layout makes no sense.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// An interrupt came.
    #[error(
        "stopped: {moved} of {} moved, the others stay where they were; nothing is half moved",
        counted(*regions, "region was", "regions were")
    )]
    Stopped {
        /// Regions that lie as ordered.
        moved: usize,
        /// Regions that were to be moved.
        regions: usize,
    },
    /// Not all regions could be moved.
    #[error(
        "{stayed} of {} not moved; the first is region {} of {}: {}",
        counted(*regions, "region was", "regions were"),
        first.region,
        first.path,
        first.why
    )]
    Stayed {
        /// Regions that were not moved.
        stayed: usize,
        /// Regions that were to be moved.
        regions: usize,
        /// Where the first of them is, and why it was not moved.
        first: Stayed,
    },
}

type Result<T> = std::result::Result<T, MoveError>;

/// How often moves are looked at: at first, and once they turn out to take long.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// A region that was not moved as ordered.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Stayed {
    /// Path of the file.
    pub path: String,
    /// Number of the region within the file.
    pub region: RegionIndex,
    /// As the broker reported it.
    pub why: String,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Outcome {
    /// Regions that were to be moved, those that lay as ordered already left out.
    pub regions: usize,
    /// Regions that lie as ordered now.
    pub moved: usize,
    /// Those that do not, and why.
    pub stayed: Vec<Stayed>,
    /// Ctrl-C came.
    pub interrupted: bool,
}

impl Outcome {
    /// Ctrl-C came before all was moved.
    pub fn was_stopped(&self) -> bool {
        self.interrupted && !self.stayed.is_empty()
    }

    /// An error when not everything went as ordered.
    ///
    /// # Errors
    ///
    /// [`MoveError::Stopped`] after an interrupt, [`MoveError::Stayed`] if any region was not moved
    /// for another reason.
    pub fn check(&self) -> Result<()> {
        check_moved(self.regions, self.moved, &self.stayed, self.interrupted)
    }
}

/// An error when not every one of `regions` was moved, see [`Outcome::check`].
pub(crate) fn check_moved(regions: usize, moved: usize, stayed: &[Stayed], interrupted: bool) -> Result<()> {
    match stayed.first() {
        None => Ok(()),
        Some(_) if interrupted => Err(MoveError::Stopped { moved, regions }),
        Some(first) => Err(MoveError::Stayed { stayed: stayed.len(), regions, first: first.clone() }),
    }
}

/// Totals of all moves; asks for no single ones.
///
/// # Errors
///
/// [`MoveError::Store`].
pub fn totals(store: &Store) -> Result<MoveTotals> {
    Ok(page(store, Some(MoveNumber(u64::MAX)))?.0)
}

/// Every move that the broker tells of, from behind `after`.
///
/// # Errors
///
/// [`MoveError::Store`].
pub fn list(store: &Store, after: Option<MoveNumber>) -> Result<(MoveTotals, Vec<MoveStatus>)> {
    let (totals, mut moves, mut more) = page(store, after)?;
    while more {
        let (_, next, has_more) = page(store, moves.last().map(|last: &MoveStatus| last.number))?;
        more = has_more && !next.is_empty();
        moves.extend(next);
    }
    Ok((totals, moves))
}

fn page(store: &Store, after: Option<MoveNumber>) -> Result<(MoveTotals, Vec<MoveStatus>, bool)> {
    match store.admin(Admin::Moves { after })? {
        Reply::Moves { totals, moves, more } => Ok((totals, moves, more)),
        _ => Err(StoreError::Answer { question: "a question for moves" }.into()),
    }
}

/// The placement by which the file's regions to come are placed.
///
/// # Errors
///
/// [`MoveError::Store`], also where there is no such file.
pub fn placement_of(store: &Store, file: FileId) -> Result<Placement> {
    match store.admin(Admin::Placement { file })? {
        Reply::Placement { placement } => Ok(placement),
        _ => Err(StoreError::Answer { question: "a question for a placement" }.into()),
    }
}

/// Where a region lies.
///
/// # Errors
/// When the broker's answer is no layout.
pub fn layout_of(region: &RegionInfo) -> std::result::Result<Layout, LayoutError> {
    Layout::new(region.stripes.iter().map(|(server, size)| (ServerId(*server), *size)))
}

/// Orders that bring every one of `regions` to where `target` says, none for those that lie there already. First those that leave SSD, as they
/// free space, last those that go there.
///
/// # Errors
///
/// [`MoveError::Layout`] if a region's stripes are no layout.
pub fn orders<'a>(
    cluster: &Cluster,
    file: FileId,
    regions: impl IntoIterator<Item = &'a RegionInfo>,
    mut target: impl FnMut(&RegionInfo, &Layout) -> Option<Layout>,
) -> Result<Vec<MoveOrder>> {
    let mut orders: Vec<(Ordering, MoveOrder)> = Vec::new();
    for info in regions {
        let from = layout_of(info)?;
        let Some(to) = target(info, &from).filter(|to| *to != from) else { continue };
        let class = ssd_share(cluster, &to).total_cmp(&ssd_share(cluster, &from));
        match orders.last_mut() {
            Some((before, last)) if *before == class && last.layout == to && last.last.0 + 1 == info.region.0 => {
                last.last = info.region;
            }
            _ => orders.push((class, MoveOrder { file, first: info.region, last: info.region, layout: to })),
        }
    }
    orders.sort_by_key(|(class, order)| (*class, order.first));
    Ok(orders.into_iter().map(|(_, order)| order).collect())
}

/// The part of a region's bytes that lies on SServers.
fn ssd_share(cluster: &Cluster, layout: &Layout) -> f64 {
    let is_ssd = |id: ServerId| cluster.server(id).is_some_and(|server| server.class == ServerClass::Ssd);
    let on_ssd = layout.stripes().iter().filter(|stripe| is_ssd(stripe.server));
    let ssd_bytes: u64 = on_ssd.map(|stripe| u64::from(stripe.size_bytes)).sum();
    ssd_bytes as f64 / layout.view().cycle_bytes() as f64
}

/// Moves that were ordered together.
pub struct Batch {
    orders: Vec<MoveOrder>,
    since_ns: u64,
    ranges: Vec<(MoveNumber, MoveNumber)>,
}

impl Batch {
    /// Queues the orders; returns at once.
    ///
    /// # Errors
    ///
    /// [`MoveError::Store`], also where an order is refused; orders of earlier packets are queued
    /// then.
    pub fn order(store: &Store, orders: Vec<MoveOrder>) -> Result<Self> {
        let mut batch = Self { orders, since_ns: 0, ranges: Vec::new() };
        batch.queue(store)?;
        Ok(batch)
    }

    fn queue(&mut self, store: &Store) -> Result<()> {
        // Asked before: if the broker changes in between, that is seen at the next look.
        self.since_ns = totals(store)?.since_ns;
        self.ranges.clear();
        let bytes_of = |order: &MoveOrder| 40 + 9 * order.layout.stripes().len();
        let mut left = self.orders.as_slice();
        while !left.is_empty() {
            let mut bytes = 0;
            let fitting = left.iter().take_while(|order| {
                bytes += bytes_of(order);
                bytes < MAX_PACKET_BYTES / 2
            });
            let (packet, rest) = left.split_at(fitting.count().max(1));
            left = rest;
            match store.admin(Admin::Move { orders: packet.to_vec() })? {
                Reply::MovesQueued { count: 0, .. } => {}
                Reply::MovesQueued { first, count } => self.ranges.push((first, MoveNumber(first.0 + count - 1))),
                _ => return Err(StoreError::Answer { question: "an order" }.into()),
            }
        }
        Ok(())
    }

    /// Moves in all.
    pub fn count(&self) -> usize {
        self.ranges.iter().map(|(first, last)| (last.0 - first.0 + 1) as usize).sum()
    }

    /// Ends the moves that are not committed yet; their regions stay.
    ///
    /// # Errors
    ///
    /// [`MoveError::Store`].
    pub fn cancel(&self, store: &Store) -> Result<()> {
        for (first, last) in &self.ranges {
            let which = WhichMoves::Range { first: *first, last: *last };
            store.done(Admin::ControlMoves(MoveControl::Cancel(which)))?;
        }
        Ok(())
    }

    /// Follows the moves to their end with a bar that says `what`. After Ctrl-C those not committed are cancelled.
    ///
    /// # Errors
    ///
    /// [`MoveError::Store`] or [`MoveError::Layout`]; moves that fail are no error, see
    /// [`Outcome::check`].
    pub fn wait(&mut self, store: &Store, voice: &Voice, what: &str, interrupt: Interrupt) -> Result<Outcome> {
        let mut pause_reported = None;
        let mut bar: Option<Box<dyn Task>> = None;
        let (mut followed, mut interrupted) = (Followed::new(&self.ranges), false);
        let mut pause = FIRST_PAUSE;
        loop {
            if interrupt.came() && !interrupted {
                interrupted = true;
                self.cancel(store)?;
            }
            let totals = followed.poll(store)?;
            if totals.since_ns != self.since_ns && !interrupted {
                self.queue(store)?;
                followed = Followed::new(&self.ranges);
                continue;
            }
            report_pause(&totals, &mut pause_reported, voice);
            let bar = bar.get_or_insert_with(|| voice.bytes(followed.total_bytes(), what));
            bar.set(followed.done_bytes());
            // What another broker knows nothing of was ended with the one before.
            if followed.left.is_empty() || totals.since_ns != self.since_ns {
                break;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(MAX_PAUSE);
        }
        self.settle(store, followed, interrupted)
    }

    /// What became of the regions, by where they lie.
    fn settle(&self, store: &Store, followed: Followed, interrupted: bool) -> Result<Outcome> {
        let mut stayed = Vec::new();
        let mut files: BTreeMap<FileId, HashMap<RegionIndex, RegionInfo>> = BTreeMap::new();
        let mut regions = 0;
        for order in &self.orders {
            let lying = match files.entry(order.file) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    // A file that was removed meanwhile has no regions.
                    let regions = store.regions(order.file).unwrap_or_default();
                    entry.insert(regions.into_iter().map(|info| (info.region, info)).collect())
                }
            };
            for region in (order.first.0..=order.last.0).map(RegionIndex) {
                let Some(info) = lying.get(&region) else { continue };
                regions += 1;
                if layout_of(info)? != order.layout {
                    let (path, why) = followed.why(order.file, region);
                    stayed.push(Stayed { path, region, why });
                }
            }
        }
        Ok(Outcome { regions, moved: regions - stayed.len(), stayed, interrupted })
    }
}

/// Says once that nothing moves, and how to change that.
pub fn report_pause(totals: &MoveTotals, reported: &mut Option<String>, voice: &Voice) {
    if totals.paused != *reported {
        reported.clone_from(&totals.paused);
        if let Some(why) = reported {
            voice.say(format_args!("moves are paused ({why}); `stripewise migrate resume` lets them go on"));
        }
    }
}

/// What is known of the moves of a batch.
struct Followed {
    /// Not ended, with their bytes and those copied.
    left: BTreeMap<MoveNumber, (u64, u64)>,
    ended_bytes: u64,
    paths: HashMap<FileId, String>,
    failed: HashMap<(FileId, RegionIndex), String>,
}

impl Followed {
    fn new(ranges: &[(MoveNumber, MoveNumber)]) -> Self {
        let numbers = ranges.iter().flat_map(|(first, last)| (first.0..=last.0).map(MoveNumber));
        Self {
            left: numbers.map(|number| (number, (0, 0))).collect(),
            ended_bytes: 0,
            paths: HashMap::new(),
            failed: HashMap::new(),
        }
    }

    fn poll(&mut self, store: &Store) -> Result<MoveTotals> {
        let first = self.left.keys().next().map_or(u64::MAX, |first| first.0);
        let (totals, moves) = list(store, first.checked_sub(1).map(MoveNumber))?;
        let reported: HashMap<MoveNumber, MoveStatus> =
            moves.into_iter().map(|status| (status.number, status)).collect();
        let (ended_bytes, failed, paths) = (&mut self.ended_bytes, &mut self.failed, &mut self.paths);
        self.left.retain(|number, (total_bytes, copied_bytes)| {
            // Ended so long ago that the broker no longer tells of it.
            let Some(status) = reported.get(number) else {
                *ended_bytes += *total_bytes;
                return false;
            };
            paths.entry(status.file).or_insert_with(|| status.path.clone());
            (*total_bytes, *copied_bytes) = (status.total_bytes, status.copied_bytes.min(status.total_bytes));
            let why = match &status.state {
                MoveState::Failed { why } => why.clone(),
                MoveState::Cancelled => "cancelled".to_owned(),
                MoveState::Done => {
                    *ended_bytes += *total_bytes;
                    return false;
                }
                _ => return true,
            };
            failed.insert((status.file, status.region), why);
            false
        });
        Ok(totals)
    }

    fn total_bytes(&self) -> u64 {
        self.ended_bytes + self.left.values().map(|(total, _)| total).sum::<u64>()
    }

    fn done_bytes(&self) -> u64 {
        self.ended_bytes + self.left.values().map(|(_, copied)| copied).sum::<u64>()
    }

    fn why(&self, file: FileId, region: RegionIndex) -> (String, String) {
        let path = self.paths.get(&file).cloned().unwrap_or_else(|| format!("file {file}"));
        let why = self.failed.get(&(file, region)).cloned();
        (path, why.unwrap_or_else(|| "another order moved it elsewhere".to_owned()))
    }
}

/// The order that a move came from; `None` if it names no layout.
pub fn order_of(status: &MoveStatus) -> Option<MoveOrder> {
    let layout = Layout::new(status.to.iter().map(|(server, size)| (ServerId(*server), *size))).ok()?;
    Some(MoveOrder { file: status.file, first: status.region, last: status.region, layout })
}

/// The name of a state, and what else there is to say.
pub fn state_words(state: &MoveState) -> (&'static str, Option<&str>) {
    match state {
        MoveState::Queued { waits_for } => ("queued", waits_for.as_deref()),
        MoveState::Copying => ("copying", None),
        MoveState::Sealed => ("sealed", None),
        MoveState::Committing => ("committing", None),
        MoveState::Freeing => ("freeing", None),
        MoveState::Done => ("done", None),
        MoveState::Failed { why } => ("failed", Some(why)),
        MoveState::Cancelled => ("cancelled", None),
    }
}
