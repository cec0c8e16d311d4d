//! A server's page cache: what it holds, what it must fetch, and what it has to write back.
//!
//! Pages are kept in groups of 64 KiB (or another size), each found by its number; the one to replace is found by the clock algorithm: a hand goes
//! round, passes what was used since its last visit, and takes the first that was not. A read that misses fetches the groups that are
//! missing, and when it continues one of the last reads also a stretch ahead. A write goes into the cache and is done; dirty groups above
//! the background limit are written back in order of address, and a write that would exceed the dirty limit waits for that.
//! A group of which only a part was written does not serve reads.

use crate::Nanos;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Recent reads that may be continued.
const STREAMS: usize = 32;

/// Size and limits of a server's page cache.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PageCacheSpec {
    /// Memory for pages.
    pub size_bytes: u64,
    /// Bytes of a group, the unit of caching.
    pub group_bytes: u64,
    /// Share of the size above which writes wait.
    pub dirty_share: f64,
    /// Share of the size above which dirty groups are written back.
    pub background_share: f64,
    /// Fetched beyond a read that continues one of the last 32.
    pub read_ahead_bytes: u64,
    /// From and to memory.
    pub copy_bytes_per_s: f64,
}

impl PageCacheSpec {
    /// A cache of `size_bytes` with Linux's limits (`vm.dirty_ratio` 20 %, `vm.dirty_background_ratio` 10 %, 128 KiB of read-ahead) and 4 GB/s of memory copy (ours).
    #[must_use]
    pub fn linux(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            group_bytes: 64 << 10,
            dirty_share: 0.2,
            background_share: 0.1,
            read_ahead_bytes: 128 << 10,
            copy_bytes_per_s: 4e9,
        }
    }

    /// Time to copy `bytes`.
    #[must_use]
    pub fn copy(&self, bytes: u64) -> Nanos {
        Nanos::from_seconds(bytes as f64 / self.copy_bytes_per_s)
    }
}

/// A contiguous range of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First byte on the device.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// What a read finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// All there from that time on.
    Held(Nanos),
    /// This has to come from the device first.
    Missing(Span),
}

#[derive(Clone, Copy, Debug)]
struct Group {
    number: u64,
    used: bool,
    /// Every byte of it is here, from that time on; `None` when only a part was written.
    whole: Option<Nanos>,
    dirty_bytes: u64,
}

/// The groups that a server holds in memory, which of them are dirty, and the recent reads.
#[derive(Clone, Debug)]
pub struct PageCache {
    spec: PageCacheSpec,
    groups: Vec<Group>,
    places: HashMap<u64, usize>,
    hand: usize,
    /// Dirty groups by number, with their bytes.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
    /// Where the last write-back ended.
    cursor: u64,
    recent_ends: VecDeque<u64>,
}

impl PageCache {
    /// An empty cache.
    #[must_use]
    pub fn new(spec: PageCacheSpec) -> Self {
        Self {
            spec,
            groups: Vec::new(),
            places: HashMap::new(),
            hand: 0,
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
            cursor: 0,
            recent_ends: VecDeque::new(),
        }
    }

    /// What the cache was made from.
    #[must_use]
    pub fn spec(&self) -> &PageCacheSpec {
        &self.spec
    }

