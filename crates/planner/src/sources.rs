//! What a plan was made from, and which runs it is for.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// SHA-256 of the inputs, in hexadecimal; empty when not known.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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

/// Which runs a plan is for; the file names are those of [`PlannedFile`](crate::PlannedFile).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanKey {
    /// Name of the program, without its directory.
    pub application: String,
    /// Client processes of the traced run, on all nodes.
    pub processes: u32,
    /// Name by which the traced command started it, where that is another: that of a wrapper, or of a link. Not in older plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_as: Option<String>,
    /// The programs that run beside it on the same servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<PlannedProgram>,
}

/// A program that a plan is for besides its first one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlannedProgram {
    /// Name of the program, without its directory.
    pub application: String,
    /// Its client processes, on all nodes.
    pub processes: u32,
    /// Name by which the traced command started it, where that is another; not in older plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_as: Option<String>,
}

impl PlannedProgram {
    /// Started by its own name.
    #[must_use]
    pub fn new(application: impl Into<String>, processes: u32) -> Self {
        Self { application: application.into(), processes, started_as: None }
    }
}

impl PlanKey {
    /// Of one program alone.
    #[must_use]
    pub fn new(application: impl Into<String>, processes: u32) -> Self {
        Self { application: application.into(), processes, started_as: None, with: Vec::new() }
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

    /// The program that a command of that name started when it was traced, if that has another name.
    #[must_use]
    pub fn program_started_as(&self, command: &str) -> Option<&str> {
        let others = self.with.iter().map(|program| (program.application.as_str(), &program.started_as));
        let mut all = std::iter::once((self.application.as_str(), &self.started_as)).chain(others);
        all.find(|(_, started_as)| started_as.as_deref() == Some(command)).map(|(application, _)| application)
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
