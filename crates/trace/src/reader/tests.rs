use super::*;
use crate::export::{COLUMNS, COLUMNS_WITHOUT_CLASS, write_csv};
use crate::slots::SlotBuffer;
use crate::warning::Warning;
use proptest::prelude::*;
use std::fs;
use stripewise_capture::call::{Call, Level};
use stripewise_capture::clock::{Clock, Ticks};
use stripewise_capture::format::{
    ClockPair, CommunicatorKey, FORMAT_VERSION, FileKey, HEADER_BYTES, Header, NO_OFFSET, RawEvent, at,
};
use stripewise_layout::{FileOffset, RequestKind, WriteClass};

fn header(pid: u32) -> Header<'static> {
    Header {
        clock: Clock::Monotonic,
        pid,
        parent_pid: 1,
        mpi_rank: Some(pid),
        mpi_size: 4,
        start_wall_ns: 1_700_000_000_000_000_000,
        start_monotonic_ns: 500,
        start_ticks: 500,
        ticks_per_second: 0,
        lost: 0,
        finished: true,
        used_bytes: 0,
        pairs: [ClockPair::default(); 2],
        node: b"n",
        program: b"p",
    }
}

fn event(call: Call, file: FileKey, number: u64) -> RawEvent {
    RawEvent::new(call, file, FileOffset(number * 10), 100 + number, Ticks(500 + number), Ticks(600 + number))
}

/// A file with definitions, plain and extended records; and the slots in each prefix of it that are whole events.
fn sample(directory: &Path) -> PathBuf {
    let mut slots = SlotBuffer::default();
    let first = slots.define_file(b"/data/a");
    (0..4).for_each(|number| slots.push_event(&event(Call::Pread, first, number)));
    let second = slots.define_file(format!("/data/{}", "long".repeat(20)).as_bytes());
    slots.push_event(&RawEvent { bytes: 1 << 40, ..event(Call::Pwrite, second, 4) });
    (5..8).for_each(|number| slots.push_event(&event(Call::Pread, first, number)));
    let path = directory.join("sample.swt");
    slots.write(&path, &header(7)).unwrap();
    path
}

/// KiB of a file's mappings that are in memory.
fn mapped_kib(path: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let of_file = maps.split("VmFlags:").filter(|map| map.contains(path.to_str().unwrap()));
    let rss =
        |map: &str| map.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB")?.parse().ok());
    of_file.map(|map| rss(map).unwrap_or(0)).sum()
}

#[test]
fn a_large_trace_is_walked_without_keeping_it_in_memory() {
    use crate::trace::CHUNK_SLOTS;
    use std::os::unix::fs::FileExt as _;
    const PIECES: u64 = 8;
    const PIECE_BYTES: u64 = (CHUNK_SLOTS * 32) as u64;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.swt");
    let mut slots = SlotBuffer::default();
    let key = slots.define_file(b"/data/a");
    let used_bytes = HEADER_BYTES as u64 + PIECES * PIECE_BYTES;
    slots.write(&path, &header(7)).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&Header { used_bytes, ..header(7) }.encode(), 0).unwrap();
    // Empty slots but for an event near the end of each piece.
    file.set_len(used_bytes).unwrap();
    for piece in 1..=PIECES {
        let mut event_slot = SlotBuffer::default();
        event_slot.push_event(&event(Call::Pread, key, piece));
        file.write_all_at(&event_slot.into_bytes(), HEADER_BYTES as u64 + piece * PIECE_BYTES - 64).unwrap();
    }
    let trace = Trace::open(&path).unwrap();
    assert!(mapped_kib(&path) < 1 << 10, "{} KiB after opening", mapped_kib(&path));
    for pass in 0..2 {
        let mut most = 0;
        let walked = trace.events().inspect(|_| most = most.max(mapped_kib(&path))).count();
        assert_eq!(walked, PIECES as usize);
        assert!((1 << 10..12 << 10).contains(&most), "{most} KiB in pass {pass}, of pieces of 8 MiB");
    }
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_the_cut() {
    let directory = tempfile::tempdir().unwrap();
    let path = sample(directory.path());
    let whole = fs::read(&path).unwrap();
    let all: Vec<_> = Trace::open(&path).unwrap().events().map(|event| (event.offset, event.bytes)).collect();
    assert_eq!(all.len(), 8);
    let mut most = 0;
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let trace = Trace::open(&path).unwrap();
        let found: Vec<_> = trace.events().map(|event| (event.offset, event.bytes)).collect();
        assert_eq!(found, all[..found.len()], "cut at {length}");
        assert!(found.len() >= most, "cut at {length}");
        most = found.len();
        let said = trace.warnings.iter().any(|warning| match warning {
            Warning::TruncatedInHeader { bytes, .. } => length < HEADER_BYTES && *bytes == length as u64,
            Warning::Truncated { bytes, expected_bytes, .. } => {
                length >= HEADER_BYTES && *bytes == length as u64 && *expected_bytes == whole.len() as u64
            }
            _ => false,
        });
        assert!(said, "cut at {length}: {:?}", trace.warnings);
        assert!(trace.warnings.iter().all(|warning| warning.to_string().contains("sample.swt")));
        if length == whole.len() - 70 {
            let missing = format!("truncated after {length} of {} bytes: up to 3 records are missing", whole.len());
            assert!(trace.warnings[0].to_string().contains(&missing), "{}", trace.warnings[0]);
        }
    }
    assert_eq!(most, 7);
}

