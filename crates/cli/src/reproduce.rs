//! `stripewise reproduce`: the papers' experiments, each one entry of one table, published figures beside ours.
//!
//! An experiment of [`catalogue`] runs its cases in the simulator (or with real processes on emulated servers) and gives rows and panels;
//! text, CSV, JSON, pictures and the document are made from those in one place for all. To add one: write it into its paper's module
//! below and name it in that module's `EXPERIMENTS`.

mod catalogue;
mod cost_intelligent;
mod document;
mod emulated;
mod experiment;
mod h2dp;
mod hot_set;
mod ibridge;
pub(crate) mod lab;
mod model_check;
mod opt_cases;
mod opt_portfolio;
mod opt_search;
mod output;
mod padp;
mod plot;
mod script;
mod segment;
mod testbed;

use crate::context::Context;
use crate::output::Verdict;
use crate::progress::CaseProgress;
use crate::table::Table;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use experiment::{Experiment, Setting, TestbedKind};
use output::{Done, DoneJson};
use rayon::prelude::*;
use serde::Serialize;
use std::path::{Path, PathBuf};
use testbed::RunLog;

/// Run the papers' experiments and compare with what they published
///
/// Simulated unless told otherwise; every experiment says so. The same seed gives the same figures on every machine.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise reproduce --list
  stripewise reproduce h2dp-fig5 h2dp-fig7
  stripewise reproduce h2dp-fig5 --json -o results
  stripewise reproduce h2dp-fig5 --testbed emulated -o emulated
  stripewise reproduce opt-search 5ms-256KiB-32-zipf
  stripewise reproduce --all --document docs")]
pub(crate) struct ReproduceArgs {
    /// The experiments, as --list names them; after opt-search its cases
    #[arg(value_name = "ID", required_unless_present_any = ["list", "all"])]
    ids: Vec<String>,

    /// List all experiments
    #[arg(long, conflicts_with_all = ["ids", "all"])]
    list: bool,

    /// Run all experiments
    #[arg(long, conflicts_with = "ids")]
    all: bool,

    /// What the servers are
    #[arg(long, value_enum, default_value_t = TestbedKind::Simulated)]
    testbed: TestbedKind,

    /// Seed of everything random
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// A directory that gets ID.csv, ID.json and ID.svg of every experiment
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// With --all: a directory that gets reproduction.md and its pictures
    #[arg(long, value_name = "DIR", requires = "all")]
    document: Option<PathBuf>,

    /// With --document: take the results from a directory that --output wrote, run nothing
    #[arg(long, value_name = "DIR", requires = "document")]
    from: Option<PathBuf>,

    /// With --document: also show the results that --testbed emulated and --output wrote into this directory
    #[arg(long, value_name = "DIR", requires = "document")]
    emulated_from: Option<PathBuf>,
}

#[derive(Serialize)]
struct Listed {
    experiments: Vec<ListedExperiment>,
}

#[derive(Serialize)]
struct ListedExperiment {
    id: &'static str,
    paper: &'static str,
    place: &'static str,
    title: &'static str,
    testbeds: &'static [TestbedKind],
}

#[derive(Serialize)]
struct Results<'a> {
    experiments: Vec<DoneJson<'a>>,
    /// What single experiments say besides.
    #[serde(flatten)]
    details: serde_json::Map<String, serde_json::Value>,
}

impl<'a> Results<'a> {
    fn of(all: &'a [Done]) -> Self {
        Self {
            experiments: all.iter().map(DoneJson::of).collect(),
            details: all.iter().flat_map(|done| done.findings.details.clone()).collect(),
        }
    }
}

