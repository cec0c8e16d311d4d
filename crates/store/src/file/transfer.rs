//! Moving the bytes of a request between the caller's buffers and the objects.
//!
//! A request of one buffer within one stripe, the most frequent one, is one system call. Any other is cut by region and
//! server: what one server has of a region's part is one range of its object, moved by as few `preadv`/`pwritev` calls as its pieces allow.
//! The server of the first byte comes first, so that a server that is full from the start refuses before anything has changed; what
//! a failure in the middle leaves is a prefix that is told, and nothing is told of what may lie behind it.

use super::buffers::{Batch, Buffers};
use super::{FileError, StripedFile};
use crate::client::descriptors::Descriptor;
use crate::client::objects::{ObjectKey, Pin};
use crate::client::{ClientError, Core};
use crate::protocol::{Refusal, Request};
use crate::server::{Due, ObjectName, ServerBackend, ServerError};
use crate::shared::control::RegionState;
use crate::shared::slots::InFlight;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::io::{IoSlice, IoSliceMut};
use stripewise_layout::{
    Direction, FileOffset, Generation, ObjectOffset, RegionIndex, RegionOffset, RegionPiece, StripeView, SubRequest,
};

/// Most bytes that one call moves, as of Linux's `read` and `write`.
pub(super) const MAX_TRANSFER_BYTES: u64 = 0x7fff_f000;

/// Where a write starts.
#[derive(Clone, Copy)]
pub(super) enum Start {
    At(FileOffset),
    /// At the size, as it is once inside the file. With the append lock held.
    End,
}

/// Why a request must leave its lane before it can go on.
pub(super) enum Obstacle {
    /// What it saw has changed meanwhile.
    Again,
    /// Regions without objects.
    Place {
        first: RegionIndex,
        last: RegionIndex,
    },
    /// An object that this process may not open by itself.
    Object(ObjectKey),
    Fault(FileError),
}

/// What one pass moved.
struct Done {
    start: FileOffset,
    bytes: u64,
    due: Due,
}

