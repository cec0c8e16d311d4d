//! What is known of a run without its trace, as logs of counters say it.

use serde::Serialize;

/// A figure with its label and what qualifies it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Figure {
    /// What it is of.
    pub label: String,
    /// With its unit.
    pub value: String,
    /// Range, share or source.
    pub note: String,
}

impl Figure {
    /// From its parts.
    #[must_use]
    pub fn new(label: &str, value: String, note: String) -> Self {
        Self { label: label.to_owned(), value, note }
    }
}

/// A table; the first column names the rows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Table {
    /// What it shows, with units.
    pub caption: String,
    /// Of each column.
    pub head: Vec<String>,
    /// As long as the head each.
    pub rows: Vec<Vec<String>>,
}

/// What is known of a run without its trace.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunFacts {
    /// The command line; empty: not known.
    pub command: String,
    /// The run in figures.
    pub figures: Vec<Figure>,
    /// Seconds that it took.
    pub run_s: f64,
    /// Bytes read and written in equal slices of it.
    pub timeline: Vec<[f64; 2]>,
    /// Requests by size, files and the like.
    pub tables: Vec<Table>,
    /// Each input with what it is.
    pub inputs: Vec<(String, String)>,
    /// What is missing, one sentence each.
    pub missing: Vec<String>,
}
