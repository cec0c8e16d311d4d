//! Following a plan: at the border of every window its files' regions are ordered to where the window has them.
//!
//! What is ordered is the difference between the window's placement and where regions really lie, so that it does not matter which
//! moves of the window before were done, and a daemon that starts late or sees another broker orders what is missing.

use super::error::{DaemonError, Result};
use crate::messages::{chain, printable, shown};
use crate::moves::{Batch, list, orders, placement_of};
use crate::named_plan::NamedPlan;
use crate::progress::Voice;
use crate::store::{Store, read_stub};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use stripewise_layout::figures::{counted, duration};
use stripewise_layout::{FileId, Layout, Placement, RegionIndex, ServerId};
use stripewise_planner::{Plan, PlannedFile};
use stripewise_store::protocol::{Admin, FileInfo, MoveControl, MoveOrder, MoveStatus, WhichMoves};

/// How often it is looked whether the plan file was replaced.
const PLAN_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// What begins a window of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Windows {
    /// The time since the start.
    Time,
    /// Marks that the program sets with `stripewise phase`.
    Phase,
}

/// Where the files of a plan go, window by window.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Course {
    /// By the path at which the file is.
    files: Vec<(String, PlannedFile)>,
    /// Seconds from the start at which windows begin, ascending from 0.
    borders: Vec<f64>,
}

impl Course {
    pub(crate) fn of_plan(plan: Plan) -> Self {
        Self::new(plan.files.into_iter().filter_map(|file| Some((file.managed_name()?, file))))
    }

    pub(crate) fn new(files: impl IntoIterator<Item = (String, PlannedFile)>) -> Self {
        let files: Vec<(String, PlannedFile)> = files.into_iter().collect();
        // The first window holds from the start, whenever the trace had its first request.
        let starts = files.iter().flat_map(|(_, file)| file.windows.iter().skip(1)).map(|window| window.start_s);
        let mut borders: Vec<f64> = starts.filter(|start| start.is_finite() && *start > 0.0).collect();
        borders.push(0.0);
        borders.sort_by(f64::total_cmp);
        borders.dedup();
        Self { files, borders }
    }

    pub(crate) fn windows(&self) -> usize {
        self.borders.len()
    }

    /// The window at a time after the start, and when the next one begins.
    fn window_at(&self, elapsed_s: f64) -> (usize, Option<f64>) {
        let begun = self.borders.partition_point(|start| *start <= elapsed_s).max(1);
        (begun - 1, self.borders.get(begun).copied())
    }
}

/// A plan file that may be replaced while it is followed.
struct Source {
    plan: NamedPlan,
    seen: Option<Stamp>,
    last_check: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        let modified = (found.mtime(), found.mtime_nsec());
        Some(Self { device: found.dev(), inode: found.ino(), size_bytes: found.size(), modified })
    }
}

pub(crate) struct Follower {
    course: Course,
    source: Option<Source>,
    windows: Windows,
    started: Instant,
    window: usize,
    /// Names of phases, in the order in which they were first marked.
    phases: Vec<String>,
    unmanaged: BTreeSet<String>,
}

impl Follower {
    pub(crate) fn new(course: Course, windows: Windows) -> Self {
        Self {
            course,
            source: None,
            windows,
            started: Instant::now(),
            window: 0,
            phases: Vec::new(),
            unmanaged: BTreeSet::new(),
        }
    }

    /// Follows the plan that is named, as its file is now and whenever it is replaced.
    pub(crate) fn of_file(store: &Store, voice: &Voice, plan: &NamedPlan, windows: Windows) -> Result<Self> {
        // Looked at first: what is put there from now on is seen as another.
        let seen = Stamp::of(&plan.path);
        let course = load(store, voice, plan)?;
        let source = Some(Source { plan: plan.clone(), seen, last_check: Instant::now() });
        Ok(Self { source, ..Self::new(course, windows) })
    }

    pub(crate) fn window(&self) -> usize {
        self.window
    }

    pub(crate) fn windows(&self) -> usize {
        self.course.windows()
    }

    /// Whether the window that holds wants the region of the file at `path` to have a stripe on the server.
    pub(crate) fn wants(&self, path: &str, region: RegionIndex, server: ServerId) -> bool {
        let planned = self.course.files.iter().find(|(planned, _)| planned == path);
        let layout =
            |planned: &PlannedFile| planned.placement_at(self.course.borders[self.window]).layout_of(region).clone();
        planned.is_some_and(|(_, planned)| layout(planned).stripes().iter().any(|stripe| stripe.server == server))
    }

