//! `stripewise rebalance`: lay files over servers that were added.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use stripewise::Store;
use stripewise::layouts;
use stripewise::moves::{Batch, Stayed, orders, placement_of, room};
use stripewise_layout::figures::counted;
use stripewise_layout::{Cluster, FileId, Layout, Placement, ServerClass, ServerId};
use stripewise_planner::Plan;
use stripewise_store::protocol::{Admin, FileInfo, MoveOrder};
use stripewise_store::server::directory;

/// Lay files over servers that were added to the cluster, or as a plan wants them
///
/// New servers are added at the end of cluster.toml; their directories, empty ones, are prepared here. Regions whose layout has one stripe size on all other servers of a class get the new ones of that
/// class with the same stripe; other layouts, which a plan chose, stay. With --plan, every file of the plan is laid out as the plan begins. Programs
/// read and write meanwhile.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise rebalance
  stripewise rebalance --new ssd2 --new ssd3
  stripewise rebalance --plan plan.json")]
pub(crate) struct RebalanceArgs {
    /// A server that was added; may be given more than once [default: those at the end of cluster.toml that hold nothing]
    #[arg(long, value_name = "SERVER", conflicts_with = "plan")]
    new: Vec<String>,

    /// Lay the plan's files out as it begins
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,
}

#[derive(Serialize)]
struct Shown {
    new: Vec<String>,
    regions: usize,
    moved: usize,
    stayed: Vec<Stayed>,
}

pub(crate) fn run(context: &Context, arguments: RebalanceArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let files = store.files()?;
    let new = match &arguments.plan {
        Some(_) => BTreeSet::new(),
        None => new_servers(&store, &arguments.new)?,
    };
    prepare(&store, &new)?;
    let targets = match &arguments.plan {
        Some(plan) => planned(&store, &files, plan)?,
        None => spread(&store, &files, &new)?,
    };
    let drained = store.drained()?;
    let (mut all, mut lying) = (Vec::<MoveOrder>::new(), HashMap::new());
    for (file, target) in &targets {
        let regions = store.regions(*file)?;
        let wanted = |info: &_, from: &Layout| {
            let to = target.layout_of(info, from);
            store.cluster.layout_without(&to, &drained)
        };
        all.extend(orders(&store.cluster, *file, &regions, wanted)?);
        lying.insert(*file, regions);
    }
    room::check(&store, &files, &lying, &all)?;
    for (file, target) in &targets {
        let placement = target.placement.clone();
        store.done(Admin::SetPlacement { file: *file, placement })?;
    }
    let outcome = Batch::order(&store, all)?.wait(&store, context.voice(), "rebalancing", interrupt)?;
    let checked = outcome.check();
    let name = |id: &ServerId| store.cluster.server(*id).map_or_else(String::new, |server| server.name.clone());
    let new: Vec<String> = new.iter().map(name).collect();
    if context.json {
        let (regions, moved, stayed) = (outcome.regions, outcome.moved, outcome.stayed);
        context.object(&Shown { new, regions, moved, stayed })?;
    } else if checked.is_ok() {
        let onto = if new.is_empty() { String::new() } else { format!("; new: {}", new.join(", ")) };
        context.say(format_args!("{} moved{onto}", counted(outcome.moved, "region was", "regions were")));
    }
    context.flush()?;
    checked?;
    Ok(Verdict::Done)
}

/// Prepares the directories of servers that were just added; those that are prepared stay as they are, those of others are refused.
fn prepare(store: &Store, new: &BTreeSet<ServerId>) -> Result<()> {
    let objects: Vec<u64> = store.usage()?.iter().map(|usage| usage.objects).collect();
    for id in new {
        let number = usize::from(id.0);
        // One that holds objects was prepared, and is not mounted if it seems empty.
        if let Some(server) = store.cluster.server(*id).filter(|_| objects[number] == 0) {
            directory::prepare(&store.cluster.id, &server.name, server.url.directory())?;
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
    fn layout_of(&self, info: &stripewise_store::protocol::RegionInfo, from: &Layout) -> Layout {
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
            if drained.contains(&id) {
                bail!("server {name} is drained; `stripewise drain {name} --undo` lets it be used again");
            }
            Ok(id)
        });
        return ids.collect();
    }
    let usage = store.usage()?;
    let empty = usage.iter().enumerate().rev().take_while(|(_, usage)| usage.objects == 0 && !usage.drained);
    let empty: BTreeSet<ServerId> = empty.map(|(number, _)| ServerId(number as u16)).collect();
    if empty.is_empty() || empty.len() == usage.len() {
        bail!(
            "no server at the end of the cluster file is empty while others are not; name those that were added with --new"
        );
    }
    Ok(empty)
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

fn planned(store: &Store, files: &[FileInfo], path: &Path) -> Result<Vec<(FileId, Target)>> {
    let plan = Plan::load(path)?;
    plan.check(&store.cluster, path)?;
    let mut targets = Vec::new();
    for planned in &plan.files {
        let placement = planned.initial().clone();
        if let Some(file) = files.iter().find(|file| file.path == planned.path) {
            placement
                .check(store.cluster.servers.len())
                .map_err(|what| anyhow::anyhow!("{}: {what}", path.display()))?;
            if placement.region_size.0 != file.region_bytes {
                bail!(
                    "{} plans regions of {} for {}, which has others; release the file and apply the plan to change that",
                    path.display(),
                    placement.region_size,
                    file.path
                );
            }
            targets.push((file.file, Target { placement, over: None }));
        }
    }
    if targets.is_empty() {
        bail!("no file of {} is managed; `stripewise apply` it first", path.display());
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

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
