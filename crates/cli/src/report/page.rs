//! The page: sections in order, each with its pictures and tables, and only those for which there is something to show.

use super::results::Results;
use super::summary::{FileSummary, TraceSummary};
use super::{bars, fits, heat, load, regions};
use crate::figures::{bytes, duration, grouped, number, signed_percent};
use anyhow::{Context as _, Result};
use bars::Bar;
use serde::Serialize;
use stripewise_layout::{ByteCount, Direction, Order};
use stripewise_model::{Line, NetworkSource, Profile};
use stripewise_planner::{Gain, MoveKind, Plan, PlannedFile};

/// All that a report can be made from; each part may be missing.
#[derive(Default)]
pub(super) struct Material {
    pub(super) trace: Option<TraceSummary>,
    pub(super) plans: Vec<Plan>,
    pub(super) profile: Option<Profile>,
    pub(super) results: Option<Results>,
}

#[derive(Serialize)]
struct Page<'a> {
    style: &'a str,
    version: &'a str,
    title: String,
    subtitle: Vec<String>,
    emulated: bool,
    tiles: Vec<Tile>,
    bandwidth: Option<Bandwidth>,
    heat: Vec<FileHeat>,
    other_files: usize,
    regions: Vec<RegionSection>,
    load: String,
    fits: Option<Fits>,
    plans: Vec<PlanSection>,
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
struct Key {
    class: &'static str,
    name: String,
}

#[derive(Serialize)]
struct Bandwidth {
    chart: String,
    keys: Vec<Key>,
    measured: bool,
    host_bound: usize,
    policies: Vec<String>,
    rows: Vec<GainRow>,
}

#[derive(Serialize)]
struct GainRow {
    operation: &'static str,
    size: String,
    cells: Vec<GainCell>,
}

#[derive(Serialize)]
struct GainCell {
    rate: String,
    predicted: String,
    gain: String,
}

#[derive(Serialize)]
struct FileHeat {
    path: String,
    facts: String,
    chart: String,
    sizes: Vec<Vec<String>>,
}

#[derive(Serialize)]
struct RegionSection {
    policy: String,
    class: &'static str,
    path: String,
    facts: String,
    chart: String,
    spans: Vec<Vec<String>>,
    more: usize,
}

#[derive(Serialize)]
struct Fits {
    chart: String,
    accesses: Vec<&'static str>,
    rows: Vec<FitRow>,
    network: String,
    measured_at: String,
}

#[derive(Serialize)]
struct FitRow {
    server: String,
    lines: Vec<Vec<String>>,
}

#[derive(Serialize)]
struct PlanSection {
    policy: String,
    class: &'static str,
    apply: bool,
    reason: String,
    facts: Vec<(String, String)>,
    moves: Vec<Vec<String>>,
    notes: Vec<String>,
}

/// Files whose pictures are shown; the others are counted.
pub(super) const FILES_SHOWN: usize = 3;
/// Rows of a table of spans before the rest is summed up.
const SPANS_SHOWN: usize = 16;

/// The whole page.
pub(super) fn render(material: &Material) -> Result<String> {
    let mut environment = minijinja::Environment::new();
    environment.add_template("page.html", include_str!("page.html")).context("the report's template")?;
    let template = environment.get_template("page.html").context("the report's template")?;
    template.render(minijinja::value::Serde(page(material))).context("writing the report")
}

fn page(material: &Material) -> Page<'_> {
    let profile = profile_of(material);
    Page {
        style: include_str!("style.css"),
        version: env!("CARGO_PKG_VERSION"),
        title: title(material),
        subtitle: subtitle(material),
        emulated: is_emulated(material),
        tiles: tiles(material),
        bandwidth: bandwidth(material),
        heat: material.trace.iter().flat_map(|trace| &trace.files).filter_map(file_heat).collect(),
        other_files: material.trace.as_ref().map_or(0, |trace| trace.files.len().saturating_sub(FILES_SHOWN)),
        regions: region_sections(material),
        load: load_chart(&material.plans),
        fits: profile.as_ref().map(fits_section),
        plans: material.plans.iter().map(plan_section).collect(),
        comparison: comparison(&material.plans),
        sources: sources(material, profile.as_ref()),
        warnings: material.trace.iter().flat_map(|trace| trace.warnings.clone()).collect(),
    }
}

/// The profile given, else the one in the results.
fn profile_of(material: &Material) -> Option<Profile> {
    material.profile.clone().or_else(|| {
        let value = material.results.as_ref()?.profile.clone();
        serde_json::from_value(value).ok()
    })
}

