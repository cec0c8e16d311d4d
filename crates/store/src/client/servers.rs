//! The cluster's servers as a client sees them: opened at first use, and known to make readers wait or not.

use super::Core;
use crate::protocol::ServerInfo;
use crate::server::{Capabilities, Handle, ObjectName, ObjectStore, Predicted, ServerError};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use stripewise_layout::{Direction, ObjectOffset, ServerId, ServerUrl};

/// A server of the cluster.
pub(super) struct Seat {
    pub(super) info: ServerInfo,
    backend: OnceLock<Box<dyn ObjectStore>>,
    /// Whether its objects are plain descriptors on a device that may make a reader wait; known once one was opened.
    may_wait: AtomicBool,
}

impl Seat {
    pub(super) fn new(info: ServerInfo) -> Self {
        Self { info, backend: OnceLock::new(), may_wait: false.into() }
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
        let backend = (self.options.open_server)(&self.cluster, server, name, &url, self.stations.as_ref())?;
        // Two threads may both have opened it; the second one's is dropped.
        Ok(&**seat.backend.get_or_init(|| backend))
    }

    /// Whether the server's objects are plain descriptors of a store outside memory: then reads ask the page cache first.
    #[inline]
    pub(crate) fn may_wait(&self, server: ServerId) -> bool {
        self.seats.get(usize::from(server.0)).is_some_and(|seat| seat.may_wait.load(Relaxed))
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

    /// Looks at an object just opened; see [`Self::may_wait`].
    pub(crate) fn note_medium(&self, server: ServerId, object: Handle<'_>) {
        const TMPFS: i64 = 0x0102_1994;
        const RAMFS: i64 = 0x8584_58f6;
        let Some(seat) = self.seats.get(usize::from(server.0)) else { return };
        let capabilities = seat.backend.get().map_or(Capabilities::UNKNOWN, |backend| backend.capabilities());
        if capabilities.plain_descriptors
            && let Some(object) = object.descriptor()
            && let Ok(found) = rustix::fs::fstatfs(object)
        {
            seat.may_wait.store(!matches!(found.f_type, TMPFS | RAMFS), Relaxed);
        }
    }

    pub(crate) fn server_name(&self, server: ServerId) -> String {
        self.seats.get(usize::from(server.0)).map_or_else(|| format!("number {server}"), |seat| seat.info.name.clone())
    }
}
