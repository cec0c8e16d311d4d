//! Real programs on ordinary files and again on managed ones: the same transcript, byte for byte.
//!
//! The programs are those of `tests/programs/posix` at the workspace's root (`run.py` there runs these and many
//! others under the `stripewise` command). Lines that begin with `~` are results that may differ in a documented way;
//! `run.py` knows which.

#[allow(unreachable_pub, reason = "the example shares it")]
#[path = "support/bed.rs"]
mod bed;
#[allow(unreachable_pub, reason = "each test uses a part")]
#[path = "support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stripewise_broker::BrokerOptions;
use stripewise_broker::rmt::Table;
use stripewise_broker::rmt::lmdb::LmdbStore;
use stripewise_layout::WriteClass;
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::observer::Observer;
use stripewise_store::shared::extent::Extent;
use stripewise_store::shared::inodes::Inodes;
use stripewise_store::stub::{STUB_BYTES, Stub};

/// A directory that programs may reach which give up their rights.
fn scratch() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    scratch
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/posix")
}

fn build(source: &Path, into: &Path) -> PathBuf {
    let program = into.join(source.file_stem().unwrap());
    let flags = ["-std=gnu11", "-O2", "-D_FORTIFY_SOURCE=2", "-pthread", "-w", "-o"];
    support::run(Command::new("cc").args(flags).arg(&program).arg(source));
    program
}

fn transcript(command: &mut Command, directory: &Path) -> String {
    let directory = directory.to_str().unwrap().to_owned();
    let output = command.current_dir(&directory).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let comparable =
        text.lines().map(|line| if line.starts_with('~') { line.split(' ').next().unwrap() } else { line });
    format!("{}\n{}", comparable.collect::<Vec<_>>().join("\n"), output.status)
}

/// Regular files below a directory that are stubs.
fn stubs(directory: &Path) -> usize {
    let is_stub = |path: &Path| std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"stripewise stub "));
    std::fs::read_dir(directory).unwrap().filter(|entry| is_stub(&entry.as_ref().unwrap().path())).count()
}

