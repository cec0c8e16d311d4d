//! A server with real bytes and the time of a named device: any object store, and stations in shared memory before it.
//!
//! [`DeviceTime::reserve`] takes the sub-request's turn on the device and on the server's own link and says when it will be done; the
//! caller moves the bytes meanwhile and then waits ([`pace::wait`](super::pace::wait)) for the last of its sub-requests. Buffered writes return at once
//! where the server has a dirty limit (`write_back.rs`). Everything else is the inner store's. Reads and writes pass device and link in that order. The objects of consecutive regions of a file lie one
//! behind the other on the emulated disk. A capacity is the broker's to enforce.

mod url;
mod write_back;

pub use url::{EmulatedUrl, is_emulated};

use super::clock::{Clock, Monotonic};
use super::directory::DirectoryServer;
use super::pace::with_thread;
use super::stations::{Pace, Parts, Stations};
use super::{
    Capabilities, Decorator, DeviceTime, Due, Kind, ObjectName, ObjectStore, Opening, Predicted, ServerError, is_moved,
    ordinal,
};
use std::sync::Arc;
use stripewise_device::{
    Access, DeviceSpec, DiskPlace, ExtentId, LinkSpec, Nanos, UnknownName, lookup_device, lookup_link,
};
use stripewise_layout::{Direction, ObjectOffset, RequestKind, ServerId, WriteClass};

const SCHEME: &str = "emulated";

/// `emulated://`: without stations, the directory alone.
pub(super) const KIND: Kind = Kind {
    scheme: SCHEME,
    by_agent: None,
    check: |url| EmulatedUrl::of(url).map(drop),
    open: |opening| match opening.stations {
        Some(stations) => match EmulatedServer::of_directory(opening, stations)? {
            Some(server) => Ok(Box::new(server)),
            None => Ok(Box::new(bytes_of(opening))),
        },
        None => Ok(Box::new(bytes_of(opening))),
    },
};

fn bytes_of(opening: &Opening<'_>) -> DirectoryServer {
    DirectoryServer::new(opening.cluster, opening.name, opening.url.directory())
}

/// The device and link of an emulated server, with its time scale applied.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EmulatedSpec {
    /// Startup and transfer times.
    pub device: DeviceSpec,
    /// `None`: the server has no link of its own.
    pub link: Option<LinkSpec>,
    /// Bytes of buffered writes that the server takes in before their processes wait; `None`: they wait as direct ones do.
    pub dirty_limit_bytes: Option<u64>,
}

