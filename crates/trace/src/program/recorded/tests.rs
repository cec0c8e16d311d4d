use super::*;
use crate::manifest::Manifest;
use crate::slots::SlotBuffer;
use crate::workload::{Generator, Pattern, TraceShape, Workload, write_trace};
use stripewise_capture::clock::{Clock, Ticks};
use stripewise_capture::format::{ClockPair, EXTENSION, Header, NO_OFFSET, RawEvent};
use stripewise_layout::{ByteCount, Direction, FileOffset, WriteClass};

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

/// Writes of 1 ms with a gap of 1 ms behind each, and after every fourth one of these calls.
fn synchronizing(directory: &std::path::Path, calls: &[(Call, u32)]) -> Trace {
    let mut manifest = Manifest::new("node0".to_owned(), vec!["writer".to_owned()], 0);
    manifest.mpi_size = Some(1);
    manifest.write(directory).unwrap();
    let mut slots = SlotBuffer::default();
    let file = slots.define_file(b"/f");
    let mut ns = 1_000_000;
    let mut note = |call, offset, bytes, errno| {
        let event = RawEvent::new(call, file, offset, bytes, Ticks(ns), Ticks(ns + 1_000_000));
        let write_class = (call == Call::Pwrite).then_some(WriteClass::Buffered);
        slots.push_event(&RawEvent { errno, write_class, ..event });
        ns += 2_000_000;
    };
    for number in 0..4 * calls.len() as u64 {
        note(Call::Pwrite, FileOffset(number * 4096), 4096, 0);
        if number % 4 == 3 {
            let (call, errno) = calls[number as usize / 4];
            note(call, NO_OFFSET, 0, errno);
        }
    }
    let header = Header {
        clock: Clock::Monotonic,
        pid: 1000,
        parent_pid: 1,
        mpi_rank: Some(0),
        mpi_size: 1,
        start_wall_ns: 0,
        start_monotonic_ns: 1_000_000,
        start_ticks: 1_000_000,
        ticks_per_second: 1_000_000_000,
        lost: 0,
        finished: true,
        used_bytes: 0,
        pairs: [ClockPair { sequence: 1, ticks: ns, monotonic_ns: ns }, ClockPair::default()],
        node: b"node0",
        program: b"writer",
    };
    slots.write(&directory.join(format!("node0.1000.{EXTENSION}")), &header).unwrap();
    Trace::open(directory).unwrap()
}

#[test]
fn synchronizations_are_steps_where_they_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    // One that failed made nothing durable, and `fflush` asks for nothing.
    let calls = [(Call::Fsync, 0), (Call::Fdatasync, 0), (Call::Fsync, 5), (Call::Fflush, 0), (Call::Fsync, 0)];
    let trace = synchronizing(directory.path(), &calls);
    let of = |synchronizations| {
        let program =
            TraceProgram::new(&trace, &RecordedOptions { synchronizations, ..RecordedOptions::default() }).unwrap();
        steps(&program, 0)
    };
    let counts = |steps: &[Step]| {
        let synchronizations = steps.iter().filter(|step| **step == Step::Synchronize(ProgramFile(0))).count();
        (synchronizations, steps.iter().filter(|step| matches!(step, Step::Access(_))).count())
    };
    assert_eq!((counts(&of(false)), counts(&of(true))), ((0, 20), (3, 20)));
    let computed_ns = |steps: &[Step]| -> u64 {
        let think = |step: &Step| if let Step::Think { nanoseconds } = step { *nanoseconds } else { 0 };
        steps.iter().map(think).sum()
    };
    // The gaps between 20 writes and 5 calls; what is no step is part of a gap, unless nothing follows.
    assert_eq!(computed_ns(&of(true)), 24_000_000 + 2_000_000);
    assert_eq!(computed_ns(&of(false)), 24_000_000 - 1_000_000 + 4_000_000);
    let at = |steps: &[Step]| steps.iter().position(|step| matches!(step, Step::Synchronize(_))).unwrap();
    assert!(matches!(of(true)[at(&of(true)) - 2], Step::Access(IoRequest { offset, .. }) if offset.0 == 3 * 4096));
}
