//! `orangefs://SERVER?fs=...`: a server that is an I/O server of an OrangeFS file system. Its objects are files with one datafile there ([`super::tree`]).
//!
//! An object's handle is asked for once and kept until it is removed: names are never used again. What is created or removed is durable when it is
//! acknowledged, as long as the file system has `TroveSyncMeta yes`, which is what OrangeFS sets up; data is durable once it is flushed.

use super::OrangeError;
use super::file_system::{Object, Space};
use super::kept::Kept;
use super::names::{MARKER, directory_of_cluster, name_of};
use super::preparing::{check_marker, reach};
use super::transfer::UnderWay;
use super::tree::Tree;
use crate::membership::Membership;
use stripewise_layout::{Direction, FileId, ServerUrl};
use stripewise_store::server::orangefs::CAPABILITIES;
use stripewise_store::server::{
    self, Call, Capabilities, Handle, LentTransfer, ObjectHandle, ObjectName, ObjectSize, ObjectStore, OpenMode,
    Ownership, ServerError, Standing, Then, Transfer,
};

/// Objects on an I/O server.
pub struct OrangeServer {
    pub(super) cluster: String,
    pub(super) name: String,
    pub(super) tree: Tree,
    pub(super) objects: Kept<ObjectName, Object>,
}

/// Opens server `name` of a cluster by its URL.
///
/// # Errors
/// [`ServerError::Unusable`] where the URL is none of this kind, OrangeFS cannot be reached, or what it names is not this server (its marker).
pub fn open(cluster: &str, name: &str, url: &ServerUrl) -> Result<Box<dyn ObjectStore>, ServerError> {
    Ok(Box::new(OrangeServer::open(cluster, name, url)?))
}

/// Opens server `name` of a cluster that several hosts share: each host's agent is a client of its own. None can be shut out, so it does not matter who was admitted.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_shared(
    cluster: &str,
    name: &str,
    url: &ServerUrl,
    _: &Membership,
) -> Result<Box<dyn ObjectStore>, ServerError> {
    open(cluster, name, url)
}

/// A transfer that was begun.
struct Begun {
    object: ObjectName,
    /// Of a transfer whose memory is in several pieces.
    own: Option<Vec<u8>>,
    range: (u64, *mut u8, usize),
}

