//! Moving the bytes of a request between the caller's buffers and the objects.
//!
//! A request of one buffer within one stripe, the most frequent one, is one system call. Any other is cut by region and
//! server: what one server has of a region's part is one range of its object, moved by as few `preadv`/`pwritev` calls as its pieces allow.
//! The server of the first byte comes first, so that a server that is full from the start refuses before anything has changed; what
//! a failure in the middle leaves is a prefix that is told, and nothing is told of what may lie behind it. A server that others filled is no
//! failure as long as another has space: the broker moves the region, and the write goes on there.
//!
//! Calls go out in turn, which in memory is the fastest way; what would wait is put off and goes out together (`together`).

use super::buffers::{Batch, Buffers};
use super::copies::Choice;
use super::fragments::{FragmentContext, Part};
use super::retry::RetryReason;
use super::sub_request::{Gather, Stopped, SubMove, from_first_byte};
use super::together::PutOff;
use super::{FileError, IoMode, StripedFile};
use crate::client::objects::{ObjectKey, Opened, Pin};
use crate::client::servers::Medium;
use crate::client::{ClientError, now};
use crate::descriptors::{Descriptor, with_raised_limit};
use crate::protocol::{Refusal, Request};
use crate::server::pace;
use crate::server::{Due, How, ObjectHandle, ObjectName, ObjectStore, OpenMode, ServerError};
use crate::shared::control::{FragmentMode, MAX_REGIONS, RegionState};
use crate::shared::marking::{Motion, chunks_of};
use crate::shared::slots::InFlight;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::io::{IoSlice, IoSliceMut};
use stripewise_layout::{Direction, FileOffset, Generation, ObjectOffset, RegionIndex};

/// Most bytes that one call moves, as of Linux's `read` and `write`.
pub(super) const MAX_TRANSFER_BYTES: u64 = 0x7fff_f000;

/// Where a write starts.
#[derive(Clone, Copy)]
pub(super) enum Start {
    At(FileOffset),
    /// At the size, as it is once inside the file. With the append lock held.
    End,
}

/// What one pass moved, and what stands before the rest, if that can be overcome.
struct Done {
    bytes: u64,
    due: Due,
    reason: Option<RetryReason>,
}

/// What all passes of a request moved.
#[derive(Default)]
struct Total {
    bytes: u64,
    due: Due,
}

impl Total {
    #[inline]
    fn add(&mut self, done: &Done) {
        self.bytes += done.bytes;
        self.due = self.due.max(done.due);
    }
}

