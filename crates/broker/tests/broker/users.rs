//! Several users of one host. Needs root, to be others for a while; nothing is tested otherwise.

use crate::cluster::{Client, Testbed};
use crate::names::begin_rename;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{Gid, Uid, set_thread_gid, set_thread_groups, set_thread_uid};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use stripewise_layout::RegionIndex;
use stripewise_store::protocol::{Admin, Refusal, Reply, Request};
use stripewise_store::state::{StateDirectory, StateError, connect};

/// Runs `action` as user and group `user`, in a thread of its own: the kernel keeps users by thread.
fn as_user<T: Send>(user: u32, action: impl FnOnce() -> T + Send) -> T {
    let change = || {
        set_thread_groups(&[]).unwrap();
        set_thread_gid(Gid::from_raw(user)).unwrap();
        set_thread_uid(Uid::from_raw(user)).unwrap();
        action()
    };
    std::thread::scope(|scope| scope.spawn(change).join().unwrap())
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// As anybody has it who may pass through its directory.
fn stub_of(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap()
}

const OWNER: u32 = 12_345;
const OTHER: u32 = 54_321;

#[test]
fn other_users_connect_only_where_that_is_allowed_and_get_what_their_descriptors_permit() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let testbed = Testbed::new();
    set_mode(testbed.root(), 0o755);
    for server in 0..4 {
        set_mode(testbed.server_directory(server), 0o755);
    }
    set_mode(&testbed.root().join("data"), 0o777);
    {
        let _private = testbed.start();
        testbed.manage_data();
        let refused = as_user(OTHER, || connect(&testbed.cluster.state)).unwrap_err();
        assert!(matches!(refused, StateError::Os { source: rustix::io::Errno::ACCESS, .. }), "{refused}");
    }
    StateDirectory::open(&testbed.cluster.state).unwrap().open_to_others().unwrap();
    let _broker = testbed.start();
    let path = testbed.data("theirs");
    let object = as_user(OWNER, || {
        let client = testbed.client();
        assert_eq!(client.ask(Request::Admin(Admin::Usage)), Err(Refusal::NotPermitted));
        let (opened, stub) = client.create(&path).unwrap();
        stub.set_permissions(std::fs::Permissions::from_mode(0o640)).unwrap();
        client.place(opened.file, 0, 0).unwrap();
        client.open(opened.file, &stub).unwrap();
        testbed.server_directory(1).join(format!("stripewise-objects/{}/0.1", opened.file))
    });
    let found = std::fs::metadata(&object).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (OWNER, OWNER, 0o640));
    let opens = |flags| rustix::fs::open(&object, flags, Mode::empty()).map(|_| ());
    assert_eq!(as_user(OWNER, || opens(OFlags::RDWR)), Ok(()));
    assert_eq!(as_user(OTHER, || opens(OFlags::RDONLY)), Err(rustix::io::Errno::ACCESS));
    let listed =
        as_user(OTHER, || std::fs::read_dir(testbed.server_directory(1).join("stripewise-objects")).map(|_| ()));
    assert!(listed.is_err(), "objects of others cannot even be listed");
    // Only the file's owner and group see its memory; a reader's is read-only where sizes are kept.
    let file = object.parent().unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap();
    let reader = rustix::fs::open(&path, OFlags::RDONLY, Mode::empty()).unwrap();
    as_user(OTHER, || {
        let client = testbed.client();
        let not_open = client.ask(Request::Place { file, first: RegionIndex(0), last: RegionIndex(0) });
        assert_eq!(not_open, Err(Refusal::NotPermitted));
        // Handed a descriptor by somebody who may: that is permission, to read.
        let opened = client.open(file, &reader).unwrap();
        assert!(!opened.writable);
        let generation = stripewise_layout::Generation(1);
        let request = Request::OpenObject { file, region: RegionIndex(0), generation, server: 1 };
        let (reply, along) = client.ask_with(request, &[]).unwrap();
        assert_eq!(reply, Reply::Object);
        assert_eq!(rustix::fs::fcntl_getfl(&along[0]).unwrap() & OFlags::RWMODE, OFlags::RDONLY);
    });
    assert_eq!(std::fs::metadata(&object).unwrap().mode() & 0o777, 0o640);
}

