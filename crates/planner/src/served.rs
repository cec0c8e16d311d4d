//! What the servers serve of the requests that a trace counts: all of them, and of buffered writes what is written back.

use crate::request::region_bytes;
use std::collections::BTreeMap;
use stripewise_layout::{Order, RequestKind, WriteClass};
use stripewise_model::queueing::{BufferedRequests, RegionWriteBack};
use stripewise_model::{Profile, ServerProfile};
use stripewise_trace::{AccessClass, ClassIndex, FileAccess, RegionAccess, Synchronizations, WindowAccess};

/// Most bytes of buffered writes that wait for each server: the simulator assumes as many.
const DIRTY_LIMIT_BYTES: f64 = (256 << 20) as f64;

/// The requests of a file in a window as servers see them.
pub(crate) struct Served<'a> {
    access: &'a FileAccess,
    /// By class.
    is_written_back: Vec<bool>,
    adjoining: f64,
    /// How often all is written back in the window.
    passes: f64,
    /// Seconds in which the processes write buffered and the servers have nothing to do.
    pub(crate) idle_s: f64,
}

impl<'a> Served<'a> {
    /// Of layouts that are not known yet: writing back takes as long as on all servers in order.
    pub(crate) fn of(profile: &Profile, access: &'a FileAccess, window: &WindowAccess) -> Self {
        Self::drained(profile, access, window, |dirty_bytes| dirty_bytes * fastest_s_per_byte(profile))
    }

    /// As if nothing were written again while a synchronization is under way.
    pub(crate) fn in_one_pass(profile: &Profile, access: &'a FileAccess, window: &WindowAccess) -> Self {
        Self::drained(profile, access, window, |_| f64::INFINITY)
    }

    /// `drain_s` says how long it takes to write so many bytes back; it is asked only where that decides how often it is done.
    pub(crate) fn drained(
        profile: &Profile,
        access: &'a FileAccess,
        window: &WindowAccess,
        drain_s: impl FnOnce(f64) -> f64,
    ) -> Self {
        let is_written_back = |class: &AccessClass| {
            class.kind == RequestKind::Write(WriteClass::Buffered) && !profile.is_awaited(class.kind)
        };
        let mut served = Self {
            access,
            is_written_back: access.classes.iter().map(is_written_back).collect(),
            adjoining: window.company.adjoining,
            passes: 1.0,
            idle_s: 0.0,
        };
        if served.has_written_back() {
            let limit_bytes = DIRTY_LIMIT_BYTES * profile.servers.len() as f64;
            let dirty_bytes: f64 = window.regions.iter().map(|region| served.dirty_bytes(region)).sum();
            let Synchronizations { apart, intervals, under_way_s, idle_s } = window.synchronizations;
            // What came while a synchronization was under way is written back again if that had come by.
            let passed = || (under_way_s / drain_s(dirty_bytes)).min(1.0);
            let synchronized = if intervals > apart { apart + (intervals - apart) * passed() } else { apart };
            served.passes = (dirty_bytes / limit_bytes).max(synchronized).max(1.0);
            // Beyond the limit the kernel writes back without being asked.
            served.idle_s = if dirty_bytes <= limit_bytes { idle_s } else { 0.0 };
        }
        served
    }

    /// Whether the file has buffered writes that no process waits for.
    pub(crate) fn has_written_back(&self) -> bool {
        self.is_written_back.contains(&true)
    }

    /// How many of each class; classes that the file does not have stand for neighbours that are written back together. `before`: the
    /// region before it, if that lies on the same servers.
    pub(crate) fn requests(&self, region: &RegionAccess, before: Option<&RegionAccess>) -> Vec<(AccessClass, f64)> {
        let counts = || region.counts.iter().map(|(class, count)| (usize::from(class.0), *count as f64));
        let known = |(class, count): (usize, f64)| (self.access.classes[class], count);
        let awaited = counts().filter(|(class, _)| !self.is_written_back[*class]).map(known);
        let mut served: BTreeMap<AccessClass, f64> = awaited.collect();
        let buffered = self.buffered(region);
        if !buffered.is_empty() {
            let region_bytes = region_bytes(self.access, region.region);
            let dirty_before = before.map_or(0.0, |before| self.written_back(before, self.passes).dirty);
            let written = RegionWriteBack::of(region_bytes, &buffered, self.passes).behind(dirty_before);
            let runs = buffered.iter().zip(&written.requests).map(|(class, count)| (class.request_bytes, *count));
            let kind = RequestKind::Write(WriteClass::Buffered);
            let mut add = |request_bytes, order, count| {
                if count > 0.0 {
                    *served.entry(AccessClass { kind, request_bytes, order }).or_insert(0.0) += count;
                }
            };
            runs.for_each(|(request_bytes, count)| add(request_bytes, Order::Random, count));
            add(region_bytes, Order::Random, written.whole);
            add(region_bytes, Order::Sequential, written.whole_in_order);
        }
        served.into_iter().collect()
    }

