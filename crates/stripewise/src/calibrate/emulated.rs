//! Measuring an emulated server: as any client, through its stations, with real bytes and real waiting.
//!
//! The time of a request is read from the emulated clock, from the instant at which it counts as issued to its scheduled end: what the host adds by
//! waking the command late is no property of the device. Another client of the same server delays requests as it would on a real device.

use super::directory::{AlignedBuffer, read_at, scratch_file, write_at};
use super::error::{CalibrationError, Result};
use super::measure::{LARGEST_BYTES, Subject};
use super::write_classes::BufferedFile;
use rustix::fd::OwnedFd;
use rustix::io::ReadWriteFlags;
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::{Direction, FileId, Generation, ObjectOffset, RegionIndex};
use stripewise_store::server::ObjectName;
use stripewise_store::server::directory::DirectoryServer;
use stripewise_store::server::emulated::EmulatedServer;
use stripewise_store::server::pace;
use stripewise_store::server::stations::{Parts, Stations};

/// Emulated positions reach this far, so that random ones hardly ever meet a recent stream; bytes are kept modulo [`SCRATCH_BYTES`].
const SPAN_BYTES: u64 = 32 << 30;
const SCRATCH_BYTES: u64 = 2 * LARGEST_BYTES;
/// Buffered writes of a batch are as far apart as in the scratch file of a real directory.
const BUFFERED_SPAN_BYTES: u64 = 256 << 20;

pub(super) struct EmulatedSubject {
    server: EmulatedServer<DirectoryServer>,
    stations: Arc<Stations>,
    parts: Parts,
    object: ObjectName,
    scratch: OwnedFd,
    buffer: AlignedBuffer,
}

impl EmulatedSubject {
    /// `parts` of `server`, whose bytes go to `directory`. A seed stands for an object of its own on the emulated disk.
    pub(super) fn prepare(
        server: EmulatedServer<DirectoryServer>,
        stations: Arc<Stations>,
        parts: Parts,
        directory: &Path,
        seed: u64,
    ) -> Result<Self> {
        let (scratch, buffer) = (scratch_file(directory)?, AlignedBuffer::new(LARGEST_BYTES, seed));
        for offset in (0..SCRATCH_BYTES).step_by(LARGEST_BYTES as usize) {
            write_at(&scratch, buffer.bytes(LARGEST_BYTES), offset, ReadWriteFlags::empty()).map_err(|source| {
                CalibrationError::Scratch { what: "write", directory: directory.to_owned(), source }
            })?;
        }
        let object = ObjectName { file: FileId(seed), region: RegionIndex(0), generation: Generation(0) };
        Ok(Self { server, stations, parts, object, scratch, buffer })
    }
}

impl EmulatedSubject {
    fn keep(&self, offset: u64, bytes: u64) -> Result<()> {
        let kept_at = offset % (SCRATCH_BYTES - LARGEST_BYTES);
        Ok(write_at(&self.scratch, self.buffer.bytes(bytes), kept_at, ReadWriteFlags::empty())?)
    }
}

/// On the emulated clock, as single requests are: what the writes wait and what the write-back takes. The bytes are moved meanwhile, so that this
/// machine's memory does not count as the device's time.
impl BufferedFile for EmulatedSubject {
    fn extent_bytes(&self) -> u64 {
        BUFFERED_SPAN_BYTES
    }

    fn batch_s(&mut self, offsets: &[u64], bytes: u64) -> Result<f64> {
        let mut seconds = 0.0;
        for offset in offsets {
            let taken_in = self.server.write_buffered(self.object, ObjectOffset(*offset), bytes);
            let taken_in = taken_in.ok_or(CalibrationError::HostPace)?;
            if taken_in.end > taken_in.issue {
                pace::wait(&self.stations, taken_in.end.0);
                seconds += taken_in.end.saturating_sub(taken_in.issue).seconds();
            }
        }
        let written = self.server.write_back(self.object).ok_or(CalibrationError::HostPace)?;
        for offset in offsets {
            self.keep(*offset, bytes)?;
        }
        pace::wait(&self.stations, written.end.0);
        Ok(seconds + written.end.saturating_sub(written.issue).seconds())
    }
}

impl Subject for EmulatedSubject {
    fn span_bytes(&self) -> u64 {
        SPAN_BYTES
    }

    fn time(&mut self, direction: Direction, offset: u64, bytes: u64) -> Result<f64> {
        let reserved = self
            .server
            .reserve_parts(self.parts, direction, self.object, ObjectOffset(offset), bytes)
            .ok_or(CalibrationError::HostPace)?;
        match direction {
            Direction::Write => self.keep(offset, bytes)?,
            Direction::Read => {
                read_at(&self.scratch, self.buffer.bytes_mut(bytes), offset % (SCRATCH_BYTES - LARGEST_BYTES))?;
            }
        }
        pace::wait(&self.stations, reserved.end.0);
        Ok(reserved.end.saturating_sub(reserved.issue).seconds())
    }
}
