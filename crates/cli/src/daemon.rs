//! `stripewise daemon`: serve a cluster, move its regions, follow a plan or what programs do.
//!
//! The broker's movers do the moving; a daemon decides what is ordered and when. It is one for each cluster (`lock`), whether or not it is the
//! broker itself: where another process serves, it orders there and takes its place when that one ends.
//!
//! | module | what |
//! |---|---|
//! | `lock` | one daemon for each cluster |
//! | `guide` | what tells it where regions should lie: a plan, or what programs do |
//! | `follow` | the windows of a plan |
//! | `online` | planning while programs run |
//! | `watch` | what programs do, by file |
//! | `reserve` | room kept free on SServers |
//! | `access` | who may ask over the network |
//! | `socket` | what others ask of it, over HTTP |
//! | `metrics` | what it tells Prometheus |

mod access;
pub(crate) mod follow;
pub(crate) mod guide;
mod lock;
mod metrics;
pub(crate) mod online;
mod reserve;
pub(crate) mod socket;
mod watch;

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use crate::seconds;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use follow::Follower;
use guide::Guide;
use online::{Online, OnlineStatus, Settings};
use reserve::Reserve;
use socket::{Handler, Request, Response, Server};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stripewise::Store;
use stripewise::Voice;
use stripewise::messages::chain;
use stripewise::moves::{list, totals};
use stripewise_layout::figures::counted;
use stripewise_layout::{ByteCount, Cluster};
use stripewise_planner::{Online as Decay, PolicyName};
use stripewise_store::client::Client;
use stripewise_store::protocol::{
    Admin, MigrateBandwidth, MoveControl, MoveOrder, MoveTotals, Reply, Request as Ask, ServerUsage,
};

/// How often the daemon looks whether it is to end.
const LOOK: Duration = Duration::from_millis(25);
/// How often it looks at the broker.
const BROKER_LOOK: Duration = Duration::from_millis(100);
/// Who asks for something waits so long until it is ordered.
const WISH_PATIENCE: Duration = Duration::from_secs(8);

/// Serve the cluster, run moves of regions, and follow a plan's windows or what programs do, until Ctrl-C or SIGTERM
///
/// Programs are started as ever, with `stripewise run`. Moves that are not committed when the daemon ends are cancelled; their regions stay where
/// they were. One daemon serves a cluster.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise daemon &
  stripewise daemon --plan plan.json --migrate-bandwidth 50MiB
  stripewise daemon --plan plan.json --windows phase
  stripewise daemon --online --window 30s
  stripewise daemon --metrics 127.0.0.1:9464
  curl --unix-socket stripewise-state/run/daemon.sock http://daemon/metrics")]
pub(crate) struct DaemonArgs {
    /// Follow this plan: at the border of every window, move its regions to where the window has them; the file may be replaced meanwhile
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,

    #[command(flatten)]
    options: FollowArgs,

    /// Tell metrics at this loopback address too, to those who send the token in the state directory's daemon.token; port 0 takes a free one
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
    pub(crate) windows: Windows,

    /// How fast moves may copy, all together: auto (what programs leave), unlimited, or bytes per second such as 50MiB
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
    #[arg(long, value_name = "POLICY", default_value = "opt", requires = "online")]
    pub(crate) policy: PolicyName,

    /// Length of a window
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = seconds::parse, requires = "online")]
    pub(crate) window: f64,

    /// Weight of a window relative to the next one, when it is guessed what comes
    #[arg(long, value_name = "NUMBER", default_value_t = Decay::default().decay, requires = "online")]
    pub(crate) decay: f64,

    /// The profile [default: profile.json beside the cluster file]
    #[arg(long, value_name = "FILE", requires = "online")]
    pub(crate) profile: Option<PathBuf>,

    /// Room on each SSD server for the files that are watched [default: what is free, and what they have]
    #[arg(long, value_name = "SIZE", requires = "online")]
    pub(crate) ssd_room: Option<ByteCount>,
}

