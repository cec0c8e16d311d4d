//! The demo's live part: a program whose hot set changes at half time, once on regions that stay where they lie and once on regions that
//! follow its plan while it runs.
//!
//! Both runs begin with the same data, placed by H2DP for the first half; H2DP plans every window by itself, so that the first window of the plan is what it would
//! have planned from the first half alone. In the second run rank 0 marks the change with `stripewise phase`, and the parent of the program orders
//! the moves. Regions are copied through the same emulated servers that the program uses, in its time. Bandwidth over time is of the program's own requests;
//! what movers wrote is asked of the broker, which is this process meanwhile.
//!
//! Each half is a window of the plan, which is made from the program's requests rather than from a trace: a trace has windows of equal time, and how long a half
//! takes is not known before.

use super::DemoOptions;
use super::testbed::{SSD_SHARE, Testbed};
use crate::dilation::{HostCost, Pass, is_host_bound};
use crate::replay::{Measured, Player, Ranks};
use anyhow::{Context as _, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stripewise::Store;
use stripewise::moves;
use stripewise::{Session, Voice};
use stripewise_layout::figures::{bytes, duration, number, signed_percent};
use stripewise_layout::{ByteCount, Direction, ServerClass};
use stripewise_model::Concurrency;
use stripewise_planner::{Plan, PlanKey, PlanOptions, PlanRequest, PolicyName, Sources};
use stripewise_report::results::{LiveHalf, LiveResult, LiveRun};
use stripewise_trace::{Benchmark, FileAccess, Program, ProgramCountOptions, count_program};

const POLICY: PolicyName = PolicyName::H2dp;
const OP: Direction = Direction::Read;
/// H2DP section 5.2.1 has a = 0.8 and requests of 512 KiB where it names one size. Here the hot set is more distinct, since a few seconds have to show what the
/// paper's windows of ten minutes show.
const ZIPF_EXPONENT: f64 = 1.2;
const REQUEST: ByteCount = ByteCount(512 << 10);
/// The demo's file is this many times as large.
const SMALLER: u64 = 4;
/// Before the change of the hot set, and after it.
const HALVES: u32 = 2;
/// As the program tells them, in the machine's time.
const SLICE: Duration = Duration::from_millis(50);
/// As they are kept, in the longer run.
const MAX_SLICES: usize = 40;
const CHECK_INTERVAL: Duration = Duration::from_millis(25);

/// Whether the live part can be, before anything runs.
pub(super) fn check(arguments: &DemoOptions) -> Result<()> {
    let half_s = arguments.live;
    ensure!((0.0..=600.0).contains(&half_s), "--live {half_s}: want a time from 0 to 600 seconds");
    if half_s > 0.0 {
        let made = workload(arguments, 1).and_then(|workload| Ok(workload.program()?));
        made.context("the live part cannot be; --live 0 leaves it out")?;
    }
    Ok(())
}

/// Runs the program without moves and with them. A run of which the machine set the pace is repeated once, unless that would end after `until`.
pub(super) fn run(
    (testbed, cost): (&Testbed, &HostCost),
    arguments: &DemoOptions,
    voice: &Voice,
    until: Instant,
) -> Result<LiveResult> {
    eprintln!("\n-- a hot set that changes while the program runs");
    let stage = Stage::build(testbed, cost, arguments, voice)?;
    let mut runs = [stage.run(false)?, stage.run(true)?];
    for run in runs.iter_mut().filter(|run| run.whole.host_bound) {
        if Instant::now() + run.took < until {
            eprintln!("   the machine could not keep up; once more");
            *run = stage.run(run.whole.migrate)?;
        }
    }
    let longest = runs.iter().map(|run| run.slices.len()).max().unwrap_or(0);
    let joined = longest.div_ceil(MAX_SLICES).max(1);
    Ok(LiveResult {
        policy: POLICY.to_string(),
        workload: stage.workload.to_string(),
        op: OP,
        request_bytes: REQUEST.0,
        ranks: stage.program.processes(),
        file_bytes: stage.program.files()[0].size_bytes,
        slice_s: SLICE.as_secs_f64() / stage.dilation * joined as f64,
        dilation: stage.dilation,
        runs: runs.into_iter().map(|run| run.joined(joined)).collect(),
    })
}

/// The program, its plan and its data on the testbed.
struct Stage<'a> {
    testbed: &'a Testbed,
    /// It serves the cluster as long as it lives.
    store: Store,
    player: Player,
    workload: Benchmark,
    program: Box<dyn Program>,
    plan: PathBuf,
    dilation: f64,
}

