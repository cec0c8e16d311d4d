//! How servers stand when regions are to be placed on them: usable or not, and what they have free.
//!
//! They are asked once for each request, and before capacity is reserved, so that one that does not answer holds up this request alone. A server that
//! cannot be used is left out of layouts: first the others of the layout take its part, then those of its class, then any.

use crate::context::{perform_together, server_name};
use crate::guard;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use stripewise_layout::{Layout, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectStore, Operation, ServerError, Standing};

/// How old an answer may be where a server's free space alone matters, and only if it is more than is written meanwhile.
const MAX_AGE: Duration = Duration::from_secs(1);
const PLENTY_BYTES: u64 = 8 << 30;

/// What servers with plenty of space said of themselves a moment ago. Enough to promise space of theirs, but not that they are still there.
#[derive(Default)]
pub(crate) struct RecentStandings {
    heard: Mutex<BTreeMap<ServerId, (Instant, Standing)>>,
}

impl RecentStandings {
    pub(crate) fn note(&self, server: ServerId, standing: Standing) {
        guard(&self.heard).insert(server, (Instant::now(), standing));
    }

    pub(crate) fn forget(&self, server: ServerId) {
        guard(&self.heard).remove(&server);
    }

    pub(crate) fn of(&self, server: ServerId) -> Option<Standing> {
        let heard = guard(&self.heard);
        let counts =
            |(at, standing): &&(Instant, Standing)| standing.free_bytes >= PLENTY_BYTES && at.elapsed() < MAX_AGE;
        heard.get(&server).filter(counts).map(|(_, standing)| *standing)
    }
}

/// What servers said of themselves.
pub(crate) struct Standings<'a> {
    servers: &'a [Box<dyn ObjectStore>],
    known: BTreeMap<ServerId, Result<Standing, ServerError>>,
}

impl<'a> Standings<'a> {
    pub(crate) fn new(servers: &'a [Box<dyn ObjectStore>]) -> Self {
        Self { servers, known: BTreeMap::new() }
    }

    /// Asks the layout's servers, those that were not asked before and all of them together, and returns the first that cannot be used.
    pub(crate) fn first_unusable(&mut self, layout: &Layout) -> Option<ServerId> {
        let servers = || layout.stripes().iter().map(|stripe| stripe.server);
        let unasked: BTreeSet<ServerId> = servers().filter(|server| !self.known.contains_key(server)).collect();
        let asked = perform_together(self.servers, unasked.iter().map(|server| (*server, Operation::Standing)));
        for (server, outcome) in unasked.into_iter().zip(asked) {
            let standing = outcome.and_then(|outcome| outcome.into_standing(&server_name(self.servers, server)));
            self.known.insert(server, standing);
        }
        servers().find(|server| matches!(self.known.get(server), Some(Err(_))))
    }

    /// That all servers of the layout can be used; otherwise what is wrong with the first that cannot.
    pub(crate) fn check(&mut self, layout: &Layout) -> Result<(), Refusal> {
        self.first_unusable(layout).map_or(Ok(()), |server| Err(self.refusal(server)))
    }

    /// The server counts as one that cannot be used, because of `error`. False: it did before.
    pub(crate) fn leave_out(&mut self, server: ServerId, error: ServerError) -> bool {
        !matches!(self.known.insert(server, Err(error)), Some(Err(_)))
    }

    /// What a server said of itself a moment ago, which saves asking it.
    pub(crate) fn know(&mut self, server: ServerId, standing: Standing) {
        self.known.entry(server).or_insert(Ok(standing));
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
