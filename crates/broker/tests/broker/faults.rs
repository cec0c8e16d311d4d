//! Full servers, absent servers, second brokers and hosts, and brokers that follow each other.

use crate::cluster::{Client, REGION, STRIPE, Testbed, on_boot};
use rustix::fd::AsFd;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use stripewise_broker::{Broker, BrokerOptions, Started};
use stripewise_layout::{ByteCount, Direction, RegionIndex, Server};
use stripewise_store::protocol::{Admin, PROTOCOL_VERSION, Refusal, Reply, Request, ServerUsage};
use stripewise_store::shared::slots::InFlight;
use stripewise_store::state::{HostIdentity, StateDirectory};
use stripewise_store::stub::Stub;

/// What is promised and held. Free space is left out: others on the machine change it.
fn usage(client: &Client) -> Vec<ServerUsage> {
    match client.ask(Request::Admin(Admin::Usage)).unwrap() {
        Reply::Usage { mut servers } => {
            servers.iter_mut().flat_map(|server| &mut server.standing).for_each(|standing| standing.free_bytes = 0);
            servers
        }
        other => panic!("{other:?}"),
    }
}

fn fell_back(client: &Client, file: stripewise_layout::FileId) -> Vec<bool> {
    match client.ask(Request::Admin(Admin::Regions { file, first: RegionIndex(0) })).unwrap() {
        Reply::Regions { regions, more: false } => regions.iter().map(|region| region.fell_back).collect(),
        other => panic!("{other:?}"),
    }
}

fn capacities(testbed: &mut Testbed, regions: [u64; 4]) {
    for (server, regions) in testbed.cluster.servers.iter_mut().zip(regions) {
        server.capacity = Some(ByteCount(regions * REGION / 4 + 4096));
        server.reserve = ByteCount(4096);
    }
}

#[test]
fn a_full_ssd_sends_regions_to_the_fallback_and_full_disks_change_nothing() {
    let mut testbed = Testbed::new();
    // Shares of a fourth on each server: two regions fit the SServers. On the fallback a share is a half: two shares of the others.
    capacities(&mut testbed, [6, 6, 2, 2]);
    let broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let (opened, stub) = client.create(&testbed.data("a")).unwrap();
    client.place(opened.file, 0, 3).unwrap();
    assert_eq!(fell_back(&client, opened.file), [false, false, true, true]);
    let before = (usage(&client), testbed.objects(opened.file));
    let refused = client.place(opened.file, 4, 4).unwrap_err();
    assert!(matches!(&refused, Refusal::NoSpace { what } if what.contains("hdd0")), "{refused:?}");
    let (other, _other_stub) = client.create(&testbed.data("b")).unwrap();
    assert!(matches!(client.place(other.file, 0, 9), Err(Refusal::NoSpace { .. })), "all of a request or nothing");
    assert_eq!((usage(&client), testbed.objects(opened.file)), before);
    assert_eq!((opened.generation(4), testbed.object_count(other.file)), (None, 0));
    // Promises survive the broker.
    drop(broker);
    let _broker = testbed.start();
    let client = testbed.client();
    assert_eq!(usage(&client), before.0);
    client.open(opened.file, &stub).unwrap();
    assert!(matches!(client.place(opened.file, 4, 4), Err(Refusal::NoSpace { .. })));
    // Freed room is given again.
    client.ask(Request::Truncate { file: opened.file, size_bytes: 0, number: 0 }).unwrap();
    assert_eq!(testbed.object_count(opened.file), 12, "size was 0: nothing was beyond it to be cut");
    opened.extent.extend_to(2 * REGION);
    client.ask(Request::Truncate { file: opened.file, size_bytes: 1, number: 0 }).unwrap();
    assert_eq!(usage(&client).iter().map(|server| server.objects).collect::<Vec<_>>(), [1, 1, 1, 1]);
    client.place(opened.file, 4, 4).unwrap();
    assert_eq!(fell_back(&client, opened.file), [false, false]);
}

#[test]
fn sixteen_threads_asking_for_the_same_regions_get_one_placement() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let path = testbed.data("a");
    let first = testbed.client();
    let (opened, _stub) = first.create(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let client = testbed.client();
                client.open(opened.file, File::options().write(true).open(&path).unwrap()).unwrap();
                for region in 0..20 {
                    client.place(opened.file, region / 2, region).unwrap();
                    assert!(opened.generation(region).is_some());
                }
            });
        }
    });
    for on_server in testbed.objects(opened.file) {
        assert_eq!(on_server.iter().map(|(region, ..)| *region).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    }
    assert_eq!(usage(&first)[3].promised_bytes, 20 * REGION / 4);
}

