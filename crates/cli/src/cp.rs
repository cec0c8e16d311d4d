//! `stripewise cp`: copies in, out and between managed files.
//!
//! A copy is made under a temporary name beside its destination and takes the name when it is complete and durable, so that an
//! interrupted `cp` leaves the destination as it was.

mod target;

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise::Interrupt;
use stripewise::Store;
use stripewise::paths::absolute;
use stripewise::transfer::Reader;
use target::{Kind, Target};

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
struct Copied {
    source: PathBuf,
    destination: PathBuf,
    bytes: u64,
    managed: bool,
}

#[derive(Serialize)]
struct Shown {
    files: Vec<Copied>,
}

pub(crate) fn run(context: &Context, arguments: CpArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let into = arguments.destination.is_dir();
    if arguments.sources.len() > 1 && !into {
        bail!("{} is no directory; several files can only be copied into one", arguments.destination.display());
    }
    let mut files = Vec::new();
    for source in &arguments.sources {
        let destination = match source.file_name() {
            Some(name) if into => arguments.destination.join(name),
            _ => arguments.destination.clone(),
        };
        let wish = match (arguments.managed, arguments.ordinary) {
            (true, _) => Some(Kind::Managed),
            (_, true) => Some(Kind::Ordinary),
            _ => None,
        };
        files.push(copy(context, &store, source, &absolute(&destination)?, wish, interrupt)?);
    }
    if context.json {
        context.object(&Shown { files })?;
    }
    Ok(Verdict::Done)
}

fn copy(
    context: &Context,
    store: &Store,
    from: &Path,
    to: &Path,
    wish: Option<Kind>,
    interrupt: Interrupt,
) -> Result<Copied> {
    let reader = Reader::open(store, from)?;
    if !reader.is_regular()? {
        bail!("{} is not a regular file; cp copies regular files only", from.display());
    }
    let attributes = reader.attributes()?;
    let mut target = Target::new(store, to, wish, attributes, reader.identity()?)?;
    let progress = context.voice().bytes(reader.size_bytes()?, &format!("copying {}", from.display()));
    reader.each_data(|offset, piece| {
        if interrupt.came() {
            bail!("stopped; {} is as it was", to.display());
        }
        target.write(offset, piece)?;
        progress.set(offset + piece.len() as u64);
        Ok(())
    })?;
    let (bytes, managed) = (reader.size_bytes()?, target.is_managed());
    target.finish(bytes)?;
    Ok(Copied { source: from.to_owned(), destination: to.to_owned(), bytes, managed })
}
