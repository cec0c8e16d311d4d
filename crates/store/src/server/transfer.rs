//! Transfers: ranges of objects on their way between a store and memory, several at once.

use super::{ObjectName, ServerError};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use stripewise_layout::{Direction, ObjectOffset};

/// What memory, offsets and lengths of direct transfers are multiples of: no device asks for more than a page.
pub const DIRECT_BYTES: u64 = 4096;

/// An open object.
#[derive(Debug)]
pub enum ObjectHandle {
    /// Of a store whose objects the kernel knows.
    Descriptor(OwnedFd),
    /// Of a store that goes by names.
    Named(ObjectName),
}

impl ObjectHandle {
    /// The handle borrowed.
    #[must_use]
    pub fn as_handle(&self) -> Handle<'_> {
        match self {
            ObjectHandle::Descriptor(descriptor) => Handle::Descriptor(descriptor.as_fd()),
            ObjectHandle::Named(object) => Handle::Named(*object),
        }
    }

    /// The plain descriptor, to be handed to another process.
    ///
    /// # Errors
    /// [`ServerError::Unusable`] if the store has none.
    pub fn into_descriptor(self, server: &str) -> Result<OwnedFd, ServerError> {
        match self {
            ObjectHandle::Descriptor(descriptor) => Ok(descriptor),
            ObjectHandle::Named(_) => Err(no_descriptor(server)),
        }
    }
}

fn no_descriptor(server: &str) -> ServerError {
    ServerError::Unusable { server: server.to_owned(), what: "its objects have no descriptors".to_owned() }
}

/// A borrowed [`ObjectHandle`].
#[derive(Clone, Copy, Debug)]
pub enum Handle<'a> {
    /// Of a store whose objects the kernel knows.
    Descriptor(BorrowedFd<'a>),
    /// Of a store that goes by names.
    Named(ObjectName),
}

impl<'a> Handle<'a> {
    /// `None` of a handle that is a name.
    #[must_use]
    #[inline]
    pub fn descriptor(self) -> Option<BorrowedFd<'a>> {
        match self {
            Handle::Descriptor(descriptor) => Some(descriptor),
            Handle::Named(_) => None,
        }
    }

    /// # Errors
    /// [`ServerError::Unusable`] for a handle of another kind of store.
    #[inline]
    pub fn to_descriptor(self, server: &str) -> Result<BorrowedFd<'a>, ServerError> {
        self.descriptor().ok_or_else(|| no_descriptor(server))
    }

    /// A handle that outlives this one.
    ///
    /// # Errors
    /// Where no further descriptor is to be had.
    pub fn to_owned_handle(self) -> Result<ObjectHandle, Errno> {
        Ok(match self {
            Handle::Descriptor(descriptor) => ObjectHandle::Descriptor(rustix::io::fcntl_dupfd_cloexec(descriptor, 0)?),
            Handle::Named(object) => ObjectHandle::Named(object),
        })
    }
}

/// What is asked of a transfer besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct How {
    /// The written bytes are durable when the transfer is over, and what is needed to read them from the object.
    pub durable: bool,
    /// Of an object that programs use: however long it takes, the caller learns what became of it.
    pub in_place: bool,
}

impl How {
    /// Not durable, but of an object that programs use.
    pub const IN_PLACE: Self = Self { durable: false, in_place: true };
}

/// Memory that a transfer fills or takes from, lent for `'a`.
pub struct Memory<'a> {
    start: *const libc::iovec,
    count: usize,
    direction: Direction,
    lent: PhantomData<&'a mut [u8]>,
}

// SAFETY: memory lent by slices, which may be lent to another thread as well.
unsafe impl Send for Memory<'_> {}