pub(crate) fn run(context: &Context, arguments: ReproduceArgs) -> Result<Verdict> {
    if arguments.list {
        return list(context);
    }
    let chosen = choose(&arguments)?;
    for directory in arguments.output.iter().chain(&arguments.document) {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    }
    if let (Some(directory), Some(results)) = (&arguments.document, &arguments.from) {
        document::write(directory, document::stored(results)?, arguments.emulated_from.as_deref())?;
        return Ok(Verdict::Done);
    }
    let progress = CaseProgress::new(&arguments.testbed.to_string());
    let run_one = |(experiment, cases): &Chosen| -> Result<Done> {
        let Experiment { id, run, .. } = **experiment;
        let (testbed, seed) = (arguments.testbed, arguments.seed);
        let setting = Setting { testbed, seed, cases, progress: &progress, log: RunLog::default() };
        let mut findings = run(&setting).with_context(|| id.to_owned())?;
        let logged = setting.log.read();
        findings.scale = logged.scale;
        findings.notes.extend(logged.note());
        // What a run that was left out belongs to has no figure.
        findings.rows.retain(|row| testbed == TestbedKind::Simulated || row.ours.is_finite());
        let done = Done { experiment, testbed, seed, findings };
        if let Some(directory) = &arguments.output {
            write(directory, &done)?;
        }
        Ok(done)
    };
    let all: Vec<Done> = match arguments.testbed {
        TestbedKind::Simulated => chosen.par_iter().map(run_one).collect::<Result<_>>()?,
        TestbedKind::Emulated => chosen.iter().map(run_one).collect::<Result<_>>()?,
    };
    drop(progress);
    if let Some(directory) = &arguments.document {
        let sections = all.iter().map(document::Section::of).collect();
        document::write(directory, sections, arguments.emulated_from.as_deref())?;
    }
    if context.json {
        context.object(&Results::of(&all))?;
    } else {
        for (number, done) in all.iter().enumerate() {
            let gap = if number > 0 { "\n\n" } else { "" };
            context.bytes(format!("{gap}{}", output::text(done)).as_bytes())?;
        }
    }
    Ok(Verdict::Done)
}

/// An experiment, and the cases that were named after it.
type Chosen = (&'static Experiment, Vec<String>);

/// The experiments that are asked for; with `--all` those that the testbed can run.
fn choose(arguments: &ReproduceArgs) -> Result<Vec<Chosen>> {
    let testbed = arguments.testbed;
    if arguments.all {
        let able = catalogue::all().filter(|experiment| experiment.testbeds.contains(&testbed));
        return Ok(able.map(|experiment| (experiment, Vec::new())).collect());
    }
    let mut chosen: Vec<Chosen> = Vec::new();
    for id in &arguments.ids {
        match (catalogue::all().find(|experiment| experiment.id == id), chosen.last_mut()) {
            (Some(experiment), _) => {
                ensure!(
                    experiment.testbeds.contains(&testbed),
                    "{id} cannot run on the {testbed} testbed; leave --testbed out"
                );
                chosen.push((experiment, Vec::new()));
            }
            (None, Some((experiment, cases))) if experiment.id == opt_search::ID => cases.push(id.clone()),
            (None, _) => bail!("`{id}` is not an experiment; `stripewise reproduce --list` names them"),
        }
    }
    Ok(chosen)
}

fn write(directory: &Path, done: &Done) -> Result<()> {
    let id = done.experiment.id;
    output::write_whole(&directory.join(format!("{id}.csv")), &output::csv(done)?)?;
    let results = Results::of(std::slice::from_ref(done));
    let json = serde_json::to_string_pretty(&crate::context::envelope("reproduce", &results))? + "\n";
    output::write_whole(&directory.join(format!("{id}.json")), &json)?;
    let picture = plot::picture(&done.findings.panels, done.experiment.title);
    if !picture.is_empty() {
        output::write_whole(&directory.join(format!("{id}.svg")), &picture)?;
    }
    Ok(())
}

fn list(context: &Context) -> Result<Verdict> {
    if context.json {
        let listed = catalogue::all().map(|experiment| {
            let Experiment { id, paper, place, title, testbeds, .. } = *experiment;
            ListedExperiment { id, paper, place, title, testbeds }
        });
        context.object(&Listed { experiments: listed.collect() })?;
        return Ok(Verdict::Done);
    }
    let mut table = Table::new(&["id", "paper", "figure", "what it shows", "testbeds"]);
    for Experiment { id, paper, place, title, testbeds, .. } in catalogue::all() {
        let testbeds: Vec<String> = testbeds.iter().map(ToString::to_string).collect();
        table.row([id, paper, place, title, testbeds.join(" ").as_str()]);
    }
    context.line(table)?;
    Ok(Verdict::Done)
}
