//! The broker's part of fragments on SSDs, against disks as they should be.

use crate::cluster::{Client, REGION, Testbed};
use crate::hooked::{Call, Hook, wrap};
use crate::user::{OBJECT, REGIONS, User, ask_for_fragments, range, until};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stripewise_broker::BrokerOptions;
use stripewise_layout::{Direction, Layout, RegionIndex, ServerId};
use stripewise_store::protocol::{Admin, MoveOrder, Refusal, Reply, Request, WantedReplicas};
use stripewise_store::server::ServerError;
use stripewise_store::server::emulated::{EmulatedSpec, EmulatedUrl};
use stripewise_store::server::stations::Stations;
use stripewise_store::shared::control::{FragmentMode, MAX_REGIONS};
use stripewise_store::shared::fragments::hints::{Counter, Suggestion};
use stripewise_store::shared::fragments::{Class, State, WriteChoice};

/// Of a broker that writes no log back by itself.
fn leaves_logs() -> BrokerOptions {
    BrokerOptions { quiet_after: Some(Duration::MAX), ..BrokerOptions::default() }
}

pub fn findings(user: &User<'_>) -> usize {
    match user.client.ask(Request::Admin(Admin::Check { repair: false })).unwrap() {
        Reply::Findings { findings } => findings.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn logs_are_made_for_the_disks_when_somebody_needs_them() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    assert_eq!(user.table.disks().collect::<Vec<_>>(), [ServerId(0), ServerId(1)]);
    assert_eq!((user.log(0).on, user.log(1).on), (ServerId(2), ServerId(3)));
    assert_eq!((user.table.slot_bytes(), user.log(0).slots, user.table.granted(ServerId(0))), (4096, 64, 8));
    assert!(user.table.is_writable());
    for (server, log) in [(2, MAX_REGIONS), (3, MAX_REGIONS + 1)] {
        assert_eq!(testbed.objects(user.file())[server].last().unwrap().0, log, "on the SSD");
    }
    assert_eq!(findings(&user), 0, "logs are known objects");
    // The same for another, who may only read.
    let reader = testbed.client();
    let opened = reader.open(user.file(), File::open(testbed.data("f")).unwrap()).unwrap();
    let (table, _) = ask_for_fragments(&reader, &opened);
    assert!(!table.is_writable());
    user.write_small(0, &range(1, 70, 9), 5);
    assert_eq!(table.log(ServerId(0)).unwrap().sets.all().count(), 1);
}

#[test]
fn a_flush_writes_everything_to_the_disks() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start_with(leaves_logs());
    let mut user = User::create(&testbed, "f");
    user.write_small(0, &range(0, 100, 300), 1);
    user.write_small(0, &range(0, 400, 300), 2);
    user.write_small(0, &range(2, 5, 700), 3);
    user.write_small(1, &range(1, 8000, 1000), 4);
    assert!(user.table.is_dirtied());
    // Over a part of two entries and of neither.
    user.write(0, &range(0, 350, 3000), &[7; 3000], WriteChoice::Disk);
    user.flush().unwrap();
    user.check_disks();
    assert_eq!((user.newer(), user.count(State::Clean)), (0, 4));
    assert!(!user.table.is_dirtied());
    let unsynced = |region| user.opened.extent.unsynced(RegionIndex(region)).is_some();
    assert!(unsynced(0) && unsynced(1) && unsynced(2), "what was written back is yet to be synced");
    assert_eq!(user.hints.counted(ServerId(0), Counter::WrittenBackBytes), 300 + 300 + 700);
    // Clean ones serve readers, and take writes.
    user.check_read(0, &range(2, 5, 700));
    user.write(0, &range(2, 50, 10), &[9; 10], WriteChoice::Present);
    assert_eq!(user.newer(), 1);
    user.flush().unwrap();
    user.check_disks();
    user.flush().unwrap();
}

