//! `stripewise darshan-reader`: the process in which Darshan's library reads a log. Other commands start it; people do not.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

/// Read a Darshan log by Darshan's library and write what is in it for another stripewise
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise darshan-reader job.darshan > frames")]
pub(crate) struct DarshanReaderArgs {
    /// The log
    #[arg(value_name = "LOG")]
    log: PathBuf,
}

pub(crate) fn run(_: &Context, arguments: DarshanReaderArgs) -> Result<Verdict> {
    stripewise_darshan::serve_on_stdout(&arguments.log)?;
    Ok(Verdict::Done)
}
