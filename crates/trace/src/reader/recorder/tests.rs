//! What is read of the fixtures is what Recorder's own `recorder2text` says of them, and what their program did.

use super::grammar::Grammar;
use super::times::Times;
use super::*;
use crate::trace::Event;
use std::fs;
use stripewise_capture::call::{Call, Operation};
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::WriteClass;
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recorder").join(name)
}

/// Fixtures, and of how many ranks the times that `recorder2text` prints are right.
const FIXTURES: [(&str, u32); 3] = [("2.3.3", 2), ("2.5.0-shared", 1), ("3.0.0", 0)];

/// A copy that may be damaged.
fn copy(name: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    directory
}

fn warnings(trace: &Trace) -> String {
    trace.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn refused(directory: &Path) -> String {
    Trace::open(directory).unwrap_err().to_string()
}

fn of_rank(trace: &Trace, rank: u32) -> Vec<Event> {
    trace.events().filter(|event| trace.processes[event.process.0 as usize].mpi_rank == Some(rank)).collect()
}

fn path_of(trace: &Trace, event: &Event) -> String {
    event.file.map_or_else(String::new, |file| trace.file(file).path.clone())
}

/// A line of `recorder2text`, `start end function depth kind ( arguments )`, as call, file, bytes, start and end in units of 100 ns; for those that name a
/// file or a handle of one.
fn line(text: &str) -> Option<(Call, String, u64, u64, u64)> {
    let words: Vec<&str> = text.split(' ').collect();
    let units = |text: &str| text.replace('.', "").parse::<u64>().unwrap();
    let (name, arguments) = (words[2].trim_start_matches('P').trim_end_matches("64"), &words[6..]);
    let number = |at: usize| arguments[at].parse::<u64>().unwrap();
    let size = |at: usize| match arguments[at] {
        "MPI_BYTE" => Some(1),
        "MPI_INT" => Some(4),
        "MPI_DOUBLE" => Some(8),
        _ => None,
    };
    let name = match name {
        "fseek" => "lseek",
        name => name,
    };
    let call = Call::from_name(name)?;
    let path = match call {
        Call::MpiOpen => arguments[1],
        _ if name.starts_with("MPI_") => "/tmp/recorded/shared",
        Call::Fread | Call::Fwrite => arguments[3],
        _ => arguments[0],
    };
    let bytes = match call {
        Call::Read | Call::Write | Call::Pread | Call::Pwrite => number(2),
        Call::Readv | Call::Writev => number(1),
        Call::Fread | Call::Fwrite => number(1) * number(2),
        _ if call.operation().is_data() && name.contains("_at") => number(3) * size(4)?,
        _ if call.operation().is_data() => number(2) * size(3)?,
        _ => 0,
    };
    Some((call, path.to_owned(), bytes, units(words[0]), units(words[1])))
}

#[test]
fn every_call_is_the_one_that_recorder2text_prints() {
    for (name, ranks_with_times) in FIXTURES {
        let trace = Trace::open(&fixture(name)).unwrap();
        assert_eq!((trace.processes.len(), trace.mpi_size()), (2, 2), "{name}");
        for rank in 0..2 {
            let text = fs::read_to_string(fixture(name).join(format!("_text/{rank}.txt"))).unwrap();
            let mut expected: Vec<_> = text.lines().filter_map(line).collect();
            let events = of_rank(&trace, rank);
            let units = |seconds: f64| (seconds * 1e7).round() as u64;
            let first = events.iter().map(|event| units(event.start.seconds())).min().unwrap();
            let begin = expected.iter().map(|(_, _, _, start, _)| *start).min().unwrap();
            let mut found: Vec<_> = events
                .iter()
                .map(|event| {
                    let at = |seconds: f64| units(seconds) - first + begin;
                    let (start, end) = (at(event.start.seconds()), at(event.end.seconds()));
                    (event.call, path_of(&trace, event), event.bytes, start, end)
                })
                .collect();
            if rank >= ranks_with_times {
                for (.., start, end) in found.iter_mut().chain(&mut expected) {
                    (*start, *end) = (0, 0);
                }
            }
            expected.sort();
            found.sort();
            assert!(found.len() > 70, "{name}: {}", found.len());
            assert_eq!(found, expected, "{name}, rank {rank}");
        }
    }
}

#[test]
fn offsets_are_those_that_the_program_had() {
    const MIB: u64 = 1 << 20;
    for (name, _) in FIXTURES {
        let trace = Trace::open(&fixture(name)).unwrap();
        let events = of_rank(&trace, 1);
        let moved = |file: &str, is_mpi: bool| -> Vec<(Option<u64>, u64)> {
            let those = events.iter().filter(|event| {
                event.call.operation().is_data()
                    && path_of(&trace, event) == format!("/tmp/recorded/{file}")
                    && event.call.name().starts_with("MPI_") == is_mpi
            });
            those.map(|event| ((event.offset != NO_OFFSET).then_some(event.offset.0), event.bytes)).collect()
        };
        let mut own: Vec<(Option<u64>, u64)> = (0..20).map(|number| (Some(number * 4096), 4096)).collect();
        own.extend((0..5).map(|number| (Some(4096 + number * 2048), 1024)));
        own.extend([(Some(14336), 300), (Some(14636), 300)]);
        own.extend((0..8).map(|number| (Some(number * 16384), 8192)));
        // Behind a seek from the end, and appended.
        own.extend([(Some(7), 512), (None, 10), (None, 77)]);
        // The build of 2.x for the fixtures leaves `creat` out.
        own.extend(moved("of_rank_1", false).get(38..).unwrap_or_default().iter().map(|_| (Some(0), 33)));
        assert_eq!(moved("of_rank_1", false), own, "{name}");
        assert_eq!(own.len(), if name == "3.0.0" { 39 } else { 38 });
        assert_eq!(moved("renamed_1", false), [(Some(0), 128), (Some(4096), 1000)], "{name}");
        let mut shared: Vec<(Option<u64>, u64)> =
            (0..4).map(|number| (Some((number * 2 + 1) * 65536), 65536)).collect();
        shared.extend([(Some(MIB + 65536), 65536), (Some(8192), 4096), (Some(12288), 1024), (Some(13312), 1024)]);
        // Through a view with gaps.
        shared.push((None, 256));
        assert_eq!(moved("shared", true), shared, "{name}");
        let said = warnings(&trace);
        assert!(said.contains("2 calls of MPI-IO are of a derived datatype"), "{said}");
        assert!(said.contains("4 reads and writes are at offsets that the trace does not say"), "{said}");
    }
}

#[test]
fn an_open_that_found_nothing_does_not_stay_open_and_classes_follow_flags() {
    let trace = Trace::open(&fixture("2.3.3")).unwrap();
    let events = of_rank(&trace, 0);
    let opens: Vec<bool> =
        events.iter().filter(|event| event.call == Call::Open).map(|event| event.errno != 0).collect();
    assert_eq!(opens.iter().filter(|failed| **failed).count(), 1, "{opens:?}");
    let appended = events.iter().find(|event| event.bytes == 77).unwrap();
    assert_eq!(appended.write_class, Some(WriteClass::Synchronous));
    let renamed = events.iter().find(|event| event.operation() == Operation::Rename).unwrap();
    assert_eq!(path_of(&trace, renamed), "/tmp/recorded/of_rank_0");
}

#[test]
fn the_file_that_every_trace_has_may_be_named_instead_of_the_directory() {
    let (by_file, by_directory) =
        (Trace::open(&fixture("3.0.0/recorder.mt")).unwrap(), Trace::open(&fixture("3.0.0")).unwrap());
    assert_eq!(by_file.event_count(), by_directory.event_count());
}

#[test]
fn what_fills_the_head_may_be_anything() {
    let directory = copy("3.0.0");
    let path = directory.path().join("recorder.mt");
    let mut bytes = fs::read(&path).unwrap();
    bytes[12..16].fill(127);
    fs::write(&path, bytes).unwrap();
    assert_eq!(
        Trace::open(directory.path()).unwrap().event_count(),
        Trace::open(&fixture("3.0.0")).unwrap().event_count()
    );
}

#[test]
fn other_versions_and_foreign_directories_are_refused_by_name() {
    let directory = copy("2.3.3");
    for version in ["2.2.1", "3.1.0", "4.0", "", "two", "2.6.0"] {
        fs::write(directory.path().join("VERSION"), version).unwrap();
        let said = refused(directory.path());
        assert!(said.contains("VERSION: Recorder's traces of version") && said.contains(version), "{said}");
    }
    fs::remove_file(directory.path().join("VERSION")).unwrap();
    assert!(refused(directory.path()).contains("VERSION: No such file"), "{}", refused(directory.path()));
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("recorder.mt"), "something else\n").unwrap();
    fs::write(other.path().join("VERSION"), "2.5.0").unwrap();
    assert!(refused(other.path()).contains("recorder.mt: "), "{}", refused(other.path()));
    fs::remove_file(other.path().join("recorder.mt")).unwrap();
    assert!(refused(other.path()).contains("a directory that Recorder wrote, with recorder.mt"));
}

