//! What applied plans say of a run that is about to start.

use super::error::RunError;
use crate::applied::{self, Applied, AppliedPlans};
use crate::doctor::{executable_behind, name_behind};
use crate::launch::{LaunchError, mpi};
use crate::paths::real;
use crate::progress::Voice;
use crate::relay::Relay;
use crate::store::read_stub;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use stripewise_layout::Cluster;
use stripewise_planner::{Plan, PlannedFile};
use stripewise_store::client::{Client, ClientError, ClientOptions};
use stripewise_store::protocol::{Admin, ExpectedFile, Reply, Request};

/// What the applied plans say of a run.
pub(super) struct Preparation {
    /// Files that are managed or to come; only where they are to be followed.
    pub(super) planned: Vec<(String, PlannedFile)>,
    /// A signal that came meanwhile and ended it.
    pub(super) ended_by: Option<i32>,
    /// What differs from the plans, to be said if the program uses their files.
    pub(super) differences: Option<Differences>,
}

/// A run that differs from what was planned. Nothing is said before it is known that the program opened a planned file.
pub(super) struct Differences {
    plans: Vec<Applied>,
    run: mpi::Run,
    /// Watches what the program opens.
    client: Client,
}

/// Finds out where the run differs from what was planned, and sees to it that files that do not exist yet get the placement of the nearest plan. That is
/// told to the broker only where it was not told before: a run must not wait for every file that a plan names.
pub(super) fn prepare(
    cluster: &Cluster,
    command: &[OsString],
    is_followed: bool,
    relay: &Relay,
) -> Result<Preparation, RunError> {
    let applied = AppliedPlans::read(cluster)?;
    let mut preparation = Preparation { planned: Vec::new(), ended_by: None, differences: None };
    if applied.plans.is_empty() {
        return Ok(preparation);
    }
    let heads: Vec<&Plan> = applied.plans.iter().map(|applied| &applied.plan).collect();
    let Some(run) = planned_run(command, &heads) else {
        return Err(LaunchError::NoProgram.into());
    };
    // Where it is not known, each plan's own number is taken.
    let processes = run.processes.unwrap_or(0);
    let is_in_force = applied.is_in_force(&run.program, processes);
    if is_in_force && !is_followed {
        preparation.differences = Differences::watch(cluster, applied.plans, run)?;
        return Ok(preparation);
    }
    let plans = applied.load(cluster);
    let goes_on = || relay.came_before_program().is_none();
    let files = nearest_files(&plans, &run);
    if !is_in_force {
        let expected = files.iter().map(|(path, file)| {
            let (path, placement) = (path.clone(), file.initial().clone());
            ExpectedFile { path, placement, replicas: None }
        });
        let client = Client::connect(&cluster.state, ClientOptions::default())?;
        if client.expect(expected.collect(), &goes_on)? {
            applied.set_in_force(&run.program, processes)?;
        }
    }
    if is_followed {
        // Moves give files to come the placements of later windows.
        applied::forget_in_force(cluster)?;
        for (path, file) in files {
            if !goes_on() {
                break;
            }
            let path_of = Path::new(&path);
            if path_of.symlink_metadata().is_err() || !is_ordinary(path_of) {
                preparation.planned.push((path, file.clone()));
            }
        }
    }
    preparation.ended_by = relay.came_before_program();
    preparation.differences = Differences::watch(cluster, applied.plans, run)?;
    Ok(preparation)
}

/// How far a plan is from a run: another program, then another number of processes.
fn distance(plan: &Plan, run: &mpi::Run) -> (bool, f64) {
    let Some(processes) = run.processes else { return (!plan.key.names(&run.program), 0.0) };
    let (application, made_for) = plan.key.nearest_program(&run.program, processes);
    (application != run.program, (f64::from(made_for.max(1)) / f64::from(processes.max(1))).ln().abs())
}

/// The place among `plans` of the plan that is nearest to the run; the first wins ties.
fn nearest_of<'a>(plans: impl Iterator<Item = (usize, &'a Plan)>, run: &mpi::Run) -> Option<usize> {
    let distances = plans.map(|(number, plan)| (number, distance(plan, run)));
    let nearest = distances.min_by(|(_, a), (_, b)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    nearest.map(|(number, _)| number)
}

/// Every planned path with what the nearest plan that has it says. Relative ones are nobody's.
fn nearest_files<'a>(plans: &'a [Plan], run: &mpi::Run) -> Vec<(String, &'a PlannedFile)> {
    let mut named: BTreeMap<String, Vec<(usize, &PlannedFile)>> = BTreeMap::new();
    for (number, plan) in plans.iter().enumerate() {
        for file in &plan.files {
            let Some(name) = file.managed_name().filter(|name| Path::new(name).is_absolute()) else { continue };
            named.entry(name).or_default().push((number, file));
        }
    }
    let nearest = |files: Vec<(usize, &'a PlannedFile)>| {
        let number = nearest_of(files.iter().map(|(number, _)| (*number, &plans[*number])), run)?;
        files.into_iter().find(|(of, _)| *of == number).map(|(_, file)| file)
    };
    named.into_iter().filter_map(|(path, files)| Some((path, nearest(files)?))).collect()
}

