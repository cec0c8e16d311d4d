use super::*;
use proptest::prelude::*;
use stripewise_device::{DEVICES, DiskPlace, ExtentId, StationState, lookup_device, lookup_link};
use stripewise_layout::{Direction, ObjectOffset};

fn access(direction: Direction, extent: u64, offset: u64, bytes: u64) -> Access {
    let place = DiskPlace { extent: ExtentId(extent), after: None, offset: ObjectOffset(offset) };
    Access { direction, place, bytes }
}

pub(super) fn stations(directory: &tempfile::TempDir, servers: usize) -> (OwnedFd, Stations) {
    let file = Stations::establish(&directory.path().join("stations"), servers).unwrap();
    let stations = Stations::open(&file, servers).unwrap();
    (file, stations)
}

proptest! {
    /// The words in shared memory, used through two mappings, give to the nanosecond what the plain state of one thread gives.
    #[test]
    fn shared_stations_equal_plain_ones(
        accesses in prop::collection::vec(
            (0..2u16, 0..30_000_000u64, any::<bool>(), 0..3u64, 0..100u64, 1..5_000_000u64), 1..80),
        devices in prop::sample::subsequence(DEVICES.to_vec(), 2),
        link in prop::option::of(Just(lookup_link("gigabit").unwrap())),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (file, first) = stations(&directory, 2);
        let views = [first, Stations::open(&file, 2).unwrap()];
        let mut plain = [StationState::default(); 2];
        let mut now = 0;
        for (number, (server, pause, write, extent, block, bytes)) in accesses.into_iter().enumerate() {
            now += pause;
            let direction = if write { Direction::Write } else { Direction::Read };
            let access = access(direction, extent, block * 65_536, bytes);
            let device = &devices[usize::from(server)].spec;
            let parts = Parts::DeviceAndLink;
            let shared = views[number % 2].reserve_at(ServerId(server), (device, link.as_ref()), parts, Nanos(now), &access);
            prop_assert_eq!(shared, plain[usize::from(server)].reserve(device, link.as_ref(), Nanos(now), &access));
        }
    }
}

#[test]
fn time_reserved_by_many_threads_is_neither_lost_nor_counted_twice() {
    const THREADS: u64 = 4;
    const EACH: u64 = 5_000;
    let directory = tempfile::tempdir().unwrap();
    let (file, stations) = stations(&directory, 2);
    let (hdd, ssd) = (lookup_device("hdd-7200").unwrap(), lookup_device("sata-ssd-2012").unwrap());
    let link = lookup_link("gigabit").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mine = Stations::open(&file, 2).unwrap();
            let (hdd, ssd, link) = (&hdd, &ssd, &link);
            scope.spawn(move || {
                for number in 0..EACH {
                    // Backwards, so that every access is random to the disk.
                    let access = access(Direction::Read, thread, (EACH - number) << 20, 65_536);
                    mine.reserve_at(ServerId(0), (hdd, Some(link)), Parts::DeviceAndLink, Nanos(0), &access);
                    mine.reserve_at(ServerId(1), (ssd, None), Parts::DeviceAndLink, Nanos(0), &access);
                }
            });
        }
    });
    let one = hdd.demand(Direction::Read, 65_536, None).serial.0;
    let load = stations.server_load(ServerId(0));
    assert_eq!(load.sub_requests, THREADS * EACH);
    assert_eq!(load.device_busy, Nanos(THREADS * EACH * one));
    assert_eq!(load.link_busy, Nanos(THREADS * EACH * link.demand(65_536).0));
    let nothing = access(Direction::Read, 99, 0, 1);
    let parts = Parts::Device;
    let next = stations.reserve_at(ServerId(0), (&hdd, None), parts, Nanos(0), &nothing).device_end;
    assert_eq!(next, Nanos(THREADS * EACH * one) + hdd.demand(Direction::Read, 1, None).serial);
    let channels: u64 =
        (0..4).map(|channel| stations.server_word(ServerId(1), CHANNELS + channel * 8).load(Relaxed)).sum();
    assert_eq!(channels, THREADS * EACH * ssd.demand(Direction::Read, 1, None).channel.0);
}

#[test]
fn parts_pass_only_their_stations() {
    let directory = tempfile::tempdir().unwrap();
    let (_, stations) = stations(&directory, 1);
    let (device, link) = (lookup_device("sata-ssd-2012").unwrap(), lookup_link("gigabit").unwrap());
    let access = access(Direction::Write, 1, 0, 1_000_000);
    let demand = device.demand(Direction::Write, 1_000_000, None);
    let reserve = |parts| stations.reserve_at(ServerId(0), (&device, Some(&link)), parts, Nanos(7), &access).end;
    assert_eq!(reserve(Parts::Link), Nanos(7) + link.demand(1_000_000));
    assert_eq!(reserve(Parts::Device), Nanos(7) + demand.channel + demand.serial);
}

#[test]
fn a_successor_takes_over_the_clocks_of_this_boot_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stations");
    let (_, before) = stations(&directory, 3);
    before.server_word(ServerId(2), LINK).store(77, Relaxed);
    let (file, after) = stations(&directory, 3);
    assert_eq!(after.server_word(ServerId(2), LINK).load(Relaxed), 77);
    assert!(matches!(Stations::open(&file, 4), Err(StationsError::Servers { found: 3, expected: 4 })));

    after.map.word(BOOT_AT).fetch_xor(1, Relaxed);
    assert!(matches!(Stations::open(&file, 3), Err(StationsError::Boot)));
    let (_, stations_again) = stations(&directory, 3);
    assert_eq!(stations_again.server_word(ServerId(2), LINK).load(Relaxed), 0, "clocks of another boot are worthless");
    assert_eq!(after.server_word(ServerId(2), LINK).load(Relaxed), 77, "who still maps the old file is not disturbed");

    let (_, larger) = stations(&directory, 5);
    assert_eq!(larger.servers, 5);
    std::fs::write(&path, b"short").unwrap();
    let short = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    assert!(matches!(Stations::open(&short, 5), Err(StationsError::Version)));
    larger.map.word(0).store(0, Relaxed);
    assert_eq!(stations(&directory, 5).1.servers, 5);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
}
