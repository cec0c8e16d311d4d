//! Plans as layouts of a site's own file system.

use crate::inputs::{InputError, hash_traces};
use crate::messages::shown;
use crate::paths::{OnPath as _, PathError};
use crate::progress::Voice;
use crate::site::{LoadSiteError, LoadedSite, load};
use crate::trace_faults::impossible_requests;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use stripewise_planner::native::{Export, ExportError, ExportRequest, export as export_plan};
use stripewise_planner::{Plan, PlanError};
use stripewise_trace::{CountError, CountOptions, FileAccess, ReadError, Trace, count_together};
use thiserror::Error;

/// The script's file in the directory that is written.
pub const SCRIPT_FILE: &str = "layout.sh";

/// Length of a window where the plan does not say it: the default of `stripewise plan`.
const DEFAULT_WINDOW_S: f64 = 600.0;

/// Why a plan was not exported.
#[derive(Debug, Error)]
pub enum ExportPlanError {
    /// The plan cannot be read.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The site cannot be read.
    #[error(transparent)]
    Site(#[from] LoadSiteError),
    /// The site has another file system than was asked for.
    #[error(
        "{} describes a site with {found}, not {asked}; name that site's file with --site, or leave out --to",
        shown(site)
    )]
    OtherFileSystem {
        /// The site's file.
        site: PathBuf,
        /// `fs` of the site.
        found: String,
        /// `--to`.
        asked: String,
    },
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] ReadError),
    /// Requests of the traces cannot be counted.
    #[error(transparent)]
    Count(#[from] CountError),
    /// A trace cannot be hashed.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The traces that were named are not those of the plan.
    #[error(
        "{traces}: not what {} was made from: the contents differ; name the original with --trace, or make the plan again with `stripewise plan`",
        shown(plan)
    )]
    Changed {
        /// The traces.
        traces: String,
        /// The plan's file.
        plan: PathBuf,
    },
    /// The plan does not fit the site, or cannot be expressed there.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The script or a file of it cannot be written.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// What is exported to where.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The plan's file.
    pub plan: PathBuf,
    /// The site's file.
    pub site: PathBuf,
    /// The kind of file system that the site has to have; `None`: whichever it has.
    pub to: Option<String>,
    /// The traces of the plan; none: where the plan found them.
    pub traces: Vec<PathBuf>,
}

/// Exports a plan; nothing is written.
///
/// # Errors
///
/// [`ExportPlanError`]. Traces that the plan names but that are gone are no error: nothing is predicted then, and a note says so.
pub fn export(voice: &Voice, options: &ExportOptions) -> Result<Export, ExportPlanError> {
    let plan = Plan::load(&options.plan)?;
    let loaded = load(&options.site)?;
    if let Some(asked) = options.to.as_ref().filter(|asked| **asked != loaded.site.fs.name) {
        let (site, found) = (options.site.clone(), loaded.site.fs.name.to_owned());
        return Err(ExportPlanError::OtherFileSystem { site, found, asked: asked.clone() });
    }
    let _waiting = voice.waiting("reading the trace");
    let (accesses, remarks) = accesses(&plan, options)?;
    let mut exported = export_for(&plan, &loaded, &accesses)?;
    exported.notes.extend(remarks);
    Ok(exported)
}

/// Exports a plan whose accesses are at hand.
///
/// # Errors
///
/// [`ExportError`].
pub fn export_for(plan: &Plan, site: &LoadedSite, accesses: &[FileAccess]) -> Result<Export, ExportError> {
    export_plan(&ExportRequest { plan, site: &site.site, servers: &site.servers, accesses })
}

/// The accesses of the plan's files, with remarks on them.
fn accesses(plan: &Plan, options: &ExportOptions) -> Result<(Vec<FileAccess>, Vec<String>), ExportPlanError> {
    let recorded = plan.made_from.inputs.as_ref();
    let traces: Vec<PathBuf> = match (options.traces.is_empty(), recorded) {
        (false, _) => options.traces.clone(),
        (true, Some(inputs)) => inputs.traces.iter().map(PathBuf::from).collect(),
        (true, None) => Vec::new(),
    };
    let gone = traces.iter().find(|path| !path.exists());
    if let Some(path) = gone.filter(|_| options.traces.is_empty()) {
        return Ok((Vec::new(), vec![format!("there is no {}, which the plan was made from", shown(path))]));
    }
    let Some(region_size) = plan.region_size().filter(|_| !traces.is_empty()) else {
        return Ok((Vec::new(), Vec::new()));
    };
    let was = &plan.made_from.trace_sha256;
    if !was.is_empty() && hash_traces(&traces)? != *was {
        let traces = traces.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", ");
        return Err(ExportPlanError::Changed { traces, plan: options.plan.clone() });
    }
    let opened = traces.iter().map(|path| Ok(Trace::open(path)?)).collect::<Result<Vec<Trace>, ExportPlanError>>()?;
    let window_s = recorded.map_or(DEFAULT_WINDOW_S, |inputs| inputs.window_s);
    let counted = count_together(&opened, &CountOptions { window_s, region_size, ..CountOptions::default() })?;
    let mut remarks: Vec<String> = opened.iter().flat_map(|trace| &trace.warnings).map(ToString::to_string).collect();
    if counted.impossible > 0 {
        remarks.push(impossible_requests(counted.impossible));
    }
    let is_planned = |access: &FileAccess| plan.files.iter().any(|file| file.path == access.path);
    Ok((counted.files.into_iter().filter(is_planned).collect(), remarks))
}

/// Writes the script and what belongs to it into `directory`, which is made if it is not there. Returns the script's path.
///
/// # Errors
///
/// [`PathError`]; files before the one that failed are written.
pub fn write(exported: &Export, directory: &Path) -> Result<PathBuf, PathError> {
    std::fs::create_dir_all(directory).on("create", directory)?;
    for (name, contents) in &exported.script.files {
        let path = directory.join(name);
        stripewise_layout::output::write(&path, contents).on("write", &path)?;
    }
    let script = directory.join(SCRIPT_FILE);
    stripewise_layout::output::write(&script, &exported.script.text).on("write", &script)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).on("set the mode of", &script)?;
    Ok(script)
}
