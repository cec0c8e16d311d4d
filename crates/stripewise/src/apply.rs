//! Bringing the files of a plan under management, placed as it says.

mod capacity;
mod error;
mod step;

pub use crate::applied::AppliedError;
pub use error::ApplyError;
pub use step::{Action, Step};

use crate::applied;
use crate::interrupt::Interrupt;
use crate::messages::shown;
use crate::named_plan;
use crate::paths::{OnPath as _, real};
use crate::plan_space;
use crate::progress::Voice;
use crate::replicas::{Synced, sync, wanted};
use crate::session::Session;
use crate::shell::quoted_path;
use crate::store::Store;
use std::path::Path;
use stripewise_layout::Cluster;
use stripewise_planner::{Plan, PlannedFile};
use stripewise_store::manage::{self, ManageError, Moving};
use stripewise_store::protocol::{Admin, ExpectedFile};

/// How a plan is applied.
#[derive(Clone, Default, Debug)]
pub struct ApplyOptions {
    /// Look at everything, change nothing.
    pub dry_run: bool,
    /// Apply also a plan whose own verdict is to leave the files where they are.
    pub force: bool,
    /// Hosts that are not asked for programs that have the files open.
    pub unchecked_hosts: Vec<String>,
}

/// What was done, or would be.
#[derive(Debug)]
pub struct Applied {
    /// One for each file of the plan, in its order.
    pub steps: Vec<Step>,
    /// Bytes that were copied in; holes are not.
    pub copied_bytes: u64,
    /// What a person should know of replicas that are missing.
    pub complaints: Vec<String>,
}

/// Looks at every file of `plan`, read from `path`, and finds space for all before it touches the first; a dry run touches none.
///
/// # Errors
/// When the plan itself says to leave the files, and `force` is not given, does not fit the cluster or its files, a file cannot be moved in, or an interrupt comes. Files that were moved in before stay
/// managed, and are named to whoever listens.
pub fn apply(
    session: &Session,
    cluster: &Cluster,
    (plan, path): (&Plan, &Path),
    options: &ApplyOptions,
    interrupt: Interrupt,
) -> Result<Applied, ApplyError> {
    let ApplyOptions { dry_run, force, unchecked_hosts } = options;
    let (dry_run, force) = (*dry_run, *force);
    plan.check(cluster, path)?;
    check_paths(plan, path)?;
    check_space(plan)?;
    check_verdict(session, plan, path, dry_run, force)?;
    let mut steps = plan.files.iter().map(step).collect::<Result<Vec<Step>, ApplyError>>()?;
    let store = Store::open(session)?;
    check_drained(plan, path, cluster, &store)?;
    capacity::check(&store, &plan.files, &mut steps)?;
    for step in steps.iter().filter(|step| step.action == Action::Move) {
        manage::examine_elsewhere(&store.client, &step.path, unchecked_hosts)?;
    }
    if dry_run {
        return Ok(Applied { steps, copied_bytes: 0, complaints: Vec::new() });
    }
    let voice = session.voice();
    let mut copied_bytes = 0;
    let mut moved: Vec<&Path> = Vec::new();
    let mut complaints = Vec::new();
    for (file, step) in plan.files.iter().zip(&steps) {
        match step.action {
            Action::Move => {
                let bytes = bring_in(voice, &store, &step.path, file, (unchecked_hosts, interrupt));
                copied_bytes += bytes.inspect_err(|_| report_moved(voice, &moved))?;
                moved.push(&step.path);
            }
            Action::Expect => {}
        }
    }
    // Files that were moved too: should one be removed and made again, it lies as planned.
    let files = plan.files.iter().zip(&steps);
    let expected = files.clone().map(expected).collect::<Result<Vec<ExpectedFile>, ApplyError>>()?;
    if !store.client.expect(expected, &|| !interrupt.came())? {
        report_moved(voice, &moved);
        return Err(ApplyError::Stopped);
    }
    // After all places, since they take what space those leave.
    for (file, step) in files.filter(|(_, step)| step.action == Action::Move && step.replicas > 0) {
        complaints.extend(replicate(voice, &store, &step.path, file, interrupt)?.complaint());
    }
    applied::remember(cluster, plan)?;
    Ok(Applied { steps, copied_bytes, complaints })
}

/// The file, which is managed, gets the plan's replicas.
fn replicate(
    voice: &Voice,
    store: &Store,
    path: &Path,
    file: &PlannedFile,
    interrupt: Interrupt,
) -> Result<Synced, ApplyError> {
    let managed = store.managed(path, false)?;
    let id = managed.striped.id();
    store.done(Admin::SetReplicas { file: id, wanted: wanted(&file.windows[0].replicas) })?;
    Ok(sync(store, voice, path, interrupt)?)
}

