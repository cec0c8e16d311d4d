//! Planning while programs run: at the end of every window the policy is asked where regions should lie, by what programs did in the windows so
//! far, and what is worth its move is ordered.
//!
//! Every window is planned from where regions really lie. Moves of the window before that have not begun are cancelled first: what they were to bring
//! is weighed again, with what is known by now. Files whose use was never seen stay where they are, and the space that they take is not planned with.

mod capacity;
mod request;

use super::error::{DaemonError, Result};
use super::follow::Windows;
use super::watch::{Seen, Watch};
use crate::messages::chain;
use crate::moves::{Batch, layout_of, list, orders, placement_of};
use crate::progress::Voice;
use crate::session::Session;
use crate::store::Store;
use capacity::{Now, with_space_for};
use request::request;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stripewise_layout::figures::counted;
use stripewise_layout::{ByteCount, Cluster, FileId, Layout, Placement, RegionIndex, ServerId};
use stripewise_model::Profile;
use stripewise_planner::{
    Guess, History, Online as Decay, OnlineStep, OnlineWindow, PlanOptions, PolicyName, RequestError, online_step_by,
};
use stripewise_store::protocol::{Admin, MoveControl, MoveOrder, MoveState, MoveStatus, ServerUsage, WhichMoves};
use stripewise_trace::FileAccess;

/// Shorter windows hold too few looks at what programs do.
const SHORTEST_WINDOW_S: f64 = 0.1;
/// The daemon looks again after this time at the latest.
const LONGEST_WAIT_S: f64 = 3600.0;

/// How to plan while programs run.
#[derive(Clone, PartialEq, Debug)]
pub struct OnlineOptions {
    /// Who says where regions should lie.
    pub policy: PolicyName,
    /// Length of a window.
    pub window_s: f64,
    /// Weight of a window relative to the next one, from 0 to 1.
    pub decay: f64,
    /// The profile, if not the one beside the cluster file.
    pub profile: Option<PathBuf>,
    /// Capacity of each SSD server for the files that are watched, at most.
    pub ssd_capacity: Option<ByteCount>,
}

/// What planning goes by, read once.
pub(crate) struct Settings {
    policy: PolicyName,
    window_s: f64,
    decay: Decay,
    options: PlanOptions,
    /// Of each SServer, at most.
    ssd_capacity: Option<ByteCount>,
    profile: Profile,
}

impl Settings {
    /// Of `options`, if there are any.
    ///
    /// # Errors
    /// As [`Self::of`], and when windows are to begin with phases, which are those of a plan.
    pub(crate) fn wanted(
        session: &Session,
        cluster: &Cluster,
        options: Option<&OnlineOptions>,
        windows: Windows,
    ) -> Result<Option<Self>> {
        match options {
            Some(_) if windows == Windows::Phase => Err(DaemonError::OnlineByPhase),
            options => options.map(|options| Self::of(session, cluster, options)).transpose(),
        }
    }

    /// Reads the profile.
    ///
    /// # Errors
    /// When a number makes no sense, or the profile is of another cluster or cannot be read.
    pub(crate) fn of(session: &Session, cluster: &Cluster, arguments: &OnlineOptions) -> Result<Self> {
        let window_s = arguments.window_s;
        if window_s < SHORTEST_WINDOW_S {
            return Err(DaemonError::ShortWindow { window_s });
        }
        if !(0.0..=1.0).contains(&arguments.decay) {
            return Err(DaemonError::Decay { decay: arguments.decay });
        }
        let path = arguments.profile.clone().unwrap_or_else(|| session.profile_path());
        let profile = Profile::load(&path)?;
        profile.check(cluster, &path)?;
        let options = PlanOptions {
            // Who asks the daemon for anything waits meanwhile.
            time_limit_s: Some((window_s / 2.0).clamp(1.0, 5.0)),
            ..PlanOptions::default()
        };
        Ok(Self {
            policy: arguments.policy,
            window_s,
            decay: Decay { decay: arguments.decay },
            options,
            ssd_capacity: arguments.ssd_capacity,
            profile,
        })
    }
}

