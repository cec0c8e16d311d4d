//! Bytes of a region from its old objects to its new ones; of a sync, to those of several replicas at once.
//!
//! A few threads share a round's units, each reading one while another writes the one before, so that the slower side is never idle. Of a unit all
//! servers are asked together ([`super::side`]). Devices' time is reserved in the order of the units, reads as well as writes: a disk sees one stream of each.
//!
//! The first copy of a region skips what is beyond the old objects' ends, and what is zeros: new objects read as zeros where nothing was written. Later
//! copies write zeros too, where something was cut from the old objects.

use super::Moves;
use super::side::{Side, sync_all, write_out, write_to_all};
use crate::guard;
use crate::managed::{ActiveMove, Managed};
use crate::rmt::RegionRecord;
use crate::throttle::{Admitted, Ended};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stripewise_layout::{Direction, Layout, ServerId};
use stripewise_store::server::clock::wait_in_background;
use stripewise_store::server::deadline::Deadline;
use stripewise_store::server::{Due, ServerError};
use stripewise_store::shared::marking::{MARK_WORDS, chunk_bytes};

/// Units of one round under way together.
const COPIERS: usize = 8;
/// Memory of a round's units under way.
const MAX_ROUND_BYTES: u64 = 64 << 20;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Speed {
    Throttled,
    /// Whatever the bandwidth, but not while moves are paused.
    Hurried,
    /// Writers wait for it.
    AtOnce,
}

pub(super) enum Fault {
    Ended,
    Server(ServerError),
}

impl From<ServerError> for Fault {
    fn from(error: ServerError) -> Self {
        Fault::Server(error)
    }
}

impl From<Ended> for Fault {
    fn from(_: Ended) -> Self {
        Fault::Ended
    }
}

pub(super) struct Copier<'a> {
    core: &'a Moves,
    managed: &'a Managed,
    active: &'a ActiveMove,
    region_bytes: u64,
    old: Side<'a>,
    new: Vec<Side<'a>>,
    /// Up to where something was written to the new place.
    reached: AtomicU64,
    has_copied: AtomicBool,
    has_synced_names: AtomicBool,
    /// Of the last copies, for estimates; 0: not known.
    bytes_per_s: AtomicU64,
    copied_bytes: &'a AtomicU64,
}