#[test]
fn a_sync_of_all_files_writes_fragments_to_the_disks() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start_with(leaves_logs());
    let mut users = ["f", "g"].map(|name| User::create(&testbed, name));
    users.iter_mut().for_each(|user| user.write_small(0, &range(0, 100, 300), 1));
    // By a program that has none of them open.
    testbed.client().ask(Request::SyncAll).unwrap();
    for user in &users {
        user.check_disks();
        assert_eq!(user.newer(), 0);
    }
}

#[test]
fn what_nobody_writes_any_more_is_written_back_by_itself() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    (0..4).for_each(|region| user.write_small(1, &range(region, 3 * u64::from(region), 500), 8));
    until("quiet disks are written", || user.newer() == 0 && !user.table.is_dirtied());
    user.check_disks();
    // With the last writer's close it does not even wait for that.
    user.write_small(0, &range(0, 0, 10), 1);
    user.opened.slots.drop_user(user.client.claim.unwrap().0);
    user.client.ask(Request::Close { file: user.file() }).unwrap();
    until("a closed file is flushed", || user.newer() == 0);
    user.check_disks();
}

#[test]
fn what_was_read_is_copied_in() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    user.write(0, &range(3, 0, 6000), &[6; 6000], WriteChoice::Disk);
    let suggest = |disk, range, class| user.hints.suggest(&Suggestion { disk: ServerId(disk), range, class });
    // What makes no sense is passed over.
    for wrong in [range(9, 0, 10), range(1, OBJECT as u64 - 5, 10), range(1, 0, 5000), range(1, 0, 0)] {
        suggest(0, wrong, Class::Random);
    }
    suggest(2, range(3, 0, 10), Class::Random);
    suggest(77, range(3, 0, 10), Class::Random);
    suggest(0, range(3, 5990, 100), Class::Fragment);
    // Beyond the objects' ends there are zeros.
    suggest(1, range(2, 50, 900), Class::Random);
    suggest(1, range(2, 900, 100), Class::Random);
    let copied = |disk| user.hints.counted(ServerId(disk), Counter::CopiedIn);
    until("two are copied in", || copied(0) == 1 && copied(1) == 1);
    assert_eq!((user.count(State::Clean), user.entries(0)[0].range), (2, range(3, 5990, 100)));
    assert_eq!(user.entries(0)[0].class, Class::Fragment);
    user.check_read(0, &range(3, 5990, 100));
    user.check_read(1, &range(2, 60, 100));
    assert_eq!(user.newer(), 0);
}

#[test]
fn a_successor_takes_logs_over_while_programs_go_on() {
    let testbed = Testbed::with_fragments(64);
    let broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    user.write_small(0, &range(0, 100, 300), 1);
    broker.stop();
    assert_eq!(user.newer(), 0, "an orderly stop writes back");
    user.check_disks();
    user.write_small(0, &range(0, 200, 50), 2);
    user.write_small(1, &range(3, 200, 50), 3);
    let broker = testbed.start();
    user.connect_again();
    assert_eq!(user.opened.control.notices().fragments(), FragmentMode::On);
    user.write_small(1, &range(3, 1200, 50), 4);
    user.flush().unwrap();
    user.check_disks();
    assert_eq!((user.newer(), findings(&user)), (0, 0));
    let (table, _) = ask_for_fragments(&user.client, &user.opened);
    assert_eq!(table.log(ServerId(1)).unwrap().sets.all().count(), 2, "the same table");
    drop(broker);
}

#[test]
fn after_another_boot_logs_are_void() {
    let testbed = Testbed::with_fragments(64);
    let broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    user.write_small(0, &range(0, 100, 300), 1);
    user.flush().unwrap();
    broker.stop();
    user.write_unnoted(0, &range(0, 150, 100), &[9; 100], WriteChoice::Present);
    let file = user.file();
    assert!(user.has_log_object(0) && user.has_log_object(1));
    let mut host = stripewise_store::state::HostIdentity::of_this_host().unwrap();
    host.boot[0] ^= 1;
    let _broker = testbed.start_with(BrokerOptions { host: Some(host), ..BrokerOptions::default() });
    assert!(!user.has_log_object(0) && !user.has_log_object(1));
    assert!(!testbed.cluster.state.join(format!("run/{file}.frag")).exists());
    user.check_disks();
    let client = testbed.client();
    let opened = client.open(file, &user.stub).unwrap();
    assert_eq!(opened.control.notices().fragments(), FragmentMode::Wanted);
    let (table, _) = ask_for_fragments(&client, &opened);
    assert_eq!(table.log(ServerId(0)).unwrap().sets.all().count(), 0);
    assert_ne!(table.log(ServerId(0)).unwrap().generation, user.log(0).generation);
}

