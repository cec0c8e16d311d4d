//! Regions with replicas, while threads and processes read and write them, while servers are lost, and while room is short.

use crate::moves::{REGION, REGIONS, all_done, any_layout, ask, check, layout, order, scale, start_moves, wait_for};
use crate::world::{Dice, World, read, succeed, uniform, write};
use std::io::{IoSlice, Read};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stripewise_broker::BrokerOptions;
use stripewise_device::{Access, DiskPlace, ExtentId};
use stripewise_layout::{Direction, FileId, FileOffset, ObjectOffset, RegionIndex, ServerId};
use stripewise_store::client::Client;
use stripewise_store::protocol::{Admin, RegionInfo, Reply, RequestCost, WantedReplicas};
use stripewise_store::server::clock::{Clock, Monotonic};
use stripewise_store::server::emulated::EmulatedSpec;
use stripewise_store::server::stations::Parts;
use stripewise_store::state::HostIdentity;

/// A broker that makes replicas only when it is told to, or when the last writer closes.
pub(crate) fn never_idle() -> BrokerOptions {
    BrokerOptions { idle_after: Some(Duration::MAX), ..BrokerOptions::default() }
}

pub(crate) fn wanted(first: u32, regions: u32, stripes: &[(u16, u32)]) -> WantedReplicas {
    WantedReplicas { first: RegionIndex(first), regions, layout: layout(stripes) }
}

/// (wanted, fresh, syncing)
pub(crate) fn totals(client: &Client, file: FileId) -> (u64, u64, u64) {
    match ask(client, Admin::Replicas { file }) {
        Reply::Replicas { wanted, fresh, syncing, .. } => (wanted, fresh, syncing),
        other => panic!("{other:?}"),
    }
}

/// Waits until syncs are over; the time-out is for a test that hangs.
pub(crate) fn wait_while_syncing(client: &Client, file: FileId) -> (u64, u64) {
    let begun = Instant::now();
    loop {
        let (wanted, fresh, syncing) = totals(client, file);
        if syncing == 0 {
            return (wanted, fresh);
        }
        assert!(begun.elapsed() < Duration::from_secs(100), "{wanted} {fresh} {syncing}");
        std::thread::yield_now();
    }
}

pub(crate) fn sync(client: &Client, file: FileId) -> (u64, u64) {
    ask(client, Admin::SyncReplicas { file });
    wait_while_syncing(client, file)
}

fn wait_until_fresh(client: &Client, file: FileId, expected: u64) {
    let begun = Instant::now();
    while totals(client, file).1 != expected {
        assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", totals(client, file));
        std::thread::yield_now();
    }
}

pub(crate) fn regions(client: &Client, file: FileId) -> Vec<RegionInfo> {
    match ask(client, Admin::Regions { file, first: RegionIndex(0) }) {
        Reply::Regions { regions, .. } => regions,
        other => panic!("{other:?}"),
    }
}

/// Waits for what was forgotten to be freed: so many objects are left.
fn wait_for_objects(world: &World, expected: usize) {
    let begun = Instant::now();
    while world.objects().len() != expected {
        assert!(begun.elapsed() < Duration::from_secs(100), "{} objects, not {expected}", world.objects().len());
        std::thread::yield_now();
    }
}

pub(crate) fn bytes_of(length: u64) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(7) % 251) as u8).collect()
}

/// Hides a server, as if its directory were not mounted.
pub(crate) fn hide(world: &World, server: u16) {
    std::fs::rename(world.root.join(format!("s{server}")), world.root.join(format!("hidden{server}"))).unwrap();
}

pub(crate) fn bring_back(world: &World, server: u16) {
    std::fs::rename(world.root.join(format!("hidden{server}")), world.root.join(format!("s{server}"))).unwrap();
}

/// What the file holds for a process that has nothing open yet, with these servers away.
pub(crate) fn read_without(world: &World, servers: &[u16], name: &str, length: usize) -> Vec<u8> {
    servers.iter().for_each(|server| hide(world, *server));
    let client = world.client();
    let (_stub, file) = world.open(&client, name, false);
    let found = read(&file, 0, length);
    drop(file);
    servers.iter().for_each(|server| bring_back(world, *server));
    found
}

