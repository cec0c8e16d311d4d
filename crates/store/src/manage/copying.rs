//! Moving bytes between an ordinary file and a striped one, and comparing them. Holes stay holes.

use super::{ManageError, Moving, file_fault, os};
use crate::file::{FileError, StripedFile};
use rustix::fd::OwnedFd;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use stripewise_layout::FileOffset;

const CHUNK_BYTES: usize = 4 << 20;
/// Zeros of this many bytes at a time are not written out.
const HOLE_BYTES: usize = 64 << 10;

/// A range that holds data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) start: FileOffset,
    pub(super) length: u64,
}

/// The data of the file that is copied.
pub(super) struct Source<'a> {
    file: Option<(&'a OwnedFd, PathBuf)>,
    size_bytes: u64,
    segments: Vec<Segment>,
}

impl<'a> Source<'a> {
    /// An ordinary file.
    pub(super) fn of(file: &'a OwnedFd, path: &Path) -> Result<Self, ManageError> {
        let size_bytes = rustix::fs::fstat(file).map_err(os(path, "look at it"))?.st_size as u64;
        let mut segments = Vec::new();
        let mut at = 0;
        while at < size_bytes {
            let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(errno) => return Err(os(path, "find its data")(errno)),
            };
            let end = rustix::fs::seek(file, SeekFrom::Hole(start)).map_err(os(path, "find its data"))?;
            segments.push(Segment { start: FileOffset(start), length: end - start });
            at = end;
        }
        Ok(Self { file: Some((file, path.to_owned())), size_bytes, segments })
    }

    /// A managed file.
    pub(super) fn of_striped(striped: &StripedFile) -> Result<Self, FileError> {
        let size_bytes = striped.latest_size_bytes()?;
        let mut segments = Vec::new();
        let mut at = FileOffset(0);
        while let Some(start) = striped.next_data(at)?.filter(|start| start.0 < size_bytes) {
            let end = striped.next_hole(start)?.map_or(size_bytes, |end| end.0.min(size_bytes));
            segments.push(Segment { start, length: end - start.0 });
            at = FileOffset(end);
        }
        Ok(Self { file: None, size_bytes, segments })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn data_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Calls `each` with every chunk of data, telling the progress after each; `before` of the two passes are done.
    fn chunks(
        &self,
        path: &Path,
        moving: &Moving<'_>,
        passes_before: u64,
        mut each: impl FnMut(FileOffset, usize) -> Result<(), ManageError>,
    ) -> Result<(), ManageError> {
        let total = 2 * self.data_bytes();
        let mut done = passes_before * self.data_bytes();
        for segment in &self.segments {
            let mut at = 0;
            while at < segment.length {
                moving.check(path)?;
                let length = (segment.length - at).min(CHUNK_BYTES as u64);
                each(FileOffset(segment.start.0 + at), length as usize)?;
                at += length;
                done += length;
                if let Some(progress) = moving.progress {
                    progress(done, total);
                }
            }
        }
        Ok(())
    }

    fn original(&self) -> (&OwnedFd, &Path) {
        let (file, path) = self.file.as_ref().expect("made by `of`");
        (file, path)
    }

    /// Copies the ordinary file into `striped`; `undisturbed` is asked before each chunk.
    pub(super) fn copy_in(
        &self,
        striped: &StripedFile,
        moving: &Moving<'_>,
        undisturbed: &dyn Fn() -> Result<(), ManageError>,
    ) -> Result<(), ManageError> {
        let (file, path) = self.original();
        let mut buffer = vec![0; CHUNK_BYTES];
        self.chunks(path, moving, 0, |offset, length| {
            undisturbed()?;
            read_file(file, offset, &mut buffer[..length]).map_err(os(path, "read it"))?;
            write_striped(striped, offset, &buffer[..length], path)?;
            moving.step("apply: a chunk copied");
            Ok(())
        })
    }

    /// Compares the ordinary file with `striped`, read back.
    pub(super) fn compare(
        &self,
        striped: &StripedFile,
        moving: &Moving<'_>,
        undisturbed: &dyn Fn() -> Result<(), ManageError>,
    ) -> Result<(), ManageError> {
        let (file, path) = self.original();
        self.compare_chunks(striped, file, path, moving, undisturbed)
    }

    /// Copies `striped` out.
    pub(super) fn copy_out(
        &self,
        striped: &StripedFile,
        copy: &OwnedFd,
        path: &Path,
        moving: &Moving<'_>,
    ) -> Result<(), ManageError> {
        rustix::fs::ftruncate(copy, self.size_bytes).map_err(os(path, "size the copy"))?;
        let mut buffer = vec![0; CHUNK_BYTES];
        self.chunks(path, moving, 0, |offset, length| {
            read_striped(striped, offset, &mut buffer[..length], path)?;
            for (index, piece) in buffer[..length].chunks(HOLE_BYTES).enumerate() {
                if piece.iter().any(|byte| *byte != 0) {
                    let at = FileOffset(offset.0 + (index * HOLE_BYTES) as u64);
                    write_file(copy, at, piece).map_err(os(path, "write the copy"))?;
                }
            }
            moving.step("release: a chunk copied");
            Ok(())
        })
    }

    /// Compares `striped` with the copy, read back.
    pub(super) fn compare_with(
        &self,
        striped: &StripedFile,
        copy: &OwnedFd,
        path: &Path,
        moving: &Moving<'_>,
    ) -> Result<(), ManageError> {
        self.compare_chunks(striped, copy, path, moving, &|| Ok(()))
    }

    fn compare_chunks(
        &self,
        striped: &StripedFile,
        file: &OwnedFd,
        path: &Path,
        moving: &Moving<'_>,
        undisturbed: &dyn Fn() -> Result<(), ManageError>,
    ) -> Result<(), ManageError> {
        let (mut ours, mut theirs) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
        self.chunks(path, moving, 1, |offset, length| {
            undisturbed()?;
            read_file(file, offset, &mut theirs[..length]).map_err(os(path, "read it"))?;
            read_striped(striped, offset, &mut ours[..length], path)?;
            match ours[..length].iter().zip(&theirs[..length]).position(|(a, b)| a != b) {
                None => Ok(()),
                Some(at) => {
                    Err(ManageError::Differs { path: path.to_owned(), offset: FileOffset(offset.0 + at as u64) })
                }
            }
        })
    }
}

