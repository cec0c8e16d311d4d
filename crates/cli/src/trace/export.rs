//! `stripewise trace export`: a trace as CSV or Parquet.

use crate::context::Context;
use crate::output::Out;
use crate::output::Verdict;
use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use stripewise::trace_export::{check_parquet, to_csv, to_parquet};
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Exported<'a> {
    /// The exported trace.
    trace: &'a Path,
    /// CSV file that was written, if one was asked for.
    csv: Option<&'a Path>,
    /// Parquet file that was written, if one was asked for.
    parquet: Option<&'a Path>,
}

pub(super) fn run(context: &Context, arguments: ExportArgs) -> Result<Verdict> {
    let to_output = arguments.target.csv.as_deref() == Some(Path::new("-"));
    ensure!(!(to_output && context.json), "--csv - and --json both want standard output; name a file for one");
    let Target { csv, parquet } = &arguments.target;
    if parquet.is_some() {
        check_parquet()?;
    }
    for path in csv.iter().filter(|_| !to_output).chain(parquet) {
        crate::output::check(path)?;
    }
    let trace = Trace::open(&arguments.trace)?;
    let _waiting = context.waiting("exporting");
    match csv {
        Some(_) if to_output => write_csv(&trace, BufWriter::new(Out::new()))?,
        Some(path) => to_csv(&trace, path)?,
        None => {}
    }
    if let Some(path) = parquet {
        to_parquet(&trace, path)?;
    }
    if context.json {
        let (csv, parquet) = (csv.as_deref(), parquet.as_deref());
        context.object(&Exported { trace: &arguments.trace, csv, parquet })?;
    }
    Ok(Verdict::Done)
}
