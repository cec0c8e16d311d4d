//! `stripewise demo`: the whole main job on an emulated testbed, with the commands that a user would type.
//!
//! Makes a cluster of emulated disks and SSDs, calibrates it, runs an MPI program of many ranks on a shared file, traces it once
//! for each request size, plans with every policy, places the data by each plan and runs the same program redirected. Every
//! step is a `stripewise` command in a process of its own, printed before it runs. The program verifies every byte that it reads.
//! A run in which the machine and not the emulated devices set the pace is repeated once, and then reported as `host_bound`.
//! Last comes the [`live`] part.

pub(crate) mod live;
mod table;
pub(crate) mod testbed;

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stripewise_layout::{ByteCount, Direction, output};
use stripewise_planner::{Plan, PolicyName, Prediction};
use stripewise_report::results::{LiveResult, RESULTS_VERSION, Results, RunResult};
use table::Measured;
use testbed::Testbed;

/// A host-bound run is repeated once, unless the demo would then take longer than this by the time of its runs so far.
const REPEAT_WITHIN_S: f64 = 225.0;
/// What of that is left for the live part, about as long as it takes by default.
const LIVE_S: f64 = 25.0;

/// Do the main job on an emulated testbed and show what each policy gains
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise demo
  stripewise demo --request 1MiB --policy def,h2dp,opt --out my-demo")]
pub(crate) struct DemoArgs {
    /// Where report.html and results.json go
    #[arg(long, value_name = "DIR", default_value = "demo-out")]
    out: PathBuf,

    /// The emulated servers
    #[arg(long, value_name = "COUNTxDEVICE,...", default_value = "12xhdd-7200,4xsata-ssd-2012")]
    emulated: String,

    /// The link in front of each server
    #[arg(long, value_name = "LINK", default_value = "gigabit")]
    link: String,

    /// Size of the shared file
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    size: ByteCount,

    /// The unit of placement
    #[arg(long, value_name = "SIZE", default_value = "4MiB")]
    region: ByteCount,

    /// Ranks of the MPI program
    #[arg(long, value_name = "N", default_value_t = 32)]
    ranks: u32,

    /// Request sizes
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', default_value = "64KiB,256KiB,1MiB,4MiB")]
    request: Vec<ByteCount>,

    /// Policies; the first is what the others are compared with
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "def,padp,psa,h2dp,opt")]
    policy: Vec<PolicyName>,

    /// About how long one operation should take, in seconds; policies differ around it
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds: f64,

    /// About how long the live part's program should take until its hot set changes, in seconds; 0 leaves the live part out
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, allow_negative_numbers = true)]
    live: f64,

    /// Seed of regions, requests and random placements
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// When and how often the program runs on a placed file.
struct Repeats<'a> {
    /// Host-bound runs are repeated unless the whole would then take longer than this.
    host_bound_within_s: f64,
    of: &'a dyn Fn(PolicyName) -> usize,
}

/// [`Results`] without the version, which every object has of its own.
#[derive(Serialize)]
struct Shown<'a> {
    emulated: bool,
    runs: &'a [RunResult],
    profile: &'a serde_json::Value,
    cluster: &'a serde_json::Value,
    live: &'a Option<LiveResult>,
}

impl<'a> Shown<'a> {
    fn of(results: &'a Results) -> Self {
        let Results { version: _, emulated, runs, profile, cluster, live } = results;
        Self { emulated: *emulated, runs, profile, cluster, live }
    }
}

