//! `rados://POOL`: a server that is a pool.
//!
//! A cluster's objects are in the namespace `stripewise-ID` of each pool, ID being the cluster's:
//!
//! | object | what |
//! |---|---|
//! | `server` | the marker. Its keys say which cluster and server the pool is, and under which addresses its agent is known; where several hosts share the cluster, see `members` |
//! | `FILE` | a file's description; its keys name the file's objects, each before it is made and until it is removed |
//! | `FILE/REGION.GENERATION` | an object, with its epoch as an attribute |
//!
//! Whoever opens a server of a cluster of one host shuts out the agent that had it before: what that one sent and nobody heard of must not arrive later. Only
//! the holder of the broker's lock opens servers, so the other one is gone.

use super::connection::shared;
use super::error::RadosError;
use super::monitors::{osds_of, sharing_of, space_of};
use super::throttled::Throttled;
use super::{ConnectOptions, Connection, Epoch, Operation, Piece, Pool, Request};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::{Direction, FileId, Generation, RegionIndex, ServerUrl};
use stripewise_store::server::rados::{CAPABILITIES, RadosUrl};
use stripewise_store::server::{
    self, Call, Capabilities, FIRST_LINE_OF_DESCRIPTIONS, Handle, LentTransfer, ObjectHandle, ObjectName, ObjectSize,
    ObjectStore, OpenMode, Ownership, ServerError, Standing, Then, Transfer,
};

/// Name of the marker.
pub(super) const MARKER: &str = "server";
const CLUSTER: &str = "cluster";
const SERVER: &str = "server";
pub(super) const AGENT: &str = "agent";
/// In a description's name its keys are objects; no object is called so.
const NO_VALUE: &[u8] = b"";
/// After which those who only look at a server give an operation up.
const PATIENCE: Duration = Duration::from_secs(5);
/// After which a command that makes a pool a server gives up; a new pool takes a while until it answers.
const PREPARE_PATIENCE: Duration = Duration::from_secs(30);

/// Objects in a pool.
pub struct RadosServer {
    cluster: String,
    name: String,
    pool: Pool,
    /// Of what shares its free space: the same for pools that lie by the same rule.
    sharing: u64,
}

/// The namespace of a cluster's objects.
fn namespace_of(cluster: &str) -> String {
    format!("stripewise-{cluster}")
}

/// The connection that a URL asks for, shared by all servers that ask for the same one.
///
/// # Errors
/// [`ServerError::Unusable`] where the URL is none of this kind or its Ceph cannot be reached.
pub fn connect(name: &str, url: &RadosUrl) -> Result<Arc<Connection>, ServerError> {
    connect_with(name, url, None)
}

/// As [`connect`]; operations are given up after `operation_patience`.
pub(super) fn connect_with(
    name: &str,
    url: &RadosUrl,
    operation_patience: Option<Duration>,
) -> Result<Arc<Connection>, ServerError> {
    let conf = url.conf.as_ref().map(PathBuf::from);
    let mut options = ConnectOptions { conf, operation_patience, ..ConnectOptions::default() };
    if let Some(user) = &url.user {
        options.user.clone_from(user);
    }
    shared(&options).map_err(|error| ServerError::Unusable { server: name.to_owned(), what: error.to_string() })
}

/// Opens server `name` of a cluster by its URL, and shuts out whoever had it before.
///
/// # Errors
/// As [`connect`] and [`RadosServer::open`].
pub fn open(cluster: &str, name: &str, url: &ServerUrl) -> Result<Box<dyn ObjectStore>, ServerError> {
    let url = RadosUrl::parse(url).map_err(|what| ServerError::Unusable { server: name.to_owned(), what })?;
    with_throttle(&url, RadosServer::open(&connect(name, &url)?, cluster, name, &url.pool)?)
}

