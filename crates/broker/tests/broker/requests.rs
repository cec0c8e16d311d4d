use crate::cluster::{Client, REGION, STRIPE, Testbed, on_boot};
use crate::user::until;
use rustix::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use stripewise_broker::rmt::{Table, lmdb::LmdbStore};
use stripewise_layout::FileId;
use stripewise_store::protocol::{Refusal, Reply, Request};
use stripewise_store::shared::process_slot::MAX_PROCESSES;
use stripewise_store::stub::Stub;

#[test]
fn a_file_is_made_opened_placed_and_freed_with_its_last_name() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let Reply::Welcome { cluster, servers, managed, expected, min_sizes, shared } = &testbed.client().welcome else {
        panic!("no welcome")
    };
    assert_eq!((cluster.as_str(), servers.len()), ("c0ffee", 4));
    assert_eq!(servers[2].url, testbed.cluster.servers[2].url.to_string());
    assert_eq!(
        (managed.as_slice(), expected.len(), min_sizes.len()),
        (&[testbed.data("").to_str().unwrap().trim_end_matches('/').to_owned()][..], 0, 0)
    );
    assert!(!shared);
    let path = testbed.data("a");
    let (opened, stub) = client.create(&path).unwrap();
    let said = Stub::parse(&std::fs::read(&path).unwrap()).unwrap().unwrap();
    assert_eq!((said.file, said.cluster.as_str()), (opened.file, "c0ffee"));
    assert_eq!(opened.generation(0), None);
    client.place(opened.file, 0, 2).unwrap();
    let generations: Vec<_> = (0..4).map(|region| opened.generation(region)).collect();
    assert_eq!(generations, [Some(1), Some(2), Some(3), None]);
    for on_server in testbed.objects(opened.file) {
        assert_eq!(on_server, [(0, 1, 0), (1, 2, 0), (2, 3, 0)]);
    }
    let again = testbed.client();
    let reading = again.open(opened.file, std::fs::File::open(&path).unwrap()).unwrap();
    assert!(!reading.writable && !reading.extent.is_writable());
    assert_eq!(reading.generation(2), Some(3));
    assert_eq!(again.place(opened.file, 5, 5), Err(Refusal::NotPermitted));
    assert_eq!(
        again.ask(Request::Truncate { file: opened.file, size_bytes: 0, number: 0 }),
        Err(Refusal::NotPermitted)
    );
    again.ask(Request::Close { file: opened.file }).unwrap();
    client.remove(&path, opened.file, &stub).unwrap();
    assert_eq!(testbed.object_count(opened.file), 12, "still open here");
    let held = stripewise_store::nameless::hold(&stub).unwrap();
    drop((stub, reading));
    client.ask(Request::Close { file: opened.file }).unwrap();
    until("the file is freed", || testbed.object_count(opened.file) == 0);
    until("its record goes", || {
        let stub = std::fs::File::open(format!("/proc/self/fd/{}", held.as_raw_fd())).unwrap();
        client.open(opened.file, &stub).err() == Some(Refusal::UnknownFile { file: opened.file })
    });
}

#[test]
fn a_process_slot_that_no_table_has_is_refused() {
    // The broker looked it up behind the end of the table of processes.
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    for slot in [MAX_PROCESSES, u16::MAX] {
        let refused = client.ask(Request::Claimed { slot, incarnation: 0 });
        assert!(matches!(refused, Err(Refusal::Invalid { .. })), "{slot}: {refused:?}");
    }
    let (opened, _stub) = client.create(&testbed.data("a")).unwrap();
    assert_eq!(client.ask(Request::Truncate { file: opened.file, size_bytes: 9, number: 0 }), Ok(Reply::Done));
}

#[test]
fn a_stub_is_found_by_its_descriptor_alone() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let path = testbed.data("a");
    let (opened, stub) = client.create(&path).unwrap();
    let found = |descriptor: &dyn AsFd| match client.ask_with(Request::Find, &[descriptor.as_fd()]).unwrap().0 {
        Reply::Found { file, status } => (file, status.map(|status| status.size_bytes)),
        reply => panic!("{reply:?}"),
    };
    client.ask(Request::Truncate { file: opened.file, size_bytes: 77, number: 0 }).unwrap();
    assert_eq!(found(&stub), (Some(opened.file), Some(77)));
    let only_path = rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    assert_eq!(found(&only_path), (Some(opened.file), Some(77)));
    let ordinary = testbed.root().join("of-a-stubs-size");
    std::fs::write(&ordinary, [b'x'; stripewise_store::stub::STUB_BYTES]).unwrap();
    assert_eq!(found(&std::fs::File::open(&ordinary).unwrap()), (None, None));
    assert_eq!(found(&std::fs::File::open(testbed.root()).unwrap()), (None, None));
    // A copy says which file it is a copy of; opening it is refused as ever.
    let copy = testbed.data("copy");
    std::fs::copy(&path, &copy).unwrap();
    let copy = std::fs::File::open(&copy).unwrap();
    assert_eq!(found(&copy), (Some(opened.file), None));
    assert!(matches!(client.open(opened.file, &copy), Err(Refusal::CopiedStub { .. })));
}

