//! `stripewise report`: one self-contained HTML file of what was traced, planned, measured and simulated.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise::messages::shown;
use stripewise::report::report;
use stripewise_layout::output;

/// Write one HTML file that shows a trace, plans, a profile, measured results and simulated runs
///
/// What each input is shows from itself: a trace, a plan, a profile, the results.json of a demonstration, or what `simulate -o` wrote.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise report run.trace plan.json -o report.html
  stripewise report run.trace def.json h2dp.json profile.json results.json -o report.html
  stripewise report opt.json sim.json -o report.html")]
pub(crate) struct ReportArgs {
    /// A trace, plans, a profile, results, a simulation; in any order
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,

    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Written<'a> {
    /// File written.
    output: &'a Path,
    /// Its size.
    bytes: usize,
}

pub(crate) fn run(context: &Context, arguments: ReportArgs) -> Result<Verdict> {
    crate::output::check(&arguments.output)?;
    let html = {
        let _waiting = context.waiting("making the report");
        report(&arguments.inputs)?
    };
    output::write(&arguments.output, &html).with_context(|| format!("cannot write {}", shown(&arguments.output)))?;
    if context.json {
        context.object(&Written { output: &arguments.output, bytes: html.len() })?;
    } else {
        context.say(format_args!("wrote {}", shown(&arguments.output)));
    }
    Ok(Verdict::Done)
}
