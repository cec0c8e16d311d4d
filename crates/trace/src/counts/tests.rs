//! The fast counting against a plain one that follows the definition word for word.

use super::classes::{self, ClassKey};
use super::*;
use crate::access::{
    ClassIndex, Company, ProcessCount, RegionAccess, Slices, Synchronizations, WindowAccess, WindowProcesses,
};
use crate::slots::SlotBuffer;
use crate::trace::{NodeIndex, ProcessIndex, TraceTime};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use stripewise_capture::call::{Call, Level};
use stripewise_capture::clock::{Clock, Ticks};
use stripewise_capture::format::{ClockPair, FileKey, Header, RawEvent};
use stripewise_layout::{Direction, FileOffset, RegionGeometry, RegionIndex};

#[derive(Default)]
struct Cell {
    keys: Vec<ClassKey>,
    users: BTreeSet<(NodeIndex, ProcessIndex)>,
    slices: u64,
}

/// By window and region.
type Cells = BTreeMap<(u32, u32), Cell>;

fn window_ns(options: &CountOptions) -> u64 {
    (options.window_s * 1e9).round() as u64
}

/// Nanoseconds of the recorded part of a window.
fn recorded_ns(trace: &Trace, options: &CountOptions, window: u32) -> u64 {
    let start = u64::from(window) * window_ns(options);
    window_ns(options).min(trace.duration().0 - start).max(1)
}

fn plainly(trace: &Trace, options: &CountOptions) -> Vec<FileAccess> {
    let geometry = RegionGeometry::new(options.region_size.0);
    let mut cells: BTreeMap<usize, Cells> = BTreeMap::new();
    let mut sizes: HashMap<usize, u64> = HashMap::new();
    let mut ends: HashMap<(ProcessIndex, usize), u64> = HashMap::new();
    let mut windows = 0;
    for event in trace.events() {
        let Some(file) = event.file else { continue };
        if trace.file(file).data_level() != Some(event.call.level()) || event.errno != 0 {
            continue;
        }
        let file = file.0 as usize;
        let size = sizes.entry(file).or_insert(0);
        if event.operation() == stripewise_capture::Operation::Truncate {
            *size = (*size).max(event.offset.0);
        }
        if !event.operation().is_data() || event.bytes == 0 {
            continue;
        }
        let end = event.offset.0 + event.bytes;
        *size = (*size).max(end);
        let before = ends.insert((event.process, file), end);
        let sequential =
            before.is_some_and(|last| (last..=last + options.forward_skip_bytes).contains(&event.offset.0));
        let window = (event.start.0 / window_ns(options)) as u32;
        windows = windows.max(window + 1);
        for piece in geometry.pieces(event.offset, event.bytes) {
            let kind = event.request_kind().expect("data");
            let cell = cells.entry(file).or_default().entry((window, piece.region.0)).or_default();
            cell.keys.push(ClassKey::new(kind, !sequential, piece.length));
            cell.users.insert((trace.process(event.process).node, event.process));
            let into = event.start.0 % window_ns(options);
            cell.slices |= 1 << (into * 64 / recorded_ns(trace, options, window)).min(63);
        }
    }
    let users_of = |cells: &Cells, window: u32| -> BTreeSet<(NodeIndex, ProcessIndex)> {
        let of_window = cells.iter().filter(|((in_window, _), _)| *in_window == window);
        of_window.flat_map(|(_, cell)| cell.users.iter().copied()).collect()
    };
    let of_run: Vec<ProcessCount> = (0..windows)
        .map(|window| plain_processes(&cells.values().flat_map(|cells| users_of(cells, window)).collect()))
        .collect();
    let file = |(file, cells): (usize, Cells)| {
        let mut plain = plain_file(trace, options, file, &cells, sizes[&file], windows);
        for (window, (access, run)) in (0..).zip(plain.windows.iter_mut().zip(&of_run)) {
            access.processes = WindowProcesses { file: plain_processes(&users_of(&cells, window)), run: *run };
        }
        plain
    };
    cells.into_iter().map(file).collect()
}

