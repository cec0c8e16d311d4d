//! I/O servers of a real OrangeFS on loopback: objects, batches, listings, and what each fault is called.
//!
//! Skipped, and said so, where no OrangeFS can be had (docs/orangefs.md).

#[allow(dead_code, reason = "shared with another test")]
#[path = "orangefs/servers.rs"]
mod servers;

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use servers::OrangeFs;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{IoSlice, IoSliceMut};
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
