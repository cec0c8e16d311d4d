//! The libraries of a program: which MPI it uses, and which of them do I/O that libc does not see.

use super::elf;
use super::finding::Finding;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Libraries by the start of their file name. OpenMPI and MPICH share a name and differ in its number.
const MPI: [(&str, &str); 5] = [
    ("libmpi.so.12", "MPICH (or its relatives: Intel MPI, Cray MPICH, MVAPICH)"),
    ("libmpich.so", "MPICH"),
    ("libmpi.so.40", "Open MPI"),
    ("libmpi.so.20", "Open MPI (2 or 3)"),
    ("libmpi.so.80", "Open MPI"),
];

/// Adds what the libraries of the program at `path` tell.
pub(super) fn examine(path: &Path, loader: &Path, facts: &elf::Facts, findings: &mut Vec<Finding>) {
    let (all, missing) = closure(path, loader);
    for name in missing {
        findings.push(Finding::obstacle(
            path,
            format!("needs {name}, which is not found"),
            "install it or set LD_LIBRARY_PATH",
        ));
    }
    let direct = facts.needed.iter().map(|name| (name.clone(), None));
    let mut seen = std::collections::BTreeMap::new();
    seen.extend(direct);
    seen.extend(all.into_iter().map(|(name, at)| (name, Some(at))));
    for (name, at) in &seen {
        by_name(path, name, findings);
        // The library's own imports: only those that are not libc's own parts.
        let own = ["libc.so", "libpthread", "libdl.so", "librt.so", "libm.so", "ld-linux"];
        if let Some(at) = at
            && !own.iter().any(|start| name.starts_with(start))
            && let Ok(facts) = elf::read(at)
        {
            imports(at, &facts, findings);
        }
    }
}

fn by_name(path: &Path, name: &str, findings: &mut Vec<Finding>) {
    if let Some((_, family)) = MPI.iter().find(|(start, _)| name.starts_with(start)) {
        findings.push(Finding::note(path, format!("uses MPI: {family} ({name})")));
    }
    if name.starts_with("libpython") {
        findings.push(Finding::note(path, "is Python: MPI is found when mpi4py loads it"));
    }
    if name.starts_with("libasan.so") || name.starts_with("libtsan.so") {
        findings.push(Finding::warning(
            path,
            format!("needs the sanitizer {name}, which wants to be loaded first"),
            "build without the sanitizer, or set ASAN_OPTIONS=verify_asan_link_order=0",
        ));
    }
}

/// Adds the ways around libc's file calls that a program or library imports.
pub(super) fn imports(path: &Path, facts: &elf::Facts, findings: &mut Vec<Finding>) {
    let imports = |names: &[&str]| facts.imports.iter().find(|import| names.contains(&import.as_str()));
    if let Some(name) = imports(&["io_uring_setup", "io_uring_queue_init", "io_uring_queue_init_params"]) {
        findings.push(Finding::warning(
            path,
            format!("can use io_uring ({name}), which goes past the library"),
            "choose another I/O engine for managed files (fio: --ioengine=psync)",
        ));
    }
    if let Some(name) = imports(&["io_submit", "io_setup"]) {
        findings.push(Finding::warning(
            path,
            format!("can use the kernel's aio ({name}), which managed files refuse"),
            "choose another I/O engine for managed files (fio: --ioengine=psync or posixaio)",
        ));
    }
}

/// Every library that the loader would load for the program, and the names it does not find. The loader only lists them; nothing
/// of the program runs.
fn closure(path: &Path, loader: &Path) -> (Vec<(String, PathBuf)>, Vec<String>) {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let listing = Command::new(loader)
        .arg("--list")
        .arg(absolute)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match listing {
        Ok(output) => parse(&String::from_utf8_lossy(&output.stdout)),
        Err(_) => (Vec::new(), Vec::new()),
    }
}

fn parse(listing: &str) -> (Vec<(String, PathBuf)>, Vec<String>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (name, rest) in listing.lines().filter_map(|line| line.trim().split_once(" => ")) {
        if rest.starts_with("not found") {
            missing.push(name.to_owned());
        } else if let Some((at, _)) = rest.rsplit_once(" (") {
            found.push((name.to_owned(), PathBuf::from(at)));
        }
    }
    (found, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_listing_is_understood() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibmpi.so.12 => /opt/a b/libmpi.so.12 (0x00007f)\n\tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let (found, missing) = parse(listing);
        assert_eq!(found, [("libmpi.so.12".to_owned(), PathBuf::from("/opt/a b/libmpi.so.12"))]);
        assert_eq!(missing, ["libgone.so"]);
    }
}
