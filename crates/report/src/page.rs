//! The page: sections in order, each with its pictures and tables, and only those for which there is something to show.

mod bandwidth;
mod live;
mod optimum;
mod plans;
mod simulated;

use super::heat;
use crate::material::Material;
use crate::results::{LiveResult, Results};
use crate::summary::FileSummary;
use serde::Serialize;
use std::path::Path;
use stripewise_layout::figures::{bytes, counted, duration, grouped, signed_percent};
use stripewise_layout::{ByteCount, Direction};
use stripewise_model::Profile;
use stripewise_planner::PolicyName;
use thiserror::Error;

#[derive(Serialize)]
struct Page<'a> {
    style: &'a str,
    baseline: &'static str,
    version: &'a str,
    title: String,
    subtitle: Vec<String>,
    emulated: bool,
    tiles: Vec<Tile>,
    bandwidth: Option<bandwidth::Bandwidth>,
    live: Option<live::LiveSection>,
    optima: Vec<optimum::OptimumSection>,
    simulated: Option<simulated::SimulatedSection>,
    heat: Vec<FileHeat>,
    other_files: usize,
    regions: Vec<plans::RegionSection>,
    load: String,
    fits: Option<plans::Fits>,
    plans: Vec<plans::PlanSection>,
    comparison: Vec<Vec<String>>,
    sources: Vec<(String, String)>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Tile {
    label: String,
    value: String,
    note: String,
}

#[derive(Serialize)]
struct FileHeat {
    path: String,
    facts: String,
    chart: String,
    sizes: Vec<Vec<String>>,
}

/// Why the page could not be made.
#[derive(Debug, Error)]
pub enum RenderError {
    /// The template itself.
    #[error("the report's template")]
    Template {
        /// Line and cause.
        source: minijinja::Error,
    },
    /// The template with these values.
    #[error("writing the report")]
    Render {
        /// Line and cause.
        source: minijinja::Error,
    },
}

/// The whole page as HTML.
///
/// # Errors
/// When the template does not fit the values, which is an error of this crate.
pub fn render(material: &Material) -> Result<String, RenderError> {
    let template_error = |source| RenderError::Template { source };
    let mut environment = minijinja::Environment::new();
    environment.add_template("page.html", include_str!("page.html")).map_err(template_error)?;
    let template = environment.get_template("page.html").map_err(template_error)?;
    let page = minijinja::value::Serde(page(material));
    template.render(page).map_err(|source| RenderError::Render { source })
}

fn page(material: &Material) -> Page<'_> {
    let profile = profile_of(material);
    Page {
        style: include_str!("style.css"),
        baseline: PolicyName::BASELINE.name(),
        version: env!("CARGO_PKG_VERSION"),
        title: title(material),
        subtitle: subtitle(material),
        emulated: is_emulated(material),
        tiles: tiles(material),
        bandwidth: bandwidth::section(material),
        live: live_part(material).map(live::section),
        optima: optimum::sections(&material.plans),
        simulated: material.simulation.as_ref().map(simulated::section),
        heat: material.trace.iter().flat_map(|trace| &trace.files).filter_map(file_heat).collect(),
        other_files: material.trace.iter().flat_map(|trace| &trace.files).filter(|file| file.heat.is_none()).count(),
        regions: plans::region_sections(material),
        load: plans::load_chart(&material.plans),
        fits: profile.as_ref().map(plans::fits_section),
        plans: material.plans.iter().map(plans::plan_section).collect(),
        comparison: plans::comparison(&material.plans),
        sources: sources(material, profile.as_ref()),
        warnings: material.trace.iter().flat_map(|trace| trace.warnings.clone()).collect(),
    }
}

/// The profile given, else the one in the results.
fn profile_of(material: &Material) -> Option<Profile> {
    material.profile.clone().or_else(|| {
        let text = material.results.as_ref()?.profile.to_string();
        // Checked like a file of its own: figures that no device can have cannot be drawn.
        Profile::parse(&text, Path::new("results.json")).ok()
    })
}

fn is_emulated(material: &Material) -> bool {
    material.results.as_ref().is_some_and(|results| results.emulated)
        || material.plans.iter().any(|plan| plan.emulated)
        || material.profile.as_ref().is_some_and(|profile| profile.emulated)
}

fn live_part(material: &Material) -> Option<&LiveResult> {
    material.results.as_ref()?.live.as_ref()
}

fn title(material: &Material) -> String {
    let planned = material.plans.first().map(|plan| plan.key.application.clone());
    let traced = || {
        let command = &material.trace.as_ref()?.command;
        (!command.is_empty()).then(|| command.clone())
    };
    let simulated = || material.simulation.as_ref().map(|simulation| simulation.workload.clone());
    planned
        .filter(|name| !name.is_empty())
        .or_else(traced)
        .or_else(simulated)
        .unwrap_or_else(|| "I/O layout".to_owned())
}