impl OnlineArgs {
    /// What to plan by, if that is wanted.
    pub(crate) fn settings(&self, context: &Context, cluster: &Cluster, windows: Windows) -> Result<Option<Settings>> {
        if self.online && windows == Windows::Phase {
            bail!(
                "--windows phase: phases are those of a plan; with --online, every window has the length of --window"
            );
        }
        self.online.then(|| Settings::of(context, cluster, self)).transpose()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Windows {
    /// The time since the start
    Time,
    /// Marks that the program sets with `stripewise phase`
    Phase,
}

pub(crate) fn run(context: &Context, arguments: DaemonArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let cluster = context.session.cluster()?;
    let windows = arguments.options.windows;
    let settings = arguments.online.settings(context, &cluster, windows)?;
    let held = Held::take(context.voice(), &cluster)?;
    let store = Store::open(&context.session)?;
    let guide = match (&arguments.plan, settings) {
        (_, Some(settings)) => Guide::Online(Box::new(Online::start(settings, &store, context.voice())?)),
        (Some(path), None) => Guide::Plan(Box::new(Follower::of_file(&store, path, windows)?)),
        (None, None) if windows == Windows::Phase => {
            bail!("--windows phase: there is no plan to follow; name one with --plan")
        }
        (None, None) => Guide::Nobody,
    };
    let bandwidth = arguments.options.migrate_bandwidth;
    let mut daemon = Daemon::start(store, guide, bandwidth, context.voice(), arguments.metrics)?;
    if let Some(address) = daemon.server.network() {
        let token = daemon.server.token_file().display();
        context.say(format_args!("metrics at http://{address}/metrics with the token in {token}"));
    }
    let state = cluster.state.display();
    if daemon.store.is_broker() {
        context.say(format_args!("serving {state}"));
    } else {
        context.say(format_args!("another process serves {state}; ordering there, and following it when it ends"));
    }
    daemon.work(&|| interrupt.came())?;
    daemon.end()?;
    drop(held);
    Ok(Verdict::Done)
}

/// The right to be the cluster's daemon.
pub(crate) struct Held {
    _lock: lock::DaemonLock,
}

impl Held {
    pub(crate) fn take(voice: &Voice, cluster: &Cluster) -> Result<Self> {
        let taken = lock::DaemonLock::take(cluster)?;
        if let Some(process) = taken.died {
            voice.say(format_args!("the daemon before, process {process}, ended without a word; taking its place"));
        }
        Ok(Self { _lock: taken.lock })
    }
}

/// What others are told.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Status {
    is_broker: bool,
    /// The window of the plan that holds, and how many there are.
    window: Option<(usize, usize)>,
    online: Option<OnlineStatus>,
}

/// Somebody asks for something to be done and waits for the answer.
struct Wish {
    what: Wished,
    answer: Sender<Result<String, String>>,
}

enum Wished {
    /// A program marks a phase.
    Phase(String),
    /// Moves were ordered: they are to outlive the broker that has them.
    Adopt,
}

pub(crate) struct Daemon {
    // Before the store, whose client its threads use.
    server: Server,
    guide: Guide,
    reserve: Reserve,
    bandwidth: MigrateBandwidth,
    voice: Voice,
    status: Arc<Mutex<Status>>,
    wishes: Receiver<Wish>,
    since_ns: u64,
    looked: Instant,
    /// Moves of others that were not ended at the last look; ordered again where the broker that had them is gone.
    adopted: Vec<MoveOrder>,
    /// Moves that had failed at the last look.
    failed: u64,
    /// Why moves were paused at the last look, if they were.
    paused: Option<String>,
    complaint: String,
    store: Store,
}

impl Daemon {
    /// Listens, sets the bandwidth and orders the first window.
    pub(crate) fn start(
        store: Store,
        mut guide: Guide,
        bandwidth: MigrateBandwidth,
        voice: &Voice,
        metrics: Option<SocketAddr>,
    ) -> Result<Self> {
        let status = Arc::new(Mutex::new(Status::default()));
        let (sender, wishes) = channel();
        let handler = handler(store.client.clone(), store.cluster.clone(), Arc::clone(&status), sender);
        let server = Server::start(&store.cluster.state, metrics, &handler)?;
        store.done(Admin::ControlMoves(MoveControl::Bandwidth(bandwidth)))?;
        let since_ns = totals(&store)?.since_ns;
        guide.start(&store, voice)?;
        let looked = Instant::now();
        let mut daemon = Self {
            server,
            guide,
            reserve: Reserve::default(),
            bandwidth,
            voice: voice.clone(),
            status,
            wishes,
            since_ns,
            looked,
            adopted: Vec::new(),
            failed: 0,
            paused: None,
            complaint: String::new(),
            store,
        };
        daemon.show();
        Ok(daemon)
    }