fn read_file(file: &OwnedFd, offset: FileOffset, buffer: &mut [u8]) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        let at = offset.0 + done as u64;
        match rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut buffer[done..], at))? {
            // Cut meanwhile; the last look at the file notices.
            0 => return Err(Errno::STALE),
            count => done += count,
        }
    }
    Ok(())
}

fn write_file(file: &OwnedFd, offset: FileOffset, bytes: &[u8]) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::io::retry_on_intr(|| rustix::io::pwrite(file, &bytes[done..], offset.0 + done as u64))?;
    }
    Ok(())
}

fn write_striped(striped: &StripedFile, offset: FileOffset, bytes: &[u8], path: &Path) -> Result<(), ManageError> {
    let mut done = 0;
    while done < bytes.len() {
        let at = FileOffset(offset.0 + done as u64);
        done += striped.write_at(at, &[IoSlice::new(&bytes[done..])]).map_err(file_fault(path))?;
    }
    Ok(())
}

fn read_striped(striped: &StripedFile, offset: FileOffset, buffer: &mut [u8], path: &Path) -> Result<(), ManageError> {
    let mut done = 0;
    while done < buffer.len() {
        let at = FileOffset(offset.0 + done as u64);
        match striped.read_at(at, &mut [IoSliceMut::new(&mut buffer[done..])]).map_err(file_fault(path))? {
            // The file is held exclusively, so its size stands.
            0 => return Err(os(path, "read its stripes")(Errno::IO)),
            count => done += count,
        }
    }
    Ok(())
}
