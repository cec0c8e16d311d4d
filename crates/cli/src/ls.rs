//! `stripewise ls`: the managed files.

use crate::context::Context;
use crate::output::Verdict;
use crate::stat::cluster;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::list::{Listed, ListedFile, ListedServer, list, list_servers};
use stripewise::messages::printable;
use stripewise::messages::shown;
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, grouped};

/// List managed files, all or those at and below some paths; or the servers
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise ls
  stripewise ls results/ --json
  stripewise ls --servers")]
pub(crate) struct LsArgs {
    /// Files and directories
    paths: Vec<PathBuf>,

    /// List the servers: what regions are promised there, and what they hold of it
    #[arg(long, conflicts_with = "paths")]
    servers: bool,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Listing {
    /// The managed files, or those at and below the named paths.
    files: Vec<ListedFile>,
    /// Size in bytes below which files are ordinary and not listed, of the managed directories that have one: those above
    /// and below the named paths, or all.
    min_size_bytes: BTreeMap<String, u64>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct ServerListing {
    /// In cluster order.
    servers: Vec<ListedServer>,
}

/// Promised space is taken from a server's capacity, held space from its file system.
fn show_servers(context: &Context, servers: Vec<ListedServer>) -> Result<Verdict> {
    if context.json {
        context.object(&ServerListing { servers })?;
        return Ok(Verdict::Done);
    }
    let or = |value: Option<u64>, none: &str| value.map_or_else(|| none.to_owned(), bytes);
    let mut table = Table::new(&["server", "class", ">promised", ">held", ">capacity", ">objects", "state"]);
    for server in servers {
        table.row([
            server.name,
            server.class.to_string(),
            bytes(server.promised_bytes),
            or(server.held_bytes, "unknown"),
            or(server.capacity_bytes, "-"),
            grouped(server.objects as i64),
            cluster::state(None, server.drained),
        ]);
    }
    context.line(table)?;
    Ok(Verdict::Done)
}

pub(crate) fn run(context: &Context, arguments: LsArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    if arguments.servers {
        return show_servers(context, list_servers(&store)?);
    }
    let Listed { files, below, min_size_bytes } = list(&store, &arguments.paths)?;
    if context.json {
        context.object(&Listing { files, min_size_bytes })?;
        return Ok(Verdict::Done);
    }
    for (directory, min_bytes) in &min_size_bytes {
        let size = bytes(*min_bytes);
        let directory = printable(directory, false);
        context.say(format_args!(
            "files below {directory} that are smaller than {size} are ordinary after their last close, and not listed"
        ));
    }
    if files.is_empty() && !below.is_empty() {
        let below: Vec<String> = below.iter().map(|path| shown(path)).collect();
        context.say(format_args!("no managed files at or below {}", below.join(", ")));
        return Ok(Verdict::Done);
    }
    if files.is_empty() {
        context.say("no managed files; `stripewise apply` or `stripewise manage` make some");
        return Ok(Verdict::Done);
    }
    // Most clusters have no minimum sizes.
    let has_min_sizes = files.iter().any(|file| file.min_size_bytes.is_some());
    let mut columns = vec!["file", ">size", ">regions", ">users", "state", "path"];
    if has_min_sizes {
        columns.insert(2, ">min size");
    }
    let mut table = Table::new(&columns);
    for file in &files {
        let mut row = vec![
            file.file.to_string(),
            bytes(file.size_bytes),
            file.regions_placed.to_string(),
            file.users.to_string(),
            file.state.clone(),
            file.path.clone(),
        ];
        if has_min_sizes {
            row.insert(2, file.min_size_bytes.map_or_else(|| "-".to_owned(), bytes));
        }
        table.row(row);
    }
    context.line(table)?;
    Ok(Verdict::Done)
}