#[test]
fn objects_take_over_mode_and_owner_and_follow_changes() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let path = testbed.data("a");
    let stub = std::fs::File::create_new(&path).unwrap();
    stub.set_permissions(std::fs::Permissions::from_mode(0o750)).unwrap();
    let (reply, _) = client.ask_with(Request::Create { path: path.to_str().unwrap().into() }, &[stub.as_fd()]).unwrap();
    let Reply::Opened { file, .. } = reply else { panic!("{reply:?}") };
    client.ask(Request::Linked { file }).unwrap();
    client.place(file, 0, 0).unwrap();
    let object = testbed.server_directory(1).join(format!("stripewise-objects/{file}/0.1"));
    let mode = || std::fs::metadata(&object).unwrap().mode() & 0o7777;
    assert_eq!(mode(), 0o640);
    stub.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
    client.ask_with(Request::Attributes { file }, &[stub.as_fd()]).unwrap();
    assert_eq!(mode(), 0o600);
    stub.set_permissions(std::fs::Permissions::from_mode(0o444)).unwrap();
    client.open(file, &stub).unwrap();
    assert_eq!(mode(), 0o444, "compared at every open");
    client.ask(Request::Truncate { file, size_bytes: 3 * u64::from(STRIPE), number: 0 }).unwrap();
    std::fs::set_permissions(&object, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&object, vec![7; STRIPE as usize]).unwrap();
    std::fs::set_permissions(&object, std::fs::Permissions::from_mode(0o444)).unwrap();
    client.ask(Request::Truncate { file, size_bytes: u64::from(STRIPE) + 5, number: 0 }).unwrap();
    assert_eq!((mode(), std::fs::metadata(&object).unwrap().len()), (0o444, 5));
}

#[test]
fn truncation_cuts_objects_and_frees_whole_regions() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let (opened, _stub) = client.create(&testbed.data("a")).unwrap();
    client.place(opened.file, 0, 3).unwrap();
    for server in 0..4 {
        let directory = testbed.server_directory(server).join(format!("stripewise-objects/{}", opened.file));
        for (region, generation) in [(0, 1), (1, 2), (2, 3), (3, 4)] {
            std::fs::write(directory.join(format!("{region}.{generation}")), vec![1; REGION as usize / 4]).unwrap();
        }
    }
    opened.extent.extend_to(4 * REGION);
    // One cycle (4 stripes) and a half stripe of the next in region 1.
    let size_bytes = REGION + 4 * u64::from(STRIPE) + u64::from(STRIPE) / 2;
    client.ask(Request::Truncate { file: opened.file, size_bytes, number: 0 }).unwrap();
    assert_eq!(opened.extent.size_bytes(), size_bytes);
    let full = REGION / 4;
    let stripe = u64::from(STRIPE);
    assert_eq!(
        testbed.objects(opened.file),
        [
            vec![(0, 1, full), (1, 2, stripe + stripe / 2)],
            vec![(0, 1, full), (1, 2, stripe)],
            vec![(0, 1, full), (1, 2, stripe)],
            vec![(0, 1, full), (1, 2, stripe)],
        ]
    );
    assert_eq!((opened.generation(1), opened.generation(2)), (Some(2), None));
    assert!(!opened.control.gate().is_shut());
    client.ask(Request::Truncate { file: opened.file, size_bytes: 9 * REGION, number: 0 }).unwrap();
    assert_eq!(opened.extent.size_bytes(), 9 * REGION);
    client.place(opened.file, 2, 2).unwrap();
    assert_eq!(opened.generation(2), Some(5), "a generation is never used again");
    let too_large = client.ask(Request::Truncate { file: opened.file, size_bytes: u64::MAX, number: 0 });
    assert!(matches!(too_large, Err(Refusal::TooLarge { .. })), "{too_large:?}");
}

#[test]
fn descriptors_prove_and_nothing_else_does() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let path = testbed.data("a");
    let (opened, stub) = client.create(&path).unwrap();
    let copy = testbed.data("copy");
    std::fs::copy(&path, &copy).unwrap();
    let refused = client.open(opened.file, std::fs::File::open(&copy).unwrap()).err().unwrap();
    assert_eq!(refused, Refusal::CopiedStub { file: opened.file, path: copy.to_str().unwrap().into() });
    let flags = rustix::fs::OFlags::PATH;
    let only_path = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
    assert_eq!(client.open(opened.file, &only_path).err(), Some(Refusal::NotPermitted));
    assert_eq!(client.open(FileId(5), &stub).err(), Some(Refusal::UnknownFile { file: FileId(5) }));
    let renamed = testbed.data("renamed");
    std::fs::rename(&path, &renamed).unwrap();
    client.open(opened.file, std::fs::File::open(&renamed).unwrap()).unwrap();
    let other = testbed.client();
    assert_eq!(other.place(opened.file, 0, 0), Err(Refusal::NotPermitted), "not opened on this connection");
    let unmanaged = testbed.root().join("b");
    let stub = std::fs::File::create_new(&unmanaged).unwrap();
    let refused =
        client.ask_with(Request::Create { path: unmanaged.to_str().unwrap().into() }, &[stub.as_fd()]).unwrap_err();
    assert!(matches!(refused, Refusal::NotManaged { .. }), "{refused:?}");
}

