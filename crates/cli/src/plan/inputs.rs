//! What a plan is made from: the trace reduced to counts, the profile, free room, and the hashes of all of them.

use crate::data_files::is_data;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use stripewise_layout::{ByteCount, Cluster};
use stripewise_model::Profile;
use stripewise_planner::{PlanKey, PlanOptions, PlanRequest, Sources};
use stripewise_trace::{CountOptions, FileAccess, Trace, count, format};

/// Which files are planned, and for which windows.
pub(super) struct Selection {
    /// None: all files of data but small ones.
    pub(super) prefixes: Vec<PathBuf>,
    pub(super) least: ByteCount,
    pub(super) window_s: f64,
}

pub(super) struct Inputs {
    profile: Profile,
    files: Vec<FileAccess>,
    key: PlanKey,
    sources: Sources,
    free_bytes: Vec<Option<u64>>,
    /// What a person should know of the choice of files.
    pub(super) remarks: Vec<String>,
}

impl Inputs {
    pub(super) fn read(
        cluster: &Cluster,
        cluster_path: &Path,
        profile_path: &Path,
        trace_path: &Path,
        selection: &Selection,
    ) -> Result<Self> {
        let profile = Profile::load(profile_path)?;
        profile.check(cluster, profile_path)?;
        let trace = Trace::open(trace_path)?;
        let mut remarks: Vec<String> = trace.warnings.iter().map(ToString::to_string).collect();
        let options =
            CountOptions { window_s: selection.window_s, region_size: cluster.region_size, ..CountOptions::default() };
        let (files, left_out) = selection.choose(count(&trace, &options)?);
        if files.is_empty() {
            bail!(
                "{}: no file to plan for: {left_out} are smaller than {} or of the system; name files with --file or lower --least-size",
                trace_path.display(),
                selection.least
            );
        }
        if left_out > 0 {
            remarks.push(format!(
                "left out {left_out} files: smaller than {}, of the system, or not named",
                selection.least
            ));
        }
        Ok(Self {
            key: key_of(&trace, &files),
            sources: Sources {
                cluster_sha256: hash(cluster_path)?,
                profile_sha256: hash(profile_path)?,
                trace_sha256: hash_trace(trace_path)?,
            },
            free_bytes: cluster.servers.iter().map(|server| free_bytes(server.url.directory())).collect(),
            profile,
            files,
            remarks,
        })
    }

    pub(super) fn request<'a>(&'a self, cluster: &'a Cluster, options: PlanOptions) -> PlanRequest<'a> {
        PlanRequest {
            cluster,
            profile: &self.profile,
            files: &self.files,
            key: self.key.clone(),
            sources: self.sources.clone(),
            options,
            free_bytes: &self.free_bytes,
            concurrency: None,
        }
    }
}

impl Selection {
    /// The files to plan, and how many are left out.
    fn choose(&self, files: Vec<FileAccess>) -> (Vec<FileAccess>, usize) {
        let all = files.len();
        let wanted = |file: &FileAccess| {
            let path = Path::new(&file.path);
            if self.prefixes.is_empty() {
                is_data(path) && file.size_bytes >= self.least.0
            } else {
                self.prefixes.iter().any(|prefix| {
                    std::path::absolute(prefix)
                        .is_ok_and(|prefix| file.path.as_bytes().starts_with(prefix.as_os_str().as_encoded_bytes()))
                })
            }
        };
        let chosen: Vec<FileAccess> = files.into_iter().filter(wanted).collect();
        let left_out = all - chosen.len();
        (chosen, left_out)
    }
}

/// The program that made the most calls on the planned files, and how many processes it had.
fn key_of(trace: &Trace, files: &[FileAccess]) -> PlanKey {
    let mut calls: BTreeMap<&str, (u64, u32)> = BTreeMap::new();
    for process in &trace.processes {
        let name = process.program.rsplit('/').next().unwrap_or(&process.program);
        let (events, processes) = calls.entry(name).or_default();
        *events += process.events;
        *processes += 1;
    }
    let busiest = calls.into_iter().max_by_key(|(_, (events, _))| *events);
    let (application, processes) =
        busiest.map_or((String::new(), 1), |(name, (_, processes))| (name.to_owned(), processes));
    // A run of MPI has as many processes as it has ranks, whatever else was started with it.
    let processes = match trace.mpi_size() {
        0 => processes,
        ranks => ranks,
    };
    debug_assert!(!files.is_empty());
    PlanKey { application, processes }
}

fn hash(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Sources::hash_reader(&mut file).with_context(|| format!("cannot read {}", path.display()))
}

/// Of the process files of a trace directory, one after the other in the order of their names; of the file otherwise.
fn hash_trace(path: &Path) -> Result<String> {
    if !path.is_dir() {
        return hash(path);
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut names: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    names.retain(|name| name.extension().is_some_and(|found| found == format::EXTENSION || found == "out"));
    names.sort();
    let mut reader: Box<dyn std::io::Read> = Box::new(std::io::empty());
    for name in &names {
        let file = File::open(name).with_context(|| format!("cannot read {}", name.display()))?;
        reader = Box::new(std::io::Read::chain(reader, file));
    }
    Sources::hash_reader(&mut reader).with_context(|| format!("cannot read {}", path.display()))
}

fn free_bytes(directory: &Path) -> Option<u64> {
    let room = rustix::fs::statvfs(directory).ok()?;
    room.f_bavail.checked_mul(room.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size_bytes: u64) -> FileAccess {
        FileAccess {
            path: path.into(),
            size_bytes,
            region_size: ByteCount(1 << 20),
            classes: Vec::new(),
            windows: Vec::new(),
        }
    }

    #[test]
    fn data_files_are_planned_and_others_are_not() {
        let files = || {
            vec![
                file("/usr/lib/big.so", 9 << 20),
                file("/d/small", 10),
                file("/d/data", 9 << 20),
                file("pipe", 9 << 20),
                file("/dev/shm/ucx_shm_posix_1", 9 << 20),
                file("/dev/shm/run/data", 9 << 20),
            ]
        };
        let names = |selection: &Selection| {
            let (chosen, left_out) = selection.choose(files());
            (chosen.into_iter().map(|file| file.path).collect::<Vec<_>>(), left_out)
        };
        let mut selection = Selection { prefixes: Vec::new(), least: ByteCount(1 << 20), window_s: 600.0 };
        assert_eq!(names(&selection), (vec!["/d/data".to_owned(), "/dev/shm/run/data".to_owned()], 4));
        selection.prefixes = vec!["/d/sm".into(), "/usr/lib".into()];
        assert_eq!(names(&selection), (vec!["/usr/lib/big.so".to_owned(), "/d/small".to_owned()], 4));
    }
}