/// Turns every byte of the server's objects over, behind everybody's back.
pub(crate) fn spoil(world: &World, server: u16) {
    for file in std::fs::read_dir(world.root.join(format!("s{server}/stripewise-objects"))).unwrap() {
        for object in std::fs::read_dir(file.unwrap().path()).unwrap() {
            let path = object.unwrap().path();
            let mut bytes = Vec::new();
            std::fs::File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
            std::fs::write(&path, bytes).unwrap();
        }
    }
}

#[test]
fn the_first_write_forgets_the_replicas_of_its_region() {
    let world = World::new(4);
    let _broker = world.broker_with(never_idle());
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    let mut bytes = bytes_of(3 * REGION + 777);
    write(&file, 0, &bytes);
    let replicas = vec![wanted(0, 4, &[(2, 8192), (3, 8192)]), wanted(1, 1, &[(0, 1000), (3, 3000)])];
    ask(&client, Admin::SetReplicas { file: file.id(), wanted: replicas.clone() });
    assert_eq!(totals(&client, file.id()), (5, 0, 0));
    assert_eq!(sync(&client, file.id()), (5, 5));
    let found = regions(&client, file.id());
    assert_eq!(found[0].replicas.len(), 1);
    assert!(found[1].replicas.iter().all(|replica| replica.fresh) && found[1].replicas.len() == 2);
    assert_eq!(world.objects().len(), 2 * 4 + 2 * 5);
    assert_eq!(check(&client), []);
    // SSDs answer sooner than disks: what the disks hold is not looked at.
    spoil(&world, 0);
    assert!(read(&file, 0, bytes.len() + 1) == bytes);
    spoil(&world, 0);
    // A write of two regions: theirs go, the others stay.
    write(&file, REGION - 5, &[9; 10]);
    bytes[REGION as usize - 5..REGION as usize + 5].fill(9);
    assert_eq!(totals(&client, file.id()).1, 2);
    wait_for_objects(&world, 2 * 4 + 2 * 2);
    spoil(&world, 2);
    spoil(&world, 3);
    assert!(read(&file, 0, 2 * REGION as usize) == bytes[..2 * REGION as usize], "the place is read");
    assert!(read(&file, 2 * REGION, 100) != bytes[2 * REGION as usize..2 * REGION as usize + 100]);
    spoil(&world, 2);
    spoil(&world, 3);
    assert_eq!(sync(&client, file.id()), (5, 5));
    assert!(read_without(&world, &[0, 1], "f", bytes.len() + 1) == bytes);
    // Cut off, they go; what is not wanted any more goes too.
    file.truncate(2 * REGION + 10).unwrap();
    bytes.truncate(2 * REGION as usize + 10);
    assert_eq!(sync(&client, file.id()), (4, 4));
    ask(&client, Admin::SetReplicas { file: file.id(), wanted: replicas[..1].to_vec() });
    assert_eq!(sync(&client, file.id()), (3, 3));
    wait_for_objects(&world, 2 * 3 + 2 * 3);
    assert!(read_without(&world, &[0, 1], "f", bytes.len() + 1) == bytes);
    assert!(read_without(&world, &[2, 3], "f", bytes.len() + 1) == bytes);
    assert_eq!(check(&client), []);
}

#[test]
fn replicas_outlive_their_broker_and_go_with_their_file() {
    let world = World::new(4);
    // Dropped after the clients, which say good-bye.
    let successor = OnceLock::new();
    let broker = world.broker_with(never_idle());
    let path = world.path("f").to_str().unwrap().to_owned();
    let client = world.client();
    ask(&client, Admin::ExpectReplicas { path, wanted: vec![wanted(0, 9, &[(3, 4096)])] });
    let (stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    let bytes = bytes_of(2 * REGION);
    write(&file, 0, &bytes);
    assert_eq!(totals(&client, file.id()), (2, 0, 0), "as was expected of the name");
    assert_eq!(sync(&client, file.id()), (2, 2));
    broker.stop();
    assert!(successor.set(world.broker_with(never_idle())).is_ok());
    assert_eq!(totals(&client, file.id()), (2, 2, 0));
    assert!(read_without(&world, &[0, 1], "f", bytes.len()) == bytes);
    let Reply::Usage { servers } = ask(&client, Admin::Usage) else { panic!("no usage") };
    assert_eq!(servers.iter().map(|server| server.promised_bytes).collect::<Vec<_>>(), [REGION, REGION, 0, 2 * REGION]);
    // A move has them rebuilt.
    all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 1, &[(2, 1000)])])));
    assert_eq!(totals(&client, file.id()).1, 0);
    assert_eq!(sync(&client, file.id()), (2, 2));
    assert!(read_without(&world, &[2], "f", bytes.len()) == bytes);
    // Where the replica lies already there is no other.
    all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 0, &[(3, 4096)])])));
    assert_eq!(sync(&client, file.id()), (1, 1));
    let id = file.id();
    let stub = World::closed(stub);
    client.remove(&world.path("f"), std::os::fd::AsFd::as_fd(&stub), id).unwrap();
    drop(file);
    wait_for_objects(&world, 0);
    let Reply::Usage { servers } = ask(&client, Admin::Usage) else { panic!("no usage") };
    assert_eq!(servers.iter().map(|server| server.promised_bytes + server.objects).sum::<u64>(), 0);
}

