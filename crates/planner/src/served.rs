//! What the servers serve of the requests that a trace counts: all of them, and of buffered writes what is written back.

use crate::request::region_bytes;
use std::collections::BTreeMap;
use stripewise_layout::{Order, RequestKind, WriteClass};
use stripewise_model::Profile;
use stripewise_model::queueing::{BufferedRequests, RegionWriteBack};
use stripewise_trace::{AccessClass, ClassIndex, FileAccess, RegionAccess, WindowAccess};

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
}

impl<'a> Served<'a> {
    pub(crate) fn of(profile: &Profile, access: &'a FileAccess, window: &WindowAccess) -> Self {
        let is_written_back = |class: &AccessClass| {
            class.kind == RequestKind::Write(WriteClass::Buffered) && !profile.is_awaited(class.kind)
        };
        let mut served = Self {
            access,
            is_written_back: access.classes.iter().map(is_written_back).collect(),
            adjoining: window.company.adjoining,
            passes: 1.0,
        };
        if served.has_written_back() {
            let limit_bytes = DIRTY_LIMIT_BYTES * profile.servers.len() as f64;
            let dirty_bytes: f64 = window.regions.iter().map(|region| served.dirty_bytes(region)).sum();
            served.passes = (dirty_bytes / limit_bytes).max(1.0);
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
