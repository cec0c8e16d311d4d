//! Sub-requests of one request under way together, reads and writes.
//!
//! While a request goes through its sub-requests in turn, those that would make it wait are *put off*; at its end they all begin, and it goes on when
//! all are over. Which those are is decided by what the servers show, never by a setting:
//! - A read first takes what the page cache has (`RWF_NOWAIT`), in turn. What the cache lacks is put off.
//! - A buffered write goes to the page cache in turn, which is fastest while the cache absorbs it. A server whose writes have taken longer than copying
//!   of late (a smoothed mean, `Core::note_write`) is written together with the others, and so is the rest of a request of which one write took long.
//!   What a group took is noted as well, so that servers that absorb writes again are written in turn again.
//! - Durable writes (`O_SYNC`, `O_DSYNC`) wait for devices always, and direct ones (`O_DIRECT`) as well: both are put off.
//! - A store without descriptors that has several transfers under way (`Capabilities::overlaps`) gets all of its own together.
//!
//! Calls on plain descriptors go out as one group through a ring, whatever servers they are for; a server's part with more pieces than one call takes
//! is several calls. This only brings work forward. What is left of a part (a short read or write, a read that failed, no ring to be had) is done in
//! turn afterwards, which also decides about the ends of objects. A write's error is not asked for again: the kernel tells of a failed write-back once.
//!
//! Direct calls move what is aligned, in memory and in the object, to [`DIRECT_BYTES`]: the leading pieces of a part. The rest goes through the page
//! cache, and a write of it is durable when it is over.

use super::IoMode;
use super::buffers::Buffers;
use super::fragments::disk_time_since;
use super::logs::FragmentLogs;
use super::objects::Objects;
use super::reason::RetryReason;
use super::sub_request::{Stopped, SubMove};
use crate::client::objects::{ObjectKey, Pin};
use crate::client::rings::{Call, GROUP};
use crate::client::servers::Medium;
use crate::client::{Core, now};
use crate::server::transfer::DIRECT_BYTES;
use crate::server::{How, Memory, ServerError, Submission, Transfer, submit_all};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use stripewise_layout::{Direction, ObjectOffset, RegionIndex, ServerId};

/// Pieces of memory in one call: the kernel's limit.
const MAX_PIECES: usize = 1024;

/// What a request has put off.
pub(super) struct PutOff<'a> {
    direction: Direction,
    pub(super) mode: IoMode,
    request_bytes: u64,
    subs: Vec<SubMove<'a>>,
    /// Regions whose writes have begun, and end with these.
    pub(super) regions: Vec<RegionIndex>,
    /// A write of this request took longer than the page cache does.
    pub(super) has_waited: bool,
}

impl<'a> PutOff<'a> {
    pub(super) fn new(direction: Direction, mode: IoMode, request_bytes: u64) -> Self {
        Self { direction, mode, request_bytes, subs: Vec::new(), regions: Vec::new(), has_waited: false }
    }

    pub(super) fn push(&mut self, moving: SubMove<'a>) {
        self.subs.push(moving);
    }

    pub(super) fn count(&self) -> usize {
        self.subs.len()
    }

    /// Whether the request has further sub-requests than one of so many bytes.
    pub(super) fn has_others(&self, bytes: u64) -> bool {
        bytes < self.request_bytes
    }

    /// Whether a sub-request of so many bytes is put off before anything of it is tried.
    pub(super) fn takes(&self, core: &Core, server: ServerId, bytes: u64) -> bool {
        let medium = core.medium(server);
        if self.mode.direct && medium.is_plain() {
            return true;
        }
        self.has_others(bytes)
            && match (medium, self.direction) {
                (Medium::Overlapping, _) => true,
                (Medium::Device, Direction::Write) => self.mode.durable || self.has_waited || core.writes_wait(server),
                _ => false,
            }
    }

    /// How a call is made of a part that is not put off.
    pub(super) fn how(&self) -> How {
        How { durable: self.mode.durable, in_place: false }
    }