#[test]
fn replicas_are_made_when_the_last_writer_closes_and_when_nobody_writes() {
    let world = World::new(4);
    // Dropped after the clients, which say good-bye.
    let successor = OnceLock::new();
    let broker = world.broker_with(never_idle());
    let (reader, writers) = (world.client(), [world.client(), world.client()]);
    let (_stub, file) = world.create(&reader, "f", uniform(REGION, &[(0, 4096)]));
    let id = file.id();
    drop(file);
    ask(&reader, Admin::SetReplicas { file: id, wanted: vec![wanted(0, 9, &[(2, 4096)])] });
    let (_stub, reading) = world.open(&reader, "f", false);
    let [first, second] = writers.each_ref().map(|client| world.open(client, "f", true).1);
    write(&first, 0, &[1; 100]);
    write(&second, REGION, &[2; 100]);
    first.close().unwrap();
    assert_eq!(totals(&reader, id), (2, 0, 0), "the other may go on writing");
    second.close().unwrap();
    wait_until_fresh(&reader, id, 2);
    assert_eq!(read(&reading, REGION, 100), [2; 100]);
    broker.stop();
    // Without any close.
    let soon = BrokerOptions { idle_after: Some(Duration::from_millis(1)), ..BrokerOptions::default() };
    assert!(successor.set(world.broker_with(soon)).is_ok());
    let (_stub, writing) = world.open(&writers[0], "f", true);
    for turn in 3..6 {
        write(&writing, 0, &[turn; 100]);
        wait_until_fresh(&reader, id, 2);
        assert_eq!(read(&reading, 0, 100), [turn; 100]);
    }
    // A region that comes later gets its own.
    write(&writing, 3 * REGION, b"x");
    wait_until_fresh(&reader, id, 3);
}

#[test]
fn a_lost_server_is_survived_where_a_replica_is_fresh() {
    let world = World::new(4);
    // Dropped after the clients, which say good-bye.
    let successor = OnceLock::new();
    let broker = world.broker_with(never_idle());
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    let mut bytes = bytes_of(3 * REGION);
    write(&file, 0, &bytes);
    // Regions 0 and 1 only.
    ask(&client, Admin::SetReplicas { file: file.id(), wanted: vec![wanted(0, 2, &[(2, 4096), (3, 512)])] });
    assert_eq!(sync(&client, file.id()), (2, 2));
    let whole = bytes.len();
    for server in [2, 3] {
        assert!(read_without(&world, &[server], "f", whole) == bytes, "without server {server}");
    }
    let both = 2 * REGION as usize;
    for server in [0, 1] {
        assert!(read_without(&world, &[server], "f", both) == bytes[..both], "without server {server}");
    }
    // The disk does not come back: a write goes on where the replica was, one to the third region cannot.
    hide(&world, 0);
    let fresh = world.client();
    let (_stub, writing) = world.open(&fresh, "f", true);
    write(&writing, 10, &[5; 100]);
    bytes[10..110].fill(5);
    assert!(read(&writing, 0, both) == bytes[..both]);
    assert_eq!(writing.region_layout(RegionIndex(0)).unwrap(), [(ServerId(2), 4096), (ServerId(3), 512)]);
    assert_eq!(writing.region_layout(RegionIndex(1)).unwrap(), [(ServerId(0), 4096), (ServerId(1), 4096)]);
    assert!(writing.write_at(FileOffset(2 * REGION), &[IoSlice::new(b"x")]).is_err());
    // All copies lost: nothing is forgotten, the write is refused.
    hide(&world, 2);
    assert!(writing.write_at(FileOffset(REGION), &[IoSlice::new(b"x")]).is_err());
    bring_back(&world, 2);
    bring_back(&world, 0);
    broker.stop();
    assert!(successor.set(world.broker_with(never_idle())).is_ok());
    let other = world.client();
    assert!(read(&world.open(&other, "f", false).1, 0, whole) == bytes);
    // The old place is freed, since its server is there again; region 1 has kept its replica.
    assert_eq!(totals(&other, file.id()), (1, 1, 0));
    wait_for_objects(&world, 2 + 4 + 2);
    assert_eq!(check(&other), []);
}