/// Looks at server `name` of a cluster by its URL: see [`RadosServer::inspect`].
///
/// # Errors
/// As [`connect`] and [`RadosServer::inspect`].
pub fn inspect(cluster: &str, name: &str, url: &ServerUrl) -> Result<Box<dyn ObjectStore>, ServerError> {
    let url = RadosUrl::parse(url).map_err(|what| ServerError::Unusable { server: name.to_owned(), what })?;
    Ok(Box::new(RadosServer::inspect(&connect_with(name, &url, Some(PATIENCE))?, cluster, name, &url.pool)?))
}

/// The server behind its throttle, if its URL has one.
pub(super) fn with_throttle(url: &RadosUrl, server: RadosServer) -> Result<Box<dyn ObjectStore>, ServerError> {
    let unusable = |what| ServerError::Unusable { server: server.name.clone(), what };
    match url.open_throttle().map_err(unusable)? {
        Some(throttle) => Ok(Box::new(Throttled::new(server, throttle)?)),
        None => Ok(Box::new(server)),
    }
}

/// Makes the pool of a URL the server `name` of a cluster.
///
/// # Errors
/// As [`connect`] and [`prepare`].
pub fn prepare_url(cluster: &str, name: &str, url: &ServerUrl) -> Result<(), ServerError> {
    let url = RadosUrl::parse(url).map_err(|what| ServerError::Unusable { server: name.to_owned(), what })?;
    prepare(&connect_with(name, &url, Some(PREPARE_PATIENCE))?, cluster, name, &url.pool)
}

/// Makes a pool the server `name` of a cluster.
///
/// # Errors
/// [`ServerError::Unusable`] where it is another server already, is erasure-coded, or cannot be written.
pub fn prepare(connection: &Arc<Connection>, cluster: &str, name: &str, pool: &str) -> Result<(), ServerError> {
    let unusable = |error: RadosError| ServerError::Unusable { server: name.to_owned(), what: error.to_string() };
    let pool = Pool::open(connection, pool, &namespace_of(cluster)).map_err(unusable)?;
    let keys: BTreeMap<String, Vec<u8>> = match pool.keys(MARKER) {
        Ok(keys) => keys.into_iter().collect(),
        Err(RadosError::Missing { .. }) => BTreeMap::new(),
        Err(error) => return Err(unusable(error)),
    };
    match keys.get(SERVER) {
        Some(other) if other != name.as_bytes() => {
            let other = String::from_utf8_lossy(other);
            let what = format!("pool {} is server {other} of this cluster already; name another pool", pool.name());
            Err(ServerError::Unusable { server: name.to_owned(), what })
        }
        Some(_) => Ok(()),
        None => pool
            .run(MARKER, Operation::SetKeys(&[(CLUSTER, cluster.as_bytes()), (SERVER, name.as_bytes())]))
            .map(drop)
            .map_err(unusable),
    }
}

impl RadosServer {
    /// Without a look at the marker.
    pub(super) fn within(
        connection: &Arc<Connection>,
        cluster: &str,
        name: &str,
        pool: &str,
    ) -> Result<Self, ServerError> {
        let fault = |error: RadosError| ServerError::Unusable { server: name.to_owned(), what: error.to_string() };
        let pool = Pool::open(connection, pool, &namespace_of(cluster)).map_err(fault)?;
        let sharing = sharing_of(connection, pool.name()).map_err(fault)?;
        Ok(Self { cluster: cluster.to_owned(), name: name.to_owned(), pool, sharing })
    }

