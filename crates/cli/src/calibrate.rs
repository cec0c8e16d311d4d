//! `stripewise calibrate`: measure every server and the network, fit lines, write the profile.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use crate::seconds;
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stripewise::Interrupt;
use stripewise::calibrate::{
    MIN_FILE_BYTES, Options, SERVER_LINES, Verification, VerifyOptions, calibrate, name_of, verify,
};
use stripewise::made_from::PlanFiles;
use stripewise::messages::shown;
use stripewise::table::Table;
use stripewise_layout::figures::{self, counted, duration};
use stripewise_layout::{ByteCount, Cluster, Order, ParseSizeError, RequestKind, WriteClass};
use stripewise_model::{NetworkSource, Profile};
use stripewise_planner::within;
use stripewise_store::server::is_by_agent;

/// Measure startup and transfer times of every server and the network; write the profile
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise calibrate
  stripewise calibrate --quick -o /tmp/profile.json
  stripewise calibrate --verify plan.json --seconds 10
  stripewise calibrate --network-e 300us --network-t 8.3ns   # directories of remote file systems")]
pub(crate) struct CalibrateArgs {
    /// Where the profile goes [default: profile.json next to the cluster file]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Measure less: a smaller file, a few seconds for each directory
    #[arg(long)]
    quick: bool,

    /// Write no profile; issue the plan's own requests on the servers and compare with what it predicts. Nothing is moved
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["output", "network_e", "network_t"])]
    verify: Option<PathBuf>,

    /// With --verify: the trace, where it is not where the plan was made from it; once for each of several
    #[arg(long = "trace", value_name = "TRACE", requires = "verify")]
    traces: Vec<PathBuf>,

    /// With --verify: the profile, where it is not where the plan was made from it
    #[arg(long, value_name = "FILE", requires = "verify")]
    profile: Option<PathBuf>,

    /// Seconds for all directories together; each gets its share, and at least one round [default: 20 for each, --quick 4]; with --verify for reads and for writes [default: 10, --quick 2]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,

    /// Size of the scratch file in each directory; random accesses seek within it [default: 256MiB, --quick 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    file_size: Option<ByteCount>,

    /// Time to set up one network connection (e), such as 300us; measured over emulated links, zero for directories
    #[arg(long, value_name = "TIME", value_parser = seconds::parse_or_zero)]
    network_e: Option<f64>,

    /// Network time for each byte (t), such as 8.3ns; measured over emulated links, zero for directories
    #[arg(long, value_name = "TIME", value_parser = seconds::parse_or_zero)]
    network_t: Option<f64>,
}

fn file_size(text: &str) -> Result<ByteCount, String> {
    let size: ByteCount = text.parse().map_err(|error: ParseSizeError| error.to_string())?;
    match size.0 {
        bytes if bytes < MIN_FILE_BYTES => Err(format!(
            "requests of all sizes need at least {} to be at different places; use that or more",
            figures::bytes(MIN_FILE_BYTES)
        )),
        _ => Ok(size),
    }
}

pub(crate) fn run(context: &Context, arguments: CalibrateArgs) -> Result<Verdict> {
    if let Some(plan) = &arguments.verify {
        let interrupt = watched(&context.session.cluster()?)?;
        return run_verify(context, arguments.verify_options(plan, interrupt));
    }
    let cluster = context.session.cluster()?;
    let interrupt = watched(&cluster)?;
    let output = arguments.output.clone().unwrap_or_else(|| context.session.profile_path());
    let calibrated = calibrate(&cluster, &arguments.options(&cluster, interrupt), &output, context.voice())?;
    for note in &calibrated.notes {
        context.say(note);
    }
    if context.json {
        context.object(&calibrated)?;
    } else {
        print(context, &calibrated.profile)?;
    }
    context.say(format!("wrote {}", shown(&output)));
    Ok(Verdict::Done)
}

/// Ctrl-C ends the command at once, except where scratch objects have to be removed: those of pools outlive it.
fn watched(cluster: &Cluster) -> Result<Interrupt> {
    let has_pools = cluster.servers.iter().any(|server| is_by_agent(&server.url));
    if has_pools { interrupt::watch() } else { Ok(Interrupt::never()) }
}

fn run_verify(context: &Context, options: VerifyOptions) -> Result<Verdict> {
    let verification = verify(&context.session, &options)?;
    for caveat in &verification.caveats {
        context.say(caveat);
    }
    if context.json {
        context.object(&verification)?;
    } else {
        print_verification(context, &verification)?;
    }
    if verification.is_met {
        return Ok(Verdict::Done);
    }
    context.say(
        "the servers do not do what the plan predicts: calibrate again, then plan again, before anything is moved",
    );
    Ok(Verdict::Finding)
}

