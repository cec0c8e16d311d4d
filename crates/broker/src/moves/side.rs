//! One place of a region, open for its mover.
//!
//! What a unit needs of the servers of a place is asked of all of them together: reads of the old place, and writes to the new one, or to all new
//! replicas at once.

use super::Moves;
use crate::context::Context;
use crate::managed::Managed;
use crate::objects::stripe_servers;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use stripewise_layout::{
    Direction, FileId, Generation, Layout, ObjectOffset, RegionIndex, RegionOffset, ServerId, SubRequest,
};
use stripewise_store::server::{
    Due, Handle, How, Memory, ObjectHandle, ObjectName, ObjectStore, Operation, ServerError, Submission, Transfer,
    submit_all,
};

/// Pieces of memory in one system call.
const MAX_PIECES: usize = 512;

/// The objects of one layout of a region.
pub(super) struct Side<'a> {
    pub(super) layout: &'a Layout,
    object: ObjectName,
    /// By turn.
    handles: Vec<ObjectHandle>,
}

/// What one server has yet to do of a unit.
struct Part<'p, S> {
    store: &'p dyn ObjectStore,
    handle: Handle<'p>,
    at: u64,
    left: &'p mut [S],
}

impl<'a> Side<'a> {
    pub(super) fn open(
        core: &Moves,
        managed: &Managed,
        (region, generation, layout): (RegionIndex, Generation, &'a Layout),
        writable: bool,
    ) -> Result<Self, ServerError> {
        let object = ObjectName { file: managed.file, region, generation };
        let handles = core.objects.open_all_as_owner(managed, object, layout, writable)?;
        Ok(Self { layout, object, handles })
    }

    /// Takes the emulated devices' time for a range.
    pub(super) fn reserve(&self, core: &Moves, direction: Direction, (start, length): (u64, u64)) -> Due {
        let throttle = &core.throttle;
        let subs = self.layout.view().split(RegionOffset(start), length);
        subs.filter_map(|sub| throttle.reserve(sub.server, direction, self.object, sub.offset, sub.length)).max()
    }

    /// Up to where its objects hold anything of the region.
    pub(super) fn end(&self, context: &Context) -> Result<u64, ServerError> {
        held_of(self.object, self.layout, context).map(|held| held.end)
    }

    fn subs(&self, start: u64, length: usize) -> Vec<SubRequest<'_>> {
        self.layout.view().split(RegionOffset(start), length as u64).collect()
    }

    fn parts<'p, S>(
        &'p self,
        context: &'p Context,
        subs: &[SubRequest<'_>],
        slices: &'p mut [Vec<S>],
    ) -> Vec<Part<'p, S>> {
        let part = |(sub, slices): (&SubRequest<'_>, &'p mut Vec<S>)| {
            let (store, handle) = (context.servers()[usize::from(sub.server.0)].as_ref(), &self.handles[sub.turn]);
            Part { store, handle: handle.as_handle(), at: sub.offset.0, left: slices.as_mut_slice() }
        };
        subs.iter().zip(slices).map(part).collect()
    }

    /// Fills `buffer` from `start` on, from all servers together; what objects do not hold is zeros.
    pub(super) fn read(&self, context: &Context, start: u64, buffer: &mut [u8]) -> Result<(), ServerError> {
        let subs = self.subs(start, buffer.len());
        let mut slices = slices_of(&subs, buffer);
        let mut parts = self.parts(context, &subs, &mut slices);
        while !parts.is_empty() {
            let mut submissions = Vec::with_capacity(parts.len());
            for Part { store, handle, at, left } in &mut parts {
                let count = left.len().min(MAX_PIECES);
                submissions.push(submission(*store, *handle, *at, Memory::to_fill(&mut left[..count])));
            }
            let moved = submit(submissions)?;
            for (part, moved) in parts.iter_mut().zip(moved) {
                if moved == 0 {
                    part.left.iter_mut().for_each(|slice| slice.fill(0));
                    part.left = &mut [];
                } else {
                    part.at += moved as u64;
                    IoSliceMut::advance_slices(&mut part.left, moved);
                }
            }
            parts.retain(|part| !part.left.is_empty());
        }
        Ok(())
    }
}

/// What the objects of one place of a region hold.
pub(super) struct Held {
    /// Up to where they hold anything of the region.
    pub(super) end: u64,
    /// The space that they occupy is not enough for all bytes up to there.
    pub(super) has_holes: bool,
}

pub(super) fn held_of(object: ObjectName, layout: &Layout, context: &Context) -> Result<Held, ServerError> {
    let view = layout.view();
    let size = |server| (server, Operation::Size(object));
    let sizes = context.perform_together(stripe_servers(layout).map(size));
    let (mut end, mut held_bytes, mut has_holes) = (0, 0, false);
    for ((turn, server), outcome) in stripe_servers(layout).enumerate().zip(sizes) {
        let size = outcome?.into_size(&context.server_name(server))?;
        if let Some(last) = size.end_bytes.checked_sub(1) {
            end = end.max(view.region_offset(turn, ObjectOffset(last)).0 + 1);
        }
        held_bytes += size.end_bytes;
        has_holes |= size.occupied_bytes < size.end_bytes;
    }
    Ok(Held { end, has_holes: has_holes || held_bytes < end })
}

