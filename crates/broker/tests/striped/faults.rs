//! Servers, brokers and writers that fail.

use crate::hooked::{Call, Hook, wrap};
use crate::watched::{unlimited, watched};
use crate::world::{World, open_stub, read, succeed, uniform, wait_for_line, write};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use stripewise_broker::BrokerOptions;
use stripewise_layout::{FileOffset, RegionIndex, ServerId};
use stripewise_store::client::ClientOptions;
use stripewise_store::errno::ToErrno;
use stripewise_store::file::{FileError, StripedFile};
use stripewise_store::server::ServerError;
use stripewise_store::state::HostIdentity;

fn try_read(file: &StripedFile, at: u64, length: usize) -> Result<usize, FileError> {
    let mut bytes = vec![0; length];
    file.read_at(FileOffset(at), &mut [IoSliceMut::new(&mut bytes)])
}

#[test]
fn a_missing_object_is_an_error_and_never_zeros() {
    let world = World::new(2);
    let _broker = world.broker();
    let client = world.client();
    let (stub, file) = world.create_unnamed(&client, uniform(8192, &[(0, 1000), (1, 1000)]));
    write(&file, 0, &[7; 3000]);
    let lost = world.objects().into_iter().find(|path| path.starts_with(world.root.join("s1"))).unwrap();
    let content = std::fs::read(&lost).unwrap();
    std::fs::remove_file(&lost).unwrap();
    // The descriptor still works, but what it holds would not survive.
    let error = file.sync(false).unwrap_err();
    assert!(matches!(error, FileError::ObjectMissing { .. }), "{error}");
    file.close().unwrap();
    let file = open_stub(&client, &stub);
    assert_eq!(read(&file, 0, 1000), [7; 1000], "the other server goes on");
    for (at, length) in [(1000, 10), (0, 3000)] {
        match try_read(&file, at, length) {
            // The part before the missing object.
            Ok(read) => assert_eq!((at, read), (0, 1000)),
            Err(error) => {
                assert!(matches!(error, FileError::ObjectMissing { .. }), "{error}");
                assert_eq!(error.errno(), Errno::IO);
                assert!(error.to_string().contains("s1"), "{error}");
            }
        }
    }
    assert!(file.write_at(FileOffset(1500), &[IoSlice::new(b"x")]).is_err());
    std::fs::write(&lost, content).unwrap();
    assert_eq!(read(&file, 0, 3000), [7; 3000]);
}

#[test]
fn a_server_that_vanishes_fails_its_own_part_only() {
    let world = World::new(2);
    let _broker = world.broker();
    let client = world.client();
    let (stub, file) = world.create_unnamed(&client, uniform(8192, &[(0, 1000), (1, 1000)]));
    write(&file, 0, &[7; 2000]);
    file.close().unwrap();
    // As an unmounted or emptied directory: the one that the client holds open has nothing in it any more.
    let (server, away) = (world.root.join("s1"), world.root.join("away"));
    assert!(std::process::Command::new("cp").arg("-a").args([&server, &away]).status().unwrap().success());
    std::fs::remove_dir_all(&server).unwrap();
    let file = open_stub(&client, &stub);
    assert_eq!(read(&file, 100, 800), [7; 800]);
    assert_eq!(try_read(&file, 1000, 10).unwrap_err().errno(), Errno::IO);
    std::fs::rename(&away, &server).unwrap();
    assert_eq!(read(&file, 0, 2000), [7; 2000]);
}

static FULL: AtomicUsize = AtomicUsize::new(usize::MAX);
static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Server [`FULL`] takes [`LEFT`] more bytes.
fn full_server(server: ServerId, name: &str) -> Result<usize, ServerError> {
    if usize::from(server.0) != FULL.load(Ordering::SeqCst) {
        return Ok(usize::MAX);
    }
    match LEFT.swap(0, Ordering::SeqCst) {
        0 => Err(ServerError::NoSpace { server: name.to_owned() }),
        left => Ok(left),
    }
}

/// Says so long that no server has any free space.
#[derive(Clone, Default)]
struct NoneFree(Arc<AtomicBool>);

impl Hook for NoneFree {
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError> {
        match call {
            Call::FreeBytes if self.0.load(Ordering::SeqCst) => Err(ServerError::NoSpace { server: server.to_owned() }),
            _ => Ok(usize::MAX),
        }
    }
}

/// Tests that fill servers, one at a time.
static FILLING: Mutex<()> = Mutex::new(());

