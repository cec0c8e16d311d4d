//! An open managed file: the calls of `io.RawIOBase`, each straight between the caller's buffer and the servers.
//!
//! The position is the file object's own, behind a lock that is held while it is read from or written to: threads that share the object take turns, as
//! the kernel has it for the descriptor of an ordinary file. `read_at` and `write_at` need no turn.

use crate::failure::{of_file, of_system};
use crate::requests::under_way;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use stripewise_layout::FileOffset;
use stripewise_store::file::{FileError, StripedFile};

/// What the file was opened for.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) appends: bool,
}

/// A managed file as `stripewise.open` opens it; `stripewise.ManagedFile` is what it returns.
#[pyclass(frozen, module = "stripewise._stripewise")]
pub(crate) struct File {
    path: PathBuf,
    access: Access,
    /// `None` once it is closed. Each request holds it for reading, so that a close waits for those under way.
    open: RwLock<Option<Held>>,
    position: Mutex<u64>,
}

struct Held {
    striped: Arc<StripedFile>,
    /// Open as long as the file is used.
    _stub: std::fs::File,
}

impl File {
    pub(crate) fn new(
        path: PathBuf,
        access: Access,
        stub: std::fs::File,
        striped: Arc<StripedFile>,
        position: u64,
    ) -> Self {
        let held = Held { striped, _stub: stub };
        Self { path, access, open: RwLock::new(Some(held)), position: Mutex::new(position) }
    }

    /// What the file does while the interpreter's other threads go on.
    fn detached<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&StripedFile) -> PyResult<T> + Send) -> PyResult<T> {
        py.detach(|| {
            let _no_fork = under_way();
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            let held = open.as_ref().ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))?;
            call(&held.striped)
        })
    }

    /// As [`Self::detached`], in turn with others that use the position.
    fn in_turn<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&StripedFile, &mut u64) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        self.detached(py, |striped| call(striped, &mut self.position.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn failed(&self, error: &FileError) -> PyErr {
        of_file(error, &self.path)
    }

    /// Returns the bytes read, fewer than asked for at the end of the file.
    fn fill(&self, striped: &StripedFile, offset: u64, buffer: &mut [u8]) -> PyResult<usize> {
        striped.read_at(FileOffset(offset), &mut [IoSliceMut::new(buffer)]).map_err(|error| self.failed(&error))
    }

    /// As [`Self::fill`], where fewer bytes would pass for the end of the file: one call of the store moves 2 GiB at most, and ends before a fault that it meets
    /// behind the first byte. The next call has the fault as its error.
    fn fill_all(&self, striped: &StripedFile, offset: u64, buffer: &mut [u8]) -> PyResult<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.fill(striped, offset + done as u64, &mut buffer[done..])? {
                0 => break,
                more => done += more,
            }
        }
        Ok(done)
    }

    /// Writes at `offset` or at the end; returns where the write ended, and how much was written.
    fn put(&self, striped: &StripedFile, offset: Option<u64>, bytes: &[u8]) -> PyResult<(u64, usize)> {
        let bytes = [IoSlice::new(bytes)];
        let written = match offset.map(FileOffset) {
            Some(offset) => striped.write_at(offset, &bytes).map(|written| (offset, written)),
            None => striped.append(&bytes),
        };
        let (from, written) = written.map_err(|error| self.failed(&error))?;
        Ok((from.0 + written as u64, written))
    }

    fn bytes_at<'py>(&self, py: Python<'py>, offset: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut read = Ok(0);
        let bytes = PyBytes::new_with(py, length, |buffer| {
            read = self.detached(py, |striped| self.fill(striped, offset, buffer));
            Ok(())
        })?;
        match read? {
            all if all == length => Ok(bytes),
            less => Ok(PyBytes::new(py, &bytes.as_bytes()[..less])),
        }
    }
}

/// A buffer of the caller's for the time of a call. Python keeps its memory in place while the view is held; another thread that writes to it meanwhile
/// gets what it asked for, as with `read(2)`.
struct View(PyUntypedBuffer);

impl View {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = PyUntypedBuffer::get(object)?;
        if !view.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer has to be contiguous"));
        }
        Ok(Self(view))
    }

    fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the view is contiguous, of so many bytes, and held by `self`.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), self.0.len_bytes()) }
    }

    fn bytes_to_write(&mut self) -> PyResult<&mut [u8]> {
        if self.0.readonly() {
            return Err(PyBufferError::new_err("the buffer has to be writable"));
        }
        if self.0.len_bytes() == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as in `bytes`; it may be written, and `self` is the only way to it here.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast::<u8>(), self.0.len_bytes()) })
    }
}

#[pymethods]
impl File {
    /// As it was named.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    #[getter]
    fn readable(&self) -> bool {
        self.access.reads
    }

    #[getter]
    fn writable(&self) -> bool {
        self.access.writes
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        // A `close` that waits for requests has the lock before any new reader; the interpreter is not held up for it.
        !self.open.try_read().is_ok_and(|open| open.is_some())
    }