impl StripedFile {
    /// Reads at `offset`, at most up to the size; returns the bytes read, 0 at the end.
    pub fn read_at(&self, offset: FileOffset, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, FileError> {
        let buffers = Buffers::to_fill(buffers);
        let wanted = buffers.total_bytes().min(MAX_TRANSFER_BYTES);
        if wanted == 0 {
            return Ok(0);
        }
        loop {
            let lane = self.enter(self.in_flight(Direction::Read, offset, wanted))?;
            let outcome = self.read_inside(offset, wanted, &buffers);
            drop(lane);
            match outcome {
                Ok(done) => return Ok(self.finish(&done)),
                Err(obstacle) => self.overcome(obstacle)?,
            }
        }
    }

    /// Writes at `offset` and raises the size to the end of what was written; returns the bytes written, fewer than asked for only
    /// if the rest met a fault (no space, above all).
    pub fn write_at(&self, offset: FileOffset, buffers: &[IoSlice<'_>]) -> Result<usize, FileError> {
        self.write_from(Start::At(offset), buffers).map(|(_, bytes)| bytes)
    }

    pub(super) fn write_from(&self, start: Start, buffers: &[IoSlice<'_>]) -> Result<(FileOffset, usize), FileError> {
        self.check_writable()?;
        let buffers = Buffers::to_take(buffers);
        let mut wanted = buffers.total_bytes().min(MAX_TRANSFER_BYTES);
        loop {
            let expected = match start {
                Start::At(offset) => offset,
                Start::End => FileOffset(self.size_bytes()),
            };
            if wanted == 0 {
                return Ok((expected, 0));
            }
            let limit_bytes = self.limit_bytes();
            if expected.0 >= limit_bytes {
                return Err(FileError::TooLarge { file: self.file, offset: expected, limit_bytes });
            }
            wanted = wanted.min(limit_bytes - expected.0);
            let lane = self.enter(self.in_flight(Direction::Write, expected, wanted))?;
            let outcome = match start {
                // The end moved between the look and the lane.
                Start::End if self.size_bytes() != expected.0 => Err(Obstacle::Again),
                _ => self.write_inside(expected, wanted, &buffers),
            };
            drop(lane);
            match outcome {
                Ok(done) => {
                    if done.bytes < wanted {
                        self.tidy_behind(expected.0 + wanted);
                    }
                    return Ok((done.start, self.finish(&done)));
                }
                Err(Obstacle::Fault(error)) => {
                    self.tidy_behind(expected.0 + wanted);
                    return Err(error);
                }
                Err(Obstacle::Place { first, last }) => {
                    wanted = self.place_or_shorten(expected, wanted, first, last)?
                }
                Err(obstacle) => self.overcome(obstacle)?,
            }
        }
    }

    /// After a write up to `end` that failed in the middle: what it may have left beyond the size must not show in a hole later.
    #[cold]
    fn tidy_behind(&self, end: u64) {
        if end > self.size_bytes() {
            // The write's own fault is what the program is told; what stays is cut before the next extension by truncation.
            let _ = self.core.done(&Request::Tidy { file: self.file }, &[]);
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
    fn finish(&self, done: &Done) -> usize {
        if let (Some(due), Some(stations)) = (done.due, &self.core.stations) {
            stations.wait(due);
        }
        done.bytes as usize
    }

    #[inline]
    fn read_inside(&self, offset: FileOffset, wanted: u64, buffers: &Buffers<'_>) -> Result<Done, Obstacle> {
        let size = self.size_bytes();
        let bytes = wanted.min(size.saturating_sub(offset.0));
        if bytes == 0 {
            return Ok(Done { start: offset, bytes: 0, due: None });
        }
        if let Some((start, target)) = self.whole(offset, bytes, buffers)? {
            // SAFETY: `bytes` bytes of one buffer that the caller lent for writing.
            let memory = unsafe { std::slice::from_raw_parts_mut(start, bytes as usize) };
            let pin = self.pin(&target.key)?;
            let read = target.server.read_at(pin.as_fd(), target.offset, &mut [IoSliceMut::new(memory)]);
            let read = read.map_err(|error| self.fault(error))?;
            if (read as u64) < bytes {
                // The object ends here, or the kernel gave less: the general way tells.
                drop(pin);
                return self.move_range(Direction::Read, offset, bytes, buffers);
            }
            return Ok(Done { start: offset, bytes, due: None });
        }
        self.move_range(Direction::Read, offset, bytes, buffers)
    }

    #[inline]
    fn write_inside(&self, offset: FileOffset, bytes: u64, buffers: &Buffers<'_>) -> Result<Done, Obstacle> {
        let extent = &self.shared.extent;
        let mut done = Done { start: offset, bytes, due: None };
        match self.whole(offset, bytes, buffers)? {
            Some((start, target)) => {
                // SAFETY: `bytes` bytes of one buffer that the caller lent for reading.
                let memory = unsafe { std::slice::from_raw_parts(start, bytes as usize) };
                let pin = self.pin(&target.key)?;
                extent.begin_write(target.key.object.region);
                let written = target.server.write_at(pin.as_fd(), target.offset, &[IoSlice::new(memory)]);
                extent.end_write(target.key.object.region);
                done.bytes = match written {
                    Ok(0) => return Err(self.fault(self.no_progress(&target.key))),
                    Ok(written) => written as u64,
                    Err(error) => return Err(self.fault(error)),
                };
            }
            None => {
                self.find_unplaced(offset, bytes)?;
                done = self.move_range(Direction::Write, offset, bytes, buffers)?;
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
    ) -> Result<Option<(*mut u8, Target<'_>)>, Obstacle> {
        let Some(start) = buffers.start_in_one(bytes) else { return Ok(None) };
        if self.core.stations.is_some() {
            return Ok(None);
        }
        let (region, within) = self.geometry.locate(offset);
        let RegionState::Placed { generation, view } = self.shared.control.region(region) else { return Ok(None) };
        let place = view.locate(within);
        let inside = bytes <= place.contiguous_bytes && within.0 + bytes <= self.geometry.region_bytes();
        if !inside {
            return Ok(None);
        }
        let key = self.key(region, generation, place.server);
        let server = self.core.server(place.server).map_err(|error| self.fault(error))?;
        Ok(Some((start, Target { key, server, offset: place.offset })))
    }

    /// Every region of a write has objects, or the obstacle names them all, to be placed by one request.
    fn find_unplaced(&self, offset: FileOffset, bytes: u64) -> Result<(), Obstacle> {
        let (first, last) = (self.geometry.locate(offset).0, self.geometry.locate(FileOffset(offset.0 + bytes - 1)).0);
        let absent = |region: &u32| self.shared.control.region(RegionIndex(*region)) == RegionState::Absent;
        match (first.0..=last.0).find(absent) {
            Some(from) => Err(Obstacle::Place { first: RegionIndex(from), last }),
            None => Ok(()),
        }
    }

    /// Has regions placed for a write of `wanted` bytes at `offset`. Where there is no room for them, the part of the write before them remains;
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
        match self.overcome(Obstacle::Place { first, last }) {
            Err(FileError::Broker { source: ClientError::Refused(Refusal::NoSpace { .. }), .. }) if before > 0 => {
                Ok(before)
            }
            result => result.map(|()| wanted),
        }
    }

    /// The general way: any number of regions, servers and buffers. Stops at the first fault and returns what lies before it.
    fn move_range(
        &self,
        direction: Direction,
        offset: FileOffset,
        length: u64,
        buffers: &Buffers<'_>,
    ) -> Result<Done, Obstacle> {
        let due = if self.core.stations.is_some() { self.reserve(direction, offset, length) } else { None };
        for piece in self.geometry.pieces(offset, length) {
            let stopped = match self.shared.control.region(piece.region) {
                RegionState::Absent if direction == Direction::Read => {
                    buffers.zero(piece.buffer_offset, piece.length);
                    Ok(())
                }
                // Placed a moment ago, and retracted since.
                RegionState::Absent => Err((piece.buffer_offset, Obstacle::Again)),
                RegionState::Placed { generation, view } => {
                    self.move_piece(direction, &piece, generation, view, buffers)
                }
            };
            match stopped {
                Ok(()) => {}
                Err((bytes, Obstacle::Fault(_))) if bytes > 0 => return Ok(Done { start: offset, bytes, due }),
                Err((_, obstacle)) => return Err(obstacle),
            }
        }
        Ok(Done { start: offset, bytes: length, due })
    }

    /// One region's part. An error comes with the number of bytes of the whole request before which all is done.
    fn move_piece(
        &self,
        direction: Direction,
        piece: &RegionPiece,
        generation: Generation,
        view: StripeView<'_>,
        buffers: &Buffers<'_>,
    ) -> Result<(), (u64, Obstacle)> {
        if direction == Direction::Write {
            self.shared.extent.begin_write(piece.region);
        }
        let mut stopped: Option<(u64, Obstacle)> = None;
        for sub in from_first_byte(view, piece.offset, piece.length) {
            let result = match &stopped {
                None => {
                    let key = self.key(piece.region, generation, sub.server);
                    self.move_sub_request(direction, &key, &sub, piece.buffer_offset, buffers)
                }
                // Not begun: the request is done at most up to this one's first byte.
                Some(_) => Err((0, Obstacle::Again)),
            };
            if let Err((moved, obstacle)) = result {
                let at = piece.buffer_offset + buffer_position(&sub, moved);
                stopped = Some(match stopped {
                    None => (at, obstacle),
                    Some((before, first)) => (before.min(at), first),
                });
            }
        }
        if direction == Direction::Write {
            self.shared.extent.end_write(piece.region);
        }
        stopped.map_or(Ok(()), Err)
    }

    /// One server's part. An error comes with the bytes of it that were moved.
    fn move_sub_request(
        &self,
        direction: Direction,
        key: &ObjectKey,
        sub: &SubRequest<'_>,
        buffer_start: u64,
        buffers: &Buffers<'_>,
    ) -> Result<(), (u64, Obstacle)> {
        let server = self.core.server(sub.server).map_err(|error| (0, self.fault(error)))?;
        let pin = self.pin(key).map_err(|obstacle| (0, obstacle))?;
        let (mut cursor, mut batch) = (buffers.cursor(), Batch::new());
        let mut pieces = sub.pieces();
        let mut piece = (0, 0);
        let mut moved = 0;
        loop {
            batch.clear();
            loop {
                if piece.1 == 0 {
                    let Some(next) = pieces.next() else { break };
                    piece = next;
                }
                let added = batch.add(&mut cursor, buffer_start + piece.0, piece.1);
                piece = (piece.0 + added, piece.1 - added);
                if piece.1 > 0 {
                    break;
                }
            }
            if batch.bytes() == 0 {
                return Ok(());
            }
            while batch.bytes() > 0 {
                let at = ObjectOffset(sub.offset.0 + moved);
                let result = match direction {
                    Direction::Read => server.read_at(pin.as_fd(), at, batch.to_fill()),
                    Direction::Write => server.write_at(pin.as_fd(), at, batch.to_take()),
                };
                match (result, direction) {
                    (Ok(0), Direction::Read) => {
                        batch.zero();
                        moved += batch.bytes();
                        batch.clear();
                    }
                    (Ok(0), Direction::Write) => return Err((moved, self.fault(self.no_progress(key)))),
                    (Ok(bytes), _) => {
                        moved += bytes as u64;
                        batch.advance(bytes as u64);
                    }
                    (Err(error), _) => return Err((moved, self.fault(error))),
                }
            }
        }
    }

    /// Takes the emulated devices' time for every sub-request, in turn, before any byte moves.
    fn reserve(&self, direction: Direction, offset: FileOffset, length: u64) -> Due {
        let mut due = None;
        for piece in self.geometry.pieces(offset, length) {
            let RegionState::Placed { generation, view } = self.shared.control.region(piece.region) else { continue };
            for sub in from_first_byte(view, piece.offset, piece.length) {
                if let Ok(server) = self.core.server(sub.server) {
                    let object = ObjectName { file: self.file, region: piece.region, generation };
                    due = due.max(server.reserve(direction, object, sub.offset, sub.length));
                }
            }
        }
        due
    }

    #[inline]
    pub(super) fn key(
        &self,
        region: RegionIndex,
        generation: Generation,
        server: stripewise_layout::ServerId,
    ) -> ObjectKey {
        let object = ObjectName { file: self.file, region, generation };
        ObjectKey { object, server, writable: self.writable }
    }

    #[inline]
    pub(super) fn pin(&self, key: &ObjectKey) -> Result<Pin<'_>, Obstacle> {
        match self.core.objects.find(key) {
            Some(pin) => Ok(pin),
            None => self.open_object(key),
        }
    }

    #[cold]
    fn open_object(&self, key: &ObjectKey) -> Result<Pin<'_>, Obstacle> {
        let core: &Core = &self.core;
        let server = core.server(key.server).map_err(|error| self.fault(error))?;
        match server.open(key.object, key.writable) {
            Ok(handle) => Ok(core.objects.insert(key, Descriptor::raise(handle.descriptor, core.base()))),
            Err(ServerError::Denied { .. }) => Err(Obstacle::Object(*key)),
            Err(ServerError::Missing { server, .. }) => {
                let ObjectName { file, region, generation } = key.object;
                match self.shared.control.region(region) {
                    RegionState::Placed { generation: present, .. } if present == generation => {
                        Err(Obstacle::Fault(FileError::ObjectMissing { file, region, generation, server }))
                    }
                    _ => Err(Obstacle::Again),
                }
            }
            Err(error) => Err(self.fault(error)),
        }
    }

    /// Removes what stood in the way, outside the lane.
    #[cold]
    pub(super) fn overcome(&self, obstacle: Obstacle) -> Result<(), FileError> {
        let file = self.file;
        match obstacle {
            Obstacle::Again => Ok(()),
            Obstacle::Place { first, last } => {
                self.check_not_replaced()?;
                self.core.done(&Request::Place { file, first, last }, &[]).map_err(|source| self.broker(source))?;
                self.check_not_replaced()
            }
            Obstacle::Object(key) => {
                let ObjectName { region, generation, .. } = key.object;
                let request = Request::OpenObject { file, region, generation, server: key.server.0 };
                let object = self.core.object_from_broker(&request).map_err(|source| self.broker(source))?;
                drop(self.core.objects.insert(&key, object));
                Ok(())
            }
            Obstacle::Fault(error) => Err(error),
        }
    }

    #[cold]
    fn fault(&self, error: ServerError) -> Obstacle {
        Obstacle::Fault(self.server(error))
    }

    #[cold]
    fn no_progress(&self, key: &ObjectKey) -> ServerError {
        ServerError::Os { server: self.core.server_name(key.server), action: "writing nothing", source: Errno::IO }
    }
}

/// Where a request of one piece goes.
struct Target<'a> {
    key: ObjectKey,
    server: &'a dyn ServerBackend,
    offset: ObjectOffset,
}

/// The sub-requests of a region's part, that of its first byte first.
fn from_first_byte(view: StripeView<'_>, offset: RegionOffset, length: u64) -> impl Iterator<Item = SubRequest<'_>> {
    let first = view.locate(offset).turn;
    let from_first = view.split(offset, length).filter(move |sub| sub.turn >= first);
    from_first.chain(view.split(offset, length).filter(move |sub| sub.turn < first))
}

/// Where in the part's buffer byte `moved` of the sub-request lies.
fn buffer_position(sub: &SubRequest<'_>, mut moved: u64) -> u64 {
    for (start, length) in sub.pieces() {
        if moved < length {
            return start + moved;
        }
        moved -= length;
    }
    u64::MAX / 2
}