    /// Looks at server `name` of a cluster, beside the agent that has it: nobody is shut out, so nothing of the cluster's may be changed.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn inspect(connection: &Arc<Connection>, cluster: &str, name: &str, pool: &str) -> Result<Self, ServerError> {
        let server = Self::within(connection, cluster, name, pool)?;
        server.check_marker().map(|_| server)
    }

    /// Opens server `name` of a cluster, and shuts out whoever had it before.
    ///
    /// # Errors
    /// [`ServerError::Unusable`] where the pool is not this server (its marker), or does not answer.
    pub fn open(connection: &Arc<Connection>, cluster: &str, name: &str, pool: &str) -> Result<Self, ServerError> {
        let unusable = |what: String| ServerError::Unusable { server: name.to_owned(), what };
        let fault = |error: RadosError| unusable(error.to_string());
        let server = Self::within(connection, cluster, name, pool)?;
        let keys = server.check_marker()?;
        let addresses = connection.addresses().map_err(fault)?;
        if let Some(before) = keys.get(AGENT)
            && before != addresses.as_bytes()
        {
            connection.shut_out(&String::from_utf8_lossy(before)).map_err(fault)?;
        }
        server.pool.run(MARKER, Operation::SetKeys(&[(AGENT, addresses.as_bytes())])).map_err(fault)?;
        Ok(server)
    }

    fn unusable(&self, what: String) -> ServerError {
        ServerError::Unusable { server: self.name.clone(), what }
    }

    /// What the marker says, if it is this server's.
    pub(super) fn check_marker(&self) -> Result<BTreeMap<String, Vec<u8>>, ServerError> {
        let pool = self.pool.name();
        let keys: BTreeMap<String, Vec<u8>> = match self.pool.keys(MARKER) {
            Ok(keys) => keys.into_iter().collect(),
            Err(RadosError::Missing { .. }) => {
                let cluster = &self.cluster;
                return Err(self.unusable(format!("pool {pool} holds nothing of cluster {cluster}; another pool was meant, or its objects were removed")));
            }
            Err(error) => return Err(self.fault(None, error)),
        };
        let is = |key: &str, expected: &str| keys.get(key).is_some_and(|found| found == expected.as_bytes());
        if is(CLUSTER, &self.cluster) && is(SERVER, &self.name) {
            return Ok(keys);
        }
        let found = keys.get(SERVER).map_or_else(|| "none".into(), |found| String::from_utf8_lossy(found));
        Err(self.unusable(format!("pool {pool} is server {found} of this cluster; correct its url in cluster.toml")))
    }

    /// The OSDs that an object lies on.
    ///
    /// # Errors
    /// The monitors'.
    pub fn osds_of(&self, object: ObjectName) -> Result<Vec<i32>, ServerError> {
        let osds = osds_of(self.pool.connection(), self.pool.name(), &object.to_string(), &namespace_of(&self.cluster));
        osds.map_err(|error| self.fault(None, error))
    }

    /// What is free, and the size.
    fn space(&self) -> Result<(u64, u64), ServerError> {
        space_of(self.pool.connection(), self.pool.name()).map_err(|error| self.fault(None, error))
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(super) fn fault(&self, object: Option<ObjectName>, error: RadosError) -> ServerError {
        fault(&self.name, object, error)
    }

    fn run(&self, object: ObjectName, operation: Operation<'_>) -> Result<u64, ServerError> {
        self.pool.run(&object.to_string(), operation).map_err(|error| self.fault(Some(object), error))
    }

    fn run_plain(&self, object: &str, operation: Operation<'_>) -> Result<u64, ServerError> {
        self.pool.run(object, operation).map_err(|error| self.fault(None, error))
    }

    /// The same of an object that need not be there.
    fn run_if_there(&self, object: &str, operation: Operation<'_>) -> Result<Option<u64>, ServerError> {
        match self.pool.run(object, operation) {
            Ok(result) => Ok(Some(result)),
            Err(RadosError::Missing { .. }) => Ok(None),
            Err(error) => Err(self.fault(None, error)),
        }
    }

    /// The description of a file; `None`: there is none.
    fn description(&self, file: FileId) -> Result<Option<String>, ServerError> {
        let name = file.to_string();
        let Some(length) = self.run_if_there(&name, Operation::StatPlain)? else { return Ok(None) };
        let mut text = vec![0; length as usize];
        let mut at = 0;
        while at < text.len() {
            let into = Piece::to_fill(&mut text[at..]);
            let Some(bytes) = self.run_if_there(&name, Operation::ReadPlain { offset: at as u64, into })? else {
                return Ok(None);
            };
            if bytes == 0 {
                break;
            }
            at += bytes as usize;
        }
        text.truncate(at);
        Ok((at > 0).then(|| String::from_utf8_lossy(&text).into_owned()))
    }

    /// Removes whatever is in the namespace.
    pub(super) fn remove_all(&self) -> Result<(), ServerError> {
        for name in self.pool.list().map_err(|error| self.fault(None, error))? {
            self.run_if_there(&name, Operation::Remove { epoch: None })?;
        }
        Ok(())
    }

    /// Removes an object, then its name among its file's.
    fn remove_named(&self, file: FileId, object: &str) -> Result<(), ServerError> {
        self.run_if_there(object, Operation::Remove { epoch: None })?;
        let key = object.rsplit('/').next().unwrap_or_default();
        self.run_if_there(&file.to_string(), Operation::RemoveKeys(&[key])).map(drop)
    }
}

