//! What a site or the writer of a program is to be told beside layouts: each finding with its number and its remedy.

use serde::{Deserialize, Serialize};

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Costs a large part of the run.
    High,
    /// Costs something.
    Medium,
    /// Good to know.
    Note,
}

impl Severity {
    /// For people, and as a class of the style sheet.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Note => "note",
        }
    }
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What is so, in a few words: `small writes`.
    pub title: String,
    /// The measured number that shows it, with its unit: `91 % of 1,200,000 writes are below 64 KiB`.
    pub figure: String,
    /// What to do about it, in one sentence.
    pub remedy: String,
}
