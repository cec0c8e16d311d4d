//! `stripewise migrate`: moves of regions under way, and control of them.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use stripewise::Interrupt;
use stripewise::Store;
use stripewise::daemon::online::{OnlineStatus, share};
use stripewise::daemon::socket;
use stripewise::moves::{list, report_pause, state_words, totals};
use stripewise::progress::Task;
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, counted, duration};
use stripewise_layout::{Cluster, Layout, ServerId};
use stripewise_planner::layout_text;
use stripewise_store::protocol::{
    Admin, MigrateBandwidth, MoveControl, MoveNumber, MoveState, MoveStatus, MoveTotals, WhichMoves,
};

/// How often `wait` looks.
const LOOK: Duration = Duration::from_millis(50);
/// Ended moves that the text shows.
const ENDED_SHOWN: usize = 10;

/// Show, pause, resume or cancel moves of regions, or limit their bandwidth
///
/// Moves are run by whatever process serves the cluster: `stripewise daemon`, `stripewise run`, or the command that ordered them. Programs
/// read and write meanwhile.
#[derive(Args, Debug)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
Examples:
  stripewise migrate status
  stripewise migrate pause
  stripewise migrate cancel data.h5
  stripewise migrate bandwidth 50MiB
  stripewise migrate status --json | jq '.totals.left_bytes'"
)]
pub(crate) struct MigrateArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Show the queue, what is under way, and what ended last
    Status,
    /// Wait until no move is left, with a bar; Ctrl-C ends the waiting, not the moves
    Wait,
    /// Begin no further move and copy no more, until resumed
    Pause,
    /// Go on
    Resume,
    /// Cancel moves that are not committed; their regions stay where they are
    Cancel(CancelArgs),
    /// How fast moves may copy, all together
    Bandwidth {
        /// auto (what programs leave), unlimited, or bytes per second such as 50MiB
        bandwidth: MigrateBandwidth,
    },
}

#[derive(Args, Debug)]
struct CancelArgs {
    /// A managed file, or the number of a move
    #[arg(value_name = "FILE|NUMBER", required_unless_present = "all")]
    which: Option<String>,

    /// All moves
    #[arg(long, conflicts_with = "which")]
    all: bool,
}

#[derive(Serialize)]
struct Shown {
    /// The process id of the daemon, if one runs.
    daemon: Option<u32>,
    /// Of a daemon that plans while programs run.
    online: Option<OnlineStatus>,
    totals: TotalsShown,
    moves: Vec<MoveShown>,
}

#[derive(Serialize)]
struct TotalsShown {
    paused: Option<String>,
    bandwidth: String,
    queued: u64,
    active: u64,
    done: u64,
    failed: u64,
    cancelled: u64,
    moved_bytes: u64,
    copied_bytes: u64,
    left_bytes: u64,
}

#[derive(Serialize)]
struct MoveShown {
    number: u64,
    file: stripewise_layout::FileId,
    path: String,
    region: u32,
    from: String,
    to: String,
    state: &'static str,
    /// What it waits for, or why it failed.
    why: Option<String>,
    copied_bytes: u64,
    total_bytes: u64,
}

pub(crate) fn run(context: &Context, arguments: MigrateArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    match arguments.action {
        Action::Status => status(context, &store)?,
        Action::Wait => wait(context, &store, interrupt)?,
        Action::Pause => {
            control(context, &store, MoveControl::Pause { why: "by `stripewise migrate pause`".to_owned() }, "paused")?;
        }
        Action::Resume => control(context, &store, MoveControl::Resume, "resumed")?,
        Action::Cancel(arguments) => cancel(context, &store, &arguments)?,
        Action::Bandwidth { bandwidth } => {
            let said = format!("moves copy at {bandwidth}");
            control(context, &store, MoveControl::Bandwidth(bandwidth), &said)?;
        }
    }
    Ok(Verdict::Done)
}

fn status(context: &Context, store: &Store) -> Result<()> {
    let (totals, moves) = list(store, None)?;
    let daemon = socket::daemon_of(&store.cluster.state);
    let online = daemon.and_then(|_| online_status(&store.cluster));
    if context.json {
        let moves = moves.iter().map(|status| shown(status, &store.cluster)).collect();
        return context.object(&Shown { daemon, online, totals: totals_shown(&totals), moves });
    }
    match daemon {
        Some(process) => context.line(format_args!("daemon     process {process}"))?,
        None => context.line("daemon     none")?,
    }
    if let Some(online) = &online {
        for line in online_lines(online) {
            context.line(line)?;
        }
    }
    if let Some(why) = &totals.paused {
        context.line(format_args!("paused     {why}"))?;
    }
    context.line(format_args!("bandwidth  {}", totals.bandwidth))?;
    context.line(format_args!(
        "moves      {} queued, {} under way, {} done, {} failed, {} cancelled",
        totals.queued, totals.active, totals.done, totals.failed, totals.cancelled
    ))?;
    context.line(format_args!("bytes      {} moved, {} to go", bytes(totals.moved_bytes), bytes(totals.left_bytes)))?;
    let ended = moves.iter().filter(|status| status.state.is_final()).count();
    let mut left_out = ended.saturating_sub(ENDED_SHOWN);
    let mut table = Table::new(&[">move", "state", ">copied", ">of", ">region", "file", "to", ""]);
    let mut rows = 0;
    for status in &moves {
        if status.state.is_final() && left_out > 0 {
            left_out -= 1;
            continue;
        }
        let row = shown(status, &store.cluster);
        rows += 1;
        table.row([
            row.number.to_string(),
            row.state.to_owned(),
            bytes(row.copied_bytes),
            bytes(row.total_bytes),
            row.region.to_string(),
            row.path,
            row.to,
            row.why.unwrap_or_default(),
        ]);
    }
    if rows > 0 { context.line(table) } else { Ok(()) }
}