fn subtitle(material: &Material) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(trace) = &material.trace {
        parts.push(shortened(&trace.command));
        parts.push(if trace.host.is_empty() { String::new() } else { format!("on {}", trace.host) });
        parts.push(trace.started.clone());
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The begin of a long command line.
fn shortened(command: &str) -> String {
    const MAX: usize = 160;
    match command.char_indices().nth(MAX) {
        None => command.to_owned(),
        Some((end, _)) => format!("{}\u{2026}", &command[..end]),
    }
}

fn tiles(material: &Material) -> Vec<Tile> {
    let mut tiles = Vec::new();
    let tile = |label: &str, value: String, note: String| Tile { label: label.to_owned(), value, note };
    let best = material.plans.iter().max_by(|a, b| a.gain.total.expected.total_cmp(&b.gain.total.expected));
    if let Some((policy, gain)) = material.results.as_ref().and_then(Results::best) {
        tiles.push(tile(
            &format!("Measured gain over {}", PolicyName::BASELINE),
            signed_percent(gain),
            format!("{policy}, geometric mean of all runs"),
        ));
    }
    if let Some(plan) = best {
        let gain = plan.gain.total;
        let (low, high) = (signed_percent(gain.low), signed_percent(gain.high));
        let range = if low == high { plan.policy.to_string() } else { format!("{}, {low} to {high}", plan.policy) };
        tiles.push(tile(
            &format!("Predicted gain over {}", PolicyName::BASELINE),
            signed_percent(gain.expected),
            range,
        ));
        tiles.push(tile(
            "On SSD servers",
            bytes(plan.ssd_bytes()),
            format!("of {} planned", bytes(plans::size_bytes(plan))),
        ));
    }
    if let Some(trace) = &material.trace {
        let moved: u64 = trace.files.iter().map(|file| file.moved_bytes).sum();
        let reads: u64 = trace.files.iter().map(|file| file.read_requests).sum();
        let writes: u64 = trace.files.iter().map(|file| file.write_requests).sum();
        tiles.push(tile(
            "Moved by the program",
            bytes(moved),
            format!("{} reads, {} writes", grouped(reads as i64), grouped(writes as i64)),
        ));
        let ranks = if trace.mpi_size > 0 {
            format!("{} MPI ranks", trace.mpi_size)
        } else {
            counted(trace.processes, "process", "processes")
        };
        tiles.push(tile(
            "Traced run",
            duration(trace.duration_s),
            format!("{ranks} on {}", counted(trace.nodes, "node", "nodes")),
        ));
    }
    tiles
}

fn file_heat(file: &FileSummary) -> Option<FileHeat> {
    let heat = file.heat.as_ref()?;
    let rows = file.sizes.iter().map(|size| {
        let name = if size.direction == Direction::Read { "read" } else { "write" };
        let total = size.request_bytes * size.requests;
        let share = format!("{:.1} %", total as f64 / file.moved_bytes.max(1) as f64 * 100.0);
        vec![name.to_owned(), bytes(size.request_bytes), grouped(size.requests as i64), bytes(total), share]
    });
    Some(FileHeat {
        path: file.path.clone(),
        facts: format!(
            "{} file, {} moved by {} reads and {} writes",
            bytes(file.size_bytes),
            bytes(file.moved_bytes),
            grouped(file.read_requests as i64),
            grouped(file.write_requests as i64)
        ),
        chart: heat::chart(heat),
        sizes: rows.collect(),
    })
}

fn sources(material: &Material, profile: Option<&Profile>) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    if let Some(trace) = &material.trace {
        rows.push((
            "trace".to_owned(),
            format!(
                "{} records of {}",
                grouped(trace.records as i64),
                counted(trace.processes, "process", "processes")
            ),
        ));
    }
    if let Some(profile) = profile {
        rows.push(("profile".to_owned(), format!("cluster {}, measured {}", profile.cluster, profile.measured_at)));
    }
    for plan in &material.plans {
        let from = &plan.made_from;
        let short = |hash: &str| if hash.is_empty() { "unknown".to_owned() } else { hash.chars().take(16).collect() };
        rows.push((
            format!("plan {}", plan.policy),
            format!(
                "trace {}, profile {}, cluster file {} (SHA-256, first 16 digits); step {}, seed {}",
                short(&from.trace_sha256),
                short(&from.profile_sha256),
                short(&from.cluster_sha256),
                plan.options.step,
                plan.options.seed
            ),
        ));
    }
    if let Some(results) = &material.results {
        let verified = results.runs.iter().filter(|run| run.verified).count();
        let total = ByteCount(results.runs.iter().fold(0, |sum, run| sum.saturating_add(run.bytes)));
        rows.push((
            "runs".to_owned(),
            format!("{} with {}, {verified} of them with every byte verified", results.runs.len(), bytes(total.0)),
        ));
    }
    rows.extend(live_part(material).map(|result| ("live part".to_owned(), live::source(result))));
    rows.extend(material.simulation.iter().map(|simulation| ("simulation".to_owned(), simulated::source(simulation))));
    rows
}
