//! Objects as the broker itself uses them: as their owner, who may have to change their mode for the moment.

use crate::context::{Context, server_in};
use crate::guard;
use crate::managed::Managed;
use std::sync::Arc;
use stripewise_layout::{Layout, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{
    ObjectHandle, ObjectName, ObjectStore, OpenMode, Operation, Outcome, Ownership, ServerError, Syncing,
    capabilities_by_agent,
};

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

    /// The same for the objects of all stripes of a layout, all opened together; in the layout's order.
    pub(crate) fn open_all_as_owner(
        &self,
        managed: &Managed,
        object: ObjectName,
        layout: &Layout,
        writable: bool,
    ) -> Result<Vec<ObjectHandle>, ServerError> {
        let open = Operation::Open(object, OpenMode { writable, direct: false });
        let opened = self.context.perform_together(stripe_servers(layout).map(|server| (server, open.clone())));
        let handle = |(server, outcome): (ServerId, Result<Outcome, ServerError>)| match outcome {
            Err(ServerError::Denied { .. }) => self.open_as_owner(managed, object, server, writable),
            outcome => outcome?.into_handle(&self.context.server_name(server)),
        };
        stripe_servers(layout).zip(opened).map(handle).collect()
    }

    /// Removes a region's objects; the first fault is returned when all that can be removed are.
    pub(crate) fn remove_objects(&self, object: ObjectName, layout: &Layout) -> Result<(), Refusal> {
        let objects: Vec<(ServerId, ObjectName)> = stripe_servers(layout).map(|server| (server, object)).collect();
        Ok(self.context.remove_objects(&objects).into_iter().collect::<Result<(), ServerError>>()?)
    }
}

/// The servers of a layout, in its order.
pub(crate) fn stripe_servers(layout: &Layout) -> impl Iterator<Item = ServerId> {
    layout.stripes().iter().map(|stripe| stripe.server)
}

/// Objects that one batch of [`Context`] opens at most, so that not too many descriptors are held at a time.
const MAX_OPEN: usize = 256;

impl Context {
    /// Removes these objects, all of them together, each truncated first. One result for each.
    pub(crate) fn remove_objects(&self, objects: &[(ServerId, ObjectName)]) -> Vec<Result<(), ServerError>> {
        let truncate = |(server, object): &(ServerId, ObjectName)| (*server, Operation::Truncate(*object, 0));
        let truncated = self.perform_together(objects.iter().map(truncate)).into_iter().map(|outcome| match outcome {
            // Where the mode forbids the truncation, the space comes back when the last descriptor is closed.
            Ok(_) | Err(ServerError::Missing { .. } | ServerError::Denied { .. }) => Ok(()),
            Err(error) => Err(error),
        });
        let truncated: Vec<Result<(), ServerError>> = truncated.collect();
        let removable = objects.iter().zip(&truncated).filter(|(_, truncated)| truncated.is_ok());
        let remove = |((server, object), _): (&(ServerId, ObjectName), _)| (*server, Operation::Remove(*object));
        let mut removed = self.perform_together(removable.map(remove)).into_iter();
        let result = |truncated: Result<(), ServerError>| {
            truncated.and_then(|()| removed.next().map_or(Ok(()), |outcome| outcome.map(drop)))
        };
        truncated.into_iter().map(result).collect()
    }

    /// Makes durable what was written to these objects, of one owner.
    pub(crate) fn sync_as_owner(
        &self,
        objects: &[(ServerId, ObjectName)],
        ownership: Ownership,
    ) -> Result<(), Refusal> {
        let read_only = OpenMode { writable: false, direct: false };
        // Servers on which that is done by now are not waited for.
        let objects: Vec<_> = objects.iter().filter(|(server, _)| !self.syncs_by_itself(*server)).copied().collect();
        for some in objects.chunks(MAX_OPEN) {
            let opened = self
                .perform_together(some.iter().map(|(server, object)| (*server, Operation::Open(*object, read_only))));
            let mut handles = Vec::with_capacity(some.len());
            for ((server, object), outcome) in some.iter().zip(opened) {
                match outcome {
                    Err(ServerError::Denied { .. }) => sync_denied(self.server(*server)?, *object, ownership)?,
                    outcome => handles.push((*server, outcome?.into_handle(&self.server_name(*server))?)),
                }
            }
            let syncs = handles.iter().map(|(server, handle)| (*server, Operation::Sync(handle.as_handle())));
            self.perform_together(syncs).into_iter().try_for_each(|outcome| outcome.map(drop))?;
        }
        Ok(())
    }

    /// Whether what the server has answered is durable.
    fn syncs_by_itself(&self, server: ServerId) -> bool {
        let listed = self.cluster().servers.get(usize::from(server.0));
        let capabilities = listed.and_then(|server| capabilities_by_agent(&server.url));
        capabilities.is_some_and(|capabilities| capabilities.syncing == Syncing::Nothing)
    }

    /// Truncates these objects of one owner, who may truncate what the mode does not let the owner write. One result for each.
    pub(crate) fn truncate_as_owner(
        &self,
        objects: &[(ServerId, ObjectName, u64)],
        ownership: Ownership,
    ) -> Vec<Result<(), ServerError>> {
        let truncate =
            |(server, object, length): &(ServerId, ObjectName, u64)| (*server, Operation::Truncate(*object, *length));
        let outcomes = self.perform_together(objects.iter().map(truncate));
        let result = |((server, object, length), outcome): (&(ServerId, ObjectName, u64), _)| match outcome {
            Err(ServerError::Denied { .. }) => {
                truncate_denied(server_in(self.servers(), *server)?, *object, *length, ownership)
            }
            outcome => outcome.map(drop),
        };
        objects.iter().zip(outcomes).map(result).collect()
    }
}

/// Of an object whose mode keeps its owner out, which is changed for the moment.
fn sync_denied(server: &dyn ObjectStore, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
    server.set_ownership(object, Ownership { mode: ownership.mode | 0o600, ..ownership })?;
    let synced = server.open(object, false).and_then(|handle| server.sync(handle.as_handle()));
    server.set_ownership(object, ownership)?;
    synced
}

/// The same for a truncation.
fn truncate_denied(
    server: &dyn ObjectStore,
    object: ObjectName,
    length: u64,
    ownership: Ownership,
) -> Result<(), ServerError> {
    server.set_ownership(object, Ownership { mode: ownership.mode | 0o600, ..ownership })?;
    let truncated = server.truncate(object, length);
    server.set_ownership(object, ownership)?;
    truncated
}
