//! Buffered writes to emulated servers: taken in at once, and written back at the device's speed in the order of the disk.
//!
//! A server with a dirty limit behaves as a page cache before it. A buffered write is noted in a log that all processes share (`stations::dirty`) and
//! returns. Once half of the limit is dirty, the write that finds it so has everything written back: adjacent and overlapping pages are joined, and the
//! runs reserve device and link one after the other, sorted by object and offset as an elevator goes. Nobody waits for that until a further
//! half is dirty too: then writes wait for the write-back before the last one. So at most the limit is dirty, half of it noted and half on its way.
//! A sync has its object's pages written back and waits for them, and for what was on its way before.
//!
//! There is no thread behind it, so nothing is written back for its age. The bytes themselves are in the directory below all the time.

use super::{EmulatedServer, Reserved, disk_place};
use crate::server::clock::{Clock, Monotonic};
use crate::server::pace::with_thread;
use crate::server::stations::{DirtyPages, Pace, Parts, bytes_of};
use crate::server::{ObjectName, is_moved, ordinal};
use std::cmp::Reverse;
use stripewise_device::{Access, Nanos};
use stripewise_layout::{Direction, ObjectOffset};

/// Most pages that are written back by one access: 1 MiB, so that device and link work at once.
const MAX_RUN_PAGES: u32 = 256;

/// Where an object's page lies on the disk, to sort by: a file's regions in order, then those that were moved, in the order of their moves.
fn position(pages: &DirtyPages) -> (u64, bool, u32, u32, u32) {
    let ObjectName { file, region, generation } = pages.object;
    let place = if is_moved(generation) { ordinal(generation) } else { region.0 };
    (file.0, is_moved(generation), place, generation.0, pages.first)
}

/// Runs of dirty pages in the order of the disk, each page once, none longer than one access.
fn runs(mut dirty: Vec<DirtyPages>) -> Vec<DirtyPages> {
    dirty.sort_unstable_by_key(|pages| (position(pages), Reverse(pages.count)));
    let mut runs: Vec<DirtyPages> = Vec::new();
    for pages in dirty {
        match runs.last_mut() {
            Some(run) if run.object == pages.object && run.end() >= pages.first => {
                run.count = run.end().max(pages.end()) - run.first;
            }
            _ => runs.push(pages),
        }
    }
    let accesses = |run: DirtyPages| {
        let firsts = (run.first..run.end()).step_by(MAX_RUN_PAGES as usize);
        firsts.map(move |first| DirtyPages { first, count: (run.end() - first).min(MAX_RUN_PAGES), ..run })
    };
    runs.into_iter().flat_map(accesses).collect()
}

impl<S> EmulatedServer<S> {
    /// A buffered write: when it counts as issued, and until when its process waits. `None`: it is not taken in, and costs what a direct one does.
    pub fn write_buffered(&self, object: ObjectName, offset: ObjectOffset, length: u64) -> Option<Reserved> {
        let limit_bytes = self.spec.dirty_limit_bytes?;
        if length == 0 || self.stations.pace() == Pace::Host {
            return None;
        }
        let pages = DirtyPages::of(object, offset.0, length)?;
        let issue = with_thread(|pacer| pacer.issue(&Monotonic, &self.stations));
        if !self.stations.note_dirty(self.server, &pages) {
            self.write_back_all(issue);
            if !self.stations.note_dirty(self.server, &pages) {
                return None;
            }
        }
        if self.stations.is_dirty_beyond(self.server, limit_bytes / 2) {
            self.write_back_all(issue);
        }
        let [before, _] = self.stations.write_back_ends(self.server);
        Some(Reserved { issue, end: before.max(issue) })
    }

    /// Has what is dirty of the object written back; returns from when to when that takes. `None` where nothing is taken in.
    pub fn write_back(&self, object: ObjectName) -> Option<Reserved> {
        self.spec.dirty_limit_bytes?;
        if self.stations.pace() == Pace::Host {
            return None;
        }
        let issue = Monotonic.now();
        self.write_back_where(issue, |dirty| *dirty == object);
        let [_, last] = self.stations.write_back_ends(self.server);
        Some(Reserved { issue, end: last.max(issue) })
    }

    fn write_back_all(&self, issue: Nanos) {
        self.write_back_where(issue, |_| true);
    }

