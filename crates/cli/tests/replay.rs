//! `stripewise replay`: small workloads as real runs, with MPI and without, redirected and not, and what it refuses.

mod support;

use serde_json::Value;
use support::{Place, preload};

/// Bytes of (reads, writes).
fn moved(said: &Value) -> (u64, u64) {
    (said["read"]["bytes"].as_u64().unwrap(), said["write"]["bytes"].as_u64().unwrap())
}

fn replay(place: &Place, words: &[&str]) -> Value {
    let said = place.json(&[&["replay"], words].concat());
    assert_eq!(said["command"], "replay");
    for direction in ["read", "write"] {
        let found = &said[direction];
        let latency = |name: &str| found[name].as_f64().unwrap();
        assert!(latency("latency_p50_s") <= latency("latency_p95_s"));
        assert!(latency("latency_p95_s") <= latency("latency_p99_s"));
        let moves = found["bytes"].as_u64() > Some(0);
        assert_eq!(found["bandwidth_mb_s"].as_f64() > Some(0.0), moves);
        assert_eq!(found["requests"].as_u64() > Some(0), moves);
    }
    said
}

fn names(place: &Place, directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(directory)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Benchmarks with unaligned offsets and sizes, files per process, phases and collective I/O.
const WORKLOADS: [(&str, u64, u64); 6] = [
    (
        "ior:pattern=zipf,size=1MiB,region=64KiB,transfer=4KiB,processes=3,phases=2,op=both",
        2 * 1_044_480,
        2 * 1_044_480,
    ),
    ("ior:pattern=random,size=96001,transfer=1000,processes=3,file_per_process=yes,op=both", 96_000, 96_000),
    ("hpio:region_count=20,region_size=1001,region_spacing=3,processes=4,method=collective,op=write", 80_317, 80_317),
    ("btio:class=S,processes=4,time_steps=10,op=both", 2 * 69_120, 2 * 69_120),
    ("mpi-io-test:block=65KiB,offset=13,iterations=4,processes=3", 12 * 66_560, 12 * 66_560),
    ("checkpoint:checkpoints=2,state=10001,transfer=4KiB,compute=1ms,processes=4", 40_004, 80_008),
];

#[test]
fn benchmarks_run_as_plain_processes() {
    let place = Place::new();
    for (workload, read, written) in WORKLOADS {
        let said = replay(&place, &[workload, "--posix", "--verify", "--directory", "data"]);
        assert_eq!((moved(&said), &said["verified"]), ((read, written), &Value::Bool(true)), "{workload}");
        assert_eq!(said["interface"], "posix");
        assert!(names(&place, "data").is_empty(), "{workload}");
    }
}

#[test]
fn benchmarks_run_with_mpich() {
    let place = Place::new();
    for (workload, read, written) in WORKLOADS {
        let said = replay(&place, &[workload, "--verify", "--directory", "data"]);
        assert_eq!((moved(&said), &said["verified"]), ((read, written), &Value::Bool(true)), "{workload}");
        assert_eq!(said["interface"], "mpich");
        assert!(names(&place, "data").is_empty(), "{workload}");
    }
}

#[test]
fn phases_are_told_apart() {
    let place = Place::new();
    let workload = "ior:pattern=zipf,size=1MiB,region=64KiB,transfer=4KiB,processes=2,phases=3,op=read";
    let said = replay(&place, &[workload, "--posix", "--directory", "data"]);
    let phases = said["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 3);
    assert!(phases.iter().all(|phase| phase["read"]["bytes"] == 1 << 20 && phase["write"]["bytes"] == 0));
    assert_eq!(said["verified"], Value::Null);
    let text = place.done(&["replay", workload, "--posix", "--directory", "data"]);
    assert!(text.contains("2 processes (posix)") && text.contains("phase"), "{text}");
}

/// Every byte that cannot be right is found, wherever it lies in a request.
#[test]
fn wrong_data_are_a_finding() {
    let place = Place::new();
    let write = "ior:size=30KiB,transfer=1001,block=5005,processes=2,op=write";
    let read = write.replace("op=write", "op=read");
    place.done(&["replay", write, "--posix", "--keep", "--directory", "data"]);
    // Without --verify the data tell nothing.
    assert_eq!(place.say(&["replay", &read, "--posix", "--verify", "--directory", "data"]).status, 1);
    place.done(&["replay", write, "--posix", "--keep", "--verify", "--force", "--directory", "data"]);
    place.done(&["replay", &read, "--posix", "--verify", "--directory", "data"]);
    let good = place.read("data/shared");
    for at in [0, 7, 1000, 1001, 1005, 2001, 30_029] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        place.write("data/shared", &bad);
        let said = place.say(&["replay", &read, "--posix", "--verify", "--directory", "data"]);
        assert_eq!(said.status, 1, "{}", said.err);
        assert!(said.err.contains(&format!("wrong data in HERE/data/shared at byte {at}:")), "{}", said.err);
        assert!(said.err.contains("what was read is not what was written"), "{}", said.err);
    }
}

#[test]
fn what_stands_there_is_not_written_over() {
    let place = Place::new();
    std::fs::create_dir(place.path("data")).unwrap();
    place.write("data/shared", b"mine");
    let refused = |words: &[&str]| {
        let said = place.say(&[&["replay"], words, &["--posix"]].concat());
        assert_eq!((said.status, said.out.as_str()), (2, ""), "{words:?}");
        said.err
    };
    let write = "ior:size=64KiB,transfer=4KiB,processes=2,op=write";
    let read = "ior:size=64KiB,transfer=4KiB,processes=2,op=read";
    assert_eq!(
        refused(&[write, "--directory", "data"]),
        "stripewise replay: HERE/data/shared exists and the workload would write over it; replay in another directory (--directory DIR)\n"
    );
    let text = refused(&[read, "--directory", "data"]);
    assert!(text.contains("HERE/data/shared has 4 bytes and the workload reads up to 65536"), "{text}");
    let text = refused(&["ior:size=64KiB,transfer=4KiB,processes=2,op=read,file=/no/such/place/data"]);
    assert!(text.contains("there is no directory /no/such/place"), "{text}");
    let text = refused(&["ior:size=64KiB,transfer=4KiB,processes=2,op=read", "--directory", "data/shared"]);
    assert!(text.contains("cannot make the directory HERE/data/shared"), "{text}");
    let text = refused(&["ior:transfre=1", "--directory", "data"]);
    assert!(text.contains("`transfre` (= 1) is not one of its parameters; known: pattern,"), "{text}");
    assert!(refused(&["nothing.trace"]).contains("nothing.trace is neither a trace nor a benchmark"));
    assert!(refused(&[write, "--scale-time", "-1"]).contains("--scale-time"));
    assert!(refused(&[write, "--window", "2s", "--directory", "data"]).contains("are for traces"));
    assert_eq!(place.read("data/shared"), b"mine");
}

#[test]
fn all_benchmarks_are_listed() {
    let text = Place::new().done(&["replay", "--list"]);
    for words in ["ior, as in ior:", "btio, as in btio:", "transfer     bytes of a request (-t) [256KiB]"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// A replay is traced, the trace replayed elsewhere and traced again: both hold the same requests.
#[test]
fn a_traced_run_is_replayed() {
    preload();
    let place = Place::new();
    let own = env!("CARGO_BIN_EXE_stripewise");
    let workload = "ior:pattern=random,size=256KiB,transfer=4KiB,processes=4,op=both,seed=3";
    place.done(&["trace", "-o", "first", "--", own, "replay", workload, "--posix", "--directory", "data"]);
    // The compiler's own files are in the trace too.
    let replayed =
        replay(&place, &["first", "--file", "data/shared", "--posix", "--no-think", "--directory", "copy", "--verify"]);
    assert_eq!((moved(&replayed), replayed["ranks"].as_u64()), ((256 << 10, 256 << 10), Some(4)));
    place.done(&[
        "trace",
        "-o",
        "second",
        "--",
        own,
        "replay",
        "first",
        "--file",
        "data/shared",
        "--posix",
        "--directory",
        "copy",
    ]);
    let facts = |trace: &str, directory: &str| {
        let shown = place.json(&["trace", "show", trace]);
        let files = shown["files"].as_array().unwrap().clone();
        let path = format!("HERE/{directory}/shared");
        let file = files.into_iter().find(|file| file["path"] == path.as_str());
        let file = file.unwrap_or_else(|| panic!("{trace} does not show {path}"));
        ["read_requests", "write_requests", "read_bytes", "write_bytes"].map(|key| file[key].clone())
    };
    assert_eq!(facts("first", "data"), facts("second", "copy"));
    let said =
        place.say(&["replay", "first", "--file", "data/shared", "--posix", "--processes", "5", "--directory", "copy"]);
    assert!(said.err.contains("--processes 5: the trace has 4 processes"), "{}", said.err);
    let said = place.say(&["replay", "first", "--file", "data/other", "--posix", "--directory", "copy"]);
    assert!(said.err.contains("--file data/other (HERE/data/other) begins no traced path"), "{}", said.err);
    let words = ["first", "--file", "data/shared", "--posix", "--processes", "2", "--own-times", "--directory", "copy"];
    let half = replay(&place, &words);
    assert_eq!((moved(&half), half["ranks"].as_u64()), ((128 << 10, 128 << 10), Some(2)));
}

/// New files of a managed directory become managed, are read back right, and go again.
#[test]
fn a_redirected_replay_of_ordinary_files_says_so() {
    preload();
    let place = Place::with_cluster();
    let workload = "ior:pattern=sequential,size=64KiB,transfer=4KiB,processes=2,file_per_process=yes,op=write";
    let words = ["replay", workload, "--redirect", "--posix", "--directory", "plain"];
    let said = place.say(&words);
    assert!(said.out.contains(": 2 processes (posix, on ordinary files)\n"), "{}", said.out);
    assert!(said.err.contains("no server of the cluster; `stripewise manage DIR`"), "{}", said.err);
    let found = replay(&place, &words[1..]);
    assert_eq!((&found["files"], &found["managed_files"]), (&2.into(), &0.into()));
    place.done(&["manage", "plain"]);
    let said = place.say(&words);
    assert!(said.out.contains(": 2 processes (posix, redirected)\n"), "{}", said.out);
    assert!(!said.err.contains("ordinary files"), "{}", said.err);
    assert_eq!(replay(&place, &words[1..])["managed_files"], 2);
}

#[test]
fn a_redirected_replay_goes_to_managed_files() {
    preload();
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("data")).unwrap();
    place.done(&["manage", "data"]);
    let workload = "ior:pattern=random,size=3MiB,transfer=12KiB,processes=4,op=both";
    for interface in [&["--posix"][..], &[]] {
        let words = [&[workload, "--redirect", "--verify", "--keep", "--directory", "data"], interface].concat();
        let said = replay(&place, &words);
        assert_eq!((&said["verified"], &said["redirected"]), (&Value::Bool(true), &Value::Bool(true)));
        assert_eq!(std::fs::metadata(place.path("data/shared")).unwrap().len(), 1021);
        let refused = place.say(&["replay", workload, "--posix", "--force", "--directory", "data"]);
        assert!(refused.err.contains("is a managed file; replay it with --redirect"), "{}", refused.err);
        let reads = workload.replace("op=both", "op=read");
        let said = replay(&place, &[&reads, "--redirect", "--verify", "--posix", "--directory", "data"]);
        assert_eq!(said["verified"], true);
        place.done(&["rm", "data/shared"]);
        replay(&place, &[&[workload, "--redirect", "--directory", "data"], interface].concat());
        assert!(names(&place, "data").is_empty());
        assert!(place.json(&["ls"])["files"].as_array().is_none_or(Vec::is_empty));
    }
}
