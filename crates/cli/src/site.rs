//! `stripewise site`: descriptions of sites.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::PathBuf;
use stripewise::site;
use stripewise_planner::native;

/// Describe a site's parallel file system, for plans and layouts of its own
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise site example --fs lustre > site.toml
  stripewise site detect --fs lustre /lustre > site.toml")]
pub(crate) struct SiteArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Print a commented description to start from
    #[command(after_help = "\
Examples:
  stripewise site example --fs lustre > site.toml
  stripewise site example --fs beegfs > site.toml")]
    Example {
        /// The kind of file system
        #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(native::names()))]
        fs: String,
    },
    /// Print what the file system's own commands say of a site
    ///
    /// Targets, pools and free space, by commands such as `lfs osts`, `beegfs target list`, `ceph osd tree`, `mfscli` or `pvfs2-statfs`. How fast targets are they do
    /// not say: what has to be completed stands at the head.
    #[command(after_help = "\
Examples:
  stripewise site detect --fs lustre /lustre > site.toml
  stripewise site detect --fs cephfs /mnt/cephfs > site.toml")]
    Detect {
        /// The kind of file system
        #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(native::names()))]
        fs: String,
        /// Where it is mounted
        mount: PathBuf,
    },
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// The text of a site.toml.
    site: String,
}

pub(crate) fn run(context: &Context, arguments: SiteArgs) -> Result<Verdict> {
    let text = match arguments.action {
        Action::Example { fs } => site::example(&fs)?.to_owned(),
        Action::Detect { fs, mount } => {
            let found = site::detect(&fs, &mount)?;
            found.remarks.iter().for_each(|remark| context.say(remark));
            found.text()
        }
    };
    match context.json {
        true => context.object(&Shown { site: text })?,
        false => context.bytes(text.as_bytes())?,
    }
    Ok(Verdict::Done)
}
