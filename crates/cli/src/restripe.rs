//! `stripewise restripe`: lay a managed file's regions out anew, while programs use it.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use stripewise::Store;
use stripewise::daemon::socket;
use stripewise::layouts;
use stripewise::messages::shown;
use stripewise::moves::{Batch, Stayed, orders, placement_of};
use stripewise::paths::real;
use stripewise_layout::figures::{bytes, counted};
use stripewise_layout::{ByteCount, FileId, Placement, RegionIndex};
use stripewise_planner::{Plan, nearest};
use stripewise_store::protocol::{Admin, MoveOrder};
use stripewise_store::shared::control::MAX_REGIONS;

/// Lay a managed file's regions out anew while programs read and write it
///
/// Waits until all is moved. Ctrl-C cancels what is not committed: a region lies whole in its old layout or whole in the new one. Regions that
/// the file gets later are laid out anew too, unless --region was given.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise restripe data.h5 --layout '<64KiB,256KiB>'
  stripewise restripe data.h5 --region 0..15 --layout 'ssd0..ssd3 128KiB'
  stripewise restripe data.h5 --plan plan.json
  stripewise restripe data.h5 --layout 'hdd0..hdd3 1MiB' --background")]
pub(crate) struct RestripeArgs {
    #[arg(value_name = "FILE")]
    path: PathBuf,

    /// Only these regions: a number, or the first and the last
    #[arg(long, value_name = "A..B")]
    region: Option<Regions>,

    /// The layout, as `stripewise stat` shows it: `<h,s>`, or servers with their stripes
    #[arg(long, value_name = "LAYOUT", required_unless_present = "plan")]
    layout: Option<String>,

    /// Take the placement that a plan begins with
    #[arg(long, value_name = "PLAN", conflicts_with = "layout")]
    plan: Option<PathBuf>,

    /// Order the moves and return at once; needs `stripewise daemon`, which runs them
    #[arg(long)]
    background: bool,
}

/// Regions by their numbers, the last one included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Regions {
    first: RegionIndex,
    last: RegionIndex,
}

impl FromStr for Regions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number < MAX_REGIONS);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => {
                Ok(Self { first: RegionIndex(first), last: RegionIndex(last) })
            }
            _ => Err(format!(
                "`{text}` names no regions; write 7, or 0..15 (the last included, numbers below {MAX_REGIONS})"
            )),
        }
    }
}

#[derive(Serialize)]
struct Shown {
    path: PathBuf,
    file: FileId,
    /// Those that lay elsewhere.
    regions: usize,
    moved: usize,
    stayed: Vec<Stayed>,
    /// Ordered only; the daemon moves them.
    background: bool,
}

/// What is asked for.
struct Wish {
    orders: Vec<MoveOrder>,
    /// For regions to come.
    placement: Option<Placement>,
}

pub(crate) fn run(context: &Context, arguments: RestripeArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    if arguments.background && socket::daemon_of(&store.cluster.state).is_none() {
        bail!(
            "no daemon serves the cluster, so the moves would end with this command; start `stripewise daemon`, or leave out --background"
        );
    }
    let managed = store.managed(&arguments.path, false)?;
    let (file, region_bytes) = (managed.striped.id(), managed.striped.region_bytes());
    drop(managed);
    let wish = wish(&store, &arguments, file, region_bytes)?;
    let before = placement_of(&store, file)?;
    if let Some(placement) = wish.placement {
        store.done(Admin::SetPlacement { file, placement })?;
    }
    let mut batch = Batch::order(&store, wish.orders)?;
    let path = arguments.path;
    if arguments.background {
        let regions = batch.count();
        // Should another process have the queue, the daemon orders again what is left when that one ends.
        let adopted = socket::ask(&store.cluster.state, "POST", "/adopt");
        if adopted.is_none_or(|response| response.status != 200) {
            context.say("the daemon did not answer; see with `stripewise migrate status` whether the moves go on");
        }
        if context.json {
            context.object(&Shown { path, file, regions, moved: 0, stayed: Vec::new(), background: true })?;
        } else {
            let said = counted(regions, "move was", "moves were");
            context.say(format_args!("{said} ordered; `stripewise migrate status` shows them"));
        }
        return Ok(Verdict::Done);
    }
    let outcome = batch.wait(&store, context.voice(), &format!("moving {}", path.display()), interrupt)?;
    if outcome.was_stopped() {
        store.done(Admin::SetPlacement { file, placement: before })?;
    }
    let checked = outcome.check();
    let (regions, moved, stayed) = (outcome.regions, outcome.moved, outcome.stayed);
    if context.json {
        context.object(&Shown { path, file, regions, moved, stayed, background: false })?;
    } else if checked.is_ok() {
        match regions {
            0 => context.say(format_args!("{} lies so already", path.display())),
            _ => {
                let said = counted(moved, "region was", "regions were");
                context.say(format_args!("{said} moved ({} each)", bytes(region_bytes)));
            }
        }
    }
    context.flush()?;
    checked?;
    Ok(Verdict::Done)
}