    /// Works until `stop` says so. What fails is said, and tried again at the next border.
    pub(crate) fn work(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        while !stop() {
            let (mut wait, mut fault) = (LOOK, None);
            if self.looked.elapsed() >= BROKER_LOOK
                && let Err(error) = self.look_at_broker()
            {
                fault = Some(error);
            }
            match self.guide.look(&self.store, &self.voice) {
                Ok(due) => wait = due.unwrap_or(LOOK).min(LOOK),
                Err(error) => fault = Some(error),
            }
            if let Err(error) = self.reserve.look(&self.store, &self.voice, &self.guide) {
                fault = Some(error);
            }
            self.complain(fault.as_ref());
            self.show();
            match self.wishes.recv_timeout(wait) {
                Ok(wish) => self.fulfil(&wish),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("the socket's threads ended"),
            }
        }
        Ok(())
    }

    /// Says a fault that goes on once.
    fn complain(&mut self, fault: Option<&anyhow::Error>) {
        let Some(text) = fault.map(|fault| chain(fault.as_ref())) else { return };
        if self.complaint != text {
            self.voice.say(&text);
            self.complaint = text;
        }
    }

    fn fulfil(&mut self, wish: &Wish) {
        let fulfilled = match &wish.what {
            Wished::Phase(name) => self.guide.mark(&self.store, &self.voice, name),
            Wished::Adopt => self.look_at_broker().map(|()| "adopted".to_owned()),
        };
        self.show();
        // Who asked may have gone.
        let _ = wish.answer.send(fulfilled.map_err(|error| chain(error.as_ref())));
    }

    /// Notes what is under way; where another broker answers than before, orders it again there.
    fn look_at_broker(&mut self) -> Result<()> {
        self.looked = Instant::now();
        let totals = totals(&self.store)?;
        if totals.since_ns != self.since_ns {
            (self.since_ns, self.failed) = (totals.since_ns, 0);
            self.store.done(Admin::ControlMoves(MoveControl::Bandwidth(self.bandwidth)))?;
            // Before anything is ordered: a pause is a person's wish, whoever serves.
            if let Some(why) = self.paused.clone().filter(|_| totals.paused.is_none()) {
                self.store.done(Admin::ControlMoves(MoveControl::Pause { why }))?;
            }
            self.guide.order_again(&self.store, &self.voice)?;
            for order in std::mem::take(&mut self.adopted) {
                let region = order.first;
                // The file may be gone; its other moves are not to suffer.
                if let Err(error) = self.store.done(Admin::Move { orders: vec![order] }) {
                    self.voice.say(format_args!("a move of region {region} is not ordered again: {}", chain(&error)));
                }
            }
            return Ok(());
        }
        self.paused.clone_from(&totals.paused);
        let failed = totals.failed.saturating_sub(self.failed);
        if failed > 0 {
            self.failed = totals.failed;
            let said = counted(failed as usize, "move failed; its region stays", "moves failed; their regions stay");
            self.voice.say(format_args!("{said} in the old place, and `stripewise migrate status` says why"));
        }
        self.adopted.clear();
        if !self.store.is_broker() && totals.queued + totals.active > 0 {
            let (_, moves) = list(&self.store, None)?;
            let is_own = |path: &str| self.guide.has(path);
            let others = moves.iter().filter(|status| !status.state.is_final() && !is_own(&status.path));
            self.adopted.extend(others.filter_map(stripewise::moves::order_of));
        }
        Ok(())
    }

