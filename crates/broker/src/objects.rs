//! Objects as the broker itself uses them: as their owner, who may have to change their mode for the moment.

use crate::context::Context;
use crate::guard;
use crate::managed::Managed;
use std::sync::Arc;
use stripewise_layout::{Layout, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectHandle, ObjectName, ObjectStore, Ownership, ServerError};

/// Objects on servers.
pub(crate) struct Objects {
    context: Arc<Context>,
}

impl Objects {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context) }
    }

    /// Opens an object for the broker itself, which may have to change its mode for the moment.
    pub(crate) fn open_as_owner(
        &self,
        managed: &Managed,
        object: ObjectName,
        server: ServerId,
        writable: bool,
    ) -> Result<ObjectHandle, ServerError> {
        let backend = self.context.servers()[usize::from(server.0)].as_ref();
        match backend.open(object, writable) {
            Err(ServerError::Denied { .. }) => {
                let inner = guard(&managed.inner);
                let ownership = inner.ownership();
                backend.set_ownership(object, Ownership { mode: ownership.mode | 0o600, ..ownership })?;
                let opened = backend.open(object, writable);
                backend.set_ownership(object, ownership)?;
                opened
            }
            result => result,
        }
    }

    /// Of all servers, whatever one of them says; the first fault is returned.
    pub(crate) fn remove_objects(&self, object: ObjectName, layout: &Layout) -> Result<(), Refusal> {
        let mut first_fault = None;
        for stripe in layout.stripes() {
            let removed = self.context.server(stripe.server).and_then(|server| {
                match server.truncate(object, 0) {
                    // Where the mode forbids the cut, the room comes back when the last descriptor is closed.
                    Ok(()) | Err(ServerError::Missing { .. } | ServerError::Denied { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                Ok(server.remove(object)?)
            });
            if let Err(refusal) = removed {
                first_fault.get_or_insert(refusal);
            }
        }
        first_fault.map_or(Ok(()), Err)
    }
}

pub(crate) fn sync_as_owner(
    server: &dyn ObjectStore,
    object: ObjectName,
    ownership: Ownership,
) -> Result<(), ServerError> {
    let sync = || server.sync(server.open(object, false)?.as_handle());
    match sync() {
        Err(ServerError::Denied { .. }) => {
            server.set_ownership(object, Ownership { mode: ownership.mode | 0o600, ..ownership })?;
            let synced = sync();
            server.set_ownership(object, ownership)?;
            synced
        }
        result => result,
    }
}

/// The owner may cut what the mode does not let the owner write.
pub(crate) fn truncate_as_owner(
    server: &dyn ObjectStore,
    object: ObjectName,
    length: u64,
    ownership: Ownership,
) -> Result<(), ServerError> {
    match server.truncate(object, length) {
        Err(ServerError::Denied { .. }) => {
            server.set_ownership(object, Ownership { mode: ownership.mode | 0o600, ..ownership })?;
            let cut = server.truncate(object, length);
            server.set_ownership(object, ownership)?;
            cut
        }
        result => result,
    }
}