#[test]
fn many_clients_make_and_free_files_at_once() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let files = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for thread in 0..24 {
            let (testbed, files) = (&testbed, &files);
            scope.spawn(move || {
                let client = testbed.client();
                for number in 0..6 {
                    let path = testbed.data(&format!("{thread}-{number}"));
                    let (opened, stub) = client.create(&path).unwrap();
                    assert!(files.lock().unwrap().insert(opened.file));
                    client.place(opened.file, 0, 1).unwrap();
                    client.ask(Request::Sync { file: opened.file }).unwrap();
                    client.remove(&path, opened.file, &stub).unwrap();
                    client.ask(Request::Close { file: opened.file }).unwrap();
                }
            });
        }
    });
    let client = testbed.client();
    assert_eq!(
        client.ask(Request::Admin(Admin::List { after: None })),
        Ok(Reply::Files { files: vec![], more: false })
    );
    assert!(usage(&client).iter().all(|server| (server.promised_bytes, server.objects) == (0, 0)));
    let run = std::fs::read_dir(testbed.cluster.state.join("run")).unwrap();
    let left: Vec<_> =
        run.map(|entry| entry.unwrap().file_name()).filter(|name| name.to_string_lossy().contains('.')).collect();
    assert_eq!(left, ["broker.sock"]);
}

#[test]
fn a_second_broker_waits_and_takes_over_files_that_live_clients_use() {
    let testbed = Testbed::new();
    let first = Broker::serve_or_wait(&testbed.cluster, BrokerOptions::default()).unwrap();
    assert!(first.is_serving());
    assert!(matches!(
        Broker::start(&testbed.cluster, BrokerOptions::default()).unwrap(),
        Started::AlreadyRunning { process: Some(process) } if process == std::process::id()
    ));
    let second = Broker::serve_or_wait(&testbed.cluster, BrokerOptions::default()).unwrap();
    assert!(!second.is_serving());
    testbed.manage_data();
    let mut client = testbed.client();
    let (slot, incarnation) = client.claim();
    let path = testbed.data("a");
    let (opened, stub) = client.create(&path).unwrap();
    opened.slots.add_user(slot, incarnation).unwrap();
    client.place(opened.file, 0, 0).unwrap();
    opened.extent.extend_to(12_345);
    opened.extent.begin_write(RegionIndex(0));
    drop(first);
    while !second.is_serving() {
        std::thread::yield_now();
    }
    assert_eq!(second.fault(), None);
    let again = testbed.client();
    let mapped = again.open(opened.file, &stub).unwrap();
    assert_eq!(mapped.extent.size_bytes(), 12_345, "the same memory");
    opened.extent.extend_to(23_456);
    assert_eq!(mapped.extent.size_bytes(), 23_456);
    assert_eq!(mapped.generation(0), Some(1));
    again.place(opened.file, 1, 1).unwrap();
    assert!(
        opened.generation(1).is_some_and(|generation| generation > 1),
        "what was reserved before is not used again"
    );
    again.ask(Request::Place { file: opened.file, first: RegionIndex(0), last: RegionIndex(1) }).unwrap();
    assert_eq!(testbed.object_count(opened.file), 8, "a repeated request does nothing twice");
}