impl StripedFile {
    /// Reads at `offset`, at most up to the size; returns the bytes read, 0 at the end.
    ///
    /// # Errors
    /// [`FileError`] if nothing could be read.
    pub fn read_at(&self, offset: FileOffset, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, FileError> {
        self.read_with(offset, buffers, IoMode::default())
    }

    /// As [`Self::read_at`], in a mode.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_with(
        &self,
        offset: FileOffset,
        buffers: &mut [IoSliceMut<'_>],
        mode: IoMode,
    ) -> Result<usize, FileError> {
        let buffers = Buffers::to_fill(buffers);
        if offset.0 >= self.size_bytes() {
            return Ok(0);
        }
        let within_limit = self.limit_bytes().saturating_sub(offset.0);
        let wanted = buffers.total_bytes().min(MAX_TRANSFER_BYTES).min(within_limit);
        if wanted == 0 {
            return Ok(0);
        }
        let mut total = Total::default();
        loop {
            let (at, wanted) = (FileOffset(offset.0 + total.bytes), wanted - total.bytes);
            let lane = self.enter(self.in_flight(Direction::Read, at, wanted))?;
            let outcome = self.read_inside(at, wanted, &buffers.after(total.bytes), mode);
            if let Ok(Done { bytes, reason: None, .. }) = &outcome {
                self.note(&lane, Direction::Read, offset, total.bytes + bytes);
            }
            drop(lane);
            let reason = match outcome {
                Ok(done) => {
                    total.add(&done);
                    let Some(reason) = done.reason else { return Ok(self.finish(&total)) };
                    reason
                }
                Err(reason) => reason,
            };
            match self.resolve(reason) {
                Err(_) if total.bytes > 0 => return Ok(self.finish(&total)),
                result => result?,
            }
        }
    }

    /// Writes at `offset` and raises the size to the end of what was written; returns the bytes written, fewer than asked for only
    /// if the rest met a fault (no space, above all).
    ///
    /// # Errors
    /// [`FileError`] if nothing could be written.
    pub fn write_at(&self, offset: FileOffset, buffers: &[IoSlice<'_>]) -> Result<usize, FileError> {
        self.write_with(offset, buffers, IoMode::default())
    }

    /// As [`Self::write_at`], in a mode.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn write_with(&self, offset: FileOffset, buffers: &[IoSlice<'_>], mode: IoMode) -> Result<usize, FileError> {
        self.write_from(Start::At(offset), buffers, mode).map(|(_, bytes)| bytes)
    }

    pub(super) fn write_from(
        &self,
        mut start: Start,
        buffers: &[IoSlice<'_>],
        mode: IoMode,
    ) -> Result<(FileOffset, usize), FileError> {
        self.check_writable()?;
        let buffers = Buffers::to_take(buffers);
        let mut wanted = buffers.total_bytes().min(MAX_TRANSFER_BYTES);
        let mut total = Total::default();
        let mut rescues = 0;
        loop {
            let at = match start {
                Start::At(offset) => offset,
                Start::End => FileOffset(self.size_bytes()),
            };
            let begin = FileOffset(at.0 - total.bytes);
            if wanted == 0 {
                return Ok((begin, self.finish(&total)));
            }
            let limit_bytes = self.limit_bytes();
            if at.0 >= limit_bytes {
                return Err(FileError::TooLarge { file: self.open.id(), offset: at, limit_bytes });
            }
            wanted = wanted.min(limit_bytes - at.0);
            let lane = self.enter(self.in_flight(Direction::Write, at, wanted))?;
            let outcome = match start {
                // The end moved between the look and the lane.
                Start::End if self.size_bytes() != at.0 => Err(RetryReason::Again),
                _ => self.write_inside(at, wanted, &buffers.after(total.bytes), mode),
            };
            if let Ok(Done { bytes, reason: None, .. }) = &outcome {
                self.note(&lane, Direction::Write, begin, total.bytes + bytes);
            }
            drop(lane);
            let is_fault = matches!(outcome, Err(RetryReason::Fault(_) | RetryReason::Full { .. }));
            let resolve = match outcome {
                Ok(done) => {
                    total.add(&done);
                    let Some(reason) = done.reason else {
                        if done.bytes < wanted {
                            self.tidy_behind(at.0 + wanted);
                        }
                        return Ok((begin, self.finish(&total)));
                    };
                    start = Start::At(FileOffset(at.0 + done.bytes));
                    wanted -= done.bytes;
                    self.resolve_counted(reason, &mut rescues)
                }
                Err(RetryReason::Place { first, last }) => {
                    self.place_or_shorten(at, wanted, first, last).map(|possible| wanted = possible)
                }
                Err(reason) => self.resolve_counted(reason, &mut rescues),
            };
            if let Err(error) = resolve {
                if is_fault || total.bytes > 0 {
                    self.tidy_behind(at.0 + wanted);
                }
                return if total.bytes > 0 { Ok((begin, self.finish(&total))) } else { Err(error) };
            }
        }
    }

    /// As [`Self::resolve`]; of full servers at most as many as there are, or two that fill up in turn would keep the write for ever.
    #[cold]
    fn resolve_counted(&self, reason: RetryReason, rescues: &mut usize) -> Result<(), FileError> {
        match reason {
            RetryReason::Full { error, .. } if *rescues >= self.open.core().server_count() => Err(error),
            RetryReason::Full { .. } => {
                *rescues += 1;
                self.resolve(reason)
            }
            reason => self.resolve(reason),
        }
    }

    /// After a write up to `end` that failed in the middle: what it may have left beyond the size must not show in a hole later.
    #[cold]
    fn tidy_behind(&self, end: u64) {
        if end > self.size_bytes() {
            // The write's own fault is what the program is told; what stays is cut before the next extension by truncation.
            let _ = self.open.core().done(&Request::Tidy { file: self.open.id() }, &[]);
        }
    }

    #[inline]
    fn in_flight(&self, direction: Direction, offset: FileOffset, length: u64) -> InFlight {
        let first = self.geometry.locate(offset);
        let region_bytes = self.geometry.region_bytes();
        let last = if first.1.0 + length <= region_bytes {
            first.0
        } else {
            self.geometry.locate(FileOffset(offset.0.saturating_add(length - 1))).0
        };
        InFlight { direction, first: first.0, last }
    }

    /// The part of a request's way home that needs no lane: the time of emulated devices.
    #[inline]
    fn finish(&self, total: &Total) -> usize {
        if let (Some(due), Some(stations)) = (total.due, &self.open.core().stations) {
            pace::wait(stations, due);
        }
        total.bytes as usize
    }

    #[inline]
    fn read_inside(
        &self,
        offset: FileOffset,
        wanted: u64,
        buffers: &Buffers<'_>,
        mode: IoMode,
    ) -> Result<Done, RetryReason> {
        let size = self.size_bytes();
        let bytes = wanted.min(size.saturating_sub(offset.0));
        if bytes == 0 {
            return Ok(Done { bytes: 0, due: None, reason: None });
        }
        if mode == IoMode::default()
            && let Some((start, target)) = self.whole(offset, bytes, buffers)?
            && target.motion != Motion::Replicated
        {
            // SAFETY: `bytes` bytes of one buffer that the caller lent for writing.
            let memory = unsafe { std::slice::from_raw_parts_mut(start, bytes as usize) };
            let pin = self.pin(&target.key)?;
            let read = target.server.read_at(pin.handle(), target.offset, &mut [IoSliceMut::new(memory)]);
            let read = read.map_err(|error| self.fault(error))?;
            if (read as u64) < bytes {
                // The object ends here, or the kernel gave less: the general way tells.
                drop(pin);
                return self.move_range(Direction::Read, offset, bytes, buffers, mode);
            }
            return Ok(Done { bytes, due: None, reason: None });
        }
        self.move_range(Direction::Read, offset, bytes, buffers, mode)
    }

    #[inline]
    fn write_inside(
        &self,
        offset: FileOffset,
        bytes: u64,
        buffers: &Buffers<'_>,
        mode: IoMode,
    ) -> Result<Done, RetryReason> {
        let extent = self.open.extent();
        if offset.0 > extent.size_bytes() && self.open.control().notices().has_leftovers() {
            return Err(RetryReason::Leftovers);
        }
        let mut done = Done { bytes, due: None, reason: None };
        let whole = if mode == IoMode::default() { self.whole(offset, bytes, buffers)? } else { None };
        match whole {
            Some((start, target)) if target.motion == Motion::Still => {
                // SAFETY: `bytes` bytes of one buffer that the caller lent for reading.
                let memory = unsafe { std::slice::from_raw_parts(start, bytes as usize) };
                let pin = self.pin(&target.key)?;
                extent.begin_write(target.key.object.region);
                let written =
                    target.server.write_at(pin.handle(), target.offset, &[IoSlice::new(memory)], How::default());
                extent.end_write(target.key.object.region);
                done.bytes = match written {
                    Ok(0) => return Err(self.fault(self.no_progress(&target.key))),
                    Ok(written) => written as u64,
                    Err(error) => return Err(self.write_fault(&target.key, error)),
                };
            }
            _ => {
                self.find_retry_reason(offset, bytes)?;
                let durable = if mode.durable { self.durable_regions(offset, bytes) } else { Vec::new() };
                done = self.move_range(Direction::Write, offset, bytes, buffers, mode)?;
                if done.bytes == bytes {
                    self.note_durable_write(&durable);
                }
            }
        }
        extent.extend_to(offset.0 + done.bytes);
        let time = clock_gettime(ClockId::RealtimeCoarse);
        extent.set_modified_ns(Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64));
        Ok(done)
    }

    /// The one object and buffer of a request that needs no more, on a server without emulated time.
    #[inline]
    fn whole(
        &self,
        offset: FileOffset,
        bytes: u64,
        buffers: &Buffers<'_>,
    ) -> Result<Option<(*mut u8, Target<'_>)>, RetryReason> {
        let Some(start) = buffers.start_in_one(bytes) else { return Ok(None) };
        if self.open.core().stations.is_some() || self.open.control().notices().fragments() != FragmentMode::Off {
            return Ok(None);
        }
        let (region, within) = self.geometry.locate(offset);
        let RegionState::Placed { generation, view, motion } = self.open.control().regions().get(region) else {
            return Ok(None);
        };
        let place = view.locate(within);
        let inside = bytes <= place.contiguous_bytes && within.0 + bytes <= self.geometry.region_bytes();
        if !inside {
            return Ok(None);
        }
        let key = self.key(region, generation, place.server);
        let server = self.open.core().server(place.server).map_err(|error| self.fault(error))?;
        Ok(Some((start, Target { key, server, offset: place.offset, motion })))
    }

    /// Every region of a write has objects, or the reason names them all, to be placed by one request; and none is sealed, as far as can be told
    /// before the devices' time is taken.
    fn find_retry_reason(&self, offset: FileOffset, bytes: u64) -> Result<(), RetryReason> {
        let (first, last) = (self.geometry.locate(offset).0, self.geometry.locate(FileOffset(offset.0 + bytes - 1)).0);
        for region in (first.0..=last.0).map(RegionIndex) {
            match self.open.control().regions().get(region) {
                RegionState::Absent => return Err(RetryReason::Place { first: region, last }),
                RegionState::Placed { motion: Motion::Sealed(_), .. } => return Err(RetryReason::Sealed(region)),
                RegionState::Placed { motion: Motion::Replicated, .. } => {
                    return Err(RetryReason::Pin { first: region, last });
                }
                RegionState::Placed { .. } => {}
            }
        }
        Ok(())
    }

    /// Has regions placed for a write of `wanted` bytes at `offset`. Where there is no space for them, the part of the write before them remains;
    /// if there is none, that is the error. Returns the bytes to write.
    #[cold]
    fn place_or_shorten(
        &self,
        offset: FileOffset,
        wanted: u64,
        first: RegionIndex,
        last: RegionIndex,
    ) -> Result<u64, FileError> {
        let before = self.geometry.start_of(first).0.saturating_sub(offset.0);
        match self.resolve(RetryReason::Place { first, last }) {
            Err(FileError::Broker { source: ClientError::Refused(Refusal::NoSpace { .. }), .. }) if before > 0 => {
                Ok(before)
            }
            result => result.map(|()| wanted),
        }
    }

    /// The general way: any number of regions, servers and buffers. Stops at the first fault or reason and returns what lies before it.
    fn move_range<'a>(
        &'a self,
        direction: Direction,
        offset: FileOffset,
        length: u64,
        buffers: &Buffers<'_>,
        mode: IoMode,
    ) -> Result<Done, RetryReason> {
        let mut chosen = Vec::new();
        let mut context = self.context(offset, length)?;
        let reserves = self.open.core().stations.is_some() && context.is_none();
        let mut due = if reserves { self.reserve(direction, offset, length, &mut chosen) } else { None };
        let mut put_off: PutOff<'a> = PutOff::new(direction, mode, length);
        let mut stopped: Option<Stopped> = None;
        for piece in self.geometry.pieces(offset, length) {
            let result = match self.open.control().regions().get(piece.region) {
                RegionState::Absent if direction == Direction::Read => {
                    buffers.zero(piece.buffer_offset, piece.length);
                    Ok(())
                }
                // Placed a moment ago, and retracted since.
                RegionState::Absent => Err(Stopped { bytes: piece.buffer_offset, reason: RetryReason::Again }),
                RegionState::Placed { generation, view, motion: Motion::Replicated } => match direction {
                    Direction::Read => {
                        let reserved = chosen.iter().position(|chosen: &Choice<'_>| chosen.region == piece.region);
                        let reserved = reserved.map(|number| chosen.swap_remove(number));
                        self.read_copies(&piece, (generation, view), reserved, buffers, mode, &mut due)
                    }
                    Direction::Write => {
                        let reason = RetryReason::Pin { first: piece.region, last: piece.region };
                        Err(Stopped { bytes: piece.buffer_offset, reason })
                    }
                },
                RegionState::Placed { generation, view, motion } => {
                    let part = Part { piece, view, motion };
                    match motion {
                        Motion::Moving(slot) if direction == Direction::Write => {
                            let chunks = chunks_of(self.geometry.region_bytes(), piece.offset.0, piece.length);
                            // Whatever becomes of the write: a part of it may have reached the object. Nothing of it is put off beyond the marking.
                            self.open.extent().marks(slot).write(chunks, || {
                                let mut own = PutOff::new(direction, mode, length);
                                let moved =
                                    self.move_piece(direction, &part, generation, buffers, &mut own, context.as_mut());
                                self.finish_put_off(&mut own, moved.err(), buffers).map_or(Ok(()), Err)
                            })
                        }
                        Motion::Sealed(_) if direction == Direction::Write => {
                            Err(Stopped { bytes: piece.buffer_offset, reason: RetryReason::Sealed(piece.region) })
                        }
                        _ => self.move_piece(direction, &part, generation, buffers, &mut put_off, context.as_mut()),
                    }
                }
            };
            if let Err(stop) = result {
                stopped = Some(stop);
                break;
            }
        }
        stopped = self.finish_put_off(&mut put_off, stopped, buffers);
        due = due.max(context.and_then(|context| context.due));
        match stopped {
            None => Ok(Done { bytes: length, due, reason: None }),
            Some(Stopped { bytes: 0, reason }) => Err(reason),
            Some(Stopped { bytes, reason: RetryReason::Fault(_) }) => Ok(Done { bytes, due, reason: None }),
            // Where it stands is where the request goes on: begun again, one that needs more objects than the cache holds would never end.
            Some(Stopped { bytes, reason }) => Ok(Done { bytes, due, reason: Some(reason) }),
        }
    }

    /// One region's part. What it puts off is not done yet when it returns, nor is the region's write over then.
    pub(super) fn move_piece<'a>(
        &'a self,
        direction: Direction,
        part: &Part<'a>,
        generation: Generation,
        buffers: &Buffers<'_>,
        put_off: &mut PutOff<'a>,
        mut context: Option<&mut FragmentContext<'_>>,
    ) -> Result<(), Stopped> {
        let (piece, view) = (&part.piece, part.view);
        if direction == Direction::Write {
            self.open.extent().begin_write(piece.region);
        }
        let before = put_off.count();
        let mut stopped: Option<Stopped> = None;
        for sub in from_first_byte(view, piece.offset, piece.length) {
            let mut moving = SubMove {
                key: self.key(piece.region, generation, sub.server),
                sub,
                buffer_start: piece.buffer_offset,
                moved: 0,
                weigh: None,
            };
            let result = match (&stopped, &mut context) {
                (None, Some(context)) => {
                    self.move_with_fragments(direction, &mut moving, part, context, buffers, put_off.how())
                }
                (None, None) => self.move_or_put_off(direction, &mut moving, buffers, put_off),
                // Not begun: the request is done at most up to this one's first byte.
                (Some(_), _) => Err(RetryReason::Again),
            };
            match result {
                Ok(true) => {}
                Ok(false) => put_off.push(moving),
                Err(reason) => {
                    stopped = Stopped::first(stopped, Err(Stopped::new(&moving, reason)));
                }
            }
        }
        if direction == Direction::Write {
            if put_off.count() == before {
                self.open.extent().end_write(piece.region);
            } else {
                put_off.regions.push(piece.region);
            }
        }
        stopped.map_or(Ok(()), Err)
    }

