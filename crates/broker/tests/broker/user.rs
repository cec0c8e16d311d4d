//! A program that reads and writes parts of requests on disks with logs, as the data path would, and remembers what they should hold.

use crate::cluster::{Client, Opened, REGION, Testbed};
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use stripewise_layout::{Direction, FileId, Generation, ObjectOffset, RegionIndex, ServerId};
use stripewise_store::protocol::{Refusal, Reply, Request};
use stripewise_store::shared::control::{FragmentMode, MAX_REGIONS, RegionState};
use stripewise_store::shared::fragments::hints::Hints;
use stripewise_store::shared::fragments::table::{FragmentTable, Log};
use stripewise_store::shared::fragments::{Class, DiskRange, ReadPlan, Seen, State, WriteChoice, WritePlan};
use stripewise_store::shared::marking::Motion;
use stripewise_store::shared::slots::InFlight;
use stripewise_store::stub::Stub;

/// Bytes of a region's object on each server of a testbed.
pub const OBJECT: usize = REGION as usize / 4;
pub const REGIONS: u32 = 4;

pub struct User<'a> {
    pub testbed: &'a Testbed,
    pub client: Client,
    pub opened: Opened,
    pub stub: File,
    pub table: FragmentTable,
    pub hints: Hints,
    /// What each disk's object of each region should hold.
    pub model: HashMap<(ServerId, u32), Vec<u8>>,
}

pub fn range(region: u32, offset: u64, length: u64) -> DiskRange {
    DiskRange { region: RegionIndex(region), offset: ObjectOffset(offset), length }
}

/// The memory of a file's fragments, as a client gets it.
pub fn ask_for_fragments(client: &Client, opened: &Opened) -> (FragmentTable, Hints) {
    let (reply, along) = client.ask_with(Request::Fragments { file: opened.file }, &[]).unwrap();
    assert_eq!(reply, Reply::Fragments);
    let [table, hints] = <[OwnedFd; 2]>::try_from(along).unwrap();
    let table = FragmentTable::open(&table, opened.file, opened.writable).unwrap();
    let hints = Hints::open(&hints, 4, &table).unwrap();
    (table, hints)
}

impl<'a> User<'a> {
    /// Of a new file of [`REGIONS`] regions over all servers.
    pub fn create(testbed: &'a Testbed, name: &str) -> Self {
        testbed.manage_data();
        let mut client = testbed.client();
        let (slot, incarnation) = client.claim();
        let (opened, stub) = client.create(&testbed.data(name)).unwrap();
        opened.slots.add_user(slot, incarnation).unwrap();
        client.place(opened.file, 0, REGIONS - 1).unwrap();
        opened.extent.extend_to(u64::from(REGIONS) * REGION);
        assert_eq!(opened.control.notices().fragments(), FragmentMode::Wanted);
        let (table, hints) = ask_for_fragments(&client, &opened);
        assert_eq!(opened.control.notices().fragments(), FragmentMode::On);
        let model = [0, 1].into_iter().flat_map(|disk| (0..REGIONS).map(move |region| (ServerId(disk), region)));
        let model = model.map(|key| (key, vec![0; OBJECT])).collect();
        Self { testbed, client, opened, stub, table, hints, model }
    }

    /// Of a file that is there, as another program.
    pub fn open(testbed: &'a Testbed, name: &str) -> Self {
        let mut client = testbed.client();
        let (slot, incarnation) = client.claim();
        let stub = File::options().read(true).write(true).open(testbed.data(name)).unwrap();
        let said = Stub::parse(&std::fs::read(testbed.data(name)).unwrap()).unwrap().unwrap();
        let opened = client.open(said.file, &stub).unwrap();
        opened.slots.add_user(slot, incarnation).unwrap();
        let (table, hints) = ask_for_fragments(&client, &opened);
        Self { testbed, client, opened, stub, table, hints, model: HashMap::new() }
    }

    /// The server that has turn `turn` in a region; `None`: the region has no place.
    pub fn server_of(&self, turn: u16, region: u32) -> Option<u16> {
        match self.opened.control.regions().get(RegionIndex(region)) {
            RegionState::Placed { view, .. } => Some(view.stripes()[usize::from(turn)].server.0),
            RegionState::Absent => None,
        }
    }