    fn buffered(&self, region: &RegionAccess) -> Vec<BufferedRequests> {
        let written_back = region.counts.iter().filter(|(class, _)| self.is_written_back[usize::from(class.0)]);
        let requests = |(class, count): &(ClassIndex, u64)| {
            let AccessClass { request_bytes, order, .. } = self.access.class(*class);
            BufferedRequests { request_bytes, order, requests: *count as f64, adjoining: self.adjoining }
        };
        written_back.map(requests).collect()
    }

    fn written_back(&self, region: &RegionAccess, passes: f64) -> RegionWriteBack {
        RegionWriteBack::of(region_bytes(self.access, region.region), &self.buffered(region), passes)
    }

    fn dirty_bytes(&self, region: &RegionAccess) -> f64 {
        self.written_back(region, 1.0).dirty * region_bytes(self.access, region.region) as f64
    }
}

/// Seconds for which a byte keeps all servers busy that write back what they can.
fn fastest_s_per_byte(profile: &Profile) -> f64 {
    let kind = RequestKind::Write(WriteClass::Buffered);
    let bytes_per_s = |server: &ServerProfile| 1.0 / server.line(kind, Order::Sequential).beta_s_per_byte;
    1.0 / profile.servers.iter().map(bytes_per_s).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::DIRTY_LIMIT_BYTES;
    use crate::policy::fixtures::{REGION_BYTES, cluster, file, profile};
    use crate::predict::predict;
    use stripewise_layout::{ByteCount, Layout, Placement, RequestKind, ServerId, WriteClass};
    use stripewise_model::{Concurrency, OrderedLines};
    use stripewise_trace::Synchronizations;

    /// Predicted seconds of as many 64 KiB writes as cover four regions once.
    fn seconds(synchronizations: Synchronizations) -> f64 {
        seconds_of(4, synchronizations)
    }

    /// Of as many as cover `regions` regions once.
    fn seconds_of(regions: usize, synchronizations: Synchronizations) -> f64 {
        let cluster = cluster(2, 0, 0);
        let mut profile = profile(&cluster);
        for server in &mut profile.servers {
            let (sequential, random) = (server.write_sequential, server.write_random);
            server.buffered_write = Some(OrderedLines { sequential, random });
        }
        let mut access = file(&vec![16; regions], 4);
        access.classes[0].kind = RequestKind::Write(WriteClass::Buffered);
        access.windows[0].synchronizations = synchronizations;
        let striped = Layout::new([(ServerId(0), 64 << 10), (ServerId(1), 64 << 10)]).unwrap();
        let placement = Placement::uniform(ByteCount(REGION_BYTES), striped.clone(), striped);
        let concurrency = Concurrency { processes: 4, processes_per_node: 1 };
        predict(&placement, &access, &profile, None, concurrency).total.time_s
    }

    #[test]
    fn synchronizations_write_back_again_and_begin_late() {
        let once = Synchronizations { apart: 1.0, intervals: 1.0, ..Synchronizations::default() };
        assert_eq!(seconds(once), seconds(Synchronizations::default()));
        let twice = Synchronizations { apart: 2.0, intervals: 2.0, ..Synchronizations::default() };
        assert!(seconds(twice) > seconds(once));
        // The longer a synchronization was under way, the more of what it wrote back is written again.
        let under_way = |under_way_s| seconds(Synchronizations { intervals: 2.0, under_way_s, ..once });
        assert_eq!(under_way(0.0), seconds(once));
        assert_eq!(under_way(1e3), seconds(twice));
        assert!((seconds(once)..seconds(twice)).contains(&under_way(5e-3)));
        let late = seconds(Synchronizations { idle_s: 0.25, ..once });
        assert!((late - seconds(once) - 0.25).abs() < 1e-9);
    }

    /// Up to the dirty limit nothing is written back before the synchronization. Beyond it the servers are busy while the processes write.
    #[test]
    fn servers_are_idle_before_a_synchronization_only_below_the_dirty_limit() {
        let once = Synchronizations { apart: 1.0, intervals: 1.0, ..Synchronizations::default() };
        let waited =
            |regions| seconds_of(regions, Synchronizations { idle_s: 0.25, ..once }) - seconds_of(regions, once);
        // Writes at random that cover as many bytes leave dirty between half of them and all.
        let regions_at_limit = (2.0 * DIRTY_LIMIT_BYTES) as usize / REGION_BYTES as usize;
        assert!((waited(regions_at_limit) - 0.25).abs() < 1e-9);
        assert!(waited(2 * regions_at_limit).abs() < 1e-9);
    }
}
