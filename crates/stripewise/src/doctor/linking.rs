//! What a program's own file and its libraries say of whether it can be redirected.

use super::elf::{Facts, HOST, read};
use super::finding::Finding;
use super::libraries;
use crate::messages::shown;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use stripewise_store::executable::{Obstacle, is_glibc_loader};

/// Adds what stands in the way of redirecting the program at `path`.
pub(super) fn examine(path: &Path, findings: &mut Vec<Finding>) {
    let facts = match read(path) {
        Ok(facts) => facts,
        Err(error) => {
            findings.push(Finding::obstacle(path, error.to_string(), "check that the file is complete"));
            return;
        }
    };
    if let Some(architecture) = facts.architecture.filter(|architecture| *architecture != HOST) {
        let what = format!("is built for {architecture:?}, this machine is {HOST:?}");
        findings.push(Finding::obstacle(path, what, "build it for this machine; 32-bit programs are not supported"));
        return;
    }
    let Some(loader) = &facts.loader else {
        let obstacle = if facts.is_go { Obstacle::Go } else { Obstacle::Static };
        findings.push(Finding::obstacle(path, obstacle.what(), obstacle.remedy()));
        return;
    };
    if !is_glibc_loader(loader.as_os_str().as_bytes()) {
        let what = format!("uses the loader {}, not glibc's", shown(loader));
        findings.push(Finding::obstacle(path, what, Obstacle::Loader.remedy()));
        return;
    }
    if facts.is_go {
        findings.push(Finding::obstacle(path, Obstacle::Go.what(), Obstacle::Go.remedy()));
    }
    own_calls(path, &facts, findings);
    libraries::examine(path, loader, &facts, findings);
}

fn own_calls(path: &Path, facts: &Facts, findings: &mut Vec<Finding>) {
    libraries::imports(path, facts, findings);
    if !facts.raw_calls.is_empty() && !facts.is_go {
        let calls: Vec<String> = facts.raw_calls.iter().map(|(name, count)| format!("{name} x{count}")).collect();
        let uring = facts.raw_calls.iter().any(|(name, _)| *name == "io_uring_setup");
        findings.push(Finding::warning(
            path,
            format!("seems to make system calls of its own ({})", calls.join(", ")),
            if uring {
                "switch its io_uring back end off: it goes past the library and would meet the stub's text"
            } else {
                "trace it: what the trace does not show is not redirected"
            },
        ));
    }
}
