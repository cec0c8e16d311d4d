//! The queue of moves of regions: what is in it, and control of it.
//!
//! Moves are run by whatever process serves the cluster. The functions that control them refuse to
//! do so in a process that serves it itself, because no move can be under way there.

use crate::daemon::{OnlineStatus, socket};
use crate::interrupt::Interrupt;
use crate::moves::{MoveError, list, report_pause, state_words, totals};
use crate::progress::{Task, Voice};
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use stripewise_layout::figures::counted;
use stripewise_layout::{Cluster, FileId, Layout, ServerId};
use stripewise_planner::layout_text;
use stripewise_store::protocol::{
    Admin, MigrateBandwidth, MoveControl, MoveNumber, MoveState, MoveStatus, MoveTotals, WhichMoves,
};
use thiserror::Error;

/// How often [`wait`] asks the broker.
const POLL: Duration = Duration::from_millis(50);

/// Why moves could not be listed or controlled.
#[derive(Debug, Error)]
pub enum MigrateError {
    /// The broker or a file cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The broker does not list its moves.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// This process serves the cluster.
    #[error(
        "no other process serves the cluster, so nothing is being moved; start `stripewise daemon` or `stripewise run` first"
    )]
    NothingServes,
    /// An interrupt ended the waiting.
    #[error("stopped waiting; {} left, and they go on", counted(*left as usize, "move is", "moves are"))]
    Stopped {
        /// Moves that are queued or under way.
        left: u64,
    },
    /// Moves failed while they were waited for.
    #[error(
        "{} meanwhile; `stripewise migrate status` says why",
        counted(*failed as usize, "move failed", "moves failed")
    )]
    Failed {
        /// How many.
        failed: u64,
    },
    /// The move that is to be cancelled is over.
    #[error("move {number} has ended ({state})")]
    Ended {
        /// Number of the move.
        number: u64,
        /// As [`MigrateMove::state`].
        state: &'static str,
    },
    /// No move has that number.
    #[error("there is no move {number}; `stripewise migrate status` lists them")]
    NoMove {
        /// The number.
        number: u64,
    },
}

type Result<T> = std::result::Result<T, MigrateError>;

/// The queue of moves.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MigrateStatus {
    /// Process id of the daemon, if one runs.
    pub daemon: Option<u32>,
    /// Of a cluster of many hosts: who follows a plan or the programs, on whichever host.
    pub guide: Option<String>,
    /// Of a daemon that plans while programs run.
    pub online: Option<OnlineStatus>,
    /// Of all moves since the broker began.
    pub totals: MigrateTotals,
    /// Moves that are queued or under way, and those that ended last, by number.
    pub moves: Vec<MigrateMove>,
}

/// All moves since the broker began.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MigrateTotals {
    /// Why nothing is moved; `None`: moves go on.
    pub paused: Option<String>,
    /// `auto`, `unlimited`, or a size per second.
    pub bandwidth: String,
    /// Moves that have not begun.
    pub queued: u64,
    /// Moves under way.
    pub active: u64,
    /// Regions that have their new layout.
    pub done: u64,
    /// Moves that failed.
    pub failed: u64,
    /// Moves that were cancelled.
    pub cancelled: u64,
    /// Bytes of the regions that were moved.
    pub moved_bytes: u64,
    /// Bytes written to new places, those written again included.
    pub copied_bytes: u64,
    /// Bytes that queued and active moves have yet to copy.
    pub left_bytes: u64,
}

/// The move of one region.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MigrateMove {
    /// Its number, in the order of the queue.
    pub number: u64,
    /// The file's id.
    pub file: FileId,
    /// Path of the file when the move was ordered.
    pub path: String,
    /// Number of the region.
    pub region: u32,
    /// Layout before, as `stat` shows it.
    pub from: String,
    /// Layout after.
    pub to: String,
    /// `queued`, `copying`, `sealed`, `committing`, `freeing`, `done`, `failed` or `cancelled`.
    pub state: &'static str,
    /// What it waits for, or why it failed.
    pub why: Option<String>,
    /// Bytes written to the new place.
    pub copied_bytes: u64,
    /// Bytes of the region.
    pub total_bytes: u64,
}

impl MigrateMove {
    /// Whether it is done, failed or cancelled.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, "done" | "failed" | "cancelled")
    }

    fn of(status: &MoveStatus, cluster: &Cluster) -> Self {
        let (state, why) = state_words(&status.state);
        Self {
            number: status.number.0,
            file: status.file,
            path: status.path.clone(),
            region: status.region.0,
            from: text_of(&status.from, cluster),
            to: text_of(&status.to, cluster),
            state,
            why: why.map(str::to_owned),
            copied_bytes: status.copied_bytes,
            total_bytes: status.total_bytes,
        }
    }
}

impl From<MoveTotals> for MigrateTotals {
    fn from(totals: MoveTotals) -> Self {
        Self {
            paused: totals.paused,
            bandwidth: totals.bandwidth.to_string(),
            queued: totals.queued,
            active: totals.active,
            done: totals.done,
            failed: totals.failed,
            cancelled: totals.cancelled,
            moved_bytes: totals.moved_bytes,
            copied_bytes: totals.copied_bytes,
            left_bytes: totals.left_bytes,
        }
    }
}

