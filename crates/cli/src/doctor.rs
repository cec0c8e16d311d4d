//! `stripewise doctor`: can a program be redirected, and what stands in the way?

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use std::ffi::OsString;
use stripewise::doctor::{Diagnosis, Level, examine};
use stripewise::messages::shown;

/// Report whether a program can be traced and redirected, and what stands in the way
///
/// Names the program or the whole command, launcher and all. Exit status 1 when something stands in the way.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise doctor ./app
  stripewise doctor -- mpiexec -n 32 ./app input.nml")]
pub(crate) struct DoctorArgs {
    /// The program, or the command with its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub(crate) fn run(context: &Context, arguments: DoctorArgs) -> Result<Verdict> {
    let diagnosis = examine(&arguments.command);
    if context.json {
        context.object(&diagnosis)?;
    } else {
        print(context, &diagnosis)?;
    }
    Ok(if diagnosis.redirectable { Verdict::Done } else { Verdict::Finding })
}

fn print(context: &Context, diagnosis: &Diagnosis) -> Result<()> {
    for finding in &diagnosis.findings {
        let level = match finding.level {
            Level::Obstacle => "obstacle",
            Level::Warning => "warning ",
            Level::Note => "note    ",
        };
        context.line(format_args!("{level}  {}: {}", shown(&finding.path), finding.what))?;
        if let Some(remedy) = &finding.remedy {
            context.line(format_args!("          {remedy}"))?;
        }
    }
    context.line(if diagnosis.redirectable { "can be redirected" } else { "cannot be redirected as it is" })
}
