//! Using servers that were added to the cluster, or laying files out as a plan has them.

use crate::interrupt::Interrupt;
use crate::layouts::{self, UnknownServer};
use crate::messages::{printable, shown};
use crate::moves::capacity::{self, CapacityError};
use crate::moves::{Batch, MoveError, Stayed, check_moved, orders, placement_of};
use crate::named_plan::{NamedPlan, NamedPlanError};
use crate::progress::Voice;
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use stripewise_broker::by_agent;
use stripewise_layout::figures::bytes;
use stripewise_layout::{ByteCount, Cluster, FileId, Layout, Placement, ServerClass, ServerId};
use stripewise_store::protocol::{Admin, FileInfo, MoveOrder, RegionInfo, ServerUsage};
use stripewise_store::server::{ServerError, directory, is_by_agent};
use thiserror::Error;

/// Why files were not laid out again.
#[derive(Debug, Error)]
pub enum RebalanceError {
    /// The broker cannot be asked, or refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No server has that name.
    #[error(transparent)]
    Server(#[from] UnknownServer),
    /// Moves could not be ordered, or not all regions were moved.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// Servers have not enough space.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    /// The plan cannot be read, is for other servers, or not worth its moves.
    #[error(transparent)]
    Plan(#[from] NamedPlanError),
    /// The directory of an added server cannot be prepared.
    #[error(transparent)]
    Directory(#[from] ServerError),
    /// The added server takes nothing.
    #[error("server {server} is drained; `stripewise evacuate {server} --undo` lets it be used again")]
    Drained {
        /// Name of the server.
        server: String,
    },
    /// Nobody can tell which servers were added.
    #[error(
        "no server at the end of the cluster file is empty while others are not; name those that were added with --new"
    )]
    NothingNew,
    /// A placement of the plan makes no sense on this cluster.
    #[error("{}: {what}", shown(plan))]
    Placement {
        /// The plan's file.
        plan: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Regions keep their size for as long as a file is managed.
    #[error(
        "{} plans regions of {} for {}, which has others; release the file and apply the plan to change that",
        shown(plan),
        bytes(planned.0),
        printable(file, false)
    )]
    RegionSize {
        /// The plan's file.
        plan: PathBuf,
        /// Size of a region in the plan.
        planned: ByteCount,
        /// Path of the managed file.
        file: String,
    },
    /// The plan is for other files.
    #[error("no file of {} is managed; `stripewise apply` it first", shown(plan))]
    NoneManaged {
        /// The plan's file.
        plan: PathBuf,
    },
}

type Result<T> = std::result::Result<T, RebalanceError>;

/// What files are laid out by.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// Servers that were added, by name. None named: those at the end of the cluster file that hold
    /// nothing.
    New(Vec<String>),
    /// This plan: each of its files as it begins there.
    Plan(NamedPlan),
}

/// What became of the regions.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Rebalanced {
    /// Names of the added servers.
    pub new: Vec<String>,
    /// Regions that had another layout.
    pub regions: usize,
    /// Those of them that have the new layout now.
    pub moved: usize,
    /// The others, with reasons.
    pub stayed: Vec<Stayed>,
    /// An interrupt came before all was moved.
    #[serde(skip)]
    pub interrupted: bool,
}

impl Rebalanced {
    /// An error when not every region was moved.
    ///
    /// # Errors
    ///
    /// [`MoveError::Stopped`] or [`MoveError::Stayed`].
    pub fn check(&self) -> std::result::Result<(), MoveError> {
        check_moved(self.regions, self.moved, &self.stayed, self.interrupted)
    }
}

