//! Small parts of requests on an SSD instead of their disk (iBridge); `shared::fragments` has the order of operations.
//!
//! A *fragment* is the first or last part of a request longer than a stripe, shorter than the threshold and than half a stripe; a request that is itself shorter
//! than the threshold is *random*. What lies in a log already is served there. Of the rest, a small write goes to a log if it is admitted, and a small read that its disk served
//! is suggested to the broker, which copies it in.
//!
//! Admitted is what has a positive *return*, of its own or by its class: what it adds to the mean service time of its disk ([`Hints`]). A part on the slowest of the disks that serve
//! the request adds to that how much slower this one is than the next, times the parts: all of them wait for it. Emulated servers tell the time a
//! sub-request takes; of others it is measured, and what took no longer than memory does is not the disk's ([`MIN_DISK_NS`]).
//!
//! On a file that has logs, emulated time is reserved part by part, as each is found to be served by its disk or by an SSD.

use super::buffers::{Batch, Buffers};
use super::core::FileCore;
use super::logs::{FragmentLogs, FragmentMemory};
use super::objects::Objects;
use super::reason::RetryReason;
use super::sub_request::{SubMove, Weigh};
use super::trial::MIN_DISK_NS;
use crate::client::now;
use crate::client::objects::ObjectKey;
use crate::server::{Due, Handle, How, ObjectName, ObjectStore, ServerError};
use crate::shared::control::{FragmentMode, RegionState};
use crate::shared::fragments::hints::{Counter, Hints};
use crate::shared::fragments::table::{Log, log_region, tick};
use crate::shared::fragments::{Class, DiskRange, ReadPlan, Seen, State, WriteChoice, WritePlan};
use crate::shared::marking::Motion;
use crate::size_limit;
use rustix::io::Errno;
use std::time::Duration;
use stripewise_layout::{
    Direction, FileOffset, ObjectOffset, RegionOffset, RegionPiece, ServerId, StripeView, SubRequest,
};

/// What one request's parts need to know to be served beside logs.
pub(super) struct FragmentContext<'a> {
    objects: Objects<'a>,
    logs: &'a FragmentLogs,
    memory: &'a FragmentMemory,
    is_adding: bool,
    threshold_bytes: u64,
    request_bytes: u64,
    /// When the emulated devices are done with what was begun so far.
    pub(super) due: Due,
}

/// A part of a request, with what decides whether it is small.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) piece: RegionPiece,
    pub(super) view: StripeView<'a>,
    pub(super) motion: Motion,
}

/// Where an entry's bytes lie.
struct Slot<'a> {
    server: &'a dyn ObjectStore,
    log: Handle<'a>,
    /// A write of it is beyond the limit on the size of files, and has to be made all the same.
    is_limited: bool,
}

fn beyond_limit(server: &dyn ObjectStore) -> ServerError {
    let (server, action) = (server.name().to_owned(), "writing a log beyond the limit on the size of files");
    ServerError::Os { server, action, source: Errno::FBIG }
}

/// Which of a request's parts are small: `request_bytes` long, `sub` that of `part`.
fn small_class(request_bytes: u64, threshold_bytes: u64, part: &Part<'_>, sub: &SubRequest<'_>) -> Option<Class> {
    if request_bytes < threshold_bytes {
        return Some(Class::Random);
    }
    let stripe_bytes = u64::from(part.view.stripes()[sub.turn].size_bytes);
    if request_bytes <= stripe_bytes || sub.length >= threshold_bytes.min(stripe_bytes / 2) {
        return None;
    }
    let piece = &part.piece;
    let is_at = |offset: u64| part.view.locate(RegionOffset(offset)).turn == sub.turn;
    let is_first = piece.buffer_offset == 0 && is_at(piece.offset.0);
    let is_last = piece.buffer_offset + piece.length == request_bytes && is_at(piece.offset.0 + piece.length - 1);
    (is_first || is_last).then_some(Class::Fragment)
}

/// What a real server took, if that can have been its disk.
pub(super) fn disk_time_since(begun: Duration) -> Option<u64> {
    Some((now() - begun).as_nanos() as u64).filter(|ns| *ns >= MIN_DISK_NS)
}

