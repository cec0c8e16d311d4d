//! `stripewise check`: orphans, lost stubs, servers that are not there.

use crate::context::Context;
use crate::output::Verdict;
use crate::store::Store;
use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use stripewise_store::protocol::{Admin, Reply};

/// Find orphans, lost or overwritten stubs and faulty servers
///
/// Exit status 1 when something is found that is not repaired.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise check
  stripewise check --repair")]
pub(crate) struct CheckArgs {
    /// Restore stubs and free what belongs to no file
    #[arg(long)]
    repair: bool,
}

#[derive(Serialize)]
struct Found {
    what: String,
    remedy: String,
    repaired: bool,
}

#[derive(Serialize)]
struct Shown {
    findings: Vec<Found>,
}

pub(crate) fn run(context: &Context, arguments: CheckArgs) -> Result<Verdict> {
    let store = Store::open(context)?;
    let Reply::Findings { findings } = store.admin(Admin::Check { repair: arguments.repair })? else {
        bail!("the broker answered a check with something else; use one version of stripewise");
    };
    let open = findings.iter().any(|finding| !finding.repaired);
    if context.json {
        let findings = findings
            .into_iter()
            .map(|finding| Found { what: finding.what, remedy: finding.remedy, repaired: finding.repaired })
            .collect();
        context.object(&Shown { findings })?;
    } else if findings.is_empty() {
        context.say("nothing is wrong");
    } else {
        for finding in &findings {
            context.line(format_args!(
                "{}  {}",
                if finding.repaired { "repaired" } else { "found   " },
                finding.what
            ))?;
            if !finding.repaired && !finding.remedy.is_empty() {
                context.line(format_args!("          {}", finding.remedy))?;
            }
        }
    }
    Ok(if open { Verdict::Finding } else { Verdict::Done })
}
