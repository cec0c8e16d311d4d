//! One server's part of a request.

use super::buffers::{Batch, Buffers, Cursor};
use super::objects::Objects;
use super::reason::RetryReason;
use crate::client::objects::ObjectKey;
use crate::server::How;
use crate::shared::fragments::{Class, DiskRange};
use rustix::io::ReadWriteFlags;
use stripewise_layout::{Direction, ObjectOffset, RegionOffset, ServerId, StripeView, SubRequest};

/// The sub-requests of a region's part, that of its first byte first.
pub(super) fn from_first_byte(
    view: StripeView<'_>,
    offset: RegionOffset,
    length: u64,
) -> impl Iterator<Item = SubRequest<'_>> {
    let first = view.locate(offset).turn;
    let from_first = view.split(offset, length).filter(move |sub| sub.turn >= first);
    from_first.chain(view.split(offset, length).filter(move |sub| sub.turn < first))
}

/// A small part that its disk served, to be weighed once its time is known.
#[derive(Clone, Copy)]
pub(super) struct Weigh {
    pub(super) disk: ServerId,
    pub(super) range: DiskRange,
    pub(super) class: Option<Class>,
    /// Of the slowest disk over the next one, times the parts.
    pub(super) siblings_ns_per_byte: f64,
}

/// One server's part of a request on its way.
pub(super) struct SubMove<'a> {
    pub(super) key: ObjectKey,
    pub(super) sub: SubRequest<'a>,
    /// Where the region's part begins in the buffers.
    pub(super) buffer_start: u64,
    /// Bytes done.
    pub(super) moved: u64,
    /// What is to be known of it when its disk has served it.
    pub(super) weigh: Option<Weigh>,
}

impl SubMove<'_> {
    pub(super) fn buffer_start(&self) -> u64 {
        self.buffer_start
    }

    /// Where in the object the rest begins.
    pub(super) fn at(&self) -> ObjectOffset {
        ObjectOffset(self.sub.offset.0 + self.moved)
    }

    /// Adds the memory of what is left to `pieces`.
    pub(super) fn gather(&self, buffers: &Buffers<'_>, pieces: &mut Vec<libc::iovec>) {
        let (mut cursor, mut skip) = (buffers.cursor(), self.moved);
        for (start, length) in self.sub.pieces() {
            let done = skip.min(length);
            skip -= done;
            if done < length {
                cursor.gather(self.buffer_start + start + done, length - done, pieces);
            }
        }
    }

    /// Where in the buffers the rest begins.
    pub(super) fn buffer_position(&self) -> u64 {
        let mut moved = self.moved;
        for (start, length) in self.sub.pieces() {
            if moved < length {
                return self.buffer_start + start + moved;
            }
            moved -= length;
        }
        u64::MAX
    }

    /// What is left of one server's part.
    pub(super) fn move_in_turn(
        &mut self,
        objects: Objects<'_>,
        direction: Direction,
        buffers: &Buffers<'_>,
        how: How,
    ) -> Result<(), RetryReason> {
        let server = objects.store(self.sub.server)?;
        let pin = objects.pin(&self.key)?;
        let sub = self.sub;
        let (mut gather, mut batch) = (Gather::new(sub.pieces(), self, buffers), Batch::new());
        while gather.next(&mut batch) {
            while batch.bytes() > 0 {
                let at = self.at();
                let result = match direction {
                    Direction::Read => server.read_at(pin.handle(), at, batch.slices_to_fill()),
                    Direction::Write => server.write_at(pin.handle(), at, batch.slices_to_take(), how),
                };
                match (result, direction) {
                    (Ok(0), Direction::Read) => self.moved += batch.zero(),
                    (Ok(0), Direction::Write) => return Err(objects.fault(objects.no_progress(&self.key))),
                    (Ok(bytes), _) => {
                        self.moved += bytes as u64;
                        batch.advance(bytes as u64);
                    }
                    (Err(error), Direction::Read) => return Err(objects.fault(error)),
                    (Err(error), Direction::Write) => return Err(objects.write_fault(&self.key, how, error)),
                }
            }
        }
        Ok(())
    }

    /// Takes what the page cache has; true when that was all.
    pub(super) fn read_from_cache(&mut self, objects: Objects<'_>, buffers: &Buffers<'_>) -> Result<bool, RetryReason> {
        let pin = objects.pin(&self.key)?;
        let Some(object) = pin.handle().descriptor() else { return Ok(false) };
        let sub = self.sub;
        let (mut gather, mut batch) = (Gather::new(sub.pieces(), self, buffers), Batch::new());
        while gather.next(&mut batch) {
            while batch.bytes() > 0 {
                match rustix::io::preadv2(object, batch.slices_to_fill(), self.at().0, ReadWriteFlags::NOWAIT) {
                    // The object's end, or a kernel (5.9, 5.10) that says so of what is not in memory: the call in turn tells.
                    Ok(0) => return Ok(false),
                    Ok(bytes) => {
                        self.moved += bytes as u64;
                        batch.advance(bytes as u64);
                    }
                    // Not there, or not a store that can tell; the server's own words for an error come from the call in turn.
                    Err(_) => return Ok(false),
                }
            }
        }
        Ok(true)
    }
}

/// Where a request stopped: `bytes` of it are done, and no more, because of `reason`.
pub(super) struct Stopped {
    pub(super) bytes: u64,
    pub(super) reason: RetryReason,
}

impl Stopped {
    pub(super) fn new(moving: &SubMove<'_>, reason: RetryReason) -> Self {
        Self { bytes: moving.buffer_position(), reason }
    }

    /// The smaller number of bytes, and the reason that was met first, unless a later one would not be met again.
    pub(super) fn first(before: Option<Self>, result: Result<(), Self>) -> Option<Self> {
        match (before, result) {
            (before, Ok(())) => before,
            (None, Err(stop)) => Some(stop),
            (Some(before), Err(stop)) => {
                Some(Self { bytes: before.bytes.min(stop.bytes), reason: before.reason.or_lost(stop.reason) })
            }
        }
    }
}

/// Hands out the memory of what is left of a sub-request, batch by batch.
pub(super) struct Gather<'b, I> {
    cursor: Cursor<'b>,
    pieces: I,
    piece: (u64, u64),
    buffer_start: u64,
}

impl<'b, I: Iterator<Item = (u64, u64)>> Gather<'b, I> {
    /// `pieces` are those of `moving.sub`.
    pub(super) fn new(mut pieces: I, moving: &SubMove<'_>, buffers: &Buffers<'b>) -> Self {
        let (mut skip, mut piece) = (moving.moved, (0, 0));
        for (start, length) in pieces.by_ref() {
            if skip < length {
                piece = (start + skip, length - skip);
                break;
            }
            skip -= length;
        }
        Self { cursor: buffers.cursor(), pieces, piece, buffer_start: moving.buffer_start }
    }

    /// Fills the batch again; false when nothing is left.
    pub(super) fn next(&mut self, batch: &mut Batch<'_>) -> bool {
        batch.clear();
        loop {
            if self.piece.1 == 0 {
                let Some(piece) = self.pieces.next() else { break };
                self.piece = piece;
            }
            let (start, length) = self.piece;
            let added = batch.add(&mut self.cursor, self.buffer_start + start, length);
            self.piece = (start + added, length - added);
            if added < length {
                break;
            }
        }
        batch.bytes() > 0
    }
}
