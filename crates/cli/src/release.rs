//! `stripewise release`: managed files become ordinary ones again.

use crate::context::Context;
use crate::each::{Failed, Failures};
use crate::interrupt;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::messages::shown;
use stripewise::release::{Released, release};
use stripewise_layout::figures::bytes;

/// Turn managed files back into ordinary ones
///
/// The data is copied out and verified before it takes the stub's place; a file that is open elsewhere is refused, and so is one for whose data its own file system
/// has no space. Of several files, those that stay managed are named and the others are released; the exit status is then 1.
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
    /// Those of several that stay managed, with the reason.
    failed: Vec<Failed>,
}

pub(crate) fn run(context: &Context, arguments: ReleaseArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let mut failures = Failures::new(context, arguments.paths.len());
    let mut files = Vec::new();
    for path in &arguments.paths {
        let released = release(&store, context.voice(), path, &arguments.unchecked_hosts, interrupt);
        let released = match released {
            Err(error) if interrupt.came() => return Err(error.into()),
            released => failures.keep(path, released)?,
        };
        let Some(released) = released else { continue };
        if !context.json {
            context.say(format_args!("{} is an ordinary file again ({})", shown(path), bytes(released.size_bytes)));
        }
        files.push(released);
    }
    let verdict = failures.verdict();
    if context.json {
        context.object(&Shown { files, failed: failures.list })?;
    }
    Ok(verdict)
}
