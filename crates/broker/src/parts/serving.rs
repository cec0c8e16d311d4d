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
        let answer = Parts::answer(self, connection, request, descriptors);
        let is_refused = matches!(answer.0, Reply::Refused(_));
        // Another host is master by now, or may be: that one is asked next.
        let may_be_followed = self.base.context.membership().is_some_and(|membership| membership.may_be_followed());
        let is_unanswered = may_be_followed || is_refused && self.base.context.table().is_deposed();
        (!is_unanswered).then_some(answer)
    }

    fn in_spare_time(&self) {
        self.base.memory.make_wanted();
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
