//! From a command to the program files that will run: launchers are looked through, scripts followed to their interpreters.

use super::finding::Finding;
use super::linking;
use crate::messages::shown;
use rustix::fs::{Access, access, getxattr};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use stripewise_store::executable::{Head, HeadBuffer, MAX_INTERPRETERS, Obstacle, obstacle_in};
use stripewise_store::shared::inodes::Inodes;
use stripewise_store::stub::Stub;

pub(super) enum Program {
    File(PathBuf),
    Missing { name: OsString, remedy: String },
}

/// Programs that run another one given among their arguments.
const LAUNCHERS: [&str; 22] = [
    "mpiexec",
    "mpirun",
    "orterun",
    "prterun",
    "mpiexec.hydra",
    "mpiexec.mpich",
    "mpirun.mpich",
    "mpiexec.openmpi",
    "mpirun.openmpi",
    "srun",
    "aprun",
    "env",
    "nice",
    "time",
    "timeout",
    "taskset",
    "numactl",
    "stdbuf",
    "setarch",
    "ionice",
    "nohup",
    "chrt",
];

/// The first program of a command and, behind launchers, those that they start, as the command names them.
pub(super) fn words_of_command(command: &[OsString]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut rest = command;
    while let [name, arguments @ ..] = rest {
        words.push(name.clone());
        if !is_launcher(name) {
            break;
        }
        match behind(arguments) {
            Some(at) => rest = &arguments[at..],
            None => break,
        }
    }
    words
}

/// The files of [`words_of_command`].
pub(super) fn of_command(command: &[OsString]) -> Vec<Program> {
    let found = |name: OsString| match find(&name) {
        Ok(path) => Program::File(path),
        Err(remedy) => Program::Missing { name, remedy },
    };
    words_of_command(command).into_iter().map(found).collect()
}

fn is_launcher(name: &OsStr) -> bool {
    let base = Path::new(name).file_name().unwrap_or(name);
    LAUNCHERS.iter().any(|launcher| base == OsStr::new(launcher))
}

/// The first argument of a launcher that names a program: options, their values and assignments do not. If none does, the first
/// that looks like a path, so that a misspelt program is named.
fn behind(arguments: &[OsString]) -> Option<usize> {
    let plain = |argument: &OsString| {
        let bytes = argument.as_bytes();
        !bytes.starts_with(b"-") && !bytes.contains(&b'=')
    };
    let runs = |argument: &OsString| plain(argument) && find(argument).is_ok();
    arguments
        .iter()
        .position(runs)
        .or_else(|| arguments.iter().position(|argument| plain(argument) && argument.as_bytes().contains(&b'/')))
}

/// The file that running `name` would run, as the shell finds it; else what to do about it.
fn find(name: &OsStr) -> Result<PathBuf, String> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match std::fs::metadata(&path) {
            Err(error) => Err(format!("{error}; check the path")),
            Ok(metadata) if metadata.is_dir() => Err("it is a directory; name the program in it".to_owned()),
            Ok(_) => Ok(path),
        };
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok())
        .ok_or_else(|| "no directory of PATH has it; install it or write its path".to_owned())
}

/// Examines the program at `path` and the interpreters that it needs.
pub(super) fn examine(path: &Path, findings: &mut Vec<Finding>) {
    let mut path = path.to_owned();
    for _ in 0..=MAX_INTERPRETERS {
        privileges(&path, findings);
        let head = match read_head(&path) {
            Ok(head) => head,
            Err(error) => {
                findings.push(Finding::obstacle(
                    &path,
                    format!("cannot be read: {error}"),
                    "ask its owner for read access",
                ));
                return;
            }
        };
        if head.starts_with(b"\x7fELF") {
            linking::examine(&path, findings);
            return;
        }
        if is_stub(&head) {
            findings.push(Finding::note(&path, "is a managed file: the program in it was not looked at"));
            return;
        }
        match interpreter(&head) {
            Some(Ok(next)) => {
                let is_shell = next.file_name().is_some_and(|name| name.as_bytes().ends_with(b"sh"));
                let more = if is_shell { ", which starts programs that were not looked at; name them too" } else { "" };
                findings.push(Finding::note(&path, format!("is a script for {}{more}", shown(&next))));
                path = next;
            }
            Some(Err(what)) => {
                findings.push(Finding::obstacle(&path, what, "install the interpreter or correct the first line"));
                return;
            }
            None => {
                findings.push(Finding::obstacle(
                    &path,
                    "is neither an ELF program nor a script with #!",
                    "name the program itself",
                ));
                return;
            }
        }
    }
    findings.push(Finding::obstacle(&path, "too many interpreters of interpreters", "run the last of them directly"));
}

/// A file's start, aligned for [`obstacle_in`].
struct FileHead(Box<HeadBuffer>, usize);

impl std::ops::Deref for FileHead {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0.0[..self.1]
    }
}

fn read_head(path: &Path) -> std::io::Result<FileHead> {
    let mut buffer = Box::new(HeadBuffer::new());
    let length = std::fs::File::open(path)?.read_at(&mut buffer.0, 0)?;
    Ok(FileHead(buffer, length))
}

fn is_stub(head: &[u8]) -> bool {
    matches!(Stub::parse(head), Ok(Some(_)))
}

fn holds(stubs: &Inodes, path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| stubs.holds((metadata.dev(), metadata.ino())))
}

