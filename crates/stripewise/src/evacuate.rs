//! Emptying a server while programs run, and using it again.

use crate::interrupt::Interrupt;
use crate::layouts::{self, UnknownServer};
use crate::moves::capacity::{self, CapacityError};
use crate::moves::{Batch, MoveError, Outcome, Stayed, check_moved, list, orders};
use crate::progress::Voice;
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use stripewise_layout::figures::counted;
use stripewise_layout::{FileId, ServerId};
use stripewise_store::protocol::{Admin, FileInfo, MoveControl, MoveOrder, RegionInfo, WhichMoves};
use thiserror::Error;

/// Rounds of listing regions and moving them. More regions come only while other commands restripe.
const MAX_ROUNDS: usize = 8;

/// Why a server is not empty.
#[derive(Debug, Error)]
pub enum EvacuateError {
    /// The broker cannot be asked, or refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No server has that name.
    #[error(transparent)]
    Server(#[from] UnknownServer),
    /// Moves could not be ordered.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// The other servers have not enough space.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    /// Regions stayed there.
    #[error(
        "{server} is not empty but takes nothing new; `stripewise evacuate {server}` goes on, `stripewise evacuate {server} --undo` lets it be used again"
    )]
    NotEmpty {
        /// Name of the server.
        server: String,
        /// How many regions stayed, and why.
        source: Box<MoveError>,
    },
    /// Objects stayed there that no region has.
    #[error(
        "{} still on {server} and belong to no region; `stripewise check` says more",
        counted(*objects as usize, "object is", "objects are")
    )]
    Orphans {
        /// Name of the server.
        server: String,
        /// Objects that are there.
        objects: u64,
    },
}

type Result<T> = std::result::Result<T, EvacuateError>;

/// What became of a server.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Evacuated {
    /// Its name.
    pub server: String,
    /// Whether nothing new is placed there.
    pub drained: bool,
    /// Regions that had a stripe there.
    pub regions: usize,
    /// Those of them that have none now.
    pub moved: usize,
    /// The others, with reasons.
    pub stayed: Vec<Stayed>,
    /// Objects that are still on the server.
    pub objects: u64,
    /// An interrupt came before all was moved.
    #[serde(skip)]
    pub interrupted: bool,
}

impl Evacuated {
    /// An error when the server still holds something.
    ///
    /// # Errors
    ///
    /// [`EvacuateError::NotEmpty`] or [`EvacuateError::Orphans`].
    pub fn check(&self) -> Result<()> {
        let server = || self.server.clone();
        let moved = check_moved(self.regions, self.moved, &self.stayed, self.interrupted);
        moved.map_err(|source| EvacuateError::NotEmpty { server: server(), source: Box::new(source) })?;
        match self.objects {
            0 => Ok(()),
            objects => Err(EvacuateError::Orphans { server: server(), objects }),
        }
    }
}

/// Moves everything off the server named `name` to the others, and places nothing new there until
/// [`use_again`].
///
/// Every layout is used without the server, its other stripes as they are. Where the server held a
/// region alone, the other servers of its class take its place, or all others. Programs read and
/// write meanwhile. Regions that could not be moved are no error here, see [`Evacuated::check`].
///
/// # Errors
///
/// [`EvacuateError`]; nothing was moved then, and the server is used as before.
pub fn evacuate(store: &Store, voice: &Voice, name: &str, interrupt: Interrupt) -> Result<Evacuated> {
    let server = layouts::server(name, &store.cluster)?;
    let was_drained = store.drained()?.contains(&server);
    mark(store, server, true)?;
    let outcomes = match empty(store, voice, server, name, interrupt) {
        Ok(outcomes) => outcomes,
        Err(error) => {
            if !was_drained {
                mark(store, server, false)?;
            }
            return Err(error);
        }
    };
    evacuated(store, server, outcomes)
}

/// Lets new data be placed on the server named `name` again. What was moved off it stays where it
/// is.
///
/// # Errors
///
/// [`EvacuateError::Server`] or [`EvacuateError::Store`].
pub fn use_again(store: &Store, name: &str) -> Result<Evacuated> {
    let server = layouts::server(name, &store.cluster)?;
    mark(store, server, false)?;
    evacuated(store, server, Vec::new())
}

fn mark(store: &Store, server: ServerId, drained: bool) -> Result<()> {
    Ok(store.done(Admin::Drain { server: server.0, drained })?)
}

fn evacuated(store: &Store, server: ServerId, outcomes: Vec<Outcome>) -> Result<Evacuated> {
    let usage = store.usage()?.swap_remove(usize::from(server.0));
    Ok(Evacuated {
        server: usage.name,
        drained: usage.drained,
        regions: outcomes.iter().map(|outcome| outcome.regions).sum(),
        moved: outcomes.iter().map(|outcome| outcome.moved).sum(),
        interrupted: outcomes.iter().any(Outcome::was_stopped),
        stayed: outcomes.into_iter().flat_map(|outcome| outcome.stayed).collect(),
        objects: usage.objects,
    })
}

/// What was moved off the server, round by round. An error: nothing was.
fn empty(store: &Store, voice: &Voice, server: ServerId, name: &str, interrupt: Interrupt) -> Result<Vec<Outcome>> {
    cancel_moves_to(store, server)?;
    let drained = store.drained()?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let (files, regions) = regions_on(store, server)?;
        let orders = orders_away(store, &regions, &drained)?;
        let has_ended = outcomes.last().is_some_and(|last: &Outcome| last.interrupted || !last.stayed.is_empty());
        if orders.is_empty() || has_ended {
            break;
        }
        if outcomes.is_empty() {
            capacity::check(store, &files, &regions, &orders)?;
        }
        outcomes.push(Batch::order(store, orders)?.wait(store, voice, &format!("emptying {name}"), interrupt)?);
    }
    Ok(outcomes)
}

fn cancel_moves_to(store: &Store, server: ServerId) -> Result<()> {
    let (_, moves) = list(store, None)?;
    let coming = moves
        .iter()
        .filter(|status| !status.state.is_final() && status.to.iter().any(|(number, _)| *number == server.0));
    for status in coming {
        store.done(Admin::ControlMoves(MoveControl::Cancel(WhichMoves::One(status.number))))?;
    }
    Ok(())
}

type Regions = HashMap<FileId, Vec<RegionInfo>>;

/// All files, and the regions of each that have a stripe on the server.
fn regions_on(store: &Store, server: ServerId) -> Result<(Vec<FileInfo>, Regions)> {
    let files = store.files()?;
    let mut found = Regions::new();
    for file in &files {
        let mut regions = store.regions(file.file)?;
        regions.retain(|info| info.stripes.iter().any(|(number, _)| *number == server.0));
        found.insert(file.file, regions);
    }
    Ok((files, found))
}

fn orders_away(store: &Store, regions: &Regions, drained: &BTreeSet<ServerId>) -> Result<Vec<MoveOrder>> {
    let mut all = Vec::new();
    for (file, regions) in regions {
        let without = |layout: &_| store.cluster.layout_without(layout, drained);
        all.extend(orders(&store.cluster, *file, regions, |_, from| without(from))?);
    }
    Ok(all)
}
