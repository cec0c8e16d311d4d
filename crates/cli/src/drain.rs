//! `stripewise drain`: empty a server while programs run.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use stripewise::Interrupt;
use stripewise::Store;
use stripewise::Voice;
use stripewise::layouts;
use stripewise::moves::{Batch, Outcome, Stayed, list, orders, room};
use stripewise_layout::figures::counted;
use stripewise_layout::{FileId, ServerId};
use stripewise_store::protocol::{Admin, FileInfo, MoveControl, MoveOrder, RegionInfo, WhichMoves};

/// Regions are looked for again so often; more come only while other commands restripe.
const MAX_ROUNDS: usize = 8;

/// Empty a server: move all that lies on it to the other servers, and place nothing new there
///
/// Programs read and write meanwhile. Every layout is used without the server, its other stripes as they are; where it lay alone, the other servers of
/// its class take its place, or all others. The server stays drained until `--undo`: leave it in cluster.toml, since servers are known by their
/// order, or take it out if it is the last.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise drain ssd1
  stripewise drain ssd1 --undo")]
pub(crate) struct DrainArgs {
    #[arg(value_name = "SERVER")]
    server: String,

    /// Let the server be used again; what was moved off it stays where it is
    #[arg(long)]
    undo: bool,
}

#[derive(Serialize)]
struct Shown {
    server: String,
    drained: bool,
    regions: usize,
    moved: usize,
    stayed: Vec<Stayed>,
    /// Objects that are still there.
    objects: u64,
}

pub(crate) fn run(context: &Context, arguments: DrainArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let (server, name) = (layouts::server(&arguments.server, &store.cluster)?, arguments.server);
    let before = store.drained()?.contains(&server);
    if arguments.undo {
        mark(&store, server, false)?;
        show(context, &store, server, &[])?;
        if !context.json {
            context.say(format_args!(
                "new data may be placed on {name} again; `stripewise rebalance --new {name}` lays what spans its class over it too"
            ));
        }
        return Ok(Verdict::Done);
    }
    mark(&store, server, true)?;
    let outcomes = match empty(&store, context.voice(), server, &name, interrupt) {
        Ok(outcomes) => outcomes,
        Err(error) => {
            if !before {
                mark(&store, server, false)?;
            }
            return Err(error);
        }
    };
    let left = show(context, &store, server, &outcomes)?;
    context.flush()?;
    let stays = || {
        format!(
            "{name} is not empty but takes nothing new; `stripewise drain {name}` goes on, `stripewise drain {name} --undo` lets it be used again"
        )
    };
    for outcome in &outcomes {
        outcome.check().with_context(stays)?;
    }
    if left > 0 {
        let objects = counted(left as usize, "object is", "objects are");
        bail!("{objects} still on {name} and belong to no region; `stripewise check` says more");
    }
    if !context.json {
        let moved = outcomes.iter().map(|outcome| outcome.moved).sum();
        context.say(format_args!(
            "{name} is empty and takes nothing new; {} moved",
            counted(moved, "region was", "regions were")
        ));
    }
    Ok(Verdict::Done)
}

fn mark(store: &Store, server: ServerId, drained: bool) -> Result<()> {
    Ok(store.done(Admin::Drain { server: server.0, drained })?)
}

/// What was moved off the server, round by round. An error: nothing was.
fn empty(store: &Store, voice: &Voice, server: ServerId, name: &str, interrupt: Interrupt) -> Result<Vec<Outcome>> {
    call_back(store, server)?;
    let drained = store.drained()?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let (files, regions) = lying_on(store, server)?;
        let orders = away(store, &regions, &drained)?;
        let has_ended = outcomes.last().is_some_and(|last: &Outcome| last.interrupted || !last.stayed.is_empty());
        if orders.is_empty() || has_ended {
            break;
        }
        if outcomes.is_empty() {
            room::check(store, &files, &regions, &orders)?;
        }
        outcomes.push(Batch::order(store, orders)?.wait(store, voice, &format!("emptying {name}"), interrupt)?);
    }
    Ok(outcomes)
}

/// Cancels moves that are on their way to the server.
fn call_back(store: &Store, server: ServerId) -> Result<()> {
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
fn lying_on(store: &Store, server: ServerId) -> Result<(Vec<FileInfo>, Regions)> {
    let files = store.files()?;
    let mut found = Regions::new();
    for file in &files {
        let mut regions = store.regions(file.file)?;
        regions.retain(|info| info.stripes.iter().any(|(number, _)| *number == server.0));
        found.insert(file.file, regions);
    }
    Ok((files, found))
}

fn away(store: &Store, regions: &Regions, drained: &BTreeSet<ServerId>) -> Result<Vec<MoveOrder>> {
    let mut all = Vec::new();
    for (file, regions) in regions {
        let without = |layout: &_| store.cluster.layout_without(layout, drained);
        all.extend(orders(&store.cluster, *file, regions, |_, from| without(from))?);
    }
    Ok(all)
}

/// Objects that are still on the server.
fn show(context: &Context, store: &Store, server: ServerId, outcomes: &[Outcome]) -> Result<u64> {
    let usage = store.usage()?.swap_remove(usize::from(server.0));
    if context.json {
        context.object(&Shown {
            server: usage.name,
            drained: usage.drained,
            regions: outcomes.iter().map(|outcome| outcome.regions).sum(),
            moved: outcomes.iter().map(|outcome| outcome.moved).sum(),
            stayed: outcomes.iter().flat_map(|outcome| outcome.stayed.iter().cloned()).collect(),
            objects: usage.objects,
        })?;
    }
    Ok(usage.objects)
}