impl<'a> FragmentContext<'a> {
    /// The logs that a request has to look at; `None`: the file has none. The reason: this process does not know them yet.
    pub(super) fn of(
        objects: Objects<'a>,
        logs: &'a FragmentLogs,
        offset: FileOffset,
        request_bytes: u64,
    ) -> Result<Option<Self>, RetryReason> {
        let control = objects.file().control();
        let mode = control.notices().fragments();
        let threshold_bytes = control.notices().fragment_threshold_bytes();
        let is_needed = match mode {
            FragmentMode::Off => return Ok(None),
            FragmentMode::Wanted => {
                logs.are_worth_making(objects.file())
                    && has_small_part(objects.file(), offset, request_bytes, threshold_bytes)
            }
            FragmentMode::On | FragmentMode::Leaving => true,
        };
        match logs.known() {
            Some(memory) => Ok(Some(Self {
                objects,
                logs,
                memory,
                is_adding: mode == FragmentMode::On,
                threshold_bytes,
                request_bytes,
                due: None,
            })),
            None if is_needed => Err(RetryReason::Fragments),
            None => Ok(None),
        }
    }

    /// One server's part of a request on a file with logs. False: a read that the page cache does not have, to be waited for with others.
    pub(super) fn serve(
        &mut self,
        direction: Direction,
        moving: &mut SubMove<'_>,
        part: &Part<'_>,
        buffers: &Buffers<'_>,
        how: How,
    ) -> Result<bool, RetryReason> {
        let sub = moving.sub;
        let Some(log) = self.memory.table.log(sub.server) else {
            self.reserve_on(sub.server, direction, moving.key.object, sub.offset, sub.length)?;
            if direction == Direction::Read
                && sub.length < part.piece.length
                && self.objects.core().may_wait(sub.server)
            {
                return moving.read_from_cache(self.objects, buffers);
            }
            return moving.move_in_turn(self.objects, direction, buffers, how).map(|()| true);
        };
        let range = DiskRange { region: part.piece.region, offset: sub.offset, length: sub.length };
        let class = small_class(self.request_bytes, self.threshold_bytes, part, &sub)
            .filter(|_| self.is_adding && part.motion == Motion::Still && range.length <= log.sets.slot_bytes());
        let weigh = Weigh {
            disk: sub.server,
            range,
            class,
            siblings_ns_per_byte: class.map_or(0.0, |_| siblings(&self.memory.hints, part, sub.server)),
        };
        match direction {
            Direction::Read => self.read_with_fragments(moving, &log, weigh, part, buffers),
            Direction::Write => self.write_with_fragments(moving, &log, weigh, part, buffers).map(|()| true),
        }
    }

    fn read_with_fragments(
        &mut self,
        moving: &mut SubMove<'_>,
        log: &Log<'_>,
        weigh: Weigh,
        part: &Part<'_>,
        buffers: &Buffers<'_>,
    ) -> Result<bool, RetryReason> {
        let (sub, hints) = (moving.sub, &self.memory.hints);
        let mut is_slot_readable = true;
        loop {
            moving.moved = 0;
            let plan = log.sets.plan_read(&weigh.range);
            if plan != ReadPlan::Disk(Vec::new()) && !self.lies_still_at(&moving.key.object) {
                return Err(RetryReason::Again);
            }
            let newer = match plan {
                ReadPlan::Slot(seen) if is_slot_readable || seen.state().is_newer() => {
                    match self.move_slot(Direction::Read, moving, log, &seen, buffers) {
                        Ok(_) if !log.sets.still_holds(&seen) => continue,
                        // Another's by now, or nobody's: a log that gives slots up is cut.
                        Err(RetryReason::Fault(_)) if !log.sets.still_holds(&seen) => continue,
                        Ok(bytes) => {
                            moving.moved = sub.length;
                            hints.touch(weigh.disk, &seen, tick());
                            hints.count(weigh.disk, Counter::ReadHits, 1);
                            hints.count(weigh.disk, Counter::ReadHitBytes, bytes);
                            return Ok(true);
                        }
                        // The disk has it too.
                        Err(RetryReason::Fault(_)) if seen.state() == State::Clean => {
                            is_slot_readable = false;
                            continue;
                        }
                        Err(reason) => return Err(reason),
                    }
                }
                ReadPlan::Slot(_) => Vec::new(),
                ReadPlan::Disk(newer) => newer,
            };
            let (object, length) = (moving.key.object, sub.length);
            let predicted_ns = self.reserve_on(sub.server, Direction::Read, object, sub.offset, length)?;
            if newer.is_empty() && length < part.piece.length && self.objects.core().may_wait(sub.server) {
                if moving.read_from_cache(self.objects, buffers)? {
                    return Ok(true);
                }
                moving.weigh = Some(weigh);
                return Ok(false);
            }
            let begun = now();
            let mut read = moving.move_in_turn(self.objects, Direction::Read, buffers, How::default());
            let took_ns = predicted_ns.or_else(|| disk_time_since(begun));
            for seen in &newer {
                read = read.and_then(|()| self.move_slot(Direction::Read, moving, log, seen, buffers).map(drop));
            }
            let holds = newer.iter().all(|seen| log.sets.still_holds(seen));
            match read {
                Ok(()) if holds => {
                    let weigh = Weigh { class: weigh.class.filter(|_| newer.is_empty() && is_slot_readable), ..weigh };
                    if let Some(took_ns) = took_ns {
                        self.logs.served_by_disk(&weigh, took_ns);
                    }
                    return Ok(true);
                }
                Ok(()) => {}
                Err(RetryReason::Fault(_)) if !holds => {}
                Err(reason) => {
                    // What the disk gave counts for nothing without the newer bytes over it.
                    if !newer.is_empty() {
                        moving.moved = 0;
                    }
                    return Err(reason);
                }
            }
        }
    }