#[test]
fn programs_see_no_difference() {
    let scratch = scratch();
    let bed = bed::Bed::new(scratch.path(), bed::REGION_BYTES, 4096);
    let mut sources: Vec<_> = std::fs::read_dir(sources())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    // Maps: what a refused one makes the program do is run.py's to judge. Limits: the program gives up root, and then
    // no longer reaches a broker that runs as root in a directory of root's; and RLIMIT_FSIZE counts for each object,
    // not for the file.
    // open_every_flag: thousands of opens, which run.py compares too.
    let left_out = ["maps.c", "limits.c", "open_every_flag.c"];
    sources.retain(|path| !left_out.iter().any(|name| path.ends_with(name)));
    sources.sort();
    assert!(sources.len() >= 10, "the programs are gone: {sources:?}");
    let (mut differences, mut managed) = (Vec::new(), 0);
    for source in &sources {
        let program = build(source, scratch.path());
        let name = source.file_stem().unwrap().to_str().unwrap();
        let (bare, redirected) = (scratch.path().join(format!("bare-{name}")), bed.data.join(name));
        std::fs::create_dir(&bare).unwrap();
        std::fs::create_dir(&redirected).unwrap();
        let wanted = transcript(&mut Command::new(&program), &bare);
        let found = transcript(support::preloaded(&program).env("STRIPEWISE_STATE", &bed.state), &redirected);
        managed += stubs(&redirected);
        if wanted != found {
            let first = wanted.lines().zip(found.lines()).find(|(wanted, found)| wanted != found);
            differences.push(format!("{name}: {first:?}\n--- redirected\n{found}\n"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.concat());
    assert!(managed >= 10, "only {managed} stubs: hardly anything was redirected");
}

#[test]
fn a_stub_without_its_broker_is_an_error_and_never_its_text() {
    let scratch = scratch();
    let bed = bed::Bed::new(scratch.path(), bed::REGION_BYTES, 4096);
    let (file, state) = (bed.data.join("file"), bed.state.clone());
    support::run(
        support::preloaded("/bin/sh")
            .args(["-c", "seq 1 1000 > file"])
            .current_dir(&bed.data)
            .env("STRIPEWISE_STATE", &state),
    );
    assert_eq!(stubs(&bed.data), 1);
    drop(bed);
    let output = support::preloaded("/bin/cat").arg(&file).env("STRIPEWISE_STATE", &state).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(said.contains("no broker answers") && said.contains("Input/output error"), "{said}");
    // It told 1021, the stub's size.
    let mut stat = support::preloaded("/usr/bin/stat");
    let output = stat.args(["--format", "%s"]).arg(&file).arg("/etc/hostname").env("STRIPEWISE_STATE", &state).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("Input/output error"), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1, "the ordinary file alone: {output:?}");
}

/// As a power failure leaves a file that was never synced: the stub reached the disk, and the table is that of before.
#[test]
fn a_stub_whose_record_is_gone_is_an_error_and_never_its_text() {
    let scratch = scratch();
    let new_bed = || bed::Bed::new(scratch.path(), bed::REGION_BYTES, 4096);
    let state = new_bed().state.clone();
    let rmt = state.join("rmt");
    let earlier = std::fs::read(rmt.join("data.mdb")).unwrap();
    let bed = new_bed();
    let data = bed.data.clone();
    let shell = |script: &str| {
        let mut shell = support::preloaded("/bin/sh");
        shell.args(["-c", script]).current_dir(&data).env("STRIPEWISE_STATE", &state);
        shell
    };
    support::run(&mut shell("seq 1 1000 > file"));
    drop(bed);
    std::fs::write(rmt.join("data.mdb"), earlier).unwrap();
    for gone in ["committed", "pending"] {
        std::fs::remove_file(rmt.join(gone)).unwrap();
    }
    std::fs::remove_dir_all(state.join("run")).unwrap();
    let bed = new_bed();
    assert_eq!(stubs(&bed.data), 1);
    let output = shell("cat file; echo more >> file; stat file").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout.is_empty() && said.contains("Input/output error"), "{output:?}");
    // It is in nobody's way.
    support::run(&mut shell("rm file && echo new > file && test $(cat file) = new"));
    assert_eq!(stubs(&bed.data), 1);
}

/// The program opens its file again while the broker changes it by its size, in both directions.
#[test]
fn a_program_that_reopens_its_file_while_it_changes_by_size_meets_its_bytes() {
    let scratch = scratch();
    let options = BrokerOptions { idle_after: Some(Duration::from_micros(100)), ..BrokerOptions::default() };
    let bed = bed::Bed::with_options(scratch.path(), bed::REGION_BYTES, 4096, Some(4096), options);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/reopening.py");
    let output = support::preloaded("python3")
        .arg(script)
        .current_dir(&bed.data)
        .env("STRIPEWISE_STATE", &bed.state)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The last of all was closed large, and one that a process ended with open is told of too.
    for name in ["file", "left open"] {
        while std::fs::metadata(bed.data.join(name)).unwrap().len() != STUB_BYTES as u64 {
            std::thread::yield_now();
        }
    }
    let mut cat = support::preloaded("cat");
    cat.arg("left open").current_dir(&bed.data).env("STRIPEWISE_STATE", &bed.state);
    assert_eq!(cat.output().unwrap().stdout, [b'x'; 5000]);
}

/// Most files stay small: below a minimum size a new one costs what an ordinary one does, and a large one changes when it is closed.
#[test]
fn a_new_file_below_a_minimum_size_is_ordinary_until_it_is_closed_large() {
    let scratch = scratch();
    let bed = bed::Bed::with_options(scratch.path(), bed::REGION_BYTES, 4096, Some(4096), BrokerOptions::default());
    let mut shell = support::preloaded("sh");
    shell.args(["-c", "printf small > small; head -c 5000 /dev/zero > large"]).current_dir(&bed.data);
    assert!(shell.env("STRIPEWISE_STATE", &bed.state).status().unwrap().success());
    assert_eq!(std::fs::read(bed.data.join("small")).unwrap(), b"small");
    while std::fs::metadata(bed.data.join("large")).unwrap().len() != STUB_BYTES as u64 {
        std::thread::yield_now();
    }
    assert_eq!(std::fs::read(bed.data.join("small")).unwrap(), b"small");
}

/// The flags of the open, those set later, through duplicates too, and those of single calls.
#[test]
fn observers_see_what_every_write_waited_for() {
    use WriteClass::{Buffered, Direct, Synchronous};
    let scratch = scratch();
    let bed = bed::Bed::new(scratch.path(), bed::REGION_BYTES, 4096);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/flags.py");
    let mut command = support::preloaded("python3");
    command.arg(script).current_dir(&bed.data).env("STRIPEWISE_STATE", &bed.state);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut input = child.stdin.take().unwrap();
    let mut hear = |expected: &str| assert_eq!(lines.next().expect(expected).unwrap(), expected);
    hear("open");
    let mut observer = Observer::start(Client::connect(&bed.state, ClientOptions::default()).unwrap()).unwrap();
    assert_eq!(observer.files().count(), 1);
    input.write_all(b"\n").unwrap();
    hear("written");
    observer.meet().unwrap();
    let mut classes = Vec::new();
    observer.drain(|stream| {
        assert_eq!(stream.missed, 0);
        classes.extend(stream.requests.iter().map(|noted| (noted.offset.0 / 4096, noted.kind.write_class())));
    });
    classes.sort_unstable_by_key(|(number, _)| *number);
    let expected =
        [Buffered, Direct, Direct, Buffered, Buffered, Synchronous, Synchronous, Synchronous, Direct, Synchronous];
    let expected: Vec<_> = (0..).zip(expected.map(Some)).collect();
    assert_eq!(classes, expected);
    input.write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
}

/// The position stays behind what another thread was told is written, and so does what is written next.
#[test]
fn a_short_write_gives_no_position_back_that_another_write_has_passed() {
    let scratch = scratch();
    let program = support::compile("cc", "passed", scratch.path());
    let bed = bed::Bed::new(scratch.path(), bed::REGION_BYTES, 4096);
    let mut command = support::preloaded(&program);
    let output = support::run(command.current_dir(&bed.data).env("STRIPEWISE_STATE", &bed.state));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "12\n");
}

