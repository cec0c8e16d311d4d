//! A daemon: serve a cluster, move its regions, follow a plan or what programs do.
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
//! | `reserve` | space kept free on SServers |
//! | `access` | who may ask over the network |
//! | `socket` | what others ask of it, over HTTP |
//! | `metrics` | what it tells Prometheus, before what this host's agent does |

mod access;
mod answer;
mod error;
mod follow;
mod guide;
mod lock;
mod metrics;
mod online;
mod reserve;
pub(crate) mod socket;
mod watch;

pub use error::DaemonError;
pub use follow::Windows;
pub use online::{OnlineOptions, OnlineStatus, share};

pub(crate) use follow::{Course, Follower};
pub(crate) use guide::Guide;
pub(crate) use online::{Online, Settings};

use crate::agent_metrics;
use crate::interrupt::Interrupt;
use crate::messages::chain;
use crate::messages::shown;
use crate::moves::{list, totals};
use crate::named_plan::NamedPlan;
use crate::progress::Voice;
use crate::session::Session;
use crate::store::{Store, StoreError};
use answer::Response;
use error::Result;
use metrics::Status;
use reserve::Reserve;
use socket::{Handler, Request, Server};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stripewise_layout::Cluster;
use stripewise_layout::figures::counted;
use stripewise_store::client::{Client, ClientError};
use stripewise_store::protocol::{
    Admin, AgentReport, MigrateBandwidth, MoveControl, MoveOrder, MoveTotals, Refusal, Reply, Request as Ask,
    ServerUsage,
};

/// How often the daemon looks whether it is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(25);
/// How often it looks at the broker.
const BROKER_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How often the master of a cluster of many hosts is told that this daemon decides about moves.
const GUIDE_INTERVAL: Duration = Duration::from_secs(1);
/// Who asks for something waits so long until it is ordered.
const WISH_PATIENCE: Duration = Duration::from_secs(8);

/// What a daemon does.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// Follow this plan, whose file may be replaced meanwhile.
    pub plan: Option<NamedPlan>,
    /// What begins a window of the plan.
    pub windows: Windows,
    /// How fast moves may copy, all together.
    pub bandwidth: MigrateBandwidth,
    /// Plan while programs run, rather than follow a plan.
    pub online: Option<OnlineOptions>,
    /// Serve metrics at this loopback address too; port 0 takes a free one.
    pub metrics: Option<SocketAddr>,
}