    /// Whether `path` is a file of the plan.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.course.files.iter().any(|(planned, _)| planned == path)
    }

    /// Begins: the first window's placement is ordered.
    pub(crate) fn start(&mut self, store: &Store, voice: &Voice) -> Result<()> {
        self.started = Instant::now();
        self.enter(store, voice, 0)
    }

    /// Looks at the clock and at the plan file. Returns when something is due at the latest.
    pub(crate) fn poll(&mut self, store: &Store, voice: &Voice) -> Result<Option<Duration>> {
        self.check_file(store, voice)?;
        if self.windows == Windows::Phase {
            return Ok(None);
        }
        let elapsed_s = self.started.elapsed().as_secs_f64();
        let (window, next_s) = self.course.window_at(elapsed_s);
        if window != self.window {
            self.enter(store, voice, window)?;
        }
        Ok(next_s.map(|next_s| Duration::try_from_secs_f64(next_s - elapsed_s).unwrap_or(Duration::MAX)))
    }

    fn check_file(&mut self, store: &Store, voice: &Voice) -> Result<()> {
        let Some(source) = self.source.as_mut().filter(|source| source.last_check.elapsed() >= PLAN_CHECK_INTERVAL)
        else {
            return Ok(());
        };
        source.last_check = Instant::now();
        let now = Stamp::of(&source.plan.path);
        if now.is_none() || now == source.seen {
            return Ok(());
        }
        source.seen = now;
        let shown = shown(&source.plan.path);
        match load(store, voice, &source.plan) {
            Ok(course) if course == self.course => Ok(()),
            Ok(course) => {
                voice.say(format_args!("{shown} has changed; following what it says now"));
                self.course = course;
                let window = match self.windows {
                    Windows::Time => self.course.window_at(self.started.elapsed().as_secs_f64()).0,
                    Windows::Phase => self.window.min(self.course.windows() - 1),
                };
                self.enter(store, voice, window)
            }
            Err(error) => {
                voice.say(format_args!("{}; going on with the plan as it was", chain(&error)));
                Ok(())
            }
        }
    }

    /// A program marks a phase; what to tell it.
    pub(crate) fn mark(&mut self, store: &Store, voice: &Voice, name: &str) -> Result<String> {
        if self.windows == Windows::Time {
            return Err(DaemonError::ByTime);
        }
        let last = self.course.windows() - 1;
        let window = match name.parse::<usize>() {
            Ok(number) if number > last => return Err(DaemonError::NoWindow { last, number }),
            Ok(number) => number,
            Err(_) => self.phases.iter().position(|known| known == name).unwrap_or_else(|| {
                self.phases.push(name.to_owned());
                self.phases.len() - 1
            }),
        };
        let beyond = window > last;
        self.enter(store, voice, window.min(last))?;
        let note = if beyond { "; the plan has no window for it, so the last one holds" } else { "" };
        Ok(format!("window {} of 0 to {last}{note}", self.window))
    }

    /// Another broker answers: what was ordered is gone.
    pub(crate) fn order_again(&mut self, store: &Store, voice: &Voice) -> Result<()> {
        self.enter(store, voice, self.window)
    }

    /// Ends what is not committed of the plan's files, for a broker that outlives this.
    pub(crate) fn cancel(&self, store: &Store) -> Result<()> {
        let (_, moves) = list(store, None)?;
        for status in moves.iter().filter(|status| !status.state.is_final() && self.has(&status.path)) {
            store.done(Admin::ControlMoves(MoveControl::Cancel(WhichMoves::One(status.number))))?;
        }
        Ok(())
    }

    /// A file that cannot be followed is named and keeps no other back.
    fn enter(&mut self, store: &Store, voice: &Voice, window: usize) -> Result<()> {
        self.window = window;
        let managed: HashMap<String, FileInfo> =
            store.files()?.into_iter().map(|file| (file.path.clone(), file)).collect();
        let time_s = self.course.borders[window];
        let (_, moves) = list(store, None)?;
        let drained = store.drained()?;
        let complain = |path: &str, error: DaemonError| {
            voice.say(format_args!("{} is not followed: {}", printable(path, false), chain(&error)));
        };
        let mut by_file: Vec<(&String, Vec<MoveOrder>)> = Vec::new();
        for (path, planned) in &self.course.files {
            let target = planned.placement_at(time_s);
            let Some(info) = managed.get(path) else {
                let expected = expect(store, voice, path, target, &mut self.unmanaged);
                expected.unwrap_or_else(|error| complain(path, error));
                continue;
            };
            let under_way = moves.iter().filter(|status| !status.state.is_final() && status.file == info.file);
            match self::order(store, info.file, target, &drained, under_way) {
                Ok(orders) => by_file.push((path, orders)),
                Err(error) => complain(path, error),
            }
        }
        let all: Vec<MoveOrder> = by_file.iter().flat_map(|(_, orders)| orders.iter().cloned()).collect();
        let regions: usize = all.iter().map(|order| (order.last.0 - order.first.0 + 1) as usize).sum();
        // Together, so that what frees space is known first. Refused together too: then each alone, since a file may just have been removed.
        if Batch::order(store, all).is_err() {
            for (path, orders) in by_file {
                if let Err(error) = Batch::order(store, orders) {
                    complain(path, error.into());
                }
            }
        }
        if regions > 0 {
            let since = match self.windows {
                Windows::Time => format!(" (from {})", duration(time_s)),
                Windows::Phase => String::new(),
            };
            voice.say(format_args!("window {window}{since}: {} ordered", counted(regions, "move", "moves")));
        }
        Ok(())
    }
}

