//! Windows that follow a march: a program's stretches between barriers, each in equal shares that are phases.

use crate::reproduce::rephased::{ProcessSteps, Rephased};
use anyhow::{Result, ensure};
use stripewise_trace::{Program, Step};

/// The accesses of a process between barriers.
fn stretches(program: &dyn Program, process: u32) -> Vec<u64> {
    let mut lengths = vec![0];
    for step in program.steps(process) {
        match step {
            Step::Access(_) => *lengths.last_mut().expect("it begins with one") += 1,
            Step::Barrier => lengths.push(0),
            Step::Think { .. } | Step::Until { .. } | Step::Synchronize(_) | Step::Phase => {}
        }
    }
    lengths
}

/// A program of one phase with `windows` windows, a multiple of the program's stretches. Processes enter every share of every stretch
/// together.
///
/// # Errors
/// When it is none, or a process has fewer accesses in a stretch than that has windows.
pub(super) fn windowed(program: &dyn Program, windows: u32) -> Result<Rephased<'_>> {
    ensure!(program.phases() == 1, "a program of {} phases has windows of its own", program.phases());
    let count = stretches(program, 0).len() as u32;
    ensure!(windows.is_multiple_of(count), "{windows} windows do not fit {count} stretches between barriers");
    let shares = u64::from(windows / count);
    for process in 0..program.processes() {
        let least = stretches(program, process).into_iter().min().unwrap_or(0);
        ensure!(least >= shares, "process {process} has {least} accesses for {shares} windows");
    }
    let steps = move |process| -> ProcessSteps<'_> {
        let lengths = stretches(program, process);
        let (mut stretch, mut done) = (0, 0u64);
        let steps = program.steps(process).flat_map(move |step| match step {
            Step::Access(_) => {
                let share = |done: u64| done * shares / lengths[stretch];
                let enters = done > 0 && share(done) > share(done - 1);
                done += 1;
                [enters.then_some(Step::Phase), Some(step)]
            }
            Step::Barrier => {
                (stretch, done) = (stretch + 1, 0);
                [Some(Step::Phase), None]
            }
            other => [Some(other), None],
        });
        Box::new(steps.flatten())
    };
    Ok(Rephased { program, phases: windows, steps: Box::new(steps) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::h2dp::benchmark;

    #[test]
    fn windows_are_shares_of_what_lies_between_barriers() {
        let text = "hpio:region_count=10,region_size=4KiB,region_spacing=0,processes=2,nodes=1,op=both";
        let program = benchmark(text).unwrap();
        let in_windows = windowed(&*program, 6).unwrap();
        for process in 0..2 {
            let steps: Vec<Step> = in_windows.steps(process).collect();
            let lengths: Vec<usize> = steps.split(|step| *step == Step::Phase).map(<[Step]>::len).collect();
            assert_eq!(lengths, [4, 3, 3, 4, 3, 3]);
            let accesses = |steps: &mut dyn Iterator<Item = Step>| -> Vec<Step> {
                steps.filter(|step| matches!(step, Step::Access(_))).collect()
            };
            assert_eq!(accesses(&mut steps.into_iter()), accesses(&mut program.steps(process)));
        }
        assert_eq!(in_windows.phases(), 6);
        assert!(windowed(&*program, 5).is_err() && windowed(&*program, 22).is_err());
    }
}