/// Such a write failed with ENOSPC though other servers were empty.
#[test]
fn a_region_whose_server_is_filled_by_others_moves_and_the_write_goes_on() {
    let _filling = FILLING.lock();
    let world = World::new(4);
    let _broker = world.broker();
    let client =
        world.client_with(ClientOptions { open_server: watched!(full_server, || {}), ..ClientOptions::default() });
    let bytes: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8 + 1).collect();
    for (full, left) in [(1, 0), (2, 40), (0, 1500)] {
        let (_stub, file) = world.create_unnamed(&client, uniform(16384, &[(0, 1000), (1, 1000), (2, 1000)]));
        write(&file, 0, &bytes[..5000]);
        FULL.store(full, Ordering::SeqCst);
        LEFT.store(left, Ordering::SeqCst);
        assert_eq!(write(&file, 2500, &bytes[2500..]), 37_500, "server {full} full after {left}");
        assert_eq!(read(&file, 0, 50_000), bytes);
        let region = |number| file.region_layout(RegionIndex(number)).unwrap();
        assert!(region(0).iter().all(|(server, _)| usize::from(server.0) != full), "{:?}", region(0));
        assert_eq!(region(0).len(), 2, "the rest of its own servers");
        FULL.store(usize::MAX, Ordering::SeqCst);
        file.sync(false).unwrap();
        assert_eq!(read(&file, 0, 50_000), bytes);
    }
    let findings = crate::moves::check(&client);
    assert_eq!(findings.iter().filter(|finding| finding.what.contains("in the fallback layout")).count(), 3);
}

#[test]
fn a_full_server_leaves_a_prefix_or_nothing() {
    let _filling = FILLING.lock();
    let world = World::new(3);
    let none_free = NoneFree::default();
    let hook = none_free.clone();
    let wrap_server = Some(wrap(move |_| hook.clone()));
    let _broker = world.broker_with(BrokerOptions { wrap_server, ..BrokerOptions::default() });
    let client =
        world.client_with(ClientOptions { open_server: watched!(full_server, || {}), ..ClientOptions::default() });
    for (full, left, at, expected) in
        [(1, 0, 1000, None), (1, 0, 0, Some(1000)), (2, 40, 0, Some(2040)), (0, 1500, 0, Some(1000))]
    {
        let (_stub, file) = world.create_unnamed(&client, uniform(16384, &[(0, 1000), (1, 1000), (2, 1000)]));
        file.allocate(FileOffset(0), 16384, true).unwrap();
        none_free.0.store(true, Ordering::SeqCst);
        FULL.store(full, Ordering::SeqCst);
        LEFT.store(left, Ordering::SeqCst);
        let bytes: Vec<u8> = (0..7000u32).map(|i| (i % 251) as u8 + 1).collect();
        let result = file.write_at(FileOffset(at), &[IoSlice::new(&bytes)]);
        match expected {
            None => {
                assert_eq!(result.unwrap_err().errno(), Errno::NOSPC);
                assert_eq!(file.size_bytes(), 0);
                assert_eq!(file.status().unwrap().blocks_512, 0, "nothing was written");
            }
            Some(count) => {
                assert_eq!(result.unwrap(), count, "server {full} full after {left}");
                assert_eq!(read(&file, 0, 7000), bytes[..count]);
                FULL.store(usize::MAX, Ordering::SeqCst);
                write(&file, 8000, b"later");
                assert!(
                    read(&file, count as u64, 8000 - count).iter().all(|byte| *byte == 0),
                    "a hole, not the failed rest"
                );
            }
        }
        FULL.store(usize::MAX, Ordering::SeqCst);
        none_free.0.store(false, Ordering::SeqCst);
    }
}

#[test]
fn offsets_at_the_end_of_all_numbers_are_no_trouble() {
    let world = World::new(1);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create_unnamed(&client, uniform(4096, &[(0, 4096)]));
    let limit = file.limit_bytes();
    assert_eq!(limit, 4096 << 20);
    for at in [limit, limit + 1, i64::MAX as u64, u64::MAX] {
        assert_eq!(try_read(&file, at, 100).unwrap(), 0);
        let error = file.write_at(FileOffset(at), &[IoSlice::new(b"x")]).unwrap_err();
        assert_eq!(error.errno(), Errno::FBIG, "{error}");
    }
    assert_eq!(write(&file, limit - 2, b"xyz"), 2, "up to the limit");
    assert_eq!(read(&file, limit - 3, 10), b"\0xy");
    assert_eq!(file.truncate(limit + 1).unwrap_err().errno(), Errno::FBIG);
    assert_eq!(file.allocate(FileOffset(limit), 1, false).unwrap_err().errno(), Errno::FBIG);
    assert_eq!(file.append(&[IoSlice::new(b"x")]).unwrap_err().errno(), Errno::FBIG);
    assert_eq!(file.next_data(FileOffset(0)).unwrap(), Some(FileOffset(limit - 4096)));
    assert_eq!(file.next_hole(FileOffset(limit - 1)).unwrap(), Some(FileOffset(limit)));
    assert_eq!(file.status().unwrap().size_bytes, limit);
    file.sync(true).unwrap();
}

