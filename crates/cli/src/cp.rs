//! `stripewise cp`: copies in, out and between managed files.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::copy::{Copied, CopyKind, copy_all};

/// Copy files in and out of management; mode and times are kept
///
/// A copy becomes managed if --managed asks for it, if its directory is managed, if a plan expects its name, or if it replaces a
/// managed file, whose placement it then takes over. Otherwise it is an ordinary file.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise cp data.bin /backup/data.bin
  stripewise cp /backup/data.bin data.bin
  stripewise cp --managed input.dat scratch/")]
pub(crate) struct CpArgs {
    /// Files, managed or not
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,

    /// A file, or a directory to copy into
    #[arg(value_name = "DESTINATION")]
    destination: PathBuf,

    /// Make the copy a managed file
    #[arg(long, conflicts_with = "ordinary")]
    managed: bool,

    /// Make the copy an ordinary file
    #[arg(long)]
    ordinary: bool,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// One for each file that was copied.
    files: Vec<Copied>,
}

pub(crate) fn run(context: &Context, arguments: CpArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let kind = match (arguments.managed, arguments.ordinary) {
        (true, _) => Some(CopyKind::Managed),
        (_, true) => Some(CopyKind::Ordinary),
        _ => None,
    };
    let (sources, destination) = (&arguments.sources, &arguments.destination);
    let files = copy_all(&store, context.voice(), sources, destination, kind, interrupt)?;
    if context.json {
        context.object(&Shown { files })?;
    }
    Ok(Verdict::Done)
}
