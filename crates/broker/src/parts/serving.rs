//! The broker at its socket.

use super::Parts;
use crate::agent_lanes::AgentLanes;
use crate::connection::{Carried, Connection};
use crate::context::Context;
use crate::rechecks::Rechecks;
use crate::serving::Serves;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use stripewise_layout::FileId;
use stripewise_store::protocol::{Reply, Request};

impl Serves for Parts {
    fn answer(
        &self,
        connection: &Connection,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Option<(Reply, Vec<Carried>)> {
        Some(Parts::answer(self, connection, request, descriptors))
    }

    fn has_answered(&self, connection: &Connection) {
        self.begin_ahead(connection);
    }

    fn connection_ended(&self, connection: &Connection) {
        Parts::connection_ended(self, connection);
    }

    fn context(&self) -> &Arc<Context> {
        &self.base.context
    }

    fn agent_lanes(&self) -> &AgentLanes {
        &self.base.agent_lanes
    }

    fn rechecks(&self) -> &Rechecks {
        &self.base.rechecks
    }

    fn begin_rechecks(&self) {
        self.lifecycle.sync_removals();
    }

    /// A file whose last user may have died.
    fn recheck_again(&self, file: FileId) -> bool {
        self.name_changes.recheck_again(file)
    }
}