#[test]
fn truncation_cuts_logs() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    // The new end is in region 1; its objects on the disks keep 4096 + 100 and 4096 bytes.
    let size = REGION + 4 * 4096 + 100;
    for (disk, at) in [
        (0, range(0, 500, 500)),
        (0, range(1, 4000, 100)),
        (0, range(1, 4150, 100)),
        (0, range(1, 5000, 100)),
        (0, range(2, 0, 100)),
        (1, range(1, 4096, 10)),
        (1, range(3, 7, 10)),
    ] {
        user.write_small(disk, &at, 5);
    }
    user.client.ask(Request::Truncate { file: user.file(), size_bytes: size, number: 0 }).unwrap();
    let left: HashSet<_> =
        [0, 1].into_iter().flat_map(|disk| user.entries(disk)).map(|seen| seen.range.offset.0).collect();
    assert_eq!(left, [500, 4000].into());
    user.client
        .ask(Request::Truncate { file: user.file(), size_bytes: u64::from(REGIONS) * REGION, number: 0 })
        .unwrap();
    user.client.place(user.file(), 0, REGIONS - 1).unwrap();
    for ((disk, region), bytes) in &mut user.model {
        let end = match (disk.0, region) {
            (_, 0) => OBJECT,
            (0, 1) => 4096 + 100,
            (1, 1) => 4096,
            _ => 0,
        };
        bytes[end..].fill(0);
    }
    for disk in 0..2 {
        (0..REGIONS).for_each(|region| user.check_read(disk, &range(region, 0, OBJECT as u64)));
    }
    user.flush().unwrap();
    user.check_disks();
    assert_eq!(findings(&user), 0);
}

#[test]
fn a_region_moves_with_what_its_logs_hold() {
    let testbed = Testbed::with_fragments(64);
    let broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    user.write_small(0, &range(1, 100, 300), 1);
    user.write_small(1, &range(1, 100, 300), 2);
    user.write_small(0, &range(2, 100, 300), 3);
    // The same servers the other way round, so that each object comes to hold what another did.
    let layout = Layout::new([1, 0, 3, 2].map(|server| (ServerId(server), 4096))).unwrap();
    let order = MoveOrder { file: user.file(), first: RegionIndex(1), last: RegionIndex(1), layout };
    broker.queue_moves(&[order]).unwrap();
    until("the region has moved", || broker.move_totals().done == 1);
    let ones = user.model.remove(&(ServerId(0), 1)).unwrap();
    let twos = user.model.insert((ServerId(1), 1), ones).unwrap();
    user.model.insert((ServerId(0), 1), twos);
    assert_eq!(user.entries(0).iter().map(|seen| seen.range.region.0).collect::<Vec<_>>(), [2]);
    assert!(user.entries(1).is_empty());
    user.check_read(0, &range(1, 0, 500));
    user.check_read(1, &range(1, 0, 500));
    // Its logs are used again.
    user.write_small(0, &range(1, 100, 300), 4);
    assert_eq!(user.entries(0).len(), 2);
    user.flush().unwrap();
    user.check_disks();
}

/// More than there is space for: the rest goes to the disks, and room is made by what was used least recently.
#[test]
fn slots_are_granted_and_given_up() {
    let testbed = Testbed::with_fragments(16);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    for number in 0..200u32 {
        let at = range(number % REGIONS, u64::from(number / REGIONS) * 300, 300);
        until("a slot is free", || user.log(0).sets.free_slots() > 0);
        user.write_small(0, &at, number as u8);
        // Where it took the last slot, it may have been written back and given up at once, since it was not used yet.
        match user.entries(0).iter().find(|seen| seen.range == at) {
            Some(seen) => user.hints.touch(ServerId(0), seen, number),
            None => {
                let begin = at.offset.0 as usize;
                assert_eq!(user.on_disk(0, at.region.0)[begin..begin + 300], [number as u8; 300], "{number}");
            }
        }
    }
    assert!(user.table.granted(ServerId(0)) <= 16 && user.entries(0).len() <= 16);
    user.flush().unwrap();
    user.check_disks();
}

