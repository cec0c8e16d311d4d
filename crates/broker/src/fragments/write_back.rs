//! From logs to disks.
//!
//! A *pass* takes the entries that are newer than their disks, in order of disk and place, so that a disk sees one sweep and neighbours become one
//! write. It calls them flushing, waits once for all writers that are inside, reads the slots, writes the disks and calls them clean.
//!
//! Where a writer inside does not come out (its process was stopped), the bytes are written all the same: whatever was written by requests that have
//! ended is on the disk then. The entries stay dirty, since the one inside may yet change their slots.

mod truncation;

use crate::context::Context;
use crate::guard;
use crate::managed::{Inner, LogMemory, Managed, Work, log_object, unknown};
use crate::objects::Objects;
use crate::quiescing::{Patience, Quiescing, STOPPED_PATIENCE};
use crate::rmt::LogRecord;
use crate::throttle::Throttle;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::{Direction, ObjectOffset, RegionIndex, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::clock::wait_in_background;
use stripewise_store::server::{Due, How, ObjectHandle, ObjectName, Ownership, ServerError};
use stripewise_store::shared::control::RegionState;
use stripewise_store::shared::fragments::hints::Counter;
use stripewise_store::shared::fragments::table::Log;
use stripewise_store::shared::fragments::{DiskRange, Seen, State};
use stripewise_store::shared::slots::Use;

/// How long writers inside are waited for.
pub(super) const WRITE_BACK_PATIENCE: Duration = Duration::from_secs(4);
/// Entries of one pass.
const MAX_ENTRIES: usize = 4096;
/// Bytes of one write.
const MAX_RUN_BYTES: u64 = 4 << 20;

/// Which file's entries, and under what circumstances.
pub(super) struct Picked<'a> {
    pub(super) managed: &'a Managed,
    pub(super) logs: &'a LogMemory,
    /// Given if the caller holds the file's lock.
    pub(super) held: Option<&'a Inner>,
    pub(super) patience: Duration,
    /// Whether emulated devices take their time.
    pub(super) is_paced: bool,
}

/// An entry that is flushing, and the object that it goes to.
struct Piece<'a> {
    disk: ServerId,
    log: Log<'a>,
    seen: Seen,
    object: ObjectName,
}

/// Objects open for one pass.
#[derive(Default)]
pub(super) struct Handles(HashMap<(ServerId, ObjectName), ObjectHandle>);

impl Handles {
    pub(super) fn get(
        &mut self,
        core: &WriteBack,
        picked: &Picked<'_>,
        server: ServerId,
        object: ObjectName,
        writable: bool,
    ) -> Result<&ObjectHandle, ServerError> {
        use std::collections::hash_map::Entry;
        match self.0.entry((server, object)) {
            Entry::Occupied(found) => Ok(found.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(core.open_for_fragments(picked, server, object, writable)?)),
        }
    }
}

/// Writes what logs hold to the disks.
pub(crate) struct WriteBack {
    context: Arc<Context>,
    quiescing: Arc<Quiescing>,
    objects: Arc<Objects>,
    throttle: Arc<Throttle>,
}

