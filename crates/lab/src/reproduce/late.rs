//! Programs whose processes do not start together.
//!
//! Processes that march through a file from a common start, and again from every barrier, keep in step in the simulator, where all are equally fast. The
//! best layout then is one that only serves such ranks. Nobody makes processes start within a request of each other, so results that hang on it are
//! judged with both starts.

use super::rephased::{ProcessSteps, Rephased};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stripewise_trace::{Program, Step};

/// The last process begins so much later: many requests.
const LATEST_NS: u64 = 200_000_000;

/// The program with a drawn pause of up to [`LATEST_NS`] before each process's first step and behind each of its barriers.
pub(super) fn late(program: &dyn Program, seed: u64) -> Rephased<'_> {
    let steps = move |process: u32| -> ProcessSteps<'_> {
        let mut random = SmallRng::seed_from_u64(seed ^ u64::from(process) << 20);
        let nanoseconds = random.random_range(0..LATEST_NS);
        let pause = Step::Think { nanoseconds };
        let behind = move |step| [Some(step), matches!(step, Step::Barrier | Step::Phase).then_some(pause)];
        Box::new(std::iter::once(pause).chain(program.steps(process).flat_map(behind).flatten()))
    };
    Rephased { program, phases: program.phases(), steps: Box::new(steps) }
}

/// Bandwidth over several runs, from the bandwidth of each. All access equally many bytes but for what is drawn, so those of all over the time of all.
pub(super) fn over_all_runs(mb_s: &[f64]) -> f64 {
    mb_s.len() as f64 / mb_s.iter().map(|mb_s| 1.0 / mb_s).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_trace::Benchmark;

    #[test]
    fn every_process_pauses_before_it_begins_and_behind_barriers() {
        let program =
            "btio:class=S,processes=4,time_steps=10,op=write".parse::<Benchmark>().unwrap().program().unwrap();
        let late = late(&*program, 7);
        let mut pauses = Vec::new();
        for process in 0..4 {
            let steps: Vec<Step> = late.steps(process).collect();
            let Step::Think { nanoseconds } = steps[0] else { panic!("{:?}", steps[0]) };
            assert!(nanoseconds < LATEST_NS);
            pauses.push(nanoseconds);
            let barriers: Vec<usize> = (0..steps.len()).filter(|at| steps[*at] == Step::Barrier).collect();
            assert!(!barriers.is_empty() && barriers.iter().all(|at| steps[at + 1] == steps[0]));
            let others = steps.iter().filter(|step| !matches!(step, Step::Think { .. }));
            assert!(others.copied().eq(program.steps(process)));
        }
        pauses.dedup();
        assert_eq!(pauses.len(), 4, "each its own");
    }
}