    /// One server's part. False: it is to be put off, as far as it is not done.
    fn move_or_put_off(
        &self,
        direction: Direction,
        moving: &mut SubMove<'_>,
        buffers: &Buffers<'_>,
        put_off: &mut PutOff<'_>,
    ) -> Result<bool, RetryReason> {
        let (server, bytes) = (moving.sub.server, moving.sub.length);
        let has_others = put_off.has_others(bytes);
        if (has_others || put_off.mode.direct) && self.open.core().medium(server) == Medium::InTurn {
            // What it lies on is known when it is open.
            drop(self.pin(&moving.key)?);
        }
        if self.is_put_off(server, bytes, put_off) {
            return Ok(false);
        }
        let waits = has_others && self.open.core().may_wait(server);
        if direction == Direction::Read && waits {
            return self.read_from_cache(moving, buffers);
        }
        let begun = waits.then(now);
        self.move_sub_request(direction, moving, buffers, put_off.how())?;
        if let Some(begun) = begun {
            put_off.has_waited |= self.open.core().note_write(server, now() - begun, bytes);
        }
        Ok(true)
    }

    /// What is left of one server's part.
    pub(super) fn move_sub_request(
        &self,
        direction: Direction,
        moving: &mut SubMove<'_>,
        buffers: &Buffers<'_>,
        how: How,
    ) -> Result<(), RetryReason> {
        let server = self.open.core().server(moving.sub.server).map_err(|error| self.fault(error))?;
        let pin = self.pin(&moving.key)?;
        let sub = moving.sub;
        let (mut gather, mut batch) = (Gather::new(sub.pieces(), moving, buffers), Batch::new());
        while gather.next(&mut batch) {
            while batch.bytes() > 0 {
                let at = moving.at();
                let result = match direction {
                    Direction::Read => server.read_at(pin.handle(), at, batch.slices_to_fill()),
                    Direction::Write => server.write_at(pin.handle(), at, batch.slices_to_take(), how),
                };
                match (result, direction) {
                    (Ok(0), Direction::Read) => moving.moved += batch.zero(),
                    (Ok(0), Direction::Write) => return Err(self.fault(self.no_progress(&moving.key))),
                    (Ok(bytes), _) => {
                        moving.moved += bytes as u64;
                        batch.advance(bytes as u64);
                    }
                    (Err(error), Direction::Read) => return Err(self.fault(error)),
                    (Err(error), Direction::Write) => return Err(self.write_fault(&moving.key, error)),
                }
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn key(
        &self,
        region: RegionIndex,
        generation: Generation,
        server: stripewise_layout::ServerId,
    ) -> ObjectKey {
        let object = ObjectName { file: self.open.id(), region, generation };
        ObjectKey { object, server, writable: self.open.is_writable(), direct: false }
    }

    #[inline]
    pub(super) fn pin(&self, key: &ObjectKey) -> Result<Pin<'_>, RetryReason> {
        match self.open.core().objects.find(key) {
            Some(pin) => Ok(pin),
            None => self.open_object(key),
        }
    }

    #[cold]
    fn open_object(&self, key: &ObjectKey) -> Result<Pin<'_>, RetryReason> {
        let core = self.open.core();
        let server = core.server(key.server).map_err(|error| self.fault(error))?;
        let mode = OpenMode { writable: key.writable, direct: key.direct };
        let open = || server.open_as(key.object, mode);
        let opened = match open() {
            // The program is at its own limit of open files, which is not the library's.
            Err(ServerError::Os { source: Errno::MFILE, .. }) => with_raised_limit(open),
            result => result,
        };
        match opened {
            Ok(handle) => {
                core.note_medium(key.server, handle.as_handle());
                let opened = match handle {
                    ObjectHandle::Descriptor(descriptor) => {
                        Opened::Descriptor(Descriptor::raise(descriptor, core.base()))
                    }
                    ObjectHandle::Named(_) => Opened::Named,
                };
                Ok(core.objects.insert(key, opened))
            }
            Err(ServerError::Denied { .. }) => Err(RetryReason::Object(*key)),
            Err(ServerError::Missing { server, .. }) => {
                let ObjectName { file, region, generation } = key.object;
                let is_log = region.0 >= MAX_REGIONS;
                if !is_log && !self.open.control().regions().shows(region, generation) {
                    return Err(RetryReason::Again);
                }
                Err(RetryReason::Fault(FileError::ObjectMissing { file, region, generation, server }))
            }
            Err(error) => Err(self.fault(error)),
        }
    }
}

/// Where a request of one piece goes.
struct Target<'a> {
    key: ObjectKey,
    server: &'a dyn ObjectStore,
    offset: ObjectOffset,
    motion: Motion,
}
