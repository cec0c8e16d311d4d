//! Programs in stages: all processes enter a stage together, then make its requests each at its own pace.

use super::WorkloadError;
use super::parameters::words;
use super::random::of_rank;
use crate::program::{FileShape, IoRequest, Program, Step};
use std::time::Duration;
use stripewise_layout::Direction;

words! {
    /// Which passes a benchmark makes over its data.
    Passes {
        Read = "read",
        Write = "write",
        /// A write pass and then a read pass.
        Both = "both",
    }
}

impl Passes {
    pub(super) fn directions(self) -> &'static [Direction] {
        match self {
            Self::Read => &[Direction::Read],
            Self::Write => &[Direction::Write],
            Self::Both => &[Direction::Write, Direction::Read],
        }
    }

    /// Of a pass of the whole run.
    pub(super) fn direction(self, pass: u32) -> Direction {
        let directions = self.directions();
        directions[pass as usize % directions.len()]
    }
}

/// What all benchmarks have.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Run {
    pub(super) processes: u32,
    /// Client nodes; the processes are spread over them in blocks. None: 8, or as many as processes.
    pub(super) nodes: Option<u32>,
    pub(super) repetitions: u32,
    /// Computing after each request.
    pub(super) think: Duration,
    /// Every think time is changed by up to this share of it, upward or downward.
    pub(super) jitter: f64,
    pub(super) seed: u64,
    /// The path of the file; with a file per process its number follows.
    pub(super) file: String,
}

impl Default for Run {
    fn default() -> Self {
        let file = "/data/shared".to_owned();
        Self { processes: 32, nodes: None, repetitions: 1, think: Duration::ZERO, jitter: 0.0, seed: 1, file }
    }
}

const NODES: u32 = 8;
/// Tells the stream of think times from those of requests.
const THINK_STREAM: u64 = 0x0074_6869_6E6B;

impl Run {
    pub(super) fn nodes(&self) -> u32 {
        self.nodes.unwrap_or_else(|| self.processes.min(NODES))
    }

    /// The parameters that all benchmarks have, with the benchmark's own options for processes and repetitions.
    pub(super) fn check(&self, benchmark: &'static str) -> Result<(), WorkloadError> {
        let refuse = |key, value: String, want: &str| WorkloadError::of(benchmark, key, value, want);
        if self.processes == 0 {
            return Err(refuse("processes", self.processes.to_string(), "at least 1"));
        }
        if !(1..=self.processes).contains(&self.nodes()) {
            let want = format!("1 to {} nodes, the number of processes", self.processes);
            return Err(refuse("nodes", self.nodes().to_string(), &want));
        }
        if self.repetitions == 0 {
            return Err(refuse("repetitions", self.repetitions.to_string(), "at least 1"));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(refuse("jitter", self.jitter.to_string(), "a share from 0 to 1"));
        }
        Ok(())
    }
}

/// The stages of all repetitions.
///
/// # Errors
/// When they are 2^32 or more.
pub(super) fn stage_count(benchmark: &'static str, run: &Run, per_repetition: u64) -> Result<u32, WorkloadError> {
    let stages = per_repetition.checked_mul(u64::from(run.repetitions)).and_then(|stages| u32::try_from(stages).ok());
    stages.ok_or_else(|| {
        let want = format!("fewer: there are {per_repetition} rounds in each, and 2^32 - 1 can be in all");
        WorkloadError::of(benchmark, "repetitions", run.repetitions.to_string(), &want)
    })
}

/// The rows of [`Run`]; `processes` and `repetitions` have options of the benchmark's own.
macro_rules! run_parameters {
    ($processes:literal, $repetitions:literal) => {
        [
            $crate::workload::parameters::parameter!("processes", $processes, run.processes, "processes (MPI ranks)"),
            $crate::workload::parameters::parameter!(
                "nodes",
                "",
                run.nodes,
                "client nodes, over which the processes are spread in blocks; `auto`: 8, or as many as processes"
            ),
            $crate::workload::parameters::parameter!(
                "repetitions",
                $repetitions,
                run.repetitions,
                "how often everything is done"
            ),
            $crate::workload::parameters::parameter!(
                "think",
                "",
                run.think,
                "computing after each request, as in `10ms`"
            ),
            $crate::workload::parameters::parameter!(
                "jitter",
                "",
                run.jitter,
                "share by which think times vary at random, 0 to 1"
            ),
            $crate::workload::parameters::parameter!(
                "seed",
                "",
                run.seed,
                "of everything random; the same seed gives the same program"
            ),
            $crate::workload::parameters::parameter!(
                "file",
                "",
                run.file,
                "absolute path of the file; files per process add their number"
            ),
        ]
    };
}
pub(super) use run_parameters;

/// A program in stages.
pub(super) trait Staged: Send + Sync {
    fn run(&self) -> &Run;
    fn files(&self) -> &[FileShape];
    /// Over all repetitions.
    fn stages(&self) -> u32;
    /// What every process does before the stage's requests: [`Step::Think`], [`Step::Barrier`], [`Step::Phase`].
    fn entry(&self, stage: u32) -> [Option<Step>; 2];
    fn requests(&self, process: u32, stage: u32) -> impl Iterator<Item = IoRequest> + Send + '_;
    fn phases(&self) -> u32 {
        1
    }
}

/// Before a stage that is no phase: nothing at the start of the run, a barrier later.
pub(super) fn barrier_after_first(stage: u32) -> [Option<Step>; 2] {
    [(stage > 0).then_some(Step::Barrier), None]
}

/// A staged program as a [`Program`].
pub(super) struct InStages<S>(pub(super) S);

impl<S: Staged> Program for InStages<S> {
    fn files(&self) -> &[FileShape] {
        self.0.files()
    }

    fn processes(&self) -> u32 {
        self.0.run().processes
    }

    fn nodes(&self) -> u32 {
        self.0.run().nodes()
    }

    fn phases(&self) -> u32 {
        self.0.phases()
    }

    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        let run = self.0.run();
        let think_ns = u64::try_from(run.think.as_nanos()).unwrap_or(u64::MAX);
        if think_ns == 0 {
            return Box::new((0..self.0.stages()).flat_map(move |stage| {
                let entry = self.0.entry(stage).into_iter().flatten();
                entry.chain(self.0.requests(process, stage).map(Step::Access))
            }));
        }
        // A stream of its own: think times change no request.
        let mut random = of_rank(run.seed ^ THINK_STREAM, process);
        let jitter = run.jitter;
        let mut think = move || {
            let factor = if jitter == 0.0 { 1.0 } else { 1.0 + jitter * (2.0 * random.unit() - 1.0) };
            Step::Think { nanoseconds: (think_ns as f64 * factor).round() as u64 }
        };
        let steps = (0..self.0.stages()).flat_map(move |stage| {
            let entry = self.0.entry(stage).into_iter().flatten();
            entry.chain(self.0.requests(process, stage).map(Step::Access))
        });
        Box::new(steps.flat_map(move |step| {
            let after = matches!(step, Step::Access(_)).then(&mut think);
            [Some(step), after].into_iter().flatten()
        }))
    }
}
