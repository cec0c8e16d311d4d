//! `stripewise explain`: why regions lie where a plan puts them.
//!
//! The plan says where its trace and profile were and what their hashes are; they are read again, so that what is weighed is what the plan was made
//! from.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use std::path::{Path, PathBuf};
use stripewise::inputs::{Inputs, Selection};
use stripewise_layout::{ByteCount, RegionIndex};
use stripewise_planner::explain::{Explainer, overview_text, region_text};
use stripewise_planner::{Plan, PlanRequest, PlannedFile};

/// Length of a window where the plan does not say it: that of `stripewise plan` without --window.
const DEFAULT_WINDOW_S: f64 = 600.0;

/// Say why a region lies where a plan puts it, and what other layouts would cost
///
/// Without a region, what sets the pace of the run, which regions take most of it, and what more SSD room would bring.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise explain plan.json
  stripewise explain plan.json /data/out.h5:17
  stripewise explain plan.json out.h5:17 --trace moved/run.trace")]
pub(crate) struct ExplainArgs {
    /// A plan, as `stripewise plan -o` writes it
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    /// A file of the plan, by its path or the end of it, and the number of one of its regions
    #[arg(value_name = "FILE:REGION")]
    region: Option<String>,

    /// The trace, where it is not where the plan was made from it; once for each of several
    #[arg(long = "trace", value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// The profile, where it is not where the plan was made from it
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: ExplainArgs) -> Result<Verdict> {
    let plan = Plan::load(&arguments.plan)?;
    let (cluster_path, cluster) = (context.session.cluster_path(), context.session.cluster()?);
    plan.check(&cluster, &arguments.plan)?;
    let wanted = arguments.region.as_deref().map(|text| region_of(text, &plan.files)).transpose()?;
    let waiting = context.waiting("reading the trace");
    let (traces, profile) = sources(&plan, &arguments)?;
    let window_s = plan.made_from.inputs.as_ref().map_or(DEFAULT_WINDOW_S, |inputs| inputs.window_s);
    let prefixes = plan.files.iter().map(|file| PathBuf::from(&file.path)).collect();
    let selection = Selection { prefixes, least: ByteCount(0), window_s };
    let mut inputs = Inputs::read(&cluster, &cluster_path, &profile, &traces, &selection, false)?;
    check_hashes(&plan, &inputs, &arguments.plan, &traces, &profile)?;
    inputs.keep(|path| plan.files.iter().any(|file| file.path == path));
    // The room that the plan was made for, whatever has been written since.
    let free_bytes: Vec<Option<u64>> = plan
        .servers
        .iter()
        .zip(cluster.ids())
        .map(|(planned, id)| planned.room_bytes.map(|room| room.saturating_add(cluster.kept_free_bytes(id))))
        .collect();
    let request = PlanRequest { free_bytes: &free_bytes, ..inputs.request(&cluster, plan.options.clone()) };
    let explainer = Explainer::new(&plan, &request)?;
    match wanted {
        Some((file, region)) => {
            let explanation = explainer.region(file, region)?;
            drop(waiting);
            if context.json {
                context.object(&explanation)?;
            } else {
                context.line(region_text(&explanation).trim_end())?;
            }
        }
        None => {
            let overview = explainer.overview()?;
            drop(waiting);
            if context.json {
                context.object(&overview)?;
            } else {
                context.line(overview_text(&overview).trim_end())?;
            }
        }
    }
    Ok(Verdict::Done)
}

/// Where trace and profile are: as given, else where the plan found them.
fn sources(plan: &Plan, arguments: &ExplainArgs) -> Result<(Vec<PathBuf>, PathBuf)> {
    let recorded = plan.made_from.inputs.as_ref();
    let plan_path = arguments.plan.display();
    let traces = match (arguments.traces.is_empty(), recorded) {
        (false, _) => arguments.traces.clone(),
        (true, Some(inputs)) => inputs.traces.iter().map(PathBuf::from).collect(),
        (true, None) => bail!("{plan_path} does not say where its trace is; name it with --trace"),
    };
    let profile = match (&arguments.profile, recorded) {
        (Some(path), _) => path.clone(),
        (None, Some(inputs)) => PathBuf::from(&inputs.profile),
        (None, None) => bail!("{plan_path} does not say where its profile is; name it with --profile"),
    };
    for (path, option) in traces.iter().map(|path| (path, "--trace")).chain([(&profile, "--profile")]) {
        ensure!(
            path.exists(),
            "there is no {}, which {plan_path} was made from; name where it is now with {option}",
            path.display()
        );
    }
    Ok((traces, profile))
}

fn check_hashes(plan: &Plan, inputs: &Inputs, plan_path: &Path, traces: &[PathBuf], profile: &Path) -> Result<()> {
    let (made_from, found) = (&plan.made_from, inputs.sources());
    let named = traces.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    for (name, was, is, option) in [
        (named, &made_from.trace_sha256, &found.trace_sha256, "--trace"),
        (profile.display().to_string(), &made_from.profile_sha256, &found.profile_sha256, "--profile"),
    ] {
        // A hash that is not known is empty.
        ensure!(
            was.is_empty() || was == is,
            "{name} is not what {} was made from: its contents differ; name the original with {option}, or make the plan again with `stripewise plan`",
            plan_path.display()
        );
    }
    Ok(())
}

/// `FILE:REGION` to the file's position in the plan and the region.
fn region_of(text: &str, files: &[PlannedFile]) -> Result<(usize, RegionIndex)> {
    let (name, number) = text
        .rsplit_once(':')
        .with_context(|| format!("`{text}` is no region; write a file and a number, as in /data/out.h5:17"))?;
    let region = number
        .parse()
        .map(RegionIndex)
        .with_context(|| format!("`{text}`: `{number}` is not the number of a region; write for example {name}:0"))?;
    let listed = || files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(exact) = files.iter().position(|file| file.path == name) {
        return Ok((exact, region));
    }
    let ends: Vec<usize> = (0..files.len()).filter(|number| Path::new(&files[*number].path).ends_with(name)).collect();
    match ends[..] {
        [only] => Ok((only, region)),
        [] => bail!("`{name}` is not a file of the plan, which has {}", listed()),
        _ => bail!("`{name}` is the end of several files of the plan; name one of {}", listed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> PlannedFile {
        PlannedFile { path: path.to_owned(), pattern: path.to_owned(), size_bytes: 1, windows: Vec::new() }
    }

    #[test]
    fn a_region_is_named_by_its_file_or_the_end_of_it() {
        let files = [file("/data/a"), file("/data/b:1"), file("/other/a")];
        let found = |text: &str| region_of(text, &files).map_err(|error| error.to_string());
        assert_eq!(found("/data/a:3"), Ok((0, RegionIndex(3))));
        assert_eq!(found("b:1:0"), Ok((1, RegionIndex(0))));
        assert_eq!(found("other/a:4294967295"), Ok((2, RegionIndex(u32::MAX))));
        for (text, expected) in [
            ("a:1", "`a` is the end of several files of the plan; name one of /data/a, /data/b:1, /other/a"),
            ("ta/a:1", "`ta/a` is not a file of the plan, which has /data/a, /data/b:1, /other/a"),
            ("/data/a", "`/data/a` is no region; write a file and a number, as in /data/out.h5:17"),
            ("/data/a:x", "`/data/a:x`: `x` is not the number of a region; write for example /data/a:0"),
        ] {
            assert_eq!(found(text), Err(expected.to_owned()));
        }
    }
}
