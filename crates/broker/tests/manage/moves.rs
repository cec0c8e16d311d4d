use crate::cluster::{REGION, STRIPE, Testbed};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_layout::{ByteCount, FileOffset};
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::manage::{ManageError, Moving, apply, examine, release};
use stripewise_store::protocol::{Admin, Reply, Request};
use stripewise_store::stub::{STUB_BYTES, Stub};

pub fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251 * 13 + 1) as u8).collect()
}

pub fn connect(testbed: &Testbed) -> Client {
    Client::connect(&testbed.cluster.state, ClientOptions::default()).unwrap()
}

/// What a redirected program would read.
pub fn managed_bytes(client: &Client, path: &Path) -> Vec<u8> {
    let stub = File::open(path).unwrap();
    let text = std::fs::read(path).unwrap();
    let said = Stub::parse(&text).unwrap().expect("a stub");
    let striped = client.open(stub.as_fd(), said.file).unwrap();
    let mut bytes = vec![0; striped.size_bytes() as usize];
    let read = striped.read_at(FileOffset(0), &mut [IoSliceMut::new(&mut bytes)]).unwrap();
    assert_eq!(read, bytes.len());
    bytes
}

fn names(testbed: &Testbed) -> Vec<String> {
    let entries = std::fs::read_dir(testbed.root().join("data")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_goes_in_and_comes_out_as_it_was() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    let client = connect(&testbed);
    let path = testbed.data("a file");
    let bytes = pattern(3 * REGION as usize + 12_345);
    std::fs::write(&path, &bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    let has_attributes = rustix::fs::setxattr(&path, "user.note", b"kept", flags).is_ok();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    assert_eq!(examine(&path).unwrap(), bytes.len() as u64);
    let moved = apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap();
    assert_eq!(
        (moved.size_bytes, moved.copied_bytes, moved.note.clone()),
        (bytes.len() as u64, bytes.len() as u64, None)
    );
    let stub = std::fs::metadata(&path).unwrap();
    assert_eq!(stub.len(), STUB_BYTES as u64);
    assert_eq!(managed_bytes(&client, &path), bytes);
    assert!(matches!(
        apply(&client, &path, &testbed.placement(), &Moving::default()),
        Err(ManageError::AlreadyManaged { file, .. }) if file == moved.file
    ));
    let same = |metadata: std::fs::Metadata| {
        assert_eq!((metadata.mode() & 0o7777, metadata.modified().unwrap()), (0o640, time));
        if has_attributes {
            let mut value = [0; 16];
            assert_eq!(rustix::fs::getxattr(&path, "user.note", &mut value[..]), Ok(4));
        }
    };
    same(stub);
    let out = release(&client, &path, &Moving::default()).unwrap();
    assert_eq!((out.file, out.size_bytes, out.note.clone()), (moved.file, bytes.len() as u64, None));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    same(std::fs::metadata(&path).unwrap());
    assert_eq!(names(&testbed), ["a file"]);
    assert_eq!(testbed.object_count(moved.file), 0);
    assert!(matches!(release(&client, &path, &Moving::default()), Err(ManageError::NotManaged { .. })));
}

#[test]
fn holes_are_neither_copied_nor_placed() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    let client = connect(&testbed);
    let path = testbed.data("sparse");
    let file = File::create(&path).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"middle", 5 * REGION).unwrap();
    file.set_len(9 * REGION + 1).unwrap();
    drop(file);
    let original = std::fs::read(&path).unwrap();
    let is_sparse = std::fs::metadata(&path).unwrap().blocks() * 512 < 9 * REGION;
    let moved = apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap();
    if is_sparse {
        assert!(moved.copied_bytes <= 2 * REGION, "{moved:?}");
        assert_eq!(testbed.objects(moved.file)[0].iter().map(|(region, ..)| *region).collect::<Vec<_>>(), [0, 5]);
    }
    assert_eq!(managed_bytes(&client, &path), original);
    release(&client, &path, &Moving::default()).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), original);
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < 9 * REGION || !is_sparse);
}

