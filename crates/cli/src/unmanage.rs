//! `stripewise unmanage`: new files below a directory are ordinary again.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::manage::unmanage;

/// Let new files below a directory be ordinary again
///
/// Files that are managed stay so; `stripewise release` turns them back.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  stripewise unmanage /scratch/results")]
pub(crate) struct UnmanageArgs {
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(context: &Context, arguments: UnmanageArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let unmanaged = unmanage(&store, &arguments.directory)?;
    if context.json {
        context.object(&unmanaged)?;
    }
    Ok(Verdict::Done)
}