impl<'a> Memory<'a> {
    /// For a read: filled from the first buffer on.
    #[must_use]
    #[inline]
    pub fn to_fill(buffers: &'a mut [IoSliceMut<'_>]) -> Self {
        // `IoSliceMut` has the layout of `iovec`, as its documentation guarantees.
        let start = buffers.as_ptr().cast();
        Self { start, count: buffers.len(), direction: Direction::Read, lent: PhantomData }
    }

    /// For a write: taken from the first buffer on.
    #[must_use]
    #[inline]
    pub fn to_take(buffers: &'a [IoSlice<'_>]) -> Self {
        // `IoSlice` has the layout of `iovec`, as its documentation guarantees.
        let start = buffers.as_ptr().cast();
        Self { start, count: buffers.len(), direction: Direction::Write, lent: PhantomData }
    }

    /// # Safety
    /// The pieces lead to memory that is lent for `'a`, for writing if the direction is `Read`, and do not overlap then.
    #[must_use]
    pub(crate) unsafe fn of_pieces(pieces: &'a [libc::iovec], direction: Direction) -> Self {
        Self { start: pieces.as_ptr(), count: pieces.len(), direction, lent: PhantomData }
    }

    /// [`Direction::Read`] of memory to fill, [`Direction::Write`] of memory to take from.
    #[must_use]
    #[inline]
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// For system calls whose end the lender awaits.
    #[must_use]
    #[inline]
    pub fn pieces(&self) -> &[libc::iovec] {
        // SAFETY: `start` and `count` are those of a slice that lives for `'a`.
        unsafe { std::slice::from_raw_parts(self.start, self.count) }
    }

    /// Length of all buffers together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pieces().iter().map(|piece| piece.iov_len).sum()
    }

    /// The buffers of a read; none of a write.
    #[inline]
    pub fn slices_to_fill(&mut self) -> &mut [IoSliceMut<'_>] {
        let count = if self.direction == Direction::Read { self.count } else { 0 };
        // SAFETY: lent for writing, as `IoSliceMut` or under the promise of `of_pieces`, and borrowed once.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast_mut().cast(), count) }
    }

    /// The buffers of a write; none of a read.
    #[must_use]
    #[inline]
    pub fn slices_to_take(&self) -> &[IoSlice<'_>] {
        let count = if self.direction == Direction::Write { self.count } else { 0 };
        // SAFETY: lent for reading, as `IoSlice` or under the promise of `of_pieces`.
        unsafe { std::slice::from_raw_parts(self.start.cast(), count) }
    }
}

/// Called once, when a transfer is over.
pub type Then = Box<dyn FnOnce(Result<usize, ServerError>) + Send>;

/// A transfer whose end is told by a call: [`super::ObjectStore::begin`].
pub struct LentTransfer {
    /// The object, of a store that goes by names.
    pub object: ObjectName,
    /// First byte in the object.
    pub offset: ObjectOffset,
    /// Where the memory begins.
    pub start: *mut u8,
    /// In bytes.
    pub length: usize,
    /// [`Direction::Read`]: the memory is filled.
    pub direction: Direction,
}

// SAFETY: whoever begins it lends the memory until it is over, to any thread.
unsafe impl Send for LentTransfer {}

impl LentTransfer {
    /// Does it by `submit`, in turn.
    ///
    /// # Safety
    /// As of [`super::ObjectStore::begin`].
    pub(super) unsafe fn run(self, submit: impl FnOnce(&mut [Transfer<'_>])) -> Option<Result<usize, ServerError>> {
        let piece = [libc::iovec { iov_base: self.start.cast(), iov_len: self.length }];
        // SAFETY: one piece of memory that is lent until this returns.
        let memory = unsafe { Memory::of_pieces(&piece, self.direction) };
        let mut batch = [Transfer::new(Handle::Named(self.object), self.offset, memory, How::IN_PLACE)];
        submit(&mut batch);
        let [done] = batch;
        done.completion
    }
}

/// A range of one object on its way.
pub struct Transfer<'a> {
    /// The object, open in the transfer's direction.
    pub handle: Handle<'a>,
    /// First byte in the object.
    pub offset: ObjectOffset,
    /// As many bytes as the range has; it says the direction.
    pub memory: Memory<'a>,
    /// Durable or not, of an object in use or not.
    pub how: How,
    /// The bytes moved, once it is over: fewer than asked for where an object ends, or as `preadv` and `pwritev` may.
    pub completion: Option<Result<usize, ServerError>>,
}

impl<'a> Transfer<'a> {
    /// A transfer that has not begun.
    #[must_use]
    #[inline]
    pub fn new(handle: Handle<'a>, offset: ObjectOffset, memory: Memory<'a>, how: How) -> Self {
        Self { handle, offset, memory, how, completion: None }
    }

    /// What became of it. One that `server` left without completion was not done.
    ///
    /// # Errors
    /// The store's, or [`ServerError::Unusable`] if it left none.
    #[inline]
    pub fn into_result(self, server: &str) -> Result<usize, ServerError> {
        self.completion.unwrap_or_else(|| {
            let what = "it ended a transfer without saying how".to_owned();
            Err(ServerError::Unusable { server: server.to_owned(), what })
        })
    }
}