#[test]
fn another_boot_builds_the_memory_anew_from_what_was_durable() {
    let testbed = Testbed::new();
    let first = testbed.start_with(on_boot(1));
    testbed.manage_data();
    let client = testbed.client();
    let path = testbed.data("a");
    let (opened, stub) = client.create(&path).unwrap();
    client.place(opened.file, 0, 0).unwrap();
    opened.extent.extend_to(100);
    client.ask(Request::Sync { file: opened.file }).unwrap();
    let object = testbed.server_directory(0).join(format!("stripewise-objects/{}/0.1", opened.file));
    std::fs::write(&object, vec![1; 4096]).unwrap();
    client.place(opened.file, 1, 2).unwrap();
    // As a power failure may leave them: names of new objects that were never synced are gone, and one that was.
    let name = |region, generation| {
        testbed.server_directory(3).join(format!("stripewise-objects/{}/{region}.{generation}", opened.file))
    };
    let (unsynced, synced) = (name(1, 2), name(0, 1));
    std::fs::remove_file(&unsynced).unwrap();
    std::fs::remove_file(&synced).unwrap();
    // As a crash leaves it: the size was raised after the last sync, and nobody said goodbye.
    let saved = testbed.root().join("saved");
    copy_directory(&testbed.cluster.state.join("rmt"), &saved);
    opened.extent.extend_to(4096);
    drop((client, first));
    std::fs::remove_dir_all(testbed.cluster.state.join("rmt")).unwrap();
    std::fs::rename(&saved, testbed.cluster.state.join("rmt")).unwrap();
    let _broker = testbed.start_with(on_boot(2));
    let client = testbed.client();
    let opened = client.open(opened.file, &stub).unwrap();
    assert_eq!(opened.extent.size_bytes(), 100, "the durable size");
    assert_eq!(std::fs::metadata(&object).unwrap().len(), 100, "objects are cut to it");
    assert!(unsynced.exists() && !synced.exists(), "only what was never acknowledged is made again");
    assert!(opened.extent.unsynced(RegionIndex(0)).is_some(), "everything counts as dirty");
    assert_eq!(opened.generation(0), Some(1));
}

fn copy_directory(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_second_host_is_refused() {
    let testbed = Testbed::new();
    drop(testbed.start());
    let host = HostIdentity { machine: "elsewhere".into(), name: "beta".into(), boot: [7; 16] };
    let options = BrokerOptions { host: Some(host), ..BrokerOptions::default() };
    let Err(error) = Broker::start(&testbed.cluster, options) else { panic!("served on a second host") };
    let own = HostIdentity::of_this_host().unwrap().name;
    let said = error.to_string();
    assert!(said.contains(&format!("in use by host {own}")) && said.contains("this is host beta"), "{said}");
}

#[test]
fn a_server_that_vanished_is_named_and_others_go_on() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let (opened, _stub) = client.create(&testbed.data("a")).unwrap();
    client.place(opened.file, 0, 0).unwrap();
    opened.extent.extend_to(REGION);
    let (there, away) = (testbed.server_directory(2).to_owned(), testbed.root().join("away"));
    std::fs::rename(&there, &away).unwrap();
    std::fs::create_dir(&there).unwrap();
    let named = |result: Result<Reply, Refusal>| {
        assert!(matches!(&result, Err(Refusal::Server { server, .. }) if server == "ssd0"), "{result:?}");
    };
    // A new region goes to the others.
    client.place(opened.file, 1, 1).unwrap();
    assert_eq!(fell_back(&client, opened.file), [false, true]);
    named(client.ask(Request::Truncate { file: opened.file, size_bytes: 5, number: 0 }));
    assert_eq!(opened.extent.size_bytes(), REGION, "refused with no effect");
    assert!(!opened.control.gate().is_shut());
    let fault = usage(&client)[2].fault.clone().unwrap();
    assert!(fault.contains("not mounted or was emptied"), "{fault}");
    assert!(usage(&client).iter().filter(|server| server.fault.is_some()).count() == 1);
    for server in [0, 1, 3] {
        let directory = testbed.server_directory(server).join(format!("stripewise-objects/{}", opened.file));
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 2, "on server {server}");
    }
    std::fs::remove_dir(&there).unwrap();
    std::fs::rename(&away, &there).unwrap();
    client.ask(Request::Truncate { file: opened.file, size_bytes: 5, number: 0 }).unwrap();
    assert_eq!(testbed.objects(opened.file)[2], [(0, 1, 0)]);
}

#[test]
fn a_server_that_is_not_writable_is_named() {
    if rustix::process::geteuid().is_root() {
        return; // Root writes everywhere.
    }
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let (opened, _stub) = client.create(&testbed.data("a")).unwrap();
    let objects = testbed.server_directory(1).join("stripewise-objects");
    std::fs::set_permissions(&objects, std::fs::Permissions::from_mode(0o500)).unwrap();
    let refused = client.place(opened.file, 0, 0).unwrap_err();
    assert!(refused.to_string().contains("hdd1") && refused.to_string().contains("not writable"), "{refused}");
    std::fs::set_permissions(&objects, std::fs::Permissions::from_mode(0o711)).unwrap();
}

