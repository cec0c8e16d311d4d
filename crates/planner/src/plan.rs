//! The plan: for every window the layout of every region, the moves between windows, and what all that is predicted to bring.
//!
//! A plan file is JSON, versioned and strict. It carries the hashes of what it was made from and the servers it was made for, and is
//! keyed, as H2DP's mapping table is, by application, process count and file name.

mod file;
mod lookup;

pub use file::PlanError;
pub(crate) use lookup::pattern_of;
pub use lookup::{Match, NameMatch, nearest};

use crate::policy::PolicyName;
use crate::predict::Prediction;
use crate::request::PlanOptions;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stripewise_layout::{Layout, Placement, RegionIndex, ServerClass};
use stripewise_model::Concurrency;

/// The version written to plan files. Version 1, which knows no replicas, is read too.
pub const PLAN_VERSION: u32 = 2;

/// The oldest version that is read.
pub(crate) const OLDEST_PLAN_VERSION: u32 = 1;

/// A plan file: placements, moves and replicas of a run's files, and what they are predicted to
/// bring.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_VERSION`], whichever version was read.
    pub version: u32,
    /// Id of the cluster it was made for.
    pub cluster: String,
    /// Hashes and places of the inputs.
    pub made_from: Sources,
    /// The runs that the plan is for.
    pub key: PlanKey,
    /// Who chose the layouts.
    pub policy: PolicyName,
    /// What the user asked for when the plan was made.
    pub options: PlanOptions,
    /// p and c that costs were multiplied by, the most of any window.
    pub concurrency: Concurrency,
    /// True when any server is emulated.
    pub emulated: bool,
    /// Whether applying it is worth its move.
    pub verdict: Verdict,
    /// Of the whole run, all files together.
    pub predicted: Prediction,
    /// The same run on the `def` placement.
    pub default: Prediction,
    /// `default` over `predicted`.
    pub gain: Gains,
    /// How far the plan is from what is possible at all; of policies that know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimum: Option<Optimum>,
    /// In cluster order.
    pub servers: Vec<PlannedServer>,
    /// In the order of the request's files.
    pub files: Vec<PlannedFile>,
    /// What the reader should know besides, one sentence each.
    pub notes: Vec<String>,
}

impl Plan {
    /// Bytes that the plan puts on all SServers together, each in the window where it holds most.
    #[must_use]
    pub fn ssd_bytes(&self) -> u64 {
        let ssds = self.servers.iter().filter(|server| server.class == ServerClass::Ssd);
        ssds.fold(0u64, |sum, server| sum.saturating_add(server.used_bytes))
    }
}

/// The bound that a plan was made beside, in seconds of the whole run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimum {
    /// No placement by the shapes that were weighed takes less, whatever the order of requests: asymptotic, so not reached by few processes.
    pub bound_s: f64,
    /// What the plan is predicted to take, in a sampled closed loop of all processes.
    pub value_s: f64,
    /// value / bound - 1.
    pub gap: f64,
    /// The search ended at the time limit, before it found nothing better.
    pub time_limited: bool,
    /// One for each server, in cluster order.
    pub prices: Vec<ServerPrices>,
}

/// What the bound says of one server.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerPrices {
    /// Seconds by which one GiB more room on this server would shorten the run, as long as every server of its kind gets as much.
    pub room_s_per_gib: f64,
    /// Seconds by which the run is longer for each second more of work on its device, 0 to 1.
    pub device: f64,
    /// As `device`, of its link.
    pub link: f64,
}

/// SHA-256 of the inputs, in hexadecimal; empty when not known.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sources {
    /// Of the cluster file.
    pub cluster_sha256: String,
    /// Of the profile.
    pub profile_sha256: String,
    /// Of the traces, one after the other.
    pub trace_sha256: String,
    /// Where they were, for `stripewise explain`; not in older plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<InputPaths>,
}

/// Where a plan's inputs were when it was made, and how the trace was counted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputPaths {
    /// Absolute.
    pub profile: String,
    /// Absolute, in the order in which they were given.
    pub traces: Vec<String>,
    /// Seconds of a window.
    pub window_s: f64,
}

impl Sources {
    /// The hash of one input as it stands in a plan file.
    #[must_use]
    pub fn hash(bytes: &[u8]) -> String {
        hexadecimal(&Sha256::digest(bytes))
    }

