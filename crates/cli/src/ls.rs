//! `stripewise ls`: the managed files.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise::Store;
use stripewise::paths::real;
use stripewise::table::Table;
use stripewise_layout::FileId;
use stripewise_layout::figures::bytes;

/// List managed files, all or those at and below some paths
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise ls
  stripewise ls results/ --json")]
pub(crate) struct LsArgs {
    /// Files and directories
    paths: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Listed {
    path: String,
    file: FileId,
    size_bytes: u64,
    region_bytes: u64,
    regions_placed: u32,
    users: u32,
    state: String,
}

#[derive(Serialize)]
struct Listing {
    files: Vec<Listed>,
}

pub(crate) fn run(context: &Context, arguments: LsArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let below = arguments.paths.iter().map(|path| real(path)).collect::<Result<Vec<PathBuf>, _>>()?;
    let wanted = |path: &str| below.is_empty() || below.iter().any(|above| Path::new(path).starts_with(above));
    let files: Vec<Listed> = store
        .files()?
        .into_iter()
        .filter(|file| wanted(&file.path))
        .map(|file| Listed {
            path: file.path,
            file: file.file,
            size_bytes: file.size_bytes,
            region_bytes: file.region_bytes,
            regions_placed: file.regions_placed,
            users: file.users,
            state: file.state,
        })
        .collect();
    if context.json {
        context.object(&Listing { files })?;
        return Ok(Verdict::Done);
    }
    if files.is_empty() && !below.is_empty() {
        let below: Vec<String> = below.iter().map(|path| path.display().to_string()).collect();
        context.say(format_args!("no managed files at or below {}", below.join(", ")));
        return Ok(Verdict::Done);
    }
    if files.is_empty() {
        context.say("no managed files; `stripewise apply` or `stripewise manage` make some");
        return Ok(Verdict::Done);
    }
    let mut table = Table::new(&["file", ">size", ">regions", ">users", "state", "path"]);
    for file in &files {
        table.row([
            file.file.to_string(),
            bytes(file.size_bytes),
            file.regions_placed.to_string(),
            file.users.to_string(),
            file.state.clone(),
            file.path.clone(),
        ]);
    }
    context.line(table)?;
    Ok(Verdict::Done)
}