    /// Whether the region has not moved since its word was loaded. Readers are not waited for when entries of its new place are added: one that finds an entry has
    /// to know that it is one of the place that it reads.
    fn lies_still_at(&self, object: &ObjectName) -> bool {
        let state = self.objects.file().region(object.region);
        matches!(state, RegionState::Placed { generation, .. } if generation == object.generation)
    }

    fn write_with_fragments(
        &mut self,
        moving: &mut SubMove<'_>,
        log: &Log<'_>,
        weigh: Weigh,
        part: &Part<'_>,
        buffers: &Buffers<'_>,
    ) -> Result<(), RetryReason> {
        let (table, hints) = (&self.memory.table, &self.memory.hints);
        let Weigh { disk, range, class, .. } = weigh;
        let mut choice = match part.motion {
            Motion::Still => WriteChoice::Present,
            _ => WriteChoice::Disk,
        };
        if let Some(class) = class
            && !matches!(log.sets.plan_read(&range), ReadPlan::Slot(_))
            && self.is_admitted(&weigh, class, &moving.key, hints)
        {
            choice = WriteChoice::Add(class);
        }
        loop {
            moving.moved = 0;
            let seen = match log.sets.plan_write(&range, choice) {
                WritePlan::Slot(seen) => {
                    let moved = self.move_slot(Direction::Write, moving, log, &seen, buffers);
                    // Also of a write that failed: a part of it may be there.
                    table.note_dirtied();
                    match moved {
                        Ok(_) => seen,
                        // The disk has what was there before, and takes this.
                        Err(RetryReason::Fault(_)) if log.sets.forsake(&seen) => {
                            choice = WriteChoice::Present;
                            continue;
                        }
                        Err(reason) => return Err(reason),
                    }
                }
                WritePlan::Fill(seen) => {
                    if let Err(reason) = self.move_slot(Direction::Write, moving, log, &seen, buffers) {
                        log.sets.take_back(&seen);
                        // A full or broken SSD is no reason to fail: the disk takes the bytes.
                        match reason {
                            RetryReason::Fault(_) => choice = WriteChoice::Present,
                            reason => return Err(reason),
                        }
                        continue;
                    }
                    if !log.sets.declare(&seen, State::Dirty) {
                        log.sets.free_slot(seen.slot);
                        continue;
                    }
                    table.note_dirtied();
                    seen
                }
                WritePlan::Disk(newer) => {
                    let moved = self.write_disk(moving, log, &weigh, &newer, buffers);
                    if !newer.is_empty() {
                        table.note_dirtied();
                    }
                    return moved;
                }
            };
            moving.moved = range.length;
            hints.touch(disk, &seen, tick());
            hints.count(disk, Counter::WriteHits, 1);
            hints.count(disk, Counter::WriteHitBytes, range.length);
            return Ok(());
        }
    }

    fn is_admitted(&self, weigh: &Weigh, class: Class, key: &ObjectKey, hints: &Hints) -> bool {
        let Weigh { disk, range, siblings_ns_per_byte, .. } = *weigh;
        let predicted = self.objects.core().predict(disk, Direction::Write, key.object, range.offset, range.length);
        let expected_ns = predicted.map_or_else(|| hints.small_write_ns(disk), |predicted| predicted.service_ns);
        if expected_ns == 0 {
            // The disk has not been seen to write one yet.
            return false;
        }
        hints.weigh(disk, class, hints.return_of(disk, range.length, expected_ns) + siblings_ns_per_byte)
    }

