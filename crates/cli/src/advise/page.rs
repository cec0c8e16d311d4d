//! The advice as a report: verdict, findings and the run in figures.

use super::{can_be_shown, capitalized, won_back};
use anyhow::Result;
use std::path::Path;
use stripewise::advise::{Advice, AdviseOptions, Finding, LogSummary, PredictedTime, Weight};
use stripewise::messages::printable;
use stripewise::shell::quoted_path;
use stripewise_layout::ByteCount;
use stripewise_layout::cluster::DEFAULT_REGION_BYTES;
use stripewise_layout::figures::{bytes, counted, duration, grouped};
use stripewise_planner::within;
use stripewise_report::{Figure, Finding as Shown, Headline, Material, RunFacts, Severity, Table, TraceSummary};

pub(super) fn material(advice: &Advice, options: &AdviseOptions, script: Option<&Path>) -> Result<Material> {
    let region_size = ByteCount(DEFAULT_REGION_BYTES);
    Ok(Material {
        trace: advice.trace.as_ref().map(|trace| TraceSummary::of(trace, region_size)).transpose()?,
        headline: Some(headline(advice, options, script)),
        findings: advice.findings.iter().map(shown).collect(),
        run: Some(run(advice)),
        ..Material::default()
    })
}

fn headline(advice: &Advice, options: &AdviseOptions, script: Option<&Path>) -> Headline {
    let answer = advice.answer.strip_prefix("leave it: ").unwrap_or(&advice.answer);
    let sentences = |facts: &mut dyn Iterator<Item = &String>| -> Vec<String> {
        facts.map(|fact| format!("{}.", capitalized(fact))).collect()
    };
    let (measured, misfit) = misfit(advice).unzip();
    let decision = if advice.change { "Lay the files out again" } else { "Leave the files as they are" };
    Headline {
        apply: advice.change,
        decision: decision.to_owned(),
        reason: format!("{}.", capitalized(answer)),
        measured: sentences(&mut advice.why.iter().chain(&measured)),
        predicted: sentences(
            &mut advice.layout.iter().chain(advice.coarse.as_ref().map(|coarse| &coarse.text)).chain(&misfit),
        ),
        gain: advice.gain,
        over: "the files as they lie".to_owned(),
        predictions: predictions(advice),
        commands: if advice.change { commands(advice, options, script) } else { Vec::new() },
    }
}

/// What was measured where it does not fit the prediction, and what is said of the prediction: measured times stand apart from predicted ones.
fn misfit(advice: &Advice) -> Option<(String, String)> {
    let measured = advice.measured.filter(|_| advice.misfit.is_some())?;
    let busiest = duration(measured.busiest_s);
    Some((
        format!("the busiest process spent {busiest} in reads and writes of the files that are planned"),
        "the prediction for the files as they lie does not fit what was measured: the site's figures, or what ran next to the job, are not those of this log".to_owned(),
    ))
}

fn predictions(advice: &Advice) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut push = |label: &str, time: PredictedTime, note: &str| {
        let spread = within(time.spread);
        let note = if note.is_empty() { spread } else { format!("{spread}; {note}") };
        figures.push(Figure::new(label, duration(time.time_s), note));
    };
    if let Some(now) = advice.now {
        push("I/O as the files lie", now, "");
    }
    if let (Some(advised), Some(ideal)) = (advice.advised, advice.ideal) {
        let is_lost = ideal.time_s < advised.time_s;
        let note = if is_lost {
            format!("{ideal} as the plan has it, beyond what the file system can set")
        } else {
            String::new()
        };
        push("I/O with the layouts", advised, &note);
    }
    if let Some(moving) = advice.moving.as_ref().filter(|_| advice.change) {
        let note = format!("{} once{}", bytes(moving.bytes), won_back(moving));
        push("Moving files that exist", moving.time, &note);
    }
    figures
}

/// What sets the layouts: the script that was written, a short one as it is, or the command that writes it.
fn commands(advice: &Advice, options: &AdviseOptions, script: Option<&Path>) -> Vec<String> {
    if let Some(path) = script {
        return vec![format!("sh {}", quoted_path(path))];
    }
    match &advice.export {
        Some(export) if export.script.files.is_empty() && can_be_shown(export) => {
            vec![String::from_utf8_lossy(&export.script.text).into_owned()]
        }
        _ => vec![format!("stripewise advise {} -o layout", words(options)), "sh layout/layout.sh".to_owned()],
    }
}

