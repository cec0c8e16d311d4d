//! `stripewise rescue`: a new stub for a file that has lost its own.

use crate::context::Context;
use crate::output::Verdict;
use crate::rm::file_id;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::rescue::rescue;
use stripewise_layout::FileId;

/// Give a managed file whose stub is gone a new name
///
/// `stripewise check` names such files when another file has taken their place. Nothing may stand at the new path.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise rescue 5f0c2a9be1d37746 recovered.dat")]
pub(crate) struct RescueArgs {
    /// The file's id, as `check` prints it
    #[arg(value_name = "FILE-ID", value_parser = file_id)]
    id: FileId,

    /// Where its new stub is to stand
    #[arg(value_name = "NEW-PATH")]
    path: PathBuf,
}

pub(crate) fn run(context: &Context, arguments: RescueArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let rescued = rescue(&store, arguments.id, &arguments.path)?;
    if context.json {
        context.object(&rescued)?;
    }
    Ok(Verdict::Done)
}