impl<'a> Stage<'a> {
    fn build(testbed: &'a Testbed, cost: &HostCost, arguments: &DemoOptions, voice: &Voice) -> Result<Self> {
        let directory = testbed.directory();
        let player = Player::compile(directory, Ranks::Mpi)?;
        // As many bytes as the file has, to learn how fast they come.
        let trial = workload(arguments, (arguments.size.0 / SMALLER / REQUEST.0 / u64::from(arguments.ranks)).max(1))?;
        let expected = plan(testbed, &*trial.program()?, 1, arguments)?.predicted.total.mb_per_s;
        let requests = (expected * 1e6 * arguments.live / REQUEST.0 as f64 / f64::from(arguments.ranks)).ceil();
        let requests = (requests as u64).clamp(4, 100_000);
        let workload = workload(arguments, requests)?;
        let program = workload.program()?;
        let halves = f64::from(HALVES);
        let pass = Pass {
            ranks: arguments.ranks,
            request_bytes: REQUEST.0,
            requests: requests * u64::from(HALVES),
            devices_s: arguments.live * halves,
        };
        // Never faster than devices are: movers and the program's phases take the machine's time too.
        let dilation = cost.dilation(&pass, arguments.live * halves).max(1.0);
        testbed.dilate(dilation)?;
        let store = Store::open(&Session::new(Some(directory.to_owned()), voice.clone()))?;
        let stage =
            Self { testbed, store, player, workload, program, plan: directory.join("live.plan.json"), dilation };
        let mut plan = plan(testbed, &*stage.program, HALVES, arguments)?;
        plan.files[0].path = utf8(&stage.data())?;
        plan.save(&stage.plan)?;
        stage.write_data()?;
        Ok(stage)
    }

    fn data(&self) -> PathBuf {
        self.testbed.directory().join("data/live")
    }

    fn pristine(&self) -> PathBuf {
        self.testbed
            .directory()
            .join("live")
            .join(Path::new(&self.program.files()[0].path).file_name().unwrap_or_default())
    }

    /// Lets a short run of the program make its file.
    fn write_data(&self) -> Result<()> {
        let file = &self.program.files()[0];
        let workload =
            format!("ior:size={},transfer={REQUEST},segments=1,processes=2,op=read", ByteCount(file.size_bytes));
        let words = ["replay", &workload, "--posix", "--keep", "--directory", "live"];
        self.testbed.steps.run(words.map(OsString::from))?;
        ensure!(self.pristine().exists(), "the live part's file was not made at {}", self.pristine().display());
        Ok(())
    }

    /// Places fresh data by the plan's first window and runs the program on them; with moves the plan's second window is followed.
    fn run(&self, migrate: bool) -> Result<Run> {
        let begun = Instant::now();
        std::fs::copy(self.pristine(), self.data()).context("copying the live part's file")?;
        self.testbed.steps.run(["apply".into(), "--force".into(), self.plan.clone().into()])?;
        let mut words: Vec<OsString> = vec!["run".into()];
        let paths = [self.data()];
        if migrate {
            let follow =
                ["--migrate", "--windows", "phase", "--migrate-bandwidth", "unlimited", "--force-plan", "--plan"];
            words.extend(follow.map(OsString::from));
            words.push(self.plan.clone().into());
        }
        words.push("--".into());
        words.extend(match migrate {
            true => self.player.marking_words(&*self.program, &paths, self.mark()?)?,
            false => self.player.words(&*self.program, &paths)?,
        });
        words.extend(Player::slicing(SLICE));
        let stations = self.testbed.stations()?;
        stations.reset_counters();
        let before = moves::totals(&self.store)?;
        let (printed, copied) = self.watched(|| self.testbed.steps.printed(words))?;
        let late_s = stations.host_report().late_max.seconds();
        // What was cancelled at the program's end may still be freeing its places.
        self.testbed.steps.run(["migrate".into(), "wait".into()])?;
        let after = moves::totals(&self.store)?;
        self.testbed.steps.run(["rm".into(), self.data().into()])?;
        let measured = Player::measured(&printed)?;
        let ended = Ended {
            moved_bytes: after.moved_bytes - before.moved_bytes,
            unfinished: after.cancelled - before.cancelled,
            failed: after.failed - before.failed,
            late_s,
            dilation: self.dilation,
            took: begun.elapsed(),
        };
        Run::of(migrate, measured, &copied, &ended)
    }

