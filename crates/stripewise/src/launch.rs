//! Running a program under the preload library: its environment, its launcher, its signals, its exit status.

pub(crate) mod mpi;

use crate::doctor;
use crate::messages::shown;
pub use crate::preload::PreloadError;

use crate::preload::preload_library;
use crate::relay::Relay;
use crate::scratch;
use crate::variables;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use stripewise_store::descriptors::with_first_limits;
use tempfile::TempDir;
use thiserror::Error;

/// Why a program was not run under the preload library.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// There is no library.
    #[error(transparent)]
    Preload(#[from] PreloadError),
    /// There is no program.
    #[error("no program is named; write it after --")]
    NoProgram,
    /// A place from which nothing can be preloaded.
    #[error("the path {} holds a space or a colon, which LD_PRELOAD cannot name; move it", shown(library))]
    Unnameable {
        /// The library.
        library: PathBuf,
    },
    /// The system did not start it.
    #[error("cannot start {program}")]
    Start {
        /// As the command names it.
        program: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The system did not say how it ended.
    #[error("waiting for {program}")]
    Wait {
        /// As the command names it.
        program: String,
        /// What the system says.
        source: std::io::Error,
    },
}

impl LaunchError {
    /// The exit status by which shells report that a program was not started: 127 where there is none, 126 where it cannot be executed.
    /// `None`: the program is not to blame.
    #[must_use]
    pub fn exit_status(&self) -> Option<u8> {
        use std::io::ErrorKind::{ArgumentListTooLong, IsADirectory, NotADirectory, NotFound, PermissionDenied};
        let Self::Start { source, .. } = self else { return None };
        match source.kind() {
            NotFound => Some(NO_PROGRAM),
            PermissionDenied | NotADirectory | IsADirectory | ArgumentListTooLong => Some(CANNOT_EXECUTE),
            _ => is_no_program(source).then_some(CANNOT_EXECUTE),
        }
    }
}

type Result<T> = std::result::Result<T, LaunchError>;

/// As shells have it: there is no such program.
const NO_PROGRAM: u8 = 127;

/// As shells have it: found, but not to be executed.
pub(crate) const CANNOT_EXECUTE: u8 = 126;

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
        let [name, arguments @ ..] = words else { return Err(LaunchError::NoProgram) };
        if library.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b':' | b' ')) {
            return Err(LaunchError::Unnameable { library });
        }
        let mut environment: Vec<(OsString, OsString)> =
            variables.iter().map(|(name, value)| (OsString::from(name), value.as_os_str().to_owned())).collect();
        environment.push(("LD_PRELOAD".into(), preload_value(&library, std::env::var_os("LD_PRELOAD").as_deref())));
        let marks = Marks::make();
        environment.extend(marks.iter().map(|marks| (OsString::from(variables::MARKS), marks.0.path().into())));
        // This process is not redirected, and the kernel would execute a stub: a shell, which is, becomes the program.
        let state = variables.iter().find_map(|(name, path)| (*name == variables::STATE).then_some(*path));
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

    /// The program as a script of the shell, which shells and `execvp` make of a text that the kernel refuses; `Command` does not.
    fn by_shell(&self) -> Option<Command> {
        let mut shell = doctor::by_shell(&self.name)?;
        let set = self.command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        shell.args(self.command.get_args()).envs(set);
        Some(shell)
    }

    /// Runs the program to its end. Signals sent to this process go on to the program; those of the terminal reach it anyway.
    pub(crate) fn run(mut self, relay: Relay) -> Result<ExitStatus> {
        let name = self.name.clone();
        let program = || name.to_string_lossy().into_owned();
        let spawned = with_first_limits(|| match self.command.spawn() {
            Err(error) if is_no_program(&error) => self.by_shell().map_or(Err(error), |mut shell| shell.spawn()),
            spawned => spawned,
        });
        let mut child = spawned.map_err(|source| LaunchError::Start { program: program(), source })?;
        relay.forward_to(child.id());
        let status = child.wait();
        relay.stop();
        status.map_err(|source| LaunchError::Wait { program: program(), source })
    }
}

/// Whether the kernel found neither machine code nor a first line that names an interpreter.
fn is_no_program(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error())
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
    fn a_program_that_is_not_started_has_the_status_of_a_shell() {
        let status =
            |errno: rustix::io::Errno| LaunchError::Start { program: "p".into(), source: errno.into() }.exit_status();
        use rustix::io::Errno;
        assert_eq!(
            [Errno::NOENT, Errno::ACCESS, Errno::NOEXEC, Errno::NOTDIR].map(status),
            [Some(127), Some(126), Some(126), Some(126)]
        );
        assert_eq!((status(Errno::AGAIN), LaunchError::NoProgram.exit_status()), (None, None));
    }

    #[test]
    fn statuses_are_those_of_a_shell() {
        assert_eq!(exit_byte(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_byte(ExitStatus::from_raw(9)), 137);
    }
}
