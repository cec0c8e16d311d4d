//! From a policy's choice to a whole plan, and several policies side by side.

use crate::capacity::Ledger;
use crate::fit::{self, Unfit};
use crate::moves::moves_between;
use crate::plan::{Gain, Gains, PLAN_VERSION, Plan, PlannedFile, PlannedServer, PlannedWindow, Verdict, pattern_of};
use crate::policy::{FileChoice, Optimum, PolicyName, Replica, Replicas, Task, region_bytes};
use crate::predict::{Laid, Prediction, PredictionSum};
use crate::promises;
use crate::request::{PlanRequest, RequestError};
use crate::verdict::verdict;
use serde::Serialize;
use std::collections::HashMap;
use std::ops::Range;
use stripewise_layout::ServerClass;
use stripewise_layout::figures::{bytes, duration};
use stripewise_layout::{Layout, Placement, RegionIndex, Run};
use stripewise_model::Caveat;
use stripewise_trace::FileAccess;

/// The plans of several policies for one request.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// In the order of the policies that were asked for.
    pub plans: Vec<Plan>,
}

/// What one policy's plan is predicted to bring.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ComparisonRow {
    /// The policy.
    pub policy: PolicyName,
    /// Million bytes read per second; `None` without reads.
    pub read_mb_per_s: Option<f64>,
    /// Million bytes written per second; `None` without writes.
    pub write_mb_per_s: Option<f64>,
    /// Seconds that all requests take.
    pub time_s: f64,
    /// Relative spread of these figures, the largest of them.
    pub spread: f64,
    /// Against the plan of `def`.
    pub gain: Gains,
    /// Bytes on all SSD servers together.
    pub ssd_bytes: u64,
    /// Whether the plan is worth its move.
    pub verdict: Verdict,
}

/// Makes the plan of one policy.
///
/// # Errors
///
/// Those of [`PlanRequest::check`]; the policy has not run then.
pub fn plan(policy: PolicyName, request: &PlanRequest<'_>) -> Result<Plan, RequestError> {
    request.check()?;
    let capacity = request.capacity();
    let task = Task::new(request, &capacity);
    let (baseline, chosen) = rayon::join(|| Baseline::of(&task), || task.choose_with_optimum(policy));
    Ok(assemble(policy, &task, chosen, &baseline))
}

/// Plans with every policy of `policies`, in order.
///
/// # Errors
///
/// Those of [`PlanRequest::check`]; no policy has run then.
pub fn compare(request: &PlanRequest<'_>, policies: &[PolicyName]) -> Result<Comparison, RequestError> {
    request.check()?;
    let capacity = request.capacity();
    let task = Task::new(request, &capacity);
    let baseline = Baseline::of(&task);
    Ok(Comparison {
        plans: policies
            .iter()
            .map(|policy| assemble(*policy, &task, task.choose_with_optimum(*policy), &baseline))
            .collect(),
    })
}

/// What the request's files are predicted to do all together where each lies in one place for the whole run, in the order of the files.
///
/// # Errors
///
/// Those of [`PlanRequest::check`].
///
/// # Panics
///
/// If a placement has servers that the cluster lacks.
pub fn predict_laid(request: &PlanRequest<'_>, laid: &[Laid]) -> Result<Prediction, RequestError> {
    request.check()?;
    let capacity = request.capacity();
    let task = Task::new(request, &capacity);
    let mut sum = PredictionSum::new(request.profile);
    for (file, laid) in request.files.iter().zip(laid) {
        for (number, window) in file.windows.iter().enumerate() {
            sum.add_laid(laid, file, window, task.windows[number]);
        }
    }
    Ok(sum.finish())
}

