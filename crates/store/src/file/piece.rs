//! One region's part of a request: its sub-requests in turn, as far as they would not make the request wait.

use super::buffers::Buffers;
use super::fragments::{FragmentContext, Part};
use super::logs::FragmentLogs;
use super::objects::Objects;
use super::reason::RetryReason;
use super::sub_request::{Stopped, SubMove, from_first_byte};
use super::together::PutOff;
use crate::client::now;
use crate::client::servers::Medium;
use stripewise_layout::{Direction, Generation};

/// Moves regions' parts between buffers and objects.
#[derive(Clone, Copy)]
pub(super) struct Pieces<'f> {
    objects: Objects<'f>,
    logs: &'f FragmentLogs,
}

impl<'f> Pieces<'f> {
    #[inline]
    pub(super) fn new(objects: Objects<'f>, logs: &'f FragmentLogs) -> Self {
        Self { objects, logs }
    }

    #[inline]
    pub(super) fn objects(&self) -> Objects<'f> {
        self.objects
    }

    /// Moves what parts have put off; see [`PutOff::finish`].
    pub(super) fn finish(
        &self,
        put_off: &mut PutOff<'_>,
        stopped: Option<Stopped>,
        buffers: &Buffers<'_>,
    ) -> Option<Stopped> {
        put_off.finish(self.objects, self.logs, stopped, buffers)
    }

    /// One region's part. What it puts off is not done yet when it returns, nor is the region's write over then.
    pub(super) fn move_piece<'a>(
        &self,
        direction: Direction,
        part: &Part<'a>,
        generation: Generation,
        buffers: &Buffers<'_>,
        put_off: &mut PutOff<'a>,
        mut context: Option<&mut FragmentContext<'_>>,
    ) -> Result<(), Stopped> {
        let (piece, view) = (&part.piece, part.view);
        if direction == Direction::Write {
            self.objects.file().extent().begin_write(piece.region);
        }
        let before = put_off.count();
        let mut stopped: Option<Stopped> = None;
        for sub in from_first_byte(view, piece.offset, piece.length) {
            let mut moving = SubMove {
                key: self.objects.key(piece.region, generation, sub.server),
                sub,
                buffer_start: piece.buffer_offset,
                moved: 0,
                weigh: None,
            };
            let result = match (&stopped, &mut context) {
                (None, Some(context)) => context.serve(direction, &mut moving, part, buffers, put_off.how()),
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
                self.objects.file().extent().end_write(piece.region);
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
        if (has_others || put_off.mode.direct) && self.objects.core().medium(server) == Medium::InTurn {
            // What it lies on is known when it is open.
            drop(self.objects.pin(&moving.key)?);
        }
        if put_off.takes(self.objects.core(), server, bytes) {
            return Ok(false);
        }
        let waits = has_others && self.objects.core().may_wait(server);
        if direction == Direction::Read && waits {
            return moving.read_from_cache(self.objects, buffers);
        }
        let begun = waits.then(now);
        moving.move_in_turn(self.objects, direction, buffers, put_off.how())?;
        if let Some(begun) = begun {
            put_off.has_waited |= self.objects.core().note_write(server, now() - begun, bytes);
        }
        Ok(true)
    }
}
