//! What the socket of a host is served by: the broker, or an agent that follows another host's.

use crate::agent_lanes::AgentLanes;
use crate::connection::{Carried, Connection};
use crate::context::Context;
use crate::rechecks::Rechecks;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use stripewise_layout::FileId;
use stripewise_store::protocol::{Reply, Request};

/// Answers the programs of a host.
pub(crate) trait Serves: Send + Sync {
    /// `None`: it cannot be answered here any more, but by whoever serves this host next.
    fn answer(
        &self,
        connection: &Connection,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Option<(Reply, Vec<Carried>)>;

    /// A thread has served a request and may do what nobody waits for; others serve meanwhile.
    fn in_spare_time(&self);

    /// The program is gone, or closed its connection.
    fn connection_ended(&self, connection: &Connection);

    fn context(&self) -> &Arc<Context>;

    fn agent_lanes(&self) -> &AgentLanes;

    fn rechecks(&self) -> &Rechecks;

    /// Before files are looked at again.
    fn begin_rechecks(&self);

    /// Looks at a file whose last user may have died; true when it need not be looked at again.
    fn recheck_again(&self, file: FileId) -> bool;
}
