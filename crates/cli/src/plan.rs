//! `stripewise plan`: from a trace and a profile to a plan, or a table of what every policy is predicted to bring.

use crate::completions;
use crate::context::Context;
use crate::output::{self, Verdict};
use crate::seconds;
use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use stripewise::inputs::Selection;
use stripewise::messages::shown;
use stripewise::plan::{PlanningError, PlanningOptions, plan, plan_path, save_all};
use stripewise::shell::quoted_path;
use stripewise_layout::figures::duration;
use stripewise_layout::{ByteCount, Cluster};
use stripewise_model::StripePair;
use stripewise_planner::{
    Comparison, ComparisonRow, Online, Plan, PlanOptions, PolicyName, UnknownPolicy, comparison_text, plan_text,
};

/// Plan where the files of a traced program go
///
/// Prints the plan, by `opt` unless another policy is named. `--policy all` prints a table of predicted gains, the fastest plan first, and
/// recommends one. A plan says "leave it" where the gain is not worth the move.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise plan run.trace -o plan.json
  stripewise plan run.trace --policy all
  stripewise plan run.trace --ssd-room 2GiB --window 60s -o plan.json
  stripewise plan solver.trace viewer.trace -o plan.json")]
pub(crate) struct PlanArgs {
    /// Traces of any form that Stripewise reads; several are taken to run at the same time, all from their starts on
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    #[arg(long, default_value = PolicyName::DEFAULT.name(), help = policy_help(), add = completions::policies_or_all())]
    policy: Policies,

    /// The file to write; with --policy all a directory that gets POLICY.json for each
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The profile [default: profile.json next to the cluster file]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// Length of a window, in which one placement holds
    #[arg(long, value_name = "TIME", default_value = "600s", value_parser = seconds::parse)]
    window: f64,

    /// Plan only files whose path from the root begins so, as given or without links and `..`; may be given more than once
    #[arg(long = "file", value_name = "PREFIX")]
    files: Vec<PathBuf>,

    /// Size of the files' regions; smaller ones fit smaller SSDs and cost more bookkeeping [default: the cluster's]
    #[arg(long, value_name = "SIZE")]
    region: Option<ByteCount>,

    /// Refuse a trace of which records are missing or damaged
    #[arg(long)]
    strict: bool,

    /// Leave out smaller files, unless --file names them
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    least_size: ByteCount,

    /// Capacity of each SSD server [default: the cluster file's]
    #[arg(long, value_name = "SIZE")]
    ssd_room: Option<ByteCount>,

    /// Server that is to stay unused; may be given more than once
    #[arg(long, value_name = "SERVER", add = completions::servers())]
    exclude: Vec<String>,

    /// Step of stripe sizes
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    step: ByteCount,

    /// Seed of everything random
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Runs within which placing the data must be won back
    #[arg(long, value_name = "COUNT", default_value_t = 10.0)]
    worth_runs: f64,

    /// random: this stripe on every HDD and every SSD server
    #[arg(long, value_name = "H,S", value_parser = stripe_pair)]
    pair: Option<StripePair>,

    /// padp, psa, h2dp: no stripe smaller than this
    #[arg(long, value_name = "SIZE")]
    min_stripe: Option<ByteCount>,

    /// 2-d: servers in a group
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    group_servers: u32,

    /// segment: how unevenly stripes may be spread over the servers, most over mean less 1
    #[arg(long, value_name = "NUMBER", default_value_t = 0.2)]
    imbalance: f64,

    /// cost: plan replicas that take at most this much on all servers together
    #[arg(long, value_name = "SIZE")]
    replica_room: Option<ByteCount>,

    /// opt: end the search after this time with what it has
    #[arg(long, value_name = "TIME", value_parser = seconds::parse)]
    time_limit: Option<f64>,

    /// opt: plan every window from the ones before it only
    #[arg(long)]
    online: bool,

    /// opt: weight of a window relative to the next one, with --online
    #[arg(long, value_name = "NUMBER", default_value_t = Online::default().decay, requires = "online")]
    decay: f64,

    /// opt: take moves between windows to cost nothing
    #[arg(long, conflicts_with = "online")]
    free_moves: bool,

    /// H2DP: cost requests at their true offsets
    #[arg(long)]
    exact: bool,

    /// H2DP: rank regions by benefit per byte on SSD
    #[arg(long)]
    benefit_per_ssd_byte: bool,

    /// H2DP: a region must gain more than its move costs
    #[arg(long)]
    subtract_move_cost: bool,
}

#[derive(Clone, PartialEq, Debug)]
enum Policies {
    All,
    One(PolicyName),
}

impl FromStr for Policies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            name => name.parse().map(Self::One).map_err(|error: UnknownPolicy| format!("{error}, or all")),
        }
    }
}

fn policy_help() -> String {
    format!("{}; or all, to compare them", PolicyName::ALL.map(PolicyName::name).join(", "))
}

/// `64KiB,256KiB`.
fn stripe_pair(text: &str) -> Result<StripePair, String> {
    let (h, s) =
        text.split_once(',').ok_or_else(|| format!("`{text}` is not a pair; write for example 64KiB,256KiB"))?;
    let size = |text: &str| text.parse::<ByteCount>().map_err(|error| error.to_string());
    Ok(StripePair::new(size(h)?.0, size(s)?.0))
}