    fn write_disk(
        &mut self,
        moving: &mut SubMove<'_>,
        log: &Log<'_>,
        weigh: &Weigh,
        newer: &[Seen],
        buffers: &Buffers<'_>,
    ) -> Result<(), RetryReason> {
        let (disk, range, hints) = (weigh.disk, weigh.range, &self.memory.hints);
        let object = moving.key.object;
        for seen in newer {
            self.move_slot(Direction::Write, moving, log, seen, buffers)?;
        }
        let predicted_ns = self.reserve_on(disk, Direction::Write, object, range.offset, range.length)?;
        let begun = now();
        moving.move_in_turn(self.objects, Direction::Write, buffers, How::default())?;
        if let Some(took_ns) = predicted_ns.or_else(|| disk_time_since(begun)) {
            hints.note_service(disk, range.length, took_ns);
            if weigh.class.is_some() {
                hints.note_small_write(disk, took_ns);
            }
        }
        Ok(())
    }

    /// Takes an emulated device's time; returns its own part of it, without waiting, in ns.
    fn reserve_on(
        &mut self,
        server: ServerId,
        direction: Direction,
        object: ObjectName,
        offset: ObjectOffset,
        length: u64,
    ) -> Result<Option<u64>, RetryReason> {
        if self.objects.core().stations.is_none() {
            return Ok(None);
        }
        let server = self.objects.store(server)?;
        let Some(device) = server.device_time() else { return Ok(None) };
        let predicted = device.predict(direction, object, offset, length);
        self.due = self.due.max(device.reserve(direction.into(), object, offset, length));
        Ok(predicted.map(|predicted| predicted.service_ns))
    }

    /// Moves what an entry has of a part between its slot and the buffers; returns the bytes.
    fn move_slot(
        &mut self,
        direction: Direction,
        moving: &SubMove<'_>,
        log: &Log<'_>,
        seen: &Seen,
        buffers: &Buffers<'_>,
    ) -> Result<u64, RetryReason> {
        let sub = &moving.sub;
        let first = seen.range.offset.0.max(sub.offset.0);
        let end = seen.range.end().min(sub.offset.0 + sub.length);
        let Some(bytes) = end.checked_sub(first) else { return Ok(0) };
        let slot_at = u64::from(seen.slot) * log.sets.slot_bytes() + (first - seen.range.offset.0);
        let object =
            ObjectName { file: self.objects.file().id(), region: log_region(sub.server), generation: log.generation };
        let server = self.objects.store(log.on)?;
        // The program's limit on the size of files is no log's.
        let is_limited = direction == Direction::Write && !size_limit::allows(slot_at + bytes);
        if is_limited && seen.state() == State::Pending {
            // The disk takes it.
            return Err(self.objects.fault(beyond_limit(server)));
        }
        self.reserve_on(log.on, direction, object, ObjectOffset(slot_at), bytes)?;
        let pin = self.objects.pin(&ObjectKey {
            object,
            server: log.on,
            writable: self.objects.file().is_writable(),
            direct: false,
        })?;
        let (mut cursor, mut batch) = (buffers.cursor(), Batch::new());
        let (mut at, mut slot_at) = (sub.offset.0, slot_at);
        let slot = Slot { server, log: pin.handle(), is_limited };
        for (start, length) in sub.pieces() {
            let (from, to) = (at.max(first), (at + length).min(end));
            let start = moving.buffer_start() + start + from.saturating_sub(at);
            at += length;
            let mut done = 0;
            while from + done < to {
                done += batch.add(&mut cursor, start + done, to - from - done);
                if from + done < to {
                    slot_at += self.move_batch(direction, &slot, slot_at, &mut batch)?;
                }
            }
        }
        self.move_batch(direction, &slot, slot_at, &mut batch)?;
        Ok(bytes)
    }

    fn move_batch(
        &self,
        direction: Direction,
        slot: &Slot<'_>,
        at: u64,
        batch: &mut Batch<'_>,
    ) -> Result<u64, RetryReason> {
        let Slot { server, log, is_limited } = *slot;
        let mut moved = 0;
        while batch.bytes() > 0 {
            let offset = ObjectOffset(at + moved);
            let result = match direction {
                Direction::Read => server.read_at(log, offset, batch.slices_to_fill()),
                Direction::Write if is_limited => {
                    let mut written = Err(beyond_limit(server));
                    let _ = size_limit::with_size(offset.0 + batch.bytes(), || {
                        written = server.write_at(log, offset, batch.slices_to_take(), How::default());
                        Ok(())
                    });
                    written
                }
                Direction::Write => server.write_at(log, offset, batch.slices_to_take(), How::default()),
            };
            match result.map_err(|error| self.objects.fault(error))? {
                // A filled slot lies inside the log.
                0 => {
                    let (server, action) = (server.name().to_owned(), "moving bytes of a log of fragments");
                    return Err(self.objects.fault(ServerError::Os { server, action, source: Errno::IO }));
                }
                bytes => {
                    moved += bytes as u64;
                    batch.advance(bytes as u64);
                }
            }
        }
        batch.clear();
        Ok(moved)
    }
}

