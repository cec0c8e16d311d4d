//! A recorded trace or a benchmark on modelled servers, under any plan or policy.

mod machines;
mod options;

pub use machines::ModelledServer;
pub use options::{Disks, SimulateError, SimulateOptions, Ssds};

use crate::laboratory::{Lab, PolicyError};
use crate::session::Session;
use crate::workload::Source;
use machines::Machines;
use rayon::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use stripewise_planner::{NameMatch, Plan, PlanOptions, PlannedFile, PolicyName, Throughput};
use stripewise_report::simulation::{SIMULATION_VERSION, SimulatedRun, SimulatedServer, Simulation};
use stripewise_sim::{
    Borders, FilePlacements, Outcome, PlacedWindow, Scenario, SimOptions, StationOrder, simulate as simulate_scenario,
};
use stripewise_trace::{FileShape, Pacing, Program, ProgramCountOptions, RecordedOptions};

/// Length of a slice of the time line to begin with; the simulator makes them longer as the run goes on.
const SLICE_S: f64 = 1e-4;

/// What was simulated, on which servers.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Processes of the program.
    pub processes: u32,
    /// Client nodes.
    pub nodes: u32,
    /// In the order in which layouts number them.
    pub servers: Vec<ModelledServer>,
    /// Of the simulator.
    pub options: SimOptions,
    /// One for each plan, then one for each policy.
    pub runs: Vec<Run>,
}

impl Simulated {
    /// As the file of a simulation has it.
    ///
    /// # Errors
    /// When the simulator's options cannot be written as JSON.
    pub fn as_written(self, workload: String) -> serde_json::Result<Simulation> {
        let server = |server: ModelledServer| {
            let ModelledServer { name, class, device, model, link } = server;
            SimulatedServer { name, class, device, model: model.to_owned(), link }
        };
        let run = |run: Run| SimulatedRun::new(run.name, run.plan, run.predicted, run.outcome);
        Ok(Simulation {
            version: SIMULATION_VERSION,
            simulated: true,
            workload,
            processes: self.processes,
            nodes: self.nodes,
            servers: self.servers.into_iter().map(server).collect(),
            options: serde_json::to_value(&self.options)?,
            runs: self.runs.into_iter().map(run).collect(),
        })
    }
}

/// The workload under one plan.
#[derive(Clone, Debug)]
pub struct Run {
    /// The plan's file without its ending, or the policy.
    pub name: String,
    /// The plan's file; `None` of a policy.
    pub plan: Option<PathBuf>,
    /// What the plan predicts for all requests, where it predicts anything.
    pub predicted: Option<Throughput>,
    /// Times, rates and what each server did.
    pub outcome: Outcome,
}

/// Simulates a workload under every plan and policy of the options, side by side.
///
/// # Errors
/// When the options do not go together, or name what is not there.
pub fn simulate(session: &Session, arguments: &SimulateOptions) -> Result<Simulated, SimulateError> {
    let machines = Machines::choose(session, arguments)?;
    let source = Source::open(&arguments.workload, arguments.processes)?;
    let is_trace = matches!(source, Source::Trace(_));
    if is_trace && arguments.processes.is_some() {
        return Err(SimulateError::ProcessesOfTrace);
    }
    if !is_trace && (arguments.window_s.is_some() || !arguments.files.is_empty() || arguments.pacing.is_some()) {
        return Err(SimulateError::TraceOptions { workload: arguments.workload.clone() });
    }
    let recorded = RecordedOptions {
        pacing: arguments.pacing.unwrap_or(Pacing::Gaps { scale: 1.0 }),
        window_s: arguments.window_s,
        files: None,
        synchronizations: true,
    };
    let program = source.program(&recorded, &arguments.files)?;
    let lab = &machines.lab;
    let files = lab.count(program.as_ref());
    let plans = plans(arguments, lab, program.as_ref(), &files)?;
    let options = options(arguments, &machines)?;
    let has_replicas = |planned: &&Planned| {
        let mut windows = planned.plan.files.iter().flat_map(|file| &file.windows);
        windows.any(|window| !window.replicas.is_empty())
    };
    if let Some(planned) = plans.iter().find(has_replicas) {
        session.say(format_args!("{}: replicas are not simulated, all reads go to the first copy", planned.name));
    }
    let total_bytes: u64 = total_bytes(&files) * plans.len() as u64;
    let bar = session.voice().bytes(total_bytes, "simulating");
    let all_done = AtomicU64::new(0);
    let outcomes: Vec<Result<Outcome, SimulateError>> = plans
        .par_iter()
        .map(|planned| {
            let nominal_s = match planned.path {
                Some(_) => arguments.window_s.unwrap_or(ProgramCountOptions::default().window_s),
                None => ProgramCountOptions::default().window_s,
            };
            let by_time = planned.path.is_some() && is_by_trace_times(arguments) && arguments.window_s.is_none();
            let borders = if by_time { Borders::Time } else { Borders::Phase };
            let placements = placements(&planned.plan, program.as_ref(), borders, nominal_s)?;
            let options = SimOptions { borders, ..options.clone() };
            let scenario = Scenario { system: &lab.system, program: program.as_ref(), files: &placements, options };
            let mut before = 0;
            let outcome = simulate_scenario(&scenario, &mut |progress| {
                bar.set(all_done.fetch_add(progress.bytes - before, Ordering::Relaxed) + progress.bytes - before);
                before = progress.bytes;
            });
            outcome.map_err(|source| SimulateError::Simulating { name: planned.name.clone(), source })
        })
        .collect();
    drop(bar);
    let runs = plans.into_iter().zip(outcomes).map(|(planned, outcome)| {
        let predicted = Some(planned.plan.predicted.total).filter(|total| total.mb_per_s.is_finite());
        Ok(Run { name: planned.name, plan: planned.path, predicted, outcome: outcome? })
    });
    let runs = runs.collect::<Result<Vec<_>, SimulateError>>()?;
    let servers = machines.rows(&options);
    Ok(Simulated { processes: program.processes(), nodes: program.nodes(), servers, options, runs })
}

