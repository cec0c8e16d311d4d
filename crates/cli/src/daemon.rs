//! `stripewise daemon`: serve a cluster, move its regions, follow a plan or what programs do.

use crate::completions;
use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use crate::seconds;
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use stripewise::daemon::{DaemonOptions, OnlineOptions, Windows, daemon};
use stripewise::named_plan::NamedPlan;
use stripewise_layout::ByteCount;
use stripewise_planner::{Online as Decay, PolicyName};
use stripewise_store::protocol::MigrateBandwidth;

/// Serve the cluster, run moves of regions, and follow a plan's windows or what programs do, until Ctrl-C or SIGTERM
///
/// Programs are started as ever, with `stripewise run`. Moves that are not committed when the daemon ends are cancelled; their regions stay where
/// they were. One daemon serves a cluster. A plan whose verdict is "leave it" is refused without --force.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise daemon &
  stripewise daemon --plan plan.json --migrate-bandwidth 50MB/s
  stripewise daemon --plan plan.json --windows phase
  stripewise daemon --plan plan.json --force
  stripewise daemon --online --window 30s
  stripewise daemon --metrics 127.0.0.1:9464
  curl --unix-socket stripewise-state/run/daemon.sock http://daemon/metrics")]
pub(crate) struct DaemonArgs {
    /// Follow this plan: at the border of every window, move its regions to where the window has them; the file may be replaced meanwhile
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,

    /// Follow the plan although it says itself that it is not worth its move
    #[arg(long, requires = "plan")]
    force: bool,

    #[command(flatten)]
    options: FollowArgs,

    /// Serve metrics at this loopback address too, to those who send the token in the state directory's daemon.token; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    // Last: its heading would be that of all that follows.
    #[command(flatten)]
    online: OnlineArgs,
}

/// How a plan is followed; of `daemon` and `run`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct FollowArgs {
    /// What begins a window of the plan
    #[arg(long, value_name = "WHAT", default_value = "time")]
    pub(crate) windows: BeginWindow,

    /// How fast moves may copy, all together: auto (what programs leave), unlimited, or bytes per second such as 50MB/s
    #[arg(long, value_name = "RATE", default_value = "auto")]
    pub(crate) migrate_bandwidth: MigrateBandwidth,
}

/// Planning while programs run; of `daemon` and `run`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Planning while programs run")]
pub(crate) struct OnlineArgs {
    /// Watch what programs read and write and, at the end of every window, move what a policy wants elsewhere and is worth it; no plan is needed
    #[arg(long, conflicts_with = "plan")]
    pub(crate) online: bool,

    /// Who says where regions should lie; as for `stripewise plan`
    #[arg(long, value_name = "POLICY", default_value = PolicyName::ONLINE.name(), requires = "online", add = completions::policies())]
    pub(crate) policy: PolicyName,

    /// Length of a window
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = seconds::parse, requires = "online")]
    pub(crate) window: f64,

    /// Weight of a window relative to the next one, when it is guessed what comes
    #[arg(long, value_name = "NUMBER", default_value_t = Decay::default().decay, requires = "online")]
    pub(crate) decay: f64,

    /// The profile [default: profile.json next to the cluster file]
    #[arg(long, value_name = "FILE", requires = "online")]
    pub(crate) profile: Option<PathBuf>,

    /// Capacity of each SSD server for the files that are watched [default: what is free, and what they have]
    #[arg(long, value_name = "SIZE", requires = "online")]
    pub(crate) ssd_room: Option<ByteCount>,
}

impl OnlineArgs {
    /// What to plan by, if that is wanted.
    pub(crate) fn options(&self) -> Option<OnlineOptions> {
        let Self { online, policy, window, decay, profile, ssd_room } = self.clone();
        online.then_some(OnlineOptions { policy, window_s: window, decay, profile, ssd_capacity: ssd_room })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum BeginWindow {
    /// The time since the start
    Time,
    /// Marks that the program sets with `stripewise phase`
    Phase,
}

impl From<BeginWindow> for Windows {
    fn from(begin: BeginWindow) -> Self {
        match begin {
            BeginWindow::Time => Self::Time,
            BeginWindow::Phase => Self::Phase,
        }
    }
}

pub(crate) fn run(context: &Context, arguments: DaemonArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let DaemonArgs { plan, force, options, metrics, online } = arguments;
    let plan = plan.map(|path| NamedPlan { path, force, option: "--force" });
    let FollowArgs { windows, migrate_bandwidth: bandwidth } = options;
    let options = DaemonOptions { plan, windows: windows.into(), bandwidth, online: online.options(), metrics };
    daemon(&context.session, &options, interrupt)?;
    Ok(Verdict::Done)
}