#[test]
fn files_are_created_where_the_file_system_lacks_what_that_takes_or_refused_where_it_lacks_all() {
    let scratch = scratch();
    let without = support::compile("cc", "without", scratch.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/creating.py");
    for (lacking, expected) in [
        (&["tmpfile"][..], "works"),
        (&["tmpfile", "link"], "works"),
        (&["tmpfile", "noreplace"], "works"),
        (&["tmpfile", "link", "noreplace"], "refused"),
    ] {
        let root = scratch.path().join(lacking.join("-"));
        std::fs::create_dir(&root).unwrap();
        let bed = bed::Bed::new(&root, bed::REGION_BYTES, 4096);
        let mut command = support::preloaded(&without);
        command.args(lacking).args(["--", "python3"]).arg(&script).arg(expected);
        let output = command.current_dir(&bed.data).env("STRIPEWISE_STATE", &bed.state).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "without {lacking:?}: {said}");
        assert_eq!(said.contains("keep the stubs on another one"), expected == "refused", "{said}");
        assert_eq!(stubs(&bed.data), usize::from(expected == "works"));
    }
}

#[test]
fn programs_see_what_other_hosts_wrote_and_never_append() {
    let scratch = scratch();
    let hidden: Arc<Mutex<Option<(Extent, u64)>>> = Arc::default();
    let shown = Arc::clone(&hidden);
    let steps = move |step: &'static str| {
        if step == "refresh"
            && let Some((extent, size_bytes)) = shown.lock().unwrap().take()
        {
            extent.extend_to(size_bytes);
        }
    };
    let options = BrokerOptions { shared: true, steps: Some(Arc::new(steps)), ..BrokerOptions::default() };
    let bed = bed::Bed::with_options(scratch.path(), bed::REGION_BYTES, 4096, None, options);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/shared.py");
    let mut command = support::preloaded("python3");
    command.arg(script).arg(scratch.path()).current_dir(&bed.data).env("STRIPEWISE_STATE", &bed.state);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let run =
        |name: &str| std::fs::OpenOptions::new().read(true).write(true).open(bed.state.join("run").join(name)).unwrap();
    let mut steps = Vec::new();
    for step in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
        let stub = bed.data.join("file");
        if step == "withdraw" {
            let found = std::fs::metadata(&stub).unwrap();
            Inodes::open(run("inodes"), true).unwrap().remove((found.dev(), found.ino()));
        } else {
            let file = Stub::parse(&std::fs::read(&stub).unwrap()).unwrap().unwrap().file;
            let extent = Extent::open(run(&format!("{file}.ext")), true).unwrap();
            let size_bytes = extent.size_bytes();
            extent.truncate_to(if step == "hide all" { 0 } else { 10 });
            *hidden.lock().unwrap() = Some((extent, size_bytes));
        }
        steps.push(step);
        input.write_all(b"\n").unwrap();
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(steps, ["hide", "hide", "hide", "hide", "hide", "hide all", "withdraw"]);
    assert!(hidden.lock().unwrap().is_none());
}

/// The size that would be left after a power failure: that of the mapping table.
fn durable_size_bytes(state: &Path, scratch: &Path) -> u64 {
    let copy = tempfile::tempdir_in(scratch).unwrap();
    std::fs::copy(state.join("rmt/data.mdb"), copy.path().join("data.mdb")).unwrap();
    let table = Table::new(Box::new(LmdbStore::open(copy.path()).unwrap())).unwrap();
    // Of one that nothing was synced of there may be no record yet.
    let files = table.all_files().unwrap();
    assert!(files.len() <= 1);
    files.first().map_or(0, |(_, record)| record.size_bytes)
}

/// By what the program does at or after each of two writes, the sizes that are durable then.
fn check_durable_sizes(cases: &[(&str, [u64; 2])]) {
    let scratch = scratch();
    let program = support::compile("cc", "synchronous", scratch.path());
    for (how, expected) in cases {
        let root = scratch.path().join(how);
        std::fs::create_dir(&root).unwrap();
        let bed = bed::Bed::new(&root, bed::REGION_BYTES, 4096);
        let mut command = support::preloaded(&program);
        command.arg(how).current_dir(&bed.data).env("STRIPEWISE_STATE", &bed.state);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut input = child.stdin.take().unwrap();
        for size in expected {
            assert_eq!(lines.next().unwrap().unwrap(), "written");
            assert_eq!(durable_size_bytes(&bed.state, scratch.path()), *size, "{how}");
            input.write_all(b"\n").unwrap();
        }
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn files_opened_for_synchronous_writing_have_a_durable_size_after_every_write() {
    let written = [1000, 1500];
    check_durable_sizes(&[("sync", written), ("dsync", written), ("append", written), ("none", [0, 0])]);
}

#[test]
fn a_sync_of_all_files_makes_the_sizes_of_managed_files_durable() {
    check_durable_sizes(&[("all", [1000, 1500]), ("all by number", [1000, 1500])]);
}