fn wish(store: &Store, arguments: &RestripeArgs, file: FileId, region_bytes: u64) -> Result<Wish> {
    let regions = store.regions(file)?;
    let wanted = arguments.region;
    let is_wanted = |region: RegionIndex| wanted.is_none_or(|range| (range.first..=range.last).contains(&region));
    let placed = regions.iter().filter(|info| is_wanted(info.region));
    if let Some(text) = &arguments.layout {
        let layout = layouts::parse(text, &store.cluster)?;
        let mut orders = orders(&store.cluster, file, placed.clone(), |_, _| Some(layout.clone()))?;
        let placement = match wanted {
            Some(range) => {
                let without_objects = gaps(range, placed.map(|info| info.region));
                // The broker notes the layout for later.
                orders.extend(without_objects.map(|(first, last)| MoveOrder {
                    file,
                    first,
                    last,
                    layout: layout.clone(),
                }));
                None
            }
            None => {
                let fallback = placement_of(store, file)?.fallback_layout().clone();
                Some(Placement::uniform(ByteCount(region_bytes), layout, fallback))
            }
        };
        return Ok(Wish { orders, placement });
    }
    let Some(plan_path) = &arguments.plan else { bail!("neither a layout nor a plan is given") };
    let placement = planned(store, plan_path, &arguments.path, region_bytes)?;
    let orders = orders(&store.cluster, file, placed, |info, _| Some(placement.layout_of(info.region).clone()))?;
    Ok(Wish { orders, placement: wanted.is_none().then_some(placement) })
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

/// Where the plan begins with the file at `path`, or with one of a like name.
fn planned(store: &Store, plan_path: &Path, path: &Path, region_bytes: u64) -> Result<Placement> {
    let plan = Plan::load(plan_path)?;
    plan.check(&store.cluster, plan_path)?;
    let path = real(path)?;
    let name = path.to_str().with_context(|| format!("{} is not UTF-8", shown(&path)))?;
    let (application, processes) = (plan.key.application.clone(), plan.key.processes);
    let plans = [plan];
    let Some(found) = nearest(&plans, name, &application, processes) else {
        let files: Vec<&str> = plans[0].files.iter().map(|file| file.path.as_str()).take(3).collect();
        bail!("{} plans nothing for {name}; it is for {}", plan_path.display(), files.join(", "));
    };
    let placement = found.file.initial().clone();
    if placement.region_size.0 != region_bytes {
        bail!(
            "{} plans regions of {}, {name} has regions of {}; release the file and apply the plan to change that",
            plan_path.display(),
            placement.region_size,
            ByteCount(region_bytes)
        );
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
        let range = |first, last| Ok(Regions { first: RegionIndex(first), last: RegionIndex(last) });
        assert_eq!("7".parse(), range(7, 7));
        assert_eq!("0..15".parse(), range(0, 15));
        for text in ["", "..", "3..", "5..4", "-1", "0..99999999999", "a..b"] {
            let said = text.parse::<Regions>().unwrap_err();
            assert!(said.contains("write 7, or 0..15"), "{said}");
        }
    }
}