fn plain_processes(users: &BTreeSet<(NodeIndex, ProcessIndex)>) -> ProcessCount {
    let on_node = |node| users.iter().filter(|user| user.0 == node).count() as u32;
    let per_node = users.iter().map(|user| on_node(user.0)).max().unwrap_or(0);
    ProcessCount { processes: users.len() as u32, per_node }
}

fn plain_file(
    trace: &Trace,
    options: &CountOptions,
    file: usize,
    cells: &Cells,
    size_bytes: u64,
    windows: u32,
) -> FileAccess {
    let mut requests = BTreeMap::new();
    for key in cells.values().flat_map(|cell| &cell.keys) {
        let totals = requests.entry(*key).or_insert((0, 0));
        *totals = (totals.0 + 1, totals.1 + u128::from(key.class().request_bytes));
    }
    let (classes, map) = classes::settle(&requests, usize::from(options.class_limit));
    let region = |number: u32, Cell { keys, users, slices }: &Cell| {
        let mut counts: BTreeMap<ClassIndex, u64> = BTreeMap::new();
        keys.iter().for_each(|key| *counts.entry(map[key]).or_insert(0) += 1);
        let on_node = |node| users.iter().filter(|user| user.0 == node).count() as u32;
        RegionAccess {
            region: RegionIndex(number),
            counts: counts.into_iter().collect(),
            processes: users.len() as u32,
            processes_per_node: users.iter().map(|user| on_node(user.0)).max().unwrap(),
            slices: Slices(*slices),
        }
    };
    FileAccess {
        path: trace.files[file].path.clone(),
        size_bytes,
        region_size: options.region_size,
        classes,
        windows: (0..windows)
            .map(|window| WindowAccess {
                start_s: f64::from(window) * options.window_s,
                end_s: f64::from(window + 1) * options.window_s,
                company: plain_company(trace, options, file, window, cells),
                processes: WindowProcesses::default(),
                synchronizations: plain_synchronizations(trace, options, file, window),
                regions: cells
                    .iter()
                    .filter(|((in_window, _), _)| *in_window == window)
                    .map(|((_, number), cell)| region(*number, cell))
                    .collect(),
            })
            .collect(),
    }
}

/// At 511 instants, of every process the last request that began before, unless that is long ago.
fn plain_company(trace: &Trace, options: &CountOptions, file: usize, window: u32, cells: &Cells) -> Company {
    if !cells.keys().any(|(in_window, _)| *in_window == window) {
        return Company::default();
    }
    let level = trace.files[file].data_level();
    let requests: Vec<Vec<_>> = trace
        .process_indices()
        .map(|process| {
            let of_process = trace.events_of(process).filter(|event| {
                event.file.is_some_and(|found| found.0 as usize == file)
                    && event.operation().is_data()
                    && event.bytes > 0
                    && Some(event.call.level()) == level
            });
            of_process.collect()
        })
        .collect();
    let instants = (1..512u64).map(|number| {
        let into = (recorded_ns(trace, options, window) * number).div_ceil(512);
        let instant = u64::from(window) * window_ns(options) + into;
        let held = requests.iter().filter_map(|requests| {
            let last = requests.iter().rfind(|request| request.start.0 < instant)?;
            let span = requests.last()?.start.0 - requests.first()?.start.0;
            let gap = span / (requests.len() as u64 - 1).max(1);
            let is_held = last.end.0 >= instant || instant - last.start.0 <= 8 * gap;
            is_held.then_some((last.offset.0, last.bytes))
        });
        held.collect()
    });
    let instants: Vec<Vec<(u64, u64)>> = instants.collect();
    Company::of_instants(instants.into_iter(), options.region_size.0, options.forward_skip_bytes)
}