#[test]
fn other_versions_and_garbage_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = sample(directory.path());
    let whole = fs::read(&path).unwrap();
    let refuse = |bytes: &[u8], path: &Path| {
        fs::write(path, bytes).unwrap();
        let message = Trace::open(path).unwrap_err().to_string();
        assert!(message.contains(path.file_name().unwrap().to_str().unwrap()), "{message}");
        message
    };
    let changed = |start: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[start] = byte;
        bytes
    };
    assert!(refuse(&changed(at::VERSION, 9), &path).contains("version 9; this Stripewise reads versions 1 to 2"));
    assert_eq!(FORMAT_VERSION, 2);
    assert!(refuse(&changed(at::MAGIC, b'X'), &path).contains("no trace"));
    assert!(refuse(&changed(at::CLOCK, 77), &path).contains("clock is 77"));
    assert!(refuse(b"hello", &directory.path().join("x.swt")).contains("no trace"));
    assert!(refuse(b"\x7fELF then something", &directory.path().join("program")).contains("no trace"));
    let empty = tempfile::tempdir().unwrap();
    assert!(Trace::open(empty.path()).unwrap_err().to_string().contains("no trace"));
    assert!(Trace::open(&empty.path().join("absent")).unwrap_err().to_string().contains("absent"));
}

/// Written by a Stripewise that knew format 1 only: a program that wrote with `O_DSYNC`.
#[test]
fn format_1_is_read_and_its_writes_are_taken_as_buffered() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1.trace");
    assert_eq!(fs::read(path.join("node.1.swt")).unwrap()[at::VERSION], 1);
    let trace = Trace::open(&path).unwrap();
    assert_eq!((trace.event_count(), trace.warnings.len()), (6, 0));
    let kinds: Vec<_> = trace.events().filter_map(|event| event.request_kind()).collect();
    let write = RequestKind::Write(WriteClass::Buffered);
    assert_eq!(kinds, [write, write, RequestKind::Read]);
    assert!(trace.events().all(|event| event.write_class.is_none()));
    let data = trace.files.iter().find(|file| file.path.ends_with("/data")).unwrap();
    assert!(data.has_assumed_writes());
    let counted = crate::count(&trace, &crate::CountOptions::default()).unwrap();
    assert!(counted[0].classes.iter().any(|class| class.kind == write), "{:?}", counted[0].classes);
}

#[test]
fn classes_of_writes_are_read_and_exported() {
    let directory = tempfile::tempdir().unwrap();
    let mut slots = SlotBuffer::default();
    let file = slots.define_file(b"/data");
    let classes = [WriteClass::Direct, WriteClass::Synchronous, WriteClass::Buffered];
    for (number, class) in (1..).zip(classes) {
        slots.push_event(&RawEvent { write_class: Some(class), ..event(Call::Pwrite, file, number) });
    }
    slots.write(&directory.path().join("n.1.swt"), &header(1)).unwrap();
    let trace = Trace::open(directory.path()).unwrap();
    let csv = directory.path().join("exported.csv");
    write_csv(&trace, fs::File::create(&csv).unwrap()).unwrap();
    for trace in [trace, Trace::open(&csv).unwrap()] {
        let found: Vec<_> = trace.events().map(|event| event.request_kind().unwrap()).collect();
        assert_eq!(found, classes.map(RequestKind::Write));
        assert!(!trace.files[0].has_assumed_writes());
    }
    let text = format!("{}\nn,1,,,posix,write,pwrite,,/a,,0,1,,5,6,lazy\n", COLUMNS.join(","));
    fs::write(&csv, text).unwrap();
    let message = Trace::open(&csv).unwrap_err().to_string();
    assert!(message.contains("`lazy` is no class of writes; known: direct, buffered, synchronous"), "{message}");
}