#[test]
fn truncation_waits_for_lanes_and_frees_them_from_the_dead() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let mut client = testbed.client();
    let (slot, incarnation) = client.claim();
    let (opened, _stub) = client.create(&testbed.data("a")).unwrap();
    client.place(opened.file, 0, 1).unwrap();
    opened.extent.extend_to(2 * REGION);
    opened.slots.add_user(slot, incarnation).unwrap();
    let what = InFlight { direction: Direction::Write, first: RegionIndex(0), last: RegionIndex(1) };
    let lane = opened.slots.occupy(slot, 0, what).unwrap();
    std::thread::scope(|scope| {
        let cutting = scope
            .spawn(|| client.ask(Request::Truncate { file: opened.file, size_bytes: u64::from(STRIPE), number: 0 }));
        while !opened.control.gate().is_shut() {
            std::thread::yield_now();
        }
        assert_eq!(opened.extent.size_bytes(), 2 * REGION, "waits for the lane");
        // Other files are served meanwhile.
        let other = testbed.client();
        let (free, _stub) = other.create(&testbed.data("b")).unwrap();
        other.place(free.file, 0, 0).unwrap();
        assert!(opened.control.gate().is_shut());
        lane.free();
        cutting.join().unwrap().unwrap();
    });
    assert_eq!(opened.extent.size_bytes(), u64::from(STRIPE));
    // A user whose claim is nobody's is dead, whatever its lanes say.
    let dead = stripewise_store::shared::process_slot::Incarnation(incarnation.0 + 1000);
    let elsewhere = stripewise_store::shared::process_slot::ProcessSlot(slot.0 ^ 1);
    opened.slots.add_user(elsewhere, dead).unwrap();
    let _left = opened.slots.occupy(elsewhere, 0, what).unwrap();
    client.ask(Request::Truncate { file: opened.file, size_bytes: 1, number: 0 }).unwrap();
}

#[test]
fn a_client_of_another_version_is_told_so_and_requests_need_a_greeting() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    let client = testbed.client();
    let refused = client.ask(Request::Hello { version: PROTOCOL_VERSION + 1 }).unwrap_err();
    assert_eq!(refused, Refusal::Version { broker: PROTOCOL_VERSION, client: PROTOCOL_VERSION + 1 });
    let socket = stripewise_store::state::connect(&testbed.cluster.state).unwrap();
    stripewise_store::packet::send(&socket, &Request::Admin(Admin::Usage), &[]).unwrap();
    let (reply, _) = stripewise_store::packet::receive::<Reply>(&socket, &mut Default::default()).unwrap();
    assert!(matches!(reply, Reply::Refused(Refusal::Invalid { .. })), "{reply:?}");
    // What is no request at all is answered too, and the connection lives.
    stripewise_store::packet::send(&socket, &[0xffu8; 32], &[]).unwrap();
    let (reply, _) = stripewise_store::packet::receive::<Reply>(&socket, &mut Default::default()).unwrap();
    assert!(matches!(reply, Reply::Refused(Refusal::Invalid { .. })), "{reply:?}");
}

#[test]
fn a_cluster_without_room_or_with_unknown_servers_is_refused_by_name() {
    let testbed = Testbed::new();
    let mut cluster = testbed.cluster.clone();
    cluster.servers[0] = Server { capacity: Some(ByteCount(1)), reserve: ByteCount(2), ..cluster.servers[0].clone() };
    let Err(error) = Broker::start(&cluster, BrokerOptions::default()) else { panic!("served") };
    assert!(error.to_string().contains("reserve"), "{error}");
    let _broker = testbed.start();
    let mut placement = testbed.placement();
    placement.beyond = 9;
    let refused = testbed
        .client()
        .ask(Request::Admin(Admin::Manage { directory: "/d".into(), placement, min_bytes: None }))
        .unwrap_err();
    assert!(refused.to_string().contains("layout 9"), "{refused}");
}

