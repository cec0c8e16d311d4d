//! Why regions lie where a plan puts them.
//!
//! The plan says where its trace and profile were and what their hashes are. They are read again, so
//! that what is weighed is what the plan was made from.

use crate::inputs::{InputError, Inputs, Selection};
use crate::session::{Session, SessionError};
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise_layout::{ByteCount, RegionIndex};
use stripewise_planner::explain::{Explainer, Overview, RegionExplanation};
use stripewise_planner::{Plan, PlanError, PlanRequest, PlannedFile};
use thiserror::Error;

/// Length of a window where the plan does not say it: the default of `stripewise plan`.
const DEFAULT_WINDOW_S: f64 = 600.0;

/// Why a plan cannot be explained.
#[derive(Debug, Error)]
pub enum ExplainError {
    /// The plan cannot be read or is for other servers.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Which cluster is meant is not known.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Trace or profile cannot be read.
    #[error(transparent)]
    Inputs(#[from] InputError),
    /// Plan and trace do not fit, or there is no such region.
    #[error(transparent)]
    Explain(#[from] stripewise_planner::explain::ExplainError),
    /// An old plan does not record where its inputs are.
    #[error("{} does not say where its {what} is; name it with {option}", plan.display())]
    NotRecorded {
        /// The plan's file.
        plan: PathBuf,
        /// `trace` or `profile`.
        what: &'static str,
        /// The option of the command that names it.
        option: &'static str,
    },
    /// An input is no longer where it was.
    #[error(
        "there is no {}, which {} was made from; name where it is now with {option}",
        path.display(),
        plan.display()
    )]
    Gone {
        /// Where the input was.
        path: PathBuf,
        /// The plan's file.
        plan: PathBuf,
        /// The option of the command that names it.
        option: &'static str,
    },
    /// An input has changed since the plan was made.
    #[error(
        "{input} is not what {} was made from: its contents differ; name the original with {option}, or make the plan again with `stripewise plan`",
        plan.display()
    )]
    Changed {
        /// The input's file, or files.
        input: String,
        /// The plan's file.
        plan: PathBuf,
        /// The option of the command that names it.
        option: &'static str,
    },
    /// A region is a file and a number.
    #[error("`{text}` is no region; write a file and a number, as in /data/out.h5:17")]
    NotRegion {
        /// As it was named.
        text: String,
    },
    /// What follows the colon is no number of a region.
    #[error("`{text}`: `{number}` is not the number of a region; write for example {name}:0")]
    NotNumber {
        /// As it was named.
        text: String,
        /// What follows the last colon.
        number: String,
        /// What is before it.
        name: String,
    },
    /// The plan has no such file.
    #[error("`{name}` is not a file of the plan, which has {}", files.join(", "))]
    NoFile {
        /// As it was named.
        name: String,
        /// Files of the plan.
        files: Vec<String>,
    },
    /// Files of the plan whose paths end alike.
    #[error("`{name}` is the end of several files of the plan; name one of {}", files.join(", "))]
    Ambiguous {
        /// As it was named.
        name: String,
        /// Files of the plan.
        files: Vec<String>,
    },
}

type Result<T> = std::result::Result<T, ExplainError>;

/// What is to be explained.
#[derive(Clone, Debug)]
pub struct ExplainOptions {
    /// The plan's file.
    pub plan: PathBuf,
    /// A region as `FILE:REGION`, the file by its path or the end of it. `None`: an overview.
    pub region: Option<String>,
    /// The traces; none: where the plan found them.
    pub traces: Vec<PathBuf>,
    /// The profile; `None`: where the plan found it.
    pub profile: Option<PathBuf>,
}

/// An explanation. As JSON it is the one or the other.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Explanation {
    /// What sets the pace of the run, which regions take most of it, and what more SSD capacity would
    /// bring.
    Overview(Box<Overview>),
    /// One region, its layout and others.
    Region(Box<RegionExplanation>),
}

