//! I/O servers of OrangeFS: objects, batches, listings, and what each fault is called.
//!
//! They are the stand-in's, whose library also checks how it is called, or real ones on loopback where `ORANGEFS` names an installation (docs/orangefs.md).

#[allow(dead_code, reason = "shared with another test")]
#[path = "orangefs/servers.rs"]
mod servers;

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use servers::OrangeFs;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};
use stripewise_broker::orangefs::{OrangeServer, prepare_url};
use stripewise_layout::{FileId, Generation, ObjectOffset, RegionIndex, ServerUrl};
use stripewise_store::server::{Handle, How, Memory, ObjectName, ObjectStore, Ownership, ServerError, Transfer};

const CLUSTER: &str = "c0ffee";
const OWNER: Ownership = Ownership { mode: 0o600, uid: 0, gid: 0 };

fn object(file: u64, region: u32) -> ObjectName {
    ObjectName { file: FileId(file), region: RegionIndex(region), generation: Generation(1) }
}

fn server(orangefs: &OrangeFs, number: usize) -> OrangeServer {
    let (name, url): (String, ServerUrl) = (format!("s{number}"), orangefs.url(number).parse().unwrap());
    prepare_url(CLUSTER, &name, &url).unwrap();
    OrangeServer::open(CLUSTER, &name, &url).unwrap()
}