    /// What a program runs to mark a phase; the number stands behind it.
    fn mark(&self) -> Result<OsString> {
        let command = utf8(&self.testbed.steps.stripewise)?;
        ensure!(!command.contains('\''), "{command}: a shell is to run this; move it to a path without quotes");
        Ok(format!(">/dev/null '{command}' --json phase").into())
    }

    /// Runs `work` and meanwhile asks the broker how many bytes movers wrote.
    fn watched<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Copied)> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut copied = Copied::default();
                loop {
                    let last = stop.load(Ordering::SeqCst);
                    let totals = moves::totals(&self.store)?;
                    copied.note(monotonic_ns(), totals.copied_bytes, totals.active > 0 && !last);
                    if last {
                        return Ok::<_, anyhow::Error>(copied);
                    }
                    std::thread::sleep(CHECK_INTERVAL);
                }
            });
            let done = work();
            stop.store(true, Ordering::SeqCst);
            let copied = watcher.join().unwrap_or_else(|_| anyhow::bail!("the thread that watches moves panicked"));
            Ok((done?, copied?))
        })
    }
}

fn utf8(path: &Path) -> Result<String> {
    Ok(path.to_str().context("the testbed's directory is not UTF-8")?.to_owned())
}

/// By the clock that the program tells its start by.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn workload(arguments: &DemoOptions, requests: u64) -> Result<Benchmark> {
    let DemoOptions { size, region, ranks, seed, .. } = arguments;
    let size = ByteCount(size.0 / SMALLER);
    let text = format!(
        "ior:pattern=zipf,a={ZIPF_EXPONENT},size={size},region={region},transfer={REQUEST},processes={ranks},op=read,phases={HALVES},requests={requests},seed={seed}"
    );
    text.parse().with_context(|| {
        format!("the live part's program {text}; it takes --size, --region, --ranks and --seed from the demo")
    })
}

/// For so many of the program's halves, with as large a share of the file on SSDs as the demo's file has.
fn plan(testbed: &Testbed, program: &dyn Program, halves: u32, arguments: &DemoOptions) -> Result<Plan> {
    let Testbed { cluster, profile, .. } = testbed;
    let options = ProgramCountOptions { region_size: cluster.region_size, ..ProgramCountOptions::default() };
    let mut files: Vec<FileAccess> = count_program(program, &options);
    files.iter_mut().for_each(|file| file.windows.truncate(halves as usize));
    let ssds = cluster.servers.iter().filter(|server| server.class == ServerClass::Ssd).count() as u64;
    let capacity = program.files()[0].size_bytes / SSD_SHARE / ssds.max(1);
    let request = PlanRequest {
        cluster,
        profile,
        files: &files,
        key: PlanKey::new("replay_io", program.processes()),
        sources: Sources::default(),
        options: PlanOptions { seed: arguments.seed, ssd_room: Some(ByteCount(capacity)), ..PlanOptions::default() },
        free_bytes: &[],
        promises_whole_regions: true,
        concurrency: Some(Concurrency { processes: program.processes(), processes_per_node: 1 }),
    };
    stripewise_planner::plan(POLICY, &request).with_context(|| format!("planning the live part with {POLICY}"))
}

/// What movers had written, by time.
#[derive(Debug, Default)]
struct Copied {
    /// Ascending: instant, bytes so far.
    samples: Vec<(u64, u64)>,
}