fn is_emulated(material: &Material) -> bool {
    material.results.as_ref().is_some_and(|results| results.emulated)
        || material.plans.iter().any(|plan| plan.emulated)
        || material.profile.as_ref().is_some_and(|profile| profile.emulated)
}

fn title(material: &Material) -> String {
    let planned = material.plans.first().map(|plan| plan.key.application.clone());
    let traced = || {
        let command = &material.trace.as_ref()?.command;
        (!command.is_empty()).then(|| command.clone())
    };
    planned.filter(|name| !name.is_empty()).or_else(traced).unwrap_or_else(|| "I/O layout".to_owned())
}

fn subtitle(material: &Material) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(trace) = &material.trace {
        parts.push(trace.command.clone());
        parts.push(if trace.host.is_empty() { String::new() } else { format!("on {}", trace.host) });
        parts.push(trace.started.clone());
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn tiles(material: &Material) -> Vec<Tile> {
    let mut tiles = Vec::new();
    let tile = |label: &str, value: String, note: String| Tile { label: label.to_owned(), value, note };
    let best = material.plans.iter().max_by(|a, b| a.gain.total.expected.total_cmp(&b.gain.total.expected));
    if let Some((policy, gain)) = material.results.as_ref().and_then(Results::best) {
        tiles.push(tile("Measured gain over def", signed_percent(gain), format!("{policy}, mean over all sizes")));
    }
    if let Some(plan) = best {
        let gain = plan.gain.total;
        let range = format!("{}, {} to {}", plan.policy, signed_percent(gain.low), signed_percent(gain.high));
        tiles.push(tile("Predicted gain over def", signed_percent(gain.expected), range));
        tiles.push(tile(
            "On SSD servers",
            bytes(plan.ssd_bytes()),
            format!("of {} planned", bytes(plan.files.iter().map(|file| file.size_bytes).sum())),
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
            count(trace.processes, "process", "processes")
        };
        tiles.push(tile(
            "Traced run",
            duration(trace.duration_s),
            format!("{ranks} on {}", count(trace.nodes, "node", "nodes")),
        ));
    }
    tiles
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number as i64), if number == 1 { one } else { many })
}

fn bandwidth(material: &Material) -> Option<Bandwidth> {
    let bars = match &material.results {
        Some(results) => results.bars(),
        None => predicted_bars(&material.plans),
    };
    if bars.is_empty() {
        return None;
    }
    let policies = bars::distinct(&bars, |bar| bar.policy.clone());
    let keys = policies.iter().map(|name| Key { class: bars::policy_class(name), name: name.clone() }).collect();
    let rows = bars::distinct(&bars, |bar| (bar.direction, bar.request_bytes))
        .into_iter()
        .map(|key| gain_row(&bars, &policies, key))
        .collect();
    Some(Bandwidth {
        chart: bars::chart(&bars),
        keys,
        measured: material.results.is_some(),
        host_bound: bars.iter().filter(|bar| bar.host_bound).count(),
        policies,
        rows,
    })
}

/// Without measured runs: one bar for each plan and direction, `def` first.
fn predicted_bars(plans: &[Plan]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        let rate = |prediction: &stripewise_planner::Prediction| match direction {
            Direction::Read => prediction.read.map(|read| read.mb_per_s),
            Direction::Write => prediction.write.map(|write| write.mb_per_s),
        };
        let default = plans.iter().filter(|_| plans.iter().all(|plan| plan.policy.name() != "def")).take(1);
        let named = default
            .map(|plan| ("def", &plan.default))
            .chain(plans.iter().map(|plan| (plan.policy.name(), &plan.predicted)));
        for (policy, prediction) in named {
            if let Some(predicted) = rate(prediction) {
                bars.push(Bar {
                    policy: policy.to_owned(),
                    direction,
                    request_bytes: None,
                    measured_mb_s: None,
                    predicted_mb_s: Some(predicted),
                    host_bound: false,
                });
            }
        }
    }
    bars
}