/// A plan that is simulated, and whence it comes.
struct Planned {
    name: String,
    path: Option<PathBuf>,
    plan: Plan,
}

fn plans(
    arguments: &SimulateOptions,
    lab: &Lab,
    program: &dyn Program,
    files: &[stripewise_trace::FileAccess],
) -> Result<Vec<Planned>, SimulateError> {
    let mut planned = Vec::new();
    for path in &arguments.plans {
        let plan = Plan::load(path)?;
        let (has, wants) = (lab.cluster.servers.len(), plan.servers.len());
        if has != wants {
            return Err(SimulateError::OtherServers { path: path.clone(), has, wants });
        }
        let stem = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        planned.push(Planned { name: stem, path: Some(path.clone()), plan });
    }
    let policies: &[PolicyName] = match (&arguments.policies[..], planned.is_empty()) {
        ([], true) => &[PolicyName::BASELINE],
        (named, _) => named,
    };
    let options = PlanOptions { seed: arguments.seed, ssd_room: arguments.ssd_capacity, ..PlanOptions::default() };
    let request = lab.request(program, files, options);
    for policy in policies {
        let plan =
            stripewise_planner::plan(*policy, &request).map_err(|source| PolicyError { policy: *policy, source })?;
        planned.push(Planned { name: policy.to_string(), path: None, plan });
    }
    Ok(planned)
}

fn options(arguments: &SimulateOptions, machines: &Machines) -> Result<SimOptions, SimulateError> {
    let default = if arguments.servers.is_empty() { StationOrder::DeviceFirst } else { StationOrder::Network };
    let order = arguments.order.unwrap_or(default);
    if order == StationOrder::DeviceFirst && arguments.client_link.is_some() {
        return Err(SimulateError::ClientLink);
    }
    Ok(SimOptions {
        seed: arguments.seed,
        slice_s: SLICE_S,
        borders: Borders::Phase,
        migration: arguments.migration,
        order,
        write_back: match order {
            StationOrder::Network => SimOptions::default().write_back,
            StationOrder::DeviceFirst => machines.dirty_limit,
        },
        detail: machines.detail(arguments)?,
    })
}

fn is_by_trace_times(arguments: &SimulateOptions) -> bool {
    matches!(arguments.pacing, Some(Pacing::OwnTimes { .. }))
}

fn total_bytes(files: &[stripewise_trace::FileAccess]) -> u64 {
    let regions = |file: &stripewise_trace::FileAccess| -> u64 {
        let counts = file.windows.iter().flat_map(|window| &window.regions).flat_map(|region| &region.counts);
        counts.map(|(class, count)| file.classes[usize::from(class.0)].request_bytes * count).sum()
    };
    files.iter().map(regions).sum()
}

/// Where the plan puts each file of the program.
fn placements(
    plan: &Plan,
    program: &dyn Program,
    borders: Borders,
    window_s: f64,
) -> Result<Vec<FilePlacements>, SimulateError> {
    let place = |shape: &FileShape| {
        let planned = planned_file(plan, program, shape)?;
        let windows = match borders {
            Borders::Time => {
                let placed = planned.windows.iter();
                placed.map(|w| PlacedWindow { start_s: w.start_s, placement: w.placement.clone() }).collect()
            }
            Borders::Phase => (0..program.phases())
                .map(|phase| {
                    let start_s = f64::from(phase) * window_s;
                    PlacedWindow { start_s, placement: planned.placement_at(start_s).clone() }
                })
                .collect(),
        };
        Ok(FilePlacements { windows })
    };
    program.files().iter().map(place).collect()
}

/// The plan's file whose name is nearest; any other only where there is nothing to choose.
fn planned_file<'p>(
    plan: &'p Plan,
    program: &dyn Program,
    shape: &FileShape,
) -> Result<&'p PlannedFile, SimulateError> {
    let found = plan.lookup(&shape.path, &plan.key.application, program.processes());
    let is_only = plan.files.len() == 1 && program.files().len() == 1;
    match found {
        Some(found) if found.name != NameMatch::None || is_only => Ok(found.file),
        _ => Err(SimulateError::NotPlanned {
            path: shape.path.clone(),
            planned: plan.files.iter().map(|file| file.path.clone()).collect(),
        }),
    }
}