static SYNCS: AtomicU64 = AtomicU64::new(0);

#[test]
fn fsync_syncs_what_any_process_wrote_and_nothing_twice() {
    let world = World::new(2);
    let _broker = world.broker();
    fn count_syncs() {
        SYNCS.fetch_add(1, Ordering::SeqCst);
    }
    let client =
        world.client_with(ClientOptions { open_server: watched!(unlimited, count_syncs), ..ClientOptions::default() });
    let (_stub, file) = world.create(&client, "shared", uniform(16384, &[(0, 1000), (1, 1000)]));
    let syncs = || SYNCS.swap(0, Ordering::SeqCst);
    file.allocate(FileOffset(0), 16384, true).unwrap();
    write(&file, 0, &[0; 10]);
    write(&file, 3 * 16384, &[1; 10]);
    file.sync(false).unwrap();
    assert_eq!(syncs(), 4, "two regions on two servers");
    file.sync(false).unwrap();
    file.sync(true).unwrap();
    assert_eq!(syncs(), 0);
    succeed(world.spawn("writer", &["0".into(), "1".into(), "3".into()]));
    file.sync(true).unwrap();
    assert_eq!(syncs(), 6, "regions 0, 1 and 2, written by another process");
    let (_read_only_stub, read_only) = world.open(&client, "shared", false);
    write(&file, 0, &[1; 10]);
    read_only.sync(false).unwrap();
    assert_eq!(syncs(), 2, "a descriptor open for reading syncs as well");
    assert!(matches!(read_only.write_at(FileOffset(0), &[IoSlice::new(b"x")]), Err(FileError::NotWritable { .. })));
}

/// Dies in the middle of its second sub-request, holding lane and, when appending, the append lock.
pub(crate) fn die_in_a_write(world: &World, arguments: &[String]) {
    static WRITES: AtomicUsize = AtomicUsize::new(0);
    fn dying(_: ServerId, _: &str) -> Result<usize, ServerError> {
        if WRITES.fetch_add(1, Ordering::SeqCst) == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
        Ok(usize::MAX)
    }
    let client = world.client_with(ClientOptions { open_server: watched!(dying, || {}), ..ClientOptions::default() });
    let (_stub, file) = world.open(&client, "victim", true);
    let bytes = [9; 2500];
    if arguments[0] == "append" {
        let _ = file.append(&[IoSlice::new(&bytes)]);
    } else {
        let _ = file.write_at(FileOffset(500), &[IoSlice::new(&bytes)]);
    }
}

#[test]
fn a_killed_writer_leaves_a_readable_file_and_its_locks() {
    let world = World::new(3);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "victim", uniform(16384, &[(0, 1000), (1, 1000), (2, 1000)]));
    write(&file, 0, &[1; 1200]);
    for how in ["append", "write"] {
        let mut child = world.spawn("dying", &[how.to_owned()]);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(file.size_bytes(), 1200, "{how}: the size comes last");
        let bytes = read(&file, 0, 5000);
        assert_eq!(bytes.len(), 1200);
        assert!(bytes.iter().all(|byte| matches!(byte, 1 | 9)), "{how}: old bytes or the dead writer's");
        // The broker hears of the death and cuts what lies beyond the size, lest it show in a hole.
        let stored = || world.objects().iter().map(|path| path.metadata().unwrap().len()).sum::<u64>();
        let give_up = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while stored() > 1200 {
            assert!(std::time::Instant::now() < give_up, "{how}: the rest was never cut");
            std::thread::yield_now();
        }
    }
    // The dead one held the append lock and a lane: neither stops the living.
    assert_eq!(file.append(&[IoSlice::new(&[2; 800])]).unwrap(), (FileOffset(1200), 800));
    file.truncate(1300).unwrap();
    assert_eq!(read(&file, 1200, 500), [2; 100]);
}

/// Gives up its rights after opening: its descriptors permit what the objects' modes do not.
pub(crate) fn use_without_permission(world: &World, _: &[String]) {
    let client = world.client();
    let (_stub, file) = world.open(&client, "private", true);
    let object = world.objects().remove(0);
    let nobody = rustix::fs::Uid::from_raw(65534);
    rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
    assert!(std::fs::read(object).is_err(), "the mode refuses this user");
    assert_eq!(read(&file, 0, 3000), [7; 3000]);
    assert_eq!(write(&file, 1500, &[8; 1000]), 1000);
}

