//! Plans that were applied to a cluster, kept in its state directory: `run` tells by them whether it runs what was planned for.
//!
//! A plan of many files takes long to read, and a run needs little of it. So beside `NAME.json` stands `NAME.index`, which has the plan without
//! its files and their paths. What the broker was told last is noted in `in-force`: a run for which the same holds tells nothing.

use crate::paths::real;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use stripewise_layout::{Cluster, input};
use stripewise_planner::{Plan, PlannedFile, Sources};
use stripewise_store::state::{OwnDirectory, StateDirectory, StateError};
use thiserror::Error;

/// Why applied plans are not known or kept.
#[derive(Debug, Error)]
pub enum AppliedError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A plan could not be looked at.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// An index could not be put into words.
    #[error("writing the index of a plan")]
    Index {
        /// What the JSON writer says.
        source: serde_json::Error,
    },
}

type Result<T> = std::result::Result<T, AppliedError>;

const DIRECTORY: &str = "plans";
const IN_FORCE: &str = "in-force";
const INDEX_VERSION: u32 = 1;

/// Which contents of `NAME.json` an index is of.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
struct Stamp {
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
    inode: u64,
}

#[derive(Serialize, Deserialize)]
struct Index {
    version: u32,
    of: Stamp,
    /// Without files.
    plan: Plan,
    paths: Vec<String>,
}

/// A plan that was applied.
pub(crate) struct Applied {
    name: String,
    of: Stamp,
    /// Without its files.
    pub(crate) plan: Plan,
    /// Of its files.
    pub(crate) paths: Vec<String>,
}

/// The plans that were applied to a cluster and still fit its servers.
pub(crate) struct AppliedPlans {
    directory: OwnDirectory,
    pub(crate) plans: Vec<Applied>,
}

fn directory(cluster: &Cluster) -> Result<OwnDirectory> {
    Ok(StateDirectory::of(cluster)?.directory(DIRECTORY)?)
}

/// Keeps `plan`; a later one for the same programs, processes and files replaces it. Its files are expected at the broker.
pub(crate) fn remember(cluster: &Cluster, plan: &Plan) -> Result<()> {
    let directory = directory(cluster)?;
    let mut paths: Vec<&str> = plan.files.iter().map(|file| file.path.as_str()).collect();
    paths.sort_unstable();
    let programs = plan.key.programs().map(|(application, processes)| format!("{application}\0{processes}\0"));
    let key = format!("{}{}", programs.collect::<String>(), paths.join("\0"));
    let name = Sources::hash(key.as_bytes())[..16].to_owned();
    directory.replace(&format!("{name}.json"), plan.to_json().as_bytes())?;
    write_index(&directory, &name, plan)?;
    forget_in_force(cluster)?;
    let all = AppliedPlans::read(cluster)?;
    // Of several plans the nearest is chosen when a program starts.
    if let [_] = &all.plans[..] { all.set_in_force("", 0) } else { Ok(()) }
}

/// Takes the files at `path` and below it out of the plans; a plan without files is gone. Returns how many names that were.
pub(crate) fn forget(cluster: &Cluster, path: &str) -> Result<u64> {
    let applied = AppliedPlans::read(cluster)?;
    let mut forgotten = 0;
    for plan in &applied.plans {
        // As `apply` handed them to the broker.
        let is_forgotten = |name: &str| real(Path::new(name)).is_ok_and(|name| name.starts_with(path));
        let names = plan.paths.iter().filter(|name| is_forgotten(name)).count() as u64;
        if names == 0 {
            continue;
        }
        let (directory, name) = (&applied.directory, &plan.name);
        if names == plan.paths.len() as u64 {
            directory.remove(&format!("{name}.index"))?;
            directory.remove(&format!("{name}.json"))?;
        } else if let Some(mut whole) = load(directory, name, cluster) {
            whole.files.retain(|file| !file.managed_name().is_some_and(|name| is_forgotten(&name)));
            directory.replace(&format!("{name}.json"), whole.to_json().as_bytes())?;
            write_index(directory, name, &whole)?;
        }
        forgotten += names;
    }
    if forgotten > 0 {
        directory(cluster)?.remove(IN_FORCE)?;
    }
    Ok(forgotten)
}