#[test]
fn one_failing_call_of_the_brokers_servers_is_survived_wherever_it_falls_in_a_sync_or_first_write() {
    let (mut lacked, mut refused) = (0, 0);
    for number in 0.. {
        let context = format!("call {number}");
        let world = World::new(4);
        let (options, calls_left, _) = crate::moves_ended::failing();
        let _broker = world.broker_with(BrokerOptions { idle_after: Some(Duration::MAX), ..options });
        let client = world.client();
        let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
        let mut bytes = bytes_of(REGION + 999);
        write(&file, 0, &bytes);
        let replicas = vec![wanted(0, 2, &[(2, 1000), (3, 3000)]), wanted(0, 1, &[(3, 512)])];
        ask(&client, Admin::SetReplicas { file: file.id(), wanted: replicas });
        calls_left.store(number, Ordering::SeqCst);
        let (_, fresh) = sync(&client, file.id());
        lacked += u64::from(fresh < 3);
        assert!(read(&file, 0, bytes.len() + 1) == bytes, "{context}");
        match file.write_at(FileOffset(REGION - 50), &[IoSlice::new(&[7; 100])]) {
            Ok(length) => assert_eq!(length, 100, "{context}"),
            Err(error) => {
                assert!(error.to_string().contains("what a test forbids"), "{context}: {error}");
                refused += 1;
                write(&file, REGION - 50, &[7; 100]);
            }
        }
        bytes[REGION as usize - 50..REGION as usize + 50].fill(7);
        assert!(read(&file, 0, bytes.len() + 1) == bytes, "{context}");
        let ended = calls_left.load(Ordering::SeqCst) < usize::MAX / 2;
        calls_left.store(usize::MAX, Ordering::SeqCst);
        let (wanted, fresh) = sync(&client, file.id());
        assert_eq!(wanted, fresh, "{context}");
        assert!(read(&file, 0, bytes.len() + 1) == bytes, "{context}");
        ask(&client, Admin::SetReplicas { file: file.id(), wanted: Vec::new() });
        assert!(read(&file, 0, bytes.len() + 1) == bytes, "{context}");
        let placed = regions(&client, file.id()).iter().map(|region| region.stripes.len()).sum();
        wait_for_objects(&world, placed);
        assert_eq!(check(&client), [], "{context}");
        if ended {
            println!("{number} calls: {lacked} syncs lacked something, {refused} writes were refused");
            assert!(lacked > 20, "{number} calls, {lacked}");
            break;
        }
    }
}

#[test]
fn a_replica_that_lost_its_object_is_passed_over_told_and_repaired() {
    let world = World::new(4);
    let _broker = world.broker_with(never_idle());
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096)]));
    let bytes = bytes_of(2 * REGION);
    write(&file, 0, &bytes);
    ask(&client, Admin::SetReplicas { file: file.id(), wanted: vec![wanted(0, 2, &[(2, 4096), (3, 4096)])] });
    assert_eq!(sync(&client, file.id()), (2, 2));
    std::fs::remove_dir_all(world.root.join("s3/stripewise-objects").join(file.id().to_string())).unwrap();
    let fresh = world.client();
    assert!(read(&world.open(&fresh, "f", false).1, 0, bytes.len()) == bytes);
    let found = check(&client);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].what.contains("2 of the regions of") && found[0].what.contains("a replica on server s3"));
    let Reply::Findings { findings } = ask(&client, Admin::Check { repair: true }) else { panic!("no findings") };
    assert!(findings.iter().all(|finding| finding.repaired), "{findings:?}");
    assert_eq!(totals(&client, file.id()), (2, 0, 0));
    assert_eq!(sync(&client, file.id()), (2, 2));
    assert!(read_without(&world, &[0], "f", bytes.len()) == bytes);
    assert_eq!(check(&client), []);
    // With a replica's server away a file can be cut, and the replica is not missed.
    hide(&world, 2);
    file.truncate(REGION + 7).unwrap();
    assert!(read(&file, 0, bytes.len()) == bytes[..REGION as usize + 7]);
    bring_back(&world, 2);
    assert_eq!(sync(&client, file.id()), (2, 2));
    assert!(read_without(&world, &[0], "f", bytes.len()) == bytes[..REGION as usize + 7]);
}

