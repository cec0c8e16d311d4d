//! `stripewise manage`: directories whose new files become managed.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::layouts;
use stripewise::manage::{ManageOptions, manage, managed_paths};
use stripewise::messages::printable;
use stripewise::table::Table;
use stripewise_layout::figures::bytes;
use stripewise_layout::{ByteCount, ServerClass};

/// Make new files below a directory managed; without one, list such directories
///
/// Files that redirected programs create there get this layout, or the one that a plan has for their name. Files that are there
/// already stay as they are.
///
/// With --min-size, a new file below DIR is an ordinary one until a redirected program closes it larger; then it becomes managed. A managed file that
/// is smaller becomes ordinary some seconds after its last close. Files that a plan expects are managed from the first byte, whatever their
/// size. To change settings, give the command again with all of them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise manage
  stripewise manage /scratch/results
  stripewise manage /scratch/fast --class ssd --stripe 256KiB
  stripewise manage /scratch/project --min-size 1MiB")]
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

    /// Keep files ordinary that are smaller than this when nobody has them open [default: manage all]
    #[arg(long, value_name = "SIZE")]
    min_size: Option<ByteCount>,
}

pub(crate) fn run(context: &Context, arguments: ManageArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let ManageArgs { directory, stripe, class, region, min_size } = arguments;
    let Some(directory) = directory else {
        list(context, &store)?;
        return Ok(Verdict::Done);
    };
    let managed = manage(&store, &ManageOptions { directory, stripe, class, region, min_size })?;
    if context.json {
        context.object(&managed)?;
    } else if let Some(min_bytes) = managed.min_size_bytes {
        let size = bytes(min_bytes);
        context.say(format_args!(
            "new files below {} will be managed in redirected runs; those smaller than {size} become ordinary after their last close",
            printable(&managed.directory, false)
        ));
    } else {
        context.say(format_args!(
            "new files below {} will be managed in redirected runs",
            printable(&managed.directory, false)
        ));
    }
    Ok(Verdict::Done)
}

fn list(context: &Context, store: &Store) -> Result<()> {
    let paths = managed_paths(store);
    if context.json {
        return context.object(&paths);
    }
    // Most clusters have no minimum sizes.
    let has_min_sizes = !paths.min_size_bytes.is_empty();
    let mut table = Table::new(if has_min_sizes { &["what", "min size", "path"] } else { &["what", "path"] });
    let mut row = |what: &str, path: &str| {
        let min_size = paths.min_size_bytes.get(path).map_or("-".to_owned(), |size| bytes(*size));
        if has_min_sizes { table.row([what, min_size.as_str(), path]) } else { table.row([what, path]) }
    };
    for directory in &paths.directories {
        row("directory", directory);
    }
    for path in &paths.expected {
        row("expected file", path);
    }
    if paths.directories.is_empty() && paths.expected.is_empty() {
        context.say("no managed directories, and no new files that a plan expects");
        return Ok(());
    }
    context.line(table)
}