#[test]
fn a_lost_state_directory_is_an_error_and_orphans_nothing() {
    let testbed = Testbed::new();
    let broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let (opened, stub) = client.create(&testbed.data("a")).unwrap();
    client.place(opened.file, 0, 0).unwrap();
    drop((broker, client));
    let (there, away) = (&testbed.cluster.state, testbed.root().join("away"));
    std::fs::rename(there, &away).unwrap();
    let refused = |expected: &str| match Broker::start(&testbed.cluster, BrokerOptions::default()) {
        Ok(_) => panic!("served"),
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains(expected) && said.contains("/state"), "{said}");
        }
    };
    refused("is missing");
    assert!(!there.exists());
    // As an earlier version made it then.
    StateDirectory::make(there).unwrap();
    refused("server hdd0 holds 1 objects");
    // All that anybody knows of objects is with servers that are not there.
    for name in ["hdd0", "hdd1", "ssd0", "ssd1"] {
        std::fs::rename(testbed.root().join(name), testbed.root().join(format!("{name}-away"))).unwrap();
    }
    refused("server hdd0");
    for name in ["hdd0", "hdd1", "ssd0", "ssd1"] {
        std::fs::rename(testbed.root().join(format!("{name}-away")), testbed.root().join(name)).unwrap();
    }
    std::fs::remove_dir_all(there).unwrap();
    std::fs::rename(&away, there).unwrap();
    let _broker = testbed.start();
    testbed.client().open(opened.file, &stub).unwrap();
}

#[test]
fn a_client_that_ends_without_a_word_frees_what_it_had_removed() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let mut client = testbed.client();
    let (slot, incarnation) = client.claim();
    let path = testbed.data("a");
    let (opened, stub) = client.create(&path).unwrap();
    opened.slots.add_user(slot, incarnation).unwrap();
    client.place(opened.file, 0, 0).unwrap();
    client.begin_removal(&path, opened.file, &stub).unwrap();
    std::fs::remove_file(&path).unwrap();
    drop((client, stub));
    // The broker hears of it in its own time.
    while testbed.object_count(opened.file) > 0 {
        std::thread::yield_now();
    }
    let client = testbed.client();
    while client.ask(Request::Admin(Admin::List { after: None })) != Ok(Reply::Files { files: vec![], more: false }) {
        std::thread::yield_now();
    }
}

/// A broker short of descriptors or memory must not take what it cannot open for what is not there: living processes use it.
#[test]
fn shared_memory_that_cannot_be_opened_is_not_made_anew() {
    let testbed = Testbed::new();
    let broker = testbed.start();
    testbed.manage_data();
    let mut client = testbed.client();
    let (slot, incarnation) = client.claim();
    let (opened, stub) = client.create(&testbed.data("a")).unwrap();
    opened.slots.add_user(slot, incarnation).unwrap();
    drop(broker);
    // Acknowledged, and in shared memory only.
    opened.extent.extend_to(5000);
    let memory = testbed.cluster.state.join("run").join(format!("{}.ext", opened.file));
    let away = testbed.root().join("away");
    std::fs::rename(&memory, &away).unwrap();
    std::os::unix::fs::symlink(&memory, &memory).unwrap();
    let _broker = testbed.start();
    let again = testbed.client();
    let refused = again.open(opened.file, &stub).err().unwrap();
    assert!(matches!(&refused, Refusal::Table { what } if what.contains("shared memory")), "{refused}");
    std::fs::remove_file(&memory).unwrap();
    std::fs::rename(&away, &memory).unwrap();
    assert_eq!(again.open(opened.file, &stub).unwrap().extent.size_bytes(), 5000);
}

/// Its maker never came to say that it named the file, and others used it under that name and under another, when everything died.
#[test]
fn a_file_that_was_found_at_its_name_is_not_taken_for_unfinished() {
    let testbed = Testbed::new();
    let broker = testbed.start();
    testbed.manage_data();
    let (path, moved) = (testbed.data("a"), testbed.data("b"));
    let maker = testbed.client();
    let stub = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    maker.ask_with(Request::Create { path: path.to_str().unwrap().to_owned() }, &[stub.as_fd()]).unwrap();
    drop(stub);
    let said = Stub::parse(&std::fs::read(&path).unwrap()).unwrap().unwrap();
    let stub = File::options().read(true).write(true).open(&path).unwrap();
    let user = testbed.client();
    let opened = user.open(said.file, &stub).unwrap();
    user.place(said.file, 0, 0).unwrap();
    opened.extent.extend_to(77);
    user.ask(Request::Sync { file: said.file }).unwrap();
    std::fs::rename(&path, &moved).unwrap();
    drop(broker);
    let broker = testbed.start();
    assert_eq!(broker.cleaned(), [""; 0]);
    assert_eq!(testbed.client().open(said.file, &stub).unwrap().extent.size_bytes(), 77);
}
