//! `stripewise migrate`: moves of regions under way, and control of them.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::Result;
use clap::{Args, Subcommand};
use stripewise::Store;
use stripewise::daemon::{OnlineStatus, share};
use stripewise::migrate::{self, Cancel, MigrateMove};
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, counted, duration};
use stripewise_store::protocol::MigrateBandwidth;

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
  stripewise migrate bandwidth 50MB/s
  stripewise migrate status --json | jq '.totals.left_bytes'"
)]
pub(crate) struct MigrateArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Show the queue, what is under way, and what ended last
    #[command(after_help = "\
Examples:
  stripewise migrate status
  stripewise migrate status --json | jq '.totals.left_bytes'")]
    Status,
    /// Wait until no move is left, with a bar; Ctrl-C ends the waiting, not the moves
    #[command(after_help = "\
Examples:
  stripewise restripe data.h5 --layout \"<0B,256KiB>\" --background
  stripewise migrate wait")]
    Wait,
    /// Begin no further move and copy no more, until resumed
    #[command(after_help = "\
Examples:
  stripewise migrate pause")]
    Pause,
    /// Go on
    #[command(after_help = "\
Examples:
  stripewise migrate resume")]
    Resume,
    /// Cancel moves that are not committed; their regions stay where they are
    #[command(after_help = "\
Examples:
  stripewise migrate cancel data.h5
  stripewise migrate cancel 17
  stripewise migrate cancel --all")]
    Cancel(CancelArgs),
    /// How fast moves may copy, all together
    #[command(after_help = "\
Examples:
  stripewise migrate bandwidth 50MB/s
  stripewise migrate bandwidth auto")]
    Bandwidth {
        /// auto (what programs leave), unlimited, or bytes per second such as 50MB/s
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

impl CancelArgs {
    fn which(self) -> Cancel {
        match self.which {
            None => Cancel::All,
            // A file whose name is a number is named with its directory.
            Some(text) => text.parse().map_or_else(|_| Cancel::File(text.clone().into()), Cancel::Move),
        }
    }
}

pub(crate) fn run(context: &Context, arguments: MigrateArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let said = match arguments.action {
        Action::Status => {
            status(context, &store)?;
            return Ok(Verdict::Done);
        }
        Action::Wait => {
            migrate::wait(&store, context.voice(), interrupt)?;
            return Ok(Verdict::Done);
        }
        Action::Pause => {
            migrate::pause(&store)?;
            "paused".to_owned()
        }
        Action::Resume => {
            migrate::resume(&store)?;
            "resumed".to_owned()
        }
        Action::Cancel(arguments) => match migrate::cancel(&store, &arguments.which())? {
            0 => "no moves to cancel".to_owned(),
            count => format!("{} cancelled", counted(count, "move", "moves")),
        },
        Action::Bandwidth { bandwidth } => {
            migrate::set_bandwidth(&store, bandwidth)?;
            format!("moves copy at {bandwidth}")
        }
    };
    if context.json {
        status(context, &store)?;
    } else {
        context.say(said);
    }
    Ok(Verdict::Done)
}

fn status(context: &Context, store: &Store) -> Result<()> {
    let found = migrate::status(store)?;
    if context.json {
        return context.object(&found);
    }
    match (&found.guide, found.daemon) {
        (Some(guide), _) => context.line(format_args!("daemon     {guide}"))?,
        (None, Some(process)) => context.line(format_args!("daemon     process {process}"))?,
        (None, None) => context.line("daemon     none")?,
    }
    if let Some(online) = &found.online {
        for line in online_lines(online) {
            context.line(line)?;
        }
    }
    let totals = &found.totals;
    if let Some(why) = &totals.paused {
        context.line(format_args!("paused     {why}"))?;
    }
    context.line(format_args!("bandwidth  {}", totals.bandwidth))?;
    context.line(format_args!(
        "moves      {} queued, {} under way, {} done, {} failed, {} cancelled",
        totals.queued, totals.active, totals.done, totals.failed, totals.cancelled
    ))?;
    context.line(format_args!("bytes      {} moved, {} to go", bytes(totals.moved_bytes), bytes(totals.left_bytes)))?;
    let ended = found.moves.iter().filter(|status| status.has_ended()).count();
    let mut left_out = ended.saturating_sub(ENDED_SHOWN);
    let shown: Vec<&MigrateMove> = found
        .moves
        .iter()
        .filter(|status| {
            let is_left_out = status.has_ended() && left_out > 0;
            left_out -= usize::from(is_left_out);
            !is_left_out
        })
        .collect();
    if shown.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[">move", "state", ">copied", ">of", ">region", "file", "to", ""]);
    for status in shown {
        table.row([
            status.number.to_string(),
            status.state.to_owned(),
            bytes(status.copied_bytes),
            bytes(status.total_bytes),
            status.region.to_string(),
            status.path.clone(),
            status.to.clone(),
            status.why.clone().unwrap_or_default(),
        ]);
    }
    context.line(table)
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