impl CalibrateArgs {
    fn verify_options(&self, plan: &Path, interrupt: Interrupt) -> VerifyOptions {
        let options = if self.quick { Options::quick() } else { Options::thorough() };
        let seconds = self.seconds.unwrap_or(if self.quick { 2 } else { 10 });
        VerifyOptions {
            files: PlanFiles { plan: plan.to_owned(), traces: self.traces.clone(), profile: self.profile.clone() },
            duration: Duration::from_secs(seconds.into()),
            file_bytes: self.file_size.map_or(options.file_bytes, |size| size.0),
            patience: options.directory_budget,
            interrupt,
        }
    }

    fn options(&self, cluster: &Cluster, interrupt: Interrupt) -> Options {
        let mut options = if self.quick { Options::quick() } else { Options::thorough() };
        if let Some(seconds) = self.seconds {
            options = options.within(Duration::from_secs(seconds.into()), cluster);
        }
        options.file_bytes = self.file_size.map_or(options.file_bytes, |size| size.0);
        options.interrupt = interrupt;
        options.network_e_s = self.network_e;
        options.network_t_s_per_byte = self.network_t;
        options
    }
}

/// As lines are measured, then those of the other classes of writes.
fn server_lines() -> impl Iterator<Item = (RequestKind, Order)> {
    let classes = [WriteClass::Buffered, WriteClass::Synchronous].map(RequestKind::Write);
    let orders = [Order::Sequential, Order::Random];
    let others = classes.into_iter().flat_map(move |kind| orders.map(|order| (kind, order)));
    SERVER_LINES.into_iter().map(|(direction, order)| (direction.into(), order)).chain(others)
}

/// Direct writes are plain writes.
fn access_name(kind: RequestKind, order: Order) -> String {
    let class = match kind {
        RequestKind::Read | RequestKind::Write(WriteClass::Direct) => String::new(),
        RequestKind::Write(class) => format!("{class} "),
    };
    format!("{class}{} {}", name_of(order), name_of(kind.direction()))
}

fn print(context: &Context, profile: &Profile) -> Result<()> {
    let mut table = Table::new(&["server", "class", "access", ">startup", ">MB/s", ">R2", ">spread", ">samples"]);
    for server in &profile.servers {
        for (kind, order) in server_lines().filter(|(kind, _)| server.has_own_line(*kind)) {
            let line = server.line(kind, order);
            table.row([
                server.name.clone(),
                server.class.to_string(),
                access_name(kind, order),
                duration(line.alpha_s),
                megabytes_per_s(line.beta_s_per_byte),
                format!("{:.4}", line.r2),
                format!("{:.1} %", line.spread * 100.0),
                line.samples.to_string(),
            ]);
        }
    }
    context.line(table)?;
    let network = &profile.network;
    let source = match network.source {
        NetworkSource::Measured => "measured over the emulated links",
        NetworkSource::Given => "as given",
        NetworkSource::Local => "no network: all servers are directories of this host",
    };
    context.line(format!(
        "network: {} for each connection, {} MB/s ({source})",
        duration(network.e_s),
        megabytes_per_s(network.t_s_per_byte)
    ))
}

fn print_verification(context: &Context, verification: &Verification) -> Result<()> {
    let Verification { plan, start_s, end_s, processes, .. } = verification;
    let plan = shown(plan);
    context.line(format!(
        "{plan}, window {} to {}: {}",
        duration(*start_s),
        duration(*end_s),
        counted(*processes as usize, "process", "processes")
    ))?;
    let mut table = Table::new(&["access", "server", ">requests", ">predicted", ">MB/s", ">of it", ">mean", ">busy"]);
    for part in &verification.directions {
        table.row([
            name_of(part.direction),
            "all".to_owned(),
            part.requests.to_string(),
            format!("{:.1} {}", part.predicted_mb_per_s, within(part.predicted_spread)),
            format!("{:.1}", part.measured_mb_per_s),
            format!("{:.0} %", part.ratio * 100.0),
            String::new(),
            String::new(),
        ]);
        for server in &part.servers {
            table.row([
                String::new(),
                server.name.clone(),
                server.sub_requests.to_string(),
                String::new(),
                format!("{:.1}", server.mb_per_s),
                String::new(),
                server.mean_s.map_or_else(String::new, duration),
                format!("{:.0} %", server.busy * 100.0),
            ]);
        }
    }
    context.line(table)
}

fn megabytes_per_s(seconds_per_byte: f64) -> String {
    if seconds_per_byte > 0.0 { format!("{:.1}", 1e-6 / seconds_per_byte) } else { "unlimited".to_owned() }
}
