//! The recorder in real processes: threads, forks, kills, no space, descriptors taken away. Whatever happens, the trace is read back.
//!
//! A test that must not touch the test process itself (resource limits, kills, forks) runs [`child`] of this same program in a process
//! of its own.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use stripewise_capture::{Call, FileKey, Meta, RawEvent, Recorder, Stage, StartError, Ticks, now};
use stripewise_layout::FileOffset;
use stripewise_trace::{Trace, Warning};

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn write_event(file: FileKey, number: u64) -> RawEvent {
    let start = now();
    RawEvent::new(Call::Pwrite, file, FileOffset(number * 4096), 4096, start, now())
}

fn started(directory: &Path) -> Box<Recorder> {
    let recorder = Box::new(Recorder::new());
    recorder.start(&Meta::new(&c_path(directory))).unwrap();
    recorder
}

/// The offsets of all events, in 4 KiB.
fn numbers(trace: &Trace) -> Vec<u64> {
    trace.events().map(|event| event.offset.0 / 4096).collect()
}

#[test]
fn what_is_recorded_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = Box::new(Recorder::new());
    assert_eq!(recorder.stage(), Stage::Unstarted);
    assert_eq!(recorder.start(&Meta::new(c"relative")), Err(StartError::Directory));
    assert_eq!(recorder.stage(), Stage::Failed);
    let mut recorder = Box::new(Recorder::new());
    let path = c_path(directory.path());
    let meta = Meta { node: b"node/7", program: b"/bin/app", ..Meta::new(&path) };
    recorder.start(&meta).unwrap();
    assert_eq!(recorder.start(&meta), Err(StartError::Started));
    recorder.set_mpi(3, 32);
    let long = format!("/data/{}", "x".repeat(300));
    let (first, second) = (recorder.define_file(b"/data/a", 5, 6), recorder.define_file(long.as_bytes(), 5, 7));
    let world = recorder.define_communicator(b"MPI_COMM_WORLD", 99, 32, 3);

    let start = now();
    let plain = RawEvent::new(Call::Pread, first, FileOffset(10), 20, start, now());
    let large = RawEvent { bytes: 5 << 32, communicator: world, call: Call::MpiReadAtAll, file: second, ..plain };
    let slow = RawEvent { end: Ticks(start.0 + (1 << 40)), ..plain };
    let failed = RawEvent { errno: 28, bytes: 0, call: Call::Write, ..plain };
    let created = RawEvent { created: true, call: Call::Openat, bytes: 0, ..plain };
    let events = [plain, large, slow, failed, created];
    events.iter().for_each(|event| recorder.record(event));
    recorder.finish();
    assert_eq!((recorder.stage(), recorder.lost()), (Stage::Finished, 0));

    let trace = Trace::open(directory.path()).unwrap();
    assert_eq!(trace.warnings, []);
    assert_eq!(trace.nodes, ["node/7"]);
    let process = &trace.processes[0];
    assert_eq!((process.pid, process.program.as_str()), (std::process::id(), "/bin/app"));
    assert_eq!((process.mpi_rank, process.mpi_size, process.finished, process.events), (Some(3), 32, true, 5));
    assert_eq!(trace.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["/data/a", &long]);
    assert_eq!((trace.files[1].device, trace.files[1].inode), (5, 7));
    let communicator = &process.communicators[&world];
    assert_eq!((communicator.name.as_str(), communicator.hash, communicator.size), ("MPI_COMM_WORLD", 99, 32));
    let back: Vec<_> = trace.events().collect();
    assert_eq!(back.len(), events.len());
    for (event, raw) in back.iter().zip(&events) {
        assert_eq!((event.call, event.errno, event.bytes, event.offset), (raw.call, raw.errno, raw.bytes, raw.offset));
        assert_eq!((event.communicator, event.operation()), (raw.communicator, raw.operation()));
        assert_eq!(trace.file(event.file.unwrap()).path == long, raw.file == second);
    }
    recorder.unmap();
    assert_eq!(recorder.stage(), Stage::Unstarted);
}

