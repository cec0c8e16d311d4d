//! What programs do, read back from the trace: every call with its place, length and error, and nothing else.

#[path = "support/mod.rs"]
#[allow(unreachable_pub, reason = "each test uses a part")]
mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use stripewise_capture::call::{Call, Operation};
use stripewise_layout::WriteClass;
use stripewise_trace::trace::{Event, Trace};

/// Runs a program captured in a directory of its own; the records of the processes whose program has that name, with
/// file names.
fn captured(program: &Path, arguments: &[&str], scratch: &Path) -> Vec<(String, Event)> {
    let (work, traces) = (scratch.join("work"), scratch.join("traces"));
    std::fs::create_dir(&work).unwrap();
    std::fs::create_dir(&traces).unwrap();
    support::run(
        support::preloaded(program)
            .args(arguments)
            .current_dir(&work)
            .env("STRIPEWISE_TRACE", &traces)
            .env("LC_ALL", "C"),
    );
    records(&traces, &work)
}

/// The records below `work`, in order of start, with names relative to it.
fn records(traces: &Path, work: &Path) -> Vec<(String, Event)> {
    let trace = Trace::open(traces).unwrap();
    let work = std::fs::canonicalize(work).unwrap();
    trace
        .events_by_start()
        .into_iter()
        .filter_map(|event| {
            let path = Path::new(&trace.file(event.file?).path).strip_prefix(&work).ok()?.to_str()?.to_owned();
            Some((path, event))
        })
        .collect()
}

fn data_of(events: &[(String, Event)], file: &str) -> Vec<(Call, u64, u64, u32)> {
    let is_data = |event: &Event| event.call.operation().is_data();
    let of_file = events.iter().filter(|(path, event)| path == file && is_data(event));
    of_file.map(|(_, event)| (event.call, event.offset.0, event.bytes, event.errno)).collect()
}

fn calls_of(events: &[(String, Event)], file: &str) -> Vec<Call> {
    events
        .iter()
        .filter(|(path, event)| path == file && !event.call.operation().is_data())
        .map(|(_, event)| event.call)
        .collect()
}

#[test]
fn every_call_is_recorded_with_its_place_length_and_error() {
    let scratch = tempfile::tempdir().unwrap();
    let program = support::compile("cc", "calls", scratch.path());
    let events = captured(&program, &[], scratch.path());
    let data = data_of(&events, "data");
    let expected = [
        (Call::Write, 0, 1000, 0),
        (Call::Write, 1000, 500, 0),
        (Call::Pwrite, 8192, 4096, 0),
        (Call::Writev, 1500, 300, 0),
        (Call::Pwritev, 20000, 300, 0),
        (Call::Pwritev2, 30000, 300, 0),
        (Call::Read, 100, 50, 0),
        (Call::Pread, 8192, 64, 0),
        (Call::Readv, 150, 300, 0),
        (Call::Preadv, 1000, 300, 0),
        (Call::Preadv2, 2000, 300, 0),
        (Call::Pread, 30200, 100, 0),
        (Call::Pread, 1 << 20, 0, 0),
        (Call::Pread, -5i64 as u64, 0, libc::EINVAL as u32),
        // After the close, nothing; then appended through four descriptors of one description.
        (Call::Write, 12345, 11, 0),
        (Call::Write, 12356, 12, 0),
        (Call::Write, 12368, 13, 0),
        (Call::Write, 12381, 14, 0),
        (Call::Write, 12395, 15, 0),
        (Call::AioWrite, 444, 333, 0),
        (Call::AioWrite, 555, 222, 0),
        (Call::AioRead, 666, 77, 0),
        (Call::SendfileRead, 10, 99, 0),
    ];
    assert_eq!(data, expected);
    // The modes came through the variadic `open`.
    for (name, wanted) in [("data", 0o644), ("of-child", 0o600)] {
        let mode = std::fs::metadata(scratch.path().join("work").join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, wanted, "{name}");
    }
    assert_eq!(data_of(&events, "of-child"), [(Call::Write, 0, 21, 0)]);
    assert_eq!(data_of(&events, "copy"), [(Call::SendfileWrite, 0, 99, 0)]);
    // 77 characters, found by the position; the stream's own reading ahead is libc's affair.
    assert_eq!(
        data_of(&events, "stream"),
        [(Call::Fwrite, 0, 3000, 0), (Call::Fwrite, 3000, 77, 0), (Call::Fread, 1000, 400, 0)]
    );
    let of_data = calls_of(&events, "data");
    let kinds =
        [Call::Open, Call::Lseek, Call::Fsync, Call::Fdatasync, Call::Ftruncate, Call::PosixFallocate, Call::Close];
    assert_eq!(of_data[..kinds.len()], kinds);
    assert!(of_data.contains(&Call::Mmap));
    assert_eq!(calls_of(&events, "stream"), [Call::Fopen, Call::Fclose]);
    assert_eq!(calls_of(&events, "renamed"), [Call::Truncate, Call::Unlink]);
    assert!(calls_of(&events, "copy").contains(&Call::Rename));
    let opened = |file: &str| events.iter().find(|(path, _)| path == file).unwrap().1.created;
    assert!(opened("data") && opened("of-child"), "the open that made a file is marked");
    assert!(events.iter().all(|(_, event)| event.end >= event.start));
}

