//! Reading, checking and writing plan files.

use super::{Gain, OLDEST_PLAN_VERSION, PLAN_VERSION, Plan, PlannedWindow};
use crate::predict::Throughput;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use stripewise_layout::printing::shown;
use stripewise_layout::{Cluster, input, output};

/// Why a plan is not used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file is missing, unreadable, not UTF-8 or longer than [`input::MAX_PLAN_BYTES`].
    #[error("cannot read the plan {}: {source} (run `stripewise plan` to make one)", shown(path))]
    Read {
        /// The file as the caller named it.
        path: PathBuf,
        /// Cause by the operating system or by [`input`].
        source: std::io::Error,
    },
    /// The file could not be replaced; an older one stands as it was.
    #[error("cannot write the plan {}: {source}", shown(path))]
    Write {
        /// The file as the caller named it.
        path: PathBuf,
        /// Cause by the operating system or by [`output`].
        source: std::io::Error,
    },
    /// The text is not JSON, or has an unknown, missing or mistyped key.
    #[error("{}: not a plan: {message} (run `stripewise plan` again)", shown(path))]
    Syntax {
        /// The file as the caller named it.
        path: PathBuf,
        /// Cause with line and column, by the JSON parser.
        message: String,
    },
    /// The file was written for a version of the format that is not read.
    #[error(
        "{}: plan version {found} is not supported; this stripewise reads versions {OLDEST_PLAN_VERSION} to {PLAN_VERSION} (run `stripewise plan` again)",
        shown(path)
    )]
    Version {
        /// The file as the caller named it.
        path: PathBuf,
        /// `version` as it stands in the file.
        found: u64,
    },
    /// Cluster, servers or region size are not those that the plan was made for.
    #[error("{}: the plan is for other servers: {message} (run `stripewise plan` for this cluster)", shown(path))]
    OtherServers {
        /// The file as the caller named it.
        path: PathBuf,
        /// The first difference.
        message: String,
    },
    /// Windows, placements, moves or replicas contradict one another or the list of servers.
    #[error("{}: {message} (run `stripewise plan` again)", shown(path))]
    Value {
        /// The file as the caller named it.
        path: PathBuf,
        /// File, window and value.
        message: String,
    },
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u64,
}

impl Plan {
    /// Reads `path` strictly: unknown keys, unknown versions and layouts that cannot be are errors. What an older version lacks is filled in,
    /// so a plan in memory is always of [`PLAN_VERSION`].
    ///
    /// # Errors
    ///
    /// [`PlanError::Read`], and those of [`Self::parse`].
    pub fn load(path: &Path) -> Result<Self, PlanError> {
        let text = input::read_text(path, input::MAX_PLAN_BYTES)
            .map_err(|source| PlanError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// As [`Self::load`], from text that stands at `path`.
    ///
    /// # Errors
    ///
    /// [`PlanError::Syntax`], [`PlanError::Version`] or [`PlanError::Value`], which name `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, PlanError> {
        let syntax = |error: serde_json::Error| PlanError::Syntax { path: path.to_owned(), message: error.to_string() };
        // An array would be taken for the fields in their order.
        if let Some(begins) = text.trim_start().chars().next().filter(|first| *first != '{') {
            let message =
                format!("a plan is a JSON object, as `stripewise plan -o` writes it, and this begins with {begins:?}");
            return Err(PlanError::Syntax { path: path.to_owned(), message });
        }
        // The version is looked at before the rest, so that a newer file is refused by its version and not by a key.
        let version: VersionOnly = serde_json::from_str(text).map_err(syntax)?;
        if !(u64::from(OLDEST_PLAN_VERSION)..=u64::from(PLAN_VERSION)).contains(&version.version) {
            return Err(PlanError::Version { path: path.to_owned(), found: version.version });
        }
        let mut plan: Plan = serde_json::from_str(text).map_err(syntax)?;
        plan.version = PLAN_VERSION;
        plan.widen();
        plan.check_values().map_err(|message| PlanError::Value { path: path.to_owned(), message })?;
        Ok(plan)
    }

    /// Plans of former versions may state figures and gains without any range. No prediction is without one, whoever made it.
    fn widen(&mut self) {
        self.predicted.widen();
        self.default.widen();
        let wider = |gain: &mut Gain, plan: Throughput, def: Throughput| {
            let found = Gain::of(plan, def, false);
            if gain.low == gain.high && !gain.is_none() && found.low.is_finite() && found.high.is_finite() {
                *gain = found;
            }
        };
        wider(&mut self.gain.total, self.predicted.total, self.default.total);
        for (gain, plan, def) in [
            (&mut self.gain.read, self.predicted.read, self.default.read),
            (&mut self.gain.write, self.predicted.write, self.default.write),
        ] {
            if let (Some(gain), Some(plan), Some(def)) = (gain, plan, def) {
                wider(gain, plan, def);
            }
        }
    }

    /// The text of a plan file.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a plan has only plain values");
        text.push('\n');
        text
    }