impl OrangeServer {
    /// Opens server `name` of a cluster.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(cluster: &str, name: &str, url: &ServerUrl) -> Result<Self, ServerError> {
        let unusable = |what: String| ServerError::Unusable { server: name.to_owned(), what };
        let (file_system, io_server) = reach(url).map_err(unusable)?;
        let below = format!("{}/{name}", directory_of_cluster(cluster));
        let path = format!("/{below}");
        let directory = match file_system.lookup(file_system.root(), &below, &path) {
            Ok(directory) => directory,
            Err(OrangeError::Missing { .. }) => {
                return Err(unusable(format!(
                    "{} has no {path}: another file system was meant, or its objects were removed",
                    file_system.name()
                )));
            }
            Err(error) => return Err(unusable(error.to_string())),
        };
        let server = Self {
            cluster: cluster.to_owned(),
            name: name.to_owned(),
            tree: Tree::new(file_system, io_server, directory, path),
            objects: Kept::new(),
        };
        server.probe()?;
        Ok(server)
    }

    fn unusable(&self, what: String) -> ServerError {
        ServerError::Unusable { server: self.name.clone(), what }
    }

    fn fault(&self, error: OrangeError) -> ServerError {
        error.into_server_error(&self.name, None)
    }

    fn object(&self, object: ObjectName) -> Result<Object, OrangeError> {
        match self.objects.get(&object) {
            Some(kept) => Ok(kept),
            None => Ok(self.objects.keep(object, self.tree.find(object.file, &name_of(object))?)),
        }
    }

    /// What an operation on an object gave, or why it failed. The handle of one that is gone is forgotten.
    fn settle<T>(&self, object: ObjectName, result: Result<T, OrangeError>) -> Result<T, ServerError> {
        result.map_err(|error| {
            if matches!(error, OrangeError::Missing { .. }) {
                self.objects.forget(&object);
            }
            error.into_server_error(&self.name, Some(object))
        })
    }

    fn on<T>(
        &self,
        object: ObjectName,
        run: impl FnOnce(Object, &str) -> Result<T, OrangeError>,
    ) -> Result<T, ServerError> {
        let result = self.object(object).and_then(|found| run(found, &self.tree.path_of(object)));
        self.settle(object, result)
    }

    /// Begins a transfer; `Err`: it is over already.
    fn begin_one(
        &self,
        number: usize,
        transfer: &Transfer<'_>,
        under_way: &mut UnderWay,
    ) -> Result<Begun, ServerError> {
        let Handle::Named(object) = transfer.handle else {
            return Err(self.unusable("its objects have names, and were asked for by a descriptor".to_owned()));
        };
        let found = self.settle(object, self.object(object))?;
        let direction = transfer.memory.direction();
        let mut own = (transfer.memory.pieces().len() != 1).then(|| match direction {
            Direction::Read => vec![0; transfer.memory.bytes()],
            Direction::Write => {
                transfer.memory.slices_to_take().iter().flat_map(|piece| piece.iter().copied()).collect()
            }
        });
        let (start, length) = match &mut own {
            Some(own) => (own.as_mut_ptr(), own.len()),
            None => {
                let piece = transfer.memory.pieces()[0];
                (piece.iov_base.cast(), piece.iov_len)
            }
        };
        let range = (transfer.offset.0, start, length);
        let path = self.tree.path_of(object);
        // SAFETY: memory that was lent in the transfer's direction until the batch is over, or the transfer's own, which is kept as long.
        unsafe { under_way.begin(number, &self.tree.file_system, found, range, direction, path) };
        Ok(Begun { object, own, range })
    }

    /// What came of a transfer of which the first part was moved.
    fn end_one(
        &self,
        begun: &Begun,
        transfer: &mut Transfer<'_>,
        result: Result<usize, OrangeError>,
    ) -> Result<usize, ServerError> {
        let (offset, start, length) = begun.range;
        let direction = transfer.memory.direction();
        let mut moved = self.settle(begun.object, result)?;
        // One transfer of the library moves less than a long one has, and a short read would say that the object ends.
        while moved > 0 && moved < length {
            let mut under_way = UnderWay::new();
            let found = self.settle(begun.object, self.object(begun.object))?;
            let rest = (offset + moved as u64, start.wrapping_add(moved), length - moved);
            // SAFETY: the rest of the memory that was lent until the batch is over; this waits.
            unsafe {
                under_way.begin(0, &self.tree.file_system, found, rest, direction, self.tree.path_of(begun.object))
            };
            match under_way.next() {
                Some((_, Ok(0))) | None => break,
                Some((_, more)) => moved += self.settle(begun.object, more)?,
            }
        }
        if let (Some(own), Direction::Read) = (&begun.own, direction) {
            let mut rest = &own[..moved];
            for piece in transfer.memory.slices_to_fill() {
                let (now, later) = rest.split_at(rest.len().min(piece.len()));
                piece[..now.len()].copy_from_slice(now);
                rest = later;
            }
        }
        if transfer.how.durable && direction == Direction::Write {
            self.on(begun.object, |found, path| self.tree.file_system.flush(found, path))?;
        }
        Ok(moved)
    }
}

