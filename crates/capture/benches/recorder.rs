//! What a record costs: on the path, and over the whole life of a recorder (start, room, finish), on the file system of `TMPDIR` or
//! the directory given as the first argument. Prints medians over seven runs.

use std::ffi::CString;
use std::time::Instant;
use stripewise_capture::{Call, Meta, RawEvent, Recorder, now};
use stripewise_layout::FileOffset;

const RECORDS: u64 = 10_000_000;

fn main() {
    let wanted = std::env::args().nth(1).filter(|argument| !argument.starts_with("--"));
    let base = wanted.map_or_else(|| "/dev/shm".into(), std::path::PathBuf::from);
    let mut path = Vec::new();
    let mut whole = Vec::new();
    let mut start_us = Vec::new();
    for _ in 0..7 {
        let directory = tempfile::tempdir_in(&base).expect("a writable directory");
        let c_directory = CString::new(directory.path().to_str().expect("UTF-8")).expect("no zero");
        let begin = Instant::now();
        let mut recorder = Box::new(Recorder::new());
        recorder.start(&Meta::new(&c_directory)).expect("a trace file");
        let file = recorder.define_file(b"/data/file", 1, 2);
        start_us.push(begin.elapsed().as_secs_f64() * 1e6);
        // The path alone: within the room that is there already (64 KiB hold 1,900 records).
        let short = Instant::now();
        (0..1_800).for_each(|number| one(&recorder, file, number));
        path.push(short.elapsed().as_secs_f64() * 1e9 / 1_800.0);
        (1_800..RECORDS).for_each(|number| one(&recorder, file, number));
        recorder.finish();
        assert_eq!(recorder.lost(), 0);
        recorder.unmap();
        whole.push(begin.elapsed().as_secs_f64() * 1e9 / RECORDS as f64);
    }
    println!("recorder.path     {:8.1} ns/record (two clock readings included)", median(&mut path));
    println!(
        "recorder.process  {:8.1} ns/record over {RECORDS} records, start, space and finish included",
        median(&mut whole)
    );
    println!("recorder.start    {:8.1} us", median(&mut start_us));
}

#[inline(never)]
fn one(recorder: &Recorder, file: stripewise_capture::FileKey, number: u64) {
    let start = now();
    recorder.record(&RawEvent::new(Call::Pwrite, file, FileOffset(number << 12), 4096, start, now()));
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
