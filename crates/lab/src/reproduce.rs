//! The papers' experiments, each one entry of one table, published figures beside ours.
//!
//! An experiment of [`catalogue`] runs its cases in the simulator (or with real processes on emulated servers) and gives rows and panels;
//! text, CSV, JSON, pictures and the document are made from those in one place for all. To add one: write it into its paper's module
//! below and name it in that module's `EXPERIMENTS`.

mod catalogue;
mod cost_intelligent;
mod document;
#[cfg(test)]
mod dummy;
mod emulated;
mod experiment;
mod h2dp;
mod hot_set;
mod ibridge;
mod late;
mod model_check;
mod opt_cases;
mod opt_portfolio;
mod opt_search;
mod output;
mod padp;
mod plot;
mod readings;
mod rephased;
mod run_log;
mod script;
mod segment;
mod testbed;

use anyhow::{Context as _, Result, bail, ensure};
pub use experiment::{Experiment, TestbedKind};
pub use output::{Done, text};
use stripewise::Voice;

use experiment::Setting;
use output::DoneJson;
use rayon::prelude::*;
use run_log::RunLog;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What experiments found, as `--json` prints it.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Results<'a> {
    /// In the order in which they were run.
    experiments: Vec<DoneJson<'a>>,
    /// What a single experiment says besides. Of several each has its own, since they use the same names.
    #[serde(flatten)]
    details: serde_json::Map<String, serde_json::Value>,
}

impl<'a> Results<'a> {
    /// Of these experiments.
    pub fn of(all: &'a [Done]) -> Self {
        Self {
            experiments: all.iter().map(|done| DoneJson::of(done, all.len() > 1)).collect(),
            details: match all {
                [one] => one.findings.details.clone(),
                _ => serde_json::Map::new(),
            },
        }
    }
}

/// Which experiments are run, and where results go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReproduceOptions {
    /// The experiments; after `opt-search` its cases.
    pub ids: Vec<String>,
    /// All that the testbed can run, instead.
    pub all: bool,
    /// What the servers are.
    pub testbed: TestbedKind,
    /// Of everything random.
    pub seed: u64,
    /// A directory that gets ID.csv, ID.json and ID.svg of every experiment.
    pub output: Option<PathBuf>,
    /// A directory that gets reproduction.md and its pictures.
    pub document: Option<PathBuf>,
    /// With a document: take the results from this directory, run nothing.
    pub from: Option<PathBuf>,
    /// With a document: also show the emulated results of this directory.
    pub emulated_from: Option<PathBuf>,
}

/// Every experiment, in the order of the document.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    catalogue::all()
}

/// Runs experiments; returns what came out of each, nothing of stored results.
///
/// # Errors
/// When an experiment is unknown, cannot run on the testbed or fails, or results cannot be written.
pub fn reproduce(voice: &Voice, options: &ReproduceOptions) -> Result<Vec<Done>> {
    let chosen = choose(options)?;
    for directory in options.output.iter().chain(&options.document) {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    }
    if let (Some(directory), Some(results)) = (&options.document, &options.from) {
        document::write(directory, document::stored(results)?, options.emulated_from.as_deref())?;
        return Ok(Vec::new());
    }
    let progress = voice.cases(&options.testbed.to_string());
    let run_one = |(experiment, cases): &Chosen| -> Result<Done> {
        let Experiment { id, run, .. } = **experiment;
        let (testbed, seed) = (options.testbed, options.seed);
        let setting = Setting { testbed, seed, cases, voice, progress: &*progress, log: RunLog::default() };
        let mut findings = run(&setting).with_context(|| id.to_owned())?;
        let logged = setting.log.read();
        findings.scale = logged.scale;
        findings.notes.extend(logged.note());
        // What a run that was left out belongs to has no figure.
        findings.rows.retain(|row| testbed == TestbedKind::Simulated || row.ours.is_finite());
        let done = Done { experiment, testbed, seed, findings };
        if let Some(directory) = &options.output {
            write(directory, &done)?;
        }
        Ok(done)
    };
    let all: Vec<Done> = match options.testbed {
        TestbedKind::Simulated => chosen.par_iter().map(run_one).collect::<Result<_>>()?,
        TestbedKind::Emulated => chosen.iter().map(run_one).collect::<Result<_>>()?,
    };
    drop(progress);
    if let Some(directory) = &options.document {
        let sections = all.iter().map(document::Section::of).collect();
        document::write(directory, sections, options.emulated_from.as_deref())?;
    }
    Ok(all)
}

/// An experiment, and the cases that were named after it.
type Chosen = (&'static Experiment, Vec<String>);

/// The experiments that are asked for; with `--all` those that the testbed can run.
fn choose(options: &ReproduceOptions) -> Result<Vec<Chosen>> {
    let testbed = options.testbed;
    if options.all {
        let able = catalogue::all().filter(|experiment| experiment.testbeds.contains(&testbed));
        return Ok(able.map(|experiment| (experiment, Vec::new())).collect());
    }
    let mut chosen: Vec<Chosen> = Vec::new();
    for id in &options.ids {
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
    let json = serde_json::to_string_pretty(&stripewise::envelope::envelope("reproduce", &results))? + "\n";
    output::write_whole(&directory.join(format!("{id}.json")), &json)?;
    let picture = plot::picture(&done.findings.panels, done.experiment.title);
    if !picture.is_empty() {
        output::write_whole(&directory.join(format!("{id}.svg")), &picture)?;
    }
    Ok(())
}