    /// Moves what was put off. `stopped`: where the request stopped before; then no write is begun any more.
    pub(super) fn finish(
        &mut self,
        objects: Objects<'_>,
        logs: &FragmentLogs,
        mut stopped: Option<Stopped>,
        buffers: &Buffers<'_>,
    ) -> Option<Stopped> {
        if self.subs.is_empty() {
            return stopped;
        }
        let begun = now();
        let (direction, mode) = (self.direction, self.mode);
        // What is left of a direct part goes through the page cache.
        let how = How { durable: mode.durable || mode.direct, in_place: false };
        let may_begin = direction == Direction::Read || stopped.is_none();
        for group in self.subs.chunks_mut(GROUP) {
            let mut faults: Vec<Option<RetryReason>> = group.iter().map(|_| None).collect();
            if may_begin {
                Together { objects, direction, mode }.move_all(group, buffers, &mut faults);
            }
            for (moving, fault) in group.iter_mut().zip(faults) {
                let result = match fault {
                    Some(reason) => Err(reason),
                    None if moving.moved == moving.sub.length => Ok(()),
                    None if stopped.is_none() => moving.move_in_turn(objects, direction, buffers, how),
                    None => Err(RetryReason::Again),
                };
                // Asked for together, they are taken to have ended together.
                if let (Ok(()), Some(weigh), Some(took_ns)) = (&result, moving.weigh, disk_time_since(begun)) {
                    logs.served_by_disk(&weigh, took_ns);
                }
                stopped = Stopped::first(stopped, result.map_err(|reason| Stopped::new(moving, reason)));
            }
        }
        for region in self.regions.drain(..) {
            objects.file().extent().end_write(region);
        }
        if direction == Direction::Write && !how.durable {
            let (took, bytes) = (now() - begun, self.subs.iter().map(|moving| moving.sub.length).sum());
            for moving in &self.subs {
                objects.core().note_write(moving.sub.server, took, bytes);
            }
        }
        stopped
    }
}

/// A range of one object, with what lies in `pieces` of the group's memory.
struct Part {
    /// Number of the sub-request.
    sub: usize,
    offset: ObjectOffset,
    bytes: u64,
    first: usize,
    count: usize,
    is_direct: bool,
}

/// Objects of a sub-request, kept open.
struct Pins<'p> {
    cached: Pin<'p>,
    direct: Option<Pin<'p>>,
}

/// Some sub-requests of one request on their way together.
struct Together<'f> {
    objects: Objects<'f>,
    direction: Direction,
    mode: IoMode,
}

