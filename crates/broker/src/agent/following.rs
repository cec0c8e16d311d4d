//! The role of an agent that follows the master: how it begins, and how it ends.
//!
//! It ends in two steps. When the master is lost nothing that it asked for is done any more, and what programs ask waits; lanes are served on, since what
//! is placed may be read and written without a master. When another role is in reach the programs are passed on to it.

use super::follower::Follower;
use super::links::{FollowerEars, PeerLine};
use super::watching::MasterWatch;
use super::{CONNECTION, Role, Seat, patience_of_programs};
use crate::context::{Context, Sharing};
use crate::coordination::Master as Elected;
use crate::guard;
use crate::hosts::{self, Peer};
use crate::log::note;
use crate::membership::{Leave, Membership};
use crate::service::Service;
use crate::serving::Serves as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use stripewise_store::protocol::Refusal;
use stripewise_store::state::StateDirectory;

/// An agent that follows a master.
pub(super) struct Following {
    follower: Arc<Follower>,
    service: Service,
    link: OwnLink,
    watch: MasterWatch,
}

/// A master whose host answers.
pub(super) struct Reached {
    master: Elected,
    ears: Arc<FollowerEars>,
    link: OwnLink,
}

/// Closed when this is dropped.
struct OwnLink(Arc<Peer>);

impl Drop for OwnLink {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What a follower that has lost its master finds.
pub(super) enum Next {
    /// There is a master, or may be one, that this host does not reach.
    OutOfReach,
    /// There is none, or none that takes this host: the role ends, and the agent says why it has no other.
    None,
    Reached(Reached),
}

/// Why a master is not followed.
pub(super) struct NotFollowed {
    pub(super) what: String,
    /// Nothing changes that but a person.
    pub(super) is_refused: bool,
}

impl NotFollowed {
    fn yet(why: impl std::fmt::Display) -> Self {
        Self::now(why.to_string())
    }

    fn now(what: String) -> Self {
        Self { what, is_refused: false }
    }
}

impl Following {
    pub(super) fn follower(&self) -> &Arc<Follower> {
        &self.follower
    }

    pub(super) fn is_over(&self) -> bool {
        !self.link.0.is_open()
            || self.follower.is_over()
            || self.watch.is_over()
            || self.follower.context().is_shut_out()
    }

    /// The first step of the end. Nothing happens if that was done.
    pub(super) fn lose_master(&self, seat: &Seat) {
        if self.follower.is_ending() {
            return;
        }
        let master = &self.link.0.introduction().host;
        note!(seat.log, info, %master, "the master is lost");
        *guard(&seat.followed) = Some((master.clone(), self.link.0.last_heard()));
        // Nobody waits for the answer of a host that is lost.
        self.follower.lose();
        self.link.0.close();
        self.follower.end();
    }

    /// `leaves`: the agent ends with it.
    pub(super) fn end(self, seat: &Seat, leaves: bool) -> Leave {
        if !leaves {
            self.lose_master(seat);
            self.follower.agent_lanes().are_followed();
        }
        let Self { follower, service, link, watch } = self;
        drop(watch);
        follower.pass_on();
        service.stop();
        seat.close_servers(follower.context(), follower.agent_lanes());
        if leaves {
            let leave = follower.leave();
            drop(link);
            follower.end();
            leave
        } else {
            Leave::Stays
        }
    }
}

impl Seat {
    /// Looks once.
    pub(super) fn next_master(&self) -> Next {
        let Ok(master) = self.coordinator.master() else { return Next::OutOfReach };
        // Whoever was away may have missed a change of the key.
        let reached = master.filter(|_| self.catch_up().is_ok()).map(|master| self.reach(&master));
        match reached {
            None | Some(Err(NotFollowed { is_refused: true, .. })) => Next::None,
            Some(Err(_)) => Next::OutOfReach,
            Some(Ok(reached)) => Next::Reached(reached),
        }
    }

    pub(super) fn reach(&self, master: &Elected) -> Result<Reached, NotFollowed> {
        let address =
            master.candidate.address.parse().map_err(|_| NotFollowed::now("its address is none".to_owned()))?;
        let ears = Arc::new(FollowerEars::default());
        let link = hosts::connect(address, &self.keys.key(), &self.introduction, Arc::clone(&ears) as _, CONNECTION)
            .map_err(|error| NotFollowed { what: error.to_string(), is_refused: error.is_refusal() })?;
        self.counts.note_link();
        Ok(Reached { master: master.clone(), ears, link: OwnLink(link) })
    }

    pub(super) fn follow(&self, reached: Reached) -> Result<Role, NotFollowed> {
        let Reached { master, ears, link } = reached;
        let begin = || -> Result<_, NotFollowed> {
            let state = StateDirectory::of(&self.cluster).map_err(NotFollowed::yet)?;
            let listener = state.listen().map_err(NotFollowed::yet)?;
            let membership = Arc::new(Membership::of_follower(&self.candidate.name));
            let sharing = Sharing {
                table: self.coordinator.table(),
                others: None,
                first_number: 0,
                membership,
                counts: Arc::clone(&self.counts),
                keys: Arc::clone(&self.keys),
                under_way: Arc::clone(&self.under_way),
                agent: self.identity(),
            };
            let context =
                Context::open(&self.cluster, state, Arc::clone(&self.lock), self.options.clone(), Some(sharing))
                    .map_err(NotFollowed::yet)?;
            let follower = Follower::start(
                context,
                Arc::new(PeerLine(Arc::clone(&link.0))),
                !self.has_come.load(SeqCst),
                patience_of_programs(self.host_timeout),
                |follower| {
                    ears.belong_to(follower);
                },
            )
            .map_err(|refusal| match refusal {
                // The master says that this host cannot take part as it is.
                Refusal::Invalid { what } => NotFollowed { what, is_refused: true },
                refusal => NotFollowed::yet(refusal),
            })?;
            self.has_come.store(true, SeqCst);
            let service = Service::start(Arc::clone(&follower) as _, listener).map_err(NotFollowed::yet)?;
            let watch = MasterWatch::start(&self.coordinator, master.term, &link.0).map_err(NotFollowed::yet)?;
            Ok((follower, service, watch))
        };
        let (follower, service, watch) = begin()?;
        self.counts.note_election(false);
        note!(self.log, info, master = %master.candidate.name, "this host follows the master");
        Ok(Role::Follower(Following { follower, service, link, watch }))
    }
}