/// A descriptor of a directory, and of any stub in it, is had by passing through: notes of others froze names, moved records into directories of
/// theirs, and had data freed of which a plain `rm` had taken the stub.
#[test]
fn nobody_notes_a_change_of_names_that_he_may_not_change() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can be another user for a while; run this test as root");
        return;
    }
    let testbed = Testbed::new();
    set_mode(testbed.root(), 0o755);
    for server in 0..4 {
        set_mode(testbed.server_directory(server), 0o755);
    }
    StateDirectory::open(&testbed.cluster.state).unwrap().open_to_others().unwrap();
    let _broker = testbed.start();
    testbed.manage_data();
    let (closed, sticky, theirs) = (testbed.data("closed"), testbed.data("sticky"), testbed.data("theirs"));
    for (directory, mode) in [(testbed.data(""), 0o755), (closed.clone(), 0o755), (sticky.clone(), 0o1777)] {
        std::fs::create_dir_all(&directory).unwrap();
        set_mode(&directory, mode);
    }
    std::fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
    let owner = testbed.client();
    let create = |client: &Client, path: &Path| {
        let (opened, stub) = client.create(path).unwrap();
        client.place(opened.file, 0, 0).unwrap();
        client.ask(Request::Close { file: opened.file }).unwrap();
        drop(stub);
        opened.file
    };
    let (in_closed, in_sticky) = (closed.join("f"), sticky.join("f"));
    let (file, of_sticky) = (create(&owner, &in_closed), create(&owner, &in_sticky));
    let finds = |client: &Client| match client.ask(Request::Admin(Admin::Check { repair: true })).unwrap() {
        Reply::Findings { findings } => findings,
        other => panic!("{other:?}"),
    };
    let client = as_user(OTHER, || testbed.client());
    as_user(OTHER, || {
        let own = theirs.join("own");
        let owned = create(&client, &own);
        let denied = Err(Refusal::NotPermitted);
        let removal = |path: &Path, file| client.begin_removal(path, file, stub_of(path)).map(drop);
        assert_eq!(removal(&in_closed, file), denied);
        assert_eq!(removal(&in_sticky, of_sticky), denied);
        let rename = |from: (&Path, _), to: (&Path, _)| begin_rename(&client, from, to).map(drop);
        assert_eq!(rename((&in_closed, Some(file)), (&theirs.join("mine"), None)), denied);
        assert_eq!(rename((&in_sticky, Some(of_sticky)), (&theirs.join("mine"), None)), denied);
        assert_eq!(rename((&own, Some(owned)), (&in_closed, Some(file))), denied);
        assert_eq!(rename((&own, Some(owned)), (&in_sticky, Some(of_sticky))), denied);
        assert_eq!(rename((&own, Some(owned)), (&closed.join("new"), None)), denied);
        // What the kernel lets them do, they note: a new name in the sticky directory, and their own file there.
        let to = sticky.join("own");
        let number = begin_rename(&client, (&own, Some(owned)), (&to, None)).unwrap();
        std::fs::rename(&own, &to).unwrap();
        client.end_name_change(number, true).unwrap();
        client.remove(&to, owned, stub_of(&to)).unwrap();
        assert_eq!(testbed.object_count(owned), 0);
    });
    assert_eq!(finds(&owner), []);
    // With the other still connected: nobody's word frees what `rm` took away.
    std::fs::remove_file(&in_closed).unwrap();
    drop(client);
    assert!(finds(&owner).iter().all(|finding| finding.repaired && finding.remedy.contains("is restored")));
    assert!(testbed.object_count(file) > 0 && in_closed.exists());
}

/// What a client does with its own descriptors is its own affair: what it gets must not permit more than it showed.
#[test]
fn descriptors_given_out_permit_no_more_than_the_one_shown() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let path = testbed.data("shared");
    let (opened, _stub) = testbed.client().create(&path).unwrap();
    for (flags, memory) in
        [(OFlags::RDONLY, OFlags::RDONLY), (OFlags::WRONLY, OFlags::RDWR), (OFlags::RDWR, OFlags::RDWR)]
    {
        let client = testbed.client();
        let stub = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
        let (_, along) = client.ask_with(Request::Open { file: opened.file }, &[stub.as_fd()]).unwrap();
        if flags != OFlags::RDONLY {
            client.place(opened.file, 0, 0).unwrap();
        }
        let access = |descriptor: &OwnedFd| rustix::fs::fcntl_getfl(descriptor).unwrap() & OFlags::RWMODE;
        let (layouts, extent) = (access(&along[0]), access(&along[1]));
        assert_eq!((layouts, extent), (OFlags::RDONLY, memory), "layouts are the broker's to write");
        if flags != OFlags::RDONLY {
            let generation = stripewise_layout::Generation(1);
            let request = Request::OpenObject { file: opened.file, region: RegionIndex(0), generation, server: 1 };
            let (_, object) = client.ask_with(request, &[]).unwrap();
            assert_eq!(access(&object[0]), flags);
        }
    }
}
