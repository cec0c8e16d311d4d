//! A server that a test can make fail, or watch.

use rustix::fd::BorrowedFd;
use std::io::{IoSlice, IoSliceMut};
use stripewise_layout::{Direction, FileId, ObjectOffset, ServerId};
use stripewise_store::server::{Due, ObjectHandle, ObjectName, ObjectSize, Ownership, ServerBackend, ServerError};

pub(crate) struct Watched {
    pub(crate) number: ServerId,
    pub(crate) inner: Box<dyn ServerBackend>,
    /// Before a write; an error is the write's, a number its most bytes.
    pub(crate) before_write: fn(ServerId, &str) -> Result<usize, ServerError>,
    pub(crate) before_sync: fn(),
    /// As if the mode of every object forbade it to this process.
    pub(crate) denies: bool,
}

impl ServerBackend for Watched {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn probe(&self) -> Result<(), ServerError> {
        self.inner.probe()
    }
    fn create(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        self.inner.create(object, ownership)
    }
    fn open(&self, object: ObjectName, writable: bool) -> Result<ObjectHandle, ServerError> {
        if self.denies {
            return Err(ServerError::Denied { server: self.inner.name().to_owned() });
        }
        self.inner.open(object, writable)
    }
    fn reserve(&self, direction: Direction, object: ObjectName, offset: ObjectOffset, length: u64) -> Due {
        self.inner.reserve(direction, object, offset, length)
    }
    fn read_at(
        &self,
        handle: BorrowedFd<'_>,
        offset: ObjectOffset,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<usize, ServerError> {
        self.inner.read_at(handle, offset, buffers)
    }
    fn write_at(
        &self,
        handle: BorrowedFd<'_>,
        offset: ObjectOffset,
        buffers: &[IoSlice<'_>],
    ) -> Result<usize, ServerError> {
        let most = (self.before_write)(self.number, self.inner.name())?;
        let mut left = most;
        let cut: Vec<IoSlice> = buffers
            .iter()
            .map(|buffer| {
                let length = buffer.len().min(left);
                left -= length;
                IoSlice::new(&buffer[..length])
            })
            .collect();
        self.inner.write_at(handle, offset, &cut)
    }
    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError> {
        self.inner.size(object)
    }
    fn cut(&self, object: ObjectName, length: u64) -> Result<(), ServerError> {
        self.inner.cut(object, length)
    }
    fn sync(&self, handle: BorrowedFd<'_>) -> Result<(), ServerError> {
        (self.before_sync)();
        self.inner.sync(handle)
    }
    fn sync_names(&self, file: FileId) -> Result<(), ServerError> {
        self.inner.sync_names(file)
    }
    fn set_ownership(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        self.inner.set_ownership(object, ownership)
    }
    fn remove(&self, object: ObjectName) -> Result<(), ServerError> {
        self.inner.remove(object)
    }
    fn remove_file(&self, file: FileId) -> Result<(), ServerError> {
        self.inner.remove_file(file)
    }
    fn objects(&self) -> Result<Vec<ObjectName>, ServerError> {
        self.inner.objects()
    }
    fn free_bytes(&self) -> Result<u64, ServerError> {
        self.inner.free_bytes()
    }
}

pub(crate) fn unlimited(_: ServerId, _: &str) -> Result<usize, ServerError> {
    Ok(usize::MAX)
}

/// An [`stripewise_store::client::OpenServer`] with these hooks.
macro_rules! watched {
    ($before_write:expr, $before_sync:expr) => {
        $crate::watched::watched!($before_write, $before_sync, false)
    };
    ($before_write:expr, $before_sync:expr, $denies:expr) => {
        |cluster, number, name, url, stations| {
            let inner = stripewise_store::server::open(cluster, number, name, url, stations)?;
            let (before_write, before_sync) = ($before_write, $before_sync);
            Ok(Box::new($crate::watched::Watched { number, inner, before_write, before_sync, denies: $denies }))
        }
    };
}
pub(crate) use watched;