impl Comparison {
    /// One row for each plan, the shortest predicted time first; of equal ones the one that was asked for first.
    #[must_use]
    pub fn rows(&self) -> Vec<ComparisonRow> {
        let row = |plan: &Plan| ComparisonRow {
            policy: plan.policy,
            read_mb_per_s: plan.predicted.read.map(|read| read.mb_per_s),
            write_mb_per_s: plan.predicted.write.map(|write| write.mb_per_s),
            time_s: plan.predicted.total.time_s,
            spread: plan.predicted.spread(),
            gain: plan.gain,
            ssd_bytes: plan.ssd_bytes(),
            verdict: plan.verdict.clone(),
        };
        let mut rows: Vec<ComparisonRow> = self.plans.iter().map(row).collect();
        rows.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
        rows
    }

    /// What several plans note, each sentence once; what holds for one policy alone is in its plan.
    #[must_use]
    pub fn notes(&self) -> Vec<&String> {
        let least = self.plans.len().min(2);
        let mut notes: Vec<&String> = Vec::new();
        for note in self.plans.iter().flat_map(|plan| &plan.notes) {
            if !notes.contains(&note) && self.plans.iter().filter(|plan| plan.notes.contains(note)).count() >= least {
                notes.push(note);
            }
        }
        notes
    }

    /// The plan that is predicted to save most of those that are worth their move, moves between windows taken off; `None`: the files
    /// are best left where they are. Of equal ones the one that was asked for first.
    #[must_use]
    pub fn recommended(&self) -> Option<&Plan> {
        recommended(&self.plans).map(|(_, plan)| plan)
    }
}

/// As [`Comparison::recommended`], of plans that were made for the same run; with the place of the plan among them.
#[must_use]
pub fn recommended(plans: &[Plan]) -> Option<(usize, &Plan)> {
    let net_s = |plan: &Plan| plan.verdict.saved_s - plan.verdict.move_s;
    let worthwhile = plans.iter().enumerate().filter(|(_, plan)| plan.verdict.apply);
    worthwhile.reduce(|best, plan| if net_s(plan.1) > net_s(best.1) { plan } else { best })
}

/// What `def` does with the same request.
struct Baseline {
    choices: Vec<FileChoice>,
    prediction: Prediction,
}

impl Baseline {
    fn of(task: &Task<'_>) -> Self {
        let choices = task.choose(PolicyName::BASELINE);
        let files = planned_files(task, &choices);
        Self { prediction: predict_files(task, &files), choices }
    }
}

/// Works out everything that a plan says beyond layouts.
fn assemble(
    policy: PolicyName,
    task: &Task<'_>,
    (mut choices, mut optimum): (Vec<FileChoice>, Option<Optimum>),
    baseline: &Baseline,
) -> Plan {
    let request = task.request;
    let is_default = policy == PolicyName::BASELINE;
    // The baseline is what files have today, wherever they lie.
    let kept = if is_default { None } else { Some(promises::keep(task, &mut choices)) };
    let (unpromised, needed_bytes) =
        kept.map_or_else(|| (None, vec![0; task.groups.count]), |kept| (kept.note, kept.needed_bytes));
    if unpromised.is_some() {
        // Its value is that of other placements.
        optimum = None;
    }
    let mut files = planned_files(task, &choices);
    let replicas = task.replicas(policy, &choices);
    let predicted = if is_default { baseline.prediction.clone() } else { predict_files(task, &files) };
    let same = choices == baseline.choices;
    let gain = Gains {
        read: predicted.read.zip(baseline.prediction.read).map(|(plan, def)| Gain::of(plan, def, same)),
        write: predicted.write.zip(baseline.prediction.write).map(|(plan, def)| Gain::of(plan, def, same)),
        total: Gain::of(predicted.total, baseline.prediction.total, same),
    };
    let saved_s = baseline.prediction.total.time_s - predicted.total.time_s;
    for (file, replicas) in files.iter_mut().zip(&replicas) {
        file.windows.iter_mut().for_each(|window| window.replicas.clone_from(&replicas.list));
    }
    let servers = planned_servers(task, &files);
    let unfit = fit::unfit(task, &servers, &needed_bytes);
    // What decides first, what all plans of the cluster have in common last.
    let mut notes: Vec<String> = unfit.iter().map(Unfit::figures).collect();
    notes.extend(unpromised);
    notes.extend(replicas_note(task, &files, &replicas));
    notes.extend(general_notes(task, &servers));
    Plan {
        version: PLAN_VERSION,
        cluster: request.cluster.id.clone(),
        made_from: request.sources.clone(),
        key: request.key.clone(),
        policy,
        options: request.options.clone(),
        concurrency: task.concurrency,
        emulated: request.profile.emulated,
        verdict: verdict(task, &files, (predicted.total.time_s, saved_s), gain.total, &unfit),
        predicted,
        default: baseline.prediction.clone(),
        gain,
        optimum,
        notes,
        servers,
        files,
    }
}