proptest! {
    #[test]
    fn damage_behind_the_header_never_panics(places in proptest::collection::vec((0..2_000usize, any::<u8>()), 1..40)) {
        let directory = tempfile::tempdir().unwrap();
        let path = sample(directory.path());
        let mut bytes = fs::read(&path).unwrap();
        for (place, byte) in places {
            let slots = bytes.len() - HEADER_BYTES;
            bytes[HEADER_BYTES + place % slots] = byte;
        }
        fs::write(&path, &bytes).unwrap();
        let trace = Trace::open(&path).unwrap();
        prop_assert_eq!(trace.events().count() as u64, trace.event_count());
        let counted = crate::counts::count(&trace, &crate::counts::CountOptions {
            region_size: stripewise_layout::ByteCount(1 << 50), ..Default::default()
        });
        prop_assert!(counted.is_ok());
    }
}

/// What of an event survives in any format.
fn facts(trace: &Trace) -> Vec<String> {
    let events = trace.process_indices().flat_map(|index| {
        trace.events_of(index).map(move |event| {
            let process = trace.process(index);
            let renamed = process.renamed_to(&event).map(|file| trace.file(file).path.clone());
            format!(
                "{:?} {} {:?} {:?} {} {:?} {:?} {} {} {} {:?}",
                process.mpi_rank,
                event.call.name(),
                event.operation(),
                event.file.map(|file| &trace.file(file).path),
                if renamed.is_some() { 0 } else { event.offset.0 },
                renamed,
                event.bytes,
                event.errno,
                event.start.0 + trace.origin_unix_ns(),
                event.end.0 + trace.origin_unix_ns(),
                process.communicators.get(&event.communicator).map(|communicator| communicator.hash),
            )
        })
    });
    events.collect()
}

#[test]
fn csv_holds_all_of_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    for pid in [3, 11] {
        let mut slots = SlotBuffer::default();
        let file = slots.define_file(b"/data/with, \"comma\"");
        let other = slots.define_file(b"/data/other");
        slots.define_communicator(CommunicatorKey(1), 0xABCD_EF01_2345_6789);
        slots.push_event(&RawEvent { created: true, offset: NO_OFFSET, ..event(Call::Openat, file, 0) });
        slots.push_event(&RawEvent { bytes: 5 << 32, ..event(Call::Pwrite, file, 1) });
        slots.push_event(&RawEvent { errno: 28, bytes: 0, ..event(Call::Write, file, u64::from(pid)) });
        slots.push_event(&RawEvent { communicator: CommunicatorKey(1), ..event(Call::MpiReadAtAll, file, 3) });
        slots.push_event(&RawEvent { offset: FileOffset(u64::from(other.0)), ..event(Call::Rename, file, 4) });
        slots.push_event(&RawEvent { end: Ticks(1 << 50), ..event(Call::Fsync, FileKey(0), 5) });
        slots.write(&directory.path().join(format!("{pid}.swt")), &header(pid)).unwrap();
    }
    let trace = Trace::open(directory.path()).unwrap();
    let csv = directory.path().join("out.csv");
    write_csv(&trace, fs::File::create(&csv).unwrap()).unwrap();
    let back = Trace::open(&csv).unwrap();
    let mut expected = facts(&trace);
    expected.sort();
    let mut found = facts(&back);
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(found.len(), 12);
    assert_eq!((back.mpi_size(), &back.nodes, back.origin_unix_ns()), (4, &trace.nodes, trace.origin_unix_ns()));
    assert_eq!(back.files.len(), 2);
}

