//! `stripewise check`: orphans, lost stubs, servers that are not there.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use stripewise::check::check;
use stripewise::messages::printable;

/// Find orphans, lost or overwritten stubs and faulty servers
///
/// Exit status 1 when something is found that is not repaired.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise check
  stripewise check --repair")]
pub(crate) struct CheckArgs {
    /// Restore stubs and free what belongs to no file; rebuild a damaged mapping table
    #[arg(long)]
    repair: bool,
}

pub(crate) fn run(context: &Context, arguments: CheckArgs) -> Result<Verdict> {
    let checked = check(&context.session, arguments.repair)?;
    if context.json {
        context.object(&checked)?;
    } else if checked.findings.is_empty() {
        context.say("nothing is wrong");
    } else {
        for finding in &checked.findings {
            let state = if finding.repaired { "repaired" } else { "found   " };
            context.line(format_args!("{state}  {}", printable(&finding.what, false)))?;
            if !finding.repaired && !finding.remedy.is_empty() {
                context.line(format_args!("          {}", printable(&finding.remedy, false)))?;
            }
        }
        if !arguments.repair && checked.has_open_findings() {
            let nothing =
                if checked.findings.iter().any(|finding| finding.repaired) { "nothing else" } else { "nothing" };
            context.say(format_args!("{nothing} was changed; `stripewise check --repair` repairs what it can"));
        }
    }
    if !context.json {
        checked.remarks.iter().for_each(|remark| context.say(remark));
    }
    Ok(if checked.has_open_findings() { Verdict::Finding } else { Verdict::Done })
}
