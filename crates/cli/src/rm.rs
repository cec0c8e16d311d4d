//! `stripewise rm`: remove managed files, stubs and data.

use crate::context::Context;
use crate::each::{Failed, Failures};
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use stripewise::Store;
use stripewise::removal::{free, remove};
use stripewise_layout::FileId;

/// Remove managed files
///
/// Programs that have such a file open keep it until they close it, as with any file. Of several files, those that cannot be removed are named and the others are
/// removed; the exit status is then 1.
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
    /// Those of several that stay, with the reason.
    failed: Vec<Failed>,
}

/// A file id as it is printed.
pub(crate) fn file_id(text: &str) -> std::result::Result<FileId, String> {
    text.parse().map_err(|_| format!("{text} is no file id; `stripewise check` and `stripewise stat` print them"))
}

pub(crate) fn run(context: &Context, arguments: RmArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let RmArgs { paths, ids, force } = arguments;
    let mut failures = Failures::new(context, paths.len() + ids.len());
    let (mut removed, mut freed) = (Vec::new(), Vec::new());
    for path in paths {
        let is_missing = || path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if force && is_missing() {
            continue;
        }
        if failures.keep(&path, remove(&store, &path))?.is_some() {
            removed.push(path);
        }
    }
    for id in ids {
        if failures.keep(Path::new(&id.to_string()), free(&store, id))?.is_some() {
            freed.push(id);
        }
    }
    let verdict = failures.verdict();
    if context.json {
        context.object(&Shown { removed, freed, failed: failures.list })?;
    }
    Ok(verdict)
}