fn write_index(directory: &OwnDirectory, name: &str, plan: &Plan) -> Result<Applied> {
    let of = stamp(directory, name)?;
    let paths = plan.files.iter().filter_map(PlannedFile::managed_name).collect();
    let mut head = plan.clone();
    head.files = Vec::new();
    let index = Index { version: INDEX_VERSION, of, plan: head, paths };
    directory.replace(
        &format!("{name}.index"),
        &serde_json::to_vec(&index).map_err(|source| AppliedError::Index { source })?,
    )?;
    Ok(Applied { name: name.to_owned(), of: index.of, plan: index.plan, paths: index.paths })
}

fn stamp(directory: &OwnDirectory, name: &str) -> Result<Stamp> {
    let found = directory.open(&format!("{name}.json"))?.metadata()?;
    let (modified_s, modified_ns) = (found.mtime(), found.mtime_nsec());
    Ok(Stamp { bytes: found.len(), modified_s, modified_ns, inode: found.ino() })
}

fn read(directory: &OwnDirectory, name: &str) -> Result<Vec<u8>> {
    Ok(input::read_from(directory.open(name)?, input::MAX_PLAN_BYTES)?)
}

/// What the broker was told of files to come may be another than that of the plan, from here on.
pub(crate) fn forget_in_force(cluster: &Cluster) -> Result<()> {
    Ok(directory(cluster)?.remove(IN_FORCE)?)
}

impl AppliedPlans {
    pub(crate) fn read(cluster: &Cluster) -> Result<Self> {
        let directory = directory(cluster)?;
        let names = directory.names()?;
        let names = names.iter().filter_map(|name| name.strip_suffix(".json"));
        let plans = names.filter_map(|name| Applied::read(&directory, name, cluster)).collect();
        Ok(Self { directory, plans })
    }

    /// The whole plans; those that changed or went since are left out.
    pub(crate) fn load(&self, cluster: &Cluster) -> Vec<Plan> {
        let load = |applied: &Applied| load(&self.directory, &applied.name, cluster);
        self.plans.iter().filter_map(load).collect()
    }

    /// Whether the broker was told what holds for `program` with `processes`.
    pub(crate) fn is_in_force(&self, program: &str, processes: u32) -> bool {
        read(&self.directory, IN_FORCE).is_ok_and(|text| text == self.key(program, processes).as_bytes())
    }

    pub(crate) fn set_in_force(&self, program: &str, processes: u32) -> Result<()> {
        Ok(self.directory.replace(IN_FORCE, self.key(program, processes).as_bytes())?)
    }

    fn key(&self, program: &str, processes: u32) -> String {
        let of_program = if self.plans.len() > 1 { format!("{program}\0{processes}") } else { String::new() };
        let stamps: String = self.plans.iter().map(|applied| format!("{}\0{:?}\0", applied.name, applied.of)).collect();
        Sources::hash(format!("{stamps}{of_program}").as_bytes())
    }
}

fn load(directory: &OwnDirectory, name: &str, cluster: &Cluster) -> Option<Plan> {
    let name = format!("{name}.json");
    let path: PathBuf = directory.path().join(&name);
    let text = String::from_utf8(read(directory, &name).ok()?).ok()?;
    Plan::parse(&text, &path).ok().filter(|plan| fits(plan, cluster, &path))
}

impl Applied {
    /// `None` if it does not fit the cluster.
    fn read(directory: &OwnDirectory, name: &str, cluster: &Cluster) -> Option<Self> {
        let of = stamp(directory, name).ok()?;
        let index = read(directory, &format!("{name}.index")).ok();
        let index = index.and_then(|text| serde_json::from_slice::<Index>(&text).ok());
        match index.filter(|index| index.version == INDEX_VERSION && index.of == of) {
            Some(index) => fits(&index.plan, cluster, &directory.path().join(name)).then(|| Self {
                name: name.to_owned(),
                of,
                plan: index.plan,
                paths: index.paths,
            }),
            // Of an earlier version of stripewise, or a crash came between the two.
            None => write_index(directory, name, &load(directory, name, cluster)?).ok(),
        }
    }
}

/// Whether a plan's servers are those of `cluster`.
fn fits(plan: &Plan, cluster: &Cluster, path: &Path) -> bool {
    plan.check(cluster, path).is_ok()
}