/// Explains a plan for the cluster that `session` means.
///
/// # Errors
///
/// [`ExplainError`].
pub fn explain(session: &Session, options: &ExplainOptions) -> Result<Explanation> {
    let plan = Plan::load(&options.plan)?;
    let (cluster_path, cluster) = (session.cluster_path(), session.cluster()?);
    plan.check(&cluster, &options.plan)?;
    let wanted = options.region.as_deref().map(|text| region_of(text, &plan.files)).transpose()?;
    let _waiting = session.voice().waiting("reading the trace");
    let (traces, profile) = sources(&plan, options)?;
    let window_s = plan.made_from.inputs.as_ref().map_or(DEFAULT_WINDOW_S, |inputs| inputs.window_s);
    let prefixes = plan.files.iter().map(|file| PathBuf::from(&file.path)).collect();
    let selection = Selection { prefixes, least: ByteCount(0), window_s };
    let mut inputs = Inputs::read(&cluster, &cluster_path, &profile, &traces, &selection, false)?;
    check_hashes(&plan, &inputs, &options.plan, &traces, &profile)?;
    inputs.keep(|path| plan.files.iter().any(|file| file.path == path));
    // The capacity that the plan was made for, whatever has been written since.
    let free_bytes: Vec<Option<u64>> = plan
        .servers
        .iter()
        .zip(cluster.ids())
        .map(|(planned, id)| planned.room_bytes.map(|bytes| bytes.saturating_add(cluster.kept_free_bytes(id))))
        .collect();
    let request = PlanRequest { free_bytes: &free_bytes, ..inputs.request(&cluster, plan.options.clone()) };
    let explainer = Explainer::new(&plan, &request)?;
    match wanted {
        Some((file, region)) => Ok(Explanation::Region(Box::new(explainer.region(file, region)?))),
        None => Ok(Explanation::Overview(Box::new(explainer.overview()?))),
    }
}

/// Where trace and profile are: as given, else where the plan found them.
fn sources(plan: &Plan, options: &ExplainOptions) -> Result<(Vec<PathBuf>, PathBuf)> {
    let recorded = plan.made_from.inputs.as_ref();
    let not_recorded = |what, option| ExplainError::NotRecorded { plan: options.plan.clone(), what, option };
    let traces: Vec<PathBuf> = match (options.traces.is_empty(), recorded) {
        (false, _) => options.traces.clone(),
        (true, Some(inputs)) => inputs.traces.iter().map(PathBuf::from).collect(),
        (true, None) => return Err(not_recorded("trace", "--trace")),
    };
    let profile = match (&options.profile, recorded) {
        (Some(path), _) => path.clone(),
        (None, Some(inputs)) => PathBuf::from(&inputs.profile),
        (None, None) => return Err(not_recorded("profile", "--profile")),
    };
    for (path, option) in traces.iter().map(|path| (path, "--trace")).chain([(&profile, "--profile")]) {
        if !path.exists() {
            return Err(ExplainError::Gone { path: path.clone(), plan: options.plan.clone(), option });
        }
    }
    Ok((traces, profile))
}

fn check_hashes(plan: &Plan, inputs: &Inputs, plan_path: &Path, traces: &[PathBuf], profile: &Path) -> Result<()> {
    let (made_from, found) = (&plan.made_from, inputs.sources());
    let named = traces.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    for (input, was, is, option) in [
        (named, &made_from.trace_sha256, &found.trace_sha256, "--trace"),
        (profile.display().to_string(), &made_from.profile_sha256, &found.profile_sha256, "--profile"),
    ] {
        // A hash that is not known is empty.
        if !was.is_empty() && was != is {
            return Err(ExplainError::Changed { input, plan: plan_path.to_owned(), option });
        }
    }
    Ok(())
}

/// `FILE:REGION` to the file's position in the plan and the region.
fn region_of(text: &str, files: &[PlannedFile]) -> Result<(usize, RegionIndex)> {
    let Some((name, number)) = text.rsplit_once(':') else {
        return Err(ExplainError::NotRegion { text: text.to_owned() });
    };
    let Ok(region) = number.parse().map(RegionIndex) else {
        let (text, number, name) = (text.to_owned(), number.to_owned(), name.to_owned());
        return Err(ExplainError::NotNumber { text, number, name });
    };
    if let Some(exact) = files.iter().position(|file| file.path == name) {
        return Ok((exact, region));
    }
    let ends: Vec<usize> = (0..files.len()).filter(|number| Path::new(&files[*number].path).ends_with(name)).collect();
    let listed = || files.iter().map(|file| file.path.clone()).collect();
    match ends[..] {
        [only] => Ok((only, region)),
        [] => Err(ExplainError::NoFile { name: name.to_owned(), files: listed() }),
        _ => Err(ExplainError::Ambiguous { name: name.to_owned(), files: listed() }),
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