impl ObjectStore for OrangeServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        let mut begun: Vec<Option<Begun>> = Vec::with_capacity(batch.len());
        let mut results: Vec<Option<Result<usize, OrangeError>>> = Vec::new();
        {
            let mut under_way = UnderWay::new();
            for (number, transfer) in batch.iter_mut().enumerate() {
                begun.push(match self.begin_one(number, transfer, &mut under_way) {
                    Ok(begun) => Some(begun),
                    Err(error) => {
                        transfer.completion = Some(Err(error));
                        None
                    }
                });
            }
            results.resize_with(batch.len(), || None);
            others();
            while let Some((number, result)) = under_way.next() {
                results[number] = Some(result);
            }
        }
        for ((transfer, begun), result) in batch.iter_mut().zip(&begun).zip(results) {
            if let (Some(begun), Some(result)) = (begun, result) {
                transfer.completion = Some(self.end_one(begun, transfer, result));
            }
        }
    }

    unsafe fn begin(&self, transfer: LentTransfer, then: Then) {
        let LentTransfer { object, offset, start, length, direction } = transfer;
        let found = match self.settle(object, self.object(object)) {
            Ok(found) => found,
            Err(error) => return then(Err(error)),
        };
        let (name, range) = (self.name.clone(), (offset.0, start, length));
        let then = Box::new(move |result: Result<usize, OrangeError>| {
            then(result.map_err(|error| error.into_server_error(&name, Some(object))));
        });
        // SAFETY: the caller's promise.
        unsafe { self.tree.file_system.begin_io(found, range, direction, self.tree.path_of(object), then) };
    }

    fn perform_batch(&self, batch: &mut [Call<'_>], others: &mut dyn FnMut()) {
        server::calls::perform_in_turn(self, batch, others);
    }

    fn probe(&self) -> Result<(), ServerError> {
        let Tree { file_system, io_server, directory, path, .. } = &self.tree;
        let path = format!("{path}/{MARKER}");
        let found = file_system.lookup(*directory, MARKER, &path).map_err(|error| self.fault(error))?;
        let marker = file_system.read_anywhere(found, &path).map_err(|error| self.fault(error))?;
        check_marker(&marker, &self.cluster, &self.name, io_server).map_err(|what| self.unusable(what))
    }

    fn standing(&self) -> Result<Standing, ServerError> {
        self.probe()?;
        let place = format!("{}/{}", self.tree.file_system.id(), self.tree.io_server.text);
        let file_system = Some(twox_hash::XxHash3_64::oneshot(place.as_bytes()));
        let space = self.tree.file_system.space(&self.tree.io_server).map_err(|error| self.fault(error))?;
        let Space { free_bytes, total_bytes } = space;
        Ok(Standing { free_bytes, total_bytes, file_system })
    }

    fn create_expecting(&self, object: ObjectName, _: Ownership, _: u64) -> Result<(), ServerError> {
        let made = self.tree.create(object).map_err(|error| error.into_server_error(&self.name, Some(object)))?;
        self.objects.keep(object, made);
        Ok(())
    }

    fn open_as(&self, object: ObjectName, _: OpenMode) -> Result<ObjectHandle, ServerError> {
        self.size(object)?;
        Ok(ObjectHandle::Named(object))
    }

    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError> {
        let bytes = self.on(object, |found, path| self.tree.file_system.size(found, path))?;
        Ok(ObjectSize { end_bytes: bytes, occupied_bytes: bytes })
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), ServerError> {
        if self.size(object)?.end_bytes <= length {
            return Ok(());
        }
        self.on(object, |found, path| self.tree.file_system.truncate(found, length, path))
    }

    fn sync(&self, handle: Handle<'_>) -> Result<(), ServerError> {
        match handle {
            Handle::Named(object) => self.on(object, |found, path| self.tree.file_system.flush(found, path)),
            Handle::Descriptor(_) => Err(self.unusable("its objects have no descriptors".to_owned())),
        }
    }

    fn sync_names(&self, file: FileId) -> Result<(), ServerError> {
        self.tree.flush_description(file).map_err(|error| self.fault(error))
    }

    fn set_ownership(&self, object: ObjectName, _: Ownership) -> Result<(), ServerError> {
        self.size(object).map(drop)
    }

    fn remove(&self, object: ObjectName) -> Result<(), ServerError> {
        self.objects.forget(&object);
        self.tree.remove(object).map_err(|error| self.fault(error))
    }

    fn remove_file(&self, file: FileId) -> Result<(), ServerError> {
        self.objects.change(|kept| kept.retain(|object, _| object.file != file));
        self.tree.empty(file).map_err(|error| self.fault(error))
    }

    fn describe(&self, file: FileId, head: &str, lines: &str) -> Result<u64, ServerError> {
        self.tree.append_description(file, head, lines).map_err(|error| self.fault(error))
    }

    fn describe_again(&self, file: FileId, text: &str) -> Result<(), ServerError> {
        self.tree.replace_description(file, text).map_err(|error| self.fault(error))
    }

    fn sync_description(&self, file: FileId) -> Result<(), ServerError> {
        self.tree.flush_description(file).map_err(|error| self.fault(error))
    }

    fn descriptions(&self) -> Result<Vec<(FileId, String)>, ServerError> {
        self.tree.descriptions().map_err(|error| self.fault(error))
    }

    fn objects(&self) -> Result<Vec<ObjectName>, ServerError> {
        self.tree.objects().map_err(|error| self.fault(error))
    }

    fn free_bytes(&self) -> Result<u64, ServerError> {
        let space = self.tree.file_system.space(&self.tree.io_server);
        space.map(|space| space.free_bytes).map_err(|error| self.fault(error))
    }
}