/// Serves the cluster that `session` means, runs moves, and follows a plan or what programs do, until
/// an interrupt comes. Moves that are not committed then are cancelled.
///
/// # Errors
///
/// [`DaemonError`] if the daemon cannot start, another one serves the cluster, or this one's moves
/// cannot be cancelled at its end. What fails meanwhile is reported and tried again.
pub fn daemon(session: &Session, options: &DaemonOptions, interrupt: Interrupt) -> Result<()> {
    let (cluster, voice) = (session.cluster().map_err(StoreError::from)?, session.voice());
    let settings = Settings::wanted(session, &cluster, options.online.as_ref(), options.windows)?;
    let _held = Held::take(voice, &cluster)?;
    let store = Store::open(session)?;
    let guide = match (&options.plan, settings) {
        (_, Some(settings)) => Guide::Online(Box::new(Online::start(settings, &store, voice)?)),
        (Some(plan), None) => Guide::Plan(Box::new(Follower::of_file(&store, voice, plan, options.windows)?)),
        (None, None) if options.windows == Windows::Phase => return Err(DaemonError::PhasesWithoutPlan),
        (None, None) => Guide::Nobody,
    };
    let mut daemon = Daemon::start(store, guide, options.bandwidth, voice, options.metrics)?;
    if let Some((address, token)) = daemon.network() {
        voice.say(format_args!("metrics at http://{address}/metrics with the token in {}", shown(token)));
    }
    let state = shown(&cluster.state);
    if daemon.is_broker() {
        voice.say(format_args!("serving {state}"));
    } else {
        voice.say(format_args!("another process serves {state}; ordering there, and following it when it ends"));
    }
    daemon.work(&|| interrupt.came())?;
    daemon.end()
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

/// Somebody asks for something to be done and waits for the answer.
struct Wish {
    what: Wished,
    answer: Sender<std::result::Result<String, String>>,
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
    last_check: Instant,
    last_reported: Instant,
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
        report_guide(&store, true)?;
        let (sender, wishes) = channel();
        let handler = handler(store.client.clone(), store.cluster.clone(), Arc::clone(&status), sender);
        let server = Server::start(&store.cluster.state, metrics, &handler)?;
        store.done(Admin::ControlMoves(MoveControl::Bandwidth(bandwidth)))?;
        let since_ns = totals(&store)?.since_ns;
        guide.start(&store, voice)?;
        let last_check = Instant::now();
        let mut daemon = Self {
            server,
            guide,
            reserve: Reserve::default(),
            bandwidth,
            voice: voice.clone(),
            status,
            wishes,
            since_ns,
            last_check,
            last_reported: last_check,
            adopted: Vec::new(),
            failed: 0,
            paused: None,
            complaint: String::new(),
            store,
        };
        daemon.show();
        Ok(daemon)
    }

    /// Where metrics are served over the network, and the file with the token to show there.
    pub(crate) fn network(&self) -> Option<(SocketAddr, &Path)> {
        self.server.network().map(|address| (address, self.server.token_file()))
    }

    /// Whether this process serves the cluster.
    pub(crate) fn is_broker(&self) -> bool {
        self.store.is_broker()
    }

    /// Works until `stop` says so. What fails is said, and tried again at the next border.
    pub(crate) fn work(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        while !stop() {
            let (mut wait, mut fault) = (CHECK_INTERVAL, None);
            if self.last_check.elapsed() >= BROKER_CHECK_INTERVAL
                && let Err(error) = self.check_broker()
            {
                // Two would order moves against each other.
                if matches!(error, DaemonError::AnotherHost { .. }) {
                    return Err(error);
                }
                fault = Some(error);
            }
            match self.guide.poll(&self.store, &self.voice) {
                Ok(due) => wait = due.unwrap_or(CHECK_INTERVAL).min(CHECK_INTERVAL),
                Err(error) => fault = Some(error),
            }
            if let Err(error) = self.reserve.poll(&self.store, &self.voice, &self.guide) {
                fault = Some(error);
            }
            self.complain(fault.as_ref());
            self.show();
            match self.wishes.recv_timeout(wait) {
                Ok(wish) => self.fulfil(&wish),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(DaemonError::SocketEnded),
            }
        }
        Ok(())
    }

    /// Says a fault that goes on once.
    fn complain(&mut self, fault: Option<&DaemonError>) {
        let Some(text) = fault.map(|fault| chain(fault)) else { return };
        if self.complaint != text {
            self.voice.say(&text);
            self.complaint = text;
        }
    }

    fn fulfil(&mut self, wish: &Wish) {
        let fulfilled = match &wish.what {
            Wished::Phase(name) => self.guide.mark(&self.store, &self.voice, name),
            Wished::Adopt => self.check_broker().map(|()| "adopted".to_owned()),
        };
        self.show();
        // Who asked may have gone.
        let _ = wish.answer.send(fulfilled.map_err(|error| chain(&error)));
    }

    /// Notes what is under way; where another broker answers than before, orders it again there.
    fn check_broker(&mut self) -> Result<()> {
        self.last_check = Instant::now();
        if self.last_reported.elapsed() >= GUIDE_INTERVAL {
            self.last_reported = self.last_check;
            report_guide(&self.store, true)?;
        }
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
        if !self.store.keeps_moves() && totals.queued + totals.active > 0 {
            let (_, moves) = list(&self.store, None)?;
            let is_own = |path: &str| self.guide.has(path);
            let others = moves.iter().filter(|status| !status.state.is_final() && !is_own(&status.path));
            self.adopted.extend(others.filter_map(crate::moves::order_of));
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
        if store.keeps_moves() {
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
        report_guide(&store, false)
    }
}

/// The master of a cluster of many hosts lets one daemon decide at a time; on one host the lock does.
fn report_guide(store: &Store, begins: bool) -> Result<()> {
    if store.cluster.coordinator.is_none() {
        return Ok(());
    }
    match store.client.request(&Ask::Admin(Admin::Guide { process: std::process::id(), begins }), &[]) {
        Err(ClientError::Refused(refusal @ Refusal::Invalid { .. })) => {
            Err(DaemonError::AnotherHost { what: refusal.to_string() })
        }
        reply => Ok(reply.map(drop)?),
    }
}

/// Answers what is asked over the socket, in threads of its own.
fn handler(client: Client, cluster: Cluster, status: Arc<Mutex<Status>>, wishes: Sender<Wish>) -> Handler {
    Arc::new(move |request: &Request| {
        let status = status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/metrics") => match metrics(&client, &cluster, &status) {
                Ok(body) => Response { status: 200, content_type: metrics::CONTENT_TYPE, body },
                Err(error) => Response::text(503, format!("{}\n", chain(&error))),
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
    let (moves, servers, agent) = ask(client).map_err(|source| DaemonError::Ask { source: Box::new(source) })?;
    let text = metrics::text(cluster, status, &moves, &servers);
    let text = text.and_then(|text| Ok(text + &agent_metrics::text(cluster, &agent)?));
    text.map_err(|source| DaemonError::Metrics { source })
}

fn ask(client: &Client) -> Result<(MoveTotals, Vec<ServerUsage>, Box<AgentReport>)> {
    let after = Some(stripewise_store::protocol::MoveNumber(u64::MAX));
    let moves = client.request(&Ask::Admin(Admin::Moves { after }), &[])?.0;
    let usage = client.request(&Ask::Admin(Admin::Usage), &[])?.0;
    let agent = client.request(&Ask::Admin(Admin::Agent), &[])?.0;
    match (moves, usage, agent) {
        (Reply::Moves { totals, .. }, Reply::Usage { servers }, Reply::Agent(agent)) => Ok((totals, servers, agent)),
        _ => Err(DaemonError::Answer),
    }
}