impl WriteBack {
    pub(crate) fn new(
        context: &Arc<Context>,
        quiescing: &Arc<Quiescing>,
        objects: &Arc<Objects>,
        throttle: &Arc<Throttle>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            quiescing: Arc::clone(quiescing),
            objects: Arc::clone(objects),
            throttle: Arc::clone(throttle),
        }
    }

    /// See [`stripewise_store::protocol::Request::Flush`]. On an error everything that was not written is still noted as dirty.
    pub(crate) fn flush(&self, managed: &Managed) -> Result<(), Refusal> {
        let Some(logs) = managed.fragments.logs() else { return Ok(()) };
        let mut work = managed.fragments.hold();
        if guard(&managed.inner).freed {
            return Err(unknown(managed.file));
        }
        self.flush_held(managed, &logs, &mut work, true)
    }

    /// The same at a stop: no program is left whose time emulated devices could tell of.
    pub(crate) fn flush_at_once(&self, managed: &Managed) -> Result<(), Refusal> {
        let Some(logs) = managed.fragments.logs() else { return Ok(()) };
        self.flush_held(managed, &logs, &mut managed.fragments.hold(), false)
    }

    pub(super) fn flush_held(
        &self,
        managed: &Managed,
        logs: &LogMemory,
        work: &mut Work,
        is_paced: bool,
    ) -> Result<(), Refusal> {
        if !logs.table.take_dirtied() {
            logs.table.end_flush();
            return Ok(());
        }
        self.context.step("fragments: flush begun");
        let picked = Picked { managed, logs, held: None, patience: WRITE_BACK_PATIENCE, is_paced };
        let all_clean = self.write_back(work, &picked, &|_, _| true).inspect_err(|_| logs.table.note_dirtied())?;
        self.context.step("fragments: flushed");
        if all_clean {
            logs.table.end_flush();
        } else {
            // Written, but a writer inside may change it; whoever wrote before this flush has nothing more to ask for.
            logs.table.note_dirtied();
        }
        Ok(())
    }

    /// Writes back entries that are newer than the disk and that `is_meant`. Returns whether all that it wrote is clean; the others are dirty
    /// again. The first fault is an error; what it does not concern has been written all the same.
    pub(super) fn write_back(
        &self,
        _work: &mut Work,
        picked: &Picked<'_>,
        is_meant: &(dyn Fn(ServerId, &Seen) -> bool + Sync),
    ) -> Result<bool, Refusal> {
        let newer_of = |(disk, log): (ServerId, Log<'_>)| {
            let mut newer: Vec<Seen> =
                log.sets.all().filter(|seen| seen.state().is_newer() && is_meant(disk, seen)).collect();
            newer.sort_unstable_by_key(|seen| (seen.range.region, seen.range.offset));
            (disk, newer)
        };
        let of_disks: Vec<(ServerId, Vec<Seen>)> =
            picked.logs.all().map(newer_of).filter(|(_, newer)| !newer.is_empty()).collect();
        let write = |(disk, newer): &(ServerId, Vec<Seen>)| {
            let Some(log) = picked.logs.table.log(*disk) else { return Ok(true) };
            let passes = newer.chunks(MAX_ENTRIES).map(|part| self.pass(picked, *disk, &log, part));
            together(passes)
        };
        // Disks at the same time; without a further thread one after the other.
        std::thread::scope(|scope| {
            let begin = |disk| std::thread::Builder::new().spawn_scoped(scope, move || write(disk)).map_err(|_| disk);
            let begun: Vec<_> = of_disks.iter().skip(1).map(begin).collect();
            let own = of_disks.first().map(&write);
            let others = begun.into_iter().map(|begun| match begun {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(disk) => write(disk),
            });
            together(own.into_iter().chain(others))
        })
    }

    /// One pass over entries of one disk in the order of their places.
    fn pass(&self, picked: &Picked<'_>, disk: ServerId, log: &Log<'_>, newer: &[Seen]) -> Result<bool, Refusal> {
        let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(newer.len());
        let mut all_clean = true;
        for seen in newer {
            let Some(object) = self.object_of(picked.managed, disk, &seen.range) else {
                // Whoever may write the file may write its table; what makes no sense there is left alone.
                all_clean = false;
                continue;
            };
            if let Some(seen) = log.sets.begin_flushing(seen) {
                pieces.push(Piece { disk, log: *log, seen, object });
            }
        }
        self.context.step("fragments: flushing");
        let regions = || pieces.iter().map(|piece| piece.seen.range.region);
        let (Some(first), Some(last)) = (regions().min(), regions().max()) else { return Ok(all_clean) };
        let inside = self.quiescing.writers_inside(picked.managed, first, last);
        let left = self.wait_for(picked, inside);
        self.context.step("fragments: drained");
        let (mut handles, mut first_fault, mut due) = (Handles::default(), None, None);
        for run in runs(&pieces) {
            match self.write_run(picked, run, &mut handles) {
                Ok(done) => due = due.max(done),
                Err(error) => {
                    first_fault.get_or_insert(Refusal::from(error));
                    all_clean &= self.end_flushing(run, |_| false);
                }
            }
        }
        due.inspect(|due| wait_in_background(*due));
        self.context.step("fragments: written");
        let is_drained = |region| !left.iter().any(|lane| lane.what.first <= region && region <= lane.what.last);
        all_clean &= self.end_flushing(&pieces, is_drained);
        first_fault.map_or(Ok(all_clean), Err)
    }

    /// Entries that are still flushing become clean where the region was drained, dirty elsewhere. Returns whether all became clean.
    fn end_flushing(&self, pieces: &[Piece<'_>], is_drained: impl Fn(RegionIndex) -> bool) -> bool {
        let mut all_clean = true;
        for piece in pieces {
            let is_clean = is_drained(piece.seen.range.region);
            let to = if is_clean { State::Clean } else { State::Dirty };
            all_clean &= piece.log.sets.change(&piece.seen, to).is_some() && is_clean;
        }
        all_clean
    }

    /// The region's object on the disk, if the range can be one of it.
    pub(super) fn object_of(&self, managed: &Managed, disk: ServerId, range: &DiskRange) -> Option<ObjectName> {
        let RegionState::Placed { generation, view, .. } = managed.control.regions().get(range.region) else {
            return None;
        };
        let turn = view.stripes().iter().position(|stripe| stripe.server == disk)?;
        let is_inside = range.length > 0 && range.end() <= view.object_bytes(turn, managed.control.region_bytes());
        is_inside.then_some(ObjectName { file: managed.file, region: range.region, generation })
    }

    /// Copies neighbouring entries to the disk by one write. Returns when the emulated devices are done.
    fn write_run(&self, picked: &Picked<'_>, run: &[Piece<'_>], handles: &mut Handles) -> Result<Due, ServerError> {
        let (first, slot_bytes) = (&run[0], picked.logs.table.slot_bytes());
        let (start, object) = (first.seen.range.offset, first.object);
        let mut buffer = vec![0; run.iter().map(|piece| piece.seen.range.length as usize).sum()];
        let (mut due, mut at) = (None, 0);
        for piece in run {
            let length = piece.seen.range.length;
            let name = log_name(picked.managed, piece.disk, &piece.log);
            let place = ObjectOffset(u64::from(piece.seen.slot) * slot_bytes);
            due = due.max(self.reserve_for(picked, piece.log.on, Direction::Read, name, (place, length)));
            let handle = handles.get(self, picked, piece.log.on, name, false)?;
            let slot = &mut buffer[at..at + length as usize];
            if self.read_whole(piece.log.on, handle, place, slot)? < slot.len() {
                let server = self.context.servers()[usize::from(piece.log.on.0)].name().to_owned();
                return Err(ServerError::Os { server, action: "reading a log that ends too early", source: Errno::IO });
            }
            at += length as usize;
        }
        due.inspect(|due| wait_in_background(*due));
        let due = self.reserve_for(picked, first.disk, Direction::Write, object, (start, buffer.len() as u64));
        let handle = handles.get(self, picked, first.disk, object, true)?;
        picked.managed.extent.begin_write(object.region);
        let written = self.write_whole(first.disk, handle, start, &buffer);
        picked.managed.extent.end_write(object.region);
        written?;
        picked.logs.hints.count(first.disk, Counter::WrittenBackBytes, buffer.len() as u64);
        Ok(due)
    }

    /// Takes the emulated device's time, behind all that was reserved before.
    pub(super) fn reserve_for(
        &self,
        picked: &Picked<'_>,
        server: ServerId,
        direction: Direction,
        object: ObjectName,
        (offset, length): (ObjectOffset, u64),
    ) -> Due {
        picked.is_paced.then(|| self.throttle.reserve(server, direction, object, offset, length))?
    }

    /// Returns the bytes up to the object's end.
    pub(super) fn read_whole(
        &self,
        server: ServerId,
        handle: &ObjectHandle,
        start: ObjectOffset,
        buffer: &mut [u8],
    ) -> Result<usize, ServerError> {
        let (server, mut done) = (self.context.servers()[usize::from(server.0)].as_ref(), 0);
        while done < buffer.len() {
            let rest = &mut [IoSliceMut::new(&mut buffer[done..])];
            match server.read_at(handle.as_handle(), ObjectOffset(start.0 + done as u64), rest)? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    pub(super) fn write_whole(
        &self,
        server: ServerId,
        handle: &ObjectHandle,
        start: ObjectOffset,
        buffer: &[u8],
    ) -> Result<(), ServerError> {
        let (server, mut done) = (self.context.servers()[usize::from(server.0)].as_ref(), 0);
        while done < buffer.len() {
            let (at, rest) = (ObjectOffset(start.0 + done as u64), &[IoSlice::new(&buffer[done..])]);
            match server.write_at(handle.as_handle(), at, rest, How::IN_PLACE)? {
                0 => {
                    let (server, action) = (server.name().to_owned(), "writing nothing");
                    return Err(ServerError::Os { server, action, source: Errno::IO });
                }
                written => done += written,
            }
        }
        Ok(())
    }

    /// Waits until these writers have left. Returns those that go on.
    pub(super) fn wait_for(&self, picked: &Picked<'_>, uses: Vec<Use>) -> Vec<Use> {
        let patience = Patience { all: picked.patience, stopped: Some(STOPPED_PATIENCE) };
        self.quiescing.wait(picked.managed, uses, patience, &mut |_| false).left
    }

    /// As the owner, who may have to change the object's mode for the moment.
    pub(super) fn open_for_fragments(
        &self,
        picked: &Picked<'_>,
        server: ServerId,
        object: ObjectName,
        writable: bool,
    ) -> Result<ObjectHandle, ServerError> {
        let Some(inner) = picked.held else {
            return self.objects.open_as_owner(picked.managed, object, server, writable);
        };
        let backend = self.context.servers()[usize::from(server.0)].as_ref();
        match backend.open(object, writable) {
            Err(ServerError::Denied { .. }) => {
                let ownership = inner.ownership();
                backend.set_ownership(object, Ownership { mode: ownership.mode | 0o600, ..ownership })?;
                let opened = backend.open(object, writable);
                backend.set_ownership(object, ownership)?;
                opened
            }
            result => result,
        }
    }
}

/// Whether all passes left their entries clean; the first fault, after all were made.
fn together(passes: impl Iterator<Item = Result<bool, Refusal>>) -> Result<bool, Refusal> {
    let (mut all_clean, mut first_fault) = (true, None);
    for pass in passes {
        match pass {
            Ok(clean) => all_clean &= clean,
            Err(refusal) => _ = first_fault.get_or_insert(refusal),
        }
    }
    first_fault.map_or(Ok(all_clean), Err)
}

/// The object of an open log.
pub(super) fn log_name(managed: &Managed, disk: ServerId, log: &Log<'_>) -> ObjectName {
    log_object(managed.file, disk, LogRecord { on: log.on, generation: log.generation })
}

/// Pieces, in the order of their places, of which each begins where the one before it ends.
fn runs<'p, 'a>(pieces: &'p [Piece<'a>]) -> impl Iterator<Item = &'p [Piece<'a>]> {
    let mut length = 0;
    pieces.chunk_by(move |one, next| {
        length += one.seen.range.length;
        let is_next = one.object == next.object && one.seen.range.end() == next.seen.range.offset.0;
        let goes_on = is_next && length + next.seen.range.length <= MAX_RUN_BYTES;
        if !goes_on {
            length = 0;
        }
        goes_on
    })
}
