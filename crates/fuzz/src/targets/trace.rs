//! Traces: our own format, CSV, IOSIG's text, DFTracer's lines, Recorder's directories. Whatever is read is counted and looked at in all ways.

use crate::{Outcome, directory};
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use stripewise_capture::format::MAGIC;
use stripewise_layout::ByteCount;
use stripewise_trace::{
    CountOptions, FileAccess, SMALL_REQUEST, Trace, alignment, count_and_report, count_together, heat_map, statistics,
    write_csv,
};

/// Process files one behind the other; each begins with the magic number.
pub fn run(bytes: &[u8]) -> Outcome {
    let starts = (1..bytes.len()).filter(|at| bytes[*at..].starts_with(&MAGIC));
    let ends: Vec<usize> = starts.chain([bytes.len()]).collect();
    let mut begin = 0;
    let mut files = Vec::new();
    for (number, end) in ends.into_iter().enumerate() {
        files.push((format!("{number}.swt"), &bytes[begin..end]));
        begin = end;
    }
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    directory::with(&files, check)
}

pub fn run_csv(bytes: &[u8]) -> Outcome {
    directory::with(&[("a.csv", bytes)], |directory| check(&directory.join("a.csv")))
}

pub fn run_dftracer(bytes: &[u8]) -> Outcome {
    directory::with(&[("a.pfw", bytes)], |directory| check(&directory.join("a.pfw")))
}

/// What stands before each file of a trace of Recorder's; its name and the end of a line follow.
pub const RECORDER_FILE: &[u8] = b"\n%%";

pub fn run_recorder(bytes: &[u8]) -> Outcome {
    let mut files: Vec<(&str, &[u8])> = Vec::new();
    let mut rest = bytes;
    while let Some(found) = rest.windows(RECORDER_FILE.len()).position(|bytes| bytes == RECORDER_FILE) {
        rest = &rest[found + RECORDER_FILE.len()..];
        let name = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let end = rest.windows(RECORDER_FILE.len()).position(|bytes| bytes == RECORDER_FILE).unwrap_or(rest.len());
        let contents = rest.get(name + 1..end).unwrap_or_default();
        let name = std::str::from_utf8(&rest[..name]).unwrap_or_default();
        if (1..20).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
            && !name.starts_with('.')
        {
            files.push((name, contents));
        }
        rest = &rest[end..];
    }
    directory::with(&files, check)
}

/// The first line names the file, and so the interface and the rank; the rest is the file.
pub fn run_iosig(bytes: &[u8]) -> Outcome {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let name = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
    let is_name = |name: &str| name.len() < 200 && !name.contains(['/', '\0']) && name.ends_with(".out");
    let name = if is_name(name) { name } else { "posix_trace_rank-0.out" };
    directory::with(&[(name, bytes.get(end + 1..).unwrap_or_default())], |directory| {
        // As the only file that is named, and as one of a directory's.
        let (alone, among) = (check(&directory.join(name)), Trace::open(directory));
        assert!(alone == Outcome::Read || among.is_err());
        alone
    })
}

fn check(path: &Path) -> Outcome {
    let trace = match Trace::open(path) {
        Ok(trace) => trace,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return Outcome::Refused;
        }
    };
    let events = trace.events().count() as u64;
    assert_eq!(events, trace.event_count());
    assert_eq!(trace.events_by_start().len() as u64, events);
    check_export(&trace);
    assert!(alignment(&trace, None, ByteCount(64 << 10), SMALL_REQUEST).requests <= events);
    // At most one way of counting for each input, since each takes long where times are far apart.
    let counting = |window_s, region_bytes, class_limit| {
        let region_size = ByteCount(region_bytes);
        check_counts(&trace, events, &CountOptions { window_s, region_size, class_limit, ..CountOptions::default() });
    };
    match events % 12 {
        0 => counting(0.01, 1 << 24, 32),
        1 => counting(600.0, 64 << 20, 32),
        2 => counting(1e9, 1 << 20, 4),
        3 => drop(count_together(&[trace], &CountOptions::default()).unwrap()),
        4 | 5 => check_statistics(&trace, events),
        _ => {}
    }
    Outcome::Read
}

fn check_statistics(trace: &Trace, events: u64) {
    let found = statistics(trace, &CountOptions::default(), 3).unwrap();
    assert_eq!(found.events, events);
    for file in &found.files {
        assert_eq!(heat_map(trace, file.file, 7, 5).read_bytes.len(), 35);
        assert!(!file.bandwidth_mb_s().is_nan());
    }
}

fn check_counts(trace: &Trace, events: u64, options: &CountOptions) {
    let counted = count_and_report(trace, options).unwrap();
    assert!(counted.impossible <= events);
    let mut paths = HashSet::new();
    for file in &counted.files {
        assert!(paths.insert(&file.path));
        assert!((1..=usize::from(options.class_limit)).contains(&file.classes.len()));
        assert!(file.classes.is_sorted() && file.classes.iter().all(|class| class.request_bytes > 0));
        assert_eq!(file.windows.len(), counted.files[0].windows.len());
        check_regions(file, trace.processes.len());
    }
}

fn check_regions(file: &FileAccess, processes: usize) {
    let mut requests = 0;
    for window in &file.windows {
        assert!(window.regions.is_sorted_by(|left, right| left.region < right.region));
        let company = window.company;
        assert!((0.0..=1.0).contains(&company.same_region) && (0.0..=1.0).contains(&company.adjoining));
        let (of_file, of_run) = (window.processes.file, window.processes.run);
        assert!(of_file.processes <= of_run.processes && of_run.processes as usize <= processes);
        assert!(of_file.per_node <= of_run.per_node && of_run.per_node <= of_run.processes);
        for region in &window.regions {
            assert!(region.processes <= of_file.processes && region.processes_per_node <= of_file.per_node);
            assert!((1..=processes).contains(&(region.processes as usize)));
            assert!((1..=region.processes).contains(&region.processes_per_node) && region.slices.0 != 0);
            let mut counts = region.counts.iter();
            assert!(counts.all(|(class, count)| usize::from(class.0) < file.classes.len() && *count > 0));
            requests += region.counts.iter().map(|(_, count)| count).sum::<u64>();
        }
    }
    assert!(requests > 0);
}

/// What is exported is read again, and exported as the same, but for the order of processes.
fn check_export(trace: &Trace) {
    let mut first = Vec::new();
    write_csv(trace, &mut first).unwrap();
    directory::with(&[("again.csv", &first)], |directory| {
        let again = Trace::open(&directory.join("again.csv")).expect("what was exported");
        let mut second = Vec::new();
        write_csv(&again, &mut second).unwrap();
        let lines = |csv| String::from_utf8(csv).unwrap().lines().map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(lines(second), lines(first.clone()));
    });
}
