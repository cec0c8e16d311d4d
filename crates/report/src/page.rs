//! The page: the verdict first, then what was measured, what was simulated and what is predicted, in sections that each say which it is, and
//! only those for which there is something to show.

mod bandwidth;
mod live;
mod opening;
mod optimum;
mod plans;
mod simulated;

use super::{heat, run_timeline};
use crate::material::Material;
use crate::results::LiveResult;
use crate::run_facts::{Figure, Table};
use crate::summary::FileSummary;
use serde::Serialize;
use std::path::Path;
use stripewise_layout::figures::{bytes, counted, grouped};
use stripewise_layout::{ByteCount, Direction};
use stripewise_model::{Caveat, Profile};
use stripewise_planner::PolicyName;
use stripewise_trace::statistics::AccessPattern;
use thiserror::Error;

#[derive(Serialize)]
struct Page<'a> {
    style: &'a str,
    baseline: &'static str,
    version: &'a str,
    title: String,
    subtitle: Vec<String>,
    emulated: bool,
    throttled: Vec<String>,
    opening: Option<opening::Opening>,
    findings: Vec<opening::ShownFinding>,
    measured: Vec<Figure>,
    run_timeline: String,
    tables: &'a [Table],
    bandwidth: Option<bandwidth::Bandwidth>,
    live: Option<live::LiveSection>,
    optima: Vec<optimum::OptimumSection>,
    simulated: Option<simulated::SimulatedSection>,
    heat: Vec<FileHeat>,
    other_files: usize,
    regions: Vec<plans::RegionSection>,
    load: String,
    load_within: String,
    fits: Option<plans::Fits>,
    plans: Vec<plans::PlanSection>,
    comparison: Vec<Vec<String>>,
    sources: Vec<(String, String)>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct FileHeat {
    path: String,
    facts: String,
    /// How reads, and how writes, go through the file.
    patterns: Vec<String>,
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
        throttled: throttled(profile.as_ref()),
        opening: opening::opening(material),
        findings: opening::findings(&material.findings),
        measured: opening::measured(material),
        run_timeline: material
            .run
            .as_ref()
            .map_or_else(String::new, |run| run_timeline::chart(&run.timeline, run.run_s)),
        tables: material.run.as_ref().map_or(&[], |run| run.tables.as_slice()),
        bandwidth: bandwidth::section(material),
        live: live_part(material).map(live::section),
        optima: optimum::sections(&material.plans),
        simulated: material.simulation.as_ref().map(simulated::section),
        heat: material.trace.iter().flat_map(|trace| &trace.files).filter_map(file_heat).collect(),
        other_files: material.trace.iter().flat_map(|trace| &trace.files).filter(|file| file.heat.is_none()).count(),
        regions: plans::region_sections(material),
        load: plans::load_chart(&material.plans),
        load_within: plans::load_within(&material.plans),
        fits: profile.as_ref().map(plans::fits_section),
        plans: material.plans.iter().map(plans::plan_section).collect(),
        comparison: plans::comparison(&material.plans),
        sources: sources(material, profile.as_ref()),
        warnings: warnings(material),
    }
}

/// What is missing in the inputs. The trace of a run's log repeats what the log lacks.
fn warnings(material: &Material) -> Vec<String> {
    match (&material.run, &material.trace) {
        (Some(run), _) => run.missing.clone(),
        (None, Some(trace)) => trace.warnings.clone(),
        (None, None) => Vec::new(),
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

/// What is said of each server that was slowed down.
fn throttled(profile: Option<&Profile>) -> Vec<String> {
    let caveats = profile.iter().flat_map(|profile| &profile.caveats);
    caveats.filter(|caveat| matches!(caveat, Caveat::Throttled { .. })).map(ToString::to_string).collect()
}

fn live_part(material: &Material) -> Option<&LiveResult> {
    material.results.as_ref()?.live.as_ref()
}

fn title(material: &Material) -> String {
    let planned = material.plans.first().map(|plan| plan.key.application.clone());
    let run = material.run.as_ref().map(|run| shortened(&run.command));
    let planned = planned.or(run);
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
    if let Some(trace) = material.trace.as_ref().filter(|_| material.run.is_none()) {
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
        patterns: patterns(file),
        chart: heat::chart(heat),
        sizes: rows.collect(),
    })
}

/// `reads: strided by 65536 B (4 processes)`, and the same of writes.
fn patterns(file: &FileSummary) -> Vec<String> {
    let of = |(name, found): (&str, &Vec<(AccessPattern, u32)>)| {
        let words = found.iter().map(|(pattern, processes)| {
            format!("{pattern} ({})", counted(*processes as usize, "process", "processes"))
        });
        (!found.is_empty()).then(|| format!("{name}: {}", words.collect::<Vec<_>>().join(", ")))
    };
    ["reads", "writes"].into_iter().zip(&file.patterns).filter_map(of).collect()
}

fn sources(material: &Material, profile: Option<&Profile>) -> Vec<(String, String)> {
    let mut rows = material.run.as_ref().map_or_else(Vec::new, |run| run.inputs.clone());
    if let Some(trace) = material.trace.as_ref().filter(|_| material.run.is_none()) {
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
                bytes(plan.options.step.0),
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