/// What an error means to those who use servers.
fn fault(server: &str, object: Option<ObjectName>, error: RadosError) -> ServerError {
    let server = server.to_owned();
    match (error, object) {
        // Of an object that has moved on nothing is left for those who still name its old epoch.
        (RadosError::Missing { .. } | RadosError::WrongEpoch { .. }, Some(object)) => {
            ServerError::Missing { server, object }
        }
        (RadosError::Exists { .. }, Some(object)) => ServerError::Exists { server, object },
        (RadosError::Full { .. }, _) => ServerError::NoSpace { server },
        (RadosError::Blocklisted { .. }, _) => ServerError::ShutOut { server },
        (error, _) => ServerError::Unusable { server, what: error.to_string() },
    }
}

/// `REGION.GENERATION`
fn key_of(object: ObjectName) -> String {
    format!("{}.{}", object.region, object.generation)
}

/// `FILE/REGION.GENERATION`; `None` of any other name.
fn parse_name(name: &str) -> Option<ObjectName> {
    let (file, rest) = name.split_once('/')?;
    let (region, generation) = rest.split_once('.')?;
    let object = ObjectName {
        file: file.parse().ok()?,
        region: RegionIndex(region.parse().ok()?),
        generation: Generation(generation.parse().ok()?),
    };
    (object.to_string() == name).then_some(object)
}

/// A transfer as one operation over contiguous memory.
struct Contiguous {
    object: String,
    /// Of a transfer whose memory is in several pieces.
    own: Option<Vec<u8>>,
}