impl Together<'_> {
    /// Has the sub-requests under way together and returns when all calls are over. What is done of each is counted in it.
    fn move_all(&self, group: &mut [SubMove<'_>], buffers: &Buffers<'_>, faults: &mut [Option<RetryReason>]) {
        let Self { objects, direction, mode } = *self;
        let (mut pins, mut pieces, mut parts) = (Vec::with_capacity(group.len()), Vec::new(), Vec::new());
        for (number, moving) in group.iter().enumerate() {
            let is_direct = mode.direct && self.objects.core().medium(moving.sub.server).is_plain();
            let pin = |direct| objects.pin(&ObjectKey { direct, ..moving.key });
            let direct = if is_direct { pin(true).map(Some) } else { Ok(None) };
            // An object that cannot be opened here is met again in turn, which says why.
            let (Ok(cached), Ok(direct)) = (pin(false), direct) else { return };
            add_parts(number, moving, buffers, direct.is_some(), &mut pieces, &mut parts);
            pins.push(Pins { cached, direct });
        }
        let how = |part: &Part| self.how(part);
        let handle = |part: &Part| match &pins[part.sub].direct {
            Some(direct) if part.is_direct => direct.handle(),
            _ => pins[part.sub].cached.handle(),
        };
        let transfer = |part: &Part| {
            // SAFETY: gathered from buffers that the caller lent in this direction until its request is over; no two pieces overlap.
            let memory = unsafe { Memory::of_pieces(&pieces[part.first..part.first + part.count], direction) };
            Transfer::new(handle(part), part.offset, memory, how(part))
        };
        let is_plain = |part: &Part| self.objects.core().medium(group[part.sub].sub.server).is_plain();
        let mut results: Vec<Option<Result<usize, ServerError>>> = parts.iter().map(|_| None).collect();
        let (plain, other): (Vec<usize>, Vec<usize>) = (0..parts.len()).partition(|number| is_plain(&parts[*number]));
        let mut submissions: Vec<Submission<'_, '_>> = Vec::new();
        let mut numbers: Vec<(ServerId, Vec<usize>)> = Vec::new();
        for number in other {
            let server = group[parts[number].sub].sub.server;
            match numbers.iter_mut().find(|(known, _)| *known == server) {
                Some((_, numbers)) => numbers.push(number),
                None => numbers.push((server, vec![number])),
            }
        }
        for (server, numbers) in &numbers {
            let Ok(store) = self.objects.core().server(*server) else { return };
            submissions
                .push(Submission { store, batch: numbers.iter().map(|number| transfer(&parts[*number])).collect() });
        }
        submit_all(&mut submissions, &mut || {
            self.move_plain(&plain, &parts, &pieces, &transfer, &how, &mut results, &|part| group[part.sub].sub.server);
        });
        for ((_, numbers), submission) in numbers.iter().zip(submissions) {
            for (number, transfer) in numbers.iter().zip(submission.batch) {
                results[*number] = transfer.completion;
            }
        }
        drop(pins);
        self.count(group, &parts, results, faults);
    }

    /// The parts on plain descriptors: one group of calls to the kernel, or in turn.
    #[expect(clippy::too_many_arguments, reason = "the pieces of one group, taken apart for borrowing")]
    fn move_plain<'t>(
        &self,
        plain: &[usize],
        parts: &[Part],
        pieces: &'t [libc::iovec],
        transfer: &dyn Fn(&Part) -> Transfer<'t>,
        how: &dyn Fn(&Part) -> How,
        results: &mut [Option<Result<usize, ServerError>>],
        server_of: &dyn Fn(&Part) -> ServerId,
    ) {
        let call = |part: &Part| {
            let descriptor = transfer(part).handle.descriptor().map_or(-1, |object| object.as_raw_fd());
            let (offset, pieces) = (part.offset.0, &pieces[part.first..part.first + part.count]);
            match self.direction {
                Direction::Read => Call::Read { descriptor, offset, pieces },
                Direction::Write => Call::Write { descriptor, offset, pieces, durable: how(part).durable },
            }
        };
        if plain.len() > 1 {
            let calls: Vec<Call<'_>> = plain.iter().map(|number| call(&parts[*number])).collect();
            let action = match self.direction {
                Direction::Read => "reading an object",
                Direction::Write => "writing an object",
            };
            let is_begun = self.objects.core().rings.run(&calls, |number, result| {
                let number = plain[number];
                let server = || self.objects.core().server_name(server_of(&parts[number]));
                results[number] = Some(result.map_err(|errno| ServerError::from_errno(server(), action, errno)));
            });
            if is_begun {
                return;
            }
        }
        for number in plain {
            let part = &parts[*number];
            let Ok(server) = self.objects.core().server(server_of(part)) else { continue };
            let mut batch = [transfer(part)];
            server.submit(&mut batch, &mut || ());
            let [done] = batch;
            results[*number] = done.completion;
        }
    }

    /// How the bytes of one part are written.
    fn how(&self, part: &Part) -> How {
        How { durable: self.mode.durable || self.mode.direct && !part.is_direct, in_place: false }
    }

    /// Counts what is done of each sub-request: up to the first part that is not whole. A failure behind that counts all the same: it may be
    /// told once.
    fn count(
        &self,
        group: &mut [SubMove<'_>],
        parts: &[Part],
        results: Vec<Option<Result<usize, ServerError>>>,
        faults: &mut [Option<RetryReason>],
    ) {
        let mut is_broken = vec![false; group.len()];
        for (part, result) in parts.iter().zip(results) {
            let moving = &mut group[part.sub];
            match result {
                Some(Ok(_)) if is_broken[part.sub] => {}
                Some(Ok(bytes)) => {
                    moving.moved += bytes as u64;
                    is_broken[part.sub] = (bytes as u64) < part.bytes;
                }
                Some(Err(error)) => {
                    is_broken[part.sub] = true;
                    if self.direction == Direction::Write && !is_worth_another_try(&error) {
                        let fault = self.objects.write_fault(&moving.key, self.how(part), error);
                        let before = faults[part.sub].take();
                        faults[part.sub] = Some(match before {
                            Some(before) => before.or_lost(fault),
                            None => fault,
                        });
                    }
                }
                None => is_broken[part.sub] = true,
            }
        }
    }
}

