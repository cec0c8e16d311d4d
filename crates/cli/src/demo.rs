//! `stripewise demo`: the whole main job on an emulated testbed, with the commands that a user would type.

use crate::completions;
use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
use stripewise::messages::shown;
use stripewise_lab::demo::{DemoOptions, demo};
use stripewise_layout::ByteCount;
use stripewise_layout::figures::duration;
use stripewise_planner::PolicyName;
use stripewise_report::results::{LiveResult, Results, RunResult};

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
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
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
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "def,padp,psa,h2dp,opt", add = completions::policies())]
    policy: Vec<PolicyName>,

    /// About how long one operation should take, in seconds, by the devices' time and by the machine's
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds: f64,

    /// About how long the live part's program should take until its hot set changes, in seconds; 0 leaves the live part out
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, allow_negative_numbers = true)]
    live: f64,

    /// Seed of regions, requests and random placements
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl From<DemoArgs> for DemoOptions {
    fn from(arguments: DemoArgs) -> Self {
        let DemoArgs { out, emulated, link, size, region, ranks, request, policy, seconds, live, seed } = arguments;
        Self { out, emulated, link, size, region, ranks, request, policy, seconds, live, seed }
    }
}

/// [`Results`] without the version, which every object has of its own.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown<'a> {
    /// True when servers were emulated: the devices' times are those of models.
    emulated: bool,
    /// In the order in which they were made.
    runs: &'a [RunResult],
    /// The profile of the runs, as in a profile file.
    #[cfg_attr(feature = "schemas", schemars(with = "stripewise_model::Profile"))]
    profile: &'a serde_json::Value,
    /// The cluster of the runs, as in `cluster.toml`.
    #[cfg_attr(feature = "schemas", schemars(with = "stripewise_layout::Cluster"))]
    cluster: &'a serde_json::Value,
    /// Of a program whose hot set changes; null where it was left out.
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
    let found = demo(context.voice(), &arguments.into())?;
    if context.json {
        context.object(&Shown::of(&found.results))?;
    } else {
        for text in &found.texts {
            context.line(text)?;
        }
        context.line(format!("{} and {}", shown(&found.report_path), shown(&found.results_path)))?;
    }
    context.say(format!("took {}", duration(started.elapsed().as_secs_f64().round())));
    Ok(if found.is_good() { Verdict::Done } else { Verdict::Finding })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::Direction;
    use stripewise_report::results::RESULTS_VERSION;

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
