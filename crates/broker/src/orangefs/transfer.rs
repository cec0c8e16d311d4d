//! Transfers of objects: bytes that lie together in memory and in the object.

use super::OrangeError;
use super::file_system::{FileSystem, Object};
use super::library::{self, Reference, Request};
use super::task::{Lent, NO_HINT};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use stripewise_layout::Direction;

/// What one transfer moves at most: the library counts in 32 bits.
const TRANSFER_BYTES: usize = 1 << 30;

impl FileSystem {
    /// Begins a transfer of at most [`TRANSFER_BYTES`]; `then` is told how many bytes were moved, by the driver's thread, for which it must not wait.
    ///
    /// # Safety
    /// The memory stays valid, and nobody else uses it, until `then` is called.
    pub(super) unsafe fn begin_io(
        self: &Arc<Self>,
        object: Object,
        (offset, start, length): (u64, *mut u8, usize),
        direction: Direction,
        path: String,
        then: Box<dyn FnOnce(Result<usize, OrangeError>) + Send>,
    ) {
        let (kind, action) = match direction {
            Direction::Read => (library::IO_READ, "reading it"),
            Direction::Write => (library::IO_WRITE, "writing it"),
        };
        let length = length.min(TRANSFER_BYTES);
        let Ok(offset) = i64::try_from(offset) else {
            return then(Err(self.about(&path, action).fault(-libc::EFBIG)));
        };
        if length == 0 {
            return then(Ok(0));
        }
        let request: Request = std::ptr::null_mut();
        let memory = Lent(start);
        self.driver.begin_with(
            (Lent(request), 0_i64),
            move |(request, moved), with| {
                let memory = memory;
                let library = with.library;
                let (request, moved) = (&raw mut request.0, &raw mut *moved);
                // SAFETY: a place for the request.
                let status = unsafe { (library.request_of_bytes)(length as i32, library.byte, request) };
                if status < 0 {
                    return status;
                }
                // SAFETY: the request that was just made.
                let status = unsafe { (library.commit_request)(request) };
                if status < 0 {
                    return status;
                }
                let (buffer, credential) = (memory.0.cast(), with.credential);
                // SAFETY: memory lent until the end; the request and the place for the answer stay where they are until then.
                unsafe {
                    (library.io)(
                        object.reference,
                        library.byte,
                        offset,
                        buffer,
                        *request,
                        credential,
                        moved,
                        kind,
                        with.id,
                        NO_HINT,
                        with.user,
                    )
                }
            },
            {
                let file_system = Arc::clone(self);
                move |(mut request, moved), library, status| {
                    if !request.0.is_null() {
                        // SAFETY: made above, and used no more.
                        unsafe { (library.free_request)(&raw mut request.0) };
                    }
                    then(match status {
                        0.. => Ok(usize::try_from(moved).unwrap_or(0).min(length)),
                        status => Err(file_system.about(&path, action).fault(status)),
                    });
                }
            },
        );
    }
}

/// Transfers under way that are waited for together, also where it is dropped early: their memory is lent until they are over.
pub(super) struct UnderWay {
    said: Sender<(usize, Result<usize, OrangeError>)>,
    says: Receiver<(usize, Result<usize, OrangeError>)>,
    left: usize,
}

impl UnderWay {
    pub(super) fn new() -> Self {
        let (said, says) = channel();
        Self { said, says, left: 0 }
    }

    /// Begins transfer `number`.
    ///
    /// # Safety
    /// The memory stays valid, and nobody else uses it, until [`Self::next`] has given this number or this is dropped.
    pub(super) unsafe fn begin(
        &mut self,
        number: usize,
        file_system: &Arc<FileSystem>,
        object: Object,
        range: (u64, *mut u8, usize),
        direction: Direction,
        path: String,
    ) {
        let said = self.said.clone();
        // The receiver is there until all are over.
        let then = Box::new(move |result| drop(said.send((number, result))));
        self.left += 1;
        // SAFETY: the caller's promise.
        unsafe { file_system.begin_io(object, range, direction, path, then) };
    }

    /// The number of one that is over, and how many bytes it moved; `None`: none is left.
    pub(super) fn next(&mut self) -> Option<(usize, Result<usize, OrangeError>)> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        self.says.recv().ok()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}

impl FileSystem {
    fn transfer(
        self: &Arc<Self>,
        object: Object,
        range: (u64, *mut u8, usize),
        direction: Direction,
        path: &str,
    ) -> Result<usize, OrangeError> {
        let (offset, start, length) = range;
        let mut moved = 0;
        while moved < length {
            let mut under_way = UnderWay::new();
            let rest = (offset + moved as u64, start.wrapping_add(moved), length - moved);
            // SAFETY: what is left of memory that is lent to this call, which waits.
            unsafe { under_way.begin(0, self, object, rest, direction, path.to_owned()) };
            match under_way.next() {
                Some((_, result)) => match result? {
                    0 => break,
                    bytes => moved += bytes,
                },
                None => break,
            }
        }
        Ok(moved)
    }

    /// Reads from `offset` on until the memory is full or the object ends. Returns how many bytes were read.
    pub(super) fn read(
        self: &Arc<Self>,
        object: Object,
        offset: u64,
        into: &mut [u8],
        path: &str,
    ) -> Result<usize, OrangeError> {
        self.transfer(object, (offset, into.as_mut_ptr(), into.len()), Direction::Read, path)
    }

    /// Writes all of it from `offset` on.
    pub(super) fn write(
        self: &Arc<Self>,
        object: Object,
        offset: u64,
        from: &[u8],
        path: &str,
    ) -> Result<(), OrangeError> {
        let range = (offset, from.as_ptr().cast_mut(), from.len());
        match self.transfer(object, range, Direction::Write, path)? {
            bytes if bytes == from.len() => Ok(()),
            _ => Err(OrangeError::Full { about: format!("{}: {path}", self.name()) }),
        }
    }

    /// The text of an object of at most a page, wherever its datafiles lie.
    pub(super) fn read_anywhere(self: &Arc<Self>, reference: Reference, path: &str) -> Result<String, OrangeError> {
        let mut bytes = [0; 4096];
        let length = self.read(Object::anywhere(reference), 0, &mut bytes, path)?;
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    /// All that an object holds.
    pub(super) fn read_all(self: &Arc<Self>, object: Object, path: &str) -> Result<Vec<u8>, OrangeError> {
        let length = self.size(object, path)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let read = self.read(object, 0, &mut bytes, path)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}
