use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write as _;
use stripewise_capture::call::Call;
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::WriteClass;
use tempfile::TempDir;

fn place(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn compressed(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Call, path, offset and bytes of every event in the order of their ends; opens and closes left out.
fn moved(trace: &Trace) -> Vec<(Call, String, Option<u64>, u64)> {
    let data = trace.events().filter(|event| event.operation().is_data());
    data.map(|event| {
        let offset = (event.offset != NO_OFFSET).then_some(event.offset.0);
        (event.call, trace.file(event.file.unwrap()).path.clone(), offset, event.bytes)
    })
    .collect()
}

fn read_one(text: &str) -> Trace {
    let directory = place(&[("one.pfw", text)]);
    Trace::open(&directory.path().join("one.pfw")).unwrap()
}

fn warnings(trace: &Trace) -> String {
    trace.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn warns(trace: &Trace, of: &str) {
    let warnings = warnings(trace);
    assert!(warnings.contains(of), "{warnings}");
}

/// As DFTracer up to 1.0.3 has it: numbers as text, names in each line.
const EARLY: &str = r#"[
{"id":"1","name":"open","cat":"POSIX","pid":"7","tid":"7","ts":"1698080324850000","dur":"10","ph":"X","args":{"hostname":"n1","ret":18,"flags":16386,"fname":"/p/a b"}}
{"id":"2","name":"read","cat":"POSIX","pid":"7","tid":"7","ts":"1698080324850514","dur":"115","ph":"X","args":{"hostname":"n1","ret":"131072","count":"131072","fname":"/p/a b","fd":18}}
{"id":"3","name":"pwrite64","cat":"POSIX","pid":"7","tid":"7","ts":"1698080324855210","dur":"58","ph":"X","args":{"hostname":"n1","ret":"4096","count":"4096","offset":"1048576","fname":"/p/a b","fd":18}}
]"#;
/// As 1.0.5 has it: hashes that are numbers.
const MIDDLE: &str = r#"[
{"id":1,"name":"HH","cat":"dftracer","pid":7,"tid":7,"ph":"M","args":{"name":"n1","value":5692}}
{"id":2,"name":"FH","cat":"dftracer","pid":7,"tid":7,"ph":"M","args":{"name":"/p/a b","value":33084}}
{"id":3,"name":"open","cat":"POSIX","pid":7,"tid":7,"ts":1698080324850000,"dur":10,"ph":"X","args":{"hhash":5692,"p_idx":-1,"level":1,"flags":16386,"ret":18,"fhash":33084}}
{"id":4,"name":"read","cat":"POSIX","pid":7,"tid":7,"ts":1698080324850514,"dur":115,"ph":"X","args":{"hhash":5692,"count":131072,"ret":131072,"fhash":33084,"fd":18}}
{"id":5,"name":"pwrite64","cat":"POSIX","pid":7,"tid":7,"ts":1698080324855210,"dur":58,"ph":"X","args":{"hhash":5692,"offset":1048576,"count":4096,"ret":4096,"fhash":33084,"fd":18}}
{"id":6,"name":"PR","cat":"dftracer","pid":7,"tid":7,"ph":"M","args":{"name":"core_affinity","value":[0,1]}}
]"#;
/// As version 4 has it: no array, phases that are numbers, hashes that are text, objects in objects.
const LATE: &str = r#"{"id":1,"name":"pwrite64","cat":"POSIX","type":3,"pid":7,"tid":7,"ts":1698080324855210,"dur":58,"ph":1,"args":{"hhash":"8e0caa2d595b2a4d","offset":1048576,"count":4096,"ret":4096,"fhash":"00c1","fd":18}}
{"id":2,"name":"open","cat":"POSIX","type":3,"pid":7,"tid":7,"ts":1698080324850000,"dur":10,"ph":1,"args":{"hhash":"8e0caa2d595b2a4d","flags":16386,"ret":18,"fhash":"00c1"}}
{"id":3,"name":"read","cat":"POSIX","type":3,"pid":7,"tid":7,"ts":1698080324850514,"dur":115,"ph":1,"args":{"hhash":"8e0caa2d595b2a4d","count":131072,"ret":131072,"fhash":"00c1","fd":18}}
{"name":"FH","cat":"dftracer","type":1,"pid":7,"tid":7,"ph":4,"args":{"hhash":"8e0caa2d595b2a4d","name":"/p/a b","value":"00c1"}}
{"name":"HH","cat":"dftracer","type":1,"pid":7,"tid":7,"ph":4,"args":{"name":"n1","value":"8e0caa2d595b2a4d"}}
{"id":4,"name":"end","cat":"dftracer","type":1,"pid":7,"tid":7,"ts":1698080324860000,"dur":0,"ph":1,"args":{"num_events":9,"cfg":{"enable":1},"app":{}}}
"#;

#[test]
fn lines_of_every_version_are_the_same_requests() {
    for text in [EARLY, MIDDLE, LATE] {
        let trace = read_one(text);
        let path = || "/p/a b".to_owned();
        let expected = [(Call::Read, path(), Some(0), 131_072), (Call::Pwrite, path(), Some(1 << 20), 4096)];
        assert_eq!(moved(&trace), expected, "{text}");
        assert_eq!((trace.nodes.as_slice(), trace.processes[0].pid), (&["n1".to_owned()][..], 7));
        assert_eq!(warnings(&trace), "");
        let write = trace.events().find(|event| event.call == Call::Pwrite).unwrap();
        // O_DIRECT
        assert_eq!(write.write_class, Some(WriteClass::Direct));
        assert_eq!(((write.end.seconds() - write.start.seconds()) * 1e9).round(), 58_000.0);
    }
}

fn line(name: &str, ts: u64, rest: &str) -> String {
    let cat = if name.starts_with('f') && name != "ftruncate" { "STDIO" } else { "POSIX" };
    format!(r#"{{"name":"{name}","cat":"{cat}","pid":7,"ts":{ts},"dur":1,"ph":"X","args":{{"fname":"/a",{rest}}}}}"#)
        + "\n"
}

#[test]
fn positions_follow_descriptors_and_streams() {
    let text = [
        line("open", 1, r#""ret":3,"flags":2"#),
        line("open", 2, r#""ret":4,"flags":0"#),
        line("write", 3, r#""fd":3,"ret":100"#),
        line("write", 4, r#""fd":3,"ret":-1"#),
        line("read", 5, r#""fd":4,"ret":10"#),
        line("lseek", 6, r#""fd":3,"ret":4096,"offset":0,"whence":2"#),
        line("write", 7, r#""fd":3,"ret":7"#),
        line("pread", 8, r#""fd":4,"ret":5,"offset":77"#),
        line("read", 9, r#""fd":4,"ret":10"#),
        line("close", 10, r#""fd":3,"ret":0"#),
        line("write", 11, r#""fd":3,"ret":1"#),
        line("fopen", 12, r#""mode":"r+""#),
        line("fread", 13, r#""size":8,"count":4,"ret":3"#),
        line("fseek", 14, r#""offset":6,"whence":1,"ret":0"#),
        line("fwrite", 15, r#""size":10,"count":1,"ret":1"#),
        line("fseek", 16, r#""offset":-2,"whence":2,"ret":0"#),
        line("ftell", 17, r#""ret":900"#),
        line("fread", 18, r#""size":1,"count":50,"ret":50"#),
    ]
    .concat();
    let trace = read_one(&text);
    let found: Vec<_> = moved(&trace).into_iter().map(|(call, _, offset, bytes)| (call, offset, bytes)).collect();
    let expected = [
        (Call::Write, Some(0), 100),
        (Call::Write, None, 0),
        (Call::Read, Some(0), 10),
        (Call::Write, Some(4096), 7),
        (Call::Pread, Some(77), 5),
        (Call::Read, Some(10), 10),
        // Nobody opened it.
        (Call::Write, None, 1),
        (Call::Fread, Some(0), 24),
        (Call::Fwrite, Some(30), 10),
        (Call::Fread, Some(900), 50),
    ];
    assert_eq!(found, expected);
    warns(&trace, "1 read or write is at offsets that the trace does not say");
}

/// As version 2 of the package has it.
#[test]
fn descriptors_that_are_not_named_are_followed_by_their_files_while_there_is_one() {
    let text = [
        line("open64", 1, r#""flags":2"#),
        line("read", 2, r#""ret":10"#),
        line("open64", 3, r#""flags":0"#),
        line("read", 4, r#""ret":20"#),
        line("close", 5, r#""ret":0"#),
        line("lseek64", 6, r#""ret":50,"whence":0,"offset":50"#),
        line("read", 7, r#""ret":30"#),
        line("close", 8, r#""ret":0"#),
    ]
    .concat();
    let trace = read_one(&text);
    let found: Vec<_> = moved(&trace).into_iter().map(|(_, _, offset, bytes)| (offset, bytes)).collect();
    assert_eq!(found, [(Some(0), 10), (None, 20), (Some(50), 30)]);
    warns(&trace, "1 read or write is at offsets");
}

#[test]
fn what_is_appended_has_no_offset_and_says_so() {
    let text = [
        line("open", 1, r#""ret":3,"flags":1025"#),
        line("write", 2, r#""fd":3,"ret":10"#),
        line("fopen", 3, r#""mode":"a""#),
        line("fwrite", 4, r#""size":1,"ret":10"#),
    ]
    .concat();
    let trace = read_one(&text);
    assert!(moved(&trace).iter().all(|(_, _, offset, bytes)| offset.is_none() && *bytes == 10));
    warns(&trace, "2 reads and writes are at offsets that the trace does not say");
}

/// A program's rank may stand in another split than its calls, and splits come in the order of their names.
#[test]
fn splits_of_a_directory_are_one_trace_in_the_order_of_time() {
    let process = |pid: u32, rank: u32| {
        let rank = format!(
            r#"{{"name":"PR","cat":"dftracer","pid":{pid},"ph":"M","args":{{"name":"rank","value":"{rank}"}}}}"#
        ) + "\n";
        let calls = [
            line("open", 1, r#""ret":3,"flags":0"#),
            line("read", 2, r#""fd":3,"ret":10"#),
            line("read", 3, r#""fd":3,"ret":20"#),
        ];
        (rank, calls.map(|text| text.replace(r#""pid":7"#, &format!(r#""pid":{pid}"#))))
    };
    let (first_rank, first) = process(11, 0);
    let (second_rank, second) = process(12, 1);
    let directory = place(&[
        ("app-1.pfw", &[first[0].as_str(), &second[0]].concat()),
        ("app-10.pfw", &[first[2].as_str(), &second[2], &first_rank].concat()),
    ]);
    fs::write(
        directory.path().join("app-2.pfw.gz"),
        compressed(&[second[1].as_str(), &first[1], &second_rank].concat()),
    )
    .unwrap();
    let trace = Trace::open(directory.path()).unwrap();
    assert_eq!(trace.mpi_size(), 2);
    assert_eq!(trace.processes.iter().map(|process| process.mpi_rank).collect::<Vec<_>>(), [Some(0), Some(1)]);
    let mut found: Vec<_> = moved(&trace).into_iter().map(|(_, _, offset, bytes)| (offset, bytes)).collect();
    found.sort_unstable();
    assert_eq!(found, [(Some(0), 10), (Some(0), 10), (Some(10), 20), (Some(10), 20)]);
}

#[test]
fn damage_is_said_and_the_rest_read() {
    let text =
        [line("open", 1, r#""ret":3,"flags":0"#), "{\"name\":\"re\n".to_owned(), line("read", 2, r#""fd":3,"ret":10"#)]
            .concat();
    let trace = read_one(&text);
    assert_eq!(moved(&trace).len(), 1);
    warns(&trace, "one.pfw: 1 line is damaged, line 2 first, and skipped");

    let many: String =
        (0..2000).map(|number| line("pread", number, &format!(r#""ret":10,"offset":{}"#, number * 7919))).collect();
    let whole = compressed(&many);
    let directory = place(&[]);
    let path = directory.path().join("cut.pfw.gz");
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let trace = Trace::open(&path).unwrap();
    let found = moved(&trace).len();
    assert!((200..2000).contains(&found), "{found}");
    warns(&trace, "cut.pfw.gz: its compressed data end or are damaged in line");
}

#[test]
fn other_contents_are_refused_by_name() {
    let directory =
        place(&[("text.pfw", "no trace at all\n"), ("list.pfw", "[\n{\"traceEvents\":[]}\n]\n"), ("end.pfw.gz", "")]);
    fs::write(directory.path().join("end.pfw.gz"), &compressed("{}")[..12]).unwrap();
    for (name, said) in [
        ("text.pfw", "line 1: no event of DFTracer"),
        ("list.pfw", "line 2: no event of DFTracer"),
        ("end.pfw.gz", "end.pfw.gz: "),
    ] {
        let error = Trace::open(&directory.path().join(name)).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(said), "{error}");
    }
}

#[test]
fn traces_that_lack_what_is_needed_say_which_setting_brings_it() {
    let bare = r#"{"name":"read","cat":"POSIX","pid":7,"ts":1,"dur":1,"ph":"X"}"#;
    warns(&read_one(bare), "1 read or write does not say of which file and how long it is");
    warns(&read_one(bare), "DFTRACER_INC_METADATA=1");
    let sums = r#"{"name":"read","cat":"POSIX","type":3,"ts":1,"ph":3,"pid":7,"args":{"dft_cnt":2,"ret_sum":9}}"#;
    warns(&read_one(sums), "DFTRACER_ENABLE_AGGREGATION=0");
    let hash = |name: &str| {
        format!(r#"{{"name":"FH","cat":"dftracer","pid":7,"ph":"M","args":{{"name":"{name}","value":5}}}}"#)
    };
    let call = |hash: u32| {
        format!(
            r#"{{"name":"pread","cat":"POSIX","pid":7,"ts":1,"dur":1,"ph":"X","args":{{"fhash":{hash},"ret":1,"offset":0}}}}"#
        )
    };
    let shared = read_one(&[hash("/a"), hash("/b"), call(5)].join("\n"));
    warns(&shared, "1 file has its hash in common with another");
    let nameless = read_one(&call(6));
    assert_eq!(moved(&nameless)[0].1, "dftracer-6");
    let elsewhere = read_one(&call(6).replace("{\"fhash\"", "{\"hhash\":9,\"fhash\""));
    assert_eq!(elsewhere.nodes, ["host-9"]);
    warns(&nameless, "1 file has no name in the trace");
}
