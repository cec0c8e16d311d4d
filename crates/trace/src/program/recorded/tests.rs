use super::*;
use crate::workload::{Generator, Pattern, TraceShape, Workload, write_trace};
use stripewise_layout::{ByteCount, Direction};

const REQUESTS: u64 = 50;

fn generator() -> Generator {
    let workload = Workload {
        pattern: Pattern::Zipf { exponent: 0.8, region_size: ByteCount(1 << 20) },
        file_size: ByteCount(1 << 30),
        request_size: ByteCount(64 << 10),
        direction: Direction::Write,
        ranks: 6,
        requests_per_rank: REQUESTS,
        seed: 7,
    };
    workload.generator().unwrap()
}

/// Requests of 0.8 ms, one begun each ms.
fn trace(directory: &std::path::Path) -> Trace {
    write_trace(&generator(), &TraceShape { nodes: 3, ..TraceShape::default() }, directory).unwrap();
    Trace::open(directory).unwrap()
}

fn steps(program: &TraceProgram<'_>, process: u32) -> Vec<Step> {
    program.steps(process).collect()
}

#[test]
fn at_once_is_the_program_that_was_traced() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path());
    let options = RecordedOptions { pacing: Pacing::AtOnce, ..RecordedOptions::default() };
    let program = TraceProgram::new(&trace, &options).unwrap();
    let original = generator();
    assert_eq!((program.processes(), program.nodes(), program.phases()), (6, 3, 1));
    let nodes: Vec<u32> = (0..6).map(|process| program.node_of(process)).collect();
    assert_eq!(nodes, [0, 0, 1, 1, 2, 2]);
    for process in 0..6 {
        assert!(Program::steps(&original, process).eq(program.steps(process)));
    }
    let end = (0..6).flat_map(|rank| original.requests(rank)).map(|request| request.offset.0 + request.bytes).max();
    let shape = FileShape { path: TraceShape::default().file, size_bytes: end.unwrap() };
    assert_eq!(program.files(), [shape]);
}

#[test]
fn own_times_and_gaps_are_those_of_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path());
    for scale in [1.0, 0.5] {
        let scaled = |ns: u64| (ns as f64 * scale) as u64;
        let options = RecordedOptions { pacing: Pacing::OwnTimes { scale }, ..RecordedOptions::default() };
        let program = TraceProgram::new(&trace, &options).unwrap();
        for (number, pair) in steps(&program, 2).chunks(2).enumerate() {
            assert_eq!(pair[0], Step::Until { nanoseconds: scaled(number as u64 * 1_000_000) });
            assert!(matches!(pair[1], Step::Access(_)));
        }
        let options = RecordedOptions { pacing: Pacing::Gaps { scale }, ..RecordedOptions::default() };
        let program = TraceProgram::new(&trace, &options).unwrap();
        let thinks: Vec<Step> =
            steps(&program, 2).into_iter().filter(|step| matches!(step, Step::Think { .. })).collect();
        assert_eq!(thinks, vec![Step::Think { nanoseconds: scaled(200_000) }; REQUESTS as usize - 1]);
    }
}

#[test]
fn windows_are_phases_of_all_processes() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path());
    let options = RecordedOptions { pacing: Pacing::AtOnce, window_s: Some(0.02), ..RecordedOptions::default() };
    let program = TraceProgram::new(&trace, &options).unwrap();
    assert_eq!(program.phases(), 3);
    for process in 0..6 {
        let made = steps(&program, process);
        let parts: Vec<usize> = made.split(|step| *step == Step::Phase).map(<[Step]>::len).collect();
        assert_eq!(parts, [20, 20, 10]);
    }
}

/// A program that is counted by phases gives the regions and requests of its trace counted by windows.
#[test]
fn counts_are_those_of_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path());
    let options = RecordedOptions { pacing: Pacing::AtOnce, window_s: Some(0.02), ..RecordedOptions::default() };
    let program = TraceProgram::new(&trace, &options).unwrap();
    let region_size = ByteCount(1 << 20);
    let counting = crate::ProgramCountOptions { region_size, window_s: 0.02, ..crate::ProgramCountOptions::default() };
    let found = crate::count_program(&program, &counting);
    let counting = crate::CountOptions { region_size, window_s: 0.02, ..crate::CountOptions::default() };
    let expected = crate::count(&trace, &counting).unwrap();
    assert_eq!(found.len(), 1);
    for (found, expected) in found[0].windows.iter().zip(&expected[0].windows) {
        let facts = |window: &crate::WindowAccess| {
            let regions = window.regions.iter();
            regions
                .map(|region| (region.region, region.processes, region.counts.iter().map(|(_, n)| n).sum::<u64>()))
                .collect::<Vec<_>>()
        };
        assert_eq!(facts(found), facts(expected));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path());
    let refuse = |options: RecordedOptions| TraceProgram::new(&trace, &options).unwrap_err().to_string();
    let defaults = RecordedOptions::default;
    assert!(
        refuse(RecordedOptions { pacing: Pacing::Gaps { scale: -1.0 }, ..defaults() }).contains("multiplied by -1")
    );
    assert!(refuse(RecordedOptions { pacing: Pacing::OwnTimes { scale: f64::NAN }, ..defaults() }).contains("NaN"));
    assert!(refuse(RecordedOptions { window_s: Some(0.0), ..defaults() }).contains("a window of 0 s"));
    assert!(refuse(RecordedOptions { files: Some(Vec::new()), ..defaults() }).contains("no read or write"));
}
