//! A read or write of a program, from its first pass to its last: into a lane, out of it where something stands in the way, and in again.

use super::IoMode;
use super::asked::Asked;
use super::buffers::Buffers;
use super::core::FileCore;
use super::error::FileError;
use super::lane::Lanes;
use super::reason::RetryReason;
use super::retry::Retry;
use super::transfer::{Done, Transfers};
use crate::client::ClientError;
use crate::protocol::{Refusal, Request};
use crate::server::{Due, pace};
use crate::shared::slots::InFlight;
use std::io::{IoSlice, IoSliceMut};
use stripewise_layout::{Direction, FileOffset, RegionIndex, RequestKind};

/// Most bytes that one call moves, as of Linux's `read` and `write`.
const MAX_TRANSFER_BYTES: u64 = 0x7fff_f000;

/// Where a write starts.
#[derive(Clone, Copy)]
pub(super) enum Start {
    At(FileOffset),
    /// There, and no further than the size as it is once inside the file.
    Within(FileOffset),
    /// At the size, as it is once inside the file. With the append lock held.
    End,
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

/// Requests on one file.
#[derive(Clone, Copy)]
pub(super) struct Requests<'f> {
    file: &'f FileCore,
    lanes: Lanes<'f>,
    transfers: Transfers<'f>,
    retry: Retry<'f>,
}

impl<'f> Requests<'f> {
    #[inline]
    pub(super) fn new(file: &'f FileCore, transfers: Transfers<'f>, retry: Retry<'f>) -> Self {
        Self { file, lanes: Lanes::new(file), transfers, retry }
    }

