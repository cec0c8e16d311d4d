//! What tells the daemon where regions should lie: nobody, a plan, or what programs do.

use super::error::{DaemonError, Result};
use super::follow::Follower;
use super::online::{Online, OnlineStatus};
use crate::progress::Voice;
use crate::store::Store;
use std::time::Duration;
use stripewise_layout::{RegionIndex, ServerId};

pub(crate) enum Guide {
    Nobody,
    Plan(Box<Follower>),
    Online(Box<Online>),
}

impl Guide {
    /// Begins: the first window's placement is ordered, where a plan has one.
    pub(super) fn start(&mut self, store: &Store, voice: &Voice) -> Result<()> {
        match self {
            Guide::Plan(follower) => follower.start(store, voice),
            Guide::Nobody | Guide::Online(_) => Ok(()),
        }
    }

    /// Orders what is due. Returns when something is due again at the latest.
    pub(super) fn poll(&mut self, store: &Store, voice: &Voice) -> Result<Option<Duration>> {
        match self {
            Guide::Nobody => Ok(None),
            Guide::Plan(follower) => follower.poll(store, voice),
            Guide::Online(online) => online.poll(store, voice).map(Some),
        }
    }

    /// A program marks a phase; what to tell it.
    pub(super) fn mark(&mut self, store: &Store, voice: &Voice, name: &str) -> Result<String> {
        match self {
            Guide::Plan(follower) => follower.mark(store, voice, name),
            Guide::Nobody | Guide::Online(_) => Err(DaemonError::NoPlan),
        }
    }

    /// Another broker answers: what was ordered is gone.
    pub(super) fn order_again(&mut self, store: &Store, voice: &Voice) -> Result<()> {
        match self {
            Guide::Nobody => Ok(()),
            Guide::Plan(follower) => follower.order_again(store, voice),
            // The daemon orders again whatever was under way and is of no plan.
            Guide::Online(online) => {
                online.meet_broker();
                Ok(())
            }
        }
    }

    /// Whether moves of the file at `path` are ordered here whenever they are needed.
    pub(super) fn has(&self, path: &str) -> bool {
        matches!(self, Guide::Plan(follower) if follower.has(path))
    }

    /// Whether it wants the region of the file at `path` to have a stripe on the server now.
    pub(super) fn wants(&self, path: &str, region: RegionIndex, server: ServerId) -> bool {
        match self {
            Guide::Nobody => false,
            Guide::Plan(follower) => follower.wants(path, region, server),
            Guide::Online(online) => online.wants(path, region, server),
        }
    }

    /// Ends what is not committed of its orders, for a broker that outlives this.
    pub(super) fn cancel(&self, store: &Store) -> Result<()> {
        match self {
            Guide::Nobody => Ok(()),
            Guide::Plan(follower) => follower.cancel(store),
            Guide::Online(online) => online.cancel(store),
        }
    }

    /// The window of the plan that holds, and how many there are.
    pub(super) fn window(&self) -> Option<(usize, usize)> {
        match self {
            Guide::Plan(follower) => Some((follower.window(), follower.windows())),
            Guide::Nobody | Guide::Online(_) => None,
        }
    }

    pub(super) fn online(&self) -> Option<&OnlineStatus> {
        match self {
            Guide::Online(online) => Some(online.status()),
            Guide::Nobody | Guide::Plan(_) => None,
        }
    }
}