/// A form for the tests alone: CSV by another name.
pub(super) const DUMMY: Reader = Reader {
    expects: "a .dummy file",
    in_directory: |_, _| None,
    is_file: |path| has_extension(path, "dummy"),
    read: super::csv::READER.read,
};

#[test]
fn a_row_makes_a_form_of_traces_known() {
    let directory = tempfile::tempdir().unwrap();
    let error = Trace::open(directory.path()).unwrap_err().to_string();
    assert!(
        READERS.iter().all(|reader| error.contains(reader.expects)) && error.contains("or a .dummy file"),
        "{error}"
    );
    let path = directory.path().join("run.dummy");
    fs::write(
        &path,
        format!("{}\nn,1,,,posix,read,pread,,/a,,0,10,,5,6\n", COLUMNS[..COLUMNS_WITHOUT_CLASS].join(",")),
    )
    .unwrap();
    assert_eq!(facts(&Trace::open(&path).unwrap()).len(), 1);
}

#[test]
fn csv_errors_name_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bad.csv");
    let good = "n,1,,,posix,read,pread,,/a,,0,10,,5,6";
    for (line, message) in [
        ("n,x,,,posix,read,pread,,/a,,0,10,,5,6", "pid is `x`"),
        ("n,1,,,posix,read,preed,,/a,,0,10,,5,6", "`preed` is no call"),
        ("n,1,,,posix,write,pread,,/a,,0,10,,5,6", "operation `write` is not what `pread` does"),
        ("n,1,,,posix,read,pread,zz,/a,,0,10,,5,6", "communicator is `zz`"),
        ("n,1,,,posix,read,pread,,/a,,0,10,28,5,6", "errno 28"),
        ("n,1,,,posix,read,pread,,/a,,0,10,,7,6", "ends at 6, before its start at 7"),
        ("n,1,,,posix,read,pread,,/a", "found record with 9 fields"),
        ("n,1,,,posix,read,pread,,/a,,-1,10,,5,6", "offset is `-1`"),
    ] {
        fs::write(&path, format!("{}\n{good}\n{line}\n", COLUMNS[..COLUMNS_WITHOUT_CLASS].join(","))).unwrap();
        let error = Trace::open(&path).unwrap_err().to_string();
        assert!(error.contains("bad.csv, line 3") && error.contains(message), "{error}");
    }
    fs::write(&path, "time,offset\n1,2\n").unwrap();
    let error = Trace::open(&path).unwrap_err().to_string();
    assert!(error.contains("bad.csv") && error.contains("node,pid,") && error.contains("found time,offset"), "{error}");
}

#[test]
fn iosig_files_of_a_run_are_read_together() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write(
        "posix_trace_rank-0.out",
        "# comment\nopen 3 -1 0 1354.000001 1354.000002 /data/my file\n\n  pread64\t3   65536 4096 1354.5  1354.75 /data/my file  \r\nWRITE 3 0 -1 1355 1355.0000000019 /data/b\n",
    );
    write("mpiio_trace_rank-0.out", "MPI_File_Write_at 3 0 1048576 1.3535e3 1354 /data/my file\n");
    write("mpiio_trace_rank-12.out", "READ 4 10 20 1354.1 1354.2 /data/c");
    write("README", "not a trace");
    let trace = Trace::open(directory.path()).unwrap();
    assert_eq!((trace.processes.len(), trace.mpi_size(), trace.event_count()), (2, 13, 5));
    assert_eq!(trace.processes.iter().map(|process| process.mpi_rank).collect::<Vec<_>>(), [Some(0), Some(12)]);
    assert_eq!(trace.origin_unix_ns(), 1_353_500_000_000);
    let mut found = facts(&trace);
    found.sort();
    let pid0 = |text: &str| format!("Some(0) {text} None");
    let mut expected = vec![
        pid0("open Open Some(\"/data/my file\") 18446744073709551615 None 0 0 1354000001000 1354000002000"),
        pid0("pread Read Some(\"/data/my file\") 65536 None 4096 0 1354500000000 1354750000000"),
        pid0("write Write Some(\"/data/b\") 0 None 0 5 1355000000000 1355000000001"),
        pid0("MPI_File_write_at Write Some(\"/data/my file\") 0 None 1048576 0 1353500000000 1354000000000"),
        "Some(12) MPI_File_read Read Some(\"/data/c\") 10 None 20 0 1354100000000 1354200000000 None".to_owned(),
    ];
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(
        trace.files.iter().map(|file| file.data_level()).collect::<Vec<_>>(),
        [Some(Level::Posix), Some(Level::MpiIo), Some(Level::Posix)]
    );
}

