//! `stripewise fragments`: whether small parts of requests to a file's disks go to SSDs.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::fragments::{FragmentsSet, set_fragments};
use stripewise::messages::shown;

/// Send small parts of requests to managed files to SSDs, or no more
///
/// A short first or last part of a long request, and a short request that makes a disk seek, then goes to space that is reserved on an SSD, and is written to
/// the disk later. `fragments = true` in cluster.toml says this of all files that are not switched on or off themselves; `default` makes a file one of
/// those again. Programs may go on reading and writing. `stripewise stat` shows what becomes of it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise fragments on data.h5
  stripewise fragments off *.h5
  stripewise fragments --json default data.h5 | jq '.files[].on'")]
pub(crate) struct FragmentsArgs {
    /// Whether they go to SSDs; default: as the cluster file says
    #[arg(value_name = "on|off|default")]
    switch: Switch,

    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Switch {
    On,
    Off,
    Default,
}

impl Switch {
    fn wanted(self) -> Option<bool> {
        match self {
            Switch::On => Some(true),
            Switch::Off => Some(false),
            Switch::Default => None,
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// One for each file, in the order in which they were named.
    files: Vec<FragmentsSet>,
}

pub(crate) fn run(context: &Context, arguments: FragmentsArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let wanted = arguments.switch.wanted();
    let files = set_fragments(&context.session, &store, &arguments.paths, wanted)?;
    if context.json {
        context.object(&Shown { files })?;
    } else {
        for file in &files {
            context.say(format_args!("{}: {}", shown(&file.path), said(file.on, file.set_by_file)));
        }
    }
    Ok(Verdict::Done)
}

fn said(on: bool, set_by_file: Option<bool>) -> String {
    let why = if set_by_file.is_some() { "" } else { ", as the cluster file says" };
    match on {
        true => format!("fragments go to SSDs{why}"),
        false => format!("fragments go to the disks{why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_of_the_file_and_of_the_cluster_is_told_apart() {
        assert_eq!(said(true, Some(true)), "fragments go to SSDs");
        assert_eq!(said(true, None), "fragments go to SSDs, as the cluster file says");
        assert_eq!(said(false, Some(false)), "fragments go to the disks");
        assert_eq!(said(false, None), "fragments go to the disks, as the cluster file says");
    }
}