/// The placement as far as it can be had without servers that are drained.
fn without(store: &Store, target: &Placement, drained: &BTreeSet<ServerId>) -> Placement {
    let mut wanted = target.clone();
    for layout in &mut wanted.layouts {
        if let Some(found) = store.cluster.layout_without(layout, drained) {
            *layout = found;
        }
    }
    wanted
}

/// Orders for what lies elsewhere than `target` says, as far as it can be had, or is `under_way` elsewhere; the latter is cancelled. Regions to
/// come are placed by `target` from now on, by the broker without drained servers.
fn order<'a>(
    store: &Store,
    file: FileId,
    target: &Placement,
    drained: &BTreeSet<ServerId>,
    under_way: impl Iterator<Item = &'a MoveStatus>,
) -> Result<Vec<MoveOrder>> {
    let wanted = without(store, target, drained);
    let mut unsettled: HashSet<RegionIndex> = HashSet::new();
    for status in under_way {
        let to = status.to.iter().map(|(server, size)| (ServerId(*server), *size));
        if Layout::new(to).is_ok_and(|to| to != *wanted.layout_of(status.region)) {
            store.done(Admin::ControlMoves(MoveControl::Cancel(WhichMoves::One(status.number))))?;
            unsettled.insert(status.region);
        }
    }
    if placement_of(store, file)? != *target {
        store.done(Admin::SetPlacement { file, placement: target.clone() })?;
    }
    let regions = store.regions(file)?;
    let mut found = orders(&store.cluster, file, &regions, |info, _| Some(wanted.layout_of(info.region).clone()))?;
    // Where these lie now is not where they end, if they were committed before they could be cancelled.
    unsettled.retain(|region| !found.iter().any(|order| (order.first..=order.last).contains(region)));
    let layout = |region: RegionIndex| wanted.layout_of(region).clone();
    found.extend(unsettled.into_iter().map(|region| MoveOrder {
        file,
        first: region,
        last: region,
        layout: layout(region),
    }));
    Ok(found)
}

/// A file of the plan that is not managed: if there is none yet, it gets the window's placement when it is made.
fn expect(
    store: &Store,
    voice: &Voice,
    path: &str,
    target: &Placement,
    unmanaged: &mut BTreeSet<String>,
) -> Result<()> {
    match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(store.done(Admin::Expect { path: path.to_owned(), placement: target.clone() })?)
        }
        Ok(file) if matches!(read_stub(&file, Path::new(path)), Ok(None)) => {
            if unmanaged.insert(path.to_owned()) {
                voice.say(format_args!(
                    "{} is not managed, so it stays where it is; `stripewise apply` the plan first",
                    printable(path, false)
                ));
            }
            Ok(())
        }
        // A stub whose file is just being made, or what may not be read.
        _ => Ok(()),
    }
}

fn load(store: &Store, voice: &Voice, named: &NamedPlan) -> Result<Course> {
    let (plan, path) = (named.load(&store.cluster, voice)?, &named.path);
    for file in &plan.files {
        for window in &file.windows {
            let checked = window.placement.check(store.cluster.servers.len());
            checked.map_err(|what| DaemonError::Placement {
                path: path.to_owned(),
                file: file.path.clone(),
                what: what.to_string(),
            })?;
        }
    }
    Ok(Course::of_plan(plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ByteCount;
    use stripewise_planner::PlannedWindow;

    fn file(path: &str, starts: &[f64]) -> (String, PlannedFile) {
        let layout = Layout::new([(ServerId(0), 4096)]).unwrap();
        let placement = Placement::uniform(ByteCount(4096), layout.clone(), layout);
        let windows = starts.iter().map(|start_s| PlannedWindow {
            start_s: *start_s,
            end_s: start_s + 1.0,
            moves: Vec::new(),
            placement: placement.clone(),
            replicas: Vec::new(),
        });
        let windows = windows.collect();
        (path.into(), PlannedFile { path: path.into(), pattern: path.into(), size_bytes: 0, windows })
    }

    #[test]
    fn borders_are_those_of_all_files() {
        let course = Course::new([file("/a", &[3.0, 60.0, 120.0]), file("/b", &[0.0, 30.0, 60.0]), file("/c", &[1.0])]);
        assert_eq!(course.borders, [0.0, 30.0, 60.0, 120.0]);
        for (time_s, expected) in [
            (0.0, (0, Some(30.0))),
            (29.9, (0, Some(30.0))),
            (30.0, (1, Some(60.0))),
            (119.0, (2, Some(120.0))),
            (1e9, (3, None)),
        ] {
            assert_eq!(course.window_at(time_s), expected, "{time_s}");
        }
        assert_eq!(Course::new([]).window_at(5.0), (0, None));
    }
}