/// Moves regions onto added servers, or to where a plan has them, and waits for the moves.
///
/// The directories of added servers are prepared first. A region whose layout has one stripe size on
/// all other servers of a class gets the new ones of that class with the same stripe; other layouts,
/// which a plan chose, stay. Programs read and write meanwhile. Regions that could not be moved are
/// no error here, see [`Rebalanced::check`].
///
/// # Errors
///
/// [`RebalanceError`]; nothing was moved unless it is [`RebalanceError::Move`].
pub fn rebalance(store: &Store, voice: &Voice, wanted: &Wanted, interrupt: Interrupt) -> Result<Rebalanced> {
    let files = store.files()?;
    let (new, targets) = match wanted {
        Wanted::Plan(plan) => (BTreeSet::new(), planned(store, voice, &files, plan)?),
        Wanted::New(names) => {
            let new = new_servers(store, names)?;
            prepare(store, &new)?;
            let targets = spread(store, &files, &new)?;
            (new, targets)
        }
    };
    let drained = store.drained()?;
    let (mut all, mut present) = (Vec::<MoveOrder>::new(), HashMap::new());
    for (file, target) in &targets {
        let regions = store.regions(*file)?;
        let wanted = |info: &_, from: &Layout| {
            let to = target.layout_of(info, from);
            store.cluster.layout_without(&to, &drained)
        };
        all.extend(orders(&store.cluster, *file, &regions, wanted)?);
        present.insert(*file, regions);
    }
    capacity::check(store, &files, &present, &all)?;
    for (file, target) in &targets {
        let placement = target.placement.clone();
        store.done(Admin::SetPlacement { file: *file, placement })?;
    }
    let outcome = Batch::order(store, all)?.wait(store, voice, "rebalancing", interrupt)?;
    let name = |id: &ServerId| store.cluster.server(*id).map_or_else(String::new, |server| server.name.clone());
    Ok(Rebalanced {
        new: new.iter().map(name).collect(),
        interrupted: outcome.was_stopped(),
        regions: outcome.regions,
        moved: outcome.moved,
        stayed: outcome.stayed,
    })
}

/// Prepares the directories of servers that were just added; those that are prepared stay as they
/// are, those of others are refused.
fn prepare(store: &Store, new: &BTreeSet<ServerId>) -> Result<()> {
    let objects: Vec<u64> = store.usage()?.iter().map(|usage| usage.objects).collect();
    for id in new {
        let number = usize::from(id.0);
        // One that holds objects was prepared, and is not mounted if it seems empty.
        if let Some(server) = store.cluster.server(*id).filter(|_| objects[number] == 0) {
            if is_by_agent(&server.url) {
                by_agent::probe([server], store.cluster.region_size)?;
                by_agent::prepare(&store.cluster.id, &server.name, &server.url)?;
            } else {
                directory::prepare(&store.cluster.id, &server.name, server.url.directory())?;
            }
        }
    }
    Ok(())
}

/// Where a file's regions are to go.
struct Target {
    /// For regions to come.
    placement: Placement,
    /// None: exactly so. Else each placed region's own layout over these too.
    over: Option<(Cluster, BTreeSet<ServerId>, BTreeSet<ServerId>)>,
}

impl Target {
    fn layout_of(&self, info: &RegionInfo, from: &Layout) -> Layout {
        match &self.over {
            None => self.placement.layout_of(info.region).clone(),
            Some((cluster, new, drained)) => widened(cluster, from, new, drained),
        }
    }
}

fn new_servers(store: &Store, named: &[String]) -> Result<BTreeSet<ServerId>> {
    if !named.is_empty() {
        let drained = store.drained()?;
        let ids = named.iter().map(|name| {
            let id = layouts::server(name, &store.cluster)?;
            match drained.contains(&id) {
                true => Err(RebalanceError::Drained { server: name.clone() }),
                false => Ok(id),
            }
        });
        return ids.collect();
    }
    let empty = appended(&store.usage()?);
    if empty.is_empty() { Err(RebalanceError::NothingNew) } else { Ok(empty) }
}

/// The last servers, as far as they hold nothing where others before them do: those that were appended to the cluster file since.
pub(crate) fn appended(usage: &[ServerUsage]) -> BTreeSet<ServerId> {
    let empty = usage.iter().enumerate().rev().take_while(|(_, usage)| usage.objects == 0 && !usage.drained);
    let empty: BTreeSet<ServerId> = empty.map(|(number, _)| ServerId(number as u16)).collect();
    if empty.len() == usage.len() { BTreeSet::new() } else { empty }
}

fn spread(store: &Store, files: &[FileInfo], new: &BTreeSet<ServerId>) -> Result<Vec<(FileId, Target)>> {
    let drained = store.drained()?;
    let targets = files.iter().map(|file| {
        let mut placement = placement_of(store, file.file)?;
        for layout in &mut placement.layouts {
            *layout = widened(&store.cluster, layout, new, &drained);
        }
        let over = Some((store.cluster.clone(), new.clone(), drained.clone()));
        Ok((file.file, Target { placement, over }))
    });
    targets.collect()
}

