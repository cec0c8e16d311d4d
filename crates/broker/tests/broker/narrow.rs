//! Regions that begin with the object of their first stripe alone.

use crate::cluster::{Client, Opened, REGION, STRIPE, Testbed, on_boot};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stripewise_layout::RegionIndex;
use stripewise_store::protocol::{Admin, Reply, Request};
use stripewise_store::shared::control::RegionState;

fn is_narrow(opened: &Opened) -> bool {
    matches!(opened.control.regions().get(RegionIndex(0)), RegionState::Placed { is_narrow: true, .. })
}

fn described(testbed: &Testbed) -> usize {
    let of_server = |server| {
        let directory = testbed.server_directory(server).join("stripewise-descriptions");
        std::fs::read_dir(directory).map_or(0, Iterator::count)
    };
    (0..4).map(of_server).sum()
}

/// Makes a small file, writes it and closes it.
fn make_written(testbed: &Testbed, client: &Client, name: &str) {
    let (opened, _stub) = client.create(&testbed.data(name)).unwrap();
    client.ask(Request::LinkedAndBegin { file: opened.file, bytes: 100 }).unwrap();
    assert_eq!((testbed.object_count(opened.file), is_narrow(&opened)), (1, true));
    opened.extent.extend_to(100);
    client.ask(Request::Close { file: opened.file }).unwrap();
}

/// Of a client that has written some small files in a row, and until it leaves one empty.
#[test]
fn the_next_of_many_small_files_begins_before_it_is_written() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let make = |name: &str| client.create(&testbed.data(name)).unwrap();
    (0..4).for_each(|number| make_written(&testbed, &client, &format!("written-{number}")));
    let (begun, _stub) = make("begun");
    assert_eq!((testbed.object_count(begun.file), is_narrow(&begun)), (1, true));
    client.ask(Request::LinkedAndBegin { file: begun.file, bytes: 100 }).unwrap();
    assert_eq!(testbed.object_count(begun.file), 1);
    client.ask(Request::Close { file: begun.file }).unwrap();
    let (empty, _stub) = make("empty");
    assert_eq!(testbed.object_count(empty.file), 0, "the last one stayed empty");
}

/// A script starts a process for each.
#[test]
fn the_first_small_file_of_a_client_begins_at_once_after_a_row_of_others() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    (0..4).for_each(|number| make_written(&testbed, &testbed.client(), &format!("written-{number}")));
    let client = testbed.client();
    let (begun, _stub) = client.create(&testbed.data("begun")).unwrap();
    assert_eq!((testbed.object_count(begun.file), is_narrow(&begun)), (1, true));
    client.ask(Request::Close { file: begun.file }).unwrap();
    let (empty, _stub) = testbed.client().create(&testbed.data("empty")).unwrap();
    assert_eq!(testbed.object_count(empty.file), 0, "the one before stayed empty");
}

/// Files that have shared memory in `run/`.
fn with_memory(testbed: &Testbed) -> BTreeSet<String> {
    let run = std::fs::read_dir(testbed.cluster.state.join("run")).unwrap();
    let names = run.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".ctl").map(str::to_owned)).collect()
}

fn wait_for_memory(testbed: &Testbed, count: usize) -> BTreeSet<String> {
    let begun = Instant::now();
    loop {
        let found = with_memory(testbed);
        if found.len() == count {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{count} expected, {found:?}");
        std::thread::yield_now();
    }
}

#[test]
fn the_memory_of_the_next_of_many_small_files_is_made_ahead_and_removed_with_the_broker() {
    let testbed = Testbed::new();
    let broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    (0..4).for_each(|number| make_written(&testbed, &client, &format!("written-{number}")));
    let before = with_memory(&testbed);
    assert_eq!(before.len(), 4);
    let (begun, _stub) = client.create(&testbed.data("begun")).unwrap();
    let ahead = wait_for_memory(&testbed, 6);
    let made: Vec<String> =
        ahead.difference(&before).filter(|file| **file != begun.file.to_string()).cloned().collect();
    let (next, _stub) = client.create(&testbed.data("next")).unwrap();
    assert_eq!(made, [next.file.to_string()], "it has the memory that was there");
    assert_eq!((next.control.region_bytes(), next.extent.size_bytes(), is_narrow(&next)), (REGION, 0, true));
    let memory = wait_for_memory(&testbed, 7);
    // Another client gets the third one, though the first has ended.
    drop(client);
    let other = testbed.client();
    let (third, _stub) = other.create(&testbed.data("third")).unwrap();
    assert!(memory.contains(&third.file.to_string()));
    let with_another = wait_for_memory(&testbed, 8);
    drop(broker);
    let unused: Vec<&String> = with_another.difference(&memory).collect();
    assert_eq!(unused.len(), 1);
    assert!(!with_memory(&testbed).contains(unused[0]), "no file was made of it");
}

#[test]
fn a_small_file_has_one_object_until_more_is_written() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let path = testbed.data("a");
    let (opened, stub) = client.create(&path).unwrap();
    let begin = |bytes| client.ask(Request::Begin { file: opened.file, bytes }).unwrap();
    begin(100);
    assert_eq!((testbed.object_count(opened.file), described(&testbed), is_narrow(&opened)), (1, 1, true));
    // All of it is promised all the same.
    let promised = || match client.ask(Request::Admin(Admin::Usage)).unwrap() {
        Reply::Usage { servers } => servers.iter().map(|server| server.promised_bytes).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(promised(), [REGION / 4; 4]);
    begin(u64::from(STRIPE));
    assert_eq!(testbed.object_count(opened.file), 1, "a stripe is enough");
    client.ask(Request::Sync { file: opened.file }).unwrap();
    assert_eq!(opened.control.durable_names().0, 1);
    begin(u64::from(STRIPE) + 1);
    assert_eq!((testbed.object_count(opened.file), described(&testbed), is_narrow(&opened)), (4, 4, false));
    assert_eq!(opened.generation(0), Some(1), "no byte has moved");
    assert_eq!(opened.control.durable_names().0, 0, "the new objects' names are not durable");
    client.ask(Request::Sync { file: opened.file }).unwrap();
    assert_eq!((opened.control.durable_names().0, promised()), (1, vec![REGION / 4; 4]));
    client.remove(&path, opened.file, &stub).unwrap();
    drop((opened, stub));
    drop(client);
    let client = testbed.client();
    // Freed when the broker has noticed that its user is gone; until then it is found.
    let begun = Instant::now();
    let findings = || client.ask(Request::Admin(Admin::Check { repair: false })).unwrap();
    let nothing = || Reply::Findings { findings: Vec::new() };
    while (described(&testbed) > 0 || findings() != nothing()) && begun.elapsed() < Duration::from_secs(100) {}
    assert_eq!((described(&testbed), findings()), (0, nothing()));
}

#[test]
fn a_larger_first_write_and_a_placement_make_all_objects_at_once() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let (written, _stub) = client.create(&testbed.data("a")).unwrap();
    client.ask(Request::Begin { file: written.file, bytes: u64::from(STRIPE) + 1 }).unwrap();
    let (placed, _stub) = client.create(&testbed.data("b")).unwrap();
    client.place(placed.file, 0, 0).unwrap();
    assert_eq!([&written, &placed].map(|opened| testbed.object_count(opened.file)), [4, 4]);
    assert!(!is_narrow(&written) && !is_narrow(&placed));
}

