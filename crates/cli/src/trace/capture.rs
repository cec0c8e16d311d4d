//! `stripewise trace`: a program under the preload library, and what to say when it has ended.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::Path;
use stripewise::capture::{Capture, CaptureSummary};
use stripewise::launch::{Launch, exit_byte};
use stripewise::relay::Relay;
use stripewise::{doctor, variables};
use stripewise_layout::figures::counted;

pub(super) fn run(context: &Context, output: &Path, force: bool, command: &[OsString]) -> Result<Verdict> {
    if doctor::starts_managed(command, None) {
        bail!(
            "the program is a managed file, which only a redirected process can start; `stripewise run --trace DIR` does"
        );
    }
    if let Some(found) = doctor::unredirected(command, None) {
        context.say(format_args!("warning: {}; it is not captured", found.reason()));
    }
    let relay = Relay::start()?;
    let capture = Capture::start(output, force, command)?;
    let launch = Launch::new(command, &[(variables::TRACE, capture.directory())]);
    let ran = launch.and_then(|launch| launch.run(relay));
    if ran.is_err() {
        capture.discard();
    }
    let status = ran?;
    let summary = capture.finish(context.voice())?;
    tell(context, &summary)?;
    for path in &summary.stubs {
        context.say(format_args!(
            "{path} is a managed file, and the program saw its stub; trace it with `stripewise run --trace`"
        ));
    }
    Ok(Verdict::Program(exit_byte(status)))
}

/// Says what a capture brought; numbers to standard output only as JSON, since the program's own output is there.
pub(crate) fn tell(context: &Context, summary: &CaptureSummary) -> Result<()> {
    if context.json {
        context.object(summary)?;
    } else {
        let mpi = if summary.mpi_size > 0 { format!(" (MPI, {} ranks)", summary.mpi_size) } else { String::new() };
        context.say(format_args!(
            "{}: {} of {}{mpi}",
            summary.trace.display(),
            counted(summary.records as usize, "record", "records"),
            counted(summary.processes, "process", "processes")
        ));
    }
    if summary.processes == 0 {
        context.say("no process was captured; `stripewise doctor` reports what stands in the way");
    }
    if summary.lost > 0 {
        context.say(format_args!(
            "{} lost: there was no space to write",
            counted(summary.lost as usize, "record was", "records were")
        ));
    }
    if summary.unfinished > 0 {
        context.say(format_args!(
            "{} not finish the trace (killed, or still running); what was done until then is in it",
            counted(summary.unfinished, "process did", "processes did")
        ));
    }
    for warning in &summary.warnings {
        context.say(warning);
    }
    Ok(())
}
