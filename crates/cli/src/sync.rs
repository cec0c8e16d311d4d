//! `stripewise sync`: refresh the replicas of managed files where they are not what the file holds.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::messages::shown;
use stripewise::replicas::{Synced, sync};
use stripewise_layout::figures::counted;

/// Refresh the replicas of managed files where the files were written since
///
/// A plan with replicas says which regions have replicas, in which layouts; reads go to the one that answers first. The first write to
/// a region makes its replicas stale. They are refreshed by this command, when the last writer closes the file, or when nobody has written it for a
/// while. Programs may go on reading and writing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise sync data.h5
  stripewise sync --json *.h5 | jq '.files[].fresh'")]
pub(crate) struct SyncArgs {
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// One for each file, in the order in which they were named.
    files: Vec<Synced>,
}

pub(crate) fn run(context: &Context, arguments: SyncArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let mut files = Vec::new();
    for path in &arguments.paths {
        files.push(sync(&store, context.voice(), path, interrupt)?);
    }
    let complaints: Vec<String> = files.iter().filter_map(Synced::complaint).collect();
    if context.json {
        context.object(&Shown { files })?;
    } else {
        for file in files.iter().filter(|file| file.complaint().is_none()) {
            let path = shown(&file.path);
            match file.wanted {
                0 => context
                    .say(format_args!("{path} is to have no replicas; `stripewise apply` of a plan gives it some")),
                wanted => {
                    let said = counted(wanted as usize, "replica holds", "replicas hold");
                    context.say(format_args!("{path}: {said} what the file holds"));
                }
            }
        }
    }
    for complaint in &complaints {
        context.say(complaint);
    }
    Ok(if complaints.is_empty() { Verdict::Done } else { Verdict::Finding })
}