pub(crate) fn run(context: &Context, arguments: DemoArgs) -> Result<Verdict> {
    let started = Instant::now();
    ensure!(
        !arguments.policy.is_empty() && !arguments.request.is_empty(),
        "name at least one policy and one request size"
    );
    live::check(&arguments)?;
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot make the directory {}", arguments.out.display()))?;
    let is_live = arguments.live > 0.0;
    let host_bound_within_s = if is_live { REPEAT_WITHIN_S - LIVE_S } else { REPEAT_WITHIN_S };
    let Measurements { testbed, mut results, mut inputs } =
        measure(&arguments, &Repeats { host_bound_within_s, of: &|_| 1 })?;
    if is_live {
        results.live = Some(live::run(&testbed, &arguments, started + Duration::from_secs_f64(REPEAT_WITHIN_S))?);
    }
    let path = arguments.out.join("results.json");
    output::write(&path, serde_json::to_string_pretty(&results)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    let report = arguments.out.join("report.html");
    inputs.push(testbed.profile_path());
    testbed.report(&inputs, &path, &report)?;
    if context.json {
        context.object(&Shown::of(&results))?;
    } else {
        context.line(table::table(&results.runs))?;
        if let Some(live) = &results.live {
            context.line(live::text(live))?;
        }
        context.line(format!("{} and {}", report.display(), path.display()))?;
    }
    context.say(format!("took {:.0} s", started.elapsed().as_secs_f64()));
    let is_live_good = |live: &LiveResult| live.runs.iter().all(|run| run.verified && run.failed_moves == 0);
    let is_good = results.runs.iter().all(|run| run.verified) && results.live.as_ref().is_none_or(is_live_good);
    Ok(if is_good { Verdict::Done } else { Verdict::Finding })
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
    let arguments = DemoArgs {
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
    let measured = measure(&arguments, &Repeats { host_bound_within_s: f64::INFINITY, of: repeats })?;
    Ok(measured.results.runs.into_iter().filter(|run| run.op == Direction::Read).collect())
}

/// What was measured, and the files that a report shows of it.
struct Measurements {
    testbed: Testbed,
    results: Results,
    inputs: Vec<PathBuf>,
}

/// Traces, plans and runs every request size with every policy.
fn measure(arguments: &DemoArgs, repeats: &Repeats<'_>) -> Result<Measurements> {
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
    for (number, request) in arguments.request.iter().enumerate() {
        eprintln!("\n-- requests of {request} ({} of {})", number + 1, arguments.request.len());
        let requests = testbed.requests_per_rank(arguments, *request)?;
        let trace = testbed.trace(arguments, *request, requests)?;
        for policy in &arguments.policy {
            let plan = testbed.plan(&trace, *policy, *request, arguments.seed)?;
            let done = results.runs.len() as f64 / (arguments.request.len() * arguments.policy.len() * 2) as f64;
            let elapsed_s = started.elapsed().as_secs_f64();
            // The whole demo at the pace so far, with some room for the repeated run itself.
            let may_repeat = elapsed_s / done.max(0.1) < repeats.host_bound_within_s;
            for _ in 0..(repeats.of)(*policy) {
                results.runs.extend(one_plan(&testbed, arguments, (*request, requests), *policy, &plan, may_repeat)?);
            }
            inputs.extend((number == shown).then_some(plan));
        }
        inputs.extend((number == shown).then_some(trace));
    }
    Ok(Measurements { testbed, results, inputs })
}

/// Places a fresh copy of the file by the plan and runs the program on it, writing and then reading.
fn one_plan(
    testbed: &Testbed,
    arguments: &DemoArgs,
    (request, requests): (ByteCount, u64),
    policy: PolicyName,
    plan_path: &Path,
    may_repeat: bool,
) -> Result<Vec<RunResult>> {
    let plan = Plan::load(plan_path)?;
    testbed.place(plan_path)?;
    let mut measured = testbed.measure(arguments, request, requests)?;
    if may_repeat && measured.iter().any(|run| run.host_bound) {
        eprintln!("   the machine could not keep up; once more");
        measured = testbed.measure(arguments, request, requests)?;
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
        bytes: run.bytes,
        verified: run.verified,
        host_bound: run.host_bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_results_json_without_its_version() {
        let run = stripewise_report::results::samples::run("def", Direction::Read, 65536, 100.0);
        let results = Results {
            version: RESULTS_VERSION,
            emulated: true,
            runs: vec![run],
            profile: serde_json::json!({"a": 1}),
            cluster: serde_json::json!({}),
            live: Some(stripewise_report::results::samples::live()),
        };
        let mut written = serde_json::to_value(&results).unwrap();
        assert!(written.as_object_mut().unwrap().remove("version").is_some());
        assert_eq!(serde_json::to_value(Shown::of(&results)).unwrap(), written);
    }
}
