//! Plans that were applied to a cluster, kept in its state directory: `run` tells by them whether it runs what was planned for.

use crate::apply::fits;
use anyhow::{Context as _, Result};
use std::path::PathBuf;
use stripewise_layout::Cluster;
use stripewise_planner::Plan;

fn directory(cluster: &Cluster) -> PathBuf {
    cluster.state.join("plans")
}

/// Keeps `plan`; a later one for the same programs, processes and files replaces it.
pub(crate) fn remember(cluster: &Cluster, plan: &Plan) -> Result<()> {
    let directory = directory(cluster);
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut paths: Vec<&str> = plan.files.iter().map(|file| file.path.as_str()).collect();
    paths.sort_unstable();
    let programs = plan.key.programs().map(|(application, processes)| format!("{application}\0{processes}\0"));
    let key = format!("{}{}", programs.collect::<String>(), paths.join("\0"));
    let name = stripewise_planner::Sources::hash(key.as_bytes());
    plan.save(&directory.join(format!("{}.json", &name[..16])))?;
    Ok(())
}

/// The plans that still fit the cluster's servers; those that do not are passed over.
pub(crate) fn all(cluster: &Cluster) -> Vec<Plan> {
    let Ok(entries) = std::fs::read_dir(directory(cluster)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.into_iter().filter_map(|path| Plan::load(&path).ok().filter(|plan| fits(plan, cluster, &path))).collect()
}
