//! `stripewise reproduce`: the papers' experiments, published figures next to ours.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use stripewise::table::Table;
use stripewise_lab::reproduce::{Experiment, ReproduceOptions, Results, TestbedKind, experiments, reproduce, text};

/// Run the papers' experiments and compare with what they published
///
/// Simulated unless stated otherwise; every experiment says so. The same seed gives the same figures on every machine.
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
    #[arg(long, value_enum, default_value_t = Testbed::Simulated)]
    testbed: Testbed,

    /// Seed of everything random
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// A directory that gets ID.csv, ID.json and ID.svg of every experiment
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// With --all: a directory that gets reproduction.md, a page for each paper and their pictures
    #[arg(long, value_name = "DIR", requires = "all")]
    document: Option<PathBuf>,

    /// With --document: take the results from a directory that --output wrote, run nothing
    #[arg(long, value_name = "DIR", requires = "document")]
    from: Option<PathBuf>,

    /// With --document: also show the results that --testbed emulated and --output wrote into this directory
    #[arg(long, value_name = "DIR", requires = "document")]
    emulated_from: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Testbed {
    /// Modelled servers in a discrete-event simulation, at the papers' full size
    Simulated,
    /// Real processes and real bytes on emulated servers, at a reduced size
    Emulated,
}

impl From<Testbed> for TestbedKind {
    fn from(testbed: Testbed) -> Self {
        match testbed {
            Testbed::Simulated => Self::Simulated,
            Testbed::Emulated => Self::Emulated,
        }
    }
}

impl From<ReproduceArgs> for ReproduceOptions {
    fn from(arguments: ReproduceArgs) -> Self {
        let ReproduceArgs { ids, list: _, all, testbed, seed, output, document, from, emulated_from } = arguments;
        Self { ids, all, testbed: testbed.into(), seed, output, document, from, emulated_from }
    }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Listed {
    /// In the order in which they are run.
    experiments: Vec<ListedExperiment>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct ListedExperiment {
    /// As the command takes it.
    id: &'static str,
    /// Short name of the paper.
    paper: &'static str,
    /// Figure, table or section of the paper.
    place: &'static str,
    /// What the experiment shows.
    title: &'static str,
    /// Where the experiment can run.
    testbeds: &'static [TestbedKind],
}

pub(crate) fn run(context: &Context, arguments: ReproduceArgs) -> Result<Verdict> {
    if arguments.list {
        return list(context);
    }
    let is_stored = arguments.document.is_some() && arguments.from.is_some();
    let all = reproduce(context.voice(), &arguments.into())?;
    if is_stored {
        return Ok(Verdict::Done);
    }
    if context.json {
        context.object(&Results::of(&all))?;
    } else {
        for (number, done) in all.iter().enumerate() {
            let gap = if number > 0 { "\n\n" } else { "" };
            context.bytes(format!("{gap}{}", text(done)).as_bytes())?;
        }
    }
    Ok(Verdict::Done)
}

fn list(context: &Context) -> Result<Verdict> {
    if context.json {
        let listed = experiments().map(|experiment| {
            let Experiment { id, paper, place, title, testbeds, .. } = *experiment;
            ListedExperiment { id, paper, place, title, testbeds }
        });
        context.object(&Listed { experiments: listed.collect() })?;
        return Ok(Verdict::Done);
    }
    let mut table = Table::new(&["id", "paper", "figure", "what it shows", "testbeds"]);
    for Experiment { id, paper, place, title, testbeds, .. } in experiments() {
        let testbeds: Vec<String> = testbeds.iter().map(ToString::to_string).collect();
        table.row([id, paper, place, title, testbeds.join(" ").as_str()]);
    }
    context.line(table)?;
    Ok(Verdict::Done)
}