fn planned_files(task: &Task<'_>, choices: &[FileChoice]) -> Vec<PlannedFile> {
    task.request.files.iter().zip(choices).map(|(file, choice)| planned_file(task, file, choice)).collect()
}

fn planned_file(task: &Task<'_>, file: &FileAccess, choice: &FileChoice) -> PlannedFile {
    let start_s = file.windows.first().map_or(0.0, |window| window.start_s);
    let end_s = file.windows.last().map_or(start_s, |window| window.end_s);
    let bytes_of = |region| region_bytes(file, region);
    let mut windows: Vec<PlannedWindow> = Vec::new();
    for (number, regions) in choice.windows.iter().enumerate() {
        let (window_start_s, window_end_s) = match file.windows.get(number) {
            Some(window) if choice.windows.len() > 1 => (window.start_s, window.end_s),
            _ if number == 0 => (start_s, end_s),
            _ => (end_s, end_s),
        };
        let moves = match number {
            0 => Vec::new(),
            _ => moves_between(&choice.layouts, &choice.windows[number - 1], regions, &task.groups.ssd, bytes_of),
        };
        match windows.last_mut() {
            Some(last) if moves.is_empty() => last.end_s = window_end_s,
            _ => windows.push(PlannedWindow {
                start_s: window_start_s,
                end_s: window_end_s,
                moves,
                placement: placement(file, choice, regions),
                replicas: Vec::new(),
            }),
        }
    }
    PlannedFile { path: file.path.clone(), pattern: pattern_of(&file.path), size_bytes: file.size_bytes, windows }
}

/// Regions past the planned end take the layout of the last planned one. Layouts are numbered as they come; those of a choice may be equal.
fn placement(file: &FileAccess, choice: &FileChoice, regions: &[u32]) -> Placement {
    let mut layouts: Vec<Layout> = Vec::new();
    let mut numbers: HashMap<&Layout, u32> = HashMap::new();
    // Thousands of regions have hundreds of layouts, and those are long to hash.
    let mut known: Vec<Option<u32>> = vec![None; choice.layouts.len()];
    let mut number_of = |chosen: u32| {
        *known[chosen as usize].get_or_insert_with(|| {
            let layout = &choice.layouts[chosen as usize];
            *numbers.entry(layout).or_insert_with(|| {
                layouts.push(layout.clone());
                layouts.len() as u32 - 1
            })
        })
    };
    let mut runs: Vec<Run> = Vec::new();
    for chosen in regions {
        let layout = number_of(*chosen);
        match runs.last_mut() {
            Some(run) if run.layout == layout => run.regions += 1,
            _ => runs.push(Run { regions: 1, layout }),
        }
    }
    let beyond = number_of(regions.last().copied().unwrap_or(choice.fallback));
    let fallback = number_of(choice.fallback);
    Placement { region_size: file.region_size, layouts, runs, beyond, fallback }
}

fn predict_files(task: &Task<'_>, files: &[PlannedFile]) -> Prediction {
    let mut sum = PredictionSum::new(task.request.profile);
    for (file, planned) in task.request.files.iter().zip(files) {
        for (number, window) in file.windows.iter().enumerate() {
            sum.add(planned.placement_at(window.start_s), file, window, task.windows[number]);
        }
    }
    sum.finish()
}

