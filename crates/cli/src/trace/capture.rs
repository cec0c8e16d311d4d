//! `stripewise trace`: a program under the preload library, and what to say when it has ended.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use stripewise::capture::{CaptureOptions, CaptureSummary, capture};
use stripewise::messages::{printable, shown};
use stripewise_layout::figures::counted;

pub(super) fn run(context: &Context, options: &CaptureOptions) -> Result<Verdict> {
    let captured = capture(context.voice(), options)?;
    report(context, &captured.summary)?;
    for path in &captured.summary.stubs {
        context.say(format_args!(
            "{} is a managed file, and the program saw its stub; trace it with `stripewise run --trace`",
            printable(path, false)
        ));
    }
    Ok(Verdict::Program(captured.status))
}

/// Says what a capture brought; numbers to standard output only as JSON, since the program's own output is there.
pub(crate) fn report(context: &Context, summary: &CaptureSummary) -> Result<()> {
    if context.json {
        context.object(summary)?;
    } else {
        let mpi = if summary.mpi_size > 0 { format!(" (MPI, {} ranks)", summary.mpi_size) } else { String::new() };
        context.say(format_args!(
            "{}: {} of {}{mpi}",
            shown(&summary.trace),
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