    /// Logical size in bytes.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.detached(py, |striped| striped.latest_size_bytes().map_err(|error| self.failed(&error)))
    }

    /// Reads into `buffer` from the position on; returns the bytes read, 0 at the end.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut view = View::of(buffer)?;
        let bytes = view.bytes_to_write()?;
        self.in_turn(py, |striped, position| {
            let read = self.fill(striped, *position, bytes)?;
            *position += read as u64;
            Ok(read)
        })
    }

    /// Reads into `buffer` from `offset` on, past the position.
    fn readinto_at(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut view = View::of(buffer)?;
        let bytes = view.bytes_to_write()?;
        self.detached(py, |striped| self.fill(striped, offset, bytes))
    }

    /// Up to `length` bytes from `offset` on, past the position.
    fn read_at<'py>(&self, py: Python<'py>, offset: u64, length: u64) -> PyResult<Bound<'py, PyBytes>> {
        let length = length.min(self.size(py)?.saturating_sub(offset));
        self.bytes_at(py, offset, usize::try_from(length).map_err(|_| of_system(Errno::NOMEM, &self.path))?)
    }

    /// Up to `length` bytes from the position on; all that follow if it is negative or None.
    #[pyo3(signature = (length=None))]
    fn read<'py>(&self, py: Python<'py>, length: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let length = length.and_then(|length| u64::try_from(length).ok());
        let left = self.in_turn(py, |striped, position| {
            let size = striped.latest_size_bytes().map_err(|error| self.failed(&error))?;
            Ok(size.saturating_sub(*position))
        })?;
        let wanted = length.map_or(left, |length| length.min(left));
        let wanted = usize::try_from(wanted).map_err(|_| of_system(Errno::NOMEM, &self.path))?;
        let mut read = Ok(0);
        let bytes = PyBytes::new_with(py, wanted, |buffer| {
            read = self.in_turn(py, |striped, position| {
                let read = match length {
                    None => self.fill_all(striped, *position, buffer)?,
                    Some(_) => self.fill(striped, *position, buffer)?,
                };
                *position += read as u64;
                Ok(read)
            });
            Ok(())
        })?;
        match read? {
            all if all == wanted => Ok(bytes),
            less => Ok(PyBytes::new(py, &bytes.as_bytes()[..less])),
        }
    }

    /// Writes `buffer` at the position, or at the end of a file opened for appending; returns the bytes written.
    fn write(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let view = View::of(buffer)?;
        let bytes = view.bytes();
        self.in_turn(py, |striped, position| {
            let offset = (!self.access.appends).then_some(*position);
            let (end, written) = self.put(striped, offset, bytes)?;
            if written > 0 {
                *position = end;
            }
            Ok(written)
        })
    }

    /// Writes `buffer` at `offset`, past the position.
    fn write_at(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let view = View::of(buffer)?;
        let bytes = view.bytes();
        self.detached(py, |striped| Ok(self.put(striped, Some(offset), bytes)?.1))
    }

    /// Moves the position: from the begin (0), from where it is (1), or from the end (2).
    #[pyo3(signature = (offset, whence=0))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let invalid = || of_system(Errno::INVAL, &self.path);
        self.in_turn(py, |striped, position| {
            let from = match whence {
                libc::SEEK_SET => 0,
                libc::SEEK_CUR => *position,
                libc::SEEK_END => striped.latest_size_bytes().map_err(|error| self.failed(&error))?,
                libc::SEEK_DATA | libc::SEEK_HOLE => {
                    let start = FileOffset(u64::try_from(offset).map_err(|_| of_system(Errno::NXIO, &self.path))?);
                    let found =
                        if whence == libc::SEEK_DATA { striped.next_data(start) } else { striped.next_hole(start) };
                    let found = found.map_err(|error| self.failed(&error))?;
                    *position = found.ok_or_else(|| of_system(Errno::NXIO, &self.path))?.0;
                    return Ok(*position);
                }
                _ => return Err(invalid()),
            };
            *position = from.checked_add_signed(offset).filter(|to| i64::try_from(*to).is_ok()).ok_or_else(invalid)?;
            Ok(*position)
        })
    }

    /// The position.
    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.in_turn(py, |_, position| Ok(*position))
    }

    /// Truncates or extends the file to `size` bytes; to the position without.
    #[pyo3(signature = (size=None))]
    fn truncate(&self, py: Python<'_>, size: Option<i64>) -> PyResult<u64> {
        self.in_turn(py, |striped, position| {
            let size = match size {
                None => *position,
                Some(size) => u64::try_from(size).map_err(|_| of_system(Errno::INVAL, &self.path))?,
            };
            striped.truncate(size).map_err(|error| self.failed(&error))?;
            Ok(size)
        })
    }

    /// Makes durable what was written, as `os.fsync` does; without times and the like as `os.fdatasync` if `data_only`.
    #[pyo3(signature = (data_only=false))]
    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        self.detached(py, |striped| striped.sync(data_only).map_err(|error| self.failed(&error)))
    }

    /// The modification time is from now on the stub's own, as `os.utime` has set it there.
    fn use_time_of_stub(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, |striped| striped.set_modified_ns(None).map_err(|error| self.failed(&error)))
    }

    /// Closes it, after what other threads have under way; again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let _no_fork = under_way();
            let taken = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
            let Some(Held { striped, _stub }) = taken else { return Ok(()) };
            // Where other hosts use the file too, an open there after this close is to find what was written here.
            let synced = if striped.is_shared() && striped.is_writable() { striped.sync(true) } else { Ok(()) };
            let closed = striped.close();
            synced.and(closed).map_err(|error| self.failed(&error))
        })
    }
}