/// Writes in intervals, and what was written while a synchronization was under way, slice by slice.
fn plain_synchronizations(trace: &Trace, options: &CountOptions, file: usize, window: u32) -> Synchronizations {
    let slice_of = |time: TraceTime| {
        let of_window = (time.0 / window_ns(options)) as u32;
        let into = time.0 % window_ns(options) * 64 / recorded_ns(trace, options, of_window);
        (of_window, into.min(63) as usize)
    };
    let (mut writes, mut ns) = ([0u64; 64], 0.0);
    let mut syncs: Vec<Vec<ProcessIndex>> = vec![Vec::new(); 64];
    let (mut under_way, mut writers, mut writing_ns) = ([false; 64], BTreeSet::new(), [0u64; 64]);
    for event in trace.events() {
        let is_of_file = event.file.is_some_and(|found| found.0 as usize == file);
        if !is_of_file || Some(event.call.level()) != trace.files[file].data_level() || event.errno != 0 {
            continue;
        }
        let ((begin_window, begin), (end_window, end)) = (slice_of(event.start), slice_of(event.end));
        match event.operation() {
            stripewise_capture::Operation::Sync => {
                if begin_window == window {
                    syncs[begin].push(event.process);
                }
                for (slice, under_way) in under_way.iter_mut().enumerate() {
                    let at = (window, slice);
                    let is_near = window == begin_window || window == end_window;
                    *under_way |= is_near && (begin_window, begin) < at && at <= (end_window, end);
                }
            }
            stripewise_capture::Operation::Write if event.bytes > 0 && begin_window == window => {
                writes[begin] += 1;
                writing_ns[begin] += event.end.0 - event.start.0;
                writers.insert(event.process);
            }
            _ => {}
        }
    }
    if syncs.iter().all(Vec::is_empty) {
        return Synchronizations::default();
    }
    let (mut apart, mut every, mut is_ended) = (vec![0.0], vec![0.0], false);
    let (mut meanwhile, mut waited) = (0.0, 0.0);
    for slice in 0..64 {
        let processes = syncs[slice].iter().collect::<BTreeSet<_>>().len();
        let rounds = if processes > 0 { syncs[slice].len().div_ceil(processes) } else { 0 };
        let shares = vec![writes[slice] as f64 / rounds.max(1) as f64; rounds.max(1)];
        for (number, share) in shares.iter().enumerate() {
            *every.last_mut().unwrap() += share;
            if number < rounds {
                every.push(0.0);
            }
        }
        if under_way[slice] {
            let begin = (0..slice).rev().find(|before| !under_way[*before]).unwrap_or(0);
            meanwhile += writes[slice] as f64;
            waited += writes[slice] as f64 * (slice - begin) as f64;
            *apart.last_mut().unwrap() += writes[slice] as f64;
            continue;
        }
        ns += writing_ns[slice] as f64;
        if is_ended {
            apart.push(0.0);
        }
        *apart.last_mut().unwrap() += shares[0];
        shares[1..].iter().for_each(|share| apart.insert(0, *share));
        is_ended = rounds > 0;
    }
    let count = |intervals: Vec<f64>| {
        let (sum, squares) = (intervals.iter().sum::<f64>(), intervals.iter().map(|share| share * share).sum::<f64>());
        if sum > 0.0 { sum * sum / squares } else { 1.0 }
    };
    let slice_s = recorded_ns(trace, options, window) as f64 * 1e-9 / 64.0;
    Synchronizations {
        apart: count(apart),
        intervals: count(every),
        under_way_s: if meanwhile > 0.0 { waited / meanwhile * slice_s } else { 0.0 },
        idle_s: ns * 1e-9 / writers.len().max(1) as f64,
    }
}

/// The figures of synchronizations come out of sums in another order, and of ticks that are rounded.
fn without_synchronizations(files: &[FileAccess]) -> (Vec<FileAccess>, Vec<Synchronizations>) {
    let mut bare = files.to_vec();
    let windows = bare.iter_mut().flat_map(|file| &mut file.windows);
    let taken = windows.map(|window| std::mem::take(&mut window.synchronizations)).collect();
    (bare, taken)
}

#[derive(Clone, Debug)]
struct Step {
    process: usize,
    file: u32,
    call: Call,
    offset: u64,
    continues: bool,
    bytes: u64,
    failed: bool,
    wait_ns: u64,
}