    /// Bytes that are written and not yet written back.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    fn numbers(&self, span: Span) -> std::ops::Range<u64> {
        span.address / self.spec.group_bytes..(span.address + span.bytes).div_ceil(self.spec.group_bytes)
    }

    /// Looks for `span` and marks what is found as used.
    pub fn read(&mut self, span: Span) -> Lookup {
        let numbers = self.numbers(span);
        let (mut missing, mut from) = (None, Nanos(0));
        for number in numbers {
            let held = self.places.get(&number).map(|place| &mut self.groups[*place]);
            match held.and_then(|group| group.whole.inspect(|_| group.used = true)) {
                Some(since) => from = from.max(since),
                None => missing = Some((missing.map_or(number, |(first, _)| first), number)),
            }
        }
        let end = span.address + span.bytes;
        let continued = self.recent_ends.iter().position(|recent| *recent == span.address);
        if let Some(position) = continued {
            self.recent_ends.remove(position);
        } else if self.recent_ends.len() == STREAMS {
            self.recent_ends.pop_front();
        }
        self.recent_ends.push_back(end);
        match missing {
            None => Lookup::Held(from),
            Some((first, last)) => {
                let ahead = if continued.is_some() { self.spec.read_ahead_bytes } else { 0 };
                let address = first * self.spec.group_bytes;
                let stop = (last + 1) * self.spec.group_bytes + ahead;
                Lookup::Missing(Span { address, bytes: stop - address })
            }
        }
    }

    /// Puts in what comes from the device and is there from `since` on.
    pub fn fill(&mut self, span: Span, since: Nanos) {
        for number in self.numbers(span) {
            let group = self.place_of(number).map(|place| &mut self.groups[place]);
            if let Some(group) = group {
                group.whole = Some(group.whole.map_or(since, |before| before.min(since)));
            }
        }
    }

    /// Most bytes that may be dirty.
    #[must_use]
    pub fn dirty_limit(&self) -> u64 {
        (self.spec.size_bytes as f64 * self.spec.dirty_share) as u64
    }

    /// Takes a write in at `now`; false when too much would be dirty: the write has to wait until some is written back.
    pub fn write(&mut self, span: Span, now: Nanos) -> bool {
        if self.dirty_bytes + span.bytes > self.dirty_limit() {
            return false;
        }
        for number in self.numbers(span) {
            let start = number * self.spec.group_bytes;
            let bytes = (start + self.spec.group_bytes).min(span.address + span.bytes) - start.max(span.address);
            let Some(place) = self.place_of(number) else { continue };
            let group = &mut self.groups[place];
            if bytes == self.spec.group_bytes {
                group.whole = Some(now);
            }
            let dirty = (group.dirty_bytes + bytes).min(self.spec.group_bytes);
            self.dirty_bytes += dirty - group.dirty_bytes;
            group.dirty_bytes = dirty;
            self.dirty.insert(number, dirty);
        }
        true
    }

    /// Whether dirty groups should be written back.
    #[must_use]
    pub fn is_over_background(&self) -> bool {
        self.dirty_bytes > (self.spec.size_bytes as f64 * self.spec.background_share) as u64
    }

    /// The next dirty groups in order of address that lie side by side, at most `most_bytes` of them; they count as clean from now on.
    pub fn write_back(&mut self, most_bytes: u64) -> Option<Span> {
        let next = self.dirty.range(self.cursor..).next().or_else(|| self.dirty.iter().next());
        let first = next.map(|(number, _)| *number)?;
        let (mut number, mut bytes) = (first, 0);
        while bytes < most_bytes
            && let Some(dirty) = self.dirty.remove(&number)
        {
            self.dirty_bytes -= dirty;
            bytes += dirty;
            if let Some(place) = self.places.get(&number) {
                self.groups[*place].dirty_bytes = 0;
            }
            number += 1;
        }
        self.cursor = number;
        Some(Span { address: first * self.spec.group_bytes, bytes })
    }

    /// The place of a group, which gets one if it has none; `None` when everything is dirty.
    fn place_of(&mut self, number: u64) -> Option<usize> {
        if let Some(place) = self.places.get(&number) {
            self.groups[*place].used = true;
            return Some(*place);
        }
        let group = Group { number, used: true, whole: None, dirty_bytes: 0 };
        let capacity = (self.spec.size_bytes / self.spec.group_bytes).max(1) as usize;
        let place = if self.groups.len() < capacity {
            self.groups.push(group);
            self.groups.len() - 1
        } else {
            let place = self.victim()?;
            self.places.remove(&self.groups[place].number);
            self.groups[place] = group;
            place
        };
        self.places.insert(number, place);
        Some(place)
    }

    fn victim(&mut self) -> Option<usize> {
        // Once round to forget uses, once more to find one.
        for _ in 0..2 * self.groups.len() {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.groups.len();
            let group = &mut self.groups[place];
            if group.dirty_bytes == 0 && !std::mem::take(&mut group.used) {
                return Some(place);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: u64 = 64 << 10;

    fn cache(groups: u64) -> PageCache {
        PageCache::new(PageCacheSpec::linux(groups * GROUP))
    }

    fn span(address: u64, bytes: u64) -> Span {
        Span { address, bytes }
    }

    #[test]
    fn what_was_fetched_is_held_and_what_was_not_is_missing() {
        let mut cache = cache(8);
        assert_eq!(cache.read(span(10, 100)), Lookup::Missing(span(0, GROUP)));
        cache.fill(span(0, GROUP), Nanos(5));
        assert_eq!(cache.read(span(500, 100)), Lookup::Held(Nanos(5)));
        assert_eq!(cache.read(span(GROUP / 2, GROUP)), Lookup::Missing(span(GROUP, GROUP)));
        let ahead = cache.spec.read_ahead_bytes;
        cache.read(span(3 * GROUP, GROUP));
        assert_eq!(cache.read(span(4 * GROUP, GROUP)), Lookup::Missing(span(4 * GROUP, GROUP + ahead)));
    }

    #[test]
    fn the_clock_keeps_what_is_used() {
        let mut cache = cache(4);
        (0..4).for_each(|group| cache.fill(span(group * GROUP, GROUP), Nanos(0)));
        cache.fill(span(4 * GROUP, GROUP), Nanos(0));
        // The hand has passed everything once and taken the first; what is used from now on stays.
        assert!(matches!(cache.read(span(2 * GROUP, 1)), Lookup::Held(_)));
        cache.fill(span(5 * GROUP, GROUP), Nanos(0));
        cache.fill(span(6 * GROUP, GROUP), Nanos(0));
        assert!(matches!(cache.read(span(2 * GROUP, 1)), Lookup::Held(_)));
        assert!(matches!(cache.read(span(GROUP, 1)), Lookup::Missing(_)));
    }

    #[test]
    fn writes_are_held_to_the_dirty_limit_and_written_back_in_order() {
        let mut cache = cache(100);
        for group in (0..20).rev() {
            assert!(cache.write(span(group * GROUP, GROUP), Nanos(1)), "{group}");
        }
        assert!(!cache.write(span(50 * GROUP, GROUP), Nanos(1)), "20 % are dirty");
        assert!(cache.is_over_background());
        assert_eq!(cache.write_back(4 * GROUP), Some(span(0, 4 * GROUP)));
        assert_eq!(cache.write_back(100 * GROUP), Some(span(4 * GROUP, 16 * GROUP)));
        assert_eq!((cache.write_back(GROUP), cache.dirty_bytes()), (None, 0));
        assert_eq!(cache.read(span(7 * GROUP, GROUP)), Lookup::Held(Nanos(1)), "clean but still here");
    }

    #[test]
    fn a_group_written_in_part_serves_no_read() {
        let mut cache = cache(100);
        assert!(cache.write(span(100, 200), Nanos(1)));
        assert_eq!(cache.read(span(100, 200)), Lookup::Missing(span(0, GROUP)));
        assert_eq!(cache.write_back(GROUP), Some(span(0, 200)));
    }
}