    /// As [`Self::hash`], for what is too large to hold.
    ///
    /// # Errors
    ///
    /// The error of reading.
    pub fn hash_reader(reader: &mut impl std::io::Read) -> std::io::Result<String> {
        let mut hasher = Sha256::new();
        std::io::copy(reader, &mut hasher)?;
        Ok(hexadecimal(&hasher.finalize()))
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Which runs a plan is for; the file names are those of [`PlannedFile`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanKey {
    /// Name of the program, without its directory.
    pub application: String,
    /// Client processes of the traced run, on all nodes.
    pub processes: u32,
    /// The programs that run beside it on the same servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<PlannedProgram>,
}

/// A program that a plan is for besides its first one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedProgram {
    /// Name of the program, without its directory.
    pub application: String,
    /// Its client processes, on all nodes.
    pub processes: u32,
}

impl PlanKey {
    /// Of one program alone.
    #[must_use]
    pub fn new(application: impl Into<String>, processes: u32) -> Self {
        Self { application: application.into(), processes, with: Vec::new() }
    }

    /// Name and processes of all programs, the first one first.
    pub fn programs(&self) -> impl Iterator<Item = (&str, u32)> {
        let others = self.with.iter().map(|program| (program.application.as_str(), program.processes));
        std::iter::once((self.application.as_str(), self.processes)).chain(others)
    }

    /// Whether it is for a program of that name.
    #[must_use]
    pub fn names(&self, application: &str) -> bool {
        self.programs().any(|(name, _)| name == application)
    }

    /// Of the programs of that name, or of all when there is none, the one whose process count is nearest.
    #[must_use]
    pub fn nearest_program(&self, application: &str, processes: u32) -> (&str, u32) {
        let distance = |of: u32| (f64::from(of.max(1)) / f64::from(processes.max(1))).ln().abs();
        let nearest = self.programs().min_by(|left, right| {
            (left.0 != application).cmp(&(right.0 != application)).then(distance(left.1).total_cmp(&distance(right.1)))
        });
        nearest.unwrap_or((&self.application, self.processes))
    }

    /// Processes of all programs together.
    #[must_use]
    pub fn all_processes(&self) -> u32 {
        self.programs().fold(0, |sum, (_, processes)| sum.saturating_add(processes))
    }
}

/// A file that the plan places.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedFile {
    /// Absolute path in the traced run.
    pub path: String,
    /// The path with `*` for every run of digits in the file name: names of other runs and ranks that this plan also fits.
    pub pattern: String,
    /// Largest size during the traced run.
    pub size_bytes: u64,
    /// At least one, in order of time. Windows of the trace without moves at their start are part of the one before.
    pub windows: Vec<PlannedWindow>,
}

impl PlannedFile {
    /// Where the data is placed before the run.
    #[must_use]
    pub fn initial(&self) -> &Placement {
        &self.windows[0].placement
    }

    /// Where the data is at a time, in seconds from the start of the run; before the first window as in the first.
    #[must_use]
    pub fn placement_at(&self, time_s: f64) -> &Placement {
        let begun = self.windows.partition_point(|window| window.start_s <= time_s);
        &self.windows[begun.max(1) - 1].placement
    }
}

/// An interval of the run during which one placement of a file holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedWindow {
    /// Seconds from the start of the run.
    pub start_s: f64,
    /// Seconds from the start of the run; not after the next window's `start_s`.
    pub end_s: f64,
    /// From the placement of the window before to this one, to be done in this order at the border; none in the first window.
    pub moves: Vec<Move>,
    /// Layouts of all regions of the file.
    pub placement: Placement,
    /// Further copies of regions, laid out differently, that reads may be served from; ascending by first region (from version 2 on).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<Replica>,
}

/// One more copy of consecutive regions beside that of the placement (Cost-intelligent section 5). A region may have several.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replica {
    /// The first of the regions.
    pub first: RegionIndex,
    /// How many regions, at least 1, all of them planned.
    pub regions: u32,
    /// Layout of the further copy.
    pub layout: Layout,
}

/// One region that changes its layout at the start of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Region of the window's file.
    pub region: RegionIndex,
    /// Which way it goes, and so when.
    pub kind: MoveKind,
    /// Bytes to copy.
    pub bytes: u64,
}

/// In the order in which they are to be done: room on SServers is freed before it is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveKind {
    /// From hybrid servers to HServers.
    Outgoing,
    /// Stays on its side with other stripes (not in H2DP algorithm 2).
    Restripe,
    /// From HServers to hybrid servers.
    Incoming,
}

/// A server of the cluster as it was when the plan was made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedServer {
    /// As in the cluster file.
    pub name: String,
    /// As in the cluster file; a plan for another class is refused.
    pub class: ServerClass,
    /// Bytes that may be filled, if known.
    pub room_bytes: Option<u64>,
    /// Bytes of the plan's files, in the window where they are most.
    pub used_bytes: u64,
}

/// How much faster than `def`: 0.5 is half as much again. `low` and `high` come from the spread of the profile's fits.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// With both predictions off by their spread to the plan's disadvantage.
    pub low: f64,
    /// Time of `def` over time of the plan, less 1; negative for a loss.
    pub expected: f64,
    /// With both predictions off by their spread to the plan's advantage.
    pub high: f64,
}

/// Gains by direction.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gains {
    /// Of the time of reads; `None` without reads.
    pub read: Option<Gain>,
    /// Of the time of writes; `None` without writes.
    pub write: Option<Gain>,
    /// Of the time of all requests.
    pub total: Gain,
}

/// Whether the plan is worth its move.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// True when a gain beyond the prediction's spread wins the placing back within
    /// [`PlanOptions::worth_runs`] runs.
    pub apply: bool,
    /// One sentence.
    pub reason: String,
    /// Bytes to place before the first run.
    pub place_bytes: u64,
    /// Seconds that placing them takes, all servers at once.
    pub place_s: f64,
    /// Bytes moved between windows in every run.
    pub move_bytes: u64,
    /// Seconds that those moves take.
    pub move_s: f64,
    /// Seconds that one run saves against `def`, before its moves; negative when it loses.
    pub saved_s: f64,
}
