//! The C programs that come with the command: compiled on the spot with the machine's own MPI, launched, run to their end.

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use stripewise::Voice;
use stripewise::relay::Relay;

const LAUNCHER: &str = include_str!("../../../setup/mpirun");

/// A program of one C file and what that includes.
pub(crate) struct Source {
    /// Without `.c`.
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    /// Names and texts.
    pub(crate) headers: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compiler {
    Mpich,
    OpenMpi,
    /// No MPI: the program is told by `-DWITHOUT_MPI`.
    Plain,
}

impl Compiler {
    fn command(self) -> &'static str {
        match self {
            Self::Mpich => "mpicc.mpich",
            Self::OpenMpi => "mpicc.openmpi",
            Self::Plain => "cc",
        }
    }

    fn packages(self) -> &'static str {
        match self {
            Self::Mpich => "mpich and libmpich-dev",
            Self::OpenMpi => "openmpi-bin and libopenmpi-dev",
            Self::Plain => "gcc",
        }
    }
}

/// Compiles the program in `directory`; returns its path.
pub(crate) fn compile(source: &Source, compiler: Compiler, directory: &Path) -> Result<PathBuf> {
    let (program, file) = (directory.join(source.name), directory.join(source.name).with_extension("c"));
    let headers = source.headers.iter().map(|(name, text)| (directory.join(name), *text));
    for (path, text) in headers.chain([(file.clone(), source.text)]) {
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut command = Command::new(compiler.command());
    command.args(["-O2", "-std=gnu11", "-o"]).arg(&program).arg(&file).arg("-lm");
    if compiler == Compiler::Plain {
        command.arg("-DWITHOUT_MPI");
    }
    let what = || format!("compiling {}.c with {} (install {})", source.name, compiler.command(), compiler.packages());
    let (status, _) = finish(command, None).with_context(what)?;
    if !status.success() {
        bail!("{} failed ({status})", what());
    }
    Ok(program)
}

/// The launcher of MPI programs, for people who have more than one MPI, fewer cores than ranks, or are root; returns its path.
pub(crate) fn write_launcher(directory: &Path) -> Result<PathBuf> {
    let launcher = directory.join("mpirun");
    std::fs::write(&launcher, LAUNCHER).with_context(|| format!("cannot write {}", launcher.display()))?;
    std::fs::set_permissions(&launcher, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(launcher)
}

/// Runs to the end, passing on Ctrl-C, with a sign of life where one is asked for; returns the status and what was printed to a piped
/// standard output.
pub(crate) fn finish(mut command: Command, waiting: Option<(&Voice, &str)>) -> Result<(ExitStatus, String)> {
    let relay = Relay::start()?;
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start {name}"))?;
    relay.forward_to(child.id());
    let waiting = waiting.map(|(voice, what)| voice.waiting(what));
    let output = child.wait_with_output();
    drop(waiting);
    relay.stop();
    let output = output.with_context(|| format!("waiting for {name}"))?;
    Ok((output.status, String::from_utf8_lossy(&output.stdout).into_owned()))
}
