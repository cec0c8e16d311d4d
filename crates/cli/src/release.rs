//! `stripewise release`: managed files become ordinary ones again.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::release::{Released, release};
use stripewise_layout::figures::bytes;

/// Turn managed files back into ordinary ones
///
/// The data is copied out and verified before it takes the stub's place; a file that is open elsewhere is refused.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise release data.bin
  stripewise release $(stripewise ls --json | jq -r '.files[].path')")]
pub(crate) struct ReleaseArgs {
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,

    /// Hosts that are not asked whether a program has a stub open without their agents knowing, as a child has that outlived the program which opened it
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    unchecked_hosts: Vec<String>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// One for each file, in the order in which they were named.
    files: Vec<Released>,
}

pub(crate) fn run(context: &Context, arguments: ReleaseArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let mut files = Vec::new();
    for path in &arguments.paths {
        let released = release(&store, context.voice(), path, &arguments.unchecked_hosts, interrupt)?;
        if !context.json {
            context.say(format_args!("{} is an ordinary file again ({})", path.display(), bytes(released.size_bytes)));
        }
        files.push(released);
    }
    if context.json {
        context.object(&Shown { files })?;
    }
    Ok(Verdict::Done)
}
