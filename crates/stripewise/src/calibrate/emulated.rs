//! Measuring an emulated server: as any client, through its stations, with real bytes and real waiting.
//!
//! The time of a request is read from the emulated clock, from the instant at which it counts as issued to its scheduled end: what the host adds by
//! waking the command late is no property of the device. Another client of the same server delays requests as it would on a real device.

use super::directory::{AlignedBuffer, read_at, scratch_file, write_at};
use super::error::{CalibrationError, Result};
use super::measure::{LARGEST_BYTES, Subject};
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

impl Subject for EmulatedSubject {
    fn span_bytes(&self) -> u64 {
        SPAN_BYTES
    }

    fn time(&mut self, direction: Direction, offset: u64, bytes: u64) -> Result<f64> {
        let reserved = self
            .server
            .reserve_parts(self.parts, direction, self.object, ObjectOffset(offset), bytes)
            .ok_or(CalibrationError::HostPace)?;
        let kept_at = offset % (SCRATCH_BYTES - LARGEST_BYTES);
        match direction {
            Direction::Write => {
                write_at(&self.scratch, self.buffer.bytes(bytes), kept_at, ReadWriteFlags::empty())?;
            }
            Direction::Read => read_at(&self.scratch, self.buffer.bytes_mut(bytes), kept_at)?,
        }
        pace::wait(&self.stations, reserved.end.0);
        Ok(reserved.end.saturating_sub(reserved.issue).seconds())
    }
}