    fn write_back_where(&self, issue: Nanos, wanted: impl Fn(&ObjectName) -> bool) {
        let stations = (&self.spec.device, self.spec.link.as_ref());
        let mut end = None;
        for run in runs(self.stations.take_dirty(self.server, wanted)) {
            let place = disk_place(run.object, ObjectOffset(bytes_of(run.first)));
            let access = Access { direction: Direction::Write, place, bytes: bytes_of(run.count) };
            let reserved = self.stations.reserve_at(self.server, stations, Parts::DeviceAndLink, issue, &access);
            end = end.max(Some(reserved.end));
        }
        if let Some(end) = end {
            self.stations.note_write_back(self.server, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::EmulatedSpec;
    use super::super::tests::{object, server};
    use super::*;
    use crate::server::directory::DirectoryServer;
    use crate::server::stations::Stations;
    use crate::server::{DeviceTime, moved_generation};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use stripewise_layout::{RequestKind, ServerId, WriteClass};

    const MIB: u64 = 1 << 20;
    const BUFFERED: RequestKind = RequestKind::Write(WriteClass::Buffered);

    fn caching(root: &tempfile::TempDir, limit_bytes: u64) -> (EmulatedServer<DirectoryServer>, Arc<Stations>) {
        let spec = EmulatedSpec::named("hdd-7200", None, 1.0).unwrap();
        server(root, EmulatedSpec { dirty_limit_bytes: Some(limit_bytes), ..spec })
    }

    /// Nanoseconds that the device is busy with what `act` does.
    fn busy_ns(stations: &Stations, act: impl FnOnce()) -> u64 {
        let before = stations.server_load(ServerId(0)).device_busy.0;
        act();
        stations.server_load(ServerId(0)).device_busy.0 - before
    }

    proptest! {
        #[test]
        fn runs_hold_every_dirty_page_once_in_order(
            dirty in prop::collection::vec((0..3u32, any::<bool>(), 0..2000u32, 1..700u32), 0..60)
        ) {
            let dirty: Vec<DirtyPages> = dirty
                .into_iter()
                .map(|(region, moved, first, count)| {
                    let generation = if moved { moved_generation(7 - region).0 } else { 1 };
                    DirtyPages { object: object(region, generation), first, count }
                })
                .collect();
            let pages_of = |all: &[DirtyPages]| -> Vec<_> {
                all.iter().flat_map(|of| (of.first..of.end()).map(|page| DirtyPages { first: page, count: 1, ..*of }))
                    .map(|page| position(&page)).collect()
            };
            let expected: BTreeSet<_> = pages_of(&dirty).into_iter().collect();
            let found = runs(dirty);
            prop_assert!(found.iter().all(|run| run.count <= MAX_RUN_PAGES));
            prop_assert!(pages_of(&found).into_iter().eq(expected));
        }
    }

    #[test]
    fn buffered_writes_return_at_once_and_a_sync_waits_for_what_is_dirty() {
        let root = tempfile::tempdir().unwrap();
        let (server, stations) = caching(&root, 64 * MIB);
        let spec = server.spec().device;
        let (own, other) = (object(0, 1), object(9, 1));
        // Backwards and twice: the elevator makes one stretch of it.
        let written = busy_ns(&stations, || {
            for offset in (0..16).rev().chain(0..16) {
                assert_eq!(server.reserve(BUFFERED, own, ObjectOffset(offset * 65_536), 65_536), None);
            }
            assert_eq!(server.reserve(BUFFERED, other, ObjectOffset(0), 4096), None);
        });
        assert_eq!(written, 0);
        let begun = Monotonic.now().0;
        let mut due = None;
        let synced = busy_ns(&stations, || due = server.write_back_due(own));
        let expected = spec.demand(Direction::Write, MIB, None).serial.0;
        assert_eq!(synced, expected, "one seek, every page once");
        assert!(due.is_some_and(|due| due >= begun + expected), "{due:?}");
        assert_eq!(busy_ns(&stations, || _ = server.write_back_due(own)), 0, "nothing is dirty any more");
        let of_other = busy_ns(&stations, || _ = server.write_back_due(other));
        assert_eq!(of_other, spec.demand(Direction::Write, 4096, None).serial.0, "still dirty until then");
    }

    /// Direct and synchronous writes wait for the device, and so does everything where no limit was given.
    #[test]
    fn other_writes_are_served_as_they_come() {
        let root = tempfile::tempdir().unwrap();
        let (server, stations) = caching(&root, 64 * MIB);
        for class in [WriteClass::Direct, WriteClass::Synchronous] {
            let busy = busy_ns(&stations, || {
                assert!(server.reserve(RequestKind::Write(class), object(0, 1), ObjectOffset(0), 4096).is_some());
            });
            assert!(busy > 0);
        }
        let root = tempfile::tempdir().unwrap();
        let (plain, stations) = super::super::tests::server(&root, EmulatedSpec::named("hdd-7200", None, 1.0).unwrap());
        assert!(plain.reserve(BUFFERED, object(0, 1), ObjectOffset(0), 4096).is_some());
        assert_eq!(plain.write_back_due(object(0, 1)), None);
        stations.set_pace(Pace::Host);
        assert_eq!(plain.reserve(BUFFERED, object(0, 1), ObjectOffset(0), 4096), None);
    }

    /// Half of the limit goes back without anybody's waiting; who makes a further half dirty meanwhile waits for the first.
    #[test]
    fn writes_wait_once_the_limit_is_dirty() {
        let root = tempfile::tempdir().unwrap();
        let (server, stations) = caching(&root, 8 * MIB);
        let write = |number: u64| server.reserve(BUFFERED, object(number as u32, 1), ObjectOffset(0), MIB);
        assert!((0..4).all(|number| write(number).is_none()));
        assert_eq!(stations.server_load(ServerId(0)).device_busy.0, 0, "half of the limit");
        assert_eq!(write(4), None, "and beyond it what was dirty goes back");
        let first_back = stations.write_back_ends(ServerId(0))[1].0;
        assert!(stations.server_load(ServerId(0)).device_busy.0 > 0 && first_back > 0);
        assert!((5..9).all(|number| write(number).is_none()));
        let (ninth, now) = (write(9), Monotonic.now().0);
        // 5 MiB take 40 ms and more; a host that was away for longer than that shows nothing.
        assert!(ninth == Some(first_back) || now >= first_back, "{ninth:?} {first_back} {now}");
    }

    /// However small the writes are, and although nobody syncs.
    #[test]
    fn a_log_of_small_writes_is_written_back_before_it_is_full() {
        let root = tempfile::tempdir().unwrap();
        let (server, stations) = caching(&root, 1 << 40);
        for number in 0..40_000u64 {
            server.reserve(BUFFERED, object(0, 1), ObjectOffset(number % 7 * 4096), 10);
        }
        let load = stations.server_load(ServerId(0));
        assert!((4..=6).contains(&load.sub_requests), "7 pages, once for 8,192 writes: {load:?}");
    }
}