fn any_step() -> impl Strategy<Value = Step> {
    let calls = prop_oneof![
        4 => Just(Call::Pread), 4 => Just(Call::Write), 1 => Just(Call::MpiWriteAtAll), 1 => Just(Call::MpiRead),
        1 => Just(Call::Fsync), 1 => Just(Call::Ftruncate),
    ];
    let sizes = prop_oneof![40 => Just(4096u64), 40 => Just(65_536u64), 20 => 0..200_000u64, 1 => Just((1 << 32) + 5)];
    let offsets = prop_oneof![8 => (0..64u64).prop_map(|place| place << 16), 4 => 0..3_000_000u64, 1 => 0..1u64 << 36];
    let outcome = (any::<bool>(), prop::bool::weighted(0.05), 0..40_000_000u64);
    (0..4usize, 1..4u32, calls, offsets, sizes, outcome).prop_map(
        |(process, file, call, offset, bytes, (continues, failed, wait_ns))| Step {
            process,
            file,
            call,
            offset,
            continues,
            bytes,
            failed,
            wait_ns,
        },
    )
}

/// Processes 0 and 1 on one node, 2 and 3 on another; files 1 to 3, of which 3 is the same as 1 in process 0.
fn trace_of(steps: &[Step], is_tick_clock: bool) -> Trace {
    let mut slots: Vec<SlotBuffer> = (0..4).map(|_| SlotBuffer::default()).collect();
    for (process, slots) in slots.iter_mut().enumerate() {
        slots.define_file(b"/data/a");
        slots.define_file(b"/data/b");
        slots.define_file(if process == 0 { b"/data/a" } else { b"/data/c" });
    }
    let mut now = [5_000u64; 4];
    let mut ends = HashMap::new();
    for step in steps {
        let last = ends.get(&(step.process, step.file)).copied().filter(|_| step.continues);
        let offset = last.unwrap_or(step.offset);
        let start = now[step.process];
        let bytes = if step.failed { 0 } else { step.bytes };
        ends.insert((step.process, step.file), (offset + bytes) % (1 << 41));
        // Synchronizations last longer than other calls, some longer than the next ones of other processes.
        let lasts = if step.call == Call::Fsync { 3 * step.wait_ns } else { 9 };
        let end = Ticks(start + lasts);
        let mut event = RawEvent::new(step.call, FileKey(step.file), FileOffset(offset), bytes, Ticks(start), end);
        event.errno = if step.failed { 5 } else { 0 };
        slots[step.process].push_event(&event);
        now[step.process] += step.wait_ns;
    }
    let directory = tempfile::tempdir().unwrap();
    for (process, slots) in slots.iter().enumerate() {
        let header = Header {
            clock: if is_tick_clock { Clock::Tsc } else { Clock::Monotonic },
            pid: process as u32,
            parent_pid: 0,
            mpi_rank: None,
            mpi_size: 0,
            start_wall_ns: 1_000_000_000_000,
            start_monotonic_ns: 5_000,
            start_ticks: 5_000,
            ticks_per_second: 2_999_999_999,
            lost: 0,
            finished: true,
            used_bytes: 0,
            pairs: [ClockPair::default(); 2],
            node: if process < 2 { b"left" } else { b"right" },
            program: b"",
        };
        slots.write(&directory.path().join(format!("{process}.swt")), &header).unwrap();
    }
    Trace::open(directory.path()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn counting_in_chunks_is_counting_plainly(
        steps in proptest::collection::vec(any_step(), 1..150),
        region_bytes in prop_oneof![Just(1u64 << 20), Just(999_999u64), Just(1 << 26)],
        window_s in prop_oneof![Just(600.0), Just(0.25), Just(0.125)],
        class_limit in prop_oneof![Just(32u16), Just(6)],
        chunk_slots in prop_oneof![Just(usize::MAX), 1..20usize],
        batch_slots in prop_oneof![Just(usize::MAX), 1..60usize],
        is_tick_clock in any::<bool>(),
    ) {
        let trace = trace_of(&steps, is_tick_clock);
        prop_assert_eq!(&trace.warnings[..], &[][..]);
        let options = CountOptions { window_s, region_size: ByteCount(region_bytes), class_limit, ..CountOptions::default() };
        let plain = plainly(&trace, &options);
        let limits = Limits::new(class_limit);
        let instants = Instants::new(&options, trace.duration(), trace.processes.len());
        let counted = count_in_chunks(&trace, &options, &instants, &limits, chunk_slots, batch_slots);
        prop_assert_eq!(counted.impossible, 0);
        let ((counted, found), (plain, expected)) = (without_synchronizations(&counted.files), without_synchronizations(&plain));
        prop_assert_eq!(counted, plain);
        for (found, expected) in found.iter().zip(&expected) {
            let figures = |of: &Synchronizations| [of.apart, of.intervals, of.under_way_s, of.idle_s];
            let is_near = |(found, expected): (f64, f64)| (found - expected).abs() <= 1e-6 * expected.abs() + 1e-7;
            let are_near = figures(found).into_iter().zip(figures(expected)).all(is_near);
            prop_assert!(are_near, "{:?} where {:?} is expected", found, expected);
        }
    }

    /// Where sizes are too many to tell apart, the result still does not depend on chunks, and no request is lost.
    #[test]
    fn rounding_sizes_depends_on_the_trace_alone(
        steps in proptest::collection::vec(any_step(), 1..150),
        classes_apart in 4..40usize,
        cells_apart in 4..60usize,
        chunk_slots in 1..40usize,
        batch_slots in 1..60usize,
    ) {
        let trace = trace_of(&steps, false);
        let options = CountOptions { window_s: 0.25, region_size: ByteCount(1 << 26), class_limit: 5, ..CountOptions::default() };
        let limits = Limits { classes: 5, classes_apart, cells_apart };
        // As of so many processes that there are few instants.
        let instants = Instants::new(&options, trace.duration(), 20_000 * trace.processes.len());
        let whole = count_in_chunks(&trace, &options, &instants, &limits, usize::MAX, usize::MAX);
        prop_assert_eq!(&count_in_chunks(&trace, &options, &instants, &limits, chunk_slots, batch_slots), &whole);
        let requests = |files: &[FileAccess]| -> Vec<u64> {
            let of_file = |file: &FileAccess| {
                let regions = file.windows.iter().flat_map(|window| &window.regions);
                regions.flat_map(|region| &region.counts).map(|(_, count)| count).sum()
            };
            files.iter().map(of_file).collect()
        };
        prop_assert_eq!(requests(&whole.files), requests(&plainly(&trace, &options)));
    }
}

#[test]
fn mpi_requests_count_only_where_no_posix_ones_are() {
    let step = |call, file| Step {
        process: 1,
        file,
        call,
        offset: 0,
        continues: false,
        bytes: 4096,
        failed: false,
        wait_ns: 0,
    };
    let trace = trace_of(&[step(Call::MpiWriteAt, 1), step(Call::Pwrite, 1), step(Call::MpiWriteAt, 2)], false);
    assert_eq!(
        trace.files.iter().map(|file| file.data_level()).collect::<Vec<_>>(),
        [Some(Level::Posix), Some(Level::MpiIo), None]
    );
    let counted = count(&trace, &CountOptions::default()).unwrap();
    assert_eq!(counted.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["/data/a", "/data/b"]);
    for file in counted {
        assert_eq!(file.classes.len(), 1);
        assert_eq!(file.classes[0].direction(), Direction::Write);
        assert_eq!(file.windows[0].regions[0].counts, [(ClassIndex(0), 1)]);
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let trace = trace_of(&[], false);
    let refuse = |options| count(&trace, &options).unwrap_err().to_string();
    assert!(refuse(CountOptions { window_s: f64::NAN, ..CountOptions::default() }).contains("NaN"));
    assert!(refuse(CountOptions { window_s: 0.0, ..CountOptions::default() }).contains("0 s"));
    assert!(refuse(CountOptions { region_size: ByteCount(0), ..CountOptions::default() }).contains("0 bytes"));
    assert!(refuse(CountOptions { class_limit: 3, ..CountOptions::default() }).contains("3 classes"));
    assert_eq!(count(&trace, &CountOptions::default()), Ok(vec![]));
}

/// A trace of one process, of pread calls on one file: start and end in nanoseconds, offset, bytes.
fn trace_of_requests(requests: impl Iterator<Item = (u64, u64, u64, u64)>) -> Trace {
    let mut slots = SlotBuffer::default();
    let file = slots.define_file(b"/data/a");
    for (start, end, offset, bytes) in requests {
        slots.push_event(&RawEvent::new(Call::Pread, file, FileOffset(offset), bytes, Ticks(start), Ticks(end)));
    }
    let directory = tempfile::tempdir().unwrap();
    let header = Header {
        clock: Clock::Monotonic,
        pid: 1,
        parent_pid: 0,
        mpi_rank: None,
        mpi_size: 0,
        start_wall_ns: 1_000_000_000_000,
        start_monotonic_ns: 0,
        start_ticks: 0,
        ticks_per_second: 0,
        lost: 0,
        finished: true,
        used_bytes: 0,
        pairs: [ClockPair::default(); 2],
        node: b"n",
        program: b"p",
    };
    slots.write(&directory.path().join("1.swt"), &header).unwrap();
    Trace::open(directory.path()).unwrap()
}

fn requests_of(file: &FileAccess) -> u64 {
    let regions = file.windows.iter().flat_map(|window| &window.regions);
    regions.flat_map(|region| &region.counts).map(|(_, count)| count).sum()
}

#[test]
fn times_that_run_backwards_are_counted_all_the_same() {
    let requests = 20_000u64;
    let backwards =
        (0..requests).rev().map(|number| (number * 1_000_000, number * 1_000_000 + 500, number << 12, 4096));
    let trace = trace_of_requests(backwards);
    let options = CountOptions { window_s: 0.5, region_size: ByteCount(1 << 20), ..CountOptions::default() };
    let counted = count(&trace, &options).unwrap();
    assert_eq!((requests_of(&counted[0]), counted[0].windows.len()), (requests, 40));
    // 500 requests of 4 KiB in each window: two regions or three.
    assert!(counted[0].windows.iter().all(|window| (2..=3).contains(&window.regions.len())));
    assert!(counted[0].windows.iter().all(|window| window.company == Company::default()), "one process has no company");
    // To and fro: every request in another window than the one before.
    let fro = (0..requests).map(|number| (number % 2 * 700_000_000, number % 2 * 700_000_000, number << 12, 4096));
    let counted = count(&trace_of_requests(fro), &options).unwrap();
    assert_eq!((requests_of(&counted[0]), counted[0].windows.len()), (requests, 2));
}

#[test]
fn sizes_without_end_become_few_classes() {
    let requests = 150_000u64;
    let trace = trace_of_requests((0..requests).map(|number| (number, number, (number % 50) << 26, number + 1)));
    let counted = count(&trace, &CountOptions::default()).unwrap();
    assert!(counted[0].classes.len() <= 32);
    assert_eq!(requests_of(&counted[0]), requests);
    let regions = counted[0].windows.iter().flat_map(|window| &window.regions).flat_map(|region| &region.counts);
    let bytes: u64 = regions.map(|(class, count)| counted[0].class(*class).request_bytes * count).sum();
    let exact = requests * (requests + 1) / 2;
    assert!(bytes.abs_diff(exact) <= requests, "{bytes} of {exact}");
}

#[test]
fn what_no_file_can_hold_is_left_out_and_told() {
    let odd = [
        (0, 1, 0, 4096),
        (1, 2, 1 << 62, 4096),
        (2, 3, u64::MAX - 10, 4096),
        (3, 4, 0, 1 << 61),
        (4, 5, 1 << 61, 4096),
        (5, 6, 0, u64::MAX >> 1),
        // Larger than the file that is told by the others, but possible.
        (6, 7, 4096, 1 << 40),
    ];
    let trace = trace_of_requests(odd.into_iter());
    let counted = count_and_report(&trace, &CountOptions::default()).unwrap();
    assert_eq!(counted.impossible, 5);
    assert_eq!((counted.files.len(), counted.files[0].size_bytes), (1, 4096 + (1 << 40)));
    assert_eq!(requests_of(&counted.files[0]), 1 + (1 << 14) + 1);
    assert_eq!(
        count_and_report(&trace_of_requests([(0, 0, 1 << 62, 1)].into_iter()), &CountOptions::default()).unwrap(),
        Counted { files: Vec::new(), impossible: 1 }
    );
}
