//! `kill -9` of the broker between any two steps of its work, together with its client: a child process makes, fills, cuts and removes a file and kills
//! itself at the N-th step of its broker.
//!
//! Whatever the step, for the next broker holds:
//! - every region that the control block shows has all its objects, and the size is one that the file had;
//! - nothing lies beyond the size, so an extension reads as zeros;
//! - no generation number that was ever seen is given out again;
//! - `check` with repair leaves nothing to find but a removal of which nobody saw the end, and promises are those of the regions placed.

use crate::cluster::{REGION, STRIPE, Testbed};
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stripewise_broker::BrokerOptions;
use stripewise_layout::{FileId, RegionIndex};
use stripewise_store::protocol::{Admin, Reply, Request};
use stripewise_store::stub::Stub;

const ROOT: &str = "STRIPEWISE_TEST_ROOT";
const STEP: &str = "STRIPEWISE_TEST_STEP";

/// The child's part; nothing when run as a test of its own.
#[test]
fn child() {
    let Ok(root) = std::env::var(ROOT) else { return };
    let step: usize = std::env::var(STEP).unwrap().parse().unwrap();
    let testbed = Testbed::at(Path::new(&root));
    let count = AtomicUsize::new(0);
    let kill_at = move |_: &'static str| {
        if count.fetch_add(1, Ordering::SeqCst) == step {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    };
    let _broker = testbed.start_with(BrokerOptions { steps: Some(Arc::new(kill_at)), ..BrokerOptions::default() });
    let client = testbed.client();
    let path = testbed.data("f");
    let (opened, stub) = client.create(&path).unwrap();
    let mut seen = File::options().append(true).create(true).open(testbed.root().join("seen")).unwrap();
    let mut place = |first: u32, last: u32| {
        client.place(opened.file, first, last).unwrap();
        for region in first..=last {
            let generation = opened.generation(region).unwrap();
            writeln!(seen, "{region} {generation}").unwrap();
            for server in 0..4 {
                let object = format!("stripewise-objects/{}/{region}.{generation}", opened.file);
                std::fs::write(testbed.server_directory(server).join(object), vec![9; REGION as usize / 4]).unwrap();
            }
        }
        opened.extent.extend_to(u64::from(last + 1) * REGION);
    };
    place(0, 3);
    client.ask(Request::Sync { file: opened.file }).unwrap();
    client.ask(Request::Truncate { file: opened.file, size_bytes: REGION + u64::from(STRIPE) + 7, number: 0 }).unwrap();
    place(2, 100);
    client.ask(Request::Truncate { file: opened.file, size_bytes: 5, number: 0 }).unwrap();
    client.remove(&path, opened.file, &stub).unwrap();
    client.ask(Request::Close { file: opened.file }).unwrap();
}

fn seen(testbed: &Testbed) -> HashSet<(u32, u32)> {
    let mut all = HashSet::new();
    for line in std::fs::read_to_string(testbed.root().join("seen")).unwrap_or_default().lines() {
        let (region, generation) = line.split_once(' ').unwrap();
        all.insert((region.parse().unwrap(), generation.parse().unwrap()));
    }
    // Of what was made and not told of, the objects tell.
    for server in 0..4 {
        let directories = std::fs::read_dir(testbed.server_directory(server).join("stripewise-objects")).unwrap();
        for directory in directories {
            let file: FileId = directory.unwrap().file_name().to_str().unwrap().parse().unwrap();
            for (region, generation, _) in &testbed.objects(file)[server] {
                all.insert((*region, *generation));
            }
        }
    }
    all
}

#[test]
fn a_broker_killed_at_any_step_leaves_what_its_successor_can_finish() {
    let mut states = HashSet::new();
    for step in 0.. {
        let testbed = Testbed::new();
        {
            let _broker = testbed.start();
            testbed.manage_data();
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["crashes::child", "--exact", "--nocapture"])
            .env(ROOT, testbed.root())
            .env(STEP, step.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || output.status.signal() == Some(9), "{text}");
        let before = seen(&testbed);
        states.insert(check_after(&testbed, &before));
        if output.status.success() {
            assert!(step > 15, "{step}");
            break;
        }
    }
    let expected = [None, Some(0), Some(5), Some(REGION + u64::from(STRIPE) + 7), Some(4 * REGION), Some(101 * REGION)];
    assert!(states.iter().all(|state| expected.contains(state)), "{states:?}");
    assert!(states.len() >= 5, "the steps fall into all phases: {states:?}");
}