/// Whether a request may have parts for a log.
pub(super) fn has_small_part(file: &FileCore, offset: FileOffset, length: u64, threshold_bytes: u64) -> bool {
    file.geometry().pieces(offset, length).any(|piece| {
        let RegionState::Placed { view, motion, .. } = file.region(piece.region) else {
            return false;
        };
        let part = Part { piece, view, motion };
        view.split(piece.offset, piece.length).any(|sub| small_class(length, threshold_bytes, &part, &sub).is_some())
    })
}

/// How much slower this disk is than the next slowest of those that serve the part, times their number; 0 unless it is the slowest. (iBridge, as the
/// design has it: (T_max - T_second) x siblings.)
fn siblings(hints: &Hints, part: &Part<'_>, disk: ServerId) -> f64 {
    let subs = || part.view.split(part.piece.offset, part.piece.length);
    let own = hints.service_ns_per_byte(disk);
    let others = subs().filter(|sub| sub.server != disk).map(|sub| hints.service_ns_per_byte(sub.server));
    match others.fold(None, |most: Option<f64>, other| Some(most.map_or(other, |most| most.max(other)))) {
        Some(second) if own > second => (own - second) * subs().count() as f64,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::{Layout, RegionGeometry};

    fn classes(offset: u64, length: u64, stripes: &[u32], threshold: u64) -> Vec<(u16, u64, Option<Class>)> {
        let layout = Layout::new((0..).map(ServerId).zip(stripes.iter().copied())).unwrap();
        let geometry = RegionGeometry::new(1 << 20);
        let pieces = geometry.pieces(FileOffset(offset), length);
        let parts = pieces.map(|piece| Part { piece, view: layout.view(), motion: Motion::Still });
        parts
            .flat_map(|part| {
                let subs: Vec<_> = part.view.split(part.piece.offset, part.piece.length).collect();
                subs.into_iter().map(move |sub| (sub.server.0, sub.length, small_class(length, threshold, &part, &sub)))
            })
            .collect()
    }

    #[test]
    fn the_ends_of_long_requests_are_fragments_and_short_requests_are_random() {
        use Class::{Fragment, Random};
        let stripes = [64 << 10; 4];
        let kib = |number: u64| number << 10;
        // 65 KiB each, in a row: the shorter end, unless both are half a stripe.
        assert_eq!(classes(0, kib(65), &stripes, kib(20)), [(0, kib(64), None), (1, kib(1), Some(Fragment))]);
        assert_eq!(classes(kib(65), kib(65), &stripes, kib(20)), [(1, kib(63), None), (2, kib(2), Some(Fragment))]);
        assert_eq!(classes(kib(50), kib(65), &stripes, kib(20)), [(0, kib(14), Some(Fragment)), (1, kib(51), None)]);
        assert_eq!(classes(kib(40), kib(65), &stripes, kib(20)), [(0, kib(24), None), (1, kib(41), None)]);
        assert_eq!(classes(kib(40), kib(65), &stripes, kib(32))[0], (0, kib(24), Some(Fragment)));
        // Not the middle of a request, not a request of one stripe, not what crosses a border of stripes without being longer.
        assert!(classes(0, kib(256), &stripes, kib(20)).iter().all(|(_, _, class)| class.is_none()));
        assert!(classes(kib(60), kib(64), &stripes, kib(20)).iter().all(|(_, _, class)| class.is_none()));
        assert_eq!(classes(kib(60), kib(8), &stripes, kib(20)), [(0, kib(4), Some(Random)), (1, kib(4), Some(Random))]);
        // Half a stripe where stripes are small: the last 3 KiB of 8 are, 5 are not.
        assert_eq!(classes(0, kib(11), &[8 << 10; 4], kib(10))[1], (1, kib(3), Some(Fragment)));
        assert_eq!(classes(0, kib(13), &[8 << 10; 4], kib(10))[1], (1, kib(5), None));
        // Both ends on one server are one range of its object; the ends of regions are not those of the request.
        assert_eq!(classes(kib(63), kib(194), &stripes, kib(20))[0], (0, kib(2), Some(Fragment)));
        let across = classes((1 << 20) - kib(70), kib(135), &stripes, kib(20));
        assert_eq!(
            across,
            [(2, kib(6), Some(Fragment)), (3, kib(64), None), (0, kib(64), None), (1, kib(1), Some(Fragment))]
        );
    }
}