#[test]
fn a_descriptor_permits_what_the_objects_mode_refuses() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give up its rights");
        return;
    }
    let world = World::new(2);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "private", uniform(16384, &[(0, 1000), (1, 1000)]));
    std::fs::set_permissions(world.path("private"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let stub = std::fs::File::open(world.path("private")).unwrap();
    client.attributes_changed(std::os::fd::AsFd::as_fd(&stub), file.id()).unwrap();
    write(&file, 0, &[7; 3000]);
    succeed(world.spawn("stranger", &[]));
    assert_eq!(read(&file, 1500, 1000), [8; 1000]);
}

#[test]
fn the_data_path_outlives_its_broker() {
    let world = World::new(3);
    let mut broker = world.spawn_broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "lasting", uniform(4096, &[(0, 300), (1, 1000), (2, 512)]));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3u64)
            .map(|thread| {
                let file = &file;
                scope.spawn(move || {
                    for turn in 0..60u64 {
                        // Every write reaches a new region, so that it needs the broker of the moment.
                        let at = (turn * 3 + thread) * 4096 + 50;
                        assert_eq!(write(file, at, &[thread as u8 + 1; 4000]), 4000);
                        assert_eq!(read(file, at, 4000), [thread as u8 + 1; 4000]);
                        if turn % 20 == thread {
                            file.sync(false).unwrap();
                        }
                    }
                })
            })
            .collect();
        for _ in 0..4 {
            broker.kill().unwrap();
            broker.wait().unwrap();
            // Without a broker, what is placed can be used.
            read(&file, 0, 100);
            broker = world.spawn_broker();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    for region in 0..180u64 {
        assert_eq!(read(&file, region * 4096 + 50, 4000), [(region % 3) as u8 + 1; 4000], "region {region}");
    }
    file.truncate(5000).unwrap();
    assert_eq!(file.size_bytes(), 5000);
    file.close().unwrap();
    drop(broker.stdin.take());
    broker.wait().unwrap();
}

#[test]
fn without_a_broker_errors_come_in_time_and_name_it() {
    let world = World::new(1);
    let mut broker = world.spawn_broker();
    let patience = std::time::Duration::from_millis(300);
    let client = world.client_with(ClientOptions { patience, ..ClientOptions::default() });
    let (_stub, file) = world.create_unnamed(&client, uniform(4096, &[(0, 4096)]));
    write(&file, 0, &[1; 100]);
    broker.kill().unwrap();
    broker.wait().unwrap();
    assert_eq!(write(&file, 100, &[2; 100]), 100);
    let error = file.write_at(FileOffset(5000), &[IoSlice::new(b"x")]).unwrap_err();
    assert_eq!(error.errno(), Errno::IO);
    assert!(error.to_string().contains("broker") && error.to_string().contains("state"), "{error}");
    let options = ClientOptions { connect_patience: patience, ..ClientOptions::default() };
    let error = stripewise_store::client::Client::connect(&world.root.join("state"), options).err().unwrap();
    assert!(error.to_string().contains("stripewise run"), "{error}");
    let mut broker = world.spawn("broker", &[]);
    wait_for_line(&mut broker, "serving");
    assert_eq!(write(&file, 5000, b"x"), 1, "a later broker serves the same client");
    drop(broker.stdin.take());
    broker.wait().unwrap();
}

/// Takes every descriptor that the limit allows, then uses a file whose objects are not open yet.
pub(crate) fn use_without_free_descriptors(world: &World) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: hard }).unwrap();
    let client = world.client();
    let (stub, file) = world.open(&client, "crowded", true);
    let mut taken = Vec::new();
    while let Ok(descriptor) = rustix::io::dup(&stub) {
        use std::os::fd::AsRawFd;
        assert!(descriptor.as_raw_fd() < 64, "the program sees another limit than its own");
        taken.push(descriptor);
    }
    // All but a few numbers were the program's.
    assert!(taken.len() > 50, "{} descriptors taken", taken.len());
    assert_eq!(read(&file, 0, 3000), [7; 3000]);
    assert_eq!(write(&file, 20_000, &[8; 2000]), 2000);
    assert_eq!(getrlimit(Resource::Nofile).current, Some(64));
    for number in stripewise_store::descriptors::owned_descriptors(0) {
        assert!(number >= 64, "descriptor {number} is in the program's range");
    }
}

