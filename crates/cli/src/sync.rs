//! `stripewise sync`: make the replicas of managed files anew where they are not what the file holds.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stripewise::Interrupt;
use stripewise::Store;
use stripewise::moves::{tell_pause, totals};
use stripewise::progress::Task;
use stripewise_layout::FileId;
use stripewise_layout::figures::counted;
use stripewise_planner::Replica;
use stripewise_store::protocol::{Admin, Reply, WantedReplicas};

/// How often the broker is asked how far it is: at first, and once it turns out to take long.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LONGEST_LOOK: Duration = Duration::from_millis(100);
/// How often syncs are ordered again that ended without a reason: by another broker's start, or by a program that went on writing.
const MOST_ORDERS: u32 = 3;

/// Make the replicas of managed files anew where the files were written since
///
/// A plan with replicas says which regions have further copies, in which layouts; reads go to the one that answers first. The first write to
/// a region takes it off its copies, which come back by this command, when the last writer closes the file, or when nobody has written it for a
/// while. Programs may go on reading and writing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise sync data.h5
  stripewise sync --json *.h5 | jq '.files[].fresh'")]
pub(crate) struct SyncArgs {
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Shown {
    files: Vec<Synced>,
}

/// What the replicas of one file are after a sync.
#[derive(Serialize)]
pub(crate) struct Synced {
    path: PathBuf,
    file: FileId,
    /// Replicas that its placed regions are to have.
    pub(crate) wanted: u64,
    /// Of those, such as hold what the file holds.
    pub(crate) fresh: u64,
    /// Of one that does not: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Synced {
    /// What is to be said of it; `None`: it has every replica.
    pub(crate) fn complaint(&self) -> Option<String> {
        let lacking = self.wanted.checked_sub(self.fresh).filter(|lacking| *lacking > 0)?;
        let why = self.why.as_deref().unwrap_or("programs write the file");
        let lacks = counted(lacking as usize, "replica is", "replicas are");
        Some(format!("{}: {lacks} missing of {}: {why}", self.path.display(), self.wanted))
    }
}

pub(crate) fn run(context: &Context, arguments: SyncArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let mut files = Vec::new();
    for path in &arguments.paths {
        let managed = store.managed(path, false)?;
        let file = managed.striped.id();
        files.push(sync(context, &store, path, (file, managed.striped.region_bytes()), interrupt)?);
    }
    let complaints: Vec<String> = files.iter().filter_map(Synced::complaint).collect();
    if context.json {
        context.object(&Shown { files })?;
    } else {
        for file in files.iter().filter(|file| file.complaint().is_none()) {
            let path = file.path.display();
            match file.wanted {
                0 => context
                    .say(format_args!("{path} is to have no replicas; `stripewise apply` of a plan gives it some")),
                wanted => {
                    let said = counted(wanted as usize, "replica holds", "replicas hold");
                    context.say(format_args!("{path}: {said} what the file holds"));
                }
            }
        }
    }
    for complaint in &complaints {
        context.say(complaint);
    }
    Ok(if complaints.is_empty() { Verdict::Done } else { Verdict::Finding })
}

/// As a plan names them.
pub(crate) fn wanted(replicas: &[Replica]) -> Vec<WantedReplicas> {
    let wanted = |replica: &Replica| WantedReplicas {
        first: replica.first,
        regions: replica.regions,
        layout: replica.layout.clone(),
    };
    replicas.iter().map(wanted).collect()
}

/// Makes the file's replicas and waits until all are made that can be.
pub(crate) fn sync(
    context: &Context,
    store: &Store,
    path: &Path,
    (file, region_bytes): (FileId, u64),
    interrupt: Interrupt,
) -> Result<Synced> {
    let (mut orders, mut pause, mut pause_told) = (0, FIRST_LOOK, None);
    let mut bar: Option<Box<dyn Task>> = None;
    loop {
        let Reply::Replicas { wanted, fresh, syncing, why } = store.admin(Admin::Replicas { file })? else {
            bail!("the broker answered a question for replicas with something else; use one version of stripewise");
        };
        let is_over = fresh == wanted || orders == MOST_ORDERS || (orders > 0 && why.is_some());
        if syncing == 0 && is_over {
            return Ok(Synced { path: path.to_owned(), file, wanted, fresh, why: why.filter(|_| fresh < wanted) });
        }
        if interrupt.came() {
            bail!(
                "stopped: {fresh} of {wanted} replicas of {} hold what it holds; the others are not read, and nothing is half made",
                path.display()
            );
        }
        if syncing == 0 {
            orders += 1;
            store.done(Admin::SyncReplicas { file })?;
            continue;
        }
        tell_pause(&totals(store)?, &mut pause_told, context.voice());
        let what = || format!("replicas of {}", path.display());
        let bar = bar.get_or_insert_with(|| context.voice().bytes(wanted * region_bytes, &what()));
        bar.set(fresh * region_bytes);
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_LOOK);
    }
}
