//! What servers have free, asked of the servers themselves, whatever their kind.
//!
//! A command that is served by a broker gets the answers with [`Store::usage`](crate::store::Store::usage). One that is not, such as `plan`, asks here: a server is
//! opened beside the broker that may have it, and nothing is changed.

use std::fmt::Display;
use stripewise_broker::by_agent;
use stripewise_layout::{Cluster, ServerId};
use stripewise_store::server::{self, ServerError, Standing};

/// What every server of the cluster has free, in its order, or why that is not known.
#[must_use]
pub fn of_servers(cluster: &Cluster) -> Vec<Result<Standing, ServerError>> {
    let asked = |id: ServerId| {
        let named = &cluster.servers[usize::from(id.0)];
        if server::is_by_agent(&named.url) {
            return by_agent::inspect(&cluster.id, &named.name, &named.url)?.standing();
        }
        server::open(&cluster.id, id, &named.name, &named.url, None)?.standing()
    };
    cluster.ids().map(asked).collect()
}

/// A remark about a server of which nobody knows what it has free.
pub(crate) fn unknown(server: &str, consequence: &str, why: impl Display) -> String {
    format!("what server {server} has free is not known, {consequence}: {why}")
}