/// A call that was not made, or is not made so on this file system.
fn is_worth_another_try(error: &ServerError) -> bool {
    matches!(error, ServerError::Os { source: Errno::INTR | Errno::AGAIN | Errno::INVAL | Errno::OPNOTSUPP, .. })
}

/// Takes apart what is left of sub-request `number`: into what may go past the page cache and the rest, and that into calls.
fn add_parts(
    number: usize,
    moving: &SubMove<'_>,
    buffers: &Buffers<'_>,
    is_direct: bool,
    pieces: &mut Vec<libc::iovec>,
    parts: &mut Vec<Part>,
) {
    let mut own = Vec::new();
    moving.gather(buffers, &mut own);
    let split = if is_direct { split_aligned(moving.at(), &mut own) } else { 0 };
    let mut offset = moving.at().0;
    let (aligned, rest) = own.split_at(split);
    for (of, is_direct) in [(aligned, true), (rest, false)] {
        for some in of.chunks(MAX_PIECES) {
            let bytes = some.iter().map(|piece| piece.iov_len as u64).sum();
            let (first, count) = (pieces.len(), some.len());
            pieces.extend_from_slice(some);
            parts.push(Part { sub: number, offset: ObjectOffset(offset), bytes, first, count, is_direct });
            offset += bytes;
        }
    }
}

/// How many leading pieces are aligned, offsets and all. The last of them is split in two where only its beginning is.
fn split_aligned(at: ObjectOffset, pieces: &mut Vec<libc::iovec>) -> usize {
    let is_aligned = |number: u64| number.is_multiple_of(DIRECT_BYTES);
    if !is_aligned(at.0) {
        return 0;
    }
    for number in 0..pieces.len() {
        let libc::iovec { iov_base, iov_len } = pieces[number];
        if !is_aligned(iov_base as u64) {
            return number;
        }
        let whole = iov_len - iov_len % DIRECT_BYTES as usize;
        if whole < iov_len {
            if whole == 0 {
                return number;
            }
            pieces[number].iov_len = whole;
            let rest = libc::iovec { iov_base: iov_base.wrapping_byte_add(whole), iov_len: iov_len - whole };
            pieces.insert(number + 1, rest);
            return number + 1;
        }
    }
    pieces.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_aligned_goes_past_the_cache() {
        let split = |at: u64, pieces: &[(usize, usize)]| {
            let piece = |(start, length): &(usize, usize)| libc::iovec { iov_base: *start as *mut _, iov_len: *length };
            let mut pieces: Vec<libc::iovec> = pieces.iter().map(piece).collect();
            let count = split_aligned(ObjectOffset(at), &mut pieces);
            (count, pieces.iter().map(|piece| (piece.iov_base as usize, piece.iov_len)).collect::<Vec<_>>())
        };
        assert_eq!(split(8192, &[(4096, 8192), (65536, 4096)]), (2, vec![(4096, 8192), (65536, 4096)]));
        assert_eq!(split(512, &[(4096, 8192)]).0, 0);
        assert_eq!(split(0, &[(4097, 8192)]).0, 0);
        assert_eq!(split(0, &[(4096, 4096), (16384, 5000)]), (2, vec![(4096, 4096), (16384, 4096), (20480, 904)]));
        assert_eq!(split(0, &[(4096, 4096), (16384, 500), (20480, 4096)]).0, 1);
    }
}