impl EmulatedSpec {
    /// From the names in a server's URL. `time_scale` multiplies all times.
    ///
    /// # Errors
    ///
    /// [`UnknownName`] of device or link.
    pub fn named(device: &str, link: Option<&str>, time_scale: f64) -> Result<Self, UnknownName> {
        let link = link.map(lookup_link).transpose()?;
        let (device, link) = (lookup_device(device)?.dilated(time_scale), link.map(|link| link.dilated(time_scale)));
        Ok(Self { device, link, dirty_limit_bytes: None })
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

/// An emulated server over the store of its bytes.
pub struct EmulatedServer<S> {
    inner: S,
    stations: Arc<Stations>,
    server: ServerId,
    spec: EmulatedSpec,
}

impl EmulatedServer<DirectoryServer> {
    /// The server that is opened, with its bytes in the directory of its URL; `None` if it is not emulated.
    ///
    /// # Errors
    ///
    /// [`ServerError::Unusable`] for a parameter that is missing or wrong, or names no device or link.
    pub fn of_directory(opening: &Opening<'_>, stations: &Arc<Stations>) -> Result<Option<Self>, ServerError> {
        let unusable = |what| ServerError::Unusable { server: opening.name.to_owned(), what };
        let Some(url) = EmulatedUrl::of(opening.url).map_err(unusable)? else { return Ok(None) };
        let spec = url.spec().map_err(|unknown| unusable(unknown.to_string()))?;
        Ok(Some(Self::new(bytes_of(opening), Arc::clone(stations), opening.number, spec)))
    }
}

impl<S: ObjectStore> EmulatedServer<S> {
    /// Server number `server` of the cluster whose stations these are.
    pub fn new(inner: S, stations: Arc<Stations>, server: ServerId, spec: EmulatedSpec) -> Self {
        Self { inner, stations, server, spec }
    }

    /// As [`DeviceTime::reserve`], of some of the stations, and with the time of issue.
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

impl<S> EmulatedServer<S> {
    /// Its device and link.
    pub fn spec(&self) -> EmulatedSpec {
        self.spec
    }

    /// Time that an access takes at most at the busier of the device's serial stage and the link, ns.
    pub fn demand_ns(&self, direction: Direction, length: u64) -> u64 {
        let serial = self.spec.device.demand(direction, length, None).serial.0;
        serial.max(self.spec.link.map_or(0, |link| link.demand(length).0))
    }

    /// As [`DeviceTime::reserve`], for work that belongs to no program: it is not counted among those whose start and lateness tell of a
    /// run. Returns the time too that was reserved at the device's serial stage and the link, ns.
    pub fn reserve_in_background(
        &self,
        direction: Direction,
        object: ObjectName,
        offset: ObjectOffset,
        length: u64,
    ) -> (Due, [u64; 2]) {
        if length == 0 {
            return (None, [0; 2]);
        }
        let access = Access { direction, place: disk_place(object, offset), bytes: length };
        let stations = (&self.spec.device, self.spec.link.as_ref());
        let (reserved, busy) =
            self.stations.reserve_with_demand(self.server, stations, Parts::DeviceAndLink, Monotonic.now(), &access);
        (Some(reserved.end.0), busy.map(|time| time.0))
    }
}

/// Where an object's byte lies on the emulated disk: a file's regions one after the other, whatever generation each has. Generations are
/// numbered through a file, so neighbours that were placed one by one differ in theirs and still lie side by side. A region that was moved lies elsewhere:
/// behind the one that was moved before it, as a file system would lay it that has no space left beside the rest of the file.
fn disk_place(object: ObjectName, offset: ObjectOffset) -> DiskPlace {
    // An odd multiplier keeps the two numbers apart before the device's own mixing.
    let extent = |number: u64| ExtentId(object.file.0 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let moved = |ordinal: u32| extent(1 << 32 | u64::from(ordinal));
    let (own, after) = if is_moved(object.generation) {
        let ordinal = ordinal(object.generation);
        (moved(ordinal), ordinal.checked_sub(1).map(moved))
    } else {
        let region = u64::from(object.region.0);
        (extent(region), region.checked_sub(1).map(extent))
    };
    DiskPlace { extent: own, after, offset }
}

impl<S: ObjectStore> DeviceTime for EmulatedServer<S> {
    fn reserve(&self, kind: RequestKind, object: ObjectName, offset: ObjectOffset, length: u64) -> Due {
        if kind == RequestKind::Write(WriteClass::Buffered)
            && let Some(taken_in) = self.write_buffered(object, offset, length)
        {
            return (taken_in.end > taken_in.issue).then_some(taken_in.end.0);
        }
        let reserved = self.reserve_parts(Parts::DeviceAndLink, kind.direction(), object, offset, length);
        reserved.map(|reserved| reserved.end.0)
    }

    fn write_back_due(&self, object: ObjectName) -> Due {
        self.write_back(object).filter(|reserved| reserved.end > reserved.issue).map(|reserved| reserved.end.0)
    }

    fn predict(
        &self,
        direction: Direction,
        object: ObjectName,
        offset: ObjectOffset,
        length: u64,
    ) -> Option<Predicted> {
        if self.stations.pace() == Pace::Host {
            return None;
        }
        let access = Access { direction, place: disk_place(object, offset), bytes: length };
        let stations = (&self.spec.device, self.spec.link.as_ref());
        Some(self.stations.predict(self.server, stations, Monotonic.now(), &access))
    }
}

impl<S: ObjectStore> Decorator for EmulatedServer<S> {
    fn inner(&self) -> Result<&dyn ObjectStore, ServerError> {
        Ok(&self.inner)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    /// Who reads past the stations would read in no time; so the kernel is asked of nothing here.
    fn capabilities(&self) -> Capabilities {
        Capabilities { plain_descriptors: false, ..self.inner.capabilities() }
    }

    fn device_time(&self) -> Option<&dyn DeviceTime> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::directory::{DirectoryServer, prepare};
    use crate::server::{How, Ownership};
    use std::io::{IoSlice, IoSliceMut};
    use stripewise_layout::{FileId, Generation, RegionIndex};

    pub(super) fn server(
        root: &tempfile::TempDir,
        spec: EmulatedSpec,
    ) -> (EmulatedServer<DirectoryServer>, Arc<Stations>) {
        prepare("c", "s", root.path()).unwrap();
        let file = Stations::establish(&root.path().join("stations"), 1).unwrap();
        let stations = Arc::new(Stations::open(file, 1).unwrap());
        let inner = DirectoryServer::new("c", "s", root.path());
        (EmulatedServer::new(inner, Arc::clone(&stations), ServerId(0), spec), stations)
    }

    pub(super) fn object(region: u32, generation: u32) -> ObjectName {
        ObjectName { file: FileId(7), region: RegionIndex(region), generation: Generation(generation) }
    }

    #[test]
    fn only_requests_of_the_emulated_pace_take_time() {
        let root = tempfile::tempdir().unwrap();
        let (server, stations) = server(&root, EmulatedSpec::named("nvme", Some("gigabit"), 1.0).unwrap());
        let reserve = |length| server.reserve(RequestKind::Read, object(0, 1), ObjectOffset(0), length);
        assert_eq!(reserve(0), None);
        stations.set_pace(Pace::Host);
        assert_eq!(reserve(4096), None);
        let predict = || server.predict(Direction::Read, object(0, 1), ObjectOffset(0), 1 << 20);
        assert_eq!((stations.server_load(ServerId(0)).sub_requests, predict()), (0, None));
        stations.set_pace(Pace::Emulated);
        let alone = predict().unwrap();
        assert_eq!(stations.server_load(ServerId(0)).sub_requests, 0, "a prediction reserves nothing");
        let (first, second) = (reserve(4096).unwrap(), reserve(4096).unwrap());
        for _ in 0..1000 {
            reserve(1 << 20);
        }
        let behind = predict().unwrap();
        assert!(alone.wait_ns == 0 && behind.service_ns == alone.service_ns && behind.wait_ns > 50 * alone.service_ns);
        // The link is the slowest of the stations: the second leaves it one message later, unless this thread was away for that long.
        assert!(second >= first + server.spec.link.unwrap().demand(4096).0);
        crate::server::pace::wait(&stations, first);
        assert_eq!(stations.host_report().waits, 1);
    }

    /// A file that is read through costs one seek, however many regions it has and whenever each was placed.
    #[test]
    fn consecutive_regions_are_one_stream() {
        let root = tempfile::tempdir().unwrap();
        let spec = EmulatedSpec::named("hdd-7200", None, 1.0).unwrap();
        let (server, stations) = server(&root, spec);
        let busy = |object| {
            let before = stations.server_load(ServerId(0)).device_busy.0;
            server.reserve(RequestKind::Read, object, ObjectOffset(0), 65_536);
            stations.server_load(ServerId(0)).device_busy.0 - before
        };
        let random = spec.device.demand(Direction::Read, 65_536, None).serial.0;
        let sequential = spec.device.demand(Direction::Read, 65_536, Some(0)).serial.0;
        assert_eq!(busy(object(0, 1)), random);
        assert_eq!(busy(object(1, 1)), sequential);
        assert_eq!(busy(object(2, 1)), sequential);
        assert_eq!(busy(object(3, 2)), sequential, "placed later");
        assert_eq!(busy(object(9, 1)), random, "not the next region");
        let moved = |region, ordinal| object(region, super::super::moved_generation(ordinal).0);
        assert_eq!(busy(moved(4, 20)), random, "another place than region 4 had");
        assert_eq!(busy(object(4, 1)), sequential, "which lies behind region 3 as before");
        assert_eq!(busy(moved(5, 21)), sequential, "moved after region 4");
        assert_eq!(busy(moved(6, 23)), random, "moved later");
    }

    #[test]
    fn bytes_are_those_of_the_inner_server() {
        let root = tempfile::tempdir().unwrap();
        let (server, _) = server(&root, EmulatedSpec::named("nvme", None, 0.001).unwrap());
        server.probe().unwrap();
        let ownership =
            Ownership { mode: 0o600, uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() };
        server.create(object(0, 1), ownership).unwrap();
        let handle = server.open(object(0, 1), true).unwrap();
        let handle = handle.as_handle();
        assert_eq!(server.write_at(handle, ObjectOffset(3), &[IoSlice::new(b"abc")], How::default()).unwrap(), 3);
        let mut bytes = [9; 8];
        assert_eq!(server.read_at(handle, ObjectOffset(0), &mut [IoSliceMut::new(&mut bytes)]).unwrap(), 6);
        assert_eq!(&bytes, b"\0\0\0abc\x09\x09");
        assert_eq!(server.size(object(0, 1)).unwrap().end_bytes, 6);
        assert_eq!(server.objects().unwrap(), [object(0, 1)]);
        server.remove(object(0, 1)).unwrap();
        assert!(matches!(server.open(object(0, 1), false), Err(ServerError::Missing { .. })));
    }
}