    fn show(&mut self) {
        let (window, online) = (self.guide.window(), self.guide.online().cloned());
        let status = Status { is_broker: self.store.is_broker(), window, online };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// Ends: what this daemon ordered and is not committed is cancelled.
    pub(crate) fn end(self) -> Result<()> {
        // The guide goes before the store: its thread may be asking a broker of ours.
        let Self { server, store, guide, voice, .. } = self;
        drop(server);
        let totals = totals(&store)?;
        if store.is_broker() {
            let unfinished = totals.queued + totals.active;
            if unfinished > 0 {
                voice.say(format_args!(
                    "{} not ended; what is not committed is cancelled, and its regions stay where they are",
                    counted(unfinished as usize, "move is", "moves are")
                ));
            }
        } else {
            guide.cancel(&store)?;
        }
        Ok(())
    }
}

/// Answers what is asked over the socket, in threads of its own.
fn handler(client: Client, cluster: Cluster, status: Arc<Mutex<Status>>, wishes: Sender<Wish>) -> Handler {
    Arc::new(move |request: &Request| {
        let status = status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/metrics") => match metrics(&client, &cluster, &status) {
                Ok(body) => Response { status: 200, content_type: metrics::CONTENT_TYPE, body },
                Err(error) => Response::text(503, format!("{}\n", chain(error.as_ref()))),
            },
            ("GET", "/online") => match status.online.as_ref().map(serde_json::to_string) {
                Some(Ok(body)) => Response { status: 200, content_type: "application/json", body },
                _ => Response::text(404, "nothing is planned while programs run; start the daemon with --online\n"),
            },
            ("GET", "/process") => Response::text(200, format!("{}\n", std::process::id())),
            ("POST", path) if path.starts_with("/phase/") && !request.is_network => {
                wish(&wishes, Wished::Phase(path.trim_start_matches("/phase/").to_owned()))
            }
            ("POST", "/adopt") if !request.is_network => wish(&wishes, Wished::Adopt),
            (_, "/metrics" | "/process" | "/online") => Response::text(405, "only GET\n"),
            _ => Response::text(404, "there are /metrics and, on the Unix socket, /phase/NAME (POST)\n"),
        }
    })
}

fn wish(wishes: &Sender<Wish>, what: Wished) -> Response {
    let (answer, answered) = channel();
    if wishes.send(Wish { what, answer }).is_err() {
        return Response::text(503, "the daemon is ending\n");
    }
    match answered.recv_timeout(WISH_PATIENCE) {
        Ok(Ok(said)) => Response::text(200, said + "\n"),
        Ok(Err(said)) => Response::text(409, said + "\n"),
        Err(_) => Response::text(503, "the daemon does not come to it; it may be waiting for a broker\n"),
    }
}

fn metrics(client: &Client, cluster: &Cluster, status: &Status) -> Result<String> {
    let (moves, servers) = ask(client).context("asking the broker")?;
    Ok(metrics::text(cluster, status, &moves, &servers))
}

fn ask(client: &Client) -> Result<(MoveTotals, Vec<ServerUsage>)> {
    let after = Some(stripewise_store::protocol::MoveNumber(u64::MAX));
    let moves = client.request(&Ask::Admin(Admin::Moves { after }), &[])?.0;
    let usage = client.request(&Ask::Admin(Admin::Usage), &[])?.0;
    match (moves, usage) {
        (Reply::Moves { totals, .. }, Reply::Usage { servers }) => Ok((totals, servers)),
        _ => bail!("the broker answered with something else; use one version of stripewise"),
    }
}
