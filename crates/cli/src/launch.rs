//! Running a program under the preload library: its environment, its launcher, its signals, its exit status.

pub(crate) mod mpi;

use crate::doctor;
use anyhow::{Context as _, Result, bail};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use stripewise::relay::Relay;
use stripewise::scratch;
use tempfile::TempDir;

/// File name of the preload library.
pub(crate) const PRELOAD_NAME: &str = "libstripewise_preload.so";

/// Where the library puts its records: a trace's directory.
pub(crate) const TRACE_VARIABLE: &str = "STRIPEWISE_TRACE";
/// Where the library finds the broker: a cluster's state directory.
pub(crate) const STATE_VARIABLE: &str = "STRIPEWISE_STATE";
/// Set when programs that cannot be redirected may meet stubs all the same.
pub(crate) const ALLOW_VARIABLE: &str = "STRIPEWISE_ALLOW_UNREDIRECTED";
/// Where the library leaves an empty file for each program that it has warned of: a directory of the run's own.
const MARKS_VARIABLE: &str = "STRIPEWISE_MARKS";
/// Names the preload library, if it is not beside the command.
pub(crate) const PRELOAD_VARIABLE: &str = "STRIPEWISE_PRELOAD";

/// The preload library: named by STRIPEWISE_PRELOAD, beside this executable, or in ../lib/stripewise.
pub(crate) fn preload_library() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(PRELOAD_VARIABLE).filter(|named| !named.is_empty()) {
        let path = std::path::absolute(&named)?;
        if !path.is_file() {
            bail!("{PRELOAD_VARIABLE} names {}, which is not a file", path.display());
        }
        return Ok(path);
    }
    let own = std::env::current_exe().context("cannot tell where this executable is")?;
    let own = std::fs::canonicalize(&own).unwrap_or(own);
    let directory = own.parent().unwrap_or(Path::new("/"));
    let candidates = [directory.join(PRELOAD_NAME), directory.join("../lib/stripewise").join(PRELOAD_NAME)];
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => bail!(
            "there is no {PRELOAD_NAME} in {} or {}; build it (`cargo build -p stripewise-preload`) or name it with {PRELOAD_VARIABLE}",
            directory.display(),
            directory.join("../lib/stripewise").display()
        ),
    }
}

/// The directory of marks, gone when the run is over.
struct Marks(TempDir);

impl Marks {
    /// None where no directory can be made: then the library repeats its warnings.
    fn make() -> Option<Self> {
        let base = std::path::absolute(std::env::temp_dir()).ok()?;
        scratch::directory(&base, "run").ok().map(Self)
    }
}

/// A program to run under the preload library.
pub(crate) struct Launch {
    command: Command,
    name: OsString,
    _marks: Option<Marks>,
}

impl Launch {
    /// `words` is the program and its arguments; `variables` what the library is told.
    pub(crate) fn new(words: &[OsString], variables: &[(&str, &Path)]) -> Result<Self> {
        let library = preload_library()?;
        let [name, arguments @ ..] = words else { bail!("no program is named; write it after --") };
        if library.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b':' | b' ')) {
            bail!("the path {} holds a space or a colon, which LD_PRELOAD cannot name; move it", library.display());
        }
        let mut environment: Vec<(OsString, OsString)> =
            variables.iter().map(|(name, value)| (OsString::from(name), value.as_os_str().to_owned())).collect();
        environment.push(("LD_PRELOAD".into(), preload_value(&library, std::env::var_os("LD_PRELOAD").as_deref())));
        let marks = Marks::make();
        environment.extend(marks.iter().map(|marks| (OsString::from(MARKS_VARIABLE), marks.0.path().into())));
        // This process is not redirected, and the kernel would execute a stub: a shell, which is, becomes the program.
        let state = variables.iter().find_map(|(name, path)| (*name == STATE_VARIABLE).then_some(*path));
        let mut command = if doctor::starts_managed(words, state) {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", "exec \"$0\" \"$@\""]).arg(name);
            shell
        } else {
            Command::new(name)
        };
        command.args(mpi::forwarding(name, environment.iter().map(|(name, _)| name.as_os_str())));
        command.args(arguments).envs(environment);
        Ok(Self { command, name: name.clone(), _marks: marks })
    }

    /// Runs the program to its end. Signals sent to this process go on to the program; those of the terminal reach it anyway.
    pub(crate) fn run(mut self, relay: Relay) -> Result<ExitStatus> {
        let mut child =
            self.command.spawn().with_context(|| format!("cannot start {}", self.name.to_string_lossy()))?;
        relay.forward_to(child.id());
        let status = child.wait();
        relay.stop();
        status.with_context(|| format!("waiting for {}", self.name.to_string_lossy()))
    }
}

/// Ours first, then what the user preloads anyway.
fn preload_value(library: &Path, present: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(present) = present.filter(|present| !present.is_empty()) {
        value.push(":");
        value.push(present);
    }
    value
}

/// The status as a shell gives it: 128 + the signal's number for a killed program.
pub(crate) fn exit_byte(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => (128 + signal) as u8,
        (None, None) => 255,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_preloads_stays() {
        let library = Path::new("/a/lib.so");
        assert_eq!(preload_value(library, None), "/a/lib.so");
        assert_eq!(preload_value(library, Some(OsStr::new(""))), "/a/lib.so");
        assert_eq!(preload_value(library, Some(OsStr::new("x.so y.so"))), "/a/lib.so:x.so y.so");
    }

    #[test]
    fn statuses_are_those_of_a_shell() {
        assert_eq!(exit_byte(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_byte(ExitStatus::from_raw(9)), 137);
    }
}