#[test]
fn offsets_that_are_patterns_are_refused() {
    let directory = copy("3.0.0");
    let path = directory.path().join("recorder.mt");
    let mut bytes = fs::read(&path).unwrap();
    bytes[38] = 1;
    fs::write(&path, bytes).unwrap();
    assert!(refused(directory.path()).contains("RECORDER_INTERPROCESS_PATTERN_RECOGNITION=0"));
}

#[test]
fn whatever_file_is_cut_is_named() {
    for (name, _) in FIXTURES {
        let whole = Trace::open(&fixture(name)).unwrap().event_count();
        for entry in fs::read_dir(fixture(name)).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_str().unwrap().to_owned();
            if !path.is_file() || file == "VERSION" {
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            // The list of functions has no length.
            let most = if file == "recorder.mt" { 32 } else { bytes.len() };
            for length in [0, 3, 4, 7, 21, most / 2, most - 8, most - 1].into_iter().filter(|length| *length < most) {
                let directory = copy(name);
                fs::write(directory.path().join(&file), &bytes[..length]).unwrap();
                match Trace::open(directory.path()) {
                    Err(error) => assert!(error.to_string().contains(&file), "{name}/{file}, {length}: {error}"),
                    Ok(trace) => {
                        let said = warnings(&trace);
                        assert!(
                            file.ends_with(".ts") && said.contains(&format!("{file}: the times of rank")),
                            "{said}"
                        );
                        assert!(trace.event_count() < whole);
                    }
                }
            }
        }
    }
}

