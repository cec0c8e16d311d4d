use super::marker::OBJECTS;
use super::*;
use crate::server::How;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use stripewise_layout::ObjectOffset;

const FILE: FileId = FileId(0xabcd);
const OWN: Ownership = Ownership { mode: 0o100640, uid: 0, gid: 0 };

fn own() -> Ownership {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    Ownership { uid, gid, ..OWN }
}

fn object(region: u32, generation: u32) -> ObjectName {
    ObjectName { file: FILE, region: RegionIndex(region), generation: Generation(generation) }
}

fn prepared() -> (tempfile::TempDir, DirectoryServer) {
    let directory = tempfile::tempdir().unwrap();
    prepare("c1", "hdd0", directory.path()).unwrap();
    let server = DirectoryServer::new("c1", "hdd0", directory.path());
    server.probe().unwrap();
    (directory, server)
}

#[test]
fn objects_hold_their_bytes_and_are_made_once() {
    let (_directory, server) = prepared();
    server.create(object(0, 1), own()).unwrap();
    assert!(matches!(server.create(object(0, 1), own()), Err(ServerError::Exists { .. })));
    let handle = server.open(object(0, 1), true).unwrap();
    let at = ObjectOffset(100);
    assert_eq!(
        server
            .write_at(handle.as_handle(), at, &[IoSlice::new(b"hello "), IoSlice::new(b"you")], How::default())
            .unwrap(),
        9
    );
    assert_eq!(server.size(object(0, 1)).unwrap().end_bytes, 109);
    server.truncate(object(0, 1), 105).unwrap();
    server.truncate(object(0, 1), 107).unwrap();
    let (mut first, mut second) = ([0; 2], [7; 9]);
    let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    assert_eq!(server.read_at(handle.as_handle(), at, &mut buffers).unwrap(), 5);
    assert_eq!((&first, &second[..4]), (b"he", &b"llo\x07"[..]));
    server.sync(handle.as_handle()).unwrap();
    server.sync_names(FILE).unwrap();
    server.create(object(7, 2), own()).unwrap();
    let mut found = server.objects().unwrap();
    found.sort_by_key(|name| name.region);
    assert_eq!(found, [object(0, 1), object(7, 2)]);
    server.remove(object(0, 1)).unwrap();
    server.remove(object(0, 1)).unwrap();
    assert!(matches!(server.open(object(0, 1), false), Err(ServerError::Missing { .. })));
    server.remove_file(FILE).unwrap();
    server.remove_file(FILE).unwrap();
    assert_eq!(server.objects().unwrap(), []);
    assert!(server.free_bytes().unwrap() > 0);
}

#[test]
fn an_object_takes_mode_and_owner_and_its_directory_cannot_be_listed() {
    let (directory, server) = prepared();
    server.create(object(3, 4), own()).unwrap();
    let file_directory = directory.path().join(OBJECTS).join(FILE.to_string());
    let metadata = std::fs::metadata(file_directory.join("3.4")).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.uid(), metadata.gid()), (0o640, own().uid, own().gid));
    for made in [directory.path().join(OBJECTS), file_directory.clone()] {
        assert_eq!(std::fs::metadata(made).unwrap().mode() & 0o7777, 0o711);
    }
    for mode in [0o000, 0o6777, 0o200] {
        server.set_ownership(object(3, 4), Ownership { mode, ..own() }).unwrap();
        assert_eq!(std::fs::metadata(file_directory.join("3.4")).unwrap().mode() & 0o7777, mode & 0o666);
    }
    if rustix::process::geteuid().is_root() {
        server.set_ownership(object(3, 4), Ownership { mode: 0o660, uid: 1234, gid: 77 }).unwrap();
        let metadata = std::fs::metadata(file_directory.join("3.4")).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.uid(), metadata.gid()), (0o660, 1234, 77));
    }
}

#[test]
fn a_directory_that_vanished_is_unusable_and_never_an_empty_server() {
    let (directory, server) = prepared();
    server.create(object(0, 1), own()).unwrap();
    std::fs::remove_dir_all(directory.path()).unwrap();
    for said in [
        server.probe().unwrap_err(),
        server.open(object(0, 1), false).unwrap_err(),
        server.create(object(0, 2), own()).unwrap_err(),
        server.remove(object(0, 1)).unwrap_err(),
        server.objects().unwrap_err(),
    ] {
        assert!(matches!(&said, ServerError::Unusable { .. }), "{said:?}");
        assert!(said.to_string().contains("not mounted or was emptied"), "{said}");
    }
    std::fs::create_dir(directory.path()).unwrap();
    assert!(matches!(server.probe(), Err(ServerError::Unusable { .. })), "an empty directory is no server");
    prepare("c1", "hdd0", directory.path()).unwrap();
    let said = server.probe().unwrap_err().to_string();
    assert!(said.contains("another directory than it was"), "{said}");
    let server = DirectoryServer::new("c1", "hdd0", directory.path());
    server.probe().unwrap();
    server.create(object(0, 2), own()).unwrap();
    assert!(matches!(server.open(object(0, 1), false), Err(ServerError::Missing { .. })));
}

#[test]
fn a_directory_of_another_server_and_one_that_is_missing_are_refused() {
    let (directory, _server) = prepared();
    prepare("c1", "hdd0", directory.path()).unwrap();
    for (cluster, name) in [("c1", "hdd1"), ("c2", "hdd0")] {
        let said = prepare(cluster, name, directory.path()).unwrap_err().to_string();
        assert!(said.contains("cluster c1, server hdd0"), "{said}");
        let probe = DirectoryServer::new(cluster, name, directory.path()).probe().unwrap_err().to_string();
        assert!(probe.contains("belongs to another server"), "{probe}");
    }
    let absent = directory.path().join("absent");
    assert!(prepare("c1", "x", &absent).unwrap_err().to_string().contains("is no directory"));
    assert!(matches!(DirectoryServer::new("c1", "x", &absent).probe(), Err(ServerError::Unusable { .. })));
    std::fs::set_permissions(directory.path().join(OBJECTS), std::fs::Permissions::from_mode(0o500)).unwrap();
    let probe = DirectoryServer::new("c1", "hdd0", directory.path()).probe();
    if !rustix::process::geteuid().is_root() {
        assert!(probe.unwrap_err().to_string().contains("not writable"));
    }
}
