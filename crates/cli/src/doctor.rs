//! `stripewise doctor`: can a program be redirected, and what stands in the way?
//!
//! The preload library reaches a program only through the dynamic loader, and sees only what goes through libc. So the program's
//! file is read, not run: its interpreter, its libraries, its privileges, and the ways around libc that it contains.

mod elf;
mod libraries;
mod program;

use crate::context::Context;
use crate::launch;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use program::{Outlook, Program};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use stripewise_store::executable::Obstacle;
use stripewise_store::shared::inodes::Inodes;
use stripewise_store::state::INODES;

/// Tell whether a program can be traced and redirected, and what stands in the way
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

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// The program or a part of its I/O cannot be redirected.
    Obstacle,
    /// Worth knowing; it may work or not.
    Warning,
    /// Good to know.
    Note,
}

/// One thing found out about one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Finding {
    level: Level,
    path: PathBuf,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn obstacle(path: &Path, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Obstacle, path: path.to_owned(), what: what.into(), remedy: Some(remedy.into()) }
    }

    fn warning(path: &Path, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Warning, path: path.to_owned(), what: what.into(), remedy: Some(remedy.into()) }
    }

    fn note(path: &Path, what: impl Into<String>) -> Self {
        Self { level: Level::Note, path: path.to_owned(), what: what.into(), remedy: None }
    }
}

#[derive(Serialize)]
struct Diagnosis {
    redirectable: bool,
    programs: Vec<PathBuf>,
    findings: Vec<Finding>,
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

/// The last program of a command, behind its launchers, as the command names it.
pub(crate) fn program_behind(command: &[OsString]) -> Option<OsString> {
    program::words_of_command(command).pop()
}

/// The file of [`program_behind`], links followed: its name is the one that a trace has.
pub(crate) fn executable_behind(command: &[OsString]) -> Option<std::path::PathBuf> {
    match program::of_command(command).pop()? {
        Program::File(path) => std::fs::canonicalize(path).ok(),
        Program::Missing { .. } => None,
    }
}

/// A program of a command into which the preload library cannot be loaded.
pub(crate) struct Unredirected {
    program: PathBuf,
    obstacle: Obstacle,
}

impl Unredirected {
    /// What it is and what to do about it.
    pub(crate) fn reason(&self) -> String {
        format!("{} {}", self.program.display(), self.obstacle.what())
    }

    pub(crate) fn remedy(&self) -> &'static str {
        self.obstacle.remedy()
    }
}

/// The inodes that are stubs whatever their text says, in the cluster of a state directory, if one is named.
fn stubs_of(state_directory: Option<&Path>) -> Option<Inodes> {
    let table = std::fs::File::open(state_directory?.join("run").join(INODES)).ok()?;
    Inodes::open(&table, false).ok()
}

/// The first program of a command, launchers looked through, that cannot be redirected.
pub(crate) fn unredirected(command: &[OsString], state_directory: Option<&Path>) -> Option<Unredirected> {
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
pub(crate) fn starts_managed(command: &[OsString], state_directory: Option<&Path>) -> bool {
    let stubs = stubs_of(state_directory);
    let first = program::of_command(command).into_iter().next();
    matches!(first, Some(Program::File(path)) if matches!(program::outlook(&path, stubs.as_ref()), Outlook::Managed))
}

fn examine(command: &[OsString]) -> Diagnosis {
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
    match launch::preload_library() {
        Ok(path) => findings.push(Finding::note(&path, "is the preload library")),
        Err(error) => findings.push(Finding {
            level: Level::Obstacle,
            path: PathBuf::from(launch::PRELOAD_NAME),
            what: "the preload library is not installed".to_owned(),
            remedy: Some(format!("{error:#}")),
        }),
    }
    findings
}

fn print(context: &Context, diagnosis: &Diagnosis) -> Result<()> {
    for finding in &diagnosis.findings {
        let level = match finding.level {
            Level::Obstacle => "obstacle",
            Level::Warning => "warning ",
            Level::Note => "note    ",
        };
        context.line(format_args!("{level}  {}: {}", finding.path.display(), finding.what))?;
        if let Some(remedy) = &finding.remedy {
            context.line(format_args!("          {remedy}"))?;
        }
    }
    context.line(if diagnosis.redirectable { "can be redirected" } else { "cannot be redirected as it is" })
}