impl Copied {
    /// A look. Movers tell a part once it is written: one that is under way has been since the last part, or since nothing moved.
    fn note(&mut self, at_ns: u64, bytes: u64, is_moving: bool) {
        let is_same = self.samples.last().is_some_and(|(_, before)| *before == bytes);
        if !(is_same && is_moving) {
            self.samples.push((at_ns, bytes));
        }
    }

    /// Bytes up to an instant, taken to grow evenly between two looks.
    fn until(&self, at_ns: u64) -> f64 {
        let next = self.samples.partition_point(|(when_ns, _)| *when_ns <= at_ns);
        let Some((before_ns, before)) = next.checked_sub(1).map(|last| self.samples[last]) else {
            return self.samples.first().map_or(0.0, |(_, first)| *first as f64);
        };
        let Some((after_ns, after)) = self.samples.get(next).copied() else { return before as f64 };
        let share = (at_ns - before_ns) as f64 / (after_ns - before_ns) as f64;
        before as f64 + (after as f64 - before as f64) * share
    }

    /// In each of `count` slices from `start_ns` on.
    fn by_slice(&self, start_ns: u64, slice: Duration, count: usize) -> Vec<u64> {
        let border = |number: usize| self.until(start_ns + slice.as_nanos() as u64 * number as u64).round() as u64;
        (0..count).map(|number| border(number + 1) - border(number)).collect()
    }
}

/// What the broker and the stations say at the end of a run.
struct Ended {
    moved_bytes: u64,
    unfinished: u64,
    failed: u64,
    /// The latest wake-up.
    late_s: f64,
    dilation: f64,
    /// Its preparation included.
    took: Duration,
}

/// A run with slices as short as the program tells them.
#[derive(Debug)]
struct Run {
    whole: LiveRun,
    took: Duration,
    slices: Vec<u64>,
    copied: Vec<u64>,
}

impl Run {
    fn of(migrate: bool, measured: Measured, copied: &Copied, ended: &Ended) -> Result<Self> {
        let slices = measured.slices.context("the program reported no bytes by time")?;
        ensure!(
            measured.phases.len() == slices.phases_s.len(),
            "the program reported {} phases and when {} of them began",
            measured.phases.len(),
            slices.phases_s.len()
        );
        let halves: Vec<LiveHalf> = measured
            .phases
            .iter()
            .zip(&slices.phases_s)
            .map(|(phase, start_s)| LiveHalf {
                start_s: *start_s / ended.dilation,
                seconds: phase.seconds / ended.dilation,
                bytes: phase.bytes(),
            })
            .collect();
        let seconds: f64 = measured.phases.iter().map(|phase| phase.seconds).sum();
        let host_bound = is_host_bound(ended.late_s, measured.start_skew_s, seconds, ended.dilation);
        let whole = LiveRun {
            migrate,
            halves,
            slice_bytes: Vec::new(),
            slice_copied_bytes: Vec::new(),
            moved_bytes: ended.moved_bytes,
            unfinished_moves: ended.unfinished,
            failed_moves: ended.failed,
            verified: measured.verified == Some(true),
            host_bound,
        };
        let copied = copied.by_slice(slices.started_ns, SLICE, slices.bytes.len());
        Ok(Self { whole, took: ended.took, slices: slices.bytes, copied })
    }

    /// With so many slices in one.
    fn joined(self, count: usize) -> LiveRun {
        let join = |slices: &[u64]| slices.chunks(count).map(|together| together.iter().sum()).collect();
        LiveRun { slice_bytes: join(&self.slices), slice_copied_bytes: join(&self.copied), ..self.whole }
    }
}