#[test]
fn after_another_boot_a_replica_ends_where_its_place_does() {
    let world = World::new(4);
    let boot = |number| BrokerOptions {
        host: Some(HostIdentity { machine: "m".into(), name: "alpha".into(), boot: [number; 16] }),
        ..never_idle()
    };
    let first = world.broker_with(boot(1));
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    let bytes = bytes_of(REGION - 10);
    write(&file, 0, &bytes[..5000]);
    file.sync(false).unwrap();
    // The size is not made durable any more, but what a sync copies is.
    write(&file, 0, &bytes);
    let id = file.id();
    ask(&client, Admin::SetReplicas { file: id, wanted: vec![wanted(0, 1, &[(2, 512), (3, 512)])] });
    assert_eq!(sync(&client, id), (1, 1));
    // As a power failure leaves the table: nobody said good-bye.
    let (table, saved) = (world.root.join("state/rmt/data.mdb"), world.root.join("saved"));
    std::fs::copy(&table, &saved).unwrap();
    drop((file, client, first));
    std::fs::copy(&saved, &table).unwrap();
    // Or it would show that an older table was put back.
    std::fs::remove_file(world.root.join("state/rmt/committed")).unwrap();
    let _broker = world.broker_with(boot(2));
    let client = world.client();
    let (_stub, file) = world.open(&client, "f", true);
    assert_eq!((file.size_bytes(), totals(&client, id)), (5000, (1, 1, 0)));
    file.truncate(REGION).unwrap();
    let expected: Vec<u8> = bytes[..5000].iter().copied().chain(std::iter::repeat(0)).take(REGION as usize).collect();
    assert!(read_without(&world, &[0, 1], "f", REGION as usize) == expected, "the replica");
    assert!(read_without(&world, &[2, 3], "f", REGION as usize) == expected, "the place");
    assert_eq!(totals(&client, id).1, 1);
    assert_eq!(check(&client), []);
}

#[test]
fn what_servers_were_measured_to_take_goes_before_what_their_class_takes() {
    let world = World::new(4);
    // Disks that are faster than the SSDs.
    let [fast, slow] = [1000, 1_000_000_000].map(|startup_ns| Some(RequestCost { startup_ns, kib_ns: 1 }));
    let _broker = world.broker_with(BrokerOptions { read_costs: vec![fast, fast, slow, slow], ..never_idle() });
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(2, 4096)]));
    let bytes = bytes_of(REGION);
    write(&file, 0, &bytes);
    ask(&client, Admin::SetReplicas { file: file.id(), wanted: vec![wanted(0, 1, &[(0, 4096)])] });
    assert_eq!(sync(&client, file.id()), (1, 1));
    spoil(&world, 2);
    assert!(read(&file, 0, bytes.len()) == bytes, "the disk is read");
}

/// Requests that each server has got since the last look.
fn requests(client: &Client, before: &mut [u64; 4]) -> [u64; 4] {
    let stations = client.stations().unwrap();
    let now = [0, 1, 2, 3].map(|server| stations.server_load(ServerId(server)).sub_requests);
    let since = std::array::from_fn(|server| now[server] - before[server]);
    *before = now;
    since
}