pub(crate) fn run(context: &Context, arguments: PlanArgs) -> Result<Verdict> {
    if let (Some(_), Policies::One(policy)) = (arguments.replica_room, &arguments.policy)
        && !policy.plans_replicas()
    {
        bail!("--replica-room: {policy} plans no replicas; plan with --policy cost, or --policy all to compare");
    }
    let options = options(&arguments);
    let PlanArgs { traces, profile, strict, policy, output, region, .. } = arguments;
    let selection = Selection { prefixes: arguments.files, least: arguments.least_size, window_s: arguments.window };
    let policies = match &policy {
        Policies::All => PolicyName::ALL.to_vec(),
        Policies::One(policy) => vec![*policy],
    };
    match (&output, &policy) {
        (Some(path), Policies::All) => check_plans_directory(path)?,
        (Some(path), Policies::One(_)) => output::check(path)?,
        (None, _) => {}
    }
    let planned =
        plan(&context.session, &PlanningOptions { traces, profile, selection, region, strict, policies, options })?;
    for remark in &planned.remarks {
        context.say(remark);
    }
    match policy {
        Policies::All => all(context, &planned.comparison, output.as_deref())?,
        Policies::One(_) => one(context, &planned.comparison.plans[0], &planned.cluster, output.as_deref())?,
    }
    Ok(Verdict::Done)
}

/// As [`save_all`] refuses it.
fn check_plans_directory(path: &Path) -> Result<()> {
    match path.is_file() {
        true => Err(PlanningError::NotDirectory { path: path.to_owned() }.into()),
        false => output::check_directory(path),
    }
}

fn options(arguments: &PlanArgs) -> PlanOptions {
    PlanOptions {
        step: arguments.step,
        seed: arguments.seed,
        benefit_per_ssd_byte: arguments.benefit_per_ssd_byte,
        subtract_move_cost: arguments.subtract_move_cost,
        exact: arguments.exact,
        ssd_room: arguments.ssd_room,
        worth_runs: arguments.worth_runs,
        exclude: arguments.exclude.clone(),
        pair: arguments.pair,
        min_stripe: arguments.min_stripe,
        group_servers: arguments.group_servers,
        imbalance: arguments.imbalance,
        replica_room: arguments.replica_room,
        time_limit_s: arguments.time_limit,
        online: arguments.online.then_some(Online { decay: arguments.decay }),
        free_moves: arguments.free_moves,
    }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct One<'a> {
    /// As in a plan file.
    plan: &'a Plan,
    /// File that was written, if one was named.
    output: Option<&'a Path>,
}

fn one(context: &Context, plan: &Plan, cluster: &Cluster, output: Option<&Path>) -> Result<()> {
    if let Some(path) = output {
        plan.save(path)?;
    }
    if context.json {
        return context.object(&One { plan, output });
    }
    let next = match (output, plan.verdict.apply) {
        _ if !plan.verdict.fits => "plan again once the servers have space for it, as the verdict says".to_owned(),
        (Some(path), true) => format!("stripewise apply {}", quoted_path(path)),
        (Some(path), false) => {
            format!("nothing to apply; stripewise explain {} says what limits the run", quoted_path(path))
        }
        (None, true) => "nothing is written: the same with -o plan.json keeps the plan, to be applied".to_owned(),
        (None, false) => "nothing to apply; --policy all compares the policies".to_owned(),
    };
    context.line(plan_text(plan, cluster, &next).trim_end())?;
    if let Some(path) = output {
        context.say(format_args!("wrote {}", shown(path)));
    }
    Ok(())
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct All {
    /// One for each policy, the shortest predicted time first.
    policies: Vec<ComparisonRow>,
    /// The policy whose plan saves most of those that are worth their move; `None`: the files are best left where they are.
    recommended: Option<PolicyName>,
    /// What several plans note, the profile's caveats among it.
    notes: Vec<String>,
}

fn all(context: &Context, comparison: &Comparison, output: Option<&Path>) -> Result<()> {
    if let Some(directory) = output {
        save_all(comparison, directory)?;
    }
    if context.json {
        let recommended = comparison.recommended().map(|plan| plan.policy);
        let notes = comparison.notes().into_iter().cloned().collect();
        return context.object(&All { policies: comparison.rows(), recommended, notes });
    }
    context.line(recommendation(comparison, output))?;
    context.line(comparison_text(comparison).trim_end())?;
    if let Some(directory) = output {
        context.say(format_args!("wrote a plan for each policy into {}", shown(directory)));
    }
    Ok(())
}

/// The lines that begin the comparison: what to do.
fn recommendation(comparison: &Comparison, output: Option<&Path>) -> String {
    let Some(plan) = comparison.recommended() else {
        let that_fits = if comparison.plans.iter().all(|plan| plan.verdict.fits) { "" } else { " that fits" };
        return format!(
            "recommended: leave the files where they are, since no plan{that_fits} is worth its move\nnext: nothing to apply"
        );
    };
    let policy = plan.policy;
    let next = match output {
        Some(directory) => format!("stripewise apply {}", quoted_path(&plan_path(directory, policy))),
        None => format!("plan again with `--policy {policy} -o FILE`"),
    };
    let (low_s, high_s) = plan.gain.total.saved_s(plan.predicted.total.time_s);
    let [saved, low, high] = [plan.verdict.saved_s, low_s, high_s].map(duration);
    format!("recommended: {policy}, predicted to save {saved} of each run ({low} to {high})\nnext: {next}")
}