/// The file's size after the crash, if it is still there.
fn check_after(testbed: &Testbed, before: &HashSet<(u32, u32)>) -> Option<u64> {
    let _broker = testbed.start();
    let client = testbed.client();
    let Reply::Files { files, .. } = client.ask(Request::Admin(Admin::List { after: None })).unwrap() else {
        panic!("no list")
    };
    let check = || match client.ask(Request::Admin(Admin::Check { repair: true })).unwrap() {
        Reply::Findings { findings } => findings,
        other => panic!("{other:?}"),
    };
    let path = testbed.data("f");
    let Some(info) = files.first() else {
        check();
        assert_eq!(check(), []);
        for server in 0..4 {
            let objects = testbed.server_directory(server).join("stripewise-objects");
            assert_eq!(std::fs::read_dir(objects).unwrap().count(), 0, "nothing is left");
        }
        return None;
    };
    check();
    let findings = check();
    if !findings.is_empty() {
        // Killed between the removal and its word: a person decides.
        assert!(!path.exists() && findings[0].remedy.contains("stripewise rm --id"), "{info:?}: {findings:?}");
        client.ask(Request::Admin(Admin::Remove { file: info.file })).unwrap();
        assert_eq!((check(), testbed.object_count(info.file)), (vec![], 0));
        return None;
    }
    let said = Stub::parse(&std::fs::read(&path).unwrap()).unwrap().unwrap();
    assert_eq!(said.file, info.file);
    let opened = client.open(info.file, File::options().write(true).open(&path).unwrap()).unwrap();
    let size = opened.extent.size_bytes();
    let objects = testbed.objects(info.file);
    for on_server in &objects {
        let placed: Vec<_> = (0..200).filter_map(|region| Some((region, opened.generation(region)?))).collect();
        assert_eq!(on_server.iter().map(|(region, generation, _)| (*region, *generation)).collect::<Vec<_>>(), placed);
    }
    // All bytes up to the size and none beyond. Of region 1 only the first part was ever left by the first cut.
    let hole = if size == 101 * REGION { REGION - u64::from(STRIPE) - 7 } else { 0 };
    let held: u64 = objects.iter().flatten().map(|(.., bytes)| bytes).sum();
    assert_eq!(held, size - hole);
    client.ask(Request::Truncate { file: info.file, size_bytes: size + 1, number: 0 }).unwrap();
    let held: u64 = testbed.objects(info.file).iter().flatten().map(|(.., bytes)| bytes).sum();
    assert!(held <= size, "{held} bytes of {size}: nothing is to appear by an extension");
    client.place(info.file, 0, 120).unwrap();
    let old: HashSet<u32> = before.iter().map(|(_, generation)| *generation).collect();
    for region in (0..=120).filter(|region| !objects[0].iter().any(|(placed, ..)| placed == region)) {
        let generation = opened.generation(region).unwrap();
        assert!(!old.contains(&generation), "generation {generation} of region {region} was used before");
    }
    let Reply::Usage { servers } = client.ask(Request::Admin(Admin::Usage)).unwrap() else { panic!("no usage") };
    assert!(servers.iter().all(|server| (server.promised_bytes, server.objects) == (121 * REGION / 4, 121)));
    assert_eq!(opened.control.regions().get(RegionIndex(121)), stripewise_store::shared::control::RegionState::Absent);
    Some(size)
}

/// The child's part: the table takes no more when the end of a truncation is to be noted; the file is used on, and the broker dies.
#[test]
fn child_with_a_full_table() {
    let Ok(root) = std::env::var(ROOT) else { return };
    let testbed = Testbed::at(Path::new(&root));
    let limit = |bytes: Option<u64>| {
        let limit = rustix::process::Rlimit { current: bytes, maximum: None };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    };
    // SAFETY: no handler is involved; writes beyond the limit then fail instead.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let fill = move |step: &'static str| {
        if step == "truncate: size set" {
            limit(Some(0));
        }
    };
    let _broker = testbed.start_with(BrokerOptions { steps: Some(Arc::new(fill)), ..BrokerOptions::default() });
    let client = testbed.client();
    let (opened, _stub) = client.create(&testbed.data("f")).unwrap();
    client.place(opened.file, 0, 3).unwrap();
    opened.extent.extend_to(4 * REGION);
    client.ask(Request::Sync { file: opened.file }).unwrap();
    client.ask(Request::Truncate { file: opened.file, size_bytes: 5, number: 0 }).unwrap_err();
    limit(None);
    assert_eq!(opened.extent.size_bytes(), 5);
    opened.extent.extend_to(REGION);
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_truncation_whose_end_could_not_be_noted_is_not_repeated_over_what_was_written_since() {
    let testbed = Testbed::new();
    {
        let _broker = testbed.start();
        testbed.manage_data();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["crashes::child_with_a_full_table", "--exact", "--nocapture"])
        .env(ROOT, testbed.root())
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(9), "{}", String::from_utf8_lossy(&output.stderr));
    let _broker = testbed.start();
    let stub = File::options().write(true).open(testbed.data("f")).unwrap();
    let said = Stub::parse(&std::fs::read(testbed.data("f")).unwrap()).unwrap().unwrap();
    let client = testbed.client();
    let opened = client.open(said.file, &stub).unwrap();
    assert_eq!(opened.extent.size_bytes(), REGION);
    // Region 0 was kept; of the others neither objects nor records are left.
    assert!(testbed.objects(said.file).iter().all(|objects| objects.len() == 1));
    assert_eq!((0..4).map(|region| opened.generation(region)).collect::<Vec<_>>(), [Some(1), None, None, None]);
    let Reply::Usage { servers } = client.ask(Request::Admin(Admin::Usage)).unwrap() else { panic!("no usage") };
    assert!(servers.iter().all(|server| (server.promised_bytes, server.objects) == (REGION / 4, 1)));
}