fn gain_row(bars: &[Bar], policies: &[String], (direction, size): (Direction, Option<u64>)) -> GainRow {
    let of = |policy: &str| {
        bars.iter().find(|bar| bar.policy == policy && (bar.direction, bar.request_bytes) == (direction, size))
    };
    let rate = |bar: &Bar| if bar.host_bound { None } else { bar.measured_mb_s.or(bar.predicted_mb_s) };
    let default = of("def").and_then(rate);
    let cells = policies
        .iter()
        .map(|policy| {
            let bar = of(policy);
            let shown = bar.and_then(rate);
            let gain = match (shown, default) {
                (Some(shown), Some(default)) if policy != "def" && default > 0.0 => {
                    signed_percent(shown / default - 1.0)
                }
                _ => String::new(),
            };
            let predicted = bar.filter(|bar| bar.measured_mb_s.is_some()).and_then(|bar| bar.predicted_mb_s);
            GainCell {
                rate: match bar {
                    Some(bar) if bar.host_bound => "host-bound".to_owned(),
                    _ => shown.map_or_else(|| "\u{2013}".to_owned(), number),
                },
                predicted: predicted.map_or_else(String::new, number),
                gain,
            }
        })
        .collect();
    GainRow {
        operation: match direction {
            Direction::Read => "read",
            Direction::Write => "write",
        },
        size: size.map_or_else(|| "whole run".to_owned(), bytes),
        cells,
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
        chart: heat::chart(heat),
        sizes: rows.collect(),
    })
}

fn region_sections(material: &Material) -> Vec<RegionSection> {
    let mut sections = Vec::new();
    for plan in &material.plans {
        for file in plan.files.iter().take(FILES_SHOWN) {
            sections.push(region_section(material, plan, file));
        }
    }
    sections
}

fn region_section(material: &Material, plan: &Plan, file: &PlannedFile) -> RegionSection {
    let placement = file.initial();
    let traced = material.trace.iter().flat_map(|trace| &trace.files).find(|traced| traced.path == file.path);
    let map = regions::RegionMap {
        path: &file.path,
        policy: plan.policy.name(),
        size_bytes: file.size_bytes,
        placement,
        servers: &plan.servers,
        heat: traced.map_or(&[], |traced| &traced.by_region),
    };
    let spans = regions::spans(placement, file.size_bytes);
    let rows = spans.iter().take(SPANS_SHOWN).map(|span| {
        let last = span.first + span.regions - 1;
        let range = if last == span.first { span.first.to_string() } else { format!("{}\u{2013}{last}", span.first) };
        let offset = span.first * placement.region_size.0;
        vec![range, bytes(offset), regions::layout_words(span.layout, &plan.servers)]
    });
    let total: u64 = spans.iter().map(|span| span.regions).sum();
    RegionSection {
        policy: plan.policy.to_string(),
        class: bars::policy_class(plan.policy.name()),
        path: file.path.clone(),
        facts: format!(
            "{} regions of {} in {} distinct layouts",
            grouped(total as i64),
            placement.region_size,
            distinct_layouts(&spans)
        ),
        chart: regions::chart(&map),
        spans: rows.collect(),
        more: spans.len().saturating_sub(SPANS_SHOWN),
    }
}