#[test]
fn a_narrow_region_gets_other_objects_on_the_servers_that_are_there() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    for (name, gone, stripes) in [("a", 2..3, 3), ("b", 1..4, 1)] {
        let (opened, _stub) = client.create(&testbed.data(name)).unwrap();
        client.ask(Request::Begin { file: opened.file, bytes: 100 }).unwrap();
        let away = |server| testbed.root().join(format!("away{server}"));
        for server in gone.clone() {
            std::fs::rename(testbed.server_directory(server), away(server)).unwrap();
            std::fs::create_dir(testbed.server_directory(server)).unwrap();
        }
        client.place(opened.file, 0, 0).unwrap();
        match opened.control.regions().get(RegionIndex(0)) {
            RegionState::Placed { view, is_narrow: false, .. } => {
                assert_eq!((view.stripes().len(), view.stripes()[0].server.0), (stripes, 0), "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
        match client.ask(Request::Admin(Admin::Regions { file: opened.file, first: RegionIndex(0) })).unwrap() {
            Reply::Regions { regions, .. } => assert!(regions[0].fell_back, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
        for server in gone {
            std::fs::remove_dir(testbed.server_directory(server)).unwrap();
            std::fs::rename(away(server), testbed.server_directory(server)).unwrap();
        }
    }
}

#[test]
fn of_a_region_that_was_narrow_only_what_was_never_synced_is_made_again() {
    let testbed = Testbed::new();
    let broker = testbed.start_with(on_boot(1));
    testbed.manage_data();
    let client = testbed.client();
    let (begun, first_stub) = client.create(&testbed.data("a")).unwrap();
    let (synced, second_stub) = client.create(&testbed.data("b")).unwrap();
    let objects = |opened: &Opened| -> Vec<PathBuf> {
        let object = format!("stripewise-objects/{}/0.1", opened.file);
        [0, 3].map(|server| testbed.server_directory(server).join(&object)).into()
    };
    for opened in [&begun, &synced] {
        client.ask(Request::Begin { file: opened.file, bytes: 100 }).unwrap();
        opened.extent.extend_to(100);
        client.ask(Request::Sync { file: opened.file }).unwrap();
        client.place(opened.file, 0, 0).unwrap();
    }
    client.ask(Request::Sync { file: synced.file }).unwrap();
    let (of_begun, of_synced) = (objects(&begun), objects(&synced));
    for object in of_begun.iter().chain(&of_synced) {
        std::fs::remove_file(object).unwrap();
    }
    let files = [begun.file, synced.file];
    drop((begun, synced, client, broker));
    std::fs::remove_dir_all(testbed.cluster.state.join("run")).unwrap();
    let _broker = testbed.start_with(on_boot(2));
    let client = testbed.client();
    for (file, stub) in files.into_iter().zip([first_stub, second_stub]) {
        client.open(file, &stub).unwrap();
    }
    let there = |objects: &[PathBuf]| objects.iter().map(|object| object.exists()).collect::<Vec<_>>();
    assert_eq!((there(&of_begun), there(&of_synced)), (vec![false, true], vec![false, false]));
}

#[test]
fn what_a_dead_broker_left_of_other_objects_is_emptied_before_they_are_used() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let (opened, _stub) = client.create(&testbed.data("a")).unwrap();
    client.ask(Request::Begin { file: opened.file, bytes: 1 }).unwrap();
    let left = testbed.server_directory(2).join(format!("stripewise-objects/{}", opened.file));
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("0.1"), [1; 100]).unwrap();
    client.place(opened.file, 0, 0).unwrap();
    assert_eq!(testbed.objects(opened.file)[2], [(0, 1, 0)]);
}