/// What has the same answer again, quoted for a shell.
fn words(options: &AdviseOptions) -> String {
    let AdviseOptions { logs, site, prefixes, least, max_files, worth_runs } = options;
    let mut words: Vec<String> = logs.iter().map(|path| quoted_path(path)).collect();
    words.push(format!("--site {}", quoted_path(site)));
    words.extend(prefixes.iter().map(|prefix| format!("--file {}", quoted_path(prefix))));
    if *least != AdviseOptions::MIN_SIZE {
        words.push(format!("--least-size {least}"));
    }
    if *max_files != AdviseOptions::MAX_FILES {
        words.push(format!("--max-files {max_files}"));
    }
    if *worth_runs != AdviseOptions::WORTH_RUNS {
        words.push(format!("--worth-runs {worth_runs}"));
    }
    words.join(" ")
}

fn shown(finding: &Finding) -> Shown {
    Shown {
        severity: match finding.weight {
            Weight::High => Severity::High,
            Weight::Medium => Severity::Medium,
            Weight::Info => Severity::Note,
        },
        title: title(finding.name),
        figure: format!("{}.", capitalized(&finding.text)),
        remedy: if finding.remedy.is_empty() { String::new() } else { format!("{}.", capitalized(&finding.remedy)) },
    }
}

fn title(name: &str) -> String {
    match name {
        "io-share" => "I/O share".to_owned(),
        "independent-mpi-io" => "Independent MPI-IO".to_owned(),
        "mpi-io-to-posix" => "MPI-IO to POSIX".to_owned(),
        name => capitalized(&name.replace('-', " ")),
    }
}

fn run(advice: &Advice) -> RunFacts {
    let totals = &advice.totals;
    let requests = |count: u64| counted(count as usize, "request", "requests");
    RunFacts {
        command: advice.logs.first().map(|log| log.program.clone()).unwrap_or_default(),
        figures: vec![
            Figure::new("Run", duration(totals.run_s), counted(totals.processes as usize, "process", "processes")),
            Figure::new("Read", bytes(totals.read_bytes), requests(totals.reads)),
            Figure::new("Written", bytes(totals.write_bytes), requests(totals.writes)),
            Figure::new("I/O of the busiest process", duration(totals.busiest_s), String::new()),
        ],
        run_s: totals.run_s,
        timeline: advice.timeline.clone(),
        tables: [sizes(advice), files(advice)].into_iter().filter(|table| !table.rows.is_empty()).collect(),
        inputs: advice.logs.iter().map(input).collect(),
        missing: advice.logs.iter().flat_map(|log| &log.missing).chain(&advice.remarks).cloned().collect(),
    }
}

fn sizes(advice: &Advice) -> Table {
    let with_requests = advice.sizes.iter().filter(|row| row.reads + row.writes > 0);
    let row =
        |reads: u64, writes: u64, size: &str| vec![size.to_owned(), grouped(reads as i64), grouped(writes as i64)];
    Table {
        caption: "Requests by size".to_owned(),
        head: ["size", "reads", "writes"].map(str::to_owned).to_vec(),
        rows: with_requests.map(|found| row(found.reads, found.writes, found.size)).collect(),
    }
}

fn files(advice: &Advice) -> Table {
    let rows = advice.files.iter().map(|file| {
        vec![
            printable(&file.path, false).into_owned(),
            bytes(file.read_bytes),
            bytes(file.write_bytes),
            grouped(file.requests as i64),
            grouped(file.processes.into()),
        ]
    });
    Table {
        caption: format!("Files with the most bytes, of {}", grouped(advice.totals.files as i64)),
        head: ["file", "read", "written", "requests", "processes"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

fn input(log: &LogSummary) -> (String, String) {
    let mut what =
        vec![format!("{} in {}", counted(log.processes as usize, "process", "processes"), duration(log.run_s))];
    if log.requests_traced > 0 {
        what.push(format!("{} requests one by one", grouped(log.requests_traced as i64)));
    }
    let read = log.modules.iter().filter(|module| module.is_read);
    what.extend(read.map(|module| format!("{} with {} records", module.name, grouped(module.records as i64))));
    (log.path.display().to_string(), what.join("; "))
}