/// What the daemon says of its planning; `None` if it does none, or is just ending.
fn online_status(cluster: &Cluster) -> Option<OnlineStatus> {
    let answer = socket::ask(&cluster.state, "GET", "/online").filter(|answer| answer.status == 200)?;
    serde_json::from_str(&answer.body).ok()
}

fn online_lines(online: &OnlineStatus) -> [String; 2] {
    let OnlineStatus { policy, windows, files, window_requests, last, moves_ordered, .. } = online;
    let seen = share(online.window_requests_seen, *window_requests);
    [
        format!(
            "online     {policy}, every {}; {} so far, {} ordered",
            duration(online.window_s),
            counted(*windows as usize, "window", "windows"),
            counted(*moves_ordered as usize, "move", "moves")
        ),
        format!(
            "last       {} of {}, {seen} seen; {last}",
            counted(*window_requests as usize, "request", "requests"),
            counted(*files, "file", "files")
        ),
    ]
}

fn totals_shown(totals: &MoveTotals) -> TotalsShown {
    TotalsShown {
        paused: totals.paused.clone(),
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

fn shown(status: &MoveStatus, cluster: &Cluster) -> MoveShown {
    let (state, why) = state_words(&status.state);
    MoveShown {
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

fn text_of(stripes: &[(u16, u32)], cluster: &Cluster) -> String {
    let layout = Layout::new(stripes.iter().map(|(server, size)| (ServerId(*server), *size)));
    layout.map_or_else(|_| String::new(), |layout| layout_text(&layout, cluster))
}

fn wait(context: &Context, store: &Store, interrupt: Interrupt) -> Result<()> {
    let (mut bar, mut pause_told): (Option<Box<dyn Task>>, _) = (None, None);
    let before = totals(store)?;
    let mut now = before.clone();
    while now.queued + now.active > 0 && !interrupt.came() {
        report_pause(&now, &mut pause_told, context.voice());
        // Later orders make the way longer; the bar is of what was there first.
        let all = before.left_bytes;
        bar.get_or_insert_with(|| context.voice().bytes(all, "moving")).set(all.saturating_sub(now.left_bytes));
        std::thread::sleep(LOOK);
        now = totals(store)?;
    }
    drop(bar);
    if interrupt.came() {
        bail!(
            "stopped waiting; {} left, and they go on",
            counted((now.queued + now.active) as usize, "move is", "moves are")
        );
    }
    let failed = now.failed.saturating_sub(before.failed);
    if failed > 0 && now.since_ns == before.since_ns {
        bail!(
            "{} meanwhile; `stripewise migrate status` says why",
            counted(failed as usize, "move failed", "moves failed")
        );
    }
    Ok(())
}

/// Moves run in the process that serves; if that is this command, there are none.
fn control(context: &Context, store: &Store, control: MoveControl, said: &str) -> Result<()> {
    if store.is_broker() {
        bail!(
            "no other process serves the cluster, so nothing is being moved; start `stripewise daemon` or `stripewise run` first"
        );
    }
    store.done(Admin::ControlMoves(control))?;
    // A daemon notes a pause, which is to outlive the process that serves; without one it ends with that.
    let _ = socket::ask(&store.cluster.state, "POST", "/adopt");
    if context.json {
        return status(context, store);
    }
    context.say(said);
    Ok(())
}

fn cancel(context: &Context, store: &Store, arguments: &CancelArgs) -> Result<()> {
    let (_, moves) = list(store, None)?;
    let unfinished: Vec<&MoveStatus> = moves.iter().filter(|status| !status.state.is_final()).collect();
    let which = match arguments.which.as_deref() {
        None => WhichMoves::All,
        // A file whose name is a number is named with its directory.
        Some(text) => match text.parse::<u64>() {
            Ok(number) => WhichMoves::One(one(&unfinished, &moves, MoveNumber(number))?),
            Err(_) => WhichMoves::File(store.managed(Path::new(text), false)?.striped.id()),
        },
    };
    let meant = unfinished.iter().filter(|status| match which {
        WhichMoves::File(file) => status.file == file,
        WhichMoves::One(number) => status.number == number,
        _ => true,
    });
    let said = match meant.filter(|status| status.state != MoveState::Freeing).count() {
        0 => "no moves to cancel".to_owned(),
        count => format!("{} cancelled", counted(count, "move", "moves")),
    };
    control(context, store, MoveControl::Cancel(which), &said)
}

fn one(unfinished: &[&MoveStatus], all: &[MoveStatus], number: MoveNumber) -> Result<MoveNumber> {
    if unfinished.iter().any(|status| status.number == number) {
        return Ok(number);
    }
    match all.iter().find(|status| status.number == number) {
        Some(status) => bail!("move {} has ended ({})", number.0, state_words(&status.state).0),
        None => bail!("there is no move {}; `stripewise migrate status` lists them", number.0),
    }
}
