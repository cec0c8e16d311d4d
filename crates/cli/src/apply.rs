//! `stripewise apply`: bring the files of a plan under management, placed as it says.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use stripewise::apply::{Action, Applied, ApplyOptions, Step, apply};
use stripewise::messages::shown;
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, counted, grouped};
use stripewise_planner::Plan;

/// Bring the files of a plan under management
///
/// Existing data is copied in under a write lease and verified before the original is replaced; a file that is open elsewhere is
/// refused. On a cluster of many hosts every host's agent is asked who has the file open, and a host that cannot say is refused by name. Files that do not exist yet get their placement when a redirected program creates them. Every file is looked at, and
/// space found for all, before the first is touched. A plan whose verdict is "leave it" is refused without --force. Replicas that the plan has get the space that is left (see `stripewise sync`).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise apply plan.json --dry-run
  stripewise apply plan.json
  stripewise apply plan.json --unchecked-hosts node17,node18")]
pub(crate) struct ApplyArgs {
    plan: PathBuf,

    /// Say what would be done, and whether it could be; change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Apply the plan although it says itself that it is not worth its move
    #[arg(long)]
    force: bool,

    /// Hosts that are not asked whether a program has a file open; what such a program writes to a file that is applied is lost
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    unchecked_hosts: Vec<String>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// Whether nothing was changed.
    dry_run: bool,
    /// The steps, planned or carried out.
    files: Vec<Step>,
    /// Bytes copied.
    copied_bytes: u64,
}

pub(crate) fn run(context: &Context, arguments: ApplyArgs) -> Result<Verdict> {
    let cluster = context.session.cluster()?;
    // Before signals are noted only: a pipe may have nothing for long.
    let ApplyArgs { plan: path, dry_run, force, unchecked_hosts } = arguments;
    let plan = Plan::load(&path)?;
    let interrupt = interrupt::watch()?;
    let plan = (&plan, path.as_path());
    let options = ApplyOptions { dry_run, force, unchecked_hosts };
    let Applied { steps, copied_bytes, complaints } = apply(&context.session, &cluster, plan, &options, interrupt)?;
    show(context, steps, copied_bytes, dry_run)?;
    complaints.iter().for_each(|complaint| context.say(complaint));
    Ok(Verdict::Done)
}

fn show(context: &Context, files: Vec<Step>, copied_bytes: u64, dry_run: bool) -> Result<()> {
    if context.json {
        return context.object(&Shown { dry_run, files, copied_bytes });
    }
    let mut table = Table::new(&["action", ">size", ">regions", ">layouts", "file"]);
    for step in &files {
        let action = match (step.action, dry_run) {
            (Action::Move, true) => "would move",
            (Action::Move, false) => "moved",
            (Action::Expect, true) => "would expect",
            (Action::Expect, false) => "expected",
        };
        let size = if step.action == Action::Expect { "-".to_owned() } else { bytes(step.size_bytes) };
        table.row([action.to_owned(), size, grouped(step.regions as i64), step.layouts.to_string(), shown(&step.path)]);
    }
    context.line(table)?;
    for step in files.iter().filter(|step| step.fallback_regions > 0) {
        context.say(format_args!(
            "{}: {} in the fallback layout, since servers of their own are full",
            shown(&step.path),
            counted(step.fallback_regions as usize, "region lies", "regions lie")
        ));
    }
    if !dry_run {
        context.say("next: `stripewise run -- PROGRAM ...`");
    }
    Ok(())
}
