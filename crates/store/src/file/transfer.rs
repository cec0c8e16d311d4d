//! Moving the bytes of a request between the caller's buffers and the objects.
//!
//! A request of one buffer within one stripe, the most frequent one, is one system call. Any other is cut by region and
//! server: what one server has of a region's part is one range of its object, moved by as few `preadv`/`pwritev` calls as its pieces allow.
//! The server of the first byte comes first, so that a server that is full from the start refuses before anything has changed; what
//! a failure in the middle leaves is a prefix that is told, and nothing is told of what may lie behind it; of a durable write the
//! failure is told instead, since it may be told once. A server that others filled is no failure as long as another has space: the
//! broker moves the region, and the write goes on there.
//!
//! Calls go out in turn, which in memory is the fastest way; what would wait is put off and goes out together (`together`).

use super::IoMode;
use super::ahead::ReadAhead;
use super::asked::Asked;
use super::buffers::Buffers;
use super::copies::{Choice, Copies};
use super::core::FileCore;
use super::fragments::{FragmentContext, Part, has_small_part};
use super::logs::FragmentLogs;
use super::objects::Objects;
use super::piece::Pieces;
use super::reason::RetryReason;
use super::sub_request::Stopped;
use super::syncing::Durability;
use super::together::PutOff;
use crate::client::now;
use crate::client::objects::ObjectKey;
use crate::server::{Due, How, ObjectStore};
use crate::shared::control::{FragmentMode, RegionState, narrow_bytes};
use crate::shared::marking::{Motion, chunks_of};
use std::io::{IoSlice, IoSliceMut};
use stripewise_layout::{Direction, FileOffset, ObjectOffset, RegionIndex, RegionPiece, RequestKind};

/// What one pass moved, and what stands before the rest, if that can be overcome.
pub(super) struct Done {
    pub(super) bytes: u64,
    pub(super) due: Due,
    pub(super) reason: Option<RetryReason>,
}

/// Passes of requests, inside their lanes.
#[derive(Clone, Copy)]
pub(super) struct Transfers<'f> {
    file: &'f FileCore,
    logs: &'f FragmentLogs,
    durability: &'f Durability,
    ahead: &'f ReadAhead,
}

impl<'f> Transfers<'f> {
    #[inline]
    pub(super) fn new(
        file: &'f FileCore,
        logs: &'f FragmentLogs,
        durability: &'f Durability,
        ahead: &'f ReadAhead,
    ) -> Self {
        Self { file, logs, durability, ahead }
    }