#[test]
fn threads_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = started(directory.path());
    let file = recorder.define_file(b"/data/shared", 0, 0);
    const THREADS: u64 = 8;
    const EACH: u64 = 40_000;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let recorder = &recorder;
            scope.spawn(move || {
                (0..EACH).for_each(|index| recorder.record(&write_event(file, thread * EACH + index)));
            });
        }
    });
    recorder.finish();
    let trace = Trace::open(directory.path()).unwrap();
    assert_eq!((recorder.lost(), &trace.warnings[..]), (0, &[][..]));
    let found = numbers(&trace);
    assert_eq!(found.len() as u64, THREADS * EACH);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>().len() as u64, THREADS * EACH);
    // In memory order too, the file is no longer than what it holds and the holes of lost races.
    let length = std::fs::metadata(&trace.processes[0].source).unwrap().len();
    assert!(length < 4096 + 32 * (THREADS * EACH + 3 + 1000), "{length}");
}

#[test]
fn a_finished_recorder_takes_records_again_while_others_finish_it() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = started(directory.path());
    let file = recorder.define_file(b"/data/a", 0, 0);
    const EACH: u64 = 20_000;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let recorder = &recorder;
            scope.spawn(move || (0..EACH).for_each(|index| recorder.record(&write_event(file, thread * EACH + index))));
        }
        scope.spawn(|| (0..300).for_each(|_| recorder.finish()));
    });
    recorder.finish();
    let trace = Trace::open(directory.path()).unwrap();
    // Records that met a finish in the very act are counted, all others are there once.
    let found = numbers(&trace);
    assert_eq!(found.len() as u64 + recorder.lost(), 2 * EACH);
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len());
}

#[test]
fn a_program_that_takes_the_descriptor_loses_nothing_and_keeps_its_own_file() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = started(directory.path());
    let file = recorder.define_file(b"/data/a", 0, 0);
    let other = tempfile::NamedTempFile::new().unwrap();
    let taken = recorder.descriptor().unwrap();
    // SAFETY: `taken` belongs to this test's recorder, which is made to withstand just this.
    assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(other.as_file()), taken) }, taken);
    (0..10_000).for_each(|number| recorder.record(&write_event(file, number)));
    recorder.finish();
    assert_eq!(other.as_file().metadata().unwrap().len(), 0);
    assert_eq!(recorder.lost(), 0);
    assert_eq!(numbers(&Trace::open(directory.path()).unwrap()), (0..10_000).collect::<Vec<_>>());
}

fn spawn_child(role: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture", "--quiet"])
        .env("TRACE_TEST_ROLE", role)
        .env("TRACE_TEST_DIRECTORY", directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "a part of the other tests, which start it in a process of its own"]
fn child() {
    let directory = std::env::var_os("TRACE_TEST_DIRECTORY").expect("started by another test");
    let directory = c_path(Path::new(&directory));
    match std::env::var("TRACE_TEST_ROLE").as_deref() {
        Ok("records for ever") => record_for_ever(&directory),
        Ok("forks") => record_in_a_fork(&directory),
        Ok("has no room") => record_without_space(&directory),
        other => panic!("no role {other:?}"),
    }
}

fn record_for_ever(directory: &CStr) {
    let recorder = Recorder::in_wiped_memory().unwrap();
    recorder.start(&Meta::new(directory)).unwrap();
    let file = recorder.define_file(b"/data/a", 0, 0);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            scope.spawn(move || {
                for number in 0.. {
                    recorder.record(&write_event(file, number * 2 + thread));
                    if number == 50_000 {
                        println!("{thread} has 50000");
                    }
                }
            });
        }
    });
}

