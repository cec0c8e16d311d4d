//! Measuring a server that the broker reaches, a pool of Ceph or an I/O server of OrangeFS: scratch objects of its own, by the operations that programs'
//! requests become.
//!
//! The broker of the cluster may be at work meanwhile: the objects are nobody else's ([`Scratch`]), and nobody is shut out. They are removed when this is dropped;
//! what a killed calibration left is removed by the next one, which is alone by a lock in the state directory.
//!
//! What a pool of Ceph has acknowledged is durable, so all classes of writes are one. Of an I/O server of OrangeFS each write is measured with the flush behind it,
//! and buffered ones in batches with one flush at their end, as on directories. The broker's part is not measured here.

use super::directory::AlignedBuffer;
use super::error::{CalibrationError, Result};
use super::measure::{LARGEST_BYTES, MIN_SPAN_BYTES, Subject};
use super::write_classes::BufferedFile;
use crate::interrupt::Interrupt;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};
use stripewise_broker::by_agent::{self, Scratch};
use stripewise_layout::{ByteCount, Cluster, Direction, FileId, Generation, ObjectOffset, RegionIndex, Server};
use stripewise_store::server::{
    Handle, How, Memory, ObjectName, ObjectStore, Ownership, ServerError, Syncing, Transfer, is_by_agent,
};
use stripewise_store::state::StateDirectory;

/// Of every scratch object but the last: the share of a server in a region of usual size.
const OBJECT_BYTES: u64 = 16 << 20;
/// In the state directory.
const LOCK: &str = "calibration";

/// The right to put scratch objects into the cluster's pools; the kernel gives it up with the process.
pub(super) struct PoolsLock {
    _file: Option<File>,
    interrupt: Interrupt,
}

impl PoolsLock {
    /// Takes it, if any server is a pool. What is done with the pools ends soon after `interrupt` has come.
    pub(super) fn take(cluster: &Cluster, interrupt: Interrupt) -> Result<Self> {
        if !cluster.servers.iter().any(|server| is_by_agent(&server.url)) {
            return Ok(Self { _file: None, interrupt });
        }
        let state = StateDirectory::of(cluster)?;
        let file = File::from(state.open_file(LOCK, OFlags::RDWR | OFlags::CREATE)?);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: Some(file), interrupt }),
            Err(Errno::WOULDBLOCK) => Err(CalibrationError::Another { state: cluster.state.clone() }),
            Err(errno) => Err(errno.into()),
        }
    }
}

pub(super) struct PoolSubject {
    scratch: Box<dyn Scratch>,
    span_bytes: u64,
    buffer: AlignedBuffer,
    interrupt: Interrupt,
}

impl PoolSubject {
    /// Makes scratch objects in the pool of `server` and fills them: with `wanted_bytes`, or as much as `patience` allows. `lock` is held longer than they are.
    pub(super) fn prepare(
        cluster: &Cluster,
        server: &Server,
        wanted_bytes: u64,
        patience: Duration,
        (seed, lock): (u64, &PoolsLock),
    ) -> Result<Self> {
        let scratch = by_agent::scratch(&cluster.id, &server.name, &server.url)?;
        let free_bytes = scratch.store().free_bytes()?;
        // Twice, so that calibration never fills a pool to the brim.
        if free_bytes < 2 * MIN_SPAN_BYTES {
            return Err(CalibrationError::FullPool {
                free: ByteCount(free_bytes),
                needed: ByteCount(2 * MIN_SPAN_BYTES),
            });
        }
        let wanted_bytes = wanted_bytes.min(free_bytes / 2).max(MIN_SPAN_BYTES) / LARGEST_BYTES * LARGEST_BYTES;
        let buffer = AlignedBuffer::new(LARGEST_BYTES, seed);
        let mut subject = Self { scratch, span_bytes: 0, buffer, interrupt: lock.interrupt };
        let begin = Instant::now();
        while subject.span_bytes < wanted_bytes && (subject.span_bytes < MIN_SPAN_BYTES || begin.elapsed() < patience) {
            let offset = subject.span_bytes;
            if offset.is_multiple_of(OBJECT_BYTES) {
                let nobody = Ownership { mode: 0, uid: 0, gid: 0 };
                subject.scratch.store().create(object_at(offset), nobody)?;
            }
            subject.time(Direction::Write, offset, LARGEST_BYTES)?;
            subject.span_bytes += LARGEST_BYTES;
        }
        Ok(subject)
    }

