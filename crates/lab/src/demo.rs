//! The whole main job on an emulated testbed, with the commands that a user would type.
//!
//! Makes a cluster of emulated disks and SSDs, calibrates it, runs an MPI program of many ranks on a shared file, traces it once
//! for each request size, plans with every policy, places the data by each plan and runs the same program redirected. Every
//! step is a `stripewise` command in a process of its own, printed before it runs. The program verifies every byte that it reads.
//! Devices are dilated by as much as each run needs so that they and not this machine set its pace (`dilation`); figures are in the devices'
//! own time. A run of which the machine set the pace nevertheless is repeated once with devices slower still, and then reported as `host_bound`.
//! Last comes the [`live`] part.

pub(crate) mod live;
mod table;
pub(crate) mod testbed;

use crate::dilation::{HOST_SPEED, HostCost, Pass};
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stripewise::Voice;
use stripewise_layout::{ByteCount, Direction, output};
use stripewise_planner::{MODEL_SPREAD, Plan, PolicyName, Prediction};
use stripewise_report::results::{LiveResult, RESULTS_VERSION, Results, RunResult};
use table::Measured;
use testbed::Testbed;

/// A host-bound run is repeated once, unless the demo would then take longer than this by the time of its runs so far.
const REPEAT_WITHIN_S: f64 = 225.0;
/// What of that is left for the live part, about as long as it takes by default.
const LIVE_S: f64 = 25.0;
/// About what all ranks of a run move that shows what the machine needs.
const TRIAL_BYTES: u64 = 256 << 20;

/// What the demo makes and measures.
#[derive(Clone, PartialEq, Debug)]
pub struct DemoOptions {
    /// Where report.html and results.json go.
    pub out: PathBuf,
    /// The emulated servers, as `init --emulated` takes them.
    pub emulated: String,
    /// The link in front of each server.
    pub link: String,
    /// Size of the shared file.
    pub size: ByteCount,
    /// The unit of placement.
    pub region: ByteCount,
    /// Ranks of the MPI program.
    pub ranks: u32,
    /// Request sizes.
    pub request: Vec<ByteCount>,
    /// The first is what the others are compared with.
    pub policy: Vec<PolicyName>,
    /// About how long one operation should take, by the devices' time and by the machine's.
    pub seconds: f64,
    /// About how long the live part's program should take until its hot set changes; 0 leaves the live part out.
    pub live: f64,
    /// Of regions, requests and random placements.
    pub seed: u64,
}

/// When and how often the program runs on a placed file.
struct Repeats<'a> {
    /// Host-bound runs are repeated unless the whole would then take longer than this.
    host_bound_within_s: f64,
    of: &'a dyn Fn(PolicyName) -> usize,
}

/// What the demo found, and where it stands.
#[derive(Debug)]
pub struct Demonstration {
    /// What was measured, as in the file.
    pub results: Results,
    /// Bandwidths of all runs, and of the live part, for a terminal.
    pub texts: Vec<String>,
    /// `results.json`.
    pub results_path: PathBuf,
    /// `report.html`.
    pub report_path: PathBuf,
}

impl Demonstration {
    /// Whether every byte that was read was right and no move failed.
    pub fn is_good(&self) -> bool {
        let is_live_good = |live: &LiveResult| live.runs.iter().all(|run| run.verified && run.failed_moves == 0);
        self.results.runs.iter().all(|run| run.verified) && self.results.live.as_ref().is_none_or(is_live_good)
    }
}

/// Does the main job on an emulated testbed; each step is shown on standard error before it runs.
///
/// # Errors
/// When the options ask for nothing that can be, or a step fails.
pub fn demo(voice: &Voice, options: &DemoOptions) -> Result<Demonstration> {
    let started = Instant::now();
    ensure!(!options.policy.is_empty() && !options.request.is_empty(), "name at least one policy and one request size");
    live::check(options)?;
    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make the directory {}", options.out.display()))?;
    let is_live = options.live > 0.0;
    let host_bound_within_s = if is_live { REPEAT_WITHIN_S - LIVE_S } else { REPEAT_WITHIN_S };
    let Measurements { testbed, mut results, mut inputs, cost } =
        measure(options, &Repeats { host_bound_within_s, of: &|_| 1 })?;
    if is_live {
        let until = started + Duration::from_secs_f64(REPEAT_WITHIN_S);
        results.live = Some(live::run((&testbed, &cost), options, voice, until)?);
    }
    let results_path = options.out.join("results.json");
    output::write(&results_path, serde_json::to_string_pretty(&results)? + "\n")
        .with_context(|| format!("cannot write {}", results_path.display()))?;
    let report_path = options.out.join("report.html");
    inputs.push(testbed.profile_path());
    testbed.report(&inputs, &results_path, &report_path)?;
    let texts = std::iter::once(table::table(&results.runs)).chain(results.live.as_ref().map(live::text)).collect();
    Ok(Demonstration { results, texts, results_path, report_path })
}

/// Read bandwidths of a Zipf-distributed program on emulated servers, with every policy and request size, as the demo measures them.
pub(crate) fn emulated_runs(
    emulated: &str,
    link: &str,
    (requests, policies): (&[ByteCount], &[PolicyName]),
    repeats: &dyn Fn(PolicyName) -> usize,
    ranks: u32,
    seed: u64,
) -> Result<Vec<RunResult>> {
    let options = DemoOptions {
        out: PathBuf::new(),
        emulated: emulated.to_owned(),
        link: link.to_owned(),
        size: ByteCount(1 << 30),
        region: ByteCount(4 << 20),
        ranks,
        request: requests.to_vec(),
        policy: policies.to_vec(),
        seconds: 1.5,
        live: 0.0,
        seed,
    };
    let measured = measure(&options, &Repeats { host_bound_within_s: f64::INFINITY, of: repeats })?;
    Ok(measured.results.runs.into_iter().filter(|run| run.op == Direction::Read).collect())
}