fn text_of(stripes: &[(u16, u32)], cluster: &Cluster) -> String {
    let layout = Layout::new(stripes.iter().map(|(server, size)| (ServerId(*server), *size)));
    layout.map_or_else(|_| String::new(), |layout| layout_text(&layout, cluster))
}

/// The queue, what is under way, and what ended last.
///
/// # Errors
///
/// [`MigrateError::Move`].
pub fn status(store: &Store) -> Result<MigrateStatus> {
    let (totals, moves) = list(store, None)?;
    let daemon = socket::daemon_of(&store.cluster.state);
    Ok(MigrateStatus {
        daemon,
        guide: totals.guide.clone(),
        online: daemon.and_then(|_| online_status(&store.cluster)),
        totals: totals.into(),
        moves: moves.iter().map(|status| MigrateMove::of(status, &store.cluster)).collect(),
    })
}

/// What the daemon reports of its planning; `None` if it does none, or is just ending.
fn online_status(cluster: &Cluster) -> Option<OnlineStatus> {
    let answer = socket::ask(&cluster.state, "GET", "/online").filter(|answer| answer.status == 200)?;
    serde_json::from_str(&answer.body).ok()
}

/// Waits until no move is left. An interrupt ends the waiting, not the moves.
///
/// # Errors
///
/// [`MigrateError::Stopped`] after an interrupt, [`MigrateError::Failed`] if moves failed meanwhile,
/// [`MigrateError::Move`].
pub fn wait(store: &Store, voice: &Voice, interrupt: Interrupt) -> Result<()> {
    let (mut bar, mut reported_pause): (Option<Box<dyn Task>>, _) = (None, None);
    let before = totals(store)?;
    let mut now = before.clone();
    while now.queued + now.active > 0 && !interrupt.came() {
        report_pause(&now, &mut reported_pause, voice);
        // Later orders make the way longer; the bar is of what was there first.
        let all = before.left_bytes;
        bar.get_or_insert_with(|| voice.bytes(all, "moving")).set(all.saturating_sub(now.left_bytes));
        std::thread::sleep(POLL);
        now = totals(store)?;
    }
    drop(bar);
    if interrupt.came() {
        return Err(MigrateError::Stopped { left: now.queued + now.active });
    }
    let failed = now.failed.saturating_sub(before.failed);
    if failed > 0 && now.since_ns == before.since_ns {
        return Err(MigrateError::Failed { failed });
    }
    Ok(())
}

/// Begins no further move and copies no more, until [`resume`].
///
/// # Errors
///
/// [`MigrateError::NothingServes`] or [`MigrateError::Store`].
pub fn pause(store: &Store) -> Result<()> {
    control(store, MoveControl::Pause { why: "by `stripewise migrate pause`".to_owned() })
}

/// Lets moves go on.
///
/// # Errors
///
/// [`MigrateError::NothingServes`] or [`MigrateError::Store`].
pub fn resume(store: &Store) -> Result<()> {
    control(store, MoveControl::Resume)
}

/// Sets how fast moves may copy, all together.
///
/// # Errors
///
/// [`MigrateError::NothingServes`] or [`MigrateError::Store`].
pub fn set_bandwidth(store: &Store, bandwidth: MigrateBandwidth) -> Result<()> {
    control(store, MoveControl::Bandwidth(bandwidth))
}

/// Which moves are cancelled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cancel {
    /// Every one that is not committed.
    All,
    /// The one with this number.
    Move(u64),
    /// Those of the managed file at this path.
    File(PathBuf),
}

/// Cancels moves that are not committed; their regions stay where they are. Returns how many.
///
/// # Errors
///
/// [`MigrateError::Ended`] or [`MigrateError::NoMove`] of a number, [`MigrateError::NothingServes`],
/// [`MigrateError::Store`].
pub fn cancel(store: &Store, which: &Cancel) -> Result<usize> {
    let (_, moves) = list(store, None)?;
    let which = match which {
        Cancel::All => WhichMoves::All,
        Cancel::Move(number) => WhichMoves::One(unfinished(&moves, *number)?),
        Cancel::File(path) => WhichMoves::File(store.managed(path, false)?.striped.id()),
    };
    let is_meant = |status: &&MoveStatus| match which {
        WhichMoves::File(file) => status.file == file,
        WhichMoves::One(number) => status.number == number,
        _ => true,
    };
    let open = moves.iter().filter(|status| !status.state.is_final() && status.state != MoveState::Freeing);
    let count = open.filter(is_meant).count();
    control(store, MoveControl::Cancel(which))?;
    Ok(count)
}

fn unfinished(moves: &[MoveStatus], number: u64) -> Result<MoveNumber> {
    match moves.iter().find(|status| status.number.0 == number) {
        Some(status) if status.state.is_final() => {
            Err(MigrateError::Ended { number, state: state_words(&status.state).0 })
        }
        Some(status) => Ok(status.number),
        None => Err(MigrateError::NoMove { number }),
    }
}

/// Moves run in the process that serves; if that is this one, there are none.
fn control(store: &Store, control: MoveControl) -> Result<()> {
    if store.serves_alone()? {
        return Err(MigrateError::NothingServes);
    }
    store.done(Admin::ControlMoves(control))?;
    // A daemon notes a pause, which is to outlive the process that serves; without one it ends with
    // that.
    let _ = socket::ask(&store.cluster.state, "POST", "/adopt");
    Ok(())
}