/// By descriptors' flags at the open and later, through duplicates too, and by the flags of single calls.
#[test]
fn every_write_is_recorded_with_what_it_waits_for() {
    use WriteClass::{Buffered, Direct, Synchronous};
    let scratch = tempfile::tempdir().unwrap();
    let program = support::compile("cc", "write_classes", scratch.path());
    let events = captured(&program, &[], scratch.path());
    let classes = |file: &str, wanted: &dyn Fn(&Event) -> bool| -> Vec<Option<WriteClass>> {
        let of_file = events.iter().filter(|(path, event)| path == file && wanted(event));
        of_file.map(|(_, event)| event.write_class).collect()
    };
    let writes = |file: &str| classes(file, &|event| event.operation() == Operation::Write);
    assert_eq!(writes("plain"), [Some(Buffered); 2]);
    assert_eq!(writes("stream"), [Some(Buffered)]);
    assert_eq!(writes("of-call"), [Some(Buffered), Some(Synchronous), Some(Synchronous)]);
    assert_eq!(writes("dsync"), [Some(Synchronous); 2], "the second by asynchronous I/O");
    assert_eq!(writes("sync"), [Some(Synchronous)]);
    assert_eq!(classes("plain", &|event| event.operation() == Operation::Read), [None]);
    assert_eq!(classes("dsync", &|event| event.operation() == Operation::Create), [Some(Synchronous)]);
    let set = classes("changed", &|event| event.call == Call::SetFlags);
    if set.is_empty() {
        println!("SKIPPED in part: the file system of {} knows no O_DIRECT", scratch.path().display());
        return;
    }
    assert_eq!(writes("changed"), [Some(Buffered), Some(Direct), Some(Direct), Some(Buffered)]);
    assert_eq!(set, [Some(Direct), Some(Buffered)], "what does not change the class leaves no record");
    assert_eq!(classes("direct", &|event| event.operation() == Operation::Create), [Some(Direct)]);
    assert_eq!(writes("direct"), [Some(Direct)]);
}

#[test]
fn programs_of_the_system_are_recorded_without_being_changed() {
    let scratch = tempfile::tempdir().unwrap();
    let script = "head -c 100000 /dev/zero > zeros && dd if=zeros of=copy bs=1000 2>/dev/null && cat copy | wc -c > count && cat count";
    let events = captured(Path::new("/bin/sh"), &["-c", script], scratch.path());
    let sum = |call, file: &str| {
        data_of(&events, file).iter().filter(|record| record.0 == call).map(|record| record.2).sum::<u64>()
    };
    assert_eq!(sum(Call::Write, "copy"), 100_000);
    assert_eq!(data_of(&events, "copy").iter().filter(|record| record.0 == Call::Write).count(), 100);
    assert_eq!(sum(Call::Read, "zeros"), 100_000);
    let text = std::fs::read_to_string(scratch.path().join("work/count")).unwrap();
    assert_eq!(text, "100000\n");
}

#[test]
fn a_disabled_library_does_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    support::run(
        support::preloaded("/bin/cp")
            .args(["/bin/sh", "copy"])
            .current_dir(scratch.path())
            .env("STRIPEWISE_TRACE", scratch.path())
            .env("STRIPEWISE_DISABLE", "1"),
    );
    let names: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["copy"]);
}

#[test]
fn a_killed_process_leaves_its_records() {
    let scratch = tempfile::tempdir().unwrap();
    let (work, traces) = (scratch.path().join("work"), scratch.path().join("traces"));
    std::fs::create_dir(&work).unwrap();
    std::fs::create_dir(&traces).unwrap();
    let script = "dd if=/dev/zero of=out bs=512 count=300 2>/dev/null; kill -9 $$";
    let output = support::preloaded("/bin/sh")
        .args(["-c", &format!("exec 3> held; echo held >&3; {script}")])
        .current_dir(&work)
        .env("STRIPEWISE_TRACE", &traces)
        .output()
        .unwrap();
    assert!(!output.status.success());
    let events = records(&traces, &work);
    assert_eq!(data_of(&events, "held"), [(Call::Write, 0, 5, 0)]);
    assert_eq!(data_of(&events, "out").len(), 300);
}
