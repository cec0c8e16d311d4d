//! `stripewise phase`: a program says that a phase of its begins.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use stripewise::phase::{PhaseName, mark_phase};

/// Mark that a phase of the running program begins, for a plan that is followed by phases
///
/// For scripts that run a program in steps, under `stripewise run --migrate --windows phase` or alongside `stripewise daemon --windows phase`. A number
/// means that window of the plan. The first name that is marked means window 0, each new name the next window, and a name that came before
/// its window again. The moves go on in the background.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise phase read-mesh
  stripewise phase 2")]
pub(crate) struct PhaseArgs {
    /// Name of the phase, or number of a window
    name: PhaseName,
}

pub(crate) fn run(context: &Context, arguments: PhaseArgs) -> Result<Verdict> {
    let marked = mark_phase(&context.session, arguments.name)?;
    if context.json {
        context.object(&marked)?;
    } else {
        context.say(marked.answer);
    }
    Ok(Verdict::Done)
}
