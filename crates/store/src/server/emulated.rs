//! A server with real bytes and the time of a named device: any back end, and stations in shared memory before it.
//!
//! [`ServerBackend::reserve`] takes the sub-request's turn on the device and on the server's own link and says when it will be done; the
//! caller moves the bytes meanwhile and then waits ([`Stations::wait`]) for the last of its sub-requests. Everything else is
//! the inner back end's. Reads and writes pass device and link in that order. The objects of consecutive regions of a file, of one generation, lie one
//! behind the other on the emulated disk. A capacity is the broker's to enforce.

use super::pace::{Monotonic, Pace, with_thread};
use super::stations::{Parts, Stations};
use super::{Due, ObjectHandle, ObjectName, ObjectSize, Ownership, ServerBackend, ServerError};
use rustix::fd::BorrowedFd;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use stripewise_device::{
    Access, DeviceSpec, DiskPlace, ExtentId, LinkSpec, Nanos, UnknownName, lookup_device, lookup_link,
};
use stripewise_layout::{Direction, FileId, ObjectOffset, RegionIndex, ServerId};

/// The device and link of an emulated server, with its time scale applied.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EmulatedSpec {
    pub device: DeviceSpec,
    pub link: Option<LinkSpec>,
}

impl EmulatedSpec {
    /// From the names in a server's URL. `time_scale` multiplies all times.
    pub fn named(device: &str, link: Option<&str>, time_scale: f64) -> Result<Self, UnknownName> {
        let link = link.map(lookup_link).transpose()?;
        Ok(Self { device: lookup_device(device)?.dilated(time_scale), link: link.map(|link| link.dilated(time_scale)) })
    }
}

/// A sub-request's time on the emulated clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// When it counts as issued.
    pub issue: Nanos,
    /// When it is done.
    pub end: Nanos,
}

/// An emulated server over the back end that stores its bytes.
pub struct EmulatedServer<B> {
    inner: B,
    stations: Arc<Stations>,
    server: ServerId,
    spec: EmulatedSpec,
}

impl<B: ServerBackend> EmulatedServer<B> {
    /// Server number `server` of the cluster whose stations these are.
    pub fn new(inner: B, stations: Arc<Stations>, server: ServerId, spec: EmulatedSpec) -> Self {
        Self { inner, stations, server, spec }
    }

    /// As [`ServerBackend::reserve`], of some of the stations, and with the time of issue.
    pub fn reserve_parts(
        &self,
        parts: Parts,
        direction: Direction,
        object: ObjectName,
        offset: ObjectOffset,
        length: u64,
    ) -> Option<Reserved> {
        if length == 0 || self.stations.pace() == Pace::Host {
            return None;
        }
        let access = Access { direction, place: disk_place(object, offset), bytes: length };
        let issue = with_thread(|pacer| pacer.issue(&Monotonic, &self.stations));
        let stations = (&self.spec.device, self.spec.link.as_ref());
        let end = self.stations.reserve_at(self.server, stations, parts, issue, &access).end;
        Some(Reserved { issue, end })
    }
}

/// Where an object's byte lies on the emulated disk.
fn disk_place(object: ObjectName, offset: ObjectOffset) -> DiskPlace {
    let extent = |region: RegionIndex| {
        // Odd multipliers keep the three numbers apart before the device's own mixing.
        ExtentId(
            object.file.0
                ^ u64::from(region.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ u64::from(object.generation.0).wrapping_mul(0xc2b2_ae3d_27d4_eb4f),
        )
    };
    let after = object.region.0.checked_sub(1).map(|before| extent(RegionIndex(before)));
    DiskPlace { extent: extent(object.region), after, offset }
}

impl<B: ServerBackend> ServerBackend for EmulatedServer<B> {
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
        self.inner.open(object, writable)
    }

    fn reserve(&self, direction: Direction, object: ObjectName, offset: ObjectOffset, length: u64) -> Due {
        self.reserve_parts(Parts::DeviceAndLink, direction, object, offset, length).map(|reserved| reserved.end.0)
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
        self.inner.write_at(handle, offset, buffers)
    }

    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError> {
        self.inner.size(object)
    }

    fn cut(&self, object: ObjectName, length: u64) -> Result<(), ServerError> {
        self.inner.cut(object, length)
    }

    fn sync(&self, handle: BorrowedFd<'_>) -> Result<(), ServerError> {
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