#[test]
fn files_share_the_room() {
    let testbed = Testbed::with_fragments(16);
    let _broker = testbed.start();
    let mut first = User::create(&testbed, "f");
    for number in 0..16u32 {
        until("a slot is free", || first.log(0).sets.free_slots() > 0);
        first.write_small(0, &range(number % REGIONS, u64::from(number) * 300, 300), 1);
    }
    let mut second = User::create(&testbed, "g");
    for number in 0..16u32 {
        until("a slot is free", || second.log(0).sets.free_slots() > 0);
        second.write_small(0, &range(number % REGIONS, u64::from(number) * 300, 300), 2);
        // A slot may go from one to the other between both readings.
        until("no more slots are granted than there are", || {
            first.table.granted(ServerId(0)) + second.table.granted(ServerId(0)) <= 16
        });
    }
    for user in [&first, &second] {
        user.flush().unwrap();
        user.check_disks();
    }
}

/// Fails writes to one server, or reads, while it is told to.
struct Failing {
    server: &'static str,
    writes: Arc<AtomicBool>,
    reads: Arc<AtomicBool>,
}

impl Hook for Failing {
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError> {
        let fails = match call {
            Call::Write(..) => self.writes.load(Ordering::SeqCst),
            Call::Read(..) => self.reads.load(Ordering::SeqCst),
            _ => false,
        };
        if fails && server == self.server {
            let (server, action) = (server.to_owned(), "doing what a test forbids");
            return Err(ServerError::Os { server, action, source: rustix::io::Errno::IO });
        }
        Ok(usize::MAX)
    }
}

#[test]
fn a_failing_disk_or_ssd_loses_nothing() {
    for (server, is_write) in [("hdd0", true), ("ssd0", false)] {
        let testbed = Testbed::with_fragments(64);
        let (writes, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let hook = {
            let (writes, reads) = (Arc::clone(&writes), Arc::clone(&reads));
            move |_: &str| Failing { server, writes: Arc::clone(&writes), reads: Arc::clone(&reads) }
        };
        let broker = testbed.start_with(BrokerOptions { wrap_server: Some(wrap(hook)), ..leaves_logs() });
        let mut user = User::create(&testbed, "f");
        if is_write { &writes } else { &reads }.store(true, Ordering::SeqCst);
        user.write_small(0, &range(0, 100, 300), 1);
        user.write_small(1, &range(0, 100, 300), 2);
        let refused = user.flush();
        assert!(matches!(&refused, Err(Refusal::Server { server: named, .. }) if named == server), "{refused:?}");
        assert!(user.table.is_dirtied(), "the next fsync asks again");
        assert_eq!((user.entries(0)[0].state(), user.entries(1)[0].state()), (State::Dirty, State::Clean));
        user.check_read(0, &range(0, 0, 500));
        // A cut of what only the log has is refused, without effect; a move is tried again.
        let size_bytes = 200;
        let truncated = user.client.ask(Request::Truncate { file: user.file(), size_bytes, number: 0 });
        assert!(matches!(&truncated, Err(Refusal::Server { .. })), "{truncated:?}");
        assert_eq!(user.opened.extent.size_bytes(), u64::from(REGIONS) * REGION);
        user.check_read(0, &range(0, 0, 500));
        writes.store(false, Ordering::SeqCst);
        reads.store(false, Ordering::SeqCst);
        user.flush().unwrap();
        user.check_disks();
        drop(broker);
    }
}

#[test]
fn a_file_without_a_server_for_its_logs_is_used_without() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let (opened, _stub) = client.create(&testbed.data("f")).unwrap();
    client.place(opened.file, 0, 0).unwrap();
    let away = testbed.server_directory(3).with_extension("away");
    std::fs::rename(testbed.server_directory(3), &away).unwrap();
    assert_eq!(client.ask(Request::Fragments { file: opened.file }), Ok(Reply::Done));
    assert_eq!(opened.control.notices().fragments(), FragmentMode::Off);
    std::fs::rename(&away, testbed.server_directory(3)).unwrap();
    // Switched on again, it has them.
    client.ask(Request::Admin(Admin::SetFragments { file: opened.file, on: Some(true) })).unwrap();
    ask_for_fragments(&client, &opened);
    assert_eq!(testbed.objects(opened.file)[2].iter().filter(|(region, ..)| *region >= MAX_REGIONS).count(), 1);
}