/// What was measured, and the files that a report shows of it.
struct Measurements {
    testbed: Testbed,
    results: Results,
    inputs: Vec<PathBuf>,
    cost: HostCost,
}

/// Traces, plans and runs every request size with every policy.
fn measure(arguments: &DemoOptions, repeats: &Repeats<'_>) -> Result<Measurements> {
    let started = Instant::now();
    let testbed = Testbed::build(arguments)?;
    let mut results = Results {
        version: RESULTS_VERSION,
        emulated: true,
        runs: Vec::new(),
        profile: serde_json::to_value(&testbed.profile)?,
        cluster: serde_json::to_value(&testbed.cluster)?,
        live: None,
    };
    // The report shows one trace with its plans in full, the middle one; the results of all.
    let shown = arguments.request.len() / 2;
    let mut inputs = Vec::new();
    let mut cost: Option<HostCost> = None;
    for (number, request) in arguments.request.iter().enumerate() {
        eprintln!("\n-- requests of {request} ({} of {})", number + 1, arguments.request.len());
        let requests = testbed.requests_per_rank(arguments, *request)?;
        let trace = testbed.trace(arguments, *request, requests)?;
        for policy in &arguments.policy {
            let plan = testbed.plan(&trace, *policy, *request, arguments.seed)?;
            let done = results.runs.len() as f64 / (arguments.request.len() * arguments.policy.len() * 2) as f64;
            let elapsed_s = started.elapsed().as_secs_f64();
            // The whole demo at the pace so far, with some space for the repeated run itself.
            let may_repeat = elapsed_s / done.max(0.1) < repeats.host_bound_within_s;
            for _ in 0..(repeats.of)(*policy) {
                let of_size = (*request, requests);
                results.runs.extend(one_plan(&testbed, arguments, of_size, (*policy, &plan), &mut cost, may_repeat)?);
            }
            inputs.extend((number == shown).then_some(plan));
        }
        inputs.extend((number == shown).then_some(trace));
    }
    let cost = cost.context("at least one plan was made")?;
    Ok(Measurements { testbed, results, inputs, cost })
}

/// What the machine needs for the smallest and the largest requests, on the file as it is placed now.
fn host_cost(testbed: &Testbed, arguments: &DemoOptions) -> Result<HostCost> {
    eprintln!("   what this machine does without the devices' time:");
    let sizes: BTreeSet<ByteCount> =
        arguments.request.iter().min().into_iter().chain(arguments.request.iter().max()).copied().collect();
    let mut runs = Vec::new();
    for size in &sizes {
        let requests = (TRIAL_BYTES / size.0 / u64::from(arguments.ranks)).clamp(2, 64);
        let measured = testbed.measure(arguments, (*size, requests), HOST_SPEED)?;
        ensure!(measured.iter().all(|run| run.verified), "the demo's program read other bytes than it wrote");
        runs.extend(measured.iter().map(|run| (run.request_bytes, run.bandwidth_mb_s / HOST_SPEED)));
    }
    Ok(HostCost::fit(&runs))
}

/// Places a fresh copy of the file by the plan and runs the program on it, writing and then reading.
fn one_plan(
    testbed: &Testbed,
    arguments: &DemoOptions,
    (request, requests): (ByteCount, u64),
    (policy, plan_path): (PolicyName, &Path),
    cost: &mut Option<HostCost>,
    may_repeat: bool,
) -> Result<Vec<RunResult>> {
    let plan = Plan::load(plan_path)?;
    testbed.place(plan_path)?;
    let cost = match cost {
        Some(cost) => cost,
        None => cost.insert(host_cost(testbed, arguments)?),
    };
    let ranks = arguments.ranks;
    let bytes = u64::from(ranks) * requests * request.0;
    let predicted = plan.predicted.read.iter().chain(&plan.predicted.write).map(|found| found.mb_per_s);
    let devices_s = predicted.map(|mb_s| bytes as f64 / 1e6 / mb_s).fold(f64::INFINITY, f64::min);
    let pass = Pass { ranks, request_bytes: request.0, requests, devices_s };
    let dilation = cost.dilation(&pass, arguments.seconds);
    let mut measured = testbed.measure(arguments, (request, requests), dilation)?;
    if measured.iter().any(|run| run.host_bound) {
        let slower = cost.raise(dilation);
        if may_repeat {
            eprintln!("   the machine could not keep up; once more with slower devices");
            let repeated = testbed.measure(arguments, (request, requests), slower)?;
            for (run, again) in measured.iter_mut().zip(repeated) {
                if run.host_bound {
                    *run = again;
                }
            }
        }
    }
    testbed.remove()?;
    if measured.is_empty() {
        bail!("the demo's program printed no result");
    }
    Ok(measured.into_iter().map(|run| with_prediction(run, policy, &plan.predicted)).collect())
}

fn with_prediction(run: Measured, policy: PolicyName, predicted: &Prediction) -> RunResult {
    let throughput = match run.op {
        Direction::Read => predicted.read,
        Direction::Write => predicted.write,
    };
    RunResult {
        policy: policy.to_string(),
        op: run.op,
        request_bytes: run.request_bytes,
        ranks: run.ranks,
        bandwidth_mb_s: run.bandwidth_mb_s,
        predicted_mb_s: throughput.map(|throughput| throughput.mb_per_s),
        predicted_spread: throughput.map_or(MODEL_SPREAD, |throughput| throughput.spread),
        bytes: run.bytes,
        verified: run.verified,
        host_bound: run.host_bound,
        dilation: run.dilation,
    }
}