/// What a daemon that plans while programs run reports.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct OnlineStatus {
    /// Who says where regions should lie.
    pub policy: PolicyName,
    /// Length of a window.
    pub window_s: f64,
    /// Windows that have ended.
    pub windows: u64,
    /// Files whose use was seen and that are still there.
    pub files: usize,
    /// Requests of all windows that have ended.
    pub requests: u64,
    /// How many of them were seen themselves; the others came too fast and are taken to be like these.
    pub requests_seen: u64,
    /// Requests of the last window.
    pub window_requests: u64,
    /// How many of them were seen themselves.
    pub window_requests_seen: u64,
    /// Moves that were ordered.
    pub moves_ordered: u64,
    /// What became of the last window.
    pub last: String,
    /// Seconds that the last plan took to make.
    pub plan_s: f64,
}

pub(crate) struct Online {
    settings: Settings,
    watch: Watch,
    history: History,
    /// Of which files the history is, in its order.
    known: Vec<FileId>,
    started: Instant,
    /// When the present window began and ends, in seconds from the start.
    window: (f64, f64),
    /// The guess for which nothing was worth a move: the same again need not be planned again.
    settled: Option<Guess>,
    /// Where regions were last wanted, by path.
    wanted: HashMap<String, Placement>,
    /// What was ordered and may not have ended.
    ordered: BTreeMap<(FileId, RegionIndex), Layout>,
    status: OnlineStatus,
}

impl Online {
    /// Programs are watched from here on.
    pub(crate) fn start(settings: Settings, store: &Store, voice: &Voice) -> Result<Self> {
        let status = OnlineStatus {
            policy: settings.policy,
            window_s: settings.window_s,
            windows: 0,
            files: 0,
            requests: 0,
            requests_seen: 0,
            window_requests: 0,
            window_requests_seen: 0,
            moves_ordered: 0,
            last: "the first window has not ended".to_owned(),
            plan_s: 0.0,
        };
        Ok(Self {
            watch: Watch::start(store.client.clone(), store.cluster.coordinator.is_some(), voice.clone())?,
            history: History::new(settings.decay, 0),
            known: Vec::new(),
            started: Instant::now(),
            window: (0.0, settings.window_s),
            settled: None,
            wanted: HashMap::new(),
            ordered: BTreeMap::new(),
            status,
            settings,
        })
    }

    pub(crate) fn status(&self) -> &OnlineStatus {
        &self.status
    }

    /// Looks at the clock; plans if a window has ended. Returns when the next one ends.
    pub(crate) fn poll(&mut self, store: &Store, voice: &Voice) -> Result<Duration> {
        let now_s = self.started.elapsed().as_secs_f64();
        if now_s >= self.window.1 {
            let span_s = (self.window.0, now_s);
            // Whatever becomes of the plan; and the next window begins where this one was seen to end.
            self.window = (now_s, now_s + self.settings.window_s);
            self.end_window(store, voice, span_s)?;
        }
        let left_s = self.window.1 - self.started.elapsed().as_secs_f64();
        // However long a window is: a `Duration` cannot hold every number.
        Ok(Duration::from_secs_f64(left_s.clamp(0.0, LONGEST_WAIT_S)))
    }

    /// Another broker answers: what was ordered is ordered again there, as everything else that was under way, or else wanted again by the next plan.
    pub(crate) fn meet_broker(&mut self) {
        self.settled = None;
    }

    /// Whether it was ordered here.
    fn is_own(&self, status: &MoveStatus) -> bool {
        let to = Layout::new(status.to.iter().map(|(server, size)| (ServerId(*server), *size)));
        to.is_ok_and(|to| self.ordered.get(&(status.file, status.region)) == Some(&to))
    }

    /// Ends what was ordered here and is not committed, for a broker that outlives this.
    pub(crate) fn cancel(&self, store: &Store) -> Result<()> {
        let (_, moves) = list(store, None)?;
        for status in moves.iter().filter(|status| !status.state.is_final() && self.is_own(status)) {
            store.done(Admin::ControlMoves(MoveControl::Cancel(WhichMoves::One(status.number))))?;
        }
        Ok(())
    }

    /// Whether the last plan wants the region of the file at `path` to have a stripe on the server.
    pub(crate) fn wants(&self, path: &str, region: RegionIndex, server: ServerId) -> bool {
        let layout = self.wanted.get(path).map(|placement| placement.layout_of(region));
        layout.is_some_and(|layout| layout.stripes().iter().any(|stripe| stripe.server == server))
    }