/// Writes `buffer` from `start` on to all servers of all these places together.
pub(super) fn write_to_all(
    sides: &[Side<'_>],
    context: &Context,
    start: u64,
    buffer: &[u8],
) -> Result<(), ServerError> {
    let slice = |(from, length): (u64, u64)| IoSlice::new(&buffer[from as usize..(from + length) as usize]);
    let subs: Vec<Vec<SubRequest<'_>>> = sides.iter().map(|side| side.subs(start, buffer.len())).collect();
    let mut slices: Vec<Vec<Vec<IoSlice<'_>>>> =
        subs.iter().map(|subs| subs.iter().map(|sub| sub.pieces().map(slice).collect()).collect()).collect();
    let of_sides = sides.iter().zip(&subs).zip(&mut slices);
    let mut parts: Vec<Part<'_, IoSlice<'_>>> =
        of_sides.flat_map(|((side, subs), slices)| side.parts(context, subs, slices)).collect();
    while !parts.is_empty() {
        let mut submissions = Vec::with_capacity(parts.len());
        for Part { store, handle, at, left } in &parts {
            let some = &left[..left.len().min(MAX_PIECES)];
            submissions.push(submission(*store, *handle, *at, Memory::to_take(some)));
        }
        let moved = submit(submissions)?;
        for (part, moved) in parts.iter_mut().zip(moved) {
            if moved == 0 {
                let (server, action) = (part.store.name().to_owned(), "writing nothing");
                return Err(ServerError::Os { server, action, source: Errno::IO });
            }
            part.at += moved as u64;
            IoSlice::advance_slices(&mut part.left, moved);
        }
        parts.retain(|part| !part.left.is_empty());
    }
    Ok(())
}

/// Has the range written from the page caches to the devices of all these places together, as far as there are such. Durable it is with [`sync_all`].
pub(super) fn write_out(sides: &[Side<'_>], context: &Context, (start, length): (u64, u64)) -> Result<(), ServerError> {
    let begin = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE;
    for flags in [begin, libc::SYNC_FILE_RANGE_WAIT_AFTER] {
        for side in sides {
            for sub in side.subs(start, length as usize) {
                let Some(object) = side.handles[sub.turn].as_handle().descriptor() else { continue };
                // SAFETY: the call is given numbers only, and the descriptor is open as long as `side`.
                let result =
                    unsafe { libc::sync_file_range(object.as_raw_fd(), sub.offset.0 as i64, sub.length as i64, flags) };
                match std::io::Error::last_os_error() {
                    // The kernel reports a failed write once: a later sync would not see it.
                    error if result < 0 && !is_unsupported(&error) => {
                        let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                        let server = context.server_name(sub.server);
                        return Err(ServerError::from_errno(server, "writing an object out", source));
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// Of file systems without such a call, which then write in their own time.
fn is_unsupported(error: &std::io::Error) -> bool {
    let unsupported = [Errno::NOSYS, Errno::INVAL, Errno::OPNOTSUPP, Errno::SPIPE];
    Errno::from_io_error(error).is_some_and(|errno| unsupported.contains(&errno))
}

/// Makes the objects of these places durable, all together; with the names of the file's objects on their servers, if wanted.
pub(super) fn sync_all<'s>(
    sides: impl Iterator<Item = &'s Side<'s>> + Clone,
    context: &Context,
    names_of: Option<FileId>,
) -> Result<(), ServerError> {
    let objects = sides.clone().flat_map(|side| {
        let sync = |handle: &'s ObjectHandle| Operation::Sync(handle.as_handle());
        stripe_servers(side.layout).zip(side.handles.iter().map(sync))
    });
    let servers: BTreeSet<ServerId> = sides.flat_map(|side| stripe_servers(side.layout)).collect();
    let names =
        names_of.into_iter().flat_map(|file| servers.iter().map(move |server| (*server, Operation::SyncNames(file))));
    context.perform_together(objects.chain(names)).into_iter().try_for_each(|outcome| outcome.map(drop))
}

fn submission<'s, 'a>(
    store: &'s dyn ObjectStore,
    handle: Handle<'a>,
    at: u64,
    memory: Memory<'a>,
) -> Submission<'s, 'a> {
    Submission { store, batch: vec![Transfer::new(handle, ObjectOffset(at), memory, How::default())] }
}

/// The bytes that each of the submissions, of one transfer each, has moved.
fn submit(mut submissions: Vec<Submission<'_, '_>>) -> Result<Vec<usize>, ServerError> {
    submit_all(&mut submissions, &mut || ());
    let result = |Submission { store, batch }: Submission<'_, '_>| {
        batch.into_iter().map(|transfer| transfer.into_result(store.name())).sum::<Result<usize, ServerError>>()
    };
    submissions.into_iter().map(result).collect()
}

/// The parts of `buffer` that belong to each of the sub-requests, which have all of it.
fn slices_of<'b>(subs: &[SubRequest<'_>], buffer: &'b mut [u8]) -> Vec<Vec<IoSliceMut<'b>>> {
    let pieces = |(number, sub): (usize, &SubRequest<'_>)| {
        sub.pieces().map(|(from, length)| (from, length, number)).collect::<Vec<_>>()
    };
    let mut order: Vec<(u64, u64, usize)> = subs.iter().enumerate().flat_map(pieces).collect();
    order.sort_unstable();
    let mut slices: Vec<Vec<IoSliceMut<'b>>> = subs.iter().map(|_| Vec::new()).collect();
    let mut rest = buffer;
    for (_, length, number) in order {
        let (slice, after) = std::mem::take(&mut rest).split_at_mut(length as usize);
        slices[number].push(IoSliceMut::new(slice));
        rest = after;
    }
    slices
}
