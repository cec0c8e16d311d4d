//! `stripewise cat`: the bytes of files, managed or not, to standard output.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::transfer::Reader;

/// Write the bytes of files to standard output
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise cat data.bin | sha256sum
  stripewise cat a.csv b.csv > all.csv")]
pub(crate) struct CatArgs {
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: CatArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    for path in &arguments.paths {
        let reader = Reader::open(&store, path)?;
        reader.each(|_, piece| context.bytes(piece))?;
    }
    Ok(Verdict::Done)
}