/// Objects of all stripes were made, four for a file of 100 bytes.
#[test]
fn a_file_that_is_brought_in_has_objects_for_its_data_alone() {
    let testbed = Testbed::new();
    let broker = testbed.start();
    let client = connect(&testbed);
    let objects = |bytes: &[u8]| {
        let path = testbed.data("small");
        std::fs::write(&path, bytes).unwrap();
        let moved = apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap();
        assert_eq!(managed_bytes(&client, &path), bytes);
        let count = testbed.object_count(moved.file);
        release(&client, &path, &Moving::default()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        std::fs::remove_file(&path).unwrap();
        count
    };
    let stripe = pattern(STRIPE as usize + 1);
    assert_eq!((objects(b""), objects(&stripe[..100])), (0, 1));
    // The kernel tells of data in whole pages.
    assert_eq!((objects(&stripe[..STRIPE as usize]), objects(&stripe)), (1, 4));

    // All servers of the layout have to be there all the same, since more may be written.
    let path = testbed.data("small");
    std::fs::write(&path, &stripe[..100]).unwrap();
    let away = testbed.root().join("away");
    std::fs::rename(testbed.server_directory(3), &away).unwrap();
    let error = apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap_err().to_string();
    assert!(error.contains("ssd1"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), stripe[..100]);
    std::fs::rename(&away, testbed.server_directory(3)).unwrap();

    // Another broker takes it over as it is, and gives it the others when they are needed.
    let moved = apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap();
    drop((client, broker));
    let _broker = testbed.start();
    let client = connect(&testbed);
    assert_eq!((managed_bytes(&client, &path), testbed.object_count(moved.file)), (stripe[..100].to_vec(), 1));
    let stub = File::options().read(true).write(true).open(&path).unwrap();
    let striped = client.open(stub.as_fd(), moved.file).unwrap();
    striped.write_at(FileOffset(100), &[IoSlice::new(&stripe[100..])]).unwrap();
    assert_eq!((managed_bytes(&client, &path), testbed.object_count(moved.file)), (stripe.clone(), 4));
    striped.close().unwrap();
    let Reply::Findings { findings } = client.request(&Request::Admin(Admin::Check { repair: false }), &[]).unwrap().0
    else {
        panic!("findings")
    };
    assert_eq!(findings, []);
}

#[test]
fn what_cannot_be_managed_is_refused_by_name_and_left_alone() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    let client = connect(&testbed);
    let path = testbed.data("f");
    std::fs::write(&path, b"bytes").unwrap();
    let refused = |expected: &str| {
        let error = apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("data/f"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"bytes");
    };
    std::fs::hard_link(&path, testbed.data("g")).unwrap();
    refused("has 2 names");
    std::fs::remove_file(testbed.data("g")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
    refused("set-user-id");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = File::options().append(true).open(&path).unwrap();
    refused("is open elsewhere");
    drop(open);
    let directory = testbed.root().join("data");
    let error = apply(&client, &directory, &testbed.placement(), &Moving::default()).unwrap_err();
    assert!(matches!(error, ManageError::NotRegular { what: "a directory", .. }));
    let error = apply(&client, &testbed.data("absent"), &testbed.placement(), &Moving::default()).unwrap_err();
    assert!(error.to_string().contains("absent"));
    assert_eq!(names(&testbed), ["f"]);
    apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap();
}

#[test]
fn another_process_that_has_the_file_open_is_named() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    let client = connect(&testbed);
    let path = testbed.data("f");
    std::fs::write(&path, b"bytes").unwrap();
    let mut reader = std::process::Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .stdout(File::options().append(true).open(&path).unwrap())
        .spawn()
        .unwrap();
    let error = apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", reader.id())), "{error}");
    drop(reader.stdin.take());
    reader.wait().unwrap();
    apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap();
}

#[test]
fn somebody_who_opens_the_original_meanwhile_wins() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    let client = connect(&testbed);
    let path = testbed.data("f");
    let bytes = pattern(2 * REGION as usize);
    for at in ["apply: placed", "apply: verified", "apply: complete", "apply: exchanged"] {
        std::fs::write(&path, &bytes).unwrap();
        let steps = |step: &'static str| {
            if step == at {
                // Does not wait for the lease; by the original's inode, wherever that stands now.
                let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
                for name in names(&testbed) {
                    if std::fs::metadata(testbed.data(&name)).unwrap().len() == bytes.len() as u64 {
                        let _ = rustix::fs::open(testbed.data(&name), flags, rustix::fs::Mode::empty());
                    }
                }
            }
        };
        let moving = Moving { steps: Some(&steps), ..Moving::default() };
        let error = apply(&client, &path, &testbed.placement(), &moving).unwrap_err();
        assert!(matches!(error, ManageError::Disturbed { .. }), "{at}: {error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{at}");
        assert_eq!(names(&testbed), ["f"], "{at}");
    }
    apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap();
    assert_eq!(managed_bytes(&client, &path), bytes);
}

