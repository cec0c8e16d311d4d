//! `stripewise trace export`: a trace as CSV or Parquet.

use crate::context::Context;
use crate::output::Out;
use crate::output::Verdict;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Serialize;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use stripewise_layout::output;
use stripewise_trace::{Trace, write_csv};

/// Write a trace as CSV or Parquet
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise trace export run.trace --parquet run.parquet
  stripewise trace export run.trace --csv - | head")]
pub(super) struct ExportArgs {
    /// A trace of any form that Stripewise reads
    trace: PathBuf,

    #[command(flatten)]
    target: Target,
}

#[derive(Args, Debug)]
#[group(required = true)]
struct Target {
    /// Write CSV; `-` is standard output
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write Parquet
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
}

#[derive(Serialize)]
struct Exported<'a> {
    trace: &'a Path,
    csv: Option<&'a Path>,
    parquet: Option<&'a Path>,
}

pub(super) fn run(context: &Context, arguments: ExportArgs) -> Result<Verdict> {
    let to_output = arguments.target.csv.as_deref() == Some(Path::new("-"));
    ensure!(!(to_output && context.json), "--csv - and --json both want standard output; name a file for one");
    ensure!(
        arguments.target.parquet.is_none() || cfg!(feature = "columnar"),
        "--parquet needs the feature `columnar`, without which this stripewise was built: use --csv, or build with default features"
    );
    let trace = Trace::open(&arguments.trace)?;
    let _waiting = context.waiting("exporting");
    if let Some(path) = &arguments.target.csv {
        if to_output {
            write_csv(&trace, BufWriter::new(Out::new()))?;
        } else {
            whole(path, |file| Ok(write_csv(&trace, BufWriter::new(file))?))?;
        }
    }
    #[cfg(feature = "columnar")]
    if let Some(path) = &arguments.target.parquet {
        whole(path, |file| Ok(stripewise_columnar::write_parquet(&trace, BufWriter::new(file))?))?;
    }
    if context.json {
        let (csv, parquet) = (arguments.target.csv.as_deref(), arguments.target.parquet.as_deref());
        context.object(&Exported { trace: &arguments.trace, csv, parquet })?;
    }
    Ok(Verdict::Done)
}

fn whole(path: &Path, write: impl FnOnce(&File) -> Result<()>) -> Result<()> {
    output::write_with(path, write).with_context(|| format!("cannot write {}", path.display()))
}