impl Differences {
    /// Watches from here on; `None` where the run is as planned.
    fn watch(cluster: &Cluster, plans: Vec<Applied>, run: mpi::Run) -> Result<Option<Self>, RunError> {
        if differences(&plans, &run, |_| true).is_empty() {
            return Ok(None);
        }
        let client = Client::connect(&cluster.state, ClientOptions::default())?;
        let differences = Self { plans, run, client };
        differences.opened()?;
        Ok(Some(differences))
    }

    /// What the program opened since.
    fn opened(&self) -> Result<BTreeSet<String>, ClientError> {
        let mut all = BTreeSet::new();
        loop {
            let after = all.last().cloned().unwrap_or_default();
            let asked = self.client.request(&Request::Admin(Admin::OpenedPaths { after }), &[])?.0;
            let Reply::OpenedPaths { paths, more } = asked else { return Ok(all) };
            all.extend(paths);
            if !more {
                return Ok(all);
            }
        }
    }

    /// Says what concerns files that the program opened. A broker that was replaced meanwhile knows of none.
    pub(super) fn say(&self, voice: &Voice) {
        let Ok(opened) = self.opened() else { return };
        let is_used = |path: &str| {
            real(Path::new(path)).is_ok_and(|path| path.to_str().is_some_and(|path| opened.contains(path)))
        };
        for line in differences(&self.plans, &self.run, is_used) {
            voice.say(line);
        }
    }
}

/// What is to be said of the run, if the files that are `used` are of concern.
fn differences(applied: &[Applied], run: &mpi::Run, is_used: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let is_own = |plan: &Plan| plan.key.names(&run.program);
    let mut named: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, applied) in applied.iter().enumerate() {
        applied.paths.iter().for_each(|path| named.entry(path).or_default().push(number));
    }
    let (mut said, mut others) = (BTreeSet::new(), BTreeSet::new());
    let mut heard = BTreeSet::new();
    for (path, numbers) in named.into_iter().filter(|(path, _)| is_used(path)) {
        let of_path = numbers.iter().map(|number| (*number, &applied[*number].plan));
        let Some(number) = nearest_of(of_path, run).filter(|number| !heard.contains(number)) else { continue };
        // A released file is nobody's concern; others of the plan may be.
        if is_ordinary(Path::new(path)) {
            continue;
        }
        heard.insert(number);
        let plan = &applied[number].plan;
        let (application, made_for) = plan.key.nearest_program(&run.program, run.processes.unwrap_or(1));
        let is_planned = |processes| {
            let program = (run.program.as_str(), processes);
            applied.iter().any(|applied| applied.plan.key.programs().any(|planned| planned == program))
        };
        if !is_own(plan) {
            others.insert(format!("`{application}`"));
        } else if let Some(processes) =
            run.processes.filter(|processes| *processes != made_for && !is_planned(*processes))
        {
            let policy = plan.policy;
            said.insert(format!(
                "the plan was made for {made_for} processes, these were {processes}; the nearest plan was taken ({policy})"
            ));
        }
    }
    // A program with plans of its own does not hear of other programs' files.
    if !others.is_empty() && !applied.iter().any(|applied| is_own(&applied.plan)) {
        let plans = if others.len() == 1 { "the plan was" } else { "the plans were" };
        let others = others.into_iter().collect::<Vec<_>>().join(", ");
        said.insert(format!("{plans} made for {others}, this was `{}`; the nearest plan was taken", run.program));
    }
    said
}

/// What a command runs, by the name that a plan has for it if one does: the program's own, that of the file behind a link, or behind a
/// launcher that is not known, or of what a command of that name became when it was traced.
fn planned_run(command: &[OsString], plans: &[&Plan]) -> Option<mpi::Run> {
    let run = mpi::program_and_processes(command)?;
    let is_planned = |name: &String| plans.iter().any(|plan| plan.key.names(name));
    if is_planned(&run.program) {
        return Some(run);
    }
    if let Some(program) = executable_behind(command).and_then(|path| file_name(&path)).filter(is_planned) {
        return Some(mpi::Run { program, processes: run.processes });
    }
    let words = command.iter().skip(1);
    if let Some(program) = words.filter_map(|word| file_name(Path::new(word))).find(is_planned) {
        return Some(mpi::Run { program, processes: None });
    }
    // Last, since shells and interpreters become many programs.
    let name = name_behind(command)?;
    match plans.iter().find_map(|plan| plan.key.program_started_as(&name)) {
        Some(program) => Some(mpi::Run { program: program.to_owned(), processes: run.processes }),
        None => Some(run),
    }
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// Whether an ordinary file stands there, such as one that was released; what cannot be read may be managed.
fn is_ordinary(path: &Path) -> bool {
    let read = File::open(path).map(|file| read_stub(&file, path));
    matches!(read, Ok(Ok(None)))
}