impl<'a> Copier<'a> {
    pub(super) fn open(
        core: &'a Moves,
        managed: &'a Managed,
        active: &'a ActiveMove,
        copied_bytes: &'a AtomicU64,
    ) -> Result<Self, Fault> {
        let region = active.region;
        let open = |place: &'a RegionRecord, writable| {
            Side::open(core, managed, (region, place.generation, &place.layout), writable)
        };
        Ok(Self {
            core,
            managed,
            active,
            region_bytes: managed.control.region_bytes(),
            old: open(&active.old, false)?,
            new: active.new.iter().map(|new| open(new, true)).collect::<Result<_, _>>()?,
            reached: AtomicU64::new(0),
            has_copied: AtomicBool::new(false),
            has_synced_names: AtomicBool::new(false),
            bytes_per_s: AtomicU64::new(0),
            copied_bytes,
        })
    }

    /// How long copying so many chunks will take, as far as can be told.
    pub(super) fn time_for(&self, chunks: u32) -> Duration {
        if chunks == 0 {
            return Duration::ZERO;
        }
        let bytes = u64::from(chunks) * chunk_bytes(self.region_bytes);
        match self.bytes_per_s.load(Relaxed) {
            0 => Duration::MAX,
            rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
        }
    }

    /// Makes the new objects durable, their names too; beside replicas also those of the place.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        let place = self.active.is_sync.then_some(&self.old);
        let names_of = (!self.has_synced_names.load(Relaxed)).then_some(self.managed.file);
        sync_all(self.new.iter().chain(place), &self.core.context, names_of)?;
        self.has_synced_names.store(true, Relaxed);
        Ok(())
    }

    /// Copies the chunks whose bits are set.
    pub(super) fn copy(&self, taken: &[u64; MARK_WORDS], speed: Speed) -> Result<(), Fault> {
        // After the marks were taken: what is written beyond it later is marked again.
        let limit = self.old.end(&self.core.context)?.max(self.reached.load(SeqCst)).min(self.region_bytes);
        let units = self.units(taken, limit);
        if units.is_empty() {
            self.has_copied.store(true, SeqCst);
            return Ok(());
        }
        let (start, bytes) = (Instant::now(), units.iter().map(|(_, length)| length).sum::<u64>());
        let round = Round {
            copier: self,
            units: &units,
            speed,
            is_first: !self.has_copied.load(SeqCst),
            next: Mutex::new(0),
            written: Mutex::new(0),
            turn: Condvar::new(),
            stopped: AtomicBool::new(false),
            fault: Mutex::new(None),
            waited_ns: AtomicU64::new(0),
        };
        if units.len() == 1 {
            round.work();
        } else {
            let longest = units.iter().map(|(_, length)| *length).max().unwrap_or(1).max(1);
            let copiers = COPIERS.min((MAX_ROUND_BYTES / longest).max(2) as usize);
            let deadline = Deadline::of_this_thread();
            std::thread::scope(|scope| {
                for _ in 1..copiers.min(units.len()) {
                    // Without a further thread the others do its work.
                    let _ = std::thread::Builder::new().spawn_scoped(scope, || {
                        let _deadline = Deadline::hold(deadline);
                        round.work();
                    });
                }
                round.work();
            });
        }
        if let Some(fault) = guard(&round.fault).take() {
            return Err(fault);
        }
        self.has_copied.store(true, SeqCst);
        let took = start.elapsed().saturating_sub(Duration::from_nanos(round.waited_ns.load(Relaxed)));
        let took = took.max(Duration::from_micros(10));
        self.bytes_per_s.store((bytes as f64 / took.as_secs_f64()) as u64, Relaxed);
        Ok(())
    }

    /// The marked ranges below `limit`, in order, cut to what is copied at once.
    fn units(&self, taken: &[u64; MARK_WORDS], limit: u64) -> Vec<(u64, u64)> {
        let chunk = chunk_bytes(self.region_bytes);
        let written = self.new.iter().map(|side| (Direction::Write, side.layout));
        let sides = std::iter::once((Direction::Read, self.old.layout)).chain(written);
        let width = sides.clone().map(|(_, layout)| layout.stripes().len()).max().unwrap_or(1) as u64;
        let servers =
            sides.flat_map(|(direction, layout)| layout.stripes().iter().map(move |stripe| (direction, stripe.server)));
        let most = (self.core.throttle.unit_bytes(servers, width) / chunk).max(1);
        let is_marked = |number: u64| taken[number as usize / 64] >> (number % 64) & 1 == 1;
        let (mut units, mut number, count) = (Vec::new(), 0, limit.div_ceil(chunk));
        while number < count {
            if !is_marked(number) {
                number += 1;
                continue;
            }
            let mut end = number + 1;
            while end < count && end - number < most && is_marked(end) {
                end += 1;
            }
            let start = number * chunk;
            units.push((start, (end * chunk).min(limit) - start));
            number = end;
        }
        units
    }
}

/// The units of one round and who does which.
struct Round<'a> {
    copier: &'a Copier<'a>,
    units: &'a [(u64, u64)],
    speed: Speed,
    is_first: bool,
    next: Mutex<usize>,
    /// Units whose writes have taken their devices' time.
    written: Mutex<usize>,
    turn: Condvar,
    stopped: AtomicBool,
    fault: Mutex<Option<Fault>>,
    /// Time spent waiting for the throttle.
    waited_ns: AtomicU64,
}

