//! `stripewise advise`: from the logs of a site's jobs to layouts that the site can set.

mod page;

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use stripewise::advise::{Advice, AdviseOptions, Finding, Moving, Weight, advise};
use stripewise::export;
use stripewise::messages::printable;
use stripewise::messages::shown;
use stripewise_layout::figures::{bytes, counted, duration};
use stripewise_layout::{ByteCount, output};
use stripewise_planner::native::Export;

/// Advise from a job's logs how its files should lie on the site's file system
///
/// Reads Darshan logs, with DXT or counters alone, and traces; runs nothing and moves nothing. Says whether to leave the files or how to lay them out,
/// what that is predicted to gain and why, what it costs, and the commands that do it; then what else the logs show. Exit status 1: nothing to gain.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise site example --fs lustre > site.toml
  stripewise advise job.darshan --site site.toml
  stripewise advise job.darshan --site site.toml -o layout && sh layout/layout.sh
  stripewise advise job.darshan --site site.toml --html advice.html
  stripewise advise run.trace --site site.toml --file /lustre/project")]
pub(crate) struct AdviseArgs {
    /// Darshan logs, or traces of any form that Stripewise reads; several are taken to run at the same time
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,

    /// The site's description (`stripewise site example` prints one to start from)
    #[arg(long, value_name = "FILE", default_value = "site.toml")]
    site: PathBuf,

    /// Directory that gets the script that sets the layouts
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// File that gets the advice as a report with pictures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Lay out only files whose path from the root begins so, as given or without links and `..`; may be given more than once [default: those of the site's file system]
    #[arg(long = "file", value_name = "PREFIX")]
    files: Vec<PathBuf>,

    /// Leave out smaller files, unless --file names them
    #[arg(long, value_name = "SIZE", default_value_t = AdviseOptions::MIN_SIZE)]
    least_size: ByteCount,

    /// Lay out so many files at most, those with the most bytes first
    #[arg(long, value_name = "COUNT", default_value_t = AdviseOptions::MAX_FILES)]
    max_files: usize,

    /// Runs within which moving the data must be won back
    #[arg(long, value_name = "COUNT", default_value_t = AdviseOptions::WORTH_RUNS)]
    worth_runs: f64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown<'a> {
    #[serde(flatten)]
    advice: &'a Advice,
    /// The script that was written, if a directory was named.
    script_file: Option<&'a Path>,
    /// The report that was written, if one was asked for.
    html_file: Option<&'a Path>,
}

pub(crate) fn run(context: &Context, arguments: AdviseArgs) -> Result<Verdict> {
    let AdviseArgs { logs, site, output: directory, html, files, least_size, max_files, worth_runs } = arguments;
    if let Some(path) = &html {
        crate::output::check(path)?;
    }
    let options = AdviseOptions { logs, site, prefixes: files, least: least_size, max_files, worth_runs };
    let mut advice = advise(&context.session, &options)?;
    let written = match (&directory, &advice.export) {
        (Some(directory), Some(exported)) if advice.change => Some(export::write(exported, directory)?),
        _ => None,
    };
    if let Some(directory) = directory.filter(|_| written.is_none()) {
        advice.remarks.push(not_written(&directory));
    }
    if let Some(path) = &html {
        let report = stripewise_report::render(&page::material(&advice, &options, written.as_deref())?)?;
        output::write(path, &report).with_context(|| format!("cannot write {}", shown(path)))?;
    }
    if context.json {
        let (script_file, html_file) = (written.as_deref(), html.as_deref());
        context.object(&Shown { advice: &advice, script_file, html_file })?;
    } else {
        for remark in advice.logs.iter().flat_map(|log| &log.missing).chain(&advice.remarks) {
            context.say(remark);
        }
        context.line(text(&advice, written.as_deref()).trim_end())?;
    }
    Ok(if advice.change { Verdict::Done } else { Verdict::Finding })
}

/// What is said of a directory that gets no script.
fn not_written(directory: &Path) -> String {
    let old = directory.join(export::SCRIPT_FILE);
    match old.exists() {
        true => {
            format!("no script is written: {} is of an earlier call and does not belong to this answer", shown(&old))
        }
        false => format!("no script is written into {}", shown(directory)),
    }
}

/// After how many runs moving has paid; empty where it never does.
fn won_back(moving: &Moving) -> String {
    let whole = |runs: f64| runs.max(1.0).ceil() as usize;
    let Some(runs) = moving.runs.map(whole) else { return String::new() };
    let most = match moving.most_runs.map(whole) {
        Some(most) if most == runs => String::new(),
        Some(most) => format!(" ({most} at most)"),
        None => " (perhaps never)".to_owned(),
    };
    format!(", won back after {}{most}", counted(runs, "run", "runs"))
}

