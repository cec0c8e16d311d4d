//! `stripewise apply`: bring the files of a plan under management, placed as it says.

mod room;

use crate::context::Context;
use crate::interrupt;
use crate::ls::real;
use crate::output::Verdict;
use crate::sync::{self, Synced};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise::Interrupt;
use stripewise::Store;
use stripewise::applied;
use stripewise::messages::shown;
use stripewise::shell::quoted_path;
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, counted, grouped};
use stripewise_planner::{Plan, PlannedFile};
use stripewise_store::manage::{self, ManageError, Moving};
use stripewise_store::protocol::{Admin, ExpectedFile};

/// Bring the files of a plan under management
///
/// Existing data is copied in under a write lease and verified before the original is replaced; a file that is open elsewhere is
/// refused. Files that do not exist yet get their placement when a redirected program creates them. Every file is looked at, and
/// room found for all, before the first is touched. Replicas that the plan has get what room is left (see `stripewise sync`).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise apply plan.json --dry-run
  stripewise apply plan.json")]
pub(crate) struct ApplyArgs {
    plan: PathBuf,

    /// Say what would be done, and whether it could be; change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// What is to be done with one file.
#[derive(Serialize)]
struct Step {
    path: PathBuf,
    action: Action,
    size_bytes: u64,
    regions: u64,
    layouts: usize,
    /// Regions whose own layout has no room.
    fallback_regions: u64,
    /// Further copies of regions that the plan has.
    replicas: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    /// Copy the file in.
    Move,
    /// It does not exist: note its placement.
    Expect,
}

#[derive(Serialize)]
struct Shown {
    dry_run: bool,
    files: Vec<Step>,
    copied_bytes: u64,
}

pub(crate) fn run(context: &Context, arguments: ApplyArgs) -> Result<Verdict> {
    let cluster = context.session.cluster()?;
    // Before signals are noted only: a pipe may have nothing for long.
    let plan = Plan::load(&arguments.plan)?;
    let interrupt = interrupt::watch()?;
    plan.check(&cluster, &arguments.plan)?;
    check_paths(&plan, &arguments.plan)?;
    if !plan.verdict.apply {
        context.say(format_args!("the plan itself says: {}", plan.verdict.reason));
    }
    check_room(&plan)?;
    let mut steps = plan.files.iter().map(step).collect::<Result<Vec<Step>>>()?;
    let store = Store::open(&context.session)?;
    room::check(&store, &plan.files, &mut steps)?;
    if arguments.dry_run {
        show(context, steps, 0, true)?;
        return Ok(Verdict::Done);
    }
    let mut copied_bytes = 0;
    let mut moved: Vec<&Path> = Vec::new();
    let mut complaints = Vec::new();
    for (file, step) in plan.files.iter().zip(&steps) {
        match step.action {
            Action::Move => {
                let bytes = bring_in(context, &store, &step.path, file, interrupt);
                copied_bytes += bytes.inspect_err(|_| tell_moved(context, &moved))?;
                moved.push(&step.path);
            }
            Action::Expect => {}
        }
    }
    // Files that were moved too: should one be removed and made again, it lies as planned.
    let expected = plan.files.iter().zip(&steps).map(expected).collect::<Result<Vec<ExpectedFile>>>()?;
    if !store.client.expect(expected, &|| !interrupt.came())? {
        tell_moved(context, &moved);
        bail!("stopped; apply the plan again to have all its files expected");
    }
    // Behind all places, since they take what room those leave.
    for (file, step) in
        plan.files.iter().zip(&steps).filter(|(_, step)| step.action == Action::Move && step.replicas > 0)
    {
        complaints.extend(replicate(context, &store, &step.path, file, interrupt)?.complaint());
    }
    applied::remember(&cluster, &plan)?;
    show(context, steps, copied_bytes, false)?;
    complaints.iter().for_each(|complaint| context.say(complaint));
    Ok(Verdict::Done)
}

/// The file, which is managed, gets the plan's replicas.
fn replicate(
    context: &Context,
    store: &Store,
    path: &Path,
    file: &PlannedFile,
    interrupt: Interrupt,
) -> Result<Synced> {
    let managed = store.managed(path, false)?;
    let id = managed.striped.id();
    store.done(Admin::SetReplicas { file: id, wanted: sync::wanted(&file.windows[0].replicas) })?;
    sync::sync(context, store, path, (id, managed.striped.region_bytes()), interrupt)
}

/// Before an error: files before the one that failed stay managed.
fn tell_moved(context: &Context, moved: &[&Path]) {
    for path in moved {
        let (path, word) = (path.display(), quoted_path(path));
        context
            .say(format_args!("{path} was moved before and stays managed; `stripewise release {word}` turns it back"));
    }
}

fn expected((file, step): (&PlannedFile, &Step)) -> Result<ExpectedFile> {
    let replicas = Some(sync::wanted(&file.windows[0].replicas));
    Ok(ExpectedFile { path: utf8(&step.path)?, placement: file.initial().clone(), replicas })
}

/// A relative path means another file in every directory.
fn check_paths(plan: &Plan, path: &Path) -> Result<()> {
    match plan.files.iter().find(|file| !Path::new(&file.path).is_absolute()) {
        Some(file) => bail!(
            "{}: the file `{}` is named by a relative path, so nobody knows which is meant; nothing was changed. Write its path from the root",
            path.display(),
            file.path.escape_debug()
        ),
        None => Ok(()),
    }
}

fn utf8(path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .with_context(|| format!("{} is not UTF-8; managed files have names in UTF-8", shown(path)))
}

/// A plan made for more room than there is must not be begun.
fn check_room(plan: &Plan) -> Result<()> {
    let full = plan.servers.iter().find(|server| server.room_bytes.is_some_and(|room| room < server.used_bytes));
    if let Some(server) = full {
        bail!(
            "server {} has room for {}, the plan needs {}; plan anew with fewer files, or give it more capacity",
            server.name,
            bytes(server.room_bytes.unwrap_or(0)),
            bytes(server.used_bytes)
        );
    }
    Ok(())
}

/// What is to be done with `file`; an error when it could not be.
fn step(file: &PlannedFile) -> Result<Step> {
    let path = real(Path::new(&file.path))?;
    let (action, size_bytes) = match path.symlink_metadata() {
        Ok(_) => (Action::Move, examine(&path)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (Action::Expect, 0),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", path.display())),
    };
    let placement = file.initial();
    let (regions, layouts) = (placement.planned_regions(), placement.layouts.len());
    let replicas = file.windows[0].replicas.iter().map(|replica| u64::from(replica.regions)).sum();
    Ok(Step { path, action, size_bytes, regions, layouts, fallback_regions: 0, replicas })
}

fn examine(path: &Path) -> Result<u64> {
    manage::examine(path).map_err(|error| match &error {
        ManageError::AlreadyManaged { .. } => {
            anyhow::anyhow!("{error}; to place it by another plan, `stripewise release {}` first", quoted_path(path))
        }
        _ => error.into(),
    })
}

fn bring_in(context: &Context, store: &Store, path: &Path, file: &PlannedFile, interrupt: Interrupt) -> Result<u64> {
    let placement = file.initial();
    placement.check(store.cluster.servers.len()).map_err(|what| anyhow::anyhow!("{}: {what}", path.display()))?;
    // Copying and verifying count each.
    let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let bar = context.voice().bytes(size * 2, &format!("placing {}", path.display()));
    let progress = |done, _| bar.set(done);
    let moving = Moving { cancelled: Some(interrupt.flag()), progress: Some(&progress), ..Moving::default() };
    let moved = manage::apply(&store.client, path, placement, &moving)?;
    drop(bar);
    if let Some(note) = moved.note {
        context.say(format_args!("{}: {note}", path.display()));
    }
    Ok(moved.copied_bytes)
}

fn show(context: &Context, files: Vec<Step>, copied_bytes: u64, dry_run: bool) -> Result<()> {
    if context.json {
        return context.object(&Shown { dry_run, files, copied_bytes });
    }
    let mut table = Table::new(&["action", ">size", ">regions", ">layouts", "file"]);
    for step in &files {
        let action = match (step.action, dry_run) {
            (Action::Move, true) => "would move",
            (Action::Move, false) => "moved",
            (Action::Expect, true) => "would expect",
            (Action::Expect, false) => "expected",
        };
        let size = if step.action == Action::Expect { "-".to_owned() } else { bytes(step.size_bytes) };
        table.row([
            action.to_owned(),
            size,
            grouped(step.regions as i64),
            step.layouts.to_string(),
            step.path.display().to_string(),
        ]);
    }
    context.line(table)?;
    for step in files.iter().filter(|step| step.fallback_regions > 0) {
        context.say(format_args!(
            "{}: {} in the fallback layout, since servers of their own are full",
            step.path.display(),
            counted(step.fallback_regions as usize, "region lies", "regions lie")
        ));
    }
    if !dry_run {
        context.say("next: `stripewise run -- PROGRAM ...`");
    }
    Ok(())
}
