//! How servers stand when regions are to be placed on them: usable or not, and what they have free.
//!
//! They are asked once for each request, and before capacity is reserved, so that one that does not answer holds up this request alone. A server that
//! cannot be used is left out of layouts: first the others of the layout take its part, then those of its class, then any.

use std::collections::BTreeMap;
use stripewise_layout::{Layout, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectStore, ServerError, Standing};

/// What servers said of themselves.
pub(crate) struct Standings<'a> {
    servers: &'a [Box<dyn ObjectStore>],
    known: BTreeMap<ServerId, Result<Standing, ServerError>>,
}

impl<'a> Standings<'a> {
    pub(crate) fn new(servers: &'a [Box<dyn ObjectStore>]) -> Self {
        Self { servers, known: BTreeMap::new() }
    }

    /// Asks the server unless it was asked before.
    pub(crate) fn look(&mut self, server: ServerId) -> Result<(), &ServerError> {
        let servers = self.servers;
        let ask = || match servers.get(usize::from(server.0)) {
            Some(server) => server.standing(),
            None => Err(ServerError::Unusable {
                server: format!("number {server}"),
                what: format!("cluster.toml names {} servers only; restore it", servers.len()),
            }),
        };
        self.known.entry(server).or_insert_with(ask).as_ref().map(drop)
    }

    /// Asks all servers of the layout; the first that cannot be used.
    pub(crate) fn check(&mut self, layout: &Layout) -> Result<(), Refusal> {
        match layout.stripes().iter().find(|stripe| self.look(stripe.server).is_err()) {
            Some(stripe) => Err(self.refusal(stripe.server)),
            None => Ok(()),
        }
    }

    /// The server counts as one that cannot be used, because of `error`. False: it did before.
    pub(crate) fn leave_out(&mut self, server: ServerId, error: ServerError) -> bool {
        !matches!(self.known.insert(server, Err(error)), Some(Err(_)))
    }

    pub(crate) fn refusal(&self, server: ServerId) -> Refusal {
        match self.known.get(&server) {
            Some(Err(error)) => error.into(),
            _ => Refusal::Invalid { what: format!("server {server} was not asked") },
        }
    }

    /// Of a server that was asked and can be used.
    pub(crate) fn of(&self, server: ServerId) -> Option<Standing> {
        self.known.get(&server)?.as_ref().ok().copied()
    }

    /// What is wrong with those that were asked and cannot be used.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &ServerError> {
        self.known.values().filter_map(|standing| standing.as_ref().err())
    }
}
