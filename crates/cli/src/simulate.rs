//! `stripewise simulate`: a recorded trace or a benchmark on modelled servers, under any plan or policy.

mod machines;
mod show;

use crate::context::Context;
use crate::output::Verdict;
use crate::seconds;
use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use machines::Machines;
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use stripewise::emulated::EmulatedServers;
use stripewise::laboratory::Lab;
use stripewise::workload::Source;
use stripewise_device::DiskOrder;
use stripewise_layout::ByteCount;
use stripewise_layout::figures::counted;
use stripewise_planner::{NameMatch, Plan, PlanOptions, PlannedFile, PolicyName};
use stripewise_report::simulation::{Printed, SIMULATION_VERSION, SimulatedRun, Simulation};
use stripewise_sim::{
    Borders, FilePlacements, Migration, Outcome, PlacedWindow, Scenario, SimOptions, StationOrder, simulate,
};
use stripewise_trace::{FileShape, Pacing, Program, ProgramCountOptions, RecordedOptions};

/// Simulate a trace or a benchmark on modelled servers, under plans and policies
///
/// A workload is a trace, or a benchmark with its parameters: see docs/workloads.md. The servers are those of --servers, or the emulated ones of the
/// cluster file. Policies plan with what calibration would find of these servers. All figures are simulated; the same seed gives the same ones
/// on every machine.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise simulate run.trace --plan plan.json --servers 12xhdd-7200,4xsata-ssd-2012 --link gigabit
  stripewise simulate ior:pattern=zipf,size=8GiB,processes=32 --policy def,h2dp,opt --servers 12xhdd-7200,4xsata-ssd-2012:512MiB
  stripewise simulate run.trace --policy h2dp --trace-times --window 60s --migrate copied -o sim.json
  stripewise simulate ior:op=write --disk mechanical --ssd parts --cache 4GiB --servers 4xhdd-7200,2xsata-ssd-2012")]
pub(crate) struct SimulateArgs {
    /// A trace, or a benchmark such as ior:size=1GiB,transfer=64KiB,op=read
    #[arg(value_name = "WORKLOAD")]
    workload: String,

    /// A plan to simulate; may be given more than once
    #[arg(long = "plan", value_name = "FILE")]
    plans: Vec<PathBuf>,

    /// Policies to plan with and simulate [default: def, unless plans are given]
    #[arg(long = "policy", value_name = "NAME", value_delimiter = ',')]
    policies: Vec<PolicyName>,

    /// Groups of servers, [COUNTx]DEVICE[:CAPACITY], as `init --emulated` takes them [default: the emulated servers of the cluster file]
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    servers: Vec<EmulatedServers>,

    /// The link of every server of --servers
    #[arg(long, value_name = "NAME", requires = "servers")]
    link: Option<String>,

    /// Size of a region of --servers
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    region: ByteCount,

    /// A link of every client node, shared by its processes [default: none]
    #[arg(long, value_name = "NAME")]
    client_link: Option<String>,

    /// The way of a request: over the network, or device first as emulated servers have it [default: testbed for a cluster file, network for --servers]
    #[arg(long, value_enum)]
    order: Option<Order>,

    /// Processes of a benchmark in place of its own number
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    processes: Option<u32>,

    #[command(flatten)]
    pace: Pace,

    /// Of a trace, only the requests on this file; may be given several times
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,

    /// Cut a trace into phases of this length, at which all processes meet and windows of plans begin
    #[arg(long, value_name = "TIME", value_parser = seconds::parse)]
    window: Option<f64>,

    /// How disks are modelled
    #[arg(long, value_enum, default_value_t = Disks::Mean)]
    disk: Disks,

    /// The order in which mechanical disks serve
    #[arg(long, value_enum, default_value_t = ServiceOrder::Elevator)]
    disk_order: ServiceOrder,

    /// How SSDs are modelled
    #[arg(long, value_enum, default_value_t = Ssds::Mean)]
    ssd: Ssds,

    /// A page cache of that size on every server
    #[arg(long, value_name = "SIZE")]
    cache: Option<ByteCount>,

    /// How regions move at window borders: at once, or copied through the servers meanwhile
    #[arg(long, value_enum, default_value_t = Migrate::Free)]
    migrate: Migrate,

    /// Most bytes a second that are copied
    #[arg(long, value_name = "SIZE")]
    migrate_rate: Option<ByteCount>,

    /// Room on each SSD for policies [default: the servers' capacities]
    #[arg(long, value_name = "SIZE")]
    ssd_room: Option<ByteCount>,

