//! The report of what was traced, planned, measured and simulated: one HTML file.

use crate::shell::quoted_path;
use std::path::PathBuf;
use stripewise_report::{Headline, Material, RenderError, ReportError, render};
use thiserror::Error;

/// Why there is no report.
#[derive(Debug, Error)]
pub enum PageError {
    /// An input cannot be read.
    #[error(transparent)]
    Read(#[from] ReportError),

    /// The page cannot be made.
    #[error(transparent)]
    Render(#[from] RenderError),
}

/// The page that shows these traces, plans, profile, results and simulations, in any order; it begins with what the plans gain and the command that applies
/// the best.
///
/// # Errors
/// [`PageError`] names the input that cannot be read or shown.
pub fn report(inputs: &[PathBuf]) -> Result<String, PageError> {
    let mut material = Material::read(inputs)?;
    // The plans of a demonstration have been applied, and its servers are gone.
    let files = if material.results.is_none() { material.plan_files.as_slice() } else { &[] };
    let apply = |number: usize| Some(format!("stripewise apply {}", quoted_path(files.get(number)?)));
    material.headline = Headline::of_plans(&material.plans, apply);
    Ok(render(&material)?)
}