    /// Reads at `offset`, at most up to the size.
    #[inline]
    pub(super) fn read(
        &self,
        offset: FileOffset,
        buffers: &mut [IoSliceMut<'_>],
        mode: IoMode,
    ) -> Result<usize, FileError> {
        let buffers = Buffers::to_fill(buffers);
        if offset.0 >= self.file.size_bytes() && !self.file.is_shared() {
            return Ok(0);
        }
        let within_limit = self.file.limit_bytes().saturating_sub(offset.0);
        let wanted = buffers.total_bytes().min(MAX_TRANSFER_BYTES).min(within_limit);
        if wanted == 0 {
            return Ok(0);
        }
        let mut total = Total::default();
        let mut asked = Asked::default();
        loop {
            let (at, wanted) = (FileOffset(offset.0 + total.bytes), wanted - total.bytes);
            let lane = self.lanes.enter(self.in_flight(Direction::Read, at, wanted))?;
            let outcome = self.transfers.read(at, wanted, &buffers.after(total.bytes), mode, asked);
            if let Ok(Done { bytes, reason: None, .. }) = &outcome {
                self.lanes.note(&lane, RequestKind::Read, offset, total.bytes + bytes);
            }
            drop(lane);
            let reason = match outcome {
                Ok(done) => {
                    total.add(&done);
                    let Some(reason) = done.reason else {
                        if done.bytes < wanted {
                            self.file.check_not_shut_out()?;
                        }
                        return Ok(self.finish(&total));
                    };
                    reason
                }
                Err(reason) => reason,
            };
            if let RetryReason::Refresh { .. } = reason {
                asked = Asked::now(self.file);
            }
            match self.retry.resolve(reason) {
                Err(_) if total.bytes > 0 => {
                    self.file.check_not_shut_out()?;
                    return Ok(self.finish(&total));
                }
                result => result?,
            }
        }
    }

    /// Writes at `start` and raises the size; returns where it began, and the bytes written.
    #[inline]
    pub(super) fn write(
        &self,
        mut start: Start,
        buffers: &[IoSlice<'_>],
        mode: IoMode,
    ) -> Result<(FileOffset, usize), FileError> {
        self.file.check_writable()?;
        let buffers = Buffers::to_take(buffers);
        let mut wanted = buffers.total_bytes().min(MAX_TRANSFER_BYTES);
        let mut total = Total::default();
        let mut rescues = 0;
        let mut asked = Asked::default();
        loop {
            let at = match start {
                Start::At(offset) => offset,
                Start::Within(offset) => {
                    wanted = wanted.min(self.file.size_bytes().saturating_sub(offset.0));
                    offset
                }
                Start::End => FileOffset(self.file.size_bytes()),
            };
            let begin = FileOffset(at.0 - total.bytes);
            if wanted == 0 {
                return Ok((begin, self.finish(&total)));
            }
            let limit_bytes = self.file.limit_bytes();
            if at.0 >= limit_bytes {
                return Err(FileError::TooLarge { file: self.file.id(), offset: at, limit_bytes });
            }
            wanted = wanted.min(limit_bytes - at.0);
            let lane = self.lanes.enter(self.in_flight(Direction::Write, at, wanted))?;
            let outcome = match start {
                // The end moved between the look and the lane.
                Start::End if self.file.size_bytes() != at.0 => Err(RetryReason::Again),
                // Cut between the look and the lane.
                Start::Within(_) if self.file.size_bytes() < at.0 + wanted => Err(RetryReason::Again),
                _ => self.transfers.write(at, wanted, &buffers.after(total.bytes), mode, asked),
            };
            if let Ok(Done { bytes, reason: None, .. }) = &outcome {
                self.lanes.note(&lane, RequestKind::Write(mode.write_class()), begin, total.bytes + bytes);
            }
            drop(lane);
            if let Err(RetryReason::Refresh { .. }) = &outcome {
                asked = Asked::now(self.file);
            }
            let is_lost = matches!(outcome, Err(RetryReason::Lost(_)));
            let is_fault = is_lost || matches!(outcome, Err(RetryReason::Fault(_) | RetryReason::Full { .. }));
            let resolve = match outcome {
                Ok(done) => {
                    total.add(&done);
                    let Some(reason) = done.reason else {
                        if done.bytes < wanted {
                            self.file.check_not_shut_out()?;
                            self.tidy_behind(at.0 + wanted);
                        }
                        return Ok((begin, self.finish(&total)));
                    };
                    let next = FileOffset(at.0 + done.bytes);
                    start = if let Start::Within(_) = start { Start::Within(next) } else { Start::At(next) };
                    wanted -= done.bytes;
                    self.resolve_counted(reason, &mut rescues)
                }
                Err(RetryReason::Place { first, last }) => {
                    self.place_or_shorten(at, wanted, first, last).map(|possible| wanted = possible)
                }
                Err(reason) => self.resolve_counted(reason, &mut rescues),
            };
            if let Err(error) = resolve {
                self.file.check_not_shut_out()?;
                if is_fault || total.bytes > 0 {
                    self.tidy_behind(at.0 + wanted);
                }
                return if total.bytes > 0 && !is_lost { Ok((begin, self.finish(&total))) } else { Err(error) };
            }
        }
    }

    /// As [`Retry::resolve`]; of full servers at most as many as there are, or two that fill up in turn would keep the write for ever.
    #[cold]
    fn resolve_counted(&self, reason: RetryReason, rescues: &mut usize) -> Result<(), FileError> {
        match reason {
            RetryReason::Full { error, .. } if *rescues >= self.file.core().server_count() => Err(error),
            RetryReason::Full { .. } => {
                *rescues += 1;
                self.retry.resolve(reason)
            }
            reason => self.retry.resolve(reason),
        }
    }

    /// After a write up to `end` that failed in the middle: what it may have left beyond the size must not show in a hole later.
    #[cold]
    fn tidy_behind(&self, end: u64) {
        if end > self.file.size_bytes() {
            // The write's own fault is what the program is told; what stays is cut before the next extension by truncation.
            let _ = self.file.ask(&Request::Tidy { file: self.file.id() });
        }
    }

    #[inline]
    fn in_flight(&self, direction: Direction, offset: FileOffset, length: u64) -> InFlight {
        let first = self.file.geometry().locate(offset);
        let region_bytes = self.file.geometry().region_bytes();
        let last = if first.1.0 + length <= region_bytes {
            first.0
        } else {
            self.file.geometry().locate(FileOffset(offset.0.saturating_add(length - 1))).0
        };
        InFlight { direction, first: first.0, last }
    }

    /// The part of a request's way home that needs no lane: the time of emulated devices.
    #[inline]
    fn finish(&self, total: &Total) -> usize {
        if let (Some(due), Some(stations)) = (total.due, &self.file.core().stations) {
            pace::wait(stations, due);
        }
        total.bytes as usize
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
        let before = self.file.geometry().start_of(first).0.saturating_sub(offset.0);
        match self.retry.resolve(RetryReason::Place { first, last }) {
            Err(FileError::Broker { source: ClientError::Refused(Refusal::NoSpace { .. }), .. }) if before > 0 => {
                Ok(before)
            }
            result => result.map(|()| wanted),
        }
    }
}