#[test]
fn a_cancelled_move_changes_nothing_in_either_direction() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    let client = connect(&testbed);
    let path = testbed.data("f");
    let bytes = pattern(2 * REGION as usize);
    std::fs::write(&path, &bytes).unwrap();
    let cancelled = AtomicBool::new(false);
    let stop = |_: &'static str| cancelled.store(true, Ordering::Relaxed);
    let moving = Moving { cancelled: Some(&cancelled), steps: Some(&stop), ..Moving::default() };
    assert!(matches!(apply(&client, &path, &testbed.placement(), &moving), Err(ManageError::Cancelled { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let moved = apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap();
    cancelled.store(false, Ordering::Relaxed);
    assert!(matches!(release(&client, &path, &moving), Err(ManageError::Cancelled { .. })));
    assert_eq!(managed_bytes(&client, &path), bytes);
    assert_eq!(names(&testbed), ["f"]);
    assert!(testbed.object_count(moved.file) > 0);
    release(&client, &path, &Moving::default()).unwrap();
}

#[test]
fn a_file_that_does_not_fit_is_refused_before_anything_is_copied() {
    let mut testbed = Testbed::new();
    for server in &mut testbed.cluster.servers {
        server.capacity = Some(ByteCount(REGION));
    }
    let _broker = testbed.start();
    let client = connect(&testbed);
    let path = testbed.data("large");
    let mut file = File::create(&path).unwrap();
    for _ in 0..9 {
        file.write_all(&pattern(REGION as usize)).unwrap();
    }
    drop(file);
    let copied = |step: &'static str| assert_ne!(step, "apply: placed");
    let moving = Moving { steps: Some(&copied), ..Moving::default() };
    let error = apply(&client, &path, &testbed.placement(), &moving).unwrap_err().to_string();
    assert!(error.contains("no space"), "{error}");
    assert_eq!(names(&testbed), ["large"]);
    for server in 0..4 {
        let objects = testbed.server_directory(server).join("stripewise-objects");
        assert_eq!(std::fs::read_dir(objects).unwrap().count(), 0);
    }
}

#[test]
fn a_file_in_use_is_not_released() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    let client = connect(&testbed);
    let path = testbed.data("f");
    std::fs::write(&path, b"bytes").unwrap();
    let moved = apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap();
    let user = testbed.client();
    user.open(moved.file, File::open(&path).unwrap()).unwrap();
    assert!(matches!(release(&client, &path, &Moving::default()), Err(ManageError::OpenElsewhere { .. })));
    drop(user);
    // The broker sees the end of the connection in its own time; a new connection's answer comes after.
    while release(&client, &path, &Moving::default()).is_err() {
        std::thread::yield_now();
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"bytes");
}

/// An editor that saves by a rename, at the last moment: its file is neither overwritten nor removed.
#[test]
fn a_file_put_at_the_path_meanwhile_stays_there() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    let client = connect(&testbed);
    let path = testbed.data("f");
    let save = |text: &str| {
        std::fs::write(testbed.data("saved"), text).unwrap();
        std::fs::rename(testbed.data("saved"), &path).unwrap();
    };
    std::fs::write(&path, b"first").unwrap();
    let steps = |step: &'static str| {
        if step.ends_with("before the exchange") {
            save("second");
        }
    };
    let moving = Moving { steps: Some(&steps), ..Moving::default() };
    let error = apply(&client, &path, &testbed.placement(), &moving).unwrap_err();
    assert!(matches!(error, ManageError::Disturbed { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"second");
    apply(&client, &path, &testbed.placement(), &Moving::default()).unwrap();
    let error = release(&client, &path, &moving).unwrap_err();
    assert!(matches!(error, ManageError::Disturbed { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"second");
    assert_eq!(names(&testbed), ["f"]);
}