#[test]
fn a_read_takes_the_copy_that_is_predicted_to_be_done_first() {
    let world =
        World::with_urls(4, |directory| format!("emulated://{directory}?device=hdd-7200&link=gigabit&time_scale=0.01"));
    let _broker = world.broker_with(never_idle());
    let client = world.client();
    let all: Vec<(u16, u32)> = (0..4).map(|server| (server, 4096)).collect();
    let region_bytes = 4 << 20;
    let (_stub, file) = world.create(&client, "f", uniform(region_bytes, &all));
    let bytes = bytes_of(region_bytes);
    write(&file, 0, &bytes);
    let replicas = vec![wanted(0, 1, &[(1, 4 << 20)]), wanted(0, 1, &[(2, 4 << 20)])];
    ask(&client, Admin::SetReplicas { file: file.id(), wanted: replicas });
    assert_eq!(sync(&client, file.id()), (2, 2));
    let mut before = [0; 4];
    requests(&client, &mut before);
    // A large read: the place, with four devices and four links.
    assert!(read(&file, 0, region_bytes as usize) == bytes);
    assert!(requests(&client, &mut before).iter().all(|requests| *requests == 1));
    // One of a single stripe takes as long everywhere: the place, of equals.
    assert!(read(&file, 0, 4096) == bytes[..4096]);
    assert_eq!(requests(&client, &mut before), [1, 0, 0, 0]);
    // That one's device has much to do: to the other. Nobody waits for what is reserved here.
    let spec = EmulatedSpec::named("hdd-7200", Some("gigabit"), 0.01).unwrap();
    let place = DiskPlace { extent: ExtentId(7), after: None, offset: ObjectOffset(0) };
    let much = Access { direction: Direction::Read, place, bytes: 1 << 42 };
    let stations = client.stations().unwrap();
    stations.reserve_at(ServerId(1), (&spec.device, spec.link.as_ref()), Parts::Device, Monotonic.now(), &much);
    assert_eq!(requests(&client, &mut before), [0, 1, 0, 0]);
    assert!(read(&file, 1 << 20, 16384) == bytes[1 << 20..(1 << 20) + 16384]);
    assert_eq!(requests(&client, &mut before), [0, 0, 1, 0]);
    // A large one too: the place lies on the busy device as well.
    assert!(read(&file, 0, region_bytes as usize) == bytes);
    assert_eq!(requests(&client, &mut before), [0, 0, 1, 0]);
}

/// `STRIPED_MOVE_PROCESSES` and `STRIPED_SYNCS` make it long.
#[test]
fn no_process_reads_a_stale_replica_while_syncs_run() {
    let (processes, syncs) = (scale("STRIPED_MOVE_PROCESSES", 4), scale("STRIPED_SYNCS", 60));
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let world = World::new(4);
    let _broker = world.broker_with(never_idle());
    let client = world.client();
    let (_stub, file) = world.create(&client, "moving", uniform(REGION, &[(0, 4096), (1, 4096)]));
    write(&file, 0, &vec![0; (REGIONS * REGION) as usize]);
    let all = REGIONS as u32;
    let mut replicas = vec![wanted(0, all, &[(2, 4096), (3, 1000)]), wanted(1, 2, &[(3, 512)])];
    ask(&client, Admin::SetReplicas { file: file.id(), wanted: replicas.clone() });
    let children: Vec<_> = (0..processes)
        .map(|me| world.spawn("move-user", &[me.to_string(), processes.to_string(), (seed + 1000 * me).to_string()]))
        .collect();
    let mut seen = 0;
    for turn in 0..syncs {
        seen += sync(&client, file.id()).1;
        if turn % 8 == 7 {
            let region = dice.roll(REGIONS) as u32;
            let orders = vec![order(file.id(), region, region, &any_layout(&mut dice, 4))];
            ask(&client, Admin::SyncReplicas { file: file.id() });
            all_done(&wait_for(&client, start_moves(&client, orders)));
        }
        if turn % 16 == 15 {
            replicas.swap(0, 1);
            ask(&client, Admin::SetReplicas { file: file.id(), wanted: replicas.clone() });
        }
    }
    children.into_iter().for_each(succeed);
    println!("{seen} replicas were seen fresh in {syncs} syncs");
    // Everything at two places again, and the same at both.
    all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 0, all - 1, &[(0, 4096), (1, 4096)])])));
    let (wanted, fresh) = sync(&client, file.id());
    assert_eq!((wanted, fresh), (REGIONS + 2, REGIONS + 2));
    let length = (REGIONS * REGION) as usize;
    let (places, copies) =
        (read_without(&world, &[2, 3], "moving", length), read_without(&world, &[0, 1], "moving", length));
    assert!(places == copies, "seed {seed}");
    let mut expected = vec![0u8; length];
    for me in 0..2 * processes {
        let model = std::fs::read(world.root.join(format!("model{me}"))).unwrap();
        expected.iter_mut().zip(&model).for_each(|(byte, own)| *byte |= own);
    }
    let numbers = crate::moves::NUMBERS as usize;
    assert!(places[numbers..] == expected[numbers..], "seed {seed}");
    assert_eq!(check(&client), [], "seed {seed}");
}