#[test]
fn a_killed_process_leaves_all_its_records() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = spawn_child("records for ever", directory.path());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let reached = lines.by_ref().filter(|line| line.ends_with("has 50000")).take(2).count();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert_eq!(reached, 2);

    let trace = Trace::open(directory.path()).unwrap();
    assert!(matches!(&trace.warnings[..], [Warning::Unfinished { .. }]), "{:?}", trace.warnings);
    let (even, odd): (Vec<u64>, Vec<u64>) = numbers(&trace).into_iter().partition(|number| number % 2 == 0);
    for (mut of_thread, first) in [(even, 0), (odd, 1)] {
        assert!(of_thread.len() > 50_000);
        // A thread's records are all there in order, up to where the signal met it.
        let expected: Vec<u64> = (0..of_thread.len() as u64).map(|number| number * 2 + first).collect();
        assert_eq!(of_thread, expected);
        of_thread.clear();
    }
    assert!(trace.events().all(|event| event.bytes == 4096 && event.end >= event.start));
    assert_eq!(trace.file(trace.events().next().unwrap().file.unwrap()).path, "/data/a");
    // The rate of the clock is known from the pairs written on the way.
    assert!(trace.duration().seconds() < 600.0);
}

fn record_in_a_fork(directory: &CStr) {
    let recorder = Recorder::in_wiped_memory().unwrap();
    recorder.start(&Meta::new(directory)).unwrap();
    let file = recorder.define_file(b"/data/parent", 0, 0);
    recorder.record(&write_event(file, 1));
    // SAFETY: the child calls only the recorder, which neither allocates nor locks, and `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let fresh = recorder.stage() == Stage::Unstarted && recorder.start(&Meta::new(directory)).is_ok();
        let file = recorder.define_file(b"/data/child", 0, 0);
        recorder.record(&write_event(file, 2));
        recorder.finish();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(if fresh { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    recorder.record(&write_event(file, 3));
    recorder.finish();
    println!("forked {pid}");
}

#[test]
fn a_forked_child_starts_its_own_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = spawn_child("forks", directory.path());
    let parent_pid = child.id();
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    let child_pid: u32 = output.lines().find_map(|line| line.strip_prefix("forked ")).unwrap().parse().unwrap();

    let trace = Trace::open(directory.path()).unwrap();
    assert_eq!((trace.warnings.len(), trace.processes.len()), (0, 2));
    for (process, index) in trace.processes.iter().zip(trace.process_indices()) {
        let events: Vec<_> = trace
            .events_of(index)
            .map(|event| (trace.file(event.file.unwrap()).path.as_str(), event.offset.0 / 4096))
            .collect();
        if process.pid == child_pid {
            assert_eq!((process.parent_pid, &events[..]), (parent_pid, &[("/data/child", 2)][..]));
        } else {
            assert_eq!((process.pid, &events[..]), (parent_pid, &[("/data/parent", 1), ("/data/parent", 3)][..]));
        }
    }
}

fn record_without_space(directory: &CStr) {
    let recorder = Recorder::in_wiped_memory().unwrap();
    recorder.start(&Meta::new(directory)).unwrap();
    let file = recorder.define_file(b"/data/a", 0, 0);
    let limit = libc::rlimit { rlim_cur: 300_000, rlim_max: 300_000 };
    // SAFETY: `limit` outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    (0..100_000).for_each(|number| recorder.record(&write_event(file, number)));
    recorder.finish();
    println!("lost {}", recorder.lost());
}

#[test]
fn records_without_room_are_counted_and_the_rest_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = spawn_child("has no room", directory.path());
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    let lost: u64 = output.lines().find_map(|line| line.strip_prefix("lost ")).unwrap().parse().unwrap();

    let trace = Trace::open(directory.path()).unwrap();
    assert!(matches!(trace.warnings[..], [Warning::Lost { records, .. }] if records == lost), "{:?}", trace.warnings);
    // 300,000 bytes hold 73 pages, one of them the header; the file's definition takes two slots.
    let kept = 72 * 4096 / 32 - 2;
    assert_eq!(numbers(&trace), (0..kept).collect::<Vec<_>>());
    assert_eq!(lost, 100_000 - kept);
}
