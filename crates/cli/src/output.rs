//! What the command leaves behind: its exit status, and errors as one plain line.

use anyhow::{Context as _, Result};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise::messages::shown;

/// How a command that met no error ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Done,
    /// The answer is "no", or something was found that needs attention.
    Finding,
    /// The exit status of the program that was run; 128 + the signal's number if one killed it.
    Program(u8),
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => ExitCode::SUCCESS,
            Verdict::Finding => ExitCode::from(1),
            Verdict::Program(status) => ExitCode::from(status),
        }
    }
}

/// Whether a file can be written at `path`, asked before minutes of work whose result is to go there.
pub(crate) fn check(path: &Path) -> Result<()> {
    stripewise_layout::output::check(path).with_context(|| format!("cannot write {}", shown(path)))
}

/// As [`check`], of a directory that gets several files.
pub(crate) fn check_directory(path: &Path) -> Result<()> {
    stripewise_layout::output::check_directory(path).with_context(|| format!("cannot write into {}", shown(path)))
}

static PIPE_BROKE: AtomicBool = AtomicBool::new(false);

/// Standard output. Remembers when its reader went away, since libraries do not always hand that error on as it was.
pub(crate) struct Out(std::io::Stdout);

impl Out {
    pub(crate) fn new() -> Self {
        Self(std::io::stdout())
    }
}

fn noting<T>(result: std::io::Result<T>) -> std::io::Result<T> {
    result.inspect_err(|error| {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            PIPE_BROKE.store(true, Ordering::Relaxed);
        }
    })
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        noting(self.0.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        noting(self.0.flush())
    }
}

/// Whether the reader of our output went away, as `head` does: no fault, and nothing to say.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_broken = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
    PIPE_BROKE.load(Ordering::Relaxed)
        || error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>()).any(is_broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn a_broken_pipe_is_found_below_other_messages() {
        let broken: std::io::Result<()> = Err(std::io::ErrorKind::BrokenPipe.into());
        assert!(is_broken_pipe(&broken.context("writing the table").unwrap_err()));
        assert!(!is_broken_pipe(&anyhow!("broken pipe")));
    }
}
