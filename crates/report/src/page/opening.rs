//! What the page begins with: the verdict and the next command, then what was found beside layouts, then the traced run in figures.

use super::plans;
use crate::finding::Finding;
use crate::headline::Headline;
use crate::material::Material;
use crate::results::Results;
use crate::run_facts::Figure;
use serde::Serialize;
use stripewise_layout::figures::{bytes, counted, duration, grouped, signed_percent};
use stripewise_planner::{PolicyName, recommended, within};

fn tile(label: &str, value: String, note: String) -> Figure {
    Figure::new(label, value, note)
}

/// The first section.
#[derive(Serialize)]
pub(super) struct Opening {
    apply: bool,
    decision: String,
    reason: String,
    commands: Vec<String>,
    measured: Vec<String>,
    /// Predictions all of them.
    tiles: Vec<Figure>,
    predicted: Vec<String>,
}

/// `None` where there is nothing to decide about: no plan and no trace that one could be made for.
pub(super) fn opening(material: &Material) -> Option<Opening> {
    let of_plans = || Headline::of_plans(&material.plans, |_| None);
    if let Some(headline) = material.headline.clone().or_else(of_plans) {
        let tiles = predictions(material, &headline);
        let Headline { apply, decision, reason, commands, measured, predicted, .. } = headline;
        return Some(Opening { apply, decision, reason, commands, measured, tiles, predicted });
    }
    material.trace.as_ref().map(|_| Opening {
        apply: false,
        decision: "No plan yet".to_owned(),
        reason: "This report has a trace, but no plan for it.".to_owned(),
        commands: vec!["stripewise plan TRACE -o plan.json".to_owned()],
        measured: Vec::new(),
        tiles: Vec::new(),
        predicted: Vec::new(),
    })
}

fn predictions(material: &Material, headline: &Headline) -> Vec<Figure> {
    let mut tiles = Vec::new();
    if let Some(gain) = headline.gain {
        tiles.push(tile(
            &format!("Gain over {}", headline.over),
            signed_percent(gain.expected),
            format!("between {} and {}", signed_percent(gain.low), signed_percent(gain.high)),
        ));
    }
    tiles.extend(headline.predictions.iter().cloned());
    if let Some((_, plan)) = recommended(&material.plans).filter(|_| headline.apply) {
        let verdict = &plan.verdict;
        let (low_s, high_s) = plan.gain.total.saved_s(plan.predicted.total.time_s);
        tiles.push(tile(
            "Saved in each run",
            duration(verdict.saved_s),
            format!("between {} and {}", duration(low_s), duration(high_s)),
        ));
        tiles.push(tile(
            "Placing the data",
            duration(verdict.place_s),
            format!("{}, {} once", within(verdict.spread), bytes(verdict.place_bytes)),
        ));
        tiles.push(tile(
            "On SSD servers",
            bytes(plan.ssd_bytes()),
            format!("of {} planned", bytes(plans::size_bytes(plan))),
        ));
    }
    tiles
}

/// A finding as the page shows it.
#[derive(Serialize)]
pub(super) struct ShownFinding {
    severity: &'static str,
    title: String,
    figure: String,
    remedy: String,
}

/// The gravest first.
pub(super) fn findings(findings: &[Finding]) -> Vec<ShownFinding> {
    let mut ordered: Vec<&Finding> = findings.iter().collect();
    ordered.sort_by_key(|finding| finding.severity);
    let shown = |finding: &Finding| ShownFinding {
        severity: finding.severity.name(),
        title: finding.title.clone(),
        figure: finding.figure.clone(),
        remedy: finding.remedy.clone(),
    };
    ordered.into_iter().map(shown).collect()
}

/// What was measured: of the traced run, and of runs on placements.
pub(super) fn measured(material: &Material) -> Vec<Figure> {
    let mut tiles = Vec::new();
    if let Some((policy, gain)) = material.results.as_ref().and_then(Results::best) {
        tiles.push(tile(
            &format!("Gain over {}", PolicyName::BASELINE),
            signed_percent(gain),
            format!("{policy}, geometric mean of all runs"),
        ));
    }
    if let Some(run) = &material.run {
        // A log's counters say more than its segments alone.
        tiles.extend(run.figures.iter().cloned());
        return tiles;
    }
    let Some(trace) = &material.trace else { return tiles };
    let moved: u64 = trace.files.iter().fold(0, |sum, file| sum.saturating_add(file.moved_bytes));
    let reads: u64 = trace.files.iter().map(|file| file.read_requests).sum();
    let writes: u64 = trace.files.iter().map(|file| file.write_requests).sum();
    let moved_note = format!("{} reads, {} writes", grouped(reads as i64), grouped(writes as i64));
    tiles.push(tile("Moved by the program", bytes(moved), moved_note));
    let ranks = match trace.mpi_size {
        0 => counted(trace.processes, "process", "processes"),
        size => format!("{size} MPI ranks"),
    };
    let nodes = counted(trace.nodes, "node", "nodes");
    tiles.push(tile("Traced run", duration(trace.duration_s), format!("{ranks} on {nodes}")));
    tiles
}
