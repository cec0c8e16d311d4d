//! `stripewise ls`: the managed files.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::list::{Listed, ListedFile, list};
use stripewise::table::Table;
use stripewise_layout::figures::bytes;

/// List managed files, all or those at and below some paths
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise ls
  stripewise ls results/ --json")]
pub(crate) struct LsArgs {
    /// Files and directories
    paths: Vec<PathBuf>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Listing {
    /// The managed files, or those at and below the named paths.
    files: Vec<ListedFile>,
}

pub(crate) fn run(context: &Context, arguments: LsArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let Listed { files, below } = list(&store, &arguments.paths)?;
    if context.json {
        context.object(&Listing { files })?;
        return Ok(Verdict::Done);
    }
    if files.is_empty() && !below.is_empty() {
        let below: Vec<String> = below.iter().map(|path| path.display().to_string()).collect();
        context.say(format_args!("no managed files at or below {}", below.join(", ")));
        return Ok(Verdict::Done);
    }
    if files.is_empty() {
        context.say("no managed files; `stripewise apply` or `stripewise manage` make some");
        return Ok(Verdict::Done);
    }
    let mut table = Table::new(&["file", ">size", ">regions", ">users", "state", "path"]);
    for file in &files {
        table.row([
            file.file.to_string(),
            bytes(file.size_bytes),
            file.regions_placed.to_string(),
            file.users.to_string(),
            file.state.clone(),
            file.path.clone(),
        ]);
    }
    context.line(table)?;
    Ok(Verdict::Done)
}
