//! `stripewise manage`: directories whose new files become managed.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::layouts;
use stripewise::manage::{ManageOptions, manage, managed_paths};
use stripewise::table::Table;
use stripewise_layout::{ByteCount, ServerClass};

/// Make new files below a directory managed; without one, list such directories
///
/// Files that redirected programs create there get this layout, or the one that a plan has for their name. Files that are there
/// already stay as they are.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise manage
  stripewise manage /scratch/results
  stripewise manage /scratch/fast --class ssd --stripe 256KiB")]
pub(crate) struct ManageArgs {
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Bytes put on one server before the next one's turn
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    stripe: ByteCount,

    /// Only servers of this class: hdd or ssd
    #[arg(long, value_name = "CLASS", value_parser = layouts::class)]
    class: Option<ServerClass>,

    /// Size of the files' regions [default: the cluster's]
    #[arg(long, value_name = "SIZE")]
    region: Option<ByteCount>,
}

pub(crate) fn run(context: &Context, arguments: ManageArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let ManageArgs { directory, stripe, class, region } = arguments;
    let Some(directory) = directory else {
        list(context, &store)?;
        return Ok(Verdict::Done);
    };
    let managed = manage(&store, &ManageOptions { directory, stripe, class, region })?;
    if context.json {
        context.object(&managed)?;
    } else {
        context.say(format_args!("new files below {} will be managed in redirected runs", managed.directory));
    }
    Ok(Verdict::Done)
}

fn list(context: &Context, store: &Store) -> Result<()> {
    let paths = managed_paths(store);
    if context.json {
        return context.object(&paths);
    }
    let mut table = Table::new(&["what", "path"]);
    for directory in &paths.directories {
        table.row(["directory", directory.as_str()]);
    }
    for path in &paths.expected {
        table.row(["expected file", path.as_str()]);
    }
    if paths.directories.is_empty() && paths.expected.is_empty() {
        context.say("no managed directories, and no new files that a plan expects");
        return Ok(());
    }
    context.line(table)
}