impl ObjectStore for RadosServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        let mut prepared = Vec::with_capacity(batch.len());
        for transfer in &mut *batch {
            let Handle::Named(object) = transfer.handle else {
                let what = "its objects have names, and were asked for by a descriptor".to_owned();
                transfer.completion = Some(Err(self.unusable(what)));
                prepared.push(None);
                continue;
            };
            let own = (transfer.memory.pieces().len() != 1).then(|| match transfer.memory.direction() {
                Direction::Read => vec![0; transfer.memory.bytes()],
                Direction::Write => {
                    transfer.memory.slices_to_take().iter().flat_map(|piece| piece.iter().copied()).collect()
                }
            });
            prepared.push(Some(Contiguous { object: object.to_string(), own }));
        }
        let (mut requests, mut numbers) = (Vec::new(), Vec::new());
        for (number, (transfer, prepared)) in batch.iter_mut().zip(&mut prepared).enumerate() {
            let Some(Contiguous { object, own }) = prepared else { continue };
            let piece = match (own, transfer.memory.direction()) {
                (Some(own), _) => Piece::to_fill(own),
                (None, _) => {
                    let piece = transfer.memory.pieces()[0];
                    // SAFETY: memory that was lent in the transfer's direction until this returns, which waits for all operations.
                    unsafe { Piece::from_raw(piece.iov_base.cast(), piece.iov_len) }
                }
            };
            let (epoch, offset) = (Epoch::FIRST, transfer.offset.0);
            let operation = match transfer.memory.direction() {
                Direction::Read => Operation::Read { epoch, offset, into: piece },
                Direction::Write => Operation::Write { epoch, offset, from: piece },
            };
            requests.push(Request { object, operation });
            numbers.push(number);
        }
        let results = self.pool.run_with(requests, others);
        for (number, result) in numbers.into_iter().zip(results) {
            let (transfer, prepared) = (&mut batch[number], &prepared[number]);
            let Handle::Named(object) = transfer.handle else { continue };
            let is_read = transfer.memory.direction() == Direction::Read;
            transfer.completion = Some(match result {
                Ok(bytes) if is_read => {
                    if let Some(own) = prepared.as_ref().and_then(|prepared| prepared.own.as_ref()) {
                        let mut rest = &own[..bytes as usize];
                        for piece in transfer.memory.slices_to_fill() {
                            let (now, later) = rest.split_at(rest.len().min(piece.len()));
                            piece[..now.len()].copy_from_slice(now);
                            rest = later;
                        }
                    }
                    Ok(bytes as usize)
                }
                Ok(_) => Ok(transfer.memory.bytes()),
                Err(error) => Err(self.fault(Some(object), error)),
            });
        }
    }

    unsafe fn begin(&self, transfer: LentTransfer, then: Then) {
        let LentTransfer { object, offset, start, length, direction } = transfer;
        // SAFETY: the memory is lent until `then` is called.
        let piece = unsafe { Piece::from_raw(start, length) };
        let (epoch, offset) = (Epoch::FIRST, offset.0);
        let operation = match direction {
            Direction::Read => Operation::Read { epoch, offset, into: piece },
            Direction::Write => Operation::Write { epoch, offset, from: piece },
        };
        let name = self.name.clone();
        let then = Box::new(move |result: Result<u64, RadosError>| {
            then(match (result, direction) {
                (Ok(bytes), Direction::Read) => Ok(bytes as usize),
                (Ok(_), Direction::Write) => Ok(length),
                (Err(error), _) => Err(fault(&name, Some(object), error)),
            });
        });
        // SAFETY: the same.
        unsafe { self.pool.begin(&object.to_string(), operation, then) };
    }

    fn begin_size(&self, object: ObjectName, then: Then) {
        let name = self.name.clone();
        let ended = Box::new(move |result: Result<u64, RadosError>| {
            then(result.map(|bytes| bytes as usize).map_err(|error| fault(&name, Some(object), error)));
        });
        // SAFETY: it is lent no memory.
        unsafe { self.pool.begin(&object.to_string(), Operation::Stat { epoch: Epoch::FIRST }, ended) };
    }

    fn perform_batch(&self, batch: &mut [Call<'_>], others: &mut dyn FnMut()) {
        server::calls::perform_in_turn(self, batch, others);
    }

    fn probe(&self) -> Result<(), ServerError> {
        self.check_marker().map(drop)
    }

    fn standing(&self) -> Result<Standing, ServerError> {
        self.check_marker()?;
        let (free_bytes, total_bytes) = self.space()?;
        Ok(Standing { free_bytes, total_bytes, file_system: Some(self.sharing) })
    }

    fn create_expecting(&self, object: ObjectName, _: Ownership, _: u64) -> Result<(), ServerError> {
        let key = key_of(object);
        self.run_plain(&object.file.to_string(), Operation::SetKeys(&[(key.as_str(), NO_VALUE)]))?;
        self.run(object, Operation::Create { epoch: Epoch::FIRST }).map(drop)
    }

    fn open_as(&self, object: ObjectName, _: OpenMode) -> Result<ObjectHandle, ServerError> {
        self.run(object, Operation::Stat { epoch: Epoch::FIRST })?;
        Ok(ObjectHandle::Named(object))
    }

    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError> {
        let bytes = self.run(object, Operation::Stat { epoch: Epoch::FIRST })?;
        Ok(ObjectSize { end_bytes: bytes, occupied_bytes: bytes })
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), ServerError> {
        if self.size(object)?.end_bytes <= length {
            return Ok(());
        }
        self.run(object, Operation::Truncate { epoch: Epoch::FIRST, length }).map(drop)
    }

    fn sync(&self, handle: Handle<'_>) -> Result<(), ServerError> {
        match handle {
            Handle::Named(object) => self.size(object).map(drop),
            Handle::Descriptor(_) => Err(self.unusable("its objects have no descriptors".to_owned())),
        }
    }

    fn sync_names(&self, _: FileId) -> Result<(), ServerError> {
        Ok(())
    }

    fn set_ownership(&self, object: ObjectName, _: Ownership) -> Result<(), ServerError> {
        self.size(object).map(drop)
    }

    fn remove(&self, object: ObjectName) -> Result<(), ServerError> {
        self.remove_named(object.file, &object.to_string())
    }

    fn remove_file(&self, file: FileId) -> Result<(), ServerError> {
        let name = file.to_string();
        let keys = match self.pool.keys(&name) {
            Ok(keys) => keys,
            Err(RadosError::Missing { .. }) => return Ok(()),
            Err(error) => return Err(self.fault(None, error)),
        };
        for (key, _) in keys {
            self.run_if_there(&format!("{name}/{key}"), Operation::Remove { epoch: None })?;
        }
        self.run_if_there(&name, Operation::Remove { epoch: None }).map(drop)
    }

    fn describe(&self, file: FileId, head: &str, lines: &str) -> Result<u64, ServerError> {
        let name = file.to_string();
        // The file's lock is held by whoever describes it, so nobody else appends meanwhile.
        let before = self.run_if_there(&name, Operation::StatPlain)?;
        let text = match before {
            Some(length) if length > 0 => lines.to_owned(),
            _ => format!("{FIRST_LINE_OF_DESCRIPTIONS}\n{head}{lines}"),
        };
        // Nothing is appended to an object that is not there: of a file without regions on this server.
        let write = match before {
            Some(_) => Operation::Append { from: text.as_bytes() },
            None => Operation::Replace { from: text.as_bytes() },
        };
        self.run_plain(&name, write)?;
        Ok(before.unwrap_or(0) + text.len() as u64)
    }

    fn describe_again(&self, file: FileId, text: &str) -> Result<(), ServerError> {
        self.run_plain(&file.to_string(), Operation::Replace { from: text.as_bytes() }).map(drop)
    }

    fn sync_description(&self, _: FileId) -> Result<(), ServerError> {
        Ok(())
    }

    fn descriptions(&self) -> Result<Vec<(FileId, String)>, ServerError> {
        let names = self.pool.list().map_err(|error| self.fault(None, error))?;
        let mut found = Vec::new();
        for file in names.iter().filter_map(|name| name.parse::<FileId>().ok()) {
            if let Some(text) = self.description(file)? {
                found.push((file, text));
            }
        }
        Ok(found)
    }

    fn objects(&self) -> Result<Vec<ObjectName>, ServerError> {
        let names = self.pool.list().map_err(|error| self.fault(None, error))?;
        Ok(names.iter().filter_map(|name| parse_name(name)).collect())
    }

    fn fence_host(&self, host: &str, admission: u64) -> Result<(), ServerError> {
        self.shut_host_out(host, admission)
    }

    fn is_shut_out(&self) -> bool {
        self.pool.connection().is_shut_out()
    }

    fn free_bytes(&self) -> Result<u64, ServerError> {
        self.space().map(|(free_bytes, _)| free_bytes)
    }
}
