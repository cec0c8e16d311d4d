//! `stripewise check`: orphans, lost stubs, servers that are not there.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use stripewise::Store;
use stripewise::messages::printable;
use stripewise_broker::Broker;
use stripewise_store::protocol::{Admin, Finding, Reply};

/// Find orphans, lost or overwritten stubs and faulty servers
///
/// Exit status 1 when something is found that is not repaired.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise check
  stripewise check --repair")]
pub(crate) struct CheckArgs {
    /// Restore stubs and free what belongs to no file; make a damaged mapping table anew
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
    let rebuilt = match check_table(context, arguments.repair)? {
        Table::Whole => Vec::new(),
        Table::Rebuilt(findings) => findings,
        Table::Damaged(findings) => return show(context, findings),
    };
    // What no record of a new table names is looked at by a person before it is removed.
    let repair = arguments.repair && rebuilt.is_empty();
    let store = Store::open(&context.session)?;
    let Reply::Findings { findings } = store.admin(Admin::Check { repair })? else {
        bail!("the broker answered a check with something else; use one version of stripewise");
    };
    show(context, rebuilt.into_iter().chain(findings).collect())
}

enum Table {
    Whole,
    Damaged(Vec<Finding>),
    Rebuilt(Vec<Finding>),
}

/// Before any broker: none starts over a damaged table.
fn check_table(context: &Context, repair: bool) -> Result<Table> {
    let cluster = context.session.cluster()?;
    let damages = Broker::table_damages(&cluster)?;
    if damages.is_empty() {
        return Ok(Table::Whole);
    }
    let finding = |what: String, repaired| Finding {
        what: format!("mapping table: {what}"),
        remedy: if repaired { "" } else { "end all programs that use the cluster, then `stripewise check --repair`" }
            .to_owned(),
        repaired,
    };
    if !repair {
        return Ok(Table::Damaged(damages.into_iter().map(|what| finding(what, false)).collect()));
    }
    let said = Broker::rebuild_table(&cluster)?;
    Ok(Table::Rebuilt(damages.into_iter().chain(said).map(|what| finding(what, true)).collect()))
}

fn show(context: &Context, findings: Vec<Finding>) -> Result<Verdict> {
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
                printable(&finding.what, false)
            ))?;
            if !finding.repaired && !finding.remedy.is_empty() {
                context.line(format_args!("          {}", printable(&finding.remedy, false)))?;
            }
        }
    }
    Ok(if open { Verdict::Finding } else { Verdict::Done })
}
