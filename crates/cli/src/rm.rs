//! `stripewise rm`: remove managed files, stubs and data.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::removal::{free, remove};
use stripewise_layout::FileId;

/// Remove managed files
///
/// Programs that have such a file open keep it until they close it, as with any file.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise rm old.dat
  stripewise rm --force scratch/*.tmp
  stripewise rm --id 5f0c2a9be1d37746")]
pub(crate) struct RmArgs {
    #[arg(required_unless_present = "ids", value_name = "FILE")]
    paths: Vec<PathBuf>,

    /// Free the data of a file whose stub is gone, by the id that `check` prints
    #[arg(long = "id", value_name = "FILE-ID", value_parser = file_id)]
    ids: Vec<FileId>,

    /// Say nothing of files that do not exist
    #[arg(short, long)]
    force: bool,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// As given.
    removed: Vec<PathBuf>,
    /// The ids given with `--id`.
    freed: Vec<FileId>,
}

/// A file id as it is printed.
pub(crate) fn file_id(text: &str) -> std::result::Result<FileId, String> {
    text.parse().map_err(|_| format!("{text} is no file id; `stripewise check` and `stripewise stat` print them"))
}

pub(crate) fn run(context: &Context, arguments: RmArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let mut removed = Vec::new();
    for path in arguments.paths {
        if arguments.force && path.symlink_metadata().is_err() {
            continue;
        }
        remove(&store, &path)?;
        removed.push(path);
    }
    for id in &arguments.ids {
        free(&store, *id)?;
    }
    if context.json {
        context.object(&Shown { removed, freed: arguments.ids })?;
    }
    Ok(Verdict::Done)
}