    /// What the scratch objects lie on, as `osd.N`.
    pub(super) fn devices(&self) -> Result<BTreeSet<String>> {
        Ok(self.scratch.devices(&self.objects().collect::<Vec<_>>())?)
    }

    pub(super) fn remark(&self) -> &'static str {
        self.scratch.remark()
    }

    /// Whether what a write acknowledged has yet to reach the disks.
    pub(super) fn is_buffered(&self) -> bool {
        self.scratch.store().capabilities().syncing == Syncing::DataAndNames
    }

    fn objects(&self) -> impl Iterator<Item = ObjectName> {
        (0..self.span_bytes).step_by(OBJECT_BYTES as usize).map(object_at)
    }

    /// One access with the caller's memory. May be called from several threads.
    pub(super) fn perform(&self, direction: Direction, how: How, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if self.interrupt.came() {
            return Err(CalibrationError::Interrupted);
        }
        access(self.scratch.store(), (direction, how), offset, buffer)
    }

    /// Makes durable what was written.
    pub(super) fn sync(&self) -> Result<()> {
        if self.is_buffered() {
            self.objects().try_for_each(|object| self.scratch.store().sync(Handle::Named(object)))?;
        }
        Ok(())
    }
}

/// A write that has reached the disks when it is acknowledged.
pub(super) const DURABLE: How = How { durable: true, in_place: false };

fn access(store: &dyn ObjectStore, (direction, how): (Direction, How), offset: u64, buffer: &mut [u8]) -> Result<()> {
    let (at, length) = (offset % OBJECT_BYTES, buffer.len());
    let (first, second) = buffer.split_at_mut(length.min((OBJECT_BYTES - at) as usize));
    let next = offset + first.len() as u64;
    let places = [(offset, at), (next, next % OBJECT_BYTES)];
    let done = match direction {
        Direction::Read => {
            let (mut first, mut second) = ([IoSliceMut::new(first)], [IoSliceMut::new(second)]);
            submit(store, how, places, [Memory::to_fill(&mut first), Memory::to_fill(&mut second)])
        }
        Direction::Write => {
            let (first, second) = ([IoSlice::new(first)], [IoSlice::new(second)]);
            submit(store, how, places, [Memory::to_take(&first), Memory::to_take(&second)])
        }
    }?;
    if done == length { Ok(()) } else { Err(Errno::IO.into()) }
}

/// Both parts of an access under way together, where there are two; the bytes of both.
fn submit(
    store: &dyn ObjectStore,
    how: How,
    places: [(u64, u64); 2],
    parts: [Memory<'_>; 2],
) -> std::result::Result<usize, ServerError> {
    let transfer = |((position, at), memory): ((u64, u64), _)| {
        Transfer::new(Handle::Named(object_at(position)), ObjectOffset(at), memory, how)
    };
    let parts = places.into_iter().zip(parts).filter(|(_, memory)| memory.bytes() > 0);
    let mut batch: Vec<Transfer<'_>> = parts.map(transfer).collect();
    store.submit(&mut batch, &mut || ());
    batch.into_iter().map(|done| done.into_result(store.name())).sum()
}

fn object_at(offset: u64) -> ObjectName {
    let region = RegionIndex((offset / OBJECT_BYTES) as u32);
    ObjectName { file: FileId(1), region, generation: Generation(1) }
}

impl Subject for PoolSubject {
    fn span_bytes(&self) -> u64 {
        self.span_bytes
    }

    fn time(&mut self, direction: Direction, offset: u64, bytes: u64) -> Result<f64> {
        if self.interrupt.came() {
            return Err(CalibrationError::Interrupted);
        }
        let begin = Instant::now();
        access(self.scratch.store(), (direction, DURABLE), offset, self.buffer.bytes_mut(bytes))?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

impl BufferedFile for PoolSubject {
    fn extent_bytes(&self) -> u64 {
        self.span_bytes
    }

    fn batch_s(&mut self, offsets: &[u64], bytes: u64) -> Result<f64> {
        let begin = Instant::now();
        for offset in offsets {
            if self.interrupt.came() {
                return Err(CalibrationError::Interrupted);
            }
            let write = (Direction::Write, How::default());
            access(self.scratch.store(), write, *offset, self.buffer.bytes_mut(bytes))?;
        }
        self.sync()?;
        Ok(begin.elapsed().as_secs_f64())
    }
}
