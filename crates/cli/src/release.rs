//! `stripewise release`: managed files become ordinary ones again.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use stripewise::Store;
use stripewise_layout::figures::bytes;
use stripewise_store::manage::{self, Moving};

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
}

#[derive(Serialize)]
struct Released {
    path: PathBuf,
    size_bytes: u64,
    copied_bytes: u64,
}

#[derive(Serialize)]
struct Shown {
    files: Vec<Released>,
}

pub(crate) fn run(context: &Context, arguments: ReleaseArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let mut files = Vec::new();
    for path in &arguments.paths {
        let bar = context
            .voice()
            .bytes(store.managed(path, false)?.striped.size_bytes() * 2, &format!("releasing {}", path.display()));
        let progress = |done, _| bar.set(done);
        let moving = Moving { cancelled: Some(interrupt.flag()), progress: Some(&progress), ..Moving::default() };
        let moved = manage::release(&store.client, path, &moving)?;
        drop(bar);
        if let Some(note) = &moved.note {
            context.say(format_args!("{}: {note}", path.display()));
        }
        if !context.json {
            context.say(format_args!("{} is an ordinary file again ({})", path.display(), bytes(moved.size_bytes)));
        }
        files.push(Released { path: path.clone(), size_bytes: moved.size_bytes, copied_bytes: moved.copied_bytes });
    }
    if context.json {
        context.object(&Shown { files })?;
    }
    Ok(Verdict::Done)
}
