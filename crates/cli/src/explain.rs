//! `stripewise explain`: why regions lie where a plan puts them.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use stripewise::explain::{ExplainOptions, Explanation, explain};
use stripewise::made_from::PlanFiles;
use stripewise::shell::quoted_path;
use stripewise_planner::explain::{overview_text, region_text};

/// Say why a region lies where a plan puts it, and what other layouts would cost
///
/// Without a region, what sets the pace of the run, which regions take most of it, and what more SSD capacity would bring.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise explain plan.json
  stripewise explain plan.json /data/out.h5:17
  stripewise explain plan.json out.h5:17 --trace moved/run.trace")]
pub(crate) struct ExplainArgs {
    /// A plan, as `stripewise plan -o` writes it
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    /// A file of the plan, by its path or the end of it, and the number of one of its regions
    #[arg(value_name = "FILE:REGION")]
    region: Option<String>,

    /// The trace, where it is not where the plan was made from it; once for each of several
    #[arg(long = "trace", value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// The profile, where it is not where the plan was made from it
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: ExplainArgs) -> Result<Verdict> {
    let ExplainArgs { plan, region, traces, profile } = arguments;
    let path = plan.clone();
    let explanation =
        explain(&context.session, &ExplainOptions { files: PlanFiles { plan, traces, profile }, region })?;
    if context.json {
        context.object(&explanation)?;
        return Ok(Verdict::Done);
    }
    let text = match &explanation {
        Explanation::Overview(overview) => {
            let next = match overview.verdict.apply {
                true => format!("stripewise apply {}", quoted_path(&path)),
                false => "nothing to apply".to_owned(),
            };
            overview_text(overview, &next)
        }
        Explanation::Region(region) => region_text(region),
    };
    context.line(text.trim_end())?;
    Ok(Verdict::Done)
}
