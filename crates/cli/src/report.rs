//! `stripewise report`: one self-contained HTML file of what was traced, planned, measured and simulated.
//!
//! Pictures are SVG that the modules below write, coloured by the page's style sheet for light, dark and print; the page is a
//! template. The file loads nothing from anywhere and says so to the browser.

mod bars;
mod fits;
mod heat;
mod latency;
mod live;
mod load;
mod page;
mod prices;
mod regions;
pub(crate) mod scale;
mod summary;
pub(crate) mod svg;
#[cfg(test)]
mod tests;
mod timeline;

use crate::context::Context;
use crate::output::Verdict;
use crate::progress::Waiting;
use crate::results::{RESULTS_VERSION, Results};
use crate::simulate::file::Simulation;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use page::Material;
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise_layout::cluster::DEFAULT_REGION_BYTES;
use stripewise_layout::{ByteCount, output};
use stripewise_model::Profile;
use stripewise_planner::Plan;
use stripewise_trace::Trace;
use summary::TraceSummary;

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
struct Written<'a> {
    output: &'a Path,
    bytes: usize,
}

pub(crate) fn run(context: &Context, arguments: ReportArgs) -> Result<Verdict> {
    let html = from_files(&arguments.inputs)?;
    output::write(&arguments.output, &html).with_context(|| format!("cannot write {}", arguments.output.display()))?;
    if context.json {
        context.object(&Written { output: &arguments.output, bytes: html.len() })?;
    } else {
        context.say(format_args!("wrote {}", arguments.output.display()));
    }
    Ok(Verdict::Done)
}

/// The page made from files of any kind that it can show.
pub(crate) fn from_files(inputs: &[PathBuf]) -> Result<String> {
    let _waiting = Waiting::start("making the report");
    let mut material = Material::default();
    let mut trace = None;
    for path in inputs {
        if let Some(earlier) = add(path, &mut material, &mut trace)? {
            bail!("{} is a second {earlier}; a report shows one", path.display());
        }
    }
    if let Some(trace) = trace {
        let planned = material.plans.first().and_then(|plan| plan.files.first());
        let region_size = planned.map_or(ByteCount(DEFAULT_REGION_BYTES), |file| file.initial().region_size);
        material.trace = Some(TraceSummary::of(&trace, region_size)?);
    }
    page::render(&material)
}

/// Adds one input; returns what it is when there is one of its kind already.
fn add(path: &Path, material: &mut Material, trace: &mut Option<Trace>) -> Result<Option<&'static str>> {
    let is_json = path.extension().is_some_and(|extension| extension == "json") && path.is_file();
    if !is_json {
        let second = trace.replace(Trace::open(path)?).is_some();
        return Ok(second.then_some("trace"));
    }
    let text = stripewise_layout::input::read_text(path, stripewise_layout::input::MAX_LIST_BYTES)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    let has = |key: &str| value.get(key).is_some();
    if has("policy") && has("files") {
        material.plans.push(Plan::parse(&text, path)?);
        Ok(None)
    } else if has("simulated") && has("runs") {
        Ok(material.simulation.replace(Simulation::parse(&text, path)?).map(|_| "simulation"))
    } else if has("runs") {
        let results: Results = serde_json::from_value(value)
            .with_context(|| format!("{}: not the results of a demonstration", path.display()))?;
        ensure!(
            (1..=RESULTS_VERSION).contains(&results.version),
            "{}: results of version {}; this stripewise reads versions 1 to {RESULTS_VERSION}: run `stripewise demo` anew",
            path.display(),
            results.version
        );
        Ok(material.results.replace(results).map(|_| "results file"))
    } else if has("network") && has("servers") {
        Ok(material.profile.replace(Profile::parse(&text, path)?).map(|_| "profile"))
    } else {
        bail!(
            "{} is neither a plan nor a profile, results or a simulation; a trace is named by its directory",
            path.display()
        )
    }
}
