//! `stripewise export`: a plan as layouts of a site's own file system.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use stripewise::export::{ExportOptions, export, write};
use stripewise::shell::quoted_path;
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, counted, duration, signed_percent};
use stripewise_planner::native::{self, Export, Loss};
use stripewise_planner::{Gain, Throughput};

/// Write a plan as layouts of a site's own file system, with what is lost
///
/// Prints a shell script that gives the plan's files the nearest layouts that the file system can set; read it before you run it, since it copies or migrates
/// files that exist. The time that is predicted for the plan as it is, for the layouts and for the site's default stand next to each other. Nothing is
/// changed, and no cluster is needed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise export plan.json --site site.toml -o layouts
  stripewise export plan.json --site site.toml --to lustre > layout.sh
  stripewise export plan.json --site site.toml --trace moved/run.trace --json")]
pub(crate) struct ExportArgs {
    /// A plan, as `stripewise plan -o` writes it
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    /// The site's description; its targets are named as the plan's servers are
    #[arg(long, value_name = "FILE")]
    site: PathBuf,

    /// The kind of file system that the site has to have [default: whichever it has]
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(native::names()))]
    to: Option<String>,

    /// The directory to write the script to, and a file for each layout where there are such files [default: print the script]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// The trace, where it is not where the plan was made from it; once for each of several
    #[arg(long = "trace", value_name = "TRACE")]
    traces: Vec<PathBuf>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Exported<'a> {
    /// The layouts, the script that sets them, and what is predicted.
    export: &'a Export,
    /// The script that was written, if a directory was named.
    output: Option<&'a Path>,
}

pub(crate) fn run(context: &Context, arguments: ExportArgs) -> Result<Verdict> {
    let ExportArgs { plan, site, to, output, traces } = arguments;
    let export = export(context.voice(), &ExportOptions { plan, site, to, traces })?;
    let written = output.map(|directory| write(&export, &directory)).transpose()?;
    let verdict = if export.refused.is_empty() { Verdict::Done } else { Verdict::Finding };
    if context.json {
        context.object(&Exported { export: &export, output: written.as_deref() })?;
        return Ok(verdict);
    }
    for note in &export.notes {
        context.say(note);
    }
    match written {
        Some(path) => {
            context.line(summary(&export).trim_end())?;
            context.say(format_args!("wrote {}; read it, then run it where the site is mounted", quoted_path(&path)));
        }
        None => {
            context.say(summary(&export).trim_end());
            context.bytes(&export.script.text)?;
        }
    }
    Ok(verdict)
}

fn summary(export: &Export) -> String {
    let mut text = String::new();
    if let Some(loss) = &export.predicted {
        text += &predicted(loss);
    }
    let exact = export.files.iter().filter(|file| file.exact).count();
    let files = counted(export.files.len(), "file", "files");
    let _ = writeln!(text, "{}: layouts for {files}, {exact} exactly as planned", export.to);
    let mut table = Table::new(&["file", ">size", ">parts planned", ">parts", "as planned", "most of it on"]);
    for file in &export.files {
        let targets = file.targets.iter().take(3).map(|target| format!("{} {}", target.name, bytes(target.bytes)));
        let more = if file.targets.len() > 3 { ", ..." } else { "" };
        table.row([
            file.path.clone(),
            bytes(file.size_bytes),
            file.planned_parts.to_string(),
            file.parts.to_string(),
            if file.exact { "yes" } else { "nearly" }.to_owned(),
            targets.collect::<Vec<_>>().join(", ") + more,
        ]);
    }
    let _ = writeln!(text, "{table}");
    for file in &export.refused {
        let _ = writeln!(text, "refused: {}: {}", file.path, file.reason);
    }
    text
}

fn predicted(loss: &Loss) -> String {
    let time = |of: &Throughput| {
        let (low, high) = (of.time_s * (1.0 - of.spread).max(0.0), of.time_s * (1.0 + of.spread));
        format!("{} ({} .. {})", duration(of.time_s), duration(low), duration(high))
    };
    // A negative loss is none.
    let share = |of: &Gain, more: &str, less: &str| match of.is_none() {
        true => format!("nothing {more}"),
        false => {
            let [expected, low, high] = [of.expected, of.low, of.high].map(signed_percent);
            format!("{expected} ({low} .. {high}) {}", if of.expected < 0.0 { less } else { more })
        }
    };
    let (of_layouts, of_default) = (
        share(&loss.loss, "lost", "time: less than for the plan"),
        share(&loss.gain, "gained", "time: less than for these layouts"),
    );
    let mut text = String::new();
    let _ = writeln!(text, "predicted for the plan as it is:   {}", time(&loss.ideal));
    let _ = writeln!(text, "predicted for these layouts:       {}, {of_layouts}", time(&loss.exported));
    let _ = writeln!(text, "predicted for the site's default:  {}, {of_default}", time(&loss.default));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_that_are_predicted_better_than_the_plan_lose_nothing() {
        let of = |time_s: f64| Throughput { time_s, ..Throughput::default() };
        let said = |ideal: f64, exported: f64, default: f64| {
            let (ideal, exported, default) = (of(ideal), of(exported), of(default));
            let over = |a: Throughput, b: Throughput| Gain::of(b, a, a == b);
            predicted(&Loss { ideal, exported, default, loss: over(exported, ideal), gain: over(default, exported) })
        };
        let worse = said(2.0, 3.0, 6.0);
        assert!(
            worse.contains("+50 % (+50 % .. +50 %) lost\n") && worse.ends_with("+100 % (+100 % .. +100 %) gained\n"),
            "{worse}"
        );
        let better = said(4.0, 3.0, 1.5);
        assert!(better.contains("(\u{2212}25 % .. \u{2212}25 %) time: less than for the plan\n"), "{better}");
        assert!(better.ends_with("(\u{2212}50 % .. \u{2212}50 %) time: less than for these layouts\n"), "{better}");
        assert!(said(3.0, 3.0, 3.0).contains("nothing lost\n"));
    }
}