    fn end_window(&mut self, store: &Store, voice: &Voice, span_s: (f64, f64)) -> Result<()> {
        let seen = self.watch.finish(span_s);
        let status = &mut self.status;
        status.windows += 1;
        status.files = seen.len();
        status.window_requests = seen.iter().map(|seen| seen.requests).sum();
        status.window_requests_seen = seen.iter().map(|seen| seen.known).sum();
        status.requests += status.window_requests;
        status.requests_seen += status.window_requests_seen;
        self.learn(&seen);
        let begun = Instant::now();
        let planned = self.plan(store, &seen);
        self.status.plan_s = begun.elapsed().as_secs_f64();
        match planned {
            Ok(Outcome::Ordered(moves)) => {
                self.status.moves_ordered += moves as u64;
                self.status.last = format!("{} ordered", counted(moves, "move", "moves"));
                voice.say(format_args!("window {}: {}; {}", self.status.windows, self.status.last, self.accessed()));
                Ok(())
            }
            Ok(Outcome::Nothing(why)) => {
                self.status.last = why;
                Ok(())
            }
            Err(error) => {
                self.status.last = format!("failed: {}", chain(&error));
                Err(error)
            }
        }
    }

    /// What the last window held, in words.
    fn accessed(&self) -> String {
        let status = &self.status;
        let requests = counted(status.window_requests as usize, "request", "requests");
        let files = counted(status.files, "file", "files");
        format!("{requests} of {files}, {} seen", share(status.window_requests_seen, status.window_requests))
    }

    /// Takes the window into the history, which is of the files that are still there.
    fn learn(&mut self, seen: &[Seen]) {
        let present: BTreeSet<FileId> = seen.iter().map(|seen| seen.file).collect();
        for number in (0..self.known.len()).rev() {
            if !present.contains(&self.known[number]) {
                self.known.remove(number);
                self.history.remove_file(number);
            }
        }
        for seen in seen {
            if !self.known.contains(&seen.file) {
                self.known.push(seen.file);
                self.history.add_file();
            }
        }
        self.history.see(&self.in_order(seen), 0);
    }

    /// The accesses of all files in the order of the history.
    fn in_order(&self, seen: &[Seen]) -> Vec<FileAccess> {
        let of = |file: &FileId| seen.iter().find(|seen| seen.file == *file).map(|seen| seen.access.clone());
        self.known.iter().filter_map(of).collect()
    }

    fn plan(&mut self, store: &Store, seen: &[Seen]) -> Result<Outcome> {
        let Some(guess) = self.history.guess(&self.in_order(seen)) else {
            return Ok(Outcome::Nothing("nothing was accessed yet".to_owned()));
        };
        if self.settled.as_ref().is_some_and(|settled| guess.is_like(settled)) {
            return Ok(Outcome::Nothing(
                "the same as before is expected, for which nothing was worth a move".to_owned(),
            ));
        }
        let (totals, moves) = list(store, None)?;
        if let Some(why) = totals.paused {
            return Ok(Outcome::Nothing(format!("nothing is planned while moves are paused ({why})")));
        }
        let own: Vec<&MoveStatus> =
            moves.iter().filter(|status| !status.state.is_final() && self.is_own(status)).collect();
        for status in own.iter().filter(|status| matches!(status.state, MoveState::Queued { .. })) {
            store.done(Admin::ControlMoves(MoveControl::Cancel(WhichMoves::One(status.number))))?;
        }
        // What began in the meantime, and what others ordered, goes on.
        let (_, moves) = list(store, None)?;
        let files = self.now(store, &guess, &moves)?;
        self.ordered
            .retain(|(file, region), _| files.iter().any(|now| now.file == *file && now.moving.contains_key(region)));
        let usage = store.usage()?;
        let mut by_region_size: BTreeMap<ByteCount, Vec<&Now>> = BTreeMap::new();
        for now in &files {
            by_region_size.entry(now.access.region_size).or_default().push(now);
        }
        let (mut orders, mut wanted) = (Vec::new(), HashMap::new());
        for files in by_region_size.into_values() {
            let windows = self.ask(store, &usage, guess.windows, &files)?;
            for (now, window) in files.iter().zip(&windows) {
                orders.extend(ordered(store, now, window)?);
            }
            let of_files = files.iter().zip(windows);
            wanted.extend(of_files.map(|(now, window)| (now.access.path.clone(), window.placement)));
        }
        // Of files that are gone nothing is kept.
        self.wanted = wanted;
        if orders.is_empty() {
            let is_still = files.iter().all(|now| now.moving.is_empty());
            self.settled = is_still.then_some(guess);
            return Ok(Outcome::Nothing("nothing was worth a move".to_owned()));
        }
        self.settled = None;
        let regions = |order: &MoveOrder| (order.first.0..=order.last.0).map(RegionIndex);
        for order in &orders {
            self.ordered.extend(regions(order).map(|region| ((order.file, region), order.layout.clone())));
        }
        Ok(Outcome::Ordered(Batch::order(store, orders)?.count()))
    }