/// Lines of a script that are printed.
const SCRIPT_LINES: usize = 80;

fn text(advice: &Advice, written: Option<&Path>) -> String {
    let mut text = format!("{}\n", capitalized(&advice.answer));
    for fact in advice.why.iter().chain(&advice.layout) {
        let _ = writeln!(text, "  - {fact}");
    }
    if let Some(misfit) = &advice.misfit {
        let _ = writeln!(text, "Misfit: {misfit}.");
    }
    if let Some(coarse) = &advice.coarse {
        let _ = writeln!(text, "Coarse: {}.", coarse.text);
    }
    if advice.change {
        change(&mut text, advice, written);
    }
    if !advice.findings.is_empty() {
        text.push_str("\nWhat else the logs show:\n");
        advice.findings.iter().for_each(|finding| show(&mut text, finding));
    }
    sizes(&mut text, advice);
    timeline(&mut text, advice);
    files(&mut text, advice);
    text
}

fn change(text: &mut String, advice: &Advice, written: Option<&Path>) {
    if let Some(moving) = &advice.moving {
        let runs = won_back(moving);
        let _ = writeln!(
            text,
            "Files that exist have to be moved: {}, about {} to read and write{runs}. New files get the layout when they are made.",
            bytes(moving.bytes),
            moving.time
        );
    }
    if let (Some(ideal), Some(advised)) = (advice.ideal, advice.advised) {
        let _ =
            writeln!(text, "Predicted: {ideal} as the plan has it, {advised} as {} can set it.", advice.file_system);
    }
    let Some(export) = &advice.export else { return };
    if let Some(path) = written {
        let _ = writeln!(text, "\nCommands: {}", shown(path));
        return;
    }
    let script = String::from_utf8_lossy(&export.script.text).into_owned();
    if !can_be_shown(export) {
        let lines = script.lines().count();
        let _ = writeln!(text, "\nCommands: a script of {lines} lines; -o DIR writes it.");
    } else {
        let _ = writeln!(text, "\nCommands:\n{script}");
        for (name, contents) in &export.script.files {
            let _ = writeln!(text, "{name}:\n{}", String::from_utf8_lossy(contents));
        }
    }
}

/// Whether the script is short, and has no names that would be others where they are shown, or lines of their own.
fn can_be_shown(export: &Export) -> bool {
    let script = &export.script.text;
    std::str::from_utf8(script).is_ok()
        && script.iter().filter(|byte| **byte == b'\n').count() <= SCRIPT_LINES
        && export.files.iter().all(|file| printable(&file.path, false) == file.path)
}

fn show(text: &mut String, finding: &Finding) {
    let mark = match finding.weight {
        Weight::High => "!!",
        Weight::Medium => "! ",
        Weight::Info => "  ",
    };
    let _ = writeln!(text, "{mark} {}", capitalized(&finding.text));
    if !finding.remedy.is_empty() {
        let _ = writeln!(text, "     {}", finding.remedy);
    }
}

fn sizes(text: &mut String, advice: &Advice) {
    if advice.sizes.iter().all(|row| row.reads + row.writes == 0) {
        return;
    }
    text.push_str("\nRequests by size      reads       writes\n");
    for row in advice.sizes.iter().filter(|row| row.reads + row.writes > 0) {
        let _ = writeln!(text, "  {:<14} {:>10} {:>12}", row.size, row.reads, row.writes);
    }
}

/// A row of marks for reads and one for writes, the higher the more bytes in that slice of the run.
fn timeline(text: &mut String, advice: &Advice) {
    const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = advice.timeline.iter().flatten().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    let slice_s = advice.totals.run_s / advice.timeline.len() as f64;
    let _ = writeln!(text, "\nTime line, {} a mark, the highest {}:", duration(slice_s), bytes(most as u64));
    for (way, word) in ["read", "written"].into_iter().enumerate() {
        let mark = |slice: &[f64; 2]| match slice[way] {
            amount if amount <= 0.0 => ' ',
            amount => MARKS[((amount / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
        };
        let marks: String = advice.timeline.iter().map(mark).collect();
        let _ = writeln!(text, "  {word:<8} |{marks}|");
    }
}

fn files(text: &mut String, advice: &Advice) {
    if advice.files.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nFiles with the most bytes, of {}:", advice.totals.files);
    for file in &advice.files {
        let _ = writeln!(
            text,
            "  {:>10} read {:>10} written, {} requests, {} processes: {}",
            bytes(file.read_bytes),
            bytes(file.write_bytes),
            file.requests,
            file.processes,
            printable(&file.path, false)
        );
    }
}

fn capitalized(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
