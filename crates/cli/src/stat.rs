//! `stripewise stat`: what is known of a managed file, down to its regions, or of a cluster as a whole.

pub(crate) mod cluster;
mod fragments;

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::messages::printable;
use stripewise::messages::shown;
use stripewise::stat::{FileStat, cluster_stat, stat};
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, grouped};
use stripewise_report::date::utc;

/// Show size, times, owner, servers and regions of managed files, or a cluster: its hosts, master, moves and servers
///
/// Without FILE it shows the cluster. So does a bare --cluster, of the cluster that is meant without it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise stat data.h5
  stripewise stat --json data.h5 | jq '.files[0].spans'
  stripewise stat --cluster
  stripewise stat --cluster --json | jq '.hosts[] | select(.is_silent)'")]
pub(crate) struct StatArgs {
    /// Managed files [default: the cluster as a whole]
    #[arg(value_name = "FILE")]
    paths: Vec<PathBuf>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// One for each file, in the order in which they were named.
    files: Vec<FileStat>,
}

pub(crate) fn run(context: &Context, arguments: StatArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    if arguments.paths.is_empty() {
        let cluster = cluster_stat(&store)?;
        match context.json {
            true => context.object(&cluster)?,
            false => cluster::print(context, &cluster)?,
        }
        return Ok(Verdict::Done);
    }
    let mut files = Vec::new();
    for path in &arguments.paths {
        files.push(stat(&store, path)?);
    }
    if context.json {
        context.object(&Shown { files })?;
        return Ok(Verdict::Done);
    }
    for (number, file) in files.iter().enumerate() {
        if number > 0 {
            context.line("")?;
        }
        print(context, file)?;
    }
    Ok(Verdict::Done)
}

fn print(context: &Context, file: &FileStat) -> Result<()> {
    context.line(format_args!("path      {}", printable(&shown(&file.path), false)))?;
    context.line(format_args!("file      {}", file.file))?;
    context.line(format_args!("size      {} ({} bytes)", bytes(file.size_bytes), grouped(file.size_bytes as i64)))?;
    context.line(format_args!("blocks    {} of 512 bytes", grouped(file.blocks_512 as i64)))?;
    context.line(format_args!("mode      {}, owner {}:{}", file.mode, file.uid, file.gid))?;
    context.line(format_args!("modified  {}", utc(file.modified_ns)))?;
    context.line(format_args!(
        "regions   {} of {}, {} placed",
        file.regions,
        bytes(file.region_bytes),
        file.regions_placed
    ))?;
    if let Some(min_bytes) = file.min_size_bytes {
        context
            .line(format_args!("min size  {}: smaller, it becomes ordinary after its last close", bytes(min_bytes)))?;
    }
    if file.replicas > 0 {
        context.line(format_args!("replicas  {}, {} fresh", file.replicas, file.replicas_fresh))?;
    }
    fragments::print(context, &file.fragments)?;
    let mut table = if file.replicas > 0 {
        Table::new(&["  server", ">bytes", ">promised", ">held", ">in replicas"])
    } else {
        Table::new(&["  server", ">bytes", ">promised", ">held"])
    };
    for server in &file.servers {
        let held = server.held_bytes.map_or_else(|| "unknown".to_owned(), bytes);
        let row = [format!("  {}", server.name), bytes(server.bytes), bytes(server.promised_bytes), held];
        match file.replicas {
            0 => table.row(row),
            _ => table.row(row.into_iter().chain([bytes(server.replica_bytes)])),
        }
    }
    context.line(table)?;
    let mut table = Table::new(&["  regions", "layout", ""]);
    for span in &file.spans {
        let last = span.first_region + span.regions - 1;
        let range = if span.regions == 1 { last.to_string() } else { format!("{}..{last}", span.first_region) };
        let note = if span.fell_back { "fallback: its servers were full or could not be used" } else { "" };
        table.row([format!("  {range}"), span.layout.clone(), note.to_owned()]);
        for replica in &span.replicas {
            let note = if replica.fresh { "replica, fresh" } else { "replica, to be refreshed" };
            table.row([String::new(), replica.layout.clone(), note.to_owned()]);
        }
    }
    context.line(table)
}
