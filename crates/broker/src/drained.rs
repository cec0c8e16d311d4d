//! Servers that are being emptied: nothing new is placed on them, and nothing moves there.
//!
//! A layout that names one is used without it, its other stripes as they are; what keeps placements as they were for the day when the server
//! is used again. The names stand in the state directory, as the cluster file is the user's.

use super::Core;
use std::collections::BTreeSet;
use std::sync::PoisonError;
use stripewise_layout::{Cluster, Layout, ServerId};
use stripewise_store::protocol::Refusal;

/// Those of the cluster's servers that are named; others may have been taken out of it since.
pub(super) fn numbers(cluster: &Cluster, names: &[String]) -> BTreeSet<ServerId> {
    let servers = (0..).map(ServerId).zip(&cluster.servers);
    servers.filter(|(_, server)| names.contains(&server.name)).map(|(id, _)| id).collect()
}

impl Core {
    pub(super) fn drained(&self) -> BTreeSet<ServerId> {
        self.drained.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Durable first, then in force for whatever is placed from now on.
    pub(super) fn set_drained(&self, server: ServerId, is_drained: bool) -> Result<(), Refusal> {
        let name = self.server(server)?.name().to_owned();
        let mut drained = self.drained.write().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = drained.clone();
        if is_drained {
            wanted.insert(server);
        } else {
            wanted.remove(&server);
        }
        if wanted.len() == self.cluster.servers.len() {
            return Err(Refusal::Invalid {
                what: format!(
                    "{name} is the last server that is not drained; add another to cluster.toml, or use a drained one again"
                ),
            });
        }
        let names: Vec<&str> = wanted.iter().map(|id| self.cluster.servers[usize::from(id.0)].name.as_str()).collect();
        self.state.keep_drained(&names).map_err(|error| Refusal::Table { what: error.to_string() })?;
        *drained = wanted;
        drop(drained);
        self.state.note(&format!("server {name} is {}", if is_drained { "drained" } else { "used again" }));
        self.leave_logs();
        if is_drained { self.leave_server(server) } else { Ok(()) }
    }

    pub(super) fn is_drained(&self, server: ServerId) -> bool {
        self.drained.read().unwrap_or_else(PoisonError::into_inner).contains(&server)
    }

    /// `layout` without drained servers.
    pub(super) fn avoiding(&self, layout: &Layout) -> Layout {
        let drained = self.drained.read().unwrap_or_else(PoisonError::into_inner);
        if drained.is_empty() {
            return layout.clone();
        }
        // There is always a server that is not drained.
        self.cluster.layout_without(layout, &drained).unwrap_or_else(|| layout.clone())
    }

    /// Refuses a layout that names a drained server.
    pub(super) fn check_drained(&self, layout: &Layout) -> Result<(), Refusal> {
        let drained = self.drained.read().unwrap_or_else(PoisonError::into_inner);
        match layout.stripes().iter().find(|stripe| drained.contains(&stripe.server)) {
            None => Ok(()),
            Some(stripe) => {
                let name = &self.cluster.servers[usize::from(stripe.server.0)].name;
                Err(Refusal::Invalid {
                    what: format!("server {name} is drained; `stripewise drain {name} --undo` lets it be used again"),
                })
            }
        }
    }
}
