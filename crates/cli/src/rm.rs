//! `stripewise rm`: remove managed files, stubs and data.

use crate::context::Context;
use crate::output::Verdict;
use crate::store::Store;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Remove managed files
///
/// Programs that have such a file open keep it until they close it, as with any file.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise rm old.dat
  stripewise rm --force scratch/*.tmp")]
pub(crate) struct RmArgs {
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,

    /// Say nothing of files that do not exist
    #[arg(short, long)]
    force: bool,
}

#[derive(Serialize)]
struct Shown {
    removed: Vec<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: RmArgs) -> Result<Verdict> {
    let store = Store::open(context)?;
    let mut removed = Vec::new();
    for path in arguments.paths {
        if arguments.force && path.symlink_metadata().is_err() {
            continue;
        }
        remove(&store, &path)?;
        removed.push(path);
    }
    if context.json {
        context.object(&Shown { removed })?;
    }
    Ok(Verdict::Done)
}

/// Removes one managed file, stub and data.
pub(crate) fn remove(store: &Store, path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let Some(id) = store.file_of(&file, path)? else {
        bail!("{} is not a managed file; remove it with rm", path.display());
    };
    // Opening it makes the broker look at the stub: a bare copy of one is refused, and must not free the data.
    let striped = store.client.open(file.as_fd(), id).with_context(|| path.display().to_string())?;
    let id = striped.id();
    striped.close()?;
    std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    store.client.unlinked(file.as_fd(), id).with_context(|| {
        format!("{} is removed, its data not yet; `stripewise check --repair` frees it", path.display())
    })
}