/// Before an error: files before the one that failed stay managed.
fn report_moved(voice: &Voice, moved: &[&Path]) {
    for path in moved {
        let (path, word) = (shown(path), quoted_path(path));
        voice.say(format_args!("{path} was moved before and stays managed; `stripewise release {word}` turns it back"));
    }
}

fn expected((file, step): (&PlannedFile, &Step)) -> Result<ExpectedFile, ApplyError> {
    let replicas = Some(wanted(&file.windows[0].replicas));
    Ok(ExpectedFile { path: utf8(&step.path)?, placement: file.initial().clone(), replicas })
}

/// A plan that is not worth its move is applied only where that is wanted all the same.
fn check_verdict(session: &Session, plan: &Plan, path: &Path, dry_run: bool, force: bool) -> Result<(), ApplyError> {
    let Err(refused) = named_plan::check_verdict(plan, path, "--force") else { return Ok(()) };
    let reason = &refused.reason;
    match (force, dry_run) {
        (true, _) => session.say(format_args!("the plan itself says: {reason}")),
        (false, true) => {
            session.say(format_args!("the plan itself says: {reason}; without --force it would not be applied"))
        }
        (false, false) => return Err(refused.into()),
    }
    Ok(())
}

/// A relative path means another file in every directory, and the mapping table has names in UTF-8.
fn check_paths(plan: &Plan, path: &Path) -> Result<(), ApplyError> {
    if let Some(file) = plan.files.iter().find(|file| !file.name().is_absolute()) {
        return Err(ApplyError::Relative { plan: path.to_owned(), file: file.path.clone() });
    }
    // Before the first file is touched.
    match plan.files.iter().find(|file| file.managed_name().is_none()) {
        Some(file) => Err(ApplyError::NotUtf8 { path: file.name() }),
        None => Ok(()),
    }
}

fn utf8(path: &Path) -> Result<String, ApplyError> {
    path.to_str().map(str::to_owned).ok_or_else(|| ApplyError::NotUtf8 { path: path.to_owned() })
}

/// A plan made for more capacity than there is must not be begun.
fn check_space(plan: &Plan) -> Result<(), ApplyError> {
    let full =
        plan.servers.iter().find(|server| server.room_bytes.is_some_and(|capacity| capacity < server.used_bytes));
    if let Some(server) = full {
        return Err(ApplyError::Full {
            server: server.name.clone(),
            capacity_bytes: server.room_bytes.unwrap_or(0),
            needed_bytes: server.used_bytes,
        });
    }
    Ok(())
}

/// A plan with a stripe on a server that takes nothing new would lie elsewhere than it says.
fn check_drained(plan: &Plan, path: &Path, cluster: &Cluster, store: &Store) -> Result<(), ApplyError> {
    let servers = plan_space::drained_of(plan, cluster, &store.drained()?);
    match servers.first() {
        Some(first) => Err(ApplyError::Drained { plan: path.to_owned(), first: first.clone(), servers }),
        None => Ok(()),
    }
}

/// What is to be done with `file`; an error when it could not be.
fn step(file: &PlannedFile) -> Result<Step, ApplyError> {
    let path = real(&file.name())?;
    let (action, size_bytes) = match path.symlink_metadata() {
        Ok(_) => (Action::Move, examine(&path)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (Action::Expect, 0),
        Err(error) => Err(error).on("look at", &path)?,
    };
    let placement = file.initial();
    let (regions, layouts) = (placement.planned_regions(), placement.layouts.len());
    let replicas = file.windows[0].replicas.iter().map(|replica| u64::from(replica.regions)).sum();
    Ok(Step { path, action, size_bytes, regions, layouts, fallback_regions: 0, replicas })
}

fn examine(path: &Path) -> Result<u64, ApplyError> {
    manage::examine(path).map_err(|error| match &error {
        ManageError::AlreadyManaged { .. } => {
            ApplyError::AlreadyManaged { what: error.to_string(), word: quoted_path(path) }
        }
        _ => error.into(),
    })
}

fn bring_in(
    voice: &Voice,
    store: &Store,
    path: &Path,
    file: &PlannedFile,
    (unchecked_hosts, interrupt): (&[String], Interrupt),
) -> Result<u64, ApplyError> {
    let placement = file.initial();
    let checked = placement.check(store.cluster.servers.len());
    checked.map_err(|what| ApplyError::Placement { path: path.to_owned(), what })?;
    // Copying and verifying count each.
    let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let bar = voice.bytes(size * 2, &format!("placing {}", shown(path)));
    let progress = |done, _| bar.set(done);
    let (cancelled, progress) = (Some(interrupt.flag()), Some(&progress as &dyn Fn(u64, u64)));
    let moving = Moving { cancelled, progress, unchecked_hosts, ..Moving::default() };
    let moved = manage::apply(&store.client, path, placement, &moving)?;
    drop(bar);
    if let Some(note) = moved.note {
        voice.say(format_args!("{}: {note}", shown(path)));
    }
    Ok(moved.copied_bytes)
}
