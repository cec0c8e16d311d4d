//! The cluster's servers as a client sees them: opened at first use, and known to make readers wait or not.

use super::Core;
use crate::protocol::ServerInfo;
use crate::server::by_agent::AgentServer;
use crate::server::capabilities_by_agent;
use crate::server::{Capabilities, Handle, ObjectName, ObjectStore, Predicted, ServerError};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stripewise_layout::{Direction, ObjectOffset, ServerId, ServerUrl};

/// A server of the cluster.
pub(super) struct Seat {
    pub(super) info: ServerInfo,
    backend: OnceLock<Box<dyn ObjectStore>>,
    /// I/O runs in the agent; known once the server is open.
    is_by_agent: AtomicBool,
    /// A [`Medium`]; known once an object was opened.
    medium: AtomicU8,
    /// What a buffered write took here of late beyond copying its bytes, ns, smoothed.
    write_wait_ns: AtomicU64,
}

/// What a server's objects lie on, as far as it decides which calls are made together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Medium {
    /// Not known yet, or a store whose calls are made in turn.
    InTurn = 0,
    /// Plain descriptors of a file system in memory.
    Memory = 1,
    /// Plain descriptors of a store that may make a caller wait.
    Device = 2,
    /// A store without descriptors that has several transfers under way.
    Overlapping = 3,
}

impl Medium {
    /// Whether the kernel may be asked for its objects' bytes.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Medium::Memory | Medium::Device)
    }
}

/// A buffered write that takes no longer than this beyond copying was absorbed by the page cache.
const ABSORBED_NS: u64 = 200_000;
/// So long copying a byte into the page cache takes at most, ns: 1 GB/s.
const COPY_NS_PER_BYTE: u64 = 1;

impl Seat {
    pub(super) fn new(info: ServerInfo) -> Self {
        Self {
            info,
            backend: OnceLock::new(),
            is_by_agent: AtomicBool::new(false),
            medium: AtomicU8::new(Medium::InTurn as u8),
            write_wait_ns: AtomicU64::new(0),
        }
    }

    /// Whether the I/O of this server, which is open, runs in the agent.
    pub(super) fn is_by_agent(&self) -> bool {
        self.is_by_agent.load(Relaxed)
    }
}

impl Core {
    /// The server's back end; opened at first use.
    #[inline]
    pub(crate) fn server(&self, server: ServerId) -> Result<&dyn ObjectStore, ServerError> {
        match self.seats.get(usize::from(server.0)).and_then(|seat| seat.backend.get()) {
            Some(backend) => Ok(&**backend),
            None => self.open_server(server),
        }
    }

    #[cold]
    fn open_server(&self, server: ServerId) -> Result<&dyn ObjectStore, ServerError> {
        let unusable = |name: &str, what: String| ServerError::Unusable { server: name.to_owned(), what };
        let Some(seat) = self.seats.get(usize::from(server.0)) else {
            let what = format!("the cluster has only {} servers", self.seats.len());
            return Err(unusable(&format!("number {server}"), what));
        };
        let name = &seat.info.name;
        let url: ServerUrl = seat.info.url.parse().map_err(|what| unusable(name, what))?;
        if let Some(capabilities) = capabilities_by_agent(&url) {
            let agent = AgentServer::new(name, server, capabilities, Arc::clone(&self.agent) as _);
            seat.is_by_agent.store(true, Relaxed);
            return Ok(&**seat.backend.get_or_init(|| Box::new(agent)));
        }
        let backend = (self.options.open_server)(&self.cluster, server, name, &url, self.stations.as_ref())?;
        // Two threads may both have opened it; the second one's is dropped.
        Ok(&**seat.backend.get_or_init(|| backend))
    }

    #[inline]
    pub(crate) fn medium(&self, server: ServerId) -> Medium {
        match self.seats.get(usize::from(server.0)).map_or(0, |seat| seat.medium.load(Relaxed)) {
            1 => Medium::Memory,
            2 => Medium::Device,
            3 => Medium::Overlapping,
            _ => Medium::InTurn,
        }
    }

    /// Whether the server's objects are plain descriptors of a store outside memory: then reads ask the page cache first.
    #[inline]
    pub(crate) fn may_wait(&self, server: ServerId) -> bool {
        self.medium(server) == Medium::Device
    }

    /// Whether buffered writes to the server have made their callers wait of late.
    pub(crate) fn writes_wait(&self, server: ServerId) -> bool {
        self.seats.get(usize::from(server.0)).is_some_and(|seat| seat.write_wait_ns.load(Relaxed) > ABSORBED_NS)
    }

    /// Notes what buffered writes of so many bytes took. True: longer than the page cache takes.
    pub(crate) fn note_write(&self, server: ServerId, took: Duration, bytes: u64) -> bool {
        let wait_ns = (took.as_nanos() as u64).saturating_sub(bytes.saturating_mul(COPY_NS_PER_BYTE));
        if let Some(seat) = self.seats.get(usize::from(server.0)) {
            // Two that do this at once may lose one's part; it is an estimate.
            let before = seat.write_wait_ns.load(Relaxed);
            seat.write_wait_ns.store((before.saturating_mul(3).saturating_add(wait_ns)) / 4, Relaxed);
        }
        wait_ns > ABSORBED_NS
    }

    /// What a read issued now would take. Of a server that cannot tell: what it was measured to take, behind as many such reads as all processes have
    /// under way there that had a choice. `None`: there is no such server.
    pub(crate) fn predict_read(
        &self,
        server: ServerId,
        object: ObjectName,
        offset: ObjectOffset,
        length: u64,
    ) -> Option<Predicted> {
        let seat = self.seats.get(usize::from(server.0))?;
        let predicted = self.predict(server, Direction::Read, object, offset, length);
        if predicted.is_some() {
            return predicted;
        }
        let service_ns = seat.info.read_cost.ns(length);
        let before = self.processes.reads_under_way(server);
        Some(Predicted { wait_ns: service_ns.saturating_mul(before), service_ns, held_ns: service_ns })
    }

    /// What an emulated server's device would take. `None`: another kind of server.
    pub(crate) fn predict(
        &self,
        server: ServerId,
        direction: Direction,
        object: ObjectName,
        offset: ObjectOffset,
        length: u64,
    ) -> Option<Predicted> {
        self.server(server).ok()?.device_time()?.predict(direction, object, offset, length)
    }

    /// Looks at an object just opened; see [`Self::medium`].
    pub(crate) fn note_medium(&self, server: ServerId, object: Handle<'_>) {
        const TMPFS: i64 = 0x0102_1994;
        const RAMFS: i64 = 0x8584_58f6;
        let Some(seat) = self.seats.get(usize::from(server.0)) else { return };
        let capabilities = seat.backend.get().map_or(Capabilities::UNKNOWN, |backend| backend.capabilities());
        let medium = match object.descriptor() {
            Some(object) if capabilities.plain_descriptors => match rustix::fs::fstatfs(object) {
                Ok(found) if matches!(found.f_type, TMPFS | RAMFS) => Medium::Memory,
                Ok(_) => Medium::Device,
                Err(_) => Medium::InTurn,
            },
            _ if capabilities.overlaps => Medium::Overlapping,
            _ => Medium::InTurn,
        };
        seat.medium.store(medium as u8, Relaxed);
    }

    pub(crate) fn server_name(&self, server: ServerId) -> String {
        self.seats.get(usize::from(server.0)).map_or_else(|| format!("number {server}"), |seat| seat.info.name.clone())
    }
}
