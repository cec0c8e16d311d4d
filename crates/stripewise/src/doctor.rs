//! Can a program be redirected, and what stands in the way?
//!
//! The preload library reaches a program only through the dynamic loader, and sees only what goes through libc. So the program's
//! file is read, not run: its interpreter, its libraries, its privileges, and the ways around libc that it contains.

mod elf;
mod finding;
mod libraries;
mod linking;
mod program;

pub use finding::{Finding, Level};

use crate::messages::shown;
use crate::preload::{PRELOAD_NAME, preload_library};
use program::{Outlook, Program};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use stripewise_store::executable::Obstacle;
use stripewise_store::shared::inodes::Inodes;
use stripewise_store::state::INODES;

/// What is known of the programs of a command.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// Whether nothing stands in the way.
    pub redirectable: bool,
    /// The programs that were examined, launchers first.
    pub programs: Vec<PathBuf>,
    /// The worst first.
    pub findings: Vec<Finding>,
}

/// The last program of a command, behind its launchers, as the command names it.
pub fn program_behind(command: &[OsString]) -> Option<OsString> {
    program::words_of_command(command).pop()
}

/// The name of [`program_behind`], without its directory.
pub(crate) fn name_behind(command: &[OsString]) -> Option<String> {
    let word = program_behind(command)?;
    Some(Path::new(&word).file_name().unwrap_or(&word).to_string_lossy().into_owned())
}

/// The file of [`program_behind`], links followed: its name is the one that a trace has.
pub fn executable_behind(command: &[OsString]) -> Option<std::path::PathBuf> {
    match program::of_command(command).pop()? {
        Program::File(path) => std::fs::canonicalize(path).ok(),
        Program::Missing { .. } => None,
    }
}

/// A program of a command into which the preload library cannot be loaded.
pub struct Unredirected {
    program: PathBuf,
    obstacle: Obstacle,
}

impl Unredirected {
    /// The program, and what stands in the way.
    pub fn reason(&self) -> String {
        format!("{} {}", shown(&self.program), self.obstacle.what())
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        self.obstacle.remedy()
    }

    /// The command that mounts a directory so that the program can use it.
    pub fn mount(&self) -> &'static str {
        self.obstacle.mount()
    }
}

/// The inodes that are stubs whatever their text says, in the cluster of a state directory, if one is named.
fn stubs_of(state_directory: Option<&Path>) -> Option<Inodes> {
    let table = std::fs::File::open(state_directory?.join("run").join(INODES)).ok()?;
    Inodes::open(&table, false).ok()
}

/// The first program of a command, launchers looked through, that cannot be redirected.
pub fn unredirected(command: &[OsString], state_directory: Option<&Path>) -> Option<Unredirected> {
    let stubs = stubs_of(state_directory);
    program::of_command(command).into_iter().find_map(|program| match program {
        Program::File(path) => match program::outlook(&path, stubs.as_ref()) {
            Outlook::Unredirected { program, obstacle } => Some(Unredirected { program, obstacle }),
            Outlook::Redirected | Outlook::Managed => None,
        },
        Program::Missing { .. } => None,
    })
}

/// Whether the program that a command starts with is a managed file, or has one for its interpreter.
pub fn starts_managed(command: &[OsString], state_directory: Option<&Path>) -> bool {
    let stubs = stubs_of(state_directory);
    let first = program::of_command(command).into_iter().next();
    matches!(first, Some(Program::File(path)) if matches!(program::outlook(&path, stubs.as_ref()), Outlook::Managed))
}

/// The shell with the program `name` for its script, if that is a text that names no interpreter.
pub(crate) fn by_shell(name: &OsStr) -> Option<Command> {
    let script = program::shell_script(name)?;
    let mut shell = Command::new(program::SHELL);
    shell.arg(script);
    Some(shell)
}

/// Reads the programs of a command, launchers looked through; runs none of them.
pub fn examine(command: &[OsString]) -> Diagnosis {
    let mut findings = Vec::new();
    let mut programs = Vec::new();
    for program in program::of_command(command) {
        match program {
            Program::Missing { name, remedy } => {
                findings.push(Finding::obstacle(Path::new(&name), "there is no such program", remedy));
            }
            Program::File(path) => {
                program::examine(&path, &mut findings);
                programs.push(path);
            }
        }
    }
    findings.extend(environment());
    let mut seen = std::collections::HashSet::new();
    findings.retain(|finding| seen.insert((finding.path.clone(), finding.what.clone())));
    findings.sort_by_key(|finding| finding.level);
    let redirectable = findings.iter().all(|finding| finding.level != Level::Obstacle);
    Diagnosis { redirectable, programs, findings }
}

/// Libraries that wrap the same calls; two of them in one process count or redirect each other's calls.
const RIVALS: [&str; 6] = ["libdarshan", "libdftracer", "libscorep", "libunifyfs", "libfakeroot", "libhermes"];

fn environment() -> Vec<Finding> {
    let mut findings = Vec::new();
    let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
    for library in preloaded.split([':', ' ']).filter(|library| !library.is_empty()) {
        let name = library.rsplit('/').next().unwrap_or(library);
        if RIVALS.iter().any(|rival| name.starts_with(rival)) {
            findings.push(Finding::warning(
                Path::new(library),
                "LD_PRELOAD names a library that wraps the same calls",
                "unset LD_PRELOAD for a traced or redirected run",
            ));
        }
    }
    // UCX's other modes make the calls that they watch by libc's `syscall`, which the library serves.
    if std::env::var_os("UCX_MEM_MMAP_HOOK_MODE").is_some_and(|mode| mode.eq_ignore_ascii_case("reloc")) {
        findings.push(Finding::obstacle(
            Path::new("UCX_MEM_MMAP_HOOK_MODE"),
            "is reloc: where a program is linked to UCX, its memory maps go past the library to the stub",
            "unset it, or set it to bistro",
        ));
    }
    match preload_library() {
        Ok(path) => findings.push(Finding::note(&path, "is the preload library")),
        Err(error) => findings.push(Finding {
            level: Level::Obstacle,
            path: PathBuf::from(PRELOAD_NAME),
            what: "the preload library is not installed".to_owned(),
            remedy: Some(with_causes(&error)),
        }),
    }
    findings
}

/// The error and all its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