#[test]
fn a_log_that_is_lost_is_found_and_replaced() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    let remove = |user: &User<'_>, disk: u16| {
        let log = user.log(disk);
        let object = format!("stripewise-objects/{}/{}.{}", user.file(), MAX_REGIONS + u32::from(disk), log.generation);
        std::fs::remove_file(testbed.server_directory(usize::from(log.on.0)).join(object)).unwrap();
    };
    user.write_small(0, &range(0, 100, 300), 1);
    user.flush().unwrap();
    // Not written back, as long as its writer is inside.
    let left = user.log(1).sets.publish(&range(2, 0, 10), Class::Random).unwrap();
    assert!(user.log(1).sets.declare(&left, State::Dirty));
    (0..2).for_each(|disk| remove(&user, disk));
    let check = |client: &Client, repair, count, is_repaired| {
        let found = match client.ask(Request::Admin(Admin::Check { repair })).unwrap() {
            Reply::Findings { findings } => findings,
            other => panic!("{other:?}"),
        };
        assert_eq!(found.len(), count, "{found:?}");
        for (finding, (server, lost)) in found.iter().zip([("hdd0", "nothing is lost"), ("hdd1", "1 ranges")]) {
            assert!(finding.what.contains(server) && finding.what.contains(lost), "{finding:?}");
            assert_eq!(finding.repaired, is_repaired);
        }
    };
    check(&user.client, false, 2, false);
    // Who uses the file may go on writing the lost ones.
    check(&user.client, true, 2, false);
    user.opened.slots.drop_user(user.client.claim.unwrap().0);
    user.client.ask(Request::Close { file: user.file() }).unwrap();
    let admin = testbed.client();
    check(&admin, true, 2, true);
    check(&admin, false, 0, false);
    assert!(user.entries(0).is_empty() && user.entries(1).is_empty());
    let mut user = User { model: user.model, ..User::open(&testbed, "f") };
    user.write_small(1, &range(0, 100, 300), 3);
    user.flush().unwrap();
    user.check_disks();
}

/// Replicas stand beside a region without entries only, and a write to such a region may use a log again.
#[test]
fn replicas_are_made_of_what_logs_hold() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    let layout = Layout::new([(ServerId(3), 4096)]).unwrap();
    let wanted = vec![WantedReplicas { first: RegionIndex(0), regions: 2, layout }];
    user.write_small(0, &range(1, 100, 300), 1);
    user.write_small(0, &range(3, 100, 300), 2);
    let admin = |admin| user.client.ask(Request::Admin(admin)).unwrap();
    admin(Admin::SetReplicas { file: user.file(), wanted });
    admin(Admin::SyncReplicas { file: user.file() });
    let fresh = || match admin(Admin::Replicas { file: user.file() }) {
        Reply::Replicas { fresh, .. } => fresh,
        other => panic!("{other:?}"),
    };
    until("both are made", || fresh() == 2);
    assert_eq!(user.entries(0).iter().map(|seen| seen.range.region.0).collect::<Vec<_>>(), [3]);
    // The replica has what the log had: region 1 in stripes of 4096, of which each fourth was server 0's.
    let place = user.opened.generation(1).unwrap();
    let replica = testbed.objects(user.file())[3].iter().find(|object| object.0 == 1 && object.1 != place).copied();
    let (region, generation, _) = replica.expect("the replica's object");
    let object = format!("stripewise-objects/{}/{region}.{generation}", user.file());
    let bytes = std::fs::read(testbed.server_directory(3).join(object)).unwrap();
    assert_eq!((&bytes[100..], bytes[99]), (&[1; 300][..], 0));
    // What is suggested of it meanwhile is not followed.
    let at = range(1, 0, 50);
    user.hints.suggest(&Suggestion { disk: ServerId(0), range: at, class: Class::Random });
    user.hints.suggest(&Suggestion { disk: ServerId(0), range: range(2, 0, 50), class: Class::Random });
    until("the one after it is", || user.entries(0).iter().any(|seen| seen.range.region.0 == 2));
    assert!(user.entries(0).iter().all(|seen| seen.range.region.0 != 1));
    user.client.ask(Request::Pin { file: user.file(), first: at.region, last: at.region }).unwrap();
    assert_eq!(fresh(), 1);
    user.write_small(0, &range(1, 150, 300), 5);
    assert!(user.entries(0).iter().any(|seen| seen.range.region.0 == 1));
    user.flush().unwrap();
    user.check_disks();
}

