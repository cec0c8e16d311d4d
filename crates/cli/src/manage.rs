//! `stripewise manage`: directories whose new files become managed.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise::Store;
use stripewise::layouts;
use stripewise::messages::shown;
use stripewise::table::Table;
use stripewise_layout::{ByteCount, ServerClass};
use stripewise_store::protocol::Admin;

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
    #[arg(long, value_name = "CLASS", value_parser = parse_class)]
    class: Option<ServerClass>,
}

fn parse_class(text: &str) -> Result<ServerClass, String> {
    match text {
        "hdd" => Ok(ServerClass::Hdd),
        "ssd" => Ok(ServerClass::Ssd),
        other => Err(format!("unknown class `{other}`; known: hdd, ssd")),
    }
}

#[derive(Serialize)]
struct Shown {
    directories: Vec<String>,
    expected: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct Made {
    pub(crate) directory: String,
}

pub(crate) fn run(context: &Context, arguments: ManageArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let Some(directory) = &arguments.directory else {
        list(context, &store)?;
        return Ok(Verdict::Done);
    };
    let stripe = u32::try_from(arguments.stripe.0).ok().filter(|size| *size >= 512 && size.is_multiple_of(512));
    let Some(stripe) = stripe else {
        bail!("--stripe {}: a stripe is a multiple of 512 bytes, below 4GiB", arguments.stripe);
    };
    let placement = layouts::placement(&store.cluster, arguments.class, stripe)?;
    let directory = named(directory)?;
    if !Path::new(&directory).is_dir() {
        bail!("{directory} is no directory; make it first");
    }
    store.done(Admin::Manage { directory: directory.clone(), placement })?;
    if context.json {
        context.object(&Made { directory })?;
    } else {
        context.say(format_args!("new files below {directory} will be managed in redirected runs"));
    }
    Ok(Verdict::Done)
}

/// Real path in UTF-8.
pub(crate) fn named(directory: &Path) -> Result<String> {
    let real = std::fs::canonicalize(directory).with_context(|| format!("cannot find {}", directory.display()))?;
    match real.into_os_string().into_string() {
        Ok(path) => Ok(path),
        Err(path) => bail!("{} is not UTF-8; managed directories have names in UTF-8", shown(path.as_ref())),
    }
}

fn list(context: &Context, store: &Store) -> Result<()> {
    let (directories, expected) = (store.client.managed_directories(), store.client.expected_paths());
    if context.json {
        return context.object(&Shown { directories: directories.to_vec(), expected: expected.to_vec() });
    }
    let mut table = Table::new(&["what", "path"]);
    for directory in directories {
        table.row(["directory", directory.as_str()]);
    }
    for path in expected {
        table.row(["expected file", path.as_str()]);
    }
    if directories.is_empty() && expected.is_empty() {
        context.say("no managed directories, and no new files that a plan expects");
        return Ok(());
    }
    context.line(table)
}