    #[inline]
    fn objects(&self) -> Objects<'f> {
        Objects::new(self.file)
    }

    #[inline]
    pub(super) fn read(
        &self,
        offset: FileOffset,
        wanted: u64,
        buffers: &Buffers<'_>,
        mode: IoMode,
        asked: Asked,
    ) -> Result<Done, RetryReason> {
        let size = self.file.size_bytes();
        let bytes = wanted.min(size.saturating_sub(offset.0));
        if bytes < wanted && !asked.is_enough(self.file) {
            let (first, last) = self.file.regions_of(offset, wanted);
            return Err(RetryReason::Refresh { first, last });
        }
        if bytes == 0 {
            return Ok(Done { bytes: 0, due: None, reason: None });
        }
        self.on_trial(offset, bytes, || self.read_inside(offset, bytes, size, buffers, mode, asked))
    }

    /// As [`Self::read`], of bytes before the file's end.
    #[inline]
    fn read_inside(
        &self,
        offset: FileOffset,
        bytes: u64,
        size: u64,
        buffers: &Buffers<'_>,
        mode: IoMode,
        asked: Asked,
    ) -> Result<Done, RetryReason> {
        if !mode.direct
            && let Some((from, bytes)) = self.ahead.note(offset, bytes, size, self.file.geometry().region_bytes())
        {
            self.ahead.ask(self.objects(), from, bytes);
        }
        if mode == IoMode::default()
            && let Some((start, target)) = self.whole(offset, bytes, buffers)?
            && target.motion != Motion::Replicated
        {
            // SAFETY: `bytes` bytes of one buffer that the caller lent for writing.
            let memory = unsafe { std::slice::from_raw_parts_mut(start, bytes as usize) };
            let pin = self.objects().pin(&target.key)?;
            let read = target.server.read_at(pin.handle(), target.offset, &mut [IoSliceMut::new(memory)]);
            let read = read.map_err(|error| self.objects().fault(error))?;
            if (read as u64) < bytes {
                // The object ends here, or the kernel gave less: the general way tells.
                drop(pin);
                return self.move_range(Direction::Read, offset, bytes, buffers, mode, asked);
            }
            return Ok(Done { bytes, due: None, reason: None });
        }
        self.move_range(Direction::Read, offset, bytes, buffers, mode, asked)
    }

    #[inline]
    pub(super) fn write(
        &self,
        offset: FileOffset,
        bytes: u64,
        buffers: &Buffers<'_>,
        mode: IoMode,
        asked: Asked,
    ) -> Result<Done, RetryReason> {
        self.on_trial(offset, bytes, || self.write_bytes(offset, bytes, buffers, mode, asked))
    }

    /// What a request costs that has small parts, on a file that could have logs and has none.
    #[inline]
    fn on_trial(
        &self,
        offset: FileOffset,
        bytes: u64,
        request: impl FnOnce() -> Result<Done, RetryReason>,
    ) -> Result<Done, RetryReason> {
        let notices = self.file.control().notices();
        if notices.fragments() != FragmentMode::Wanted
            || self.file.core().stations.is_some()
            || !has_small_part(self.file, offset, bytes, notices.fragment_threshold_bytes())
        {
            return request();
        }
        let begun = now();
        let done = request()?;
        self.logs.trial.note(bytes, begun);
        Ok(done)
    }

    #[inline]
    fn write_bytes(
        &self,
        offset: FileOffset,
        bytes: u64,
        buffers: &Buffers<'_>,
        mode: IoMode,
        asked: Asked,
    ) -> Result<Done, RetryReason> {
        let extent = self.file.extent();
        if offset.0 > extent.size_bytes() {
            if !asked.is_enough(self.file) {
                let (first, last) = self.file.regions_of(offset, bytes);
                return Err(RetryReason::Refresh { first, last });
            }
            if self.file.control().notices().has_leftovers() {
                return Err(RetryReason::Leftovers);
            }
        }
        let mut done = Done { bytes, due: None, reason: None };
        let whole = if mode == IoMode::default() { self.whole(offset, bytes, buffers)? } else { None };
        match whole {
            Some((start, target)) if target.motion == Motion::Still => {
                // SAFETY: `bytes` bytes of one buffer that the caller lent for reading.
                let memory = unsafe { std::slice::from_raw_parts(start, bytes as usize) };
                let pin = self.objects().pin(&target.key)?;
                extent.begin_write(target.key.object.region);
                let written =
                    target.server.write_at(pin.handle(), target.offset, &[IoSlice::new(memory)], How::default());
                extent.end_write(target.key.object.region);
                done.bytes = match written {
                    Ok(0) => return Err(self.objects().fault(self.objects().no_progress(&target.key))),
                    Ok(written) => written as u64,
                    Err(error) => return Err(self.objects().write_fault(&target.key, How::default(), error)),
                };
            }
            _ => {
                self.find_retry_reason(offset, bytes)?;
                let durable =
                    if mode.durable { self.durability.durable_regions(self.file, offset, bytes) } else { Vec::new() };
                done = self.move_range(Direction::Write, offset, bytes, buffers, mode, asked)?;
                if done.bytes == bytes {
                    self.durability.note_durable_write(self.file, &durable);
                }
            }
        }
        extent.extend_to(offset.0 + done.bytes);
        self.file.touch();
        Ok(done)
    }

    /// The one object and buffer of a request that needs no more, on a server without emulated time.
    #[inline]
    fn whole(
        &self,
        offset: FileOffset,
        bytes: u64,
        buffers: &Buffers<'_>,
    ) -> Result<Option<(*mut u8, Target<'f>)>, RetryReason> {
        let Some(start) = buffers.start_in_one(bytes) else { return Ok(None) };
        let has_logs = match self.file.control().notices().fragments() {
            FragmentMode::Off => false,
            FragmentMode::Wanted => self.logs.are_worth_making(self.file),
            FragmentMode::On | FragmentMode::Leaving => true,
        };
        if self.file.core().stations.is_some() || has_logs {
            return Ok(None);
        }
        let (region, within) = self.file.geometry().locate(offset);
        let RegionState::Placed { generation, view, motion, is_narrow } = self.file.region(region) else {
            return Ok(None);
        };
        if is_narrow && within.0 + bytes > narrow_bytes(view) {
            return Ok(None);
        }
        let place = view.locate(within);
        let inside = bytes <= place.contiguous_bytes && within.0 + bytes <= self.file.geometry().region_bytes();
        if !inside {
            return Ok(None);
        }
        let key = self.objects().key(region, generation, place.server);
        let server = self.objects().store(place.server)?;
        Ok(Some((start, Target { key, server, offset: place.offset, motion })))
    }

    /// Every region of a write has objects, or the reason names them all, to be placed by one request; and none is sealed, as far as can be told
    /// before the devices' time is taken.
    fn find_retry_reason(&self, offset: FileOffset, bytes: u64) -> Result<(), RetryReason> {
        let (first, last) =
            (self.file.geometry().locate(offset).0, self.file.geometry().locate(FileOffset(offset.0 + bytes - 1)).0);
        for region in (first.0..=last.0).map(RegionIndex) {
            match self.file.region(region) {
                // A file that is begun, and often ended with the same request, gets what that needs.
                RegionState::Absent if last.0 == 0 => return Err(RetryReason::Begin { bytes: offset.0 + bytes }),
                RegionState::Absent => return Err(RetryReason::Place { first: region, last }),
                RegionState::Placed { view, is_narrow: true, .. }
                    if offset.0 + bytes > self.file.geometry().start_of(region).0 + narrow_bytes(view) =>
                {
                    return Err(RetryReason::Place { first: region, last });
                }
                RegionState::Placed { motion: Motion::Sealed(_), .. } => return Err(RetryReason::Sealed(region)),
                RegionState::Placed { motion: Motion::Replicated, .. } => {
                    return Err(RetryReason::Pin { first: region, last });
                }
                RegionState::Placed { .. } => {}
            }
        }
        Ok(())
    }

    /// The general way: any number of regions, servers and buffers. Stops at the first fault or reason and returns what lies before it; a
    /// fault of a durable write it returns whatever lies before.
    fn move_range(
        &self,
        direction: Direction,
        offset: FileOffset,
        length: u64,
        buffers: &Buffers<'_>,
        mode: IoMode,
        asked: Asked,
    ) -> Result<Done, RetryReason> {
        let pieces = Pieces::new(self.objects(), self.logs);
        let copies = Copies::new(pieces);
        let mut chosen = Vec::new();
        let mut context = FragmentContext::of(self.objects(), self.logs, offset, length)?;
        let reserves = self.file.core().stations.is_some() && context.is_none();
        let kind = match direction {
            Direction::Read => RequestKind::Read,
            Direction::Write => RequestKind::Write(mode.write_class()),
        };
        let mut due = if reserves { copies.reserve(kind, offset, length, &mut chosen) } else { None };
        let mut put_off: PutOff<'f> = PutOff::new(direction, mode, length);
        let mut stopped: Option<Stopped> = None;
        for piece in self.file.geometry().pieces(offset, length) {
            let result = match self.file.region(piece.region) {
                RegionState::Absent if direction == Direction::Read && !asked.is_enough(self.file) => {
                    let (_, last) = self.file.regions_of(offset, length);
                    let reason = RetryReason::Refresh { first: piece.region, last };
                    Err(Stopped { bytes: piece.buffer_offset, reason })
                }
                RegionState::Absent if direction == Direction::Read => {
                    buffers.zero(piece.buffer_offset, piece.length);
                    Ok(())
                }
                // Placed a moment ago, and retracted since.
                RegionState::Absent => Err(Stopped { bytes: piece.buffer_offset, reason: RetryReason::Again }),
                // Placed again since it was looked at.
                RegionState::Placed { view, is_narrow: true, .. }
                    if direction == Direction::Write && piece.offset.0 + piece.length > narrow_bytes(view) =>
                {
                    Err(Stopped { bytes: piece.buffer_offset, reason: RetryReason::Again })
                }
                // Nothing was written beyond its stripe when it was looked at. The object may hold more by now: what the region's whole layout put there.
                RegionState::Placed { generation, view, motion, is_narrow: true }
                    if piece.offset.0 + piece.length > narrow_bytes(view) =>
                {
                    let inside = narrow_bytes(view).saturating_sub(piece.offset.0);
                    buffers.zero(piece.buffer_offset + inside, piece.length - inside);
                    let part = Part { piece: RegionPiece { length: inside, ..piece }, view, motion };
                    if inside == 0 {
                        Ok(())
                    } else {
                        pieces.move_piece(direction, &part, generation, buffers, &mut put_off, context.as_mut())
                    }
                }
                RegionState::Placed { generation, view, motion: Motion::Replicated, .. } => match direction {
                    Direction::Read => {
                        let reserved = chosen.iter().position(|chosen: &Choice<'_>| chosen.region == piece.region);
                        let reserved = reserved.map(|number| chosen.swap_remove(number));
                        copies.read(&piece, (generation, view), reserved, buffers, mode, &mut due)
                    }
                    Direction::Write => {
                        let reason = RetryReason::Pin { first: piece.region, last: piece.region };
                        Err(Stopped { bytes: piece.buffer_offset, reason })
                    }
                },
                RegionState::Placed { generation, view, motion, .. } => {
                    let part = Part { piece, view, motion };
                    match motion {
                        Motion::Moving(slot) if direction == Direction::Write => {
                            let chunks = chunks_of(self.file.geometry().region_bytes(), piece.offset.0, piece.length);
                            // Whatever becomes of the write: a part of it may have reached the object. Nothing of it is put off beyond the marking.
                            self.file.extent().marks(slot).write(chunks, || {
                                let mut own = PutOff::new(direction, mode, length);
                                let moved = pieces.move_piece(
                                    direction,
                                    &part,
                                    generation,
                                    buffers,
                                    &mut own,
                                    context.as_mut(),
                                );
                                pieces.finish(&mut own, moved.err(), buffers).map_or(Ok(()), Err)
                            })
                        }
                        Motion::Sealed(_) if direction == Direction::Write => {
                            Err(Stopped { bytes: piece.buffer_offset, reason: RetryReason::Sealed(piece.region) })
                        }
                        _ => pieces.move_piece(direction, &part, generation, buffers, &mut put_off, context.as_mut()),
                    }
                }
            };
            if let Err(stop) = result {
                stopped = Some(stop);
                break;
            }
        }
        stopped = pieces.finish(&mut put_off, stopped, buffers);
        due = due.max(context.and_then(|context| context.due));
        match stopped {
            None => Ok(Done { bytes: length, due, reason: None }),
            Some(Stopped { bytes: 0, reason } | Stopped { reason: reason @ RetryReason::Lost(_), .. }) => Err(reason),
            Some(Stopped { bytes, reason: RetryReason::Fault(_) }) => Ok(Done { bytes, due, reason: None }),
            // Where it stands is where the request goes on: begun again, one that needs more objects than the cache holds would never end.
            Some(Stopped { bytes, reason }) => Ok(Done { bytes, due, reason: Some(reason) }),
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