/// `layout` with the new servers of every class of which it has one stripe size on all others.
fn widened(cluster: &Cluster, layout: &Layout, new: &BTreeSet<ServerId>, drained: &BTreeSet<ServerId>) -> Layout {
    let mut stripes: Vec<(ServerId, u32)> =
        layout.stripes().iter().map(|stripe| (stripe.server, stripe.size_bytes)).collect();
    for class in [ServerClass::Hdd, ServerClass::Ssd] {
        let ids = cluster.ids_of_class(class);
        let old: BTreeSet<ServerId> =
            ids.iter().copied().filter(|id| !new.contains(id) && !drained.contains(id)).collect();
        let held: Vec<(ServerId, u32)> = stripes.iter().copied().filter(|(id, _)| ids.contains(id)).collect();
        let Some((last, size)) = held.last().copied() else { continue };
        let is_whole = held.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>() == old;
        if is_whole && held.iter().all(|(_, own)| *own == size) {
            let after = stripes.iter().position(|(id, _)| *id == last).map_or(stripes.len(), |position| position + 1);
            let added = ids.into_iter().filter(|id| new.contains(id)).map(|id| (id, size));
            stripes.splice(after..after, added);
        }
    }
    Layout::new(stripes).unwrap_or_else(|_| layout.clone())
}

fn planned(store: &Store, voice: &Voice, files: &[FileInfo], named: &NamedPlan) -> Result<Vec<(FileId, Target)>> {
    let (plan, path) = (named.load(&store.cluster, voice)?, &named.path);
    let mut targets = Vec::new();
    for planned in &plan.files {
        let placement = planned.initial().clone();
        if let Some(file) = files.iter().find(|file| planned.managed_name().as_ref() == Some(&file.path)) {
            let checked = placement.check(store.cluster.servers.len());
            checked.map_err(|what| RebalanceError::Placement { plan: path.to_owned(), what: what.to_string() })?;
            if placement.region_size.0 != file.region_bytes {
                let (planned, file) = (placement.region_size, file.path.clone());
                return Err(RebalanceError::RegionSize { plan: path.to_owned(), planned, file });
            }
            targets.push((file.file, Target { placement, over: None }));
        }
    }
    match targets.is_empty() {
        true => Err(RebalanceError::NoneManaged { plan: path.to_owned() }),
        false => Ok(targets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn only_what_spans_a_class_is_widened() {
        let classes = ["hdd", "hdd", "ssd", "ssd", "hdd", "ssd", "ssd"];
        let mut text = "version = 1\nid = \"c\"\nstate = \"s\"\n".to_owned();
        for (number, class) in classes.iter().enumerate() {
            text += &format!("[[server]]\nname = \"n{number}\"\nclass = \"{class}\"\nurl = \"file:///{number}\"\n");
        }
        let cluster = Cluster::parse(&text, Path::new("/x/cluster.toml")).unwrap();
        let ids = |numbers: &[u16]| numbers.iter().copied().map(ServerId).collect::<BTreeSet<_>>();
        let check = |from: &[(u16, u32)], drained: &[u16], to: &[(u16, u32)]| {
            let layout =
                |pairs: &[(u16, u32)]| Layout::new(pairs.iter().map(|(id, size)| (ServerId(*id), *size))).unwrap();
            let found = widened(&cluster, &layout(from), &ids(&[4, 5, 6]), &ids(drained));
            assert_eq!(found, layout(to), "{from:?}");
        };
        check(&[(0, 8), (1, 8), (2, 16), (3, 16)], &[], &[(0, 8), (1, 8), (4, 8), (2, 16), (3, 16), (5, 16), (6, 16)]);
        check(&[(2, 16), (3, 16)], &[], &[(2, 16), (3, 16), (5, 16), (6, 16)]);
        check(&[(0, 8), (1, 8), (2, 16)], &[], &[(0, 8), (1, 8), (4, 8), (2, 16)]);
        check(&[(0, 8), (1, 8), (2, 16)], &[3], &[(0, 8), (1, 8), (4, 8), (2, 16), (5, 16), (6, 16)]);
        check(&[(2, 16), (3, 32)], &[], &[(2, 16), (3, 32)]);
        check(&[(0, 8)], &[], &[(0, 8)]);
        check(&[(2, 16), (3, 16), (5, 16), (6, 16)], &[], &[(2, 16), (3, 16), (5, 16), (6, 16)]);
    }
}