fn distinct_layouts(spans: &[regions::Span<'_>]) -> usize {
    let layouts: std::collections::HashSet<_> = spans.iter().map(|span| span.layout).collect();
    layouts.len()
}

fn load_chart(plans: &[Plan]) -> String {
    let Some(first) = plans.first() else { return String::new() };
    let servers: Vec<_> = first.servers.iter().map(|server| (server.name.as_str(), server.class)).collect();
    let mut loads = Vec::new();
    if plans.iter().all(|plan| plan.policy.name() != "def") {
        loads.push(load::Load { policy: "def", seconds: &first.default.server_load_s });
    }
    loads.extend(
        plans.iter().map(|plan| load::Load { policy: plan.policy.name(), seconds: &plan.predicted.server_load_s }),
    );
    load::chart(&servers, &loads)
}

fn fits_section(profile: &Profile) -> Fits {
    let line = |line: &Line| {
        vec![
            duration(line.alpha_s),
            if line.beta_s_per_byte > 0.0 { number(1e-6 / line.beta_s_per_byte) } else { "\u{2013}".to_owned() },
            format!("{:.4}", line.r2),
            format!("\u{b1} {:.1} %", line.spread * 100.0),
        ]
    };
    let rows = profile.servers.iter().map(|server| FitRow {
        server: server.name.clone(),
        lines: vec![
            line(server.line(Direction::Read, Order::Sequential)),
            line(server.line(Direction::Read, Order::Random)),
            line(server.line(Direction::Write, Order::Sequential)),
            line(server.line(Direction::Write, Order::Random)),
        ],
    });
    let network = &profile.network;
    let rate = if network.t_s_per_byte > 0.0 {
        format!("{} MB/s", number(1e-6 / network.t_s_per_byte))
    } else {
        "no limit".to_owned()
    };
    let network = match network.source {
        NetworkSource::Local => "Network: none; all servers are directories of this host.".to_owned(),
        NetworkSource::Measured => format!("Network, measured: {} per connection, {rate}.", duration(network.e_s)),
        NetworkSource::Given => format!("Network, as given: {} per connection, {rate}.", duration(network.e_s)),
    };
    Fits {
        chart: fits::chart(profile),
        accesses: vec!["sequential read", "random read", "sequential write", "random write"],
        rows: rows.collect(),
        network,
        measured_at: profile.measured_at.clone(),
    }
}

fn gain_words(gain: Option<Gain>) -> String {
    gain.map_or_else(
        || "\u{2013}".to_owned(),
        |gain| {
            format!("{} ({} to {})", signed_percent(gain.expected), signed_percent(gain.low), signed_percent(gain.high))
        },
    )
}

/// Policy, read and write bandwidth, gains, SSD bytes, verdict.
fn comparison(plans: &[Plan]) -> Vec<Vec<String>> {
    let rate = |rate: Option<stripewise_planner::Throughput>| {
        rate.map_or_else(|| "\u{2013}".to_owned(), |rate| number(rate.mb_per_s))
    };
    let row = |plan: &Plan| {
        vec![
            plan.policy.to_string(),
            rate(plan.predicted.read),
            gain_words(plan.gain.read),
            rate(plan.predicted.write),
            gain_words(plan.gain.write),
            bytes(plan.ssd_bytes()),
            if plan.verdict.apply { "apply" } else { "leave it" }.to_owned(),
        ]
    };
    plans.iter().map(row).collect()
}

fn plan_section(plan: &Plan) -> PlanSection {
    let verdict = &plan.verdict;
    let size: u64 = plan.files.iter().map(|file| file.size_bytes).sum();
    let windows = plan.files.iter().map(|file| file.windows.len()).max().unwrap_or(0);
    let mut facts = vec![
        ("for".to_owned(), format!("{}, {} processes", plan.key.application, plan.key.processes)),
        ("files".to_owned(), format!("{} with {}", grouped(plan.files.len() as i64), bytes(size))),
        (
            "placing the data".to_owned(),
            format!("{} in about {}", bytes(verdict.place_bytes), duration(verdict.place_s)),
        ),
        (
            "saved in each run".to_owned(),
            if verdict.saved_s < 0.0 {
                format!("\u{2212}{}", duration(-verdict.saved_s))
            } else {
                duration(verdict.saved_s)
            },
        ),
        ("windows".to_owned(), grouped(windows as i64)),
        ("gain over def".to_owned(), gain_words(Some(plan.gain.total))),
    ];
    if verdict.move_bytes > 0 {
        facts.push((
            "moved between windows".to_owned(),
            format!("{} in {}", bytes(verdict.move_bytes), duration(verdict.move_s)),
        ));
    }
    PlanSection {
        policy: plan.policy.to_string(),
        class: bars::policy_class(plan.policy.name()),
        apply: verdict.apply,
        reason: sentence(&verdict.reason),
        facts,
        moves: move_rows(plan),
        notes: plan.notes.clone(),
    }
}

/// The planner's reason without the word that stands before it on the page.
fn sentence(reason: &str) -> String {
    let text = reason.strip_prefix("apply: ").or_else(|| reason.strip_prefix("leave it: ")).unwrap_or(reason);
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

/// For each window border with moves: time, then count and bytes of each kind.
fn move_rows(plan: &Plan) -> Vec<Vec<String>> {
    let windows = plan.files.iter().flat_map(|file| file.windows.iter().map(move |window| (file, window)));
    windows
        .filter(|(_, window)| !window.moves.is_empty())
        .map(|(file, window)| {
            let of = |kind: MoveKind| {
                let moves = window.moves.iter().filter(|one| one.kind == kind);
                let (count, total) = moves.fold((0i64, 0), |(count, total), one| (count + 1, total + one.bytes));
                format!("{} ({})", grouped(count), bytes(total))
            };
            vec![
                file.path.clone(),
                duration(window.start_s),
                of(MoveKind::Outgoing),
                of(MoveKind::Restripe),
                of(MoveKind::Incoming),
            ]
        })
        .collect()
}

fn sources(material: &Material, profile: Option<&Profile>) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    if let Some(trace) = &material.trace {
        rows.push((
            "trace".to_owned(),
            format!("{} records of {}", grouped(trace.records as i64), count(trace.processes, "process", "processes")),
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
        let total = ByteCount(results.runs.iter().map(|run| run.bytes).sum());
        rows.push((
            "runs".to_owned(),
            format!("{} with {}, {verified} of them with every byte verified", results.runs.len(), bytes(total.0)),
        ));
    }
    rows
}