fn planned_servers(task: &Task<'_>, files: &[PlannedFile]) -> Vec<PlannedServer> {
    let mut starts_s: Vec<f64> = files.iter().flat_map(|file| &file.windows).map(|window| window.start_s).collect();
    starts_s.sort_by(f64::total_cmp);
    starts_s.dedup();
    let mut most = vec![0u64; task.groups.count];
    for start_s in starts_s {
        let mut ledger = Ledger::new(task.capacity);
        for (planned, file) in files.iter().zip(task.request.files) {
            let placement = planned.placement_at(start_s);
            let mut first = 0;
            for run in &placement.runs {
                book(&mut ledger, file, &placement.layouts[run.layout as usize], first..first + run.regions);
                first += run.regions;
            }
            for replica in replicas_at(planned, start_s) {
                book(&mut ledger, file, &replica.layout, replica.first.0..replica.first.0 + replica.regions);
            }
        }
        for (most, used) in most.iter_mut().zip(ledger.used_bytes()) {
            *most = (*most).max(*used);
        }
    }
    let servers = task.request.cluster.servers.iter().zip(most).enumerate();
    servers
        .map(|(index, (server, used_bytes))| PlannedServer {
            name: server.name.clone(),
            class: server.class,
            room_bytes: task.capacity.bytes(index),
            used_bytes,
        })
        .collect()
}

/// Books consecutive regions of one layout.
fn book(ledger: &mut Ledger<'_>, file: &FileAccess, layout: &Layout, regions: Range<u32>) {
    // All are whole but the one that the file's end cuts.
    let truncated =
        u32::try_from(file.size_bytes / file.region_size.0).ok().filter(|truncated| regions.contains(truncated));
    if let Some(truncated) = truncated {
        ledger.add(layout, region_bytes(file, RegionIndex(truncated)), 1);
    }
    ledger.add(layout, file.region_size.0, regions.len() as u64 - u64::from(truncated.is_some()));
}

fn replicas_at(file: &PlannedFile, time_s: f64) -> &[Replica] {
    let begun = file.windows.partition_point(|window| window.start_s <= time_s);
    &file.windows[begun.max(1) - 1].replicas
}

/// What the replicas take and bring; the plan's figures are those without them, since a run without the live data path reads the placement.
fn replicas_note(task: &Task<'_>, files: &[PlannedFile], replicas: &[Replicas]) -> Option<String> {
    let mut replica_bytes = 0u64;
    for ((planned, file), of_file) in files.iter().zip(task.request.files).zip(replicas) {
        for replica in &of_file.list {
            let regions = replica.first.0..replica.first.0 + replica.regions;
            replica_bytes += regions.map(|index| region_bytes(file, RegionIndex(index))).sum::<u64>();
        }
        debug_assert_eq!(planned.path, file.path);
    }
    let saved_s: f64 = replicas.iter().map(|of_file| of_file.saved_s).sum();
    (replica_bytes > 0).then(|| {
        format!(
            "replicas take {} more; where they are served, Cost-intelligent's model expects a run to save {} (not counted above)",
            bytes(replica_bytes),
            duration(saved_s)
        )
    })
}

fn general_notes(task: &Task<'_>, servers: &[PlannedServer]) -> Vec<String> {
    let mut notes = Vec::new();
    let has_parts = servers.iter().any(|server| server.class == ServerClass::Ssd && server.used_bytes > 0);
    notes.extend(task.capacity.too_large_region(&task.groups.ssd, task.request.cluster.region_size, has_parts));
    if !task.groups.is_hybrid() {
        notes.push(
            "the cluster has servers of one class only: there is no faster class to select regions for".to_owned(),
        );
    } else if task.groups.ssd.iter().any(|id| task.capacity.bytes(usize::from(id.0)).is_none()) {
        notes.push(
            "the capacity of some SSD servers is not known and counts as unbounded; give them a capacity".to_owned(),
        );
    }
    if task.request.profile.emulated {
        notes.push("servers are emulated: all figures are those of device models".to_owned());
    }
    notes.extend(Caveat::merged(&task.request.profile.caveats));
    notes
}