fn read(server: &OrangeServer, object: ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, ServerError> {
    let mut bytes = vec![0xee; length];
    let (first, second) = bytes.split_at_mut(length / 3);
    let mut buffers = [IoSliceMut::new(first), IoSliceMut::new(second)];
    let count = server.read_at(Handle::Named(object), ObjectOffset(offset), &mut buffers)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn write(server: &OrangeServer, object: ObjectName, offset: u64, bytes: &[u8]) -> Result<usize, ServerError> {
    server.write_at(Handle::Named(object), ObjectOffset(offset), &[IoSlice::new(bytes)], How::default())
}

#[test]
fn an_object_is_a_vector_of_bytes_on_the_server_that_was_named() {
    let Some(orangefs) = OrangeFs::start(3) else { return };
    let seed = RandomState::new().hash_one(0);
    eprintln!("seed {seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let (server, name) = (server(&orangefs, 1), object(7, 3));
    server.create(name, OWNER).unwrap();
    assert!(matches!(server.create(name, OWNER), Err(ServerError::Exists { object, .. }) if object == name));
    assert_eq!(server.size(name).unwrap().end_bytes, 0);
    assert!(read(&server, name, 0, 10).unwrap().is_empty());

    let mut expected: Vec<u8> = Vec::new();
    for _ in 0..60 {
        let (at, length) = (dice.random_range(0..3_000_000_usize), dice.random_range(1..1_500_000_usize));
        match dice.random_range(0..10) {
            0 => {
                server.truncate(name, at as u64).unwrap();
                expected.truncate(at);
            }
            1..6 => {
                let mut bytes = vec![0; length];
                dice.fill_bytes(&mut bytes);
                assert_eq!(write(&server, name, at as u64, &bytes).unwrap(), length);
                expected.resize(expected.len().max(at + length), 0);
                expected[at..at + length].copy_from_slice(&bytes);
            }
            _ => {
                let end = expected.len().min(at + length);
                let wanted = expected.get(at..end).unwrap_or_default();
                assert!(
                    read(&server, name, at as u64, length).unwrap() == wanted,
                    "{at}+{length} of {}",
                    expected.len()
                );
            }
        }
        assert_eq!(server.size(name).unwrap().end_bytes, expected.len() as u64);
    }
    server.sync(Handle::Named(name)).unwrap();
    assert!(read(&server, name, 0, 5_000_000).unwrap() == expected);
    let how = How { durable: true, in_place: false };
    let offset = ObjectOffset(0);
    assert_eq!(server.write_at(Handle::Named(name), offset, &[IoSlice::new(b"durable")], how).unwrap(), 7);
    // Another agent, which knows nothing of it.
    let other = OrangeServer::open(CLUSTER, "s1", &orangefs.url(1).parse().unwrap()).unwrap();
    assert_eq!(read(&other, name, 0, 7).unwrap(), b"durable");

    server.remove(name).unwrap();
    server.remove(name).unwrap();
    let is_missing = |result: Result<Vec<u8>, ServerError>| {
        assert!(matches!(&result, Err(ServerError::Missing { object, .. }) if *object == name), "{result:?}");
    };
    is_missing(read(&server, name, 0, 1));
    is_missing(read(&other, name, 0, 1));
    is_missing(write(&other, name, 0, b"late").map(|_| Vec::new()));
    is_missing(server.sync(Handle::Named(name)).map(|()| Vec::new()));
    is_missing(server.truncate(name, 0).map(|()| Vec::new()));
    is_missing(server.size(name).map(|_| Vec::new()));
}

#[test]
fn batches_are_under_way_together_and_each_transfer_has_its_own_end() {
    let Some(orangefs) = OrangeFs::start(2) else { return };
    let server = server(&orangefs, 0);
    let names: Vec<ObjectName> = (0..300).map(|region| object(1 << 60, region)).collect();
    for name in &names {
        server.create(*name, OWNER).unwrap();
    }
    let contents: Vec<Vec<u8>> = (0..names.len()).map(|at| vec![at as u8; 1000 + at * 37]).collect();
    let pieces: Vec<[IoSlice<'_>; 1]> = contents.iter().map(|content| [IoSlice::new(content)]).collect();
    let mut batch: Vec<Transfer<'_>> = (names.iter().zip(&pieces))
        .map(|(name, piece)| {
            Transfer::new(Handle::Named(*name), ObjectOffset(5), Memory::to_take(piece), How::default())
        })
        .collect();
    let missing = object(99, 0);
    batch.push(Transfer::new(Handle::Named(missing), ObjectOffset(0), Memory::to_take(&pieces[0]), How::default()));
    let mut others = 0;
    server.submit(&mut batch, &mut || others += 1);
    assert_eq!(others, 1);
    let mut results = batch.into_iter().map(|transfer| transfer.into_result("s0"));
    for content in &contents {
        assert_eq!(results.next().unwrap().unwrap(), content.len());
    }
    assert!(matches!(results.next(), Some(Err(ServerError::Missing { object, .. })) if object == missing));

    let found: BTreeSet<ObjectName> = server.objects().unwrap().into_iter().collect();
    assert_eq!(found, names.iter().copied().collect());
    for (name, content) in names.iter().zip(&contents) {
        assert_eq!(server.size(*name).unwrap().end_bytes, 5 + content.len() as u64);
        let read = read(&server, *name, 0, 20_000).unwrap();
        assert!(read[..5] == [0; 5] && read[5..] == *content);
    }
    server.remove_file(FileId(1 << 60)).unwrap();
    assert!(server.objects().unwrap().is_empty());
}

#[test]
fn descriptions_grow_and_are_replaced() {
    let Some(orangefs) = OrangeFs::start(2) else { return };
    let server = server(&orangefs, 1);
    let file = FileId(5);
    let length = server.describe(file, "head\n", "a line\n").unwrap();
    assert_eq!(server.describe(file, "head\n", "another\n").unwrap(), length + 8);
    server.sync_description(file).unwrap();
    let expected = "stripewise description 1\nhead\na line\nanother\n".to_owned();
    assert_eq!(server.descriptions().unwrap(), [(file, expected)]);
    for text in ["shorter", "longer than that was"] {
        server.describe_again(file, text).unwrap();
        assert_eq!(server.descriptions().unwrap(), [(file, text.to_owned())]);
    }
    server.sync_names(FileId(6)).unwrap();
    assert!(server.objects().unwrap().is_empty(), "a description is none");
    server.remove_file(file).unwrap();
    server.remove_file(file).unwrap();
    assert!(server.descriptions().unwrap().is_empty());
}

#[test]
fn a_server_is_what_its_marker_says_and_has_what_its_disk_has() {
    let Some(orangefs) = OrangeFs::start(3) else { return };
    let (first, second) = (server(&orangefs, 0), server(&orangefs, 1));
    assert!(first.free_bytes().unwrap() > 1 << 20);
    assert_ne!(first.standing().unwrap().file_system, second.standing().unwrap().file_system);
    first.probe().unwrap();

    let url = |number: usize| -> ServerUrl { orangefs.url(number).parse().unwrap() };
    prepare_url(CLUSTER, "s0", &url(0)).unwrap();
    let said = |result: Result<OrangeServer, ServerError>, expected: &str| {
        let text = result.err().unwrap().to_string();
        assert!(text.contains(expected), "{text}");
    };
    said(OrangeServer::open(CLUSTER, "s0", &url(1)), "its objects lie on I/O server tcp://127.0.0.1:");
    said(OrangeServer::open("another", "s0", &url(0)), "has no /stripewise-another/s0");
    let error = prepare_url(CLUSTER, "s0", &url(2)).unwrap_err().to_string();
    assert!(error.contains("its objects lie on I/O server"), "{error}");
    let nowhere = url(0).to_string().replacen("127.0.0.1", "127.0.0.9", 1).parse().unwrap();
    said(OrangeServer::open(CLUSTER, "s0", &nowhere), "has no I/O server 127.0.0.9:");
}

#[test]
fn a_server_that_is_down_is_an_error_and_goes_on_when_it_is_back() {
    let Some(mut orangefs) = OrangeFs::start(2) else { return };
    let (kept, killed) = (server(&orangefs, 0), server(&orangefs, 1));
    let name = object(3, 0);
    for server in [&kept, &killed] {
        server.create(name, OWNER).unwrap();
        assert_eq!(write(server, name, 0, b"before").unwrap(), 6);
        server.sync(Handle::Named(name)).unwrap();
    }
    orangefs.order("kill 1");
    let error = write(&killed, name, 0, b"during").unwrap_err();
    assert!(error.to_string().contains("does not answer"), "{error}");
    assert_eq!(read(&kept, name, 0, 6).unwrap(), b"before");
    orangefs.order("start 1");
    assert_eq!(read(&killed, name, 0, 6).unwrap(), b"before", "what was synced is there");
    assert_eq!(write(&killed, name, 0, b"after.").unwrap(), 6);
    assert_eq!(read(&killed, name, 0, 6).unwrap(), b"after.");
}

/// The codes of pvfs2-types.h: what a number means to those who use servers, as text of the error.
#[test]
fn each_number_of_an_error_is_reported_as_what_it_means() {
    const OWN: i32 = 1 << 30;
    const NO_ERRNO: i32 = 1 << 29;
    let Some(mut orangefs) = OrangeFs::start_stand_in(2) else { return };
    let server = server(&orangefs, 1);
    let name = object(4, 0);
    server.create(name, OWNER).unwrap();
    write(&server, name, 0, b"whole").unwrap();
    let mut fail = |number: i32| {
        orangefs.order(&format!("control 1 fail=io:{number}"));
        let error = write(&server, name, 0, b"x").unwrap_err();
        orangefs.order("control 1");
        error
    };
    let of = |code: i32| code | OWN | (code % 8) << 7;
    for code in 1..=60 {
        let error = fail(of(code));
        let text = error.to_string();
        match code {
            2 => assert!(matches!(error, ServerError::Missing { object, .. } if object == name), "{text}"),
            11 => assert!(matches!(error, ServerError::Exists { object, .. } if object == name), "{text}"),
            18 => assert!(matches!(error, ServerError::NoSpace { .. }), "{text}"),
            17 => assert!(text.contains("would become longer than its server can store"), "{text}"),
            1 | 58 => assert!(text.contains("OrangeFS denies it to the user of this process"), "{text}"),
            21 | 34 | 35 | 37 | 49 | 50 | 51 | 53 | 54 | 55 | 56 | 59 => {
                assert!(text.contains("an OrangeFS server does not answer (writing it: "), "{code}: {text}");
            }
            _ => assert!(matches!(error, ServerError::Os { action: "writing it", .. }), "{code}: {text}"),
        }
        assert!(text.contains("s1"), "{code}: an error names its server: {text}");
    }
    let own = [
        (1, "it was waited for too long"),
        (2, "OrangeFS error -1610612738"),
        (3, "`pvfs2-perror -1610612739`"),
        (4, "the name of a host leads to no address"),
        (5, "the name of a host leads to no address"),
        (6, "the name service fails"),
        (7, "the name of a host leads to no address"),
        (8, "OrangeFS error -1610612744"),
        (9, "OrangeFS does not take this user's credential"),
    ];
    for (code, expected) in own {
        let text = fail(code | OWN | NO_ERRNO).to_string();
        assert!(text.contains(expected), "{code}: {text}");
    }
    assert!(matches!(fail(libc::ENOSPC), ServerError::NoSpace { .. }), "a plain errno");
    assert_eq!(read(&server, name, 0, 9).unwrap(), b"whole", "nothing of it was written");
}

#[test]
fn each_operation_that_fails_is_named() {
    const NO_BUFFERS: i32 = 1 << 30 | 52;
    let Some(mut orangefs) = OrangeFs::start_stand_in(1) else { return };
    let server = server(&orangefs, 0);
    let (name, file, url) = (object(4, 0), FileId(4), orangefs.url(0).parse().unwrap());
    server.create(name, OWNER).unwrap();
    write(&server, name, 0, b"whole").unwrap();
    server.describe(file, "head\n", "a line\n").unwrap();
    let mut failing = |operation: &str, action: &str, run: &dyn Fn() -> Result<(), ServerError>| {
        orangefs.order(&format!("control 0 fail={operation}:{NO_BUFFERS}"));
        let text = run().unwrap_err().to_string();
        orangefs.order("control 0");
        assert!(text.contains(action) && text.contains("No buffer space available"), "{operation}: {text}");
        run().unwrap_or_else(|error| panic!("{operation} goes on: {error}"));
    };
    failing("io", "reading it", &|| read(&server, name, 0, 1).map(drop));
    failing("getattr", "asking for its length", &|| server.size(name).map(drop));
    failing("truncate", "truncating it", &|| {
        write(&server, name, 0, b"whole")?;
        server.truncate(name, 1)
    });
    failing("flush", "flushing it", &|| server.sync(Handle::Named(name)));
    failing("lookup", "looking it up", &|| server.probe());
    failing("statfs", "asking what is free", &|| server.free_bytes().map(drop));
    failing("readdir", "listing it", &|| server.objects().map(drop));
    failing("rename", "renaming it", &|| server.describe_again(file, "text"));
    failing("create", "creating an object", &|| server.create(object(4, 1), OWNER));
    failing("datafiles", "asking for its datafiles", &|| {
        // Another agent, which has not asked yet.
        OrangeServer::open(CLUSTER, "s0", &url)?.size(name).map(drop)
    });
    failing("mkdir", "making a directory", &|| server.create(object(5, 0), OWNER));
    failing("remove", "removing it", &|| server.remove(name));
}

#[test]
fn transfers_that_move_a_part_go_on_until_all_is_moved() {
    let Some(mut orangefs) = OrangeFs::start_stand_in(1) else { return };
    let server = server(&orangefs, 0);
    let name = object(6, 0);
    server.create(name, OWNER).unwrap();
    orangefs.order("control 0 short=1000");
    let content: Vec<u8> = (0..12_345_u32).map(|at| (at % 251) as u8).collect();
    assert_eq!(write(&server, name, 7, &content).unwrap(), content.len());
    let found = read(&server, name, 0, 20_000).unwrap();
    assert!(found[..7] == [0; 7] && found[7..] == content);
    orangefs.order("control 0");
    assert!(read(&server, name, 7, 20_000).unwrap() == content);
}

#[test]
fn a_full_server_refuses_what_is_longer_and_takes_what_is_not() {
    let Some(mut orangefs) = OrangeFs::start_stand_in(2) else { return };
    let server = server(&orangefs, 1);
    let name = object(8, 0);
    orangefs.order("control 1 capacity=10000");
    server.create(name, OWNER).unwrap();
    write(&server, name, 0, &[1; 6000]).unwrap();
    let free = server.free_bytes().unwrap();
    assert!(free < 4000, "{free}");
    assert!(matches!(write(&server, name, 6000, &[2; 6000]), Err(ServerError::NoSpace { .. })));
    assert_eq!(write(&server, name, 1000, &[3; 5000]).unwrap(), 5000);
    assert_eq!(server.size(name).unwrap().end_bytes, 6000);
    orangefs.order("control 1 full");
    assert!(matches!(write(&server, name, 6000, b"x"), Err(ServerError::NoSpace { .. })));
    assert_eq!(server.free_bytes().unwrap(), 0);
    orangefs.order("control 1");
    write(&server, name, 6000, b"x").unwrap();
}

#[test]
fn a_server_that_stands_still_holds_up_nothing_but_itself_until_it_is_given_up() {
    let Some(mut orangefs) = OrangeFs::start_stand_in(2) else { return };
    let (kept, still) = (server(&orangefs, 0), server(&orangefs, 1));
    let names: Vec<ObjectName> = (0..200).map(|region| object(9, region)).collect();
    for name in &names {
        still.create(*name, OWNER).unwrap();
    }
    kept.create(names[0], OWNER).unwrap();
    orangefs.order("stop 1");
    let content = [7; 3000];
    let piece = [IoSlice::new(&content)];
    std::thread::scope(|scope| {
        let piece = &piece;
        let batch = scope.spawn(move || {
            let transfer = |name: &ObjectName| {
                Transfer::new(Handle::Named(*name), ObjectOffset(0), Memory::to_take(piece), How::default())
            };
            let mut batch: Vec<Transfer<'_>> = names.iter().map(transfer).collect();
            still.submit(&mut batch, &mut || ());
            batch.into_iter().map(|transfer| transfer.into_result("s1")).collect::<Vec<_>>()
        });
        // As many as the library can keep are under way, and the rest waits its turn.
        orangefs.await_peak(128);
        assert!(!batch.is_finished());
        orangefs.order("continue 1");
        for result in batch.join().unwrap() {
            assert_eq!(result.unwrap(), 3000);
        }
    });
    let name = object(9, 0);
    orangefs.order("control 1 hung=200");
    let hung = server(&orangefs, 0);
    write(&hung, name, 0, b"others go on").unwrap();
    drop(hung);
    let again = OrangeServer::open(CLUSTER, "s1", &orangefs.url(1).parse().unwrap());
    let error = again.err().unwrap().to_string();
    assert!(error.contains("does not answer"), "{error}");
}

#[test]
fn credentials_are_renewed_before_they_expire() {
    let Some(orangefs) = OrangeFs::start_stand_in(1) else { return };
    let server = server(&orangefs, 0);
    let name = object(2, 0);
    server.create(name, OWNER).unwrap();
    let (before, begin) = (orangefs.credentials(), Instant::now());
    // The library ends this process when one is used that has expired.
    while orangefs.credentials() < before + 1 {
        write(&server, name, 0, b"again").unwrap();
        assert!(begin.elapsed() < Duration::from_secs(60), "none was renewed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn bytes_of_objects_that_lie_elsewhere_in_their_datafiles_are_refused() {
    let Some(mut orangefs) = OrangeFs::start_stand_in(1) else { return };
    orangefs.order("control 0 misplaced");
    let error = prepare_url(CLUSTER, "s0", &orangefs.url(0).parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("its DefaultDistribution lays the bytes of one datafile elsewhere"), "{error}");
    orangefs.order("control 0");
    prepare_url(CLUSTER, "s0", &orangefs.url(0).parse().unwrap()).unwrap();
}