    /// Says hello to the broker that serves now, as a client does whose broker is gone.
    pub fn connect_again(&mut self) {
        let claim = self.client.claim.take();
        let processes = self.client.processes.take();
        self.client = self.testbed.client();
        (self.client.claim, self.client.processes) = (claim, processes);
        let (slot, incarnation) = claim.unwrap();
        self.client.ask(Request::Claimed { slot: slot.0, incarnation: incarnation.0 }).unwrap();
        self.opened = self.client.open(self.opened.file, &self.stub).unwrap();
    }

    pub fn file(&self) -> FileId {
        self.opened.file
    }

    pub fn log(&self, disk: u16) -> Log<'_> {
        self.table.log(ServerId(disk)).unwrap()
    }

    pub fn entries(&self, disk: u16) -> Vec<Seen> {
        self.log(disk).sets.all().collect()
    }

    pub fn count(&self, state: State) -> usize {
        [0, 1].into_iter().flat_map(|disk| self.entries(disk)).filter(|seen| seen.state() == state).count()
    }

    pub fn newer(&self) -> usize {
        self.count(State::Dirty) + self.count(State::Flushing)
    }

    fn path(&self, server: ServerId, region: u32, generation: Generation) -> PathBuf {
        let object = format!("stripewise-objects/{}/{region}.{generation}", self.file());
        self.testbed.server_directory(usize::from(server.0)).join(object)
    }

    pub fn object(&self, server: ServerId, region: u32, generation: Generation) -> File {
        let path = self.path(server, region, generation);
        File::options().read(true).write(true).open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub fn log_object(&self, disk: u16) -> File {
        let log = self.log(disk);
        self.object(log.on, MAX_REGIONS + u32::from(disk), log.generation)
    }

    pub fn has_log_object(&self, disk: u16) -> bool {
        let log = self.log(disk);
        self.path(log.on, MAX_REGIONS + u32::from(disk), log.generation).exists()
    }

    /// Waits for its turn and takes a lane in which the region may be accessed.
    fn inside<T>(&self, direction: Direction, region: u32, act: impl FnOnce(Generation, Motion) -> T) -> T {
        let (slot, _) = self.client.claim.unwrap();
        let what = InFlight { direction, first: RegionIndex(region), last: RegionIndex(region) };
        loop {
            let lane = self.opened.slots.occupy(slot, 0, what).unwrap();
            if !self.opened.control.gate().is_shut()
                && let RegionState::Placed { generation, motion, .. } =
                    self.opened.control.regions().get(RegionIndex(region))
                && !(direction == Direction::Write && matches!(motion, Motion::Sealed(_)))
            {
                let result = act(generation, motion);
                lane.free();
                return result;
            }
            lane.free();
            std::thread::yield_now();
        }
    }

    /// Writes a part on its disk or in a log; does not remember it.
    pub fn write_unnoted(&self, disk: u16, at: &DiskRange, bytes: &[u8], choice: WriteChoice) {
        assert_eq!(at.length as usize, bytes.len());
        self.inside(Direction::Write, at.region.0, |generation, motion| {
            let mark = || {
                if let Motion::Moving(slot) = motion {
                    self.opened.extent.marks(slot).mark(0..=usize::MAX);
                }
            };
            let choice = if motion == Motion::Still { choice } else { WriteChoice::Disk };
            mark();
            self.opened.extent.begin_write(at.region);
            self.write_inside(disk, at, bytes, choice, generation);
            self.opened.extent.end_write(at.region);
            mark();
        });
    }

    fn write_inside(&self, disk: u16, at: &DiskRange, bytes: &[u8], mut choice: WriteChoice, generation: Generation) {
        let sets = self.log(disk).sets;
        loop {
            match sets.plan_write(at, choice) {
                WritePlan::Slot(seen) => {
                    self.write_slot(disk, at, bytes, &seen);
                    return self.table.note_dirtied();
                }
                WritePlan::Fill(seen) => {
                    self.write_slot(disk, at, bytes, &seen);
                    if sets.declare(&seen, State::Dirty) {
                        return self.table.note_dirtied();
                    }
                    sets.free_slot(seen.slot);
                    choice = WriteChoice::Present;
                }
                WritePlan::Disk(newer) => {
                    newer.iter().for_each(|seen| self.write_slot(disk, at, bytes, seen));
                    self.object(ServerId(disk), at.region.0, generation).write_all_at(bytes, at.offset.0).unwrap();
                    if !newer.is_empty() {
                        self.table.note_dirtied();
                    }
                    return;
                }
            }
        }
    }

    pub fn write_slot(&self, disk: u16, at: &DiskRange, bytes: &[u8], seen: &Seen) {
        let (first, end) = (at.offset.0.max(seen.range.offset.0), at.end().min(seen.range.end()));
        let part = &bytes[(first - at.offset.0) as usize..(end - at.offset.0) as usize];
        let place = u64::from(seen.slot) * 4096 + (first - seen.range.offset.0);
        self.log_object(disk).write_all_at(part, place).unwrap();
    }

    pub fn write(&mut self, disk: u16, at: &DiskRange, bytes: &[u8], choice: WriteChoice) {
        self.write_unnoted(disk, at, bytes, choice);
        let object = self.model.get_mut(&(ServerId(disk), at.region.0)).unwrap();
        object[at.offset.0 as usize..at.end() as usize].copy_from_slice(bytes);
    }

    /// Bytes that a log takes, all the same.
    pub fn write_small(&mut self, disk: u16, at: &DiskRange, byte: u8) {
        self.write(disk, at, &vec![byte; at.length as usize], WriteChoice::Add(Class::Random));
    }

    pub fn read(&self, disk: u16, at: &DiskRange) -> Vec<u8> {
        loop {
            let read =
                self.inside(Direction::Read, at.region.0, |generation, _| self.read_inside(disk, at, generation));
            if let Some(bytes) = read {
                return bytes;
            }
        }
    }

    /// `None`: the region has another place by now.
    fn read_inside(&self, disk: u16, at: &DiskRange, generation: Generation) -> Option<Vec<u8>> {
        let sets = self.log(disk).sets;
        let mut bytes = vec![0; at.length as usize];
        let read_slot = |bytes: &mut [u8], seen: &Seen| {
            let (first, end) = (at.offset.0.max(seen.range.offset.0), at.end().min(seen.range.end()));
            let part = &mut bytes[(first - at.offset.0) as usize..(end - at.offset.0) as usize];
            let place = u64::from(seen.slot) * 4096 + (first - seen.range.offset.0);
            // One that was taken away meanwhile may end earlier.
            let _ = self.log_object(disk).read_at(part, place).unwrap();
        };
        loop {
            let (is_whole, slots) = match sets.plan_read(at) {
                ReadPlan::Slot(seen) => (true, vec![seen]),
                ReadPlan::Disk(newer) => (false, newer),
            };
            if !slots.is_empty() && self.opened.generation(at.region.0) != Some(generation.0) {
                return None;
            }
            bytes.fill(0);
            if !is_whole {
                let object = self.object(ServerId(disk), at.region.0, generation);
                let _ = object.read_at(&mut bytes, at.offset.0).unwrap();
            }
            slots.iter().for_each(|seen| read_slot(&mut bytes, seen));
            if slots.iter().all(|seen| sets.still_holds(seen)) {
                return Some(bytes);
            }
        }
    }

    pub fn check_read(&self, disk: u16, at: &DiskRange) {
        let expected = &self.model[&(ServerId(disk), at.region.0)][at.offset.0 as usize..at.end() as usize];
        assert!(self.read(disk, at) == expected, "server {disk}, {at:?}");
    }

    pub fn flush(&self) -> Result<(), Refusal> {
        self.client.ask(Request::Flush { file: self.file() }).map(drop)
    }

    /// As a program does before it says that it closes a file without a name.
    pub fn close_stub(&mut self) {
        self.stub = File::open("/dev/null").unwrap();
    }

    /// What the disk itself holds of a region's object.
    pub fn on_disk(&self, disk: u16, region: u32) -> Vec<u8> {
        let RegionState::Placed { generation, .. } = self.opened.control.regions().get(RegionIndex(region)) else {
            panic!("region {region} has no place")
        };
        let mut bytes = vec![0; OBJECT];
        let _ = self.object(ServerId(disk), region, generation).read_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// The disks hold what they should, logs or not.
    pub fn check_disks(&self) {
        for ((disk, region), expected) in &self.model {
            assert!(self.on_disk(disk.0, *region) == *expected, "server {disk}, region {region}");
        }
    }
}

/// Waits until `is_so`; a broker that never does it fails the test.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}