    /// Where the files' regions lie, or will when what moves them is done. Files that were removed just now are passed over.
    fn now(&self, store: &Store, guess: &Guess, moves: &[MoveStatus]) -> Result<Vec<Now>> {
        let mut files = Vec::new();
        for (file, access) in self.known.iter().zip(&guess.files) {
            let (Ok(placement), Ok(regions)) = (placement_of(store, *file), store.regions(*file)) else { continue };
            let under_way = moves.iter().filter(|status| status.file == *file && !status.state.is_final());
            let moving: BTreeMap<RegionIndex, Layout> = under_way
                .filter_map(|status| {
                    let to = status.to.iter().map(|(server, size)| (ServerId(*server), *size));
                    Some((status.region, Layout::new(to).ok()?))
                })
                .collect();
            let mut layouts: BTreeMap<RegionIndex, Layout> = moving.clone();
            for info in &regions {
                let lies = layout_of(info)?;
                layouts.entry(info.region).or_insert(lies);
            }
            let region_bytes = access.region_size.0;
            let count = regions.last().map_or(0, |last| last.region.0 + 1);
            let all = (0..count).map(RegionIndex);
            let layout = |region| layouts.get(&region).unwrap_or_else(|| placement.layout_of(region)).clone();
            let beyond = placement.layout_of(RegionIndex(count)).clone();
            let now = Placement::from_regions(
                access.region_size,
                all.map(layout),
                beyond,
                placement.fallback_layout().clone(),
            );
            let mut access = access.clone();
            // A file that was removed and is still open may have a successor of its name.
            if files.iter().any(|known: &Now| known.access.path == access.path) {
                access.path = format!("{} (file {file})", access.path);
            }
            // A region is promised space for all of it.
            access.size_bytes = u64::from(count) * region_bytes;
            for window in &mut access.windows {
                window.regions.retain(|region| region.region.0 < count);
            }
            files.push(Now { file: *file, access, regions, moving, placement: now });
        }
        Ok(files)
    }

    /// What the policy says of these files.
    fn ask(&self, store: &Store, usage: &[ServerUsage], windows: f64, files: &[&Now]) -> Result<Vec<OnlineWindow>> {
        let cluster = with_space_for(&store.cluster, usage, files, self.settings.ssd_capacity);
        let accesses: Vec<FileAccess> = files.iter().map(|now| now.access.clone()).collect();
        let placements: Vec<Placement> = files.iter().map(|now| now.placement.clone()).collect();
        let out_of_use = usage.iter().filter(|usage| usage.drained || usage.standing.is_err());
        let mut options = self.settings.options.clone();
        options.exclude = out_of_use.map(|usage| usage.name.clone()).collect();
        let request = request(&cluster, &self.settings.profile, &accesses, options);
        let step = OnlineStep { policy: self.settings.policy, windows, length_s: Some(self.settings.window_s) };
        match online_step_by(&request, &step, &placements) {
            // Of these files nothing is expected to be used.
            Err(RequestError::Nothing) => {
                Ok(placements.into_iter().map(|placement| OnlineWindow { placement, moves: Vec::new() }).collect())
            }
            result => Ok(result?),
        }
    }
}

enum Outcome {
    Ordered(usize),
    /// Why nothing was ordered.
    Nothing(String),
}

/// Orders for the moves of a window; regions that are on their way somewhere are left to it.
fn ordered(store: &Store, now: &Now, window: &OnlineWindow) -> Result<Vec<MoveOrder>> {
    let meant: BTreeSet<RegionIndex> = window.moves.iter().map(|one| one.region).collect();
    Ok(orders(&store.cluster, now.file, &now.regions, |info, _| {
        let is_meant = meant.contains(&info.region) && !now.moving.contains_key(&info.region);
        is_meant.then(|| window.placement.layout_of(info.region).clone())
    })?)
}

/// `12 %`.
pub fn share(part: u64, all: u64) -> String {
    if all == 0 { "all".to_owned() } else { format!("{:.0} %", part as f64 / all as f64 * 100.0) }
}