    /// Seed of everything random
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// The file to write, for the report
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// When a trace's processes make their next request.
#[derive(Args, Debug)]
#[group(multiple = false)]
struct Pace {
    /// As much time after the one before as lay between them in the trace [default]
    #[arg(long)]
    closed: bool,

    /// At the trace's own times
    #[arg(long)]
    trace_times: bool,

    /// As soon as the one before is done
    #[arg(long)]
    no_think: bool,
}

impl Pace {
    fn is_given(&self) -> bool {
        self.closed || self.trace_times || self.no_think
    }

    fn pacing(&self) -> Pacing {
        match (self.trace_times, self.no_think) {
            (true, _) => Pacing::OwnTimes { scale: 1.0 },
            (_, true) => Pacing::AtOnce,
            _ => Pacing::Gaps { scale: 1.0 },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Order {
    Network,
    Testbed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Disks {
    /// Mean service times
    Mean,
    /// Seeks, rotation, zones, a cache
    Mechanical,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ServiceOrder {
    Fifo,
    Elevator,
    ShortestPositioning,
}

impl From<ServiceOrder> for DiskOrder {
    fn from(order: ServiceOrder) -> Self {
        match order {
            ServiceOrder::Fifo => Self::Fifo,
            ServiceOrder::Elevator => Self::Elevator,
            ServiceOrder::ShortestPositioning => Self::ShortestPositioning,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Ssds {
    /// Mean service times
    Mean,
    /// Dies, channels, write buffer, garbage collection
    Parts,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Migrate {
    Free,
    Copied,
}

/// Bytes that the mover copies at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// Length of a slice of the time line to begin with; the simulator makes them longer as the run goes on.
const SLICE_S: f64 = 1e-4;

pub(crate) fn run(context: &Context, arguments: SimulateArgs) -> Result<Verdict> {
    let machines = Machines::choose(context, &arguments)?;
    let source = Source::open(&arguments.workload, arguments.processes)?;
    let is_trace = matches!(source, Source::Trace(_));
    ensure!(
        !is_trace || arguments.processes.is_none(),
        "--processes is for benchmarks; a trace has the processes that were traced"
    );
    ensure!(
        is_trace || (arguments.window.is_none() && arguments.files.is_empty() && !arguments.pace.is_given()),
        "--window, --file and the pace are for traces; {} is a benchmark and has parameters of its own",
        arguments.workload
    );
    let recorded = RecordedOptions { pacing: arguments.pace.pacing(), window_s: arguments.window, files: None };
    let program = source.program(&recorded, &arguments.files)?;
    let lab = &machines.lab;
    let files = lab.count(program.as_ref());
    let plans = plans(&arguments, lab, program.as_ref(), &files)?;
    let options = options(&arguments, &machines)?;
    let has_replicas = |planned: &&Planned| {
        let mut windows = planned.plan.files.iter().flat_map(|file| &file.windows);
        windows.any(|window| !window.replicas.is_empty())
    };
    if let Some(planned) = plans.iter().find(has_replicas) {
        context.say(format_args!("{}: replicas are not simulated, all reads go to the first copy", planned.name));
    }
    let total_bytes: u64 = total_bytes(&files) * plans.len() as u64;
    let bar = context.voice().bytes(total_bytes, "simulating");
    let all_done = AtomicU64::new(0);
    let outcomes: Vec<Result<Outcome>> = plans
        .par_iter()
        .map(|planned| {
            let nominal_s = match planned.path {
                Some(_) => arguments.window.unwrap_or(ProgramCountOptions::default().window_s),
                None => ProgramCountOptions::default().window_s,
            };
            let by_time = planned.path.is_some() && arguments.pace.trace_times && arguments.window.is_none();
            let borders = if by_time { Borders::Time } else { Borders::Phase };
            let placements = placements(&planned.plan, program.as_ref(), borders, nominal_s)?;
            let options = SimOptions { borders, ..options.clone() };
            let scenario = Scenario { system: &lab.system, program: program.as_ref(), files: &placements, options };
            let mut before = 0;
            let outcome = simulate(&scenario, &mut |progress| {
                bar.set(all_done.fetch_add(progress.bytes - before, Ordering::Relaxed) + progress.bytes - before);
                before = progress.bytes;
            });
            outcome.with_context(|| format!("simulating {}", planned.name))
        })
        .collect();
    drop(bar);
    let runs = plans.into_iter().zip(outcomes).map(|(planned, outcome)| {
        let predicted_mb_per_s = Some(planned.plan.predicted.total.mb_per_s).filter(|rate| rate.is_finite());
        Ok(SimulatedRun::new(planned.name, planned.path, predicted_mb_per_s, outcome?))
    });
    let simulation = Simulation {
        version: SIMULATION_VERSION,
        simulated: true,
        workload: arguments.workload.clone(),
        processes: program.processes(),
        nodes: program.nodes(),
        servers: machines.rows(&options),
        options: serde_json::to_value(&options).context("writing JSON")?,
        runs: runs.collect::<Result<Vec<_>>>()?,
    };
    finish(context, &simulation, arguments.output.as_deref())?;
    Ok(Verdict::Done)
}

fn finish(context: &Context, simulation: &Simulation, output: Option<&Path>) -> Result<()> {
    if let Some(path) = output {
        simulation.save(path)?;
    }
    if context.json {
        return context.object(&Printed { simulation });
    }
    context.line(show::text(simulation).trim_end())?;
    if let Some(path) = output {
        context.say(format_args!("wrote {}", path.display()));
    }
    Ok(())
}

/// A plan that is simulated, and whence it comes.
struct Planned {
    name: String,
    path: Option<PathBuf>,
    plan: Plan,
}

fn plans(
    arguments: &SimulateArgs,
    lab: &Lab,
    program: &dyn Program,
    files: &[stripewise_trace::FileAccess],
) -> Result<Vec<Planned>> {
    let mut planned = Vec::new();
    for path in &arguments.plans {
        let plan = Plan::load(path)?;
        let (has, wants) = (lab.cluster.servers.len(), plan.servers.len());
        ensure!(
            has == wants,
            "{}: planned for {}, but {has} are simulated; name the same ones with --servers",
            path.display(),
            counted(wants, "server", "servers")
        );
        let stem = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        planned.push(Planned { name: stem, path: Some(path.clone()), plan });
    }
    let policies: &[PolicyName] = match (&arguments.policies[..], planned.is_empty()) {
        ([], true) => &[PolicyName::Def],
        (named, _) => named,
    };
    let options = PlanOptions { seed: arguments.seed, ssd_room: arguments.ssd_room, ..PlanOptions::default() };
    let request = lab.request(program, files, options);
    for policy in policies {
        let plan = stripewise_planner::plan(*policy, &request).with_context(|| format!("planning with {policy}"))?;
        planned.push(Planned { name: policy.to_string(), path: None, plan });
    }
    Ok(planned)
}

fn options(arguments: &SimulateArgs, machines: &Machines) -> Result<SimOptions> {
    let migration = match arguments.migrate {
        Migrate::Free => {
            ensure!(arguments.migrate_rate.is_none(), "--migrate-rate needs --migrate copied");
            Migration::Free
        }
        Migrate::Copied => Migration::Copied {
            bandwidth_bytes_per_s: arguments.migrate_rate.map(|rate| rate.0 as f64),
            chunk: ByteCount(CHUNK_BYTES),
        },
    };
    let order = match arguments.order {
        Some(Order::Network) => StationOrder::Network,
        Some(Order::Testbed) => StationOrder::DeviceFirst,
        None if arguments.servers.is_empty() => StationOrder::DeviceFirst,
        None => StationOrder::Network,
    };
    if order == StationOrder::DeviceFirst && arguments.client_link.is_some() {
        bail!("--client-link: the testbed has no client links; add --order network");
    }
    Ok(SimOptions {
        seed: arguments.seed,
        slice_s: SLICE_S,
        borders: Borders::Phase,
        migration,
        order,
        detail: machines.detail(arguments)?,
    })
}

fn total_bytes(files: &[stripewise_trace::FileAccess]) -> u64 {
    let regions = |file: &stripewise_trace::FileAccess| -> u64 {
        let counts = file.windows.iter().flat_map(|window| &window.regions).flat_map(|region| &region.counts);
        counts.map(|(class, count)| file.classes[usize::from(class.0)].request_bytes * count).sum()
    };
    files.iter().map(regions).sum()
}

/// Where the plan puts each file of the program.
fn placements(plan: &Plan, program: &dyn Program, borders: Borders, window_s: f64) -> Result<Vec<FilePlacements>> {
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
fn planned_file<'p>(plan: &'p Plan, program: &dyn Program, shape: &FileShape) -> Result<&'p PlannedFile> {
    let found = plan.lookup(&shape.path, &plan.key.application, program.processes());
    let is_only = plan.files.len() == 1 && program.files().len() == 1;
    match found {
        Some(found) if found.name != NameMatch::None || is_only => Ok(found.file),
        _ => bail!(
            "the plan says nothing of {}; it plans {}",
            shape.path,
            plan.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>().join(", ")
        ),
    }
}