fn ints(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn grammar(numbers: &[i32]) -> Result<Grammar, RecorderFault> {
    Grammar::read(&mut bytes::Rest(&ints(numbers)), 3)
}

#[test]
fn rules_are_applied_in_their_order_and_times() {
    // -1: 0 (-2)^2 1^2; -2: (-3)^1; -3: 2 (-4)^5 1; -4: nothing
    let found = grammar(&[4, -1, 3, 0, 1, -2, 2, 1, 2, -2, 1, -3, 1, -3, 3, 2, 1, -4, 5, 1, 1, -4, 0]).unwrap();
    let calls: Vec<u32> = found.calls().collect();
    assert_eq!(calls, [0, 2, 1, 2, 1, 1, 1]);
    assert_eq!(found.count(), calls.len() as u64);
}

#[test]
fn grammars_without_an_end_or_a_beginning_are_refused_and_long_ones_take_no_time_to_begin() {
    let refused = |numbers: &[i32]| grammar(numbers).unwrap_err().to_string();
    assert!(refused(&[1, -1, 1, -1, 1]).contains("rule -1 contains itself"));
    assert!(refused(&[2, -1, 1, -2, 1, -2, 2, 0, 1, -1, 1]).contains("contains itself"));
    assert!(refused(&[1, -2, 1, 0, 1]).contains("the first one is missing"));
    assert!(refused(&[1, -1, 1, 3, 1]).contains("the signature in a rule is 3"));
    assert!(refused(&[1, -1, 1, -7, 1]).contains("the rule in a rule is -7"));
    assert!(refused(&[1, -1, 1, 0, -1]).contains("the repetition of a symbol is -1"));
    assert!(refused(&[2, -1, 1, 0, 1, -1, 0]).contains("equal rules"));
    assert!(refused(&[i32::MAX, -1]).contains("the number of rules"));
    // A thousand rules, each of the next one two thousand million times, and the same of nothing.
    let chain = |last: i32| {
        let mut numbers = vec![1001];
        (1..=1000).for_each(|number| numbers.extend([-number, 1, -number - 1, i32::MAX]));
        numbers.extend([-1001, last]);
        numbers.extend([0, 1].into_iter().take(2 * last as usize));
        grammar(&numbers).unwrap()
    };
    assert_eq!(chain(1).count(), u64::MAX);
    assert_eq!(chain(1).calls().take(5).collect::<Vec<_>>(), [0; 5]);
    assert_eq!((chain(0).count(), chain(0).calls().next()), (0, None));
}

#[test]
fn times_step_back_where_threads_crossed_and_go_on_where_a_call_took_long() {
    let pairs: [(u32, u32); 5] = [
        (10, 20),
        // Begun before the one before, and ended behind its start.
        (5u32.wrapping_neg(), 8),
        (2u32.wrapping_neg(), 1u32.wrapping_neg()),
        // Longer than a number can say.
        (100, 50),
        (7, 9),
    ];
    let bytes: Vec<u8> =
        pairs.iter().flat_map(|(start, end)| [start.to_le_bytes(), end.to_le_bytes()].concat()).collect();
    let found: Vec<_> = Times::new(&bytes, 1000, 1.0).collect();
    assert_eq!(found, [(1010, 1020), (1005, 1018), (1003, 1004), (1103, 1053 + (1 << 32)), (1110, 1112)]);
}
