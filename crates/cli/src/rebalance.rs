//! `stripewise rebalance`: lay files over servers that were added.

use crate::completions;
use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::named_plan::NamedPlan;
use stripewise::rebalance::{Wanted, rebalance};
use stripewise_layout::figures::counted;

/// Lay files over servers that were added to the cluster, or as a plan wants them
///
/// New servers are added at the end of cluster.toml; their directories, empty ones, are prepared here. Regions whose layout has one stripe size on all other servers of a class get the new ones of that
/// class with the same stripe; other layouts, which a plan chose, stay. With --plan, every file of the plan is laid out as the plan begins; a plan whose
/// verdict is "leave it" is refused without --force. Programs read and write meanwhile.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise rebalance
  stripewise rebalance --new ssd2 --new ssd3
  stripewise rebalance --plan plan.json
  stripewise rebalance --plan plan.json --force")]
pub(crate) struct RebalanceArgs {
    /// A server that was added; may be given more than once [default: those at the end of cluster.toml that hold nothing]
    #[arg(long, value_name = "SERVER", conflicts_with = "plan", add = completions::servers())]
    new: Vec<String>,

    /// Lay the plan's files out as it begins
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,

    /// Lay the files out although the plan says itself that it is not worth its move
    #[arg(long, requires = "plan")]
    force: bool,
}

pub(crate) fn run(context: &Context, arguments: RebalanceArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let RebalanceArgs { new, plan, force } = arguments;
    let wanted = match plan {
        Some(path) => Wanted::Plan(NamedPlan { path, force, option: "--force" }),
        None => Wanted::New(new),
    };
    let rebalanced = rebalance(&store, context.voice(), &wanted, interrupt)?;
    let checked = rebalanced.check();
    if context.json {
        context.object(&rebalanced)?;
    } else if checked.is_ok() {
        let new = &rebalanced.new;
        let onto = if new.is_empty() { String::new() } else { format!("; new: {}", new.join(", ")) };
        context.say(format_args!("{} moved{onto}", counted(rebalanced.moved, "region was", "regions were")));
    }
    context.flush()?;
    checked?;
    Ok(Verdict::Done)
}
