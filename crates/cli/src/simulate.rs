//! `stripewise simulate`: a recorded trace or a benchmark on modelled servers, under any plan or policy.

mod show;

use crate::completions;
use crate::context::Context;
use crate::output::Verdict;
use crate::seconds;
use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use stripewise::emulated::EmulatedServers;
use stripewise::messages::shown;
use stripewise::simulate::{self, SimulateOptions, simulate};
use stripewise_device::DiskOrder;
use stripewise_layout::ByteCount;
use stripewise_planner::PolicyName;
use stripewise_report::simulation::{Printed, Simulation};
use stripewise_sim::{Migration, StationOrder};
use stripewise_trace::Pacing;

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
    #[arg(long = "policy", value_name = "NAME", value_delimiter = ',', add = completions::policies())]
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

    /// Of a trace, only the requests on this file, or on files whose paths begin so; may be given several times
    #[arg(long = "file", value_name = "PREFIX")]
    files: Vec<PathBuf>,

    /// Split a trace into phases of this length, at which all processes meet and windows of plans begin
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

    /// Capacity of each SSD for policies [default: the servers' capacities]
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
impl SimulateArgs {
    fn options(&self) -> Result<SimulateOptions> {
        let migration = match self.migrate {
            Migrate::Free => {
                ensure!(self.migrate_rate.is_none(), "--migrate-rate needs --migrate copied");
                Migration::Free
            }
            Migrate::Copied => Migration::Copied {
                bandwidth_bytes_per_s: self.migrate_rate.map(|rate| rate.0 as f64),
                chunk: ByteCount(CHUNK_BYTES),
            },
        };
        Ok(SimulateOptions {
            workload: self.workload.clone(),
            plans: self.plans.clone(),
            policies: self.policies.clone(),
            servers: self.servers.clone(),
            link: self.link.clone(),
            region: self.region,
            client_link: self.client_link.clone(),
            order: self.order.map(|order| match order {
                Order::Network => StationOrder::Network,
                Order::Testbed => StationOrder::DeviceFirst,
            }),
            processes: self.processes,
            pacing: self.pace.is_given().then(|| self.pace.pacing()),
            files: self.files.clone(),
            window_s: self.window,
            disks: match self.disk {
                Disks::Mean => simulate::Disks::Mean,
                Disks::Mechanical => simulate::Disks::Mechanical(self.disk_order.into()),
            },
            ssds: match self.ssd {
                Ssds::Mean => simulate::Ssds::Mean,
                Ssds::Parts => simulate::Ssds::Parts,
            },
            cache: self.cache,
            migration,
            ssd_capacity: self.ssd_room,
            seed: self.seed,
        })
    }
}

pub(crate) fn run(context: &Context, arguments: SimulateArgs) -> Result<Verdict> {
    if let Some(path) = &arguments.output {
        crate::output::check(path)?;
    }
    let simulated = simulate(&context.session, &arguments.options()?)?;
    let simulation = simulated.as_written(arguments.workload).context("writing JSON")?;
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
        context.say(format_args!("wrote {}", shown(path)));
    }
    Ok(())
}