/// What running a program comes to, by the heads of its file and of its interpreters' alone: quick enough to ask before each run.
pub(super) enum Outlook {
    /// The preload library is loaded into it, as far as can be told.
    Redirected,
    /// A stub is on the way: only a redirected process can start it.
    Managed,
    Unredirected {
        program: PathBuf,
        obstacle: Obstacle,
    },
}

/// The outlook of the program at `path`; `stubs` are the inodes that are stubs whatever their text says.
pub(super) fn outlook(path: &Path, stubs: Option<&Inodes>) -> Outlook {
    let mut path = path.to_owned();
    for _ in 0..=MAX_INTERPRETERS {
        // What cannot be read or is no program is the kernel's to refuse.
        let Ok(head) = read_head(&path) else { break };
        if is_stub(&head) || stubs.is_some_and(|stubs| holds(stubs, &path)) {
            return Outlook::Managed;
        }
        match interpreter(&head) {
            Some(Ok(next)) => path = next,
            Some(Err(_)) => break,
            None => {
                let found = privilege(&path).or_else(|| obstacle_in(&head));
                return match found.filter(|found| !is_loader(&path, *found)) {
                    Some(obstacle) => Outlook::Unredirected { program: path, obstacle },
                    None => Outlook::Redirected,
                };
            }
        }
    }
    Outlook::Redirected
}

/// Whether a program without a loader is the loader itself, which heeds LD_PRELOAD.
fn is_loader(path: &Path, obstacle: Obstacle) -> bool {
    obstacle == Obstacle::Static && stripewise_store::executable::is_glibc_loader(path.as_os_str().as_bytes())
}

/// What shells and `execvp` run a text by that the kernel refuses.
pub(super) const SHELL: &str = "/bin/sh";

/// Whether the kernel refuses the file of this head and shells take it for their own script: they do so unless its first line has a zero byte.
fn is_for_shell(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Head::of(head) == Head::Other && !head.starts_with(b"#!") && !line.contains(&0)
}

/// The file that running `name` would run, if it is a script for [`SHELL`] that does not say so.
pub(super) fn shell_script(name: &OsStr) -> Option<PathBuf> {
    find(name).ok().filter(|path| read_head(path).is_ok_and(|head| is_for_shell(&head)))
}

/// The interpreter that the first line names; for `env`, the program that it looks up. None for programs.
fn interpreter(head: &[u8]) -> Option<Result<PathBuf, String>> {
    if is_for_shell(head) {
        return Some(Ok(SHELL.into()));
    }
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else {
        return Some(Err("its first line names no interpreter".to_owned()));
    };
    let name = if first.ends_with("/env") {
        words.find(|word| !word.starts_with('-') && !word.contains('=')).unwrap_or(first)
    } else {
        first
    };
    Some(find(OsStr::new(name)).map_err(|what| format!("its interpreter {name} is missing: {what}")))
}

fn privileges(path: &Path, findings: &mut Vec<Finding>) {
    if let Err(error) = access(path, Access::EXEC_OK) {
        findings.push(Finding::obstacle(path, format!("cannot be executed: {error}"), "chmod +x it"));
    }
    if let Some(obstacle) = privilege(path) {
        findings.push(Finding::obstacle(path, obstacle.what(), obstacle.remedy()));
    }
}

/// The loader ignores LD_PRELOAD for a program that gains rights by being run.
fn privilege(path: &Path) -> Option<Obstacle> {
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.mode() & 0o4000 != 0 && metadata.uid() != rustix::process::getuid().as_raw() {
        return Some(Obstacle::SetUser);
    }
    if metadata.mode() & 0o2010 == 0o2010 && metadata.gid() != rustix::process::getgid().as_raw() {
        return Some(Obstacle::SetGroup);
    }
    let capabilities = getxattr(path, "security.capability", &mut [0u8; 64]);
    capabilities.is_ok_and(|length| length > 0).then_some(Obstacle::Capabilities)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_name_interpreters() {
        let named = |line: &str| {
            interpreter(line.as_bytes()).map(|found| found.map(|path| path.file_name().unwrap().to_owned()))
        };
        assert_eq!(named("\0plain text"), None);
        assert_eq!(named("\x7fELF"), None);
        assert_eq!(named("echo\n\0"), Some(Ok("sh".into())), "as shells do");
        assert_eq!(named("#!/bin/sh -e\necho"), Some(Ok("sh".into())));
        assert_eq!(named("#! /usr/bin/env -S sh -e\n"), Some(Ok("sh".into())));
        assert_eq!(named("#!/usr/bin/env LANG=C sh\n"), Some(Ok("sh".into())));
        assert!(named("#!\n").unwrap().unwrap_err().contains("no interpreter"));
        assert!(named("#!/no/such/shell\n").unwrap().unwrap_err().contains("/no/such/shell is missing"));
    }

    #[test]
    fn launchers_are_looked_through() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let names = |text: &str| -> Vec<String> {
            of_command(&words(text))
                .into_iter()
                .map(|program| match program {
                    Program::File(path) => path.file_name().unwrap().to_string_lossy().into_owned(),
                    Program::Missing { name, .. } => format!("missing {}", name.to_string_lossy()),
                })
                .collect()
        };
        assert_eq!(names("env A=1 nice -n 5 sh -c true"), ["env", "nice", "sh"]);
        assert_eq!(names("cat env"), ["cat"]);
        assert_eq!(names("env ./no/such/app"), ["env", "missing ./no/such/app"]);
        assert_eq!(names("no-such-program-anywhere"), ["missing no-such-program-anywhere"]);
    }
}
