//! `stripewise unmanage`: new files below a directory are ordinary again.

use crate::context::Context;
use crate::manage::{Made, named};
use crate::output::Verdict;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::paths::absolute;
use stripewise_store::protocol::Admin;

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
    // A directory that is gone has no real path; the table may still name it.
    let directory = match named(&arguments.directory) {
        Ok(directory) => directory,
        Err(_) => absolute(&arguments.directory)?.to_string_lossy().into_owned(),
    };
    if !store.client.managed_directories().contains(&directory) {
        bail!("{directory} is not a managed directory; `stripewise manage` lists them");
    }
    store.done(Admin::Unmanage { directory: directory.clone() })?;
    if context.json {
        context.object(&Made { directory })?;
    }
    Ok(Verdict::Done)
}
