//! Servers that are being emptied: nothing new is placed on them, and nothing moves there.
//!
//! A layout that names one is used without it, its other stripes as they are; what keeps placements as they were for the day when the server
//! is used again. The names stand in the state directory, as the cluster file is the user's; those of a cluster of many hosts in its table.

use crate::BrokerError;
use crate::context::Context;
use crate::log::note;
use crate::rmt::{drained_in, note_drained};
use crate::standing::Standings;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use stripewise_layout::{Cluster, Layout, ServerId};
use stripewise_store::protocol::Refusal;

/// Those of the cluster's servers that are named; others may have been taken out of it since.
fn numbers(cluster: &Cluster, names: &[String]) -> BTreeSet<ServerId> {
    let servers = (0..).map(ServerId).zip(&cluster.servers);
    servers.filter(|(_, server)| names.contains(&server.name)).map(|(id, _)| id).collect()
}

/// The servers that are being emptied.
pub(crate) struct Drained {
    context: Arc<Context>,
    servers: RwLock<BTreeSet<ServerId>>,
}

impl Drained {
    pub(crate) fn load(context: &Arc<Context>) -> Result<Self, BrokerError> {
        let names = match context.others() {
            // Whichever host is master.
            Some(_) => drained_in(context.table())?,
            None => context.state().drained()?,
        };
        let servers = numbers(context.cluster(), &names);
        Ok(Self { context: Arc::clone(context), servers: RwLock::new(servers) })
    }

    /// Durable first, then in force for whatever is placed from now on.
    pub(crate) fn set(&self, server: ServerId, is_drained: bool) -> Result<(), Refusal> {
        let name = self.context.server(server)?.name().to_owned();
        let mut drained = self.servers.write().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = drained.clone();
        if is_drained {
            wanted.insert(server);
        } else {
            wanted.remove(&server);
        }
        let servers = &self.context.cluster().servers;
        if wanted.len() == servers.len() {
            return Err(Refusal::Invalid {
                what: format!(
                    "{name} is the last server that is not drained; add another to cluster.toml, or use a drained one again"
                ),
            });
        }
        if self.context.others().is_some() {
            note_drained(self.context.table(), &name, is_drained)?;
        } else {
            let names: Vec<&str> = wanted.iter().map(|id| servers[usize::from(id.0)].name.as_str()).collect();
            self.context.state().keep_drained(&names).map_err(|error| Refusal::Table { what: error.to_string() })?;
        }
        *drained = wanted;
        note!(
            self.context.log(),
            info,
            server = name,
            "a server is {}",
            if is_drained { "drained" } else { "used again" }
        );
        Ok(())
    }

    pub(crate) fn servers(&self) -> BTreeSet<ServerId> {
        self.servers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn is_drained(&self, server: ServerId) -> bool {
        self.servers.read().unwrap_or_else(PoisonError::into_inner).contains(&server)
    }

    /// `layout` without drained servers.
    pub(crate) fn avoiding(&self, layout: &Layout) -> Layout {
        let drained = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        if drained.is_empty() {
            return layout.clone();
        }
        // There is always a server that is not drained.
        self.context.cluster().layout_without(layout, &drained).unwrap_or_else(|| layout.clone())
    }

    /// Refuses a layout that names a drained server.
    pub(crate) fn check_drained(&self, layout: &Layout) -> Result<(), Refusal> {
        let drained = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        match layout.stripes().iter().find(|stripe| drained.contains(&stripe.server)) {
            None => Ok(()),
            Some(stripe) => {
                let name = &self.context.cluster().servers[usize::from(stripe.server.0)].name;
                Err(Refusal::Invalid {
                    what: format!(
                        "server {name} is drained; `stripewise evacuate {name} --undo` lets it be used again"
                    ),
                })
            }
        }
    }

    /// `planned` without drained servers, those that cannot be used, and those in `avoided`; an error when none is left.
    pub(crate) fn usable(
        &self,
        standings: &mut Standings<'_>,
        planned: &Layout,
        avoided: &BTreeSet<ServerId>,
    ) -> Result<Layout, Refusal> {
        let mut left_out = self.servers();
        left_out.extend(avoided);
        let mut first_fault = None;
        while let Some(layout) = self.context.cluster().layout_without(planned, &left_out) {
            let Some(unusable) = standings.first_unusable(&layout) else { return Ok(layout) };
            first_fault.get_or_insert_with(|| standings.refusal(unusable));
            left_out.insert(unusable);
        }
        Err(first_fault.unwrap_or_else(|| Refusal::NoSpace { what: "no server is left that has any".to_owned() }))
    }
}