#[test]
fn a_program_at_its_limit_of_open_files_reads_and_writes_on() {
    let world = World::new(3);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "crowded", uniform(16384, &[(0, 1000), (1, 1000), (2, 500)]));
    write(&file, 0, &[7; 3000]);
    succeed(world.spawn("crowded", &[]));
    assert_eq!(read(&file, 20_000, 2000), [8; 2000]);
}

/// A file made read-only and written through the descriptor that made it, by a process with space for few descriptors.
#[test]
fn more_objects_that_only_the_broker_may_open_than_descriptors_are_no_endless_matter() {
    let world = World::new(20);
    let _broker = world.broker();
    let client = world.client_with(ClientOptions {
        open_server: watched!(unlimited, || {}, true),
        object_descriptors: 8,
        ..ClientOptions::default()
    });
    let stripes: Vec<_> = (0..20).map(|server| (server, 100)).collect();
    let (_stub, file) = world.create_unnamed(&client, uniform(16384, &stripes));
    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    let truncated: Vec<IoSlice> = bytes.chunks(777).map(IoSlice::new).collect();
    assert_eq!(file.write_at(FileOffset(50), &truncated).unwrap(), bytes.len());
    assert_eq!(file.append(&truncated).unwrap(), (FileOffset(20_050), bytes.len()));
    file.sync(false).unwrap();
    assert_eq!(read(&file, 50, 50_000), [&bytes[..], &bytes[..]].concat());
}

/// What a server could not be cut of, because it was away, must not show in a hole that a write leaves when the server is back.
#[test]
fn a_hole_is_zeros_over_what_an_absent_server_kept_beyond_the_size() {
    let world = World::new(2);
    let boot = |number| BrokerOptions {
        host: Some(HostIdentity { machine: "m".into(), name: "alpha".into(), boot: [number; 16] }),
        ..BrokerOptions::default()
    };
    let broker = world.broker_with(boot(1));
    let client = world.client();
    let (stub, file) = world.create_unnamed(&client, uniform(8192, &[(0, 1000), (1, 1000)]));
    file.allocate(FileOffset(0), 8192, true).unwrap();
    write(&file, 0, &[7; 100]);
    file.close().unwrap();
    drop(client);
    broker.stop();
    // As after a power failure: no shared memory, and bytes of a write whose size never became durable.
    std::fs::remove_dir_all(world.root.join("state/run")).unwrap();
    let object = world.objects().into_iter().find(|path| path.starts_with(world.root.join("s1"))).unwrap();
    std::fs::write(&object, [9; 1000]).unwrap();
    std::fs::rename(world.root.join("s1"), world.root.join("away")).unwrap();
    let _broker = world.broker_with(boot(2));
    let client = world.client();
    let file = open_stub(&client, &stub);
    assert_eq!(write(&file, 100, &[8; 50]), 50, "the other server goes on");
    assert_eq!(file.write_at(FileOffset(2100), &[IoSlice::new(b"x")]).unwrap_err().errno(), Errno::IO);
    std::fs::rename(world.root.join("away"), world.root.join("s1")).unwrap();
    assert_eq!(write(&file, 2100, b"x"), 1);
    assert_eq!(read(&file, 0, 3000), [&[7; 100][..], &[8; 50], &[0; 1950], b"x"].concat());
}

/// From here on `fsync`, which only stubs are synced by, fails in this thread; objects are synced by `fdatasync`.
fn forbid_fsync() {
    let statement = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_fsync as u32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EIO as u32, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a filter that outlives the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

pub(crate) fn sync_a_stub_that_cannot_be_synced(world: &World) {
    let client = world.client();
    let (_stub, file) = world.open(&client, "new", true);
    let (_synced_stub, synced) = world.open(&client, "synced", true);
    write(&file, 0, &[1; 100]);
    synced.sync(true).unwrap();
    forbid_fsync();
    write(&synced, 0, &[1; 100]);
    synced.sync(false).unwrap();
    for data_only in [false, true] {
        let error = file.sync(data_only).unwrap_err();
        assert!(matches!(error, FileError::Stub { .. }) && error.errno() == Errno::IO, "{error}");
    }
}

/// What the broker wrote into it is in the page cache only, and a file whose stub is lost is not found.
#[test]
fn the_first_fsync_of_an_open_makes_the_stub_durable() {
    let world = World::new(2);
    let _broker = world.broker();
    let client = world.client();
    for name in ["new", "synced"] {
        drop(world.create(&client, name, uniform(16384, &[(0, 1000), (1, 1000)])));
    }
    succeed(world.spawn("unsyncable", &[]));
}