impl Round<'_> {
    fn work(&self) {
        let mut buffer = Vec::new();
        while let Some((number, due, admitted)) = self.take() {
            let (_, length) = self.units[number];
            buffer.resize(length as usize, 0);
            if let Err(fault) = self.copy_unit(number, due, admitted, &mut buffer) {
                self.stop(fault);
            }
        }
    }

    fn stop(&self, fault: Fault) {
        guard(&self.fault).get_or_insert(fault);
        self.stopped.store(true, SeqCst);
        drop(guard(&self.written));
        self.turn.notify_all();
    }

    /// The next unit, once it may be copied, and when its bytes have come from the old place.
    fn take(&self) -> Option<(usize, Due, Option<Admitted<'_>>)> {
        let copier = self.copier;
        let mut next = guard(&self.next);
        let (_, length) = *self.units.get(*next)?;
        if self.stopped.load(SeqCst) {
            return None;
        }
        let is_ended = || copier.active.is_ended() || self.stopped.load(SeqCst);
        let admitted = match self.speed {
            Speed::Throttled => {
                let begun = Instant::now();
                let shares = shares(copier.active, length);
                let admitted = copier.core.throttle.admit(length, &shares, || copier.core.used_servers(), is_ended);
                self.waited_ns.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
                admitted.map(Some)
            }
            Speed::Hurried => copier.core.throttle.wait_while_paused(is_ended).map(|()| None),
            Speed::AtOnce if copier.active.is_ended() => Err(Ended),
            Speed::AtOnce => Ok(None),
        };
        let Ok(admitted) = admitted else {
            self.stop(Fault::Ended);
            return None;
        };
        let due = copier.old.reserve(copier.core, Direction::Read, self.units[*next]);
        *next += 1;
        Some((*next - 1, due, admitted))
    }

    fn copy_unit(
        &self,
        number: usize,
        due: Due,
        mut admitted: Option<Admitted<'_>>,
        buffer: &mut [u8],
    ) -> Result<(), Fault> {
        let (core, copier) = (self.copier.core, self.copier);
        let unit = self.units[number];
        let begun = Instant::now();
        copier.old.read(&core.context, unit.0, buffer)?;
        admitted.iter_mut().for_each(|admitted| admitted.end(Direction::Read, begun.elapsed()));
        due.inspect(|due| wait_in_background(*due));
        let is_needed = !self.is_first || buffer.iter().any(|byte| *byte != 0);
        let mut written = guard(&self.written);
        while *written != number && !self.stopped.load(SeqCst) {
            written = self.turn.wait(written).unwrap_or_else(PoisonError::into_inner);
        }
        let sides = if is_needed { copier.new.as_slice() } else { &[] };
        let due = sides.iter().filter_map(|side| side.reserve(core, Direction::Write, unit)).max();
        *written = number + 1;
        drop(written);
        self.turn.notify_all();
        if self.stopped.load(SeqCst) {
            return Ok(());
        }
        if is_needed {
            let begun = Instant::now();
            write_to_all(sides, &core.context, unit.0, buffer)?;
            if let Some(admitted) = &mut admitted {
                if admitted.writes_through() {
                    write_out(sides, &core.context, unit)?;
                }
                admitted.end(Direction::Write, begun.elapsed());
            }
            copier.reached.fetch_max(unit.0 + unit.1, SeqCst);
            due.inspect(|due| wait_in_background(*due));
        }
        copier.copied_bytes.fetch_add(unit.1, Relaxed);
        core.throttle.count(unit.1);
        Ok(())
    }
}

/// The servers of a move with the bytes that a copied byte range has there at most, and what is done to them.
fn shares(active: &ActiveMove, bytes: u64) -> Vec<(Direction, ServerId, u64)> {
    let of = |direction, layout: &Layout| {
        let cycle = layout.view().cycle_bytes();
        let share = move |size: u32| (bytes * u64::from(size)).div_ceil(cycle).max(u64::from(size).min(bytes));
        layout.stripes().iter().map(|stripe| (direction, stripe.server, share(stripe.size_bytes))).collect::<Vec<_>>()
    };
    let mut shares = of(Direction::Read, &active.old.layout);
    shares.extend(active.new.iter().flat_map(|new| of(Direction::Write, &new.layout)));
    shares
}