    /// Writes `path` as a whole: a reader sees the old file or the new one.
    ///
    /// # Errors
    ///
    /// [`PlanError::Write`], after which an older file stands as it was.
    pub fn save(&self, path: &Path) -> Result<(), PlanError> {
        let failed = |source| PlanError::Write { path: path.to_owned(), source };
        output::write(path, self.to_json()).map_err(failed)
    }

    /// Refuses a plan that was made for other servers, naming the first difference. `path` is named in the error.
    ///
    /// # Errors
    ///
    /// [`PlanError::OtherServers`] with the first difference in cluster id, servers or region size.
    pub fn check(&self, cluster: &Cluster, path: &Path) -> Result<(), PlanError> {
        self.difference_from(cluster)
            .map_or(Ok(()), |message| Err(PlanError::OtherServers { path: path.to_owned(), message }))
    }

    fn difference_from(&self, cluster: &Cluster) -> Option<String> {
        if self.cluster != cluster.id {
            return Some(format!("made for cluster `{}`, but this is cluster `{}`", self.cluster, cluster.id));
        }
        for (index, (planned, server)) in self.servers.iter().zip(&cluster.servers).enumerate() {
            if planned.name != server.name {
                return Some(format!(
                    "server {index} is `{}` in the plan and `{}` in the cluster",
                    planned.name, server.name
                ));
            }
            if planned.class != server.class {
                return Some(format!(
                    "server `{}` is {} in the plan and {} in the cluster",
                    server.name, planned.class, server.class
                ));
            }
        }
        if self.servers.len() < cluster.servers.len() {
            return Some(format!("the plan does not know server `{}`", cluster.servers[self.servers.len()].name));
        }
        if self.servers.len() > cluster.servers.len() {
            return Some(format!(
                "the plan uses server `{}`, which is not in the cluster",
                self.servers[cluster.servers.len()].name
            ));
        }
        None
    }

    fn check_values(&self) -> Result<(), String> {
        for file in &self.files {
            if file.windows.is_empty() {
                return Err(format!("file {}: no windows", file.path));
            }
            for (number, window) in file.windows.iter().enumerate() {
                window
                    .placement
                    .check(self.servers.len())
                    .map_err(|message| format!("file {}, window {number}: {message}", file.path))?;
                let ordered =
                    window.start_s <= window.end_s && (number == 0 || file.windows[number - 1].end_s <= window.start_s);
                if !ordered {
                    return Err(format!("file {}: window {number} is not in order of time", file.path));
                }
                let (size, of_file) = (window.placement.region_size, file.initial().region_size);
                if size != of_file {
                    return Err(format!(
                        "file {}: regions of {size} in window {number} and of {of_file} in window 0",
                        file.path
                    ));
                }
                let planned = window.placement.planned_regions();
                if let Some(moved) = window.moves.iter().find(|moved| u64::from(moved.region.0) >= planned) {
                    return Err(format!(
                        "file {}, window {number}: region {} moves, but only {planned} are planned",
                        file.path, moved.region
                    ));
                }
                self.check_replicas(window)
                    .map_err(|message| format!("file {}, window {number}: {message}", file.path))?;
            }
        }
        Ok(())
    }

    fn check_replicas(&self, window: &PlannedWindow) -> Result<(), String> {
        let planned = window.placement.planned_regions();
        for replica in &window.replicas {
            let end = u64::from(replica.first.0) + u64::from(replica.regions);
            if replica.regions == 0 || end > planned {
                return Err(format!("a replica of regions {} to {end}, but {planned} are planned", replica.first));
            }
            let stripes = replica.layout.stripes().iter();
            if let Some(server) = stripes.map(|stripe| stripe.server).find(|id| usize::from(id.0) >= self.servers.len())
            {
                return Err(format!("a replica names server {server}, but the cluster has {}", self.servers.len()));
            }
        }
        if !window.replicas.is_sorted_by_key(|replica| replica.first) {
            return Err("replicas are not in ascending order of their first regions".to_owned());
        }
        Ok(())
    }
}