#[test]
fn iosig_errors_name_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("posix_trace_rank-3.out");
    for (line, message) in [
        ("frobnicate 3 0 1 1 2 /a", "`frobnicate` is no call"),
        ("read 3 0 1 1 2", "path is missing"),
        ("read 3 0", "size is missing"),
        ("read x 0 1 1 2 /a", "fd is `x`"),
        ("read 3 0.5 1 1 2 /a", "offset is `0.5`"),
        ("read 3 0 1 yesterday 2 /a", "start is `yesterday`"),
        ("read 3 0 1 -1 2 /a", "start is `-1`"),
        ("read 3 0 1 3 2 /a", "ends at 2, before its start at 3"),
    ] {
        fs::write(&path, format!("read 3 0 1 1 2 /a\n\n{line}\n")).unwrap();
        for place in [path.as_path(), directory.path()] {
            let error = Trace::open(place).unwrap_err().to_string();
            assert!(error.contains("posix_trace_rank-3.out, line 3") && error.contains(message), "{error}");
        }
    }
}

#[test]
fn times_that_have_no_difference_with_a_sign_are_refused() {
    // They were read as the trace's beginning.
    let directory = tempfile::tempdir().unwrap();
    let late = i64::MAX as u64 + 1;
    let csv = |end: u64| format!("{}\nn,1,,,posix,read,pread,,/a,,0,1,,5,{end},\n", COLUMNS.join(","));
    let path = directory.path().join("a.csv");
    fs::write(&path, csv(late)).unwrap();
    let refused = Trace::open(&path).unwrap_err().to_string();
    assert!(refused.contains("end_ns is `9223372036854775808`"), "{refused}");
    fs::write(&path, csv(late - 1)).unwrap();
    let trace = Trace::open(&path).unwrap();
    let mut exported = Vec::new();
    write_csv(&trace, &mut exported).unwrap();
    assert_eq!(String::from_utf8(exported).unwrap(), csv(late - 1));
    let path = directory.path().join("posix_trace_rank-0.out");
    for time in ["9223372036.854775808", "9.3e9"] {
        fs::write(&path, format!("pread 3 0 1 5 {time} /a\n")).unwrap();
        let refused = Trace::open(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("end is `{time}`")), "{refused}");
    }
}

#[test]
fn the_highest_rank_that_a_file_name_can_tell_is_read() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("posix_trace_rank-4294967295.out"), "pread 3 0 1 5 6 /a\n").unwrap();
    let trace = Trace::open(directory.path()).unwrap();
    assert_eq!((trace.processes[0].mpi_rank, trace.event_count()), (Some(u32::MAX), 1));
}

#[test]
fn names_keep_their_spaces_on_their_way_through_csv() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.csv");
    let text = format!("{}\nn ,1,,,posix,rename,rename,, /a , b,,0,,5,9,\n", COLUMNS.join(","));
    fs::write(&path, &text).unwrap();
    let mut exported = Vec::new();
    write_csv(&Trace::open(&path).unwrap(), &mut exported).unwrap();
    assert_eq!(String::from_utf8(exported).unwrap(), text);
}

#[test]
fn a_damaged_record_that_ends_before_its_start_is_exported_so_that_it_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = sample(directory.path());
    let mut bytes = fs::read(&path).unwrap();
    // The start of every record, so late that its end is beyond all numbers.
    for slot in bytes[HEADER_BYTES..].as_chunks_mut::<32>().0 {
        slot[24..].copy_from_slice(&(u64::MAX - 1).to_le_bytes());
    }
    fs::write(&path, bytes).unwrap();
    let mut exported = Vec::new();
    let trace = Trace::open(&path).unwrap();
    write_csv(&trace, &mut exported).unwrap();
    let csv = directory.path().join("a.csv");
    fs::write(&csv, exported).unwrap();
    assert_eq!(Trace::open(&csv).unwrap().event_count(), trace.event_count());
    assert!(trace.event_count() > 0);
}
