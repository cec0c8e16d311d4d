//! The plan: for every window the layout of every region, the moves between windows, and what all that is predicted to bring.
//!
//! A plan file is JSON, versioned and strict. It carries the hashes of what it was made from and the servers it was made for, and is
//! keyed, as H2DP's mapping table is, by application, process count and file name.

mod file;
mod lookup;

pub use file::PlanError;
pub(crate) use lookup::pattern_of;
pub use lookup::{Match, NameMatch, nearest};

use crate::moves::Move;
use crate::policy::{Optimum, PolicyName, Replica};
use crate::predict::{MODEL_SPREAD, Prediction, Throughput};
use crate::request::PlanOptions;
use crate::sources::{PlanKey, Sources};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use stripewise_layout::text::bytes_of;
use stripewise_layout::{ByteCount, Placement, ServerClass};
use stripewise_model::Concurrency;

/// The version written to plan files. Version 1, which knows no replicas, is read too.
pub const PLAN_VERSION: u32 = 2;

/// The oldest version that is read.
pub(crate) const OLDEST_PLAN_VERSION: u32 = 1;

/// A plan file: placements, moves and replicas of a run's files, and what they are predicted to
/// bring.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_VERSION`], whichever version was read; version 1 knows no replicas.
    #[cfg_attr(feature = "schemas", schemars(range(min = OLDEST_PLAN_VERSION, max = PLAN_VERSION)))]
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
    /// Size of the regions in which the plan's files are placed, in bytes; `None`: it has no files.
    #[must_use]
    pub fn region_size(&self) -> Option<ByteCount> {
        self.files.first().map(|file| file.initial().region_size)
    }

    /// Bytes that the plan puts on all SServers together, each in the window where it holds most.
    #[must_use]
    pub fn ssd_bytes(&self) -> u64 {
        let ssds = self.servers.iter().filter(|server| server.class == ServerClass::Ssd);
        ssds.fold(0u64, |sum, server| sum.saturating_add(server.used_bytes))
    }
}

/// A file that the plan places.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlannedFile {
    /// Absolute path in the traced run, with bytes that are not UTF-8 as `\xNN`, as in traces.
    pub path: String,
    /// The path with `*` for every run of digits in the file name: names of other runs and ranks that this plan also fits.
    pub pattern: String,
    /// Largest size during the traced run.
    pub size_bytes: u64,
    /// At least one, in order of time. Windows of the trace without moves at their start are part of the one before.
    pub windows: Vec<PlannedWindow>,
}

impl PlannedFile {
    /// The path as the system has it: in [`Self::path`] bytes that are not UTF-8 are written out, as in traces.
    #[must_use]
    pub fn name(&self) -> PathBuf {
        OsString::from_vec(bytes_of(&self.path)).into()
    }

    /// As [`Self::name`]; `None` if that is not UTF-8, which names of managed files have to be.
    #[must_use]
    pub fn managed_name(&self) -> Option<String> {
        String::from_utf8(bytes_of(&self.path)).ok()
    }

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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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

/// A server of the cluster as it was when the plan was made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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

/// How much faster than `def`: 0.5 is half as much again. `low` and `high` come from the spreads of both predictions and are equal only
/// where both placements are.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// With both predictions off by their spread to the plan's disadvantage.
    pub low: f64,
    /// Time of `def` over time of the plan, less 1; negative for a loss.
    pub expected: f64,
    /// With both predictions off by their spread to the plan's advantage.
    pub high: f64,
}

impl Gain {
    /// Of a plan against `def`; the spreads of both times are taken as independent. Equal placements differ by nothing.
    #[must_use]
    pub fn of(plan: Throughput, def: Throughput, same: bool) -> Self {
        if same || plan.time_s <= 0.0 {
            return Self { low: 0.0, expected: 0.0, high: 0.0 };
        }
        let ratio = def.time_s / plan.time_s;
        let spread = plan.spread.hypot(def.spread);
        Self { low: ratio * (1.0 - spread).max(0.0) - 1.0, expected: ratio - 1.0, high: ratio * (1.0 + spread) - 1.0 }
    }

    /// Whether there is nothing to be wrong by: the plan is `def`.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self { low: 0.0, expected: 0.0, high: 0.0 }
    }

    /// Seconds that a run of `plan_s` saves, from the low to the high end.
    #[must_use]
    pub fn saved_s(self, plan_s: f64) -> (f64, f64) {
        (plan_s * self.low, plan_s * self.high)
    }
}

impl std::fmt::Display for Gain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_none() {
            return f.pad("none");
        }
        // Adding 0 turns -0 into 0.
        let percent = |share: f64| format!("{:+.0}", (share * 100.0).round() + 0.0);
        f.pad(&format!("{} % ({} .. {})", percent(self.expected), percent(self.low), percent(self.high)))
    }
}

/// Gains by direction.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// True when a gain beyond the prediction's spread wins the placing back within
    /// [`PlanOptions::worth_runs`] runs, and every server has space for its share.
    pub apply: bool,
    /// False when a server has no space for what the plan puts there.
    #[serde(default = "fits", skip_serializing_if = "is_true")]
    pub fits: bool,
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
    /// Seconds that one run saves against `def`, before its moves; negative when it loses. Its range is that of the gain.
    pub saved_s: f64,
    /// Relative spread of `place_s` and `move_s`.
    #[serde(default = "model_spread")]
    pub spread: f64,
}

impl Verdict {
    /// The verdict in a word or three: `apply`, `leave it` or `does not fit`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (self.apply, self.fits) {
            (true, _) => "apply",
            (false, true) => "leave it",
            (false, false) => "does not fit",
        }
    }
}

/// Plans said nothing of it before.
fn fits() -> bool {
    true
}

fn is_true(value: &bool) -> bool {
    *value
}

/// What plans were wrong by at least that were made before they said so.
fn model_spread() -> f64 {
    MODEL_SPREAD
}
