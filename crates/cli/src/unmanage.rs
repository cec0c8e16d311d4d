//! `stripewise unmanage`: new files below a directory, or names that plans expect, are ordinary again.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::manage::{forget_expected, unmanage};
use stripewise::messages::printable;
use stripewise_layout::figures::counted;

/// Let new files below a directory be ordinary again
///
/// Files that are managed stay so; `stripewise release` turns them back.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise unmanage /scratch/results
  stripewise unmanage --expected /scratch/old-run")]
pub(crate) struct UnmanageArgs {
    /// A managed directory; with --expected a file or a directory
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// Forget that plans expect this file, or files below this directory (`stripewise manage` lists them)
    #[arg(long)]
    expected: bool,
}

pub(crate) fn run(context: &Context, arguments: UnmanageArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    if arguments.expected {
        let forgotten = forget_expected(&store, &arguments.path)?;
        if context.json {
            context.object(&forgotten)?;
        } else {
            let names = counted(forgotten.forgotten as usize, "expected name", "expected names");
            context.say(format_args!("{}: {names} forgotten", printable(&forgotten.path, false)));
        }
        return Ok(Verdict::Done);
    }
    let unmanaged = unmanage(&store, &arguments.path)?;
    if context.json {
        context.object(&unmanaged)?;
    }
    Ok(Verdict::Done)
}
