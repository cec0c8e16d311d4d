//! `stripewise restripe`: give regions of a managed file another layout while programs use it.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;
use stripewise::messages::shown;
use stripewise::named_plan::NamedPlan;
use stripewise::restripe::{NewLayout, Regions, RestripeOptions, restripe};
use stripewise::{Store, layouts};
use stripewise_layout::figures::{bytes, counted};

/// Give regions of a managed file another layout while programs read and write it
///
/// Waits until all is moved. Ctrl-C cancels what is not committed: a region lies whole in its old layout or whole in the new one, or on servers with free space where it
/// had to make way first. Nothing is moved where the servers have no space for it in the end. Regions that the file gets later take the new layout too, unless --region was given.
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

    /// Take it although the plan says itself that it is not worth its move
    #[arg(long, requires = "plan")]
    force: bool,

    /// Order the moves and return at once; needs `stripewise daemon`, which runs them
    #[arg(long)]
    background: bool,
}

pub(crate) fn run(context: &Context, arguments: RestripeArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let to = match (arguments.layout, arguments.plan) {
        (Some(text), _) => NewLayout::Layout(layouts::parse(&text, &store.cluster)?),
        (None, Some(path)) => NewLayout::Plan(NamedPlan { path, force: arguments.force, option: "--force" }),
        (None, None) => bail!("neither a layout nor a plan is given"),
    };
    let (path, regions, background) = (arguments.path, arguments.region, arguments.background);
    let options = RestripeOptions { path, regions, to, background };
    let restriped = restripe(&store, context.voice(), options, interrupt)?;
    let checked = restriped.check();
    if context.json {
        context.object(&restriped)?;
    } else if restriped.background {
        let said = counted(restriped.regions, "move was", "moves were");
        context.say(format_args!("{said} ordered; `stripewise migrate status` shows them"));
    } else if checked.is_ok() {
        match restriped.regions {
            0 => context.say(format_args!("{} has that layout already", shown(&restriped.path))),
            _ => {
                let said = counted(restriped.moved, "region was", "regions were");
                context.say(format_args!("{said} moved (up to {} each)", bytes(restriped.region_bytes)));
            }
        }
    }
    context.flush()?;
    checked?;
    Ok(Verdict::Done)
}