/// For the terminal.
pub(super) fn text(live: &LiveResult) -> String {
    let requests = match live.op {
        Direction::Read => "reads",
        Direction::Write => "writes",
    };
    let mut text = format!(
        "Live, emulated devices: {requests} of {} under {}, whose hot set changes at half time\n",
        ByteCount(live.request_bytes),
        live.policy
    );
    let after = |migrate: bool| live.run(migrate).and_then(|run| run.mb_s()[1]);
    text += &match (after(false), after(true), live.gain()) {
        (Some(staying), Some(moving), Some(gain)) => format!(
            "after the change: {} MB/s where regions stay, {} MB/s ({}) where they follow it, moves included\n",
            number(staying),
            number(moving),
            signed_percent(gain)
        ),
        _ => "no figure: the machine and not the emulated devices was the bottleneck\n".to_owned(),
    };
    if let (Some(run), Some(share)) = (live.run(true), live.moved_share()) {
        text += &format!(
            "moved meanwhile: {} of {} ({:.0} %)",
            bytes(run.moved_bytes),
            bytes(live.file_bytes),
            share * 100.0
        );
        if let Some(lasted_s) = moving_s(live) {
            text += &format!(", within {} of the change", duration(lasted_s));
        }
        if run.unfinished_moves > 0 {
            text += &format!("; {} not done at the end", run.unfinished_moves);
        }
        if run.failed_moves > 0 {
            text += &format!("; {} FAILED", run.failed_moves);
        }
        text.push('\n');
    }
    let is_verified = live.runs.iter().all(|run| run.verified);
    text + if is_verified { "Every byte that was read was verified.\n" } else { "WRONG BYTES were read.\n" }
}

/// From the change of the hot set to the end of the last slice in which a mover wrote.
pub(crate) fn moving_s(live: &LiveResult) -> Option<f64> {
    let run = live.run(true)?;
    let last = run.slice_copied_bytes.iter().rposition(|copied| *copied > 0)?;
    let end_s = ((last + 1) as f64 * live.slice_s).min(run.end_s());
    Some((end_s - run.changed_s()?).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_report::results::samples::live;

    #[test]
    fn copied_bytes_grow_evenly_between_looks_and_are_all_counted_once() {
        let copied = Copied { samples: vec![(100, 10), (200, 10), (300, 50), (500, 70)] };
        let found = [0, 100, 250, 400, 500, 900].map(|at| copied.until(at));
        assert_eq!(found, [10.0, 10.0, 30.0, 60.0, 70.0, 70.0]);
        assert_eq!(copied.by_slice(150, Duration::from_nanos(100), 5), [20, 25, 10, 5, 0]);
        let mut noted = Copied::default();
        for (at_ns, bytes, is_moving) in
            [(0, 5, false), (50, 5, false), (100, 5, true), (150, 25, true), (200, 25, true), (250, 25, false)]
        {
            noted.note(at_ns, bytes, is_moving);
        }
        // Twenty bytes since movers were seen at rest, and none while the last move ended.
        assert_eq!(noted.by_slice(0, Duration::from_nanos(50), 5), [0, 10, 10, 0, 0]);
        assert_eq!(Copied::default().by_slice(0, Duration::from_nanos(7), 2), [0, 0]);
    }

    #[test]
    fn slices_are_joined_without_losing_a_byte() {
        let whole = live().runs.remove(1);
        let run = Run { whole, took: Duration::ZERO, slices: vec![1, 2, 3, 4, 5], copied: vec![0, 0, 7, 0, 9] };
        let joined = run.joined(2);
        assert_eq!((joined.slice_bytes, joined.slice_copied_bytes), (vec![3, 7, 5], vec![0, 7, 9]));
    }

    #[test]
    fn the_terminal_tells_the_gain_and_what_was_moved() {
        let mut live = live();
        assert_eq!(
            text(&live),
            "Live, emulated devices: reads of 64KiB under h2dp, whose hot set changes at half time
after the change: 20 MB/s where regions stay, 35.6 MB/s (+78 %) where they follow it, moves included
moved meanwhile: 32 MiB of 128 MiB (25 %), within 2 s of the change
Every byte that was read was verified.
"
        );
        live.runs[0].host_bound = true;
        live.runs[1].verified = false;
        live.runs[1].unfinished_moves = 3;
        let text = text(&live);
        assert!(text.contains("no figure: the machine") && !text.contains("MB/s"), "{text}");
        assert!(text.contains("of the change; 3 not done at the end\nWRONG BYTES"), "{text}");
    }
}
