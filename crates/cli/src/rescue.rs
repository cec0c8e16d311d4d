//! `stripewise rescue`: a new stub for a file that has lost its own.

use crate::context::Context;
use crate::output::Verdict;
use crate::rm::file_id;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::messages::shown;
use stripewise::paths::absolute;
use stripewise_layout::FileId;
use stripewise_store::protocol::Admin;

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

#[derive(Serialize)]
struct Shown {
    file: FileId,
    path: PathBuf,
}

pub(crate) fn run(context: &Context, arguments: RescueArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let path = absolute(&arguments.path)?;
    let Some(text) = path.to_str() else {
        bail!("{} is not UTF-8; managed files have names in UTF-8", shown(&path));
    };
    let rescue = Admin::Rescue { file: arguments.id, path: text.to_owned() };
    store.done(rescue).with_context(|| format!("cannot put file {} at {}", arguments.id, path.display()))?;
    if context.json {
        context.object(&Shown { file: arguments.id, path })?;
    }
    Ok(Verdict::Done)
}