#[test]
fn what_clients_left_at_their_end_is_freed_before_the_broker_stops() {
    let testbed = Testbed::new();
    let mut files = Vec::new();
    // The broker may be quicker than its end; often enough it is not.
    for round in 0..20 {
        let broker = testbed.start();
        assert_eq!(broker.cleaned(), [""; 0], "round {round}");
        testbed.manage_data();
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let mut client = testbed.client();
                let (slot, incarnation) = client.claim();
                let path = testbed.data(&number.to_string());
                let (opened, stub) = client.create(&path).unwrap();
                opened.slots.add_user(slot, incarnation).unwrap();
                client.place(opened.file, 0, 0).unwrap();
                client.remove(&path, opened.file, &stub).unwrap();
                assert!(testbed.object_count(opened.file) > 0, "still open");
                files.push(opened.file);
                client
            })
            .collect();
        drop(clients);
        broker.stop();
    }
    assert!(files.into_iter().all(|file| testbed.object_count(file) == 0));
}

/// Sizes were found by looking at objects, so without a server they were the stub's.
#[test]
fn the_size_is_known_without_any_server_before_and_after_a_reboot() {
    let testbed = Testbed::new();
    let broker = testbed.start_with(on_boot(1));
    testbed.manage_data();
    let client = testbed.client();
    let (opened, stub) = client.create(&testbed.data("a")).unwrap();
    client.place(opened.file, 0, 1).unwrap();
    opened.extent.extend_to(100_000);
    client.ask(Request::Sync { file: opened.file }).unwrap();
    opened.extent.extend_to(110_000);
    let away = testbed.root().join("away");
    std::fs::create_dir(&away).unwrap();
    for server in 0..4 {
        std::fs::rename(testbed.server_directory(server), away.join(server.to_string())).unwrap();
    }
    let found = |client: &Client| match client.ask_with(Request::Find, &[stub.as_fd()]).unwrap().0 {
        Reply::Found { status: Some(status), .. } => (status.size_bytes, status.blocks_512),
        reply => panic!("{reply:?}"),
    };
    assert_eq!(found(&client), (110_000, 215), "open");
    let run = testbed.cluster.state.join("run");
    let memory = |kind: &str| run.join(format!("{}.{kind}", opened.file));
    let saved = ["ctl", "ext"].map(|kind| (kind, std::fs::read(memory(kind)).unwrap()));
    drop((client, broker));
    // The successor has not loaded the file.
    let broker = testbed.start_with(on_boot(1));
    let client = testbed.client();
    assert_eq!(found(&client), (110_000, 215), "not loaded");
    // Nobody used it at the stop, so its record says everything.
    assert!(!memory("ctl").exists() && !memory("ext").exists());
    // Otherwise what was acknowledged is in memory of this boot alone: where that cannot be read, the durable size may be too old.
    std::fs::write(memory("ctl"), &saved[0].1).unwrap();
    std::fs::write(memory("ext"), b"short").unwrap();
    assert!(matches!(client.ask_with(Request::Find, &[stub.as_fd()]), Err(Refusal::Table { .. })));
    for (kind, bytes) in saved {
        std::fs::write(memory(kind), bytes).unwrap();
    }
    drop((client, broker));
    let _broker = testbed.start_with(on_boot(2));
    assert_eq!(found(&testbed.client()), (110_000, 215), "the broker's orderly end made it durable");
}

/// The size in the table that a power failure leaves: what waits for the next durable transaction is lost.
fn durable_size_bytes(testbed: &Testbed, file: FileId) -> Option<u64> {
    let copy = testbed.root().join("copy");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(testbed.cluster.state.join("rmt/data.mdb"), copy.join("data.mdb")).unwrap();
    let table = Table::new(Box::new(LmdbStore::open(&copy).unwrap())).unwrap();
    let record = table.all_files().unwrap().into_iter().find(|(found, _)| *found == file);
    drop(table);
    std::fs::remove_dir_all(&copy).unwrap();
    record.map(|(_, record)| record.size_bytes)
}

#[test]
fn a_sync_of_all_files_makes_the_sizes_durable_that_any_program_wrote() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let writer = testbed.client();
    let written = ["open", "closed"].map(|name| {
        let (opened, stub) = writer.create(&testbed.data(name)).unwrap();
        writer.place(opened.file, 0, 0).unwrap();
        opened.extent.extend_to(1000);
        (opened, stub)
    });
    writer.ask(Request::Close { file: written[1].0.file }).unwrap();
    let sizes = || written.each_ref().map(|(opened, _)| durable_size_bytes(&testbed, opened.file).unwrap_or(0));
    // That of the other is written now and then.
    assert_eq!(sizes()[0], 0);
    testbed.client().ask(Request::SyncAll).unwrap();
    assert_eq!(sizes(), [1000, 1000]);
    written[0].0.extent.extend_to(1500);
    testbed.client().ask(Request::SyncAll).unwrap();
    assert_eq!(sizes(), [1500, 1000]);
}