/// On emulated servers the disk's time is taken as if a program wrote; neighbours are one write.
#[test]
fn writing_back_takes_the_time_of_emulated_disks() {
    let mut testbed = Testbed::with_fragments(64);
    for (number, server) in testbed.cluster.servers.iter_mut().enumerate() {
        let directory = server.url.directory().to_owned();
        let device = if number < 2 { "hdd-7200" } else { "nvme" }.to_owned();
        server.url = EmulatedUrl { device, link: None, time_scale: 0.01, dirty_limit: None }.at(&directory);
    }
    let _broker = testbed.start_with(leaves_logs());
    let mut user = User::create(&testbed, "f");
    for at in [range(0, 100, 300), range(0, 400, 300), range(2, 5, 700)] {
        user.write_small(0, &at, 1);
    }
    user.flush().unwrap();
    user.check_disks();
    let descriptor = File::options().read(true).write(true).open(testbed.cluster.state.join("run/stations")).unwrap();
    let stations = Stations::open(descriptor, 4).unwrap();
    let load = [0, 1, 2].map(|server| stations.server_load(ServerId(server)));
    assert_eq!(load.map(|load| load.sub_requests), [2, 0, 3]);
    let spec = EmulatedSpec::named("hdd-7200", None, 0.01).unwrap();
    let seek = |bytes| spec.device.demand(Direction::Write, bytes, None).serial.0;
    assert_eq!(load[0].device_busy.0, seek(600) + seek(700));
    // A range that was just read is still in the memory of the disk's server.
    user.hints.suggest(&Suggestion { disk: ServerId(0), range: range(1, 0, 50), class: Class::Random });
    until("it is copied in", || user.hints.counted(ServerId(0), Counter::CopiedIn) == 1);
    let load = [0, 1, 2].map(|server| stations.server_load(ServerId(server)).sub_requests);
    assert_eq!(load, [2, 0, 4]);
}

#[test]
fn logs_follow_mode_and_owner_and_are_opened_for_those_who_may() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let user = User::create(&testbed, "f");
    for mode in [0o640, 0o400] {
        std::fs::set_permissions(testbed.data("f"), std::fs::Permissions::from_mode(mode)).unwrap();
        user.client.ask_with(Request::Attributes { file: user.file() }, &[user.stub.as_fd()]).unwrap();
        assert_eq!(user.log_object(0).metadata().unwrap().mode() & 0o777, mode);
        // Whatever the mode is by now, the stub was opened for writing.
        let log = user.log(0);
        let request = Request::OpenObject {
            file: user.file(),
            region: RegionIndex(MAX_REGIONS),
            generation: log.generation,
            server: log.on.0,
        };
        let (reply, mut along) = user.client.ask_with(request, &[]).unwrap();
        assert_eq!(reply, Reply::Object);
        File::from(along.remove(0)).write_all_at(&[1], 0).unwrap();
    }
}
